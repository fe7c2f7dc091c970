//! Views of rows of shared columns, and operations of Python sequences.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PySlice;

/// Rows of columns, in order.
#[derive(Clone)]
pub enum View {
    /// The first rows, up to a number.
    All(usize),
    /// These rows.
    Rows(Arc<[u32]>),
}

impl View {
    /// These rows.
    pub fn of(rows: impl IntoIterator<Item = usize>) -> Self {
        // Columns have fewer rows than a page has bytes.
        Self::Rows(rows.into_iter().filter_map(|row| u32::try_from(row).ok()).collect())
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Rows(rows) => rows.len(),
        }
    }

    /// The row of the columns at an index of the view.
    pub fn get(&self, place: usize) -> Option<usize> {
        match self {
            Self::All(count) => Some(place).filter(|place| place < count),
            Self::Rows(rows) => rows.get(place).map(|&row| row as usize),
        }
    }

    /// The rows of the view, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        (0..self.len()).map(|place| self.get(place).unwrap_or_default())
    }

    /// The rows at these indexes of the view.
    pub fn pick(&self, places: impl IntoIterator<Item = usize>) -> Self {
        Self::of(places.into_iter().filter_map(|place| self.get(place)))
    }

    /// The index of `sequence[index]`.
    pub fn subscript(&self, index: &Bound<'_, PyAny>) -> PyResult<Subscript> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let found = slice.indices(isize::try_from(self.len())?)?;
            let places =
                (0..found.slicelength).map(|step| found.start + found.step * step.cast_signed());
            return Ok(Subscript::Rows(
                self.pick(places.filter_map(|place| usize::try_from(place).ok())),
            ));
        }
        let Ok(given) = index.extract::<isize>() else {
            return Err(PyTypeError::new_err("an index is a whole number or a slice"));
        };
        let place = if given < 0 { given.checked_add_unsigned(self.len()) } else { Some(given) };
        let row =
            place.and_then(|place| usize::try_from(place).ok()).and_then(|place| self.get(place));
        row.map(Subscript::Row).ok_or_else(|| PyIndexError::new_err("there is no such row"))
    }
}

/// A resolved subscript.
pub enum Subscript {
    /// One row.
    Row(usize),
    /// A view of several.
    Rows(View),
}

/// The index of the first element from `start` up to `stop` that equals a value.
pub fn index_of(
    this: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    start: isize,
    stop: Option<isize>,
) -> PyResult<usize> {
    let slice = PySlice::new(this.py(), start, stop.unwrap_or(isize::MAX), 1);
    let found = slice.indices(isize::try_from(this.len()?)?)?;
    for place in found.start..found.stop {
        if this.get_item(place)?.eq(value)? {
            return Ok(place.cast_unsigned());
        }
    }
    Err(PyValueError::new_err("there is no such element"))
}

/// The number of elements equal to a value.
pub fn count_of(this: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let mut count = 0;
    for place in 0..this.len()? {
        count += usize::from(this.get_item(place)?.eq(value)?);
    }
    Ok(count)
}

/// Whether two sequences of Python objects are equal, element by element; None if `other` is no
/// sequence.
fn equal(this: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    let (Ok(length), true) =
        (other.len(), other.hasattr("__getitem__")? && !other.hasattr("keys")?)
    else {
        return Ok(None);
    };
    if this.len()? != length {
        return Ok(Some(false));
    }
    for place in 0..length {
        if !this.get_item(place)?.eq(other.get_item(place)?)? {
            return Ok(Some(false));
        }
    }
    Ok(Some(true))
}

/// The result of `==`.
pub fn compared<'py>(this: &Bound<'py, PyAny>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
    let py = this.py();
    match equal(this, other)? {
        Some(equal) => Ok(equal.into_pyobject(py)?.to_owned().into_any().unbind()),
        None => Ok(py.NotImplemented()),
    }
}
