//! The native core of `s3k_async`: pure functions over paths, table keys, physical keys and digests.

mod columns;
mod digest;
mod errors;
mod keys;
mod paths;
mod physical;
mod recent;
mod suffix;

/// Paths, table keys, physical keys and digests.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::digest::{Xxh3_128, xxh3_64};
    #[pymodule_export]
    use crate::keys::{decode_key, decode_keys, item_key, item_keys, partition_key, partition_keys};
    #[pymodule_export]
    use crate::paths::{ancestors, join, normalize, normalize_many, split};
    #[pymodule_export]
    use crate::physical::{object_id_of, physical_key, physical_keys, uuid_text, uuid_texts};
    #[pymodule_export]
    use crate::suffix::{suffix_index, suffix_indexes};
}
