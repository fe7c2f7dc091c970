//! UUIDs and physical keys from entropy of the caller.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::columns::{Strings, TextColumn};
use crate::errors::{Fault, InvalidPath, text_of};
use crate::hex::digits;

const UUID_BYTES: usize = 16;
/// Characters of a UUID.
pub const UUID_CHARACTERS: usize = 36;
const MARK: &str = ".id=";
/// Bytes of UTF-8 in the longest object key of S3.
const MAX_OBJECT_KEY_BYTES: usize = 1024;

/// Appends a random UUID (RFC 9562 version 4), lower case.
pub fn push_uuid(out: &mut String, entropy: &[u8; UUID_BYTES]) {
    let mut bytes = *entropy;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = [b'-'; UUID_CHARACTERS];
    let places = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
    #[allow(clippy::indexing_slicing)] // every place and its successor are within the text
    for (byte, place) in bytes.into_iter().zip(places) {
        let [high, low] = digits(byte);
        text[place] = high;
        text[place + 1] = low;
    }
    out.push_str(str::from_utf8(&text).unwrap_or_default());
}

fn push_physical_key(
    out: &mut String,
    object_id: &str,
    entropy: &[u8; UUID_BYTES],
) -> Result<(), InvalidPath> {
    let bytes = object_id.as_bytes();
    let too_long = UUID_CHARACTERS + MARK.len() + bytes.len() > MAX_OBJECT_KEY_BYTES;
    let ambiguous = bytes.contains(&b'=') && object_id.contains(MARK);
    if bytes.is_empty() || too_long || ambiguous || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(InvalidPath::new(Fault::ObjectId, object_id));
    }
    push_uuid(out, entropy);
    out.push_str(MARK);
    out.push_str(object_id);
    Ok(())
}

/// The object id in a physical key.
pub fn object_id(physical_key: &str) -> Option<&str> {
    let (_, id) = physical_key.rsplit_once(MARK)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// Whether a key has the form of this package's, with the UUIDs in lower case.
pub fn is_physical_key(key: &str) -> bool {
    let is_uuid = |text: &str| {
        text.len() == UUID_CHARACTERS
            && text.bytes().enumerate().all(|(place, byte)| match place {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            })
    };
    key.split_once(MARK).is_some_and(|(unique, id)| is_uuid(unique) && is_uuid(id))
}

fn one(entropy: &[u8]) -> PyResult<&[u8; UUID_BYTES]> {
    entropy.try_into().map_err(|_| PyValueError::new_err("16 bytes of entropy are needed"))
}

/// Entropy for many, 16 bytes each.
pub fn many(entropy: &[u8]) -> PyResult<&[[u8; UUID_BYTES]]> {
    match entropy.as_chunks() {
        (chunks, []) => Ok(chunks),
        _ => Err(PyValueError::new_err("a multiple of 16 bytes of entropy is needed")),
    }
}

/// A version 4 UUID from 16 bytes of entropy.
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

/// A new physical key for an object.
#[pyfunction]
pub fn physical_key(object_id: &Bound<'_, PyString>, entropy: &[u8]) -> PyResult<String> {
    let mut key = String::new();
    push_physical_key(&mut key, text_of(object_id)?, one(entropy)?)?;
    Ok(key)
}

/// New physical keys for many objects.
#[pyfunction]
pub fn physical_keys<'py>(
    py: Python<'py>,
    object_ids: Strings<'py>,
    entropy: &[u8],
) -> PyResult<Bound<'py, PyList>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(entropy: [u8; 16]) -> String {
        let mut text = String::new();
        push_uuid(&mut text, &entropy);
        text
    }

    #[test]
    fn a_uuid_carries_version_4_and_the_rfc_variant() {
        assert_eq!(uuid([0x00; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let counting = [
            0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
            0xee, 0xff,
        ];
        assert_eq!(uuid(counting), "00112233-4455-4677-8899-aabbccddeeff");
    }

    #[test]
    fn an_object_id_is_read_back_from_its_key() {
        let mut key = String::new();
        push_physical_key(&mut key, "abc", &[0; 16]).unwrap();
        assert_eq!(key, "00000000-0000-4000-8000-000000000000.id=abc");
        assert_eq!(object_id(&key), Some("abc"));
        assert_eq!(object_id("s3://bucket/x.id=y.id=z"), Some("z"));
        for other in ["", "plain", "x.id=", "x.id=y/z"] {
            assert_eq!(object_id(other), None, "{other}");
        }
    }

    #[test]
    fn keys_of_another_form_are_none_of_this_package() {
        let uuid = uuid([0xff; 16]);
        assert!(is_physical_key(&format!("{uuid}.id={uuid}")));
        for key in [
            String::new(),
            uuid.clone(),
            format!("{uuid}.id="),
            format!("{uuid}.id={uuid}0"),
            format!("/{uuid}.id={uuid}"),
            format!("{}.id={uuid}", uuid.to_uppercase()),
            format!("{uuid}.id={}", uuid.replace('-', "0")),
        ] {
            assert!(!is_physical_key(&key), "{key}");
        }
    }

    #[test]
    fn object_ids_that_would_be_read_back_differently_are_refused() {
        for id in ["", "a/b", "a\0b", "a.id=b", &"x".repeat(985)] {
            assert!(push_physical_key(&mut String::new(), id, &[0; 16]).is_err(), "{id}");
        }
        assert!(push_physical_key(&mut String::new(), &"x".repeat(984), &[0; 16]).is_ok());
    }
}
