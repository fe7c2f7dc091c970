//! Hexadecimal text.

/// Two lower-case digits of every byte.
#[allow(clippy::indexing_slicing)] // evaluated by the compiler
const DIGITS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [digits[byte >> 4], digits[byte & 0x0f]];
        byte += 1;
    }
    table
};

/// The two lower-case digits of a byte.
pub fn digits(byte: u8) -> [u8; 2] {
    #[allow(clippy::indexing_slicing)] // there are as many rows as bytes
    DIGITS[usize::from(byte)]
}

/// Appends two lower-case digits for each byte.
pub fn push_hex(out: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        let [high, low] = digits(byte);
        out.push(char::from(high));
        out.push(char::from(low));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        for byte in 0..=255 {
            let mut text = String::new();
            push_hex(&mut text, &[byte]);
            assert_eq!(text, format!("{byte:02x}"));
        }
    }
}
