//! Columns of strings: borrowed from Python as arguments, in one buffer as results.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::errors::{key_text_of, text_of};

/// Strings concatenated in one buffer.
#[derive(Default)]
pub struct TextColumn {
    text: String,
    ends: Vec<usize>,
}

impl TextColumn {
    /// A column with room for `rows` strings of `bytes` bytes together.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ends: Vec::with_capacity(rows) }
    }

    /// The buffer; appended bytes belong to the next row that `end_row` closes.
    pub fn buffer(&mut self) -> &mut String {
        &mut self.text
    }

    /// Closes the row being written.
    pub fn end_row(&mut self) {
        self.ends.push(self.text.len());
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The strings, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let row = self.text.get(start..end).unwrap_or_default();
            start = end;
            row
        })
    }

    /// A Python list of the strings.
    pub fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.iter())
    }
}

/// An argument that is a sequence of strings. It keeps them alive while the interpreter is
/// released.
pub struct Strings<'py>(Vec<Bound<'py, PyString>>);

impl<'py> Strings<'py> {
    /// The number of strings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The strings as Python objects.
    pub fn objects(&self) -> &[Bound<'py, PyString>] {
        &self.0
    }

    /// The UTF-8 text of each string, or the error for a path without one.
    pub fn texts(&self) -> PyResult<Vec<&str>> {
        let mut texts = Vec::with_capacity(self.0.len());
        for string in &self.0 {
            texts.push(text_of(string)?);
        }
        Ok(texts)
    }

    /// As `texts`, with the error for a stored key.
    pub fn key_texts(&self) -> PyResult<Vec<&str>> {
        self.0.iter().map(key_text_of).collect()
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Strings<'py> {
    type Error = PyErr;

    fn extract(argument: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match argument.cast::<PyList>() {
            Ok(list) => {
                let mut strings = Vec::with_capacity(list.len());
                for item in list.iter() {
                    strings.push(item.cast_into::<PyString>()?);
                }
                Ok(Self(strings))
            }
            Err(_) => argument.extract().map(Self),
        }
    }
}
