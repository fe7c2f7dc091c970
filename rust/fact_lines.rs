//! Facts of fsck as lines of JSON, each with the hash by which it is partitioned.
//!
//! Source of the format: `integrity/shuffle.py`.

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::json::write::{push_ascii_quoted, push_integer};
use crate::physical::{is_physical_key, object_id};

/// Facts of one kind.
#[pyclass(frozen, module = "s3k_async._native")]
#[derive(Default)]
pub struct FactLines {
    text: String,
    /// The end of each line, after its newline.
    ends: Vec<usize>,
    hashes: Vec<u32>,
}

impl FactLines {
    /// Room for `rows` lines of `bytes` bytes together.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(rows),
            hashes: Vec::with_capacity(rows),
        }
    }

    /// The buffer; what is appended belongs to the next line that `end_line` closes.
    pub fn buffer(&mut self) -> &mut String {
        &mut self.text
    }

    /// Closes the line of the fact with this shuffle key.
    pub fn end_line(&mut self, key: &str) {
        self.text.push('\n');
        self.ends.push(self.text.len());
        self.hashes.push(crc32fast::hash(key.as_bytes()));
    }

    /// The lines with their hashes.
    fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        let mut start = 0;
        self.hashes.iter().zip(&self.ends).map(move |(&hash, &end)| {
            let line = self.text.get(start..end).unwrap_or_default();
            start = end;
            (hash, line)
        })
    }
}

/// Three buffers.
type Columns<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl FactLines {
    fn __len__(&self) -> usize {
        self.ends.len()
    }

    fn __repr__(&self) -> String {
        format!("<FactLines: {}>", self.ends.len())
    }

    /// The hash and the line of each fact.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.iter().map(|(hash, line)| (hash, PyBytes::new(py, line.as_bytes())));
        PyList::new(py, rows.collect::<Vec<_>>())
    }

    /// The columns of Arrow for the hashes (64 bits) and the lines: the hashes, the offsets of the
    /// lines (32 bits), and their bytes.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Columns<'py>> {
        let mut offsets = Vec::with_capacity(4 * self.ends.len() + 4);
        for end in std::iter::once(&0).chain(&self.ends) {
            offsets.extend_from_slice(&i32::try_from(*end)?.to_ne_bytes());
        }
        let hashes: Vec<u8> =
            self.hashes.iter().flat_map(|&hash| i64::from(hash).to_ne_bytes()).collect();
        Ok((
            PyBytes::new(py, &hashes),
            PyBytes::new(py, &offsets),
            PyBytes::new(py, self.text.as_bytes()),
        ))
    }

    /// The lines whose hash is in a filter: its bits are numbered by the highest bits of hashes.
    fn among<'py>(&self, py: Python<'py>, filter: &[u8]) -> PyResult<Bound<'py, PyList>> {
        let bits = filter.len().checked_mul(8).filter(|bits| bits.is_power_of_two());
        let Some(bits) = bits.and_then(|bits| u32::try_from(bits).ok()) else {
            return Err(PyValueError::new_err("the number of bits of a filter is a power of two"));
        };
        let shift = 32 - bits.trailing_zeros();
        let has = |hash: u32| {
            let bit = hash >> shift;
            filter.get((bit / 8) as usize).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
        };
        let found = self.iter().filter(|(hash, _)| has(*hash));
        let lines = found.map(|(_, line)| PyBytes::new(py, line.as_bytes()));
        PyList::new(py, lines.collect::<Vec<_>>())
    }
}

/// Lines of facts of one kind, by the part of a shuffle that they belong to.
#[pyclass(module = "s3k_async._native")]
pub struct PartLines {
    parts: Vec<Vec<u8>>,
    bytes: usize,
}

impl PartLines {
    fn part(&mut self, number: usize) -> PyResult<&mut Vec<u8>> {
        self.parts.get_mut(number).ok_or_else(|| PyIndexError::new_err("there is no such part"))
    }
}

