//! Entries as a Python sequence over shared columns.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyList, PyString, PyType};

use crate::arrow::{self, Selected};
use crate::entries::{EntryColumns, EntryView};
use crate::items::Attribute;
use crate::status::FileStatus;
use crate::view::{Subscript, View, compared, count_of, index_of};

/// Larger numbers of rows are processed with the interpreter released.
pub const RELEASE_ROWS: usize = 64;
/// Objects from views with a smaller fraction of the rows than one in this number do not keep the
/// columns.
const SPARSE: usize = 8;

static ENTRY: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Entries of a volume, in columns.
#[pyclass(frozen, sequence, module = "s3k_async._native")]
pub struct Entries {
    columns: Arc<EntryColumns>,
    view: View,
}

impl Entries {
    /// All entries of columns.
    pub fn of(columns: EntryColumns) -> Self {
        let view = View::All(columns.len());
        Self { columns: Arc::new(columns), view }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = EntryView<'_>> {
        self.view.iter().filter_map(|row| self.columns.get(row))
    }

    /// The entry at an index.
    pub fn get(&self, place: usize) -> Option<EntryView<'_>> {
        self.view.get(place).and_then(|row| self.columns.get(row))
    }

    /// The entries at these indexes.
    pub fn pick(&self, places: impl IntoIterator<Item = usize>) -> Self {
        Self { columns: Arc::clone(&self.columns), view: self.view.pick(places) }
    }

    fn last(&self) -> Option<EntryView<'_>> {
        self.len().checked_sub(1).and_then(|place| self.get(place))
    }

    /// In sorted entries, the index of the first after another one.
    fn first_place_after(&self, bound: &EntryView<'_>) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.get(middle).is_some_and(|entry| entry.by_path(bound).is_gt()) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    fn filtered(&self, py: Python<'_>, mut keep: impl FnMut(EntryView<'_>) -> bool + Send) -> Self {
        py.detach(|| {
            let kept: Vec<usize> = self
                .view
                .iter()
                .filter(|&row| self.columns.get(row).is_some_and(&mut keep))
                .collect();
            let view =
                if kept.len() == self.view.len() { self.view.clone() } else { View::of(kept) };
            Self { columns: Arc::clone(&self.columns), view }
        })
    }

    /// The same entries, in new columns if they are a small part of theirs.
    fn compact(&self) -> Self {
        if self.view.len() * SPARSE < self.columns.len() {
            return Self::of(EntryColumns::gather(self.iter()));
        }
        Self { columns: Arc::clone(&self.columns), view: self.view.clone() }
    }
}

#[pymethods]
impl Entries {
    fn __len__(&self) -> usize {
        self.view.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.view.subscript(index)? {
            Subscript::Row(row) => match self.columns.get(row) {
                Some(entry) => object(py, entry),
                None => Err(PyIndexError::new_err("there is no such row")),
            },
            Subscript::Rows(view) => {
                Ok(Bound::new(py, Self { columns: Arc::clone(&self.columns), view })?.into_any())
            }
        }
    }

