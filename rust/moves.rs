//! Changes of many entries: what is decided for each, and the actions on the table as Python objects.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::cut::Cut;
use crate::entries::EntryView;
use crate::entry_sequence::Entries;
use crate::errors::{InvalidPath, text_of};
use crate::items::Attribute;
use crate::keys::Volume;
use crate::operations::{Kind, Operations};
use crate::paths::normal;
use crate::physical::{UUID_CHARACTERS, many, push_uuid};
use crate::suffix::{Hash, SuffixCount};
use crate::view::{Subscript, View, count_of, equal, index_of};

/// Where entries are moved to.
pub struct Place {
    /// The volume that the keys are of.
    pub volume: Volume,
    /// The normalised path of the directory.
    pub directory: String,
    /// The suffix of each row's name.
    pub suffixes: Vec<u32>,
}

/// Entries to be changed, with what is decided for each.
pub struct Change {
    entries: Py<Entries>,
    /// The operation ids, one after the other.
    ids: String,
    /// None for a removal.
    pub place: Option<Place>,
}

impl Change {
    fn new(entries: Py<Entries>, place: Option<Place>, entropy: &[u8]) -> PyResult<Arc<Self>> {
        let entropy = many(entropy)?;
        if entropy.len() != entries.get().len() {
            return Err(PyValueError::new_err("16 bytes of entropy are needed for each entry"));
        }
        let mut ids = String::with_capacity(entropy.len() * UUID_CHARACTERS);
        for sixteen in entropy {
            push_uuid(&mut ids, sixteen);
        }
        Ok(Arc::new(Self { entries, ids, place }))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.get().len()
    }

    /// The entry of a row, as it is stored.
    pub fn get(&self, row: usize) -> Option<EntryView<'_>> {
        self.entries.get().get(row)
    }

    /// The entry of a row as a Python object.
    pub fn entry<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        self.entries.bind(py).get_item(row)
    }

    /// The operation id of a row.
    pub fn id(&self, row: usize) -> &str {
        self.ids.get(row * UUID_CHARACTERS..(row + 1) * UUID_CHARACTERS).unwrap_or_default()
    }

    /// How many actions there are to each entry.
    fn width(&self) -> usize {
        1 + usize::from(self.place.is_some())
    }

    /// The action of an entry with that role, 0 on its own item, 1 at its target.
    fn action<'py>(&self, py: Python<'py>, row: usize, role: usize) -> PyResult<Bound<'py, PyAny>> {
        let items = py.import(intern!(py, "s3k_async.stores.items"))?;
        let entry = self.get(row).ok_or_else(|| PyIndexError::new_err("there is no such row"))?;
        if let Some(place) = self.place.as_ref().filter(|_| role > 0) {
            let item = place.item(py, row, &entry, self.id(row))?;
            return items.getattr(intern!(py, "Put"))?.call1((item, items.getattr(intern!(py, "ABSENT"))?));
        }
        let equals = PyDict::new(py);
        equals.set_item(intern!(py, "id"), entry.text(Attribute::Id).text)?;
        equals.set_item(intern!(py, "ver"), entry.version())?;
        let pending = entry.text(Attribute::Pending).text;
        let missing = if pending.is_empty() {
            PyTuple::new(py, [intern!(py, "next")])?
        } else {
            equals.set_item(intern!(py, "next"), pending)?;
            PyTuple::empty(py)
        };
        let key = items.getattr(intern!(py, "Key"))?.call1((entry.partition().text, entry.name().text))?;
        let when = items.getattr(intern!(py, "Condition"))?.call1((true, equals, missing))?;
        items.getattr(intern!(py, "Delete"))?.call1((key, when))
    }
}

impl Place {
    /// The item of an entry here, as `metadata.codec.to_item` makes it.
    fn item<'py>(
        &self,
        py: Python<'py>,
        row: usize,
        entry: &EntryView<'_>,
        operation: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut partition = String::new();
        self.volume.push_partition(&mut partition, &self.directory, self.suffixes.get(row).copied().unwrap_or(0));
        let item = PyDict::new(py);
        item.set_item(intern!(py, "path"), partition)?;
        item.set_item(intern!(py, "children"), entry.name().text)?;
        item.set_item(intern!(py, "isdir"), entry.is_dir())?;
        item.set_item(intern!(py, "ctime"), entry.ctime())?;
        item.set_item(intern!(py, "ver"), entry.version().saturating_add(1))?;
        item.set_item(intern!(py, "id"), entry.text(Attribute::Id).text)?;
        item.set_item(intern!(py, "mtime"), entry.mtime_ms())?;
        item.set_item(intern!(py, "op"), operation)?;
        if let Some(physical) = entry.physical() {
            item.set_item(intern!(py, "size"), entry.size())?;
            item.set_item(intern!(py, "physpath"), physical.text)?;
            item.set_item(intern!(py, "physcommitted"), entry.committed())?;
        }
        for (name, attribute) in [(intern!(py, "etag"), Attribute::Etag), (intern!(py, "sum"), Attribute::Checksum)] {
            let text = entry.text(attribute).text;
            if !text.is_empty() {
                item.set_item(name, text)?;
            }
        }
        if entry.lease_ms() != 0 {
            item.set_item(intern!(py, "lease"), entry.lease_ms())?;
        }
        Ok(item)
    }
}

/// Some rows of a change, as a sequence of actions.
struct Actions {
    change: Arc<Change>,
    view: View,
}