#[pymethods]
impl PartLines {
    #[new]
    fn new(count: usize) -> PyResult<Self> {
        if count == 0 {
            return Err(PyValueError::new_err("there is at least one part"));
        }
        Ok(Self { parts: vec![Vec::new(); count], bytes: 0 })
    }

    /// The number of bytes held.
    fn __len__(&self) -> usize {
        self.bytes
    }

    fn __repr__(&self) -> String {
        format!("<PartLines: {} bytes>", self.bytes)
    }

    /// Adds each line to the part that is the remainder of its hash.
    fn add(&mut self, lines: &FactLines) {
        let count = self.parts.len();
        for (hash, line) in lines.iter() {
            if let Some(part) = self.parts.get_mut(hash as usize % count) {
                part.extend_from_slice(line.as_bytes());
            }
        }
        self.bytes += lines.text.len();
    }

    /// Adds lines to a part.
    fn add_to_part(&mut self, number: usize, text: &[u8]) -> PyResult<()> {
        self.part(number)?.extend_from_slice(text);
        self.bytes += text.len();
        Ok(())
    }

    /// Removes the lines of a part.
    fn take<'py>(&mut self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyBytes>> {
        let text = std::mem::take(self.part(number)?);
        self.bytes -= text.len();
        Ok(PyBytes::new(py, &text))
    }

    /// All lines.
    fn text<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.parts.concat())
    }
}

/// The facts of listed data objects, and the indexes of those with a key that is not UTF-8.
#[pyfunction]
pub fn blob_facts(blobs: &Bound<'_, PyAny>) -> PyResult<(FactLines, Vec<usize>)> {
    let count = blobs.len()?;
    let mut facts = FactLines::with_capacity(count, count * 160);
    let mut others = Vec::new();
    for (place, blob) in blobs.try_iter()?.enumerate() {
        let blob = blob?;
        let text = |name| Ok::<_, PyErr>(blob.getattr(name)?.cast_into::<PyString>()?);
        let (key, etag) = (text("key")?, text("etag")?);
        let (Ok(key), Ok(etag)) = (key.to_str(), etag.to_str()) else {
            others.push(place);
            continue;
        };
        let size = blob.getattr("size")?.extract()?;
        push_blob(facts.buffer(), key, size, etag, blob.getattr("mtime_ms")?.extract()?);
        facts.end_line(object_id(key).unwrap_or(key));
    }
    Ok((facts, others))
}

/// As `blob_facts`, of the objects with a physical key that are older than a time, and without
/// their etags.
#[pyfunction]
pub fn old_blob_facts(
    blobs: &Bound<'_, PyAny>,
    before_ms: i64,
) -> PyResult<(FactLines, Vec<usize>)> {
    let count = blobs.len()?;
    let mut facts = FactLines::with_capacity(count, count * 128);
    let mut others = Vec::new();
    for (place, blob) in blobs.try_iter()?.enumerate() {
        let blob = blob?;
        let key = blob.getattr("key")?.cast_into::<PyString>()?;
        let mtime_ms = blob.getattr("mtime_ms")?.extract()?;
        match key.to_str() {
            Ok(key) if is_physical_key(key) && mtime_ms < before_ms => {
                push_blob(facts.buffer(), key, blob.getattr("size")?.extract()?, "", mtime_ms);
                facts.end_line(object_id(key).unwrap_or(key));
            }
            _ => others.push(place),
        }
    }
    Ok((facts, others))
}

fn push_blob(out: &mut String, key: &str, size: i64, etag: &str, mtime_ms: i64) {
    out.push('[');
    push_ascii_quoted(out, key);
    out.push(',');
    push_integer(out, size);
    out.push(',');
    push_ascii_quoted(out, etag);
    out.push(',');
    push_integer(out, mtime_ms);
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_a_newline_and_has_the_hash_of_its_key() {
        let mut facts = FactLines::default();
        facts.buffer().push_str("[1]");
        facts.end_line("/a/é");
        facts.buffer().push_str("[2]");
        facts.end_line("");
        let rows: Vec<_> = facts.iter().collect();
        assert_eq!(rows, [(2_061_844_914, "[1]\n"), (0, "[2]\n")]);
    }
}