    fn __eq__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        compared(this.as_any(), other)
    }

    fn __repr__(&self) -> String {
        format!("<Entries: {}>", self.view.len())
    }

    /// Place of the first equal element from `start` up to `stop`.
    #[pyo3(signature = (value, start = 0, stop = None))]
    fn index(
        this: &Bound<'_, Self>,
        value: &Bound<'_, PyAny>,
        start: isize,
        stop: Option<isize>,
    ) -> PyResult<usize> {
        index_of(this.as_any(), value, start, stop)
    }

    /// The number of equal elements.
    fn count(this: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        count_of(this.as_any(), value)
    }

    /// The public views of the entries.
    fn statuses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let shown = self.compact();
        let statuses =
            shown.view.iter().map(|row| Bound::new(py, FileStatus::row(&shown.columns, row)));
        PyList::new(py, statuses.collect::<PyResult<Vec<_>>>()?)
    }

    /// The paths.
    fn paths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut path = Vec::new();
        let paths = self.iter().map(|entry| {
            path.clear();
            entry.push_path_bytes(&mut path);
            PyString::from_bytes(py, &path)
        });
        PyList::new(py, paths.collect::<PyResult<Vec<_>>>()?)
    }

    /// The directory keys.
    fn directory_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut made: Option<(&str, Bound<'py, PyString>)> = None;
        let keys = self.iter().map(|entry| {
            let key = entry.directory_key();
            // The entries of a page usually have one directory.
            let text = match made.take() {
                Some((last, text)) if last == key => text,
                _ => PyString::new(py, key),
            };
            made = Some((key, text.clone()));
            text
        });
        PyList::new(py, keys.collect::<Vec<_>>())
    }

    /// The entry keys.
    fn entry_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut key = Vec::new();
        let keys = self.iter().map(|entry| {
            key.clear();
            entry.push_entry_key_bytes(&mut key);
            PyString::from_bytes(py, &key)
        });
        PyList::new(py, keys.collect::<PyResult<Vec<_>>>()?)
    }

    /// The files, reservations included.
    fn files(&self, py: Python<'_>) -> Self {
        self.filtered(py, |entry| !entry.is_dir())
    }

    /// The directories.
    fn directories(&self, py: Python<'_>) -> Self {
        self.filtered(py, |entry| entry.is_dir())
    }

    /// All but the reservations.
    fn without_reservations(&self, py: Python<'_>) -> Self {
        self.filtered(py, |entry| !entry.is_reservation())
    }

    /// The entries with this write intent.
    fn carrying(&self, py: Python<'_>, intent: &str) -> Self {
        self.filtered(py, |entry| entry.bytes(Attribute::Pending) == intent.as_bytes())
    }

    /// The entries whose path begins with a text.
    fn below(&self, py: Python<'_>, prefix: &str) -> Self {
        let mut path = String::new();
        self.filtered(py, move |entry| entry.is_below(prefix, &mut path))
    }

    /// The entries at the places, in their order.
    fn take(&self, indices: Vec<usize>) -> PyResult<Self> {
        if indices.iter().any(|&place| place >= self.view.len()) {
            return Err(PyIndexError::new_err("there is no such row"));
        }
        Ok(self.pick(indices))
    }

    /// Committed files, directories, and bytes of those files.
    fn totals(&self, py: Python<'_>) -> (u64, u64, u128) {
        py.detach(|| {
            let (mut files, mut directories, mut bytes) = (0, 0, 0);
            for entry in self.iter() {
                directories += u64::from(entry.is_dir());
                files += u64::from(entry.committed());
                bytes +=
                    if entry.committed() { u128::from(entry.size().unsigned_abs()) } else { 0 };
            }
            (files, directories, bytes)
        })
    }

    /// The latest modification of a committed file, epoch ms.
    fn newest(&self, py: Python<'_>) -> Option<i64> {
        py.detach(|| self.iter().filter(EntryView::committed).map(|entry| entry.mtime_ms()).max())
    }

    /// The entries of all parts, sorted by path, component by component, in new columns.
    #[staticmethod]
    fn sorted(py: Python<'_>, parts: Vec<Py<Self>>) -> Self {
        let parts: Vec<&Self> = parts.iter().map(Py::get).collect();
        py.detach(|| {
            let mut entries: Vec<EntryView<'_>> =
                parts.iter().flat_map(|part| part.iter()).collect();
            entries.sort_by(EntryView::by_path);
            Self::of(EntryColumns::gather(entries.into_iter()))
        })
    }

    /// The entries of all parts, concatenated in new columns.
    #[staticmethod]
    fn joined(py: Python<'_>, parts: Vec<Py<Self>>) -> Self {
        let parts: Vec<&Self> = parts.iter().map(Py::get).collect();
        py.detach(|| {
            let entries: Vec<EntryView<'_>> = parts.iter().flat_map(|part| part.iter()).collect();
            Self::of(EntryColumns::gather(entries.into_iter()))
        })
    }

    /// Merges sorted parts: returns the sorted rows that precede all later rows of unfinished
    /// parts, and the rest of each part.
    #[staticmethod]
    fn merged(
        py: Python<'_>,
        parts: Vec<Py<Self>>,
        ended: Vec<bool>,
    ) -> PyResult<(Self, Vec<Self>)> {
        if parts.len() != ended.len() {
            return Err(PyValueError::new_err("as many parts as ends are needed"));
        }
        let parts: Vec<&Self> = parts.iter().map(Py::get).collect();
        Ok(py.detach(|| {
            let open =
                || parts.iter().zip(&ended).filter(|(_, ended)| !**ended).map(|(part, _)| *part);
            let waits = open().any(|part| part.len() == 0);
            let bound = open().filter_map(Self::last).min_by(EntryView::by_path);
            let safe = |part: &Self| match bound {
                _ if waits => 0,
                Some(bound) => part.first_place_after(&bound),
                None => part.len(),
            };
            let cuts: Vec<usize> = parts.iter().map(|part| safe(part)).collect();
            let mut ready: Vec<EntryView<'_>> = Vec::new();
            for (part, &cut) in parts.iter().zip(&cuts) {
                ready.extend(part.iter().take(cut));
            }
            ready.sort_by(EntryView::by_path);
            let rests =
                parts.iter().zip(&cuts).map(|(part, &cut)| part.pick(cut..part.len())).collect();
            (Self::of(EntryColumns::gather(ready.into_iter())), rests)
        }))
    }

    /// Indexes of the read-only entries.
    fn read_only(&self, py: Python<'_>) -> Vec<usize> {
        py.detach(|| {
            let found = self.iter().enumerate().filter(|(_, entry)| entry.is_read_only());
            found.map(|(place, _)| place).collect()
        })
    }

    /// Index and write intent of each entry that has one.
    fn with_intents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let places = py.detach(|| {
            let found = self.iter().enumerate().filter(|(_, entry)| entry.has_intent());
            found.map(|(place, _)| place).collect::<Vec<_>>()
        });
        let intents = places.into_iter().filter_map(|place| {
            let intent = self.get(place)?.bytes(Attribute::Pending);
            Some(PyString::from_bytes(py, intent).map(|intent| (place, intent)))
        });
        PyList::new(py, intents.collect::<PyResult<Vec<_>>>()?)
    }

    /// Index of the first directory from an index on.
    fn next_directory(&self, start: usize) -> Option<usize> {
        (start..self.len()).find(|&place| self.get(place).is_some_and(|entry| entry.is_dir()))
    }

    /// The columns of `listing.arrow_schema` (Arrow `PyCapsule` interface). The requested schema is
    /// ignored.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let array =
            py.detach(|| arrow::array(Selected { columns: &self.columns, rows: &self.view }))?;
        Ok((schema_capsule(py)?, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }

    /// The schema of `listing.arrow_schema` (Arrow `PyCapsule` interface).
    #[staticmethod]
    fn __arrow_c_schema__(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
        schema_capsule(py)
    }
}

