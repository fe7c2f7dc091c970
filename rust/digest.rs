//! Digests of content.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use sha2::{Digest as _, Sha256};
use twox_hash::{xxhash3_64, xxhash3_128};

use crate::hex::push_hex;

/// Buffers of more bytes are hashed with the interpreter released.
pub const RELEASE_BYTES: usize = 4 * 1024;
/// Size in bytes of the pieces in which mutable buffers are copied out.
const COPY_BYTES: usize = 256 * 1024;

/// Passes the bytes of a buffer to `consume`, in order, with the interpreter released for large
/// buffers.
fn each_piece(data: &Bound<'_, PyAny>, mut consume: impl FnMut(&[u8]) + Send) -> PyResult<()> {
    let py = data.py();
    if let Ok(bytes) = data.cast::<PyBytes>() {
        release_for(py, bytes.as_bytes(), &mut consume);
        return Ok(());
    }
    let view = PyMemoryView::from(data)?.call_method1("cast", ("B",))?;
    let length = view.len()?;
    for start in (0..length).step_by(COPY_BYTES) {
        let piece = view
            .as_any()
            .get_item(range(py, start, length.min(start + COPY_BYTES))?)?
            .call_method0("tobytes")?;
        let piece = piece.cast::<PyBytes>()?.as_bytes();
        release_for(py, piece, &mut consume);
    }
    Ok(())
}

fn range(py: Python<'_>, start: usize, end: usize) -> PyResult<Bound<'_, PySlice>> {
    Ok(PySlice::new(py, isize::try_from(start)?, isize::try_from(end)?, 1))
}

fn release_for(py: Python<'_>, bytes: &[u8], consume: &mut (impl FnMut(&[u8]) + Send)) {
    if bytes.len() > RELEASE_BYTES {
        py.detach(|| consume(bytes));
    } else {
        consume(bytes);
    }
}

/// XXH3, 64 bits, seed 0, of a buffer.
#[pyfunction]
pub fn xxh3_64(data: &Bound<'_, PyAny>) -> PyResult<u64> {
    use std::hash::Hasher as _;
    let mut hasher = xxhash3_64::Hasher::new();
    each_piece(data, |piece| hasher.write(piece))?;
    Ok(hasher.finish())
}

/// SHA-256 of a buffer, as 64 hex digits.
#[pyfunction]
pub fn sha256_hex(data: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut hasher = Sha256::new();
    each_piece(data, |piece| hasher.update(piece))?;
    let mut text = String::with_capacity(64);
    push_hex(&mut text, &hasher.finalize());
    Ok(text)
}

/// CRC-32 of a buffer, of the polynomial that zlib uses.
#[pyfunction]
pub fn crc32(data: &Bound<'_, PyAny>) -> PyResult<u32> {
    let mut hasher = crc32fast::Hasher::new();
    each_piece(data, |piece| hasher.update(piece))?;
    Ok(hasher.finalize())
}

/// XXH3, 128 bits, seed 0, computed incrementally.
#[pyclass(frozen, module = "s3k_async._native")]
pub struct Xxh3_128 {
    hasher: Mutex<xxhash3_128::Hasher>,
}

impl Xxh3_128 {
    fn snapshot(&self) -> xxhash3_128::Hasher {
        self.hasher.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[pymethods]
impl Xxh3_128 {
    #[new]
    fn new() -> Self {
        Self { hasher: Mutex::new(xxhash3_128::Hasher::new()) }
    }

    /// Adds bytes.
    fn update(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        each_piece(data, |piece| {
            self.hasher.lock().unwrap_or_else(PoisonError::into_inner).write(piece);
        })
    }

    /// The digest so far, as 32 hex digits in the canonical (big-endian) form.
    fn hexdigest(&self) -> String {
        format!("{:032x}", self.snapshot().finish_128())
    }

    /// An independent copy of the digest.
    fn copy(&self) -> Self {
        Self { hasher: Mutex::new(self.snapshot()) }
    }
}
