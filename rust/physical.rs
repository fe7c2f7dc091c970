//! UUIDs and physical keys, made of entropy that the caller supplies.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::columns::{Strings, TextColumn};
use crate::errors::{Fault, InvalidPath, text_of};

const UUID_BYTES: usize = 16;
const UUID_CHARACTERS: usize = 36;
const MARK: &str = ".id=";
/// Bytes of UTF-8 in the longest object key of S3.
const MAX_OBJECT_KEY_BYTES: usize = 1024;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends a random UUID (RFC 9562 version 4), lower case.
fn push_uuid(out: &mut String, entropy: &[u8; UUID_BYTES]) {
    let mut bytes = *entropy;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = [b'-'; UUID_CHARACTERS];
    let mut at = 0;
    #[allow(clippy::indexing_slicing)] // 32 digits and 4 hyphens; a digit is below 16
    for (position, &byte) in bytes.iter().enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 0x0f)];
        at += 2;
    }
    out.push_str(str::from_utf8(&text).unwrap_or_default());
}

fn push_physical_key(out: &mut String, object_id: &str, entropy: &[u8; UUID_BYTES]) -> Result<(), InvalidPath> {
    let too_long = UUID_CHARACTERS + MARK.len() + object_id.len() > MAX_OBJECT_KEY_BYTES;
    if object_id.is_empty() || too_long || object_id.contains(['/', '\0']) || object_id.contains(MARK) {
        return Err(InvalidPath::new(Fault::ObjectId, object_id));
    }
    push_uuid(out, entropy);
    out.push_str(MARK);
    out.push_str(object_id);
    Ok(())
}

fn object_id(physical_key: &str) -> Option<&str> {
    let (_, id) = physical_key.rsplit_once(MARK)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn one(entropy: &[u8]) -> PyResult<&[u8; UUID_BYTES]> {
    entropy.try_into().map_err(|_| PyValueError::new_err("16 bytes of entropy are needed"))
}

fn many(entropy: &[u8]) -> PyResult<&[[u8; UUID_BYTES]]> {
    match entropy.as_chunks() {
        (chunks, []) => Ok(chunks),
        _ => Err(PyValueError::new_err("a multiple of 16 bytes of entropy is needed")),
    }
}

/// A version 4 UUID of 16 bytes of entropy.
#[pyfunction]
pub fn uuid_text(entropy: &[u8]) -> PyResult<String> {
    let mut text = String::with_capacity(UUID_CHARACTERS);
    push_uuid(&mut text, one(entropy)?);
    Ok(text)
}

/// Version 4 UUIDs, one for each 16 bytes of entropy.
#[pyfunction]
pub fn uuid_texts<'py>(py: Python<'py>, entropy: &[u8]) -> PyResult<Bound<'py, PyList>> {
    let entropy = many(entropy)?;
    let column = py.detach(|| {
        let mut column = TextColumn::with_capacity(entropy.len(), entropy.len() * UUID_CHARACTERS);
        for sixteen in entropy {
            push_uuid(column.buffer(), sixteen);
            column.end_row();
        }
        column
    });
    column.to_list(py)
}

/// A fresh physical key for an object.
#[pyfunction]
pub fn physical_key(object_id: &Bound<'_, PyString>, entropy: &[u8]) -> PyResult<String> {
    let mut key = String::new();
    push_physical_key(&mut key, text_of(object_id)?, one(entropy)?)?;
    Ok(key)
}

/// Fresh physical keys for many objects.
#[pyfunction]
pub fn physical_keys<'py>(py: Python<'py>, object_ids: Strings<'py>, entropy: &[u8]) -> PyResult<Bound<'py, PyList>> {
    let (ids, entropy) = (object_ids.texts()?, many(entropy)?);
    if ids.len() != entropy.len() {
        return Err(PyValueError::new_err("16 bytes of entropy are needed for each object id"));
    }
    let column = py.detach(|| -> Result<_, InvalidPath> {
        let bytes = ids.iter().map(|id| UUID_CHARACTERS + MARK.len() + id.len()).sum();
        let mut column = TextColumn::with_capacity(ids.len(), bytes);
        for (id, sixteen) in ids.into_iter().zip(entropy) {
            push_physical_key(column.buffer(), id, sixteen)?;
            column.end_row();
        }
        Ok(column)
    })?;
    column.to_list(py)
}

/// The object id in a physical key, or None.
#[pyfunction]
pub fn object_id_of<'a>(physical_key: &'a Bound<'_, PyString>) -> PyResult<Option<&'a str>> {
    Ok(object_id(text_of(physical_key)?))
}