fn schema_capsule(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, arrow::schema()?, c"arrow_schema")
}

/// An entry as `s3k_async.model.Entry`.
fn object<'py>(py: Python<'py>, entry: EntryView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let mut path = String::new();
    entry.push_path(&mut path);
    let text = |attribute| PyString::from_bytes(py, entry.bytes(attribute));
    let physical = if entry.is_dir() { None } else { Some(text(Attribute::Physical)?) };
    let head = (
        path,
        entry.is_dir(),
        text(Attribute::Id)?,
        entry.version(),
        entry.ctime(),
        entry.mtime_ms(),
    );
    let tail = (
        entry.size(),
        physical,
        entry.committed(),
        text(Attribute::Etag)?,
        text(Attribute::Checksum)?,
        text(Attribute::Operation)?,
        entry.lease_ms(),
        text(Attribute::Pending)?,
    );
    let (head, tail) = (head.into_pyobject(py)?, tail.into_pyobject(py)?);
    let mut arguments = head.as_sequence().concat(tail.as_sequence())?;
    let directory = entry.directory_id();
    if entry.has(Attribute::Attributes) {
        let last = (directory.unwrap_or_default(), text(Attribute::Attributes)?);
        arguments = arguments.concat(last.into_pyobject(py)?.as_sequence())?;
    } else if let Some(directory) = directory {
        arguments = arguments.concat((directory,).into_pyobject(py)?.as_sequence())?;
    }
    ENTRY.import(py, "s3k_async.model", "Entry")?.call1(arguments.to_tuple()?)
}
