#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| _native::fuzzing::answer(data));
