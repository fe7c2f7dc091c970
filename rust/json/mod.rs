//! JSON text (RFC 8259): a cursor that reads it, and strings and numbers as it writes them.

pub mod read;
pub mod write;
