//! Limits of the table for paths and keys.

/// Bytes of UTF-8 in the longest name: a sort key's limit.
pub const MAX_NAME_BYTES: usize = 1024;

/// Bytes of UTF-8 in the longest partition key.
pub const MAX_PARTITION_BYTES: usize = 2048;
