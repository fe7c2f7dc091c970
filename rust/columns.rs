//! Many strings at once: borrowed from Python on the way in, one buffer on the way out.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::errors::text_of;

/// Strings laid end to end in one buffer.
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

    /// Adds a string.
    pub fn push(&mut self, value: &str) {
        self.text.push_str(value);
        self.end_row();
    }

    /// The buffer; what is appended to it belongs to the row that `end_row` closes.
    pub fn buffer(&mut self) -> &mut String {
        &mut self.text
    }

    /// Closes the row being written.
    pub fn end_row(&mut self) {
        self.ends.push(self.text.len());
    }

    /// How many strings there are.
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

/// The UTF-8 text of each string; `strings` keeps it alive while the interpreter is released.
pub fn texts<'a>(strings: &'a [Bound<'_, PyString>]) -> PyResult<Vec<&'a str>> {
    strings.iter().map(text_of).collect()
}