impl Actions {
    fn new(change: Arc<Change>) -> Self {
        let view = View::All(change.len());
        Self { change, view }
    }

    fn len(&self) -> usize {
        self.view.len() * self.change.width()
    }

    fn at<'py>(&self, py: Python<'py>, place: usize) -> PyResult<Bound<'py, PyAny>> {
        let width = self.change.width();
        let row = self.view.get(place / width).unwrap_or_default();
        self.change.action(py, row, place % width)
    }

    fn subscript<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match View::All(self.len()).subscript(index)? {
            Subscript::Row(place) => self.at(py, place),
            Subscript::Rows(places) => {
                let actions = places.iter().map(|place| self.at(py, place));
                Ok(PyList::new(py, actions.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
        }
    }

    /// The rows at the places, counted among these rows.
    fn take(&self, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        let places: Vec<usize> = rows.try_iter()?.map(|row| row?.extract()).collect::<PyResult<_>>()?;
        if places.iter().any(|&place| place >= self.view.len()) {
            return Err(PyValueError::new_err("there is no such row"));
        }
        Ok(Self { change: Arc::clone(&self.change), view: self.view.pick(places) })
    }

    fn operations(&self, kind: Kind, time_ms: i64) -> Operations {
        Operations::new(Arc::clone(&self.change), self.view.clone(), kind, time_ms)
    }
}

/// Cuts the actions of a body from the columns, if `actions` are `Moves` or `Deletes`. False for anything else.
pub fn push_actions(out: &mut String, table: &str, actions: &Bound<'_, PyAny>) -> bool {
    let actions = if let Ok(moves) = actions.cast::<Moves>() {
        &moves.get().0
    } else if let Ok(deletes) = actions.cast::<Deletes>() {
        &deletes.get().0
    } else {
        return false;
    };
    let cut = Cut::new(table, &actions.change);
    actions.view.iter().for_each(|row| cut.push(out, row));
    true
}

/// What `==` answers.
pub fn compared<'py>(this: &Bound<'py, PyAny>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
    let py = this.py();
    match equal(this, other)? {
        Some(equal) => Ok(equal.into_pyobject(py)?.to_owned().into_any().unbind()),
        None => Ok(py.NotImplemented()),
    }
}

/// Moves of entries into a directory: for each the removal of what is stored, unchanged, and the item at its target.
#[pyclass(frozen, sequence, module = "s3k_async._native")]
pub struct Moves(Actions);

#[pymethods]
impl Moves {
    #[new]
    fn new(
        py: Python<'_>,
        entries: Py<Entries>,
        volume: Volume,
        target: &Bound<'_, PyString>,
        suffix_count: SuffixCount,
        hash: Hash,
        entropy: &[u8],
    ) -> PyResult<Self> {
        let given = text_of(target)?;
        let directory = normal(given)?.into_owned();
        volume.check_length(&directory, suffix_count.last()).map_err(|fault| InvalidPath::new(fault, given))?;
        py.detach(|| {
            let names = entries.get().iter().map(|entry| entry.name().text);
            let suffixes = names.map(|name| hash.index(name, suffix_count)).collect();
            Ok(Self(Actions::new(Change::new(entries, Some(Place { volume, directory, suffixes }), entropy)?)))
        })
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.0.subscript(py, index)
    }

    fn __eq__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        compared(this.as_any(), other)
    }

    fn __repr__(&self) -> String {
        format!("<Moves of {} entries>", self.0.view.len())
    }

    /// Place of the first equal element from `start` up to `stop`.
    #[pyo3(signature = (value, start = 0, stop = None))]
    fn index(this: &Bound<'_, Self>, value: &Bound<'_, PyAny>, start: isize, stop: Option<isize>) -> PyResult<usize> {
        index_of(this.as_any(), value, start, stop)
    }

    /// How many elements are equal.
    fn count(this: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        count_of(this.as_any(), value)
    }

    /// The moves of some rows.
    fn take(&self, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.0.take(rows).map(Self)
    }

    /// What the log says of the moves.
    fn operations(&self, time_ms: i64) -> Operations {
        self.0.operations(Kind::Rename, time_ms)
    }
}

/// Removals of entries, each of what is stored if it is unchanged.
#[pyclass(frozen, sequence, module = "s3k_async._native")]
pub struct Deletes(Actions);

#[pymethods]
impl Deletes {
    #[new]
    fn new(py: Python<'_>, entries: Py<Entries>, entropy: &[u8]) -> PyResult<Self> {
        py.detach(|| Ok(Self(Actions::new(Change::new(entries, None, entropy)?))))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.0.subscript(py, index)
    }

    fn __eq__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        compared(this.as_any(), other)
    }

    fn __repr__(&self) -> String {
        format!("<Deletes of {} entries>", self.0.view.len())
    }

    /// Place of the first equal element from `start` up to `stop`.
    #[pyo3(signature = (value, start = 0, stop = None))]
    fn index(this: &Bound<'_, Self>, value: &Bound<'_, PyAny>, start: isize, stop: Option<isize>) -> PyResult<usize> {
        index_of(this.as_any(), value, start, stop)
    }

    /// How many elements are equal.
    fn count(this: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        count_of(this.as_any(), value)
    }

    /// The removals of some rows.
    fn take(&self, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.0.take(rows).map(Self)
    }

    /// What the log says of the removals.
    fn operations(&self, time_ms: i64) -> Operations {
        self.0.operations(Kind::Delete, time_ms)
    }
}
