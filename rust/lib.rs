//! The native core of `s3k_async`: paths, table keys, physical keys, digests, signed requests and
//! heads of HTTP messages.

mod arrow;
mod clean_objects;
mod columns;
mod committed_claims;
mod digest;
mod dynamodb;
mod entries;
mod entry_facts;
mod entry_sequence;
mod errors;
mod fact_lines;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hex;
mod http;
mod items;
mod json;
mod keys;
mod limits;
mod operation_lines;
mod operations;
mod paths;
mod physical;
mod recent;
mod record_facts;
mod rows;
mod s3_answers;
mod sign;
mod status;
mod suffix;
mod view;
mod xml;

/// Paths, table keys, physical keys, digests and signed requests.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::clean_objects::{lonely_children, undecided_facts, unnamed_blobs};
    #[pymodule_export]
    use crate::committed_claims::{committed_claims, committed_facts};
    #[pymodule_export]
    use crate::digest::{Xxh3_128, crc32, sha256_hex, xxh3_64};
    #[pymodule_export]
    use crate::dynamodb::actions::{Deletes, Moves, Resolutions};
    #[pymodule_export]
    use crate::dynamodb::request::{
        encode_batch_get, encode_get, encode_load, encode_query, encode_scan, encode_transaction,
        encode_write,
    };
    #[pymodule_export]
    use crate::dynamodb::response::{Page, decode_batch, decode_item, decode_page};
    #[pymodule_export]
    use crate::entry_facts::{EntryFacts, entry_facts, named_facts};
    #[pymodule_export]
    use crate::entry_sequence::Entries;
    #[pymodule_export]
    use crate::fact_lines::{FactLines, PartLines, blob_facts, old_blob_facts};
    #[pymodule_export]
    use crate::http::{answer_head, request_head};
    #[pymodule_export]
    use crate::keys::{
        decode_key, decode_keys, item_key, item_keys, partition_key, partition_keys,
    };
    #[pymodule_export]
    use crate::operations::{Operations, has_directories, operation_line};
    #[pymodule_export]
    use crate::paths::{ancestors, join, normalize, normalize_many, split};
    #[pymodule_export]
    use crate::physical::{object_id_of, physical_key, physical_keys, uuid_text, uuid_texts};
    #[pymodule_export]
    use crate::record_facts::record_facts;
    #[pymodule_export]
    use crate::rows::Rows;
    #[pymodule_export]
    use crate::s3_answers::{
        decode_copied, decode_listing, decode_refusal, decode_refused, encode_deletions,
    };
    #[pymodule_export]
    use crate::sign::Signer;
    #[pymodule_export]
    use crate::status::{FileStatus, status_of};
    #[pymodule_export]
    use crate::suffix::{suffix_index, suffix_indexes};
}
