//! JSON text (RFC 8259): a reading cursor, and writers of strings and numbers.

pub mod read;
pub mod write;
