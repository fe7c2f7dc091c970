//! Changes of many entries as sequences of actions on the table.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::dynamodb::change::{Change, Own, Place};
use crate::dynamodb::template::Templates;
use crate::entry_sequence::Entries;
use crate::errors::{InvalidPath, text_of};
use crate::keys::KeyForm;
use crate::operations::{Kind, Operations};
use crate::paths::normal;
use crate::suffix::{Hash, SuffixCount};
use crate::view::{Subscript, View, compared, count_of, index_of};

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

    /// The actions of `Moves`, `Deletes` or `Resolutions`; None for anything else.
    fn of<'a>(actions: &'a Bound<'_, PyAny>) -> Option<&'a Self> {
        if let Ok(moves) = actions.cast::<Moves>() {
            return Some(&moves.get().0);
        }
        if let Ok(deletes) = actions.cast::<Deletes>() {
            return Some(&deletes.get().0);
        }
        actions.cast::<Resolutions>().ok().map(|resolutions| &resolutions.get().0)
    }

    fn len(&self) -> usize {
        self.view.len() * self.change.width()
    }

    fn at<'py>(&self, py: Python<'py>, place: usize) -> PyResult<Bound<'py, PyAny>> {
        let width = self.change.width();
        let row = self.view.get(place / width).unwrap_or_default();
        self.change.action(py, row, place % width)
    }

    fn subscript<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match View::All(self.len()).subscript(index)? {
            Subscript::Row(place) => self.at(py, place),
            Subscript::Rows(places) => {
                let actions = places.iter().map(|place| self.at(py, place));
                Ok(PyList::new(py, actions.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
        }
    }

    /// The rows at these indexes.
    fn take(&self, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        let places: Vec<usize> =
            rows.try_iter()?.map(|row| row?.extract()).collect::<PyResult<_>>()?;
        if places.iter().any(|&place| place >= self.view.len()) {
            return Err(PyValueError::new_err("there is no such row"));
        }
        Ok(Self { change: Arc::clone(&self.change), view: self.view.pick(places) })
    }

    fn operations(&self, kind: Kind, time_ms: i64) -> Operations {
        Operations::new(Arc::clone(&self.change), self.view.clone(), kind, time_ms)
    }
}

/// Appends the actions of a body if `actions` are in columns. False for anything else.
pub fn push_columns(out: &mut String, table: &str, actions: &Bound<'_, PyAny>) -> bool {
    let Some(actions) = Actions::of(actions) else { return false };
    let templates = Templates::new(table, &actions.change);
    actions.view.iter().for_each(|row| templates.push(out, row));
    true
}

/// A write intent in its stored form.
fn intent_of(intent: String) -> PyResult<String> {
    if intent.is_empty() {
        Err(PyValueError::new_err("a write intent is not empty"))
    } else {
        Ok(intent)
    }
}

/// The change of the items of removed entries: a write intent, or removal.
fn removal(intent: Option<String>) -> PyResult<Own> {
    intent.map_or(Ok(Own::Delete), |intent| intent_of(intent).map(Own::AddIntent))
}

/// The error of moves in layout `tree`, where a directory is moved by its own item alone.
fn only_in_path() -> PyErr {
    PyValueError::new_err("entries are moved one by one in layout 'path' only")
}

/// Moves of entries into a directory: for each the removal of the stored item, if unchanged, and
/// the item at its target. With intents, the stored item gets the first instead, and the item at
/// the target has the second.
#[pyclass(frozen, sequence, module = "s3k_async._native")]
pub struct Moves(Actions);

#[pymethods]
impl Moves {
    #[new]
    #[pyo3(signature = (entries, volume, target, suffix_count, hash, entropy, intents = None))]
    #[allow(clippy::too_many_arguments)] // they are the constructor's in Python
    fn new(
        py: Python<'_>,
        entries: Py<Entries>,
        volume: KeyForm,
        target: &Bound<'_, PyString>,
        suffix_count: SuffixCount,
        hash: Hash,
        entropy: &[u8],
        intents: Option<(String, String)>,
    ) -> PyResult<Self> {
        if matches!(volume, KeyForm::Tree) {
            return Err(only_in_path());
        }
        let given = text_of(target)?;
        let directory = normal(given)?.into_owned();
        volume
            .check_length(&directory, suffix_count.last())
            .map_err(|fault| InvalidPath::new(fault, given))?;
        let (gone, here) = intents.unzip();
        let (own, intent) = (removal(gone)?, here.map(intent_of).transpose()?.unwrap_or_default());
        py.detach(|| {
            if entries.get().iter().any(|entry| entry.directory_id().is_some()) {
                return Err(only_in_path());
            }
            let names = entries.get().iter().map(|entry| entry.name().text);
            let suffixes = names.map(|name| hash.index(name, suffix_count)).collect();
            let place = Place { form: volume, directory, suffixes, intent };
            Ok(Self(Actions::new(Change::new(entries, own, Some(place), entropy)?)))
        })
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
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

    /// The moves of some rows.
    fn take(&self, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.0.take(rows).map(Self)
    }

    /// The log operations of the moves.
    fn operations(&self, time_ms: i64) -> Operations {
        self.0.operations(Kind::Rename, time_ms)
    }
}

/// Removals of entries, each if the stored item is unchanged. With an intent, it gets the
/// intent instead.
#[pyclass(frozen, sequence, module = "s3k_async._native")]
pub struct Deletes(Actions);

#[pymethods]
impl Deletes {
    #[new]
    #[pyo3(signature = (entries, entropy, intent = None))]
    fn new(
        py: Python<'_>,
        entries: Py<Entries>,
        entropy: &[u8],
        intent: Option<String>,
    ) -> PyResult<Self> {
        let own = removal(intent)?;
        py.detach(|| Ok(Self(Actions::new(Change::new(entries, own, None, entropy)?))))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
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

    /// The removals of some rows.
    fn take(&self, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.0.take(rows).map(Self)
    }

    /// The log operations of the removals.
    fn operations(&self, time_ms: i64) -> Operations {
        self.0.operations(Kind::Delete, time_ms)
    }
}

/// Resolutions of write intents: entries are removed, or lose their intents, each if it is
/// unchanged. They are already logged.
#[pyclass(frozen, sequence, module = "s3k_async._native")]
pub struct Resolutions(Actions);

#[pymethods]
impl Resolutions {
    #[new]
    fn new(entries: Py<Entries>, remove: bool) -> Self {
        Self(Actions::new(Change::unlogged(
            entries,
            if remove { Own::Delete } else { Own::RemoveIntent },
        )))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.subscript(py, index)
    }

    fn __eq__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        compared(this.as_any(), other)
    }

    fn __repr__(&self) -> String {
        format!("<Resolutions of {} entries>", self.0.view.len())
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

    /// The resolutions of some rows.
    fn take(&self, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.0.take(rows).map(Self)
    }
}
