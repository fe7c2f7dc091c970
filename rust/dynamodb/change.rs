//! Changes of many entries: the decision for each, and the actions on the table as Python objects.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::entries::EntryView;
use crate::entry_sequence::Entries;
use crate::items::Attribute;
use crate::keys::KeyForm;
use crate::physical::{UUID_CHARACTERS, many, push_uuid};

/// The change of the item of each entry, on the condition that it is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// It is removed.
    Delete,
    /// It gets this write intent. Listings detect changes of a directory by its operation id, so a
    /// directory also gets that of the change; a file keeps its own, by which the log identifies
    /// it.
    AddIntent(String),
    /// It loses its write intent.
    RemoveIntent,
}

/// Target of moved entries.
pub struct Place {
    /// The form of the keys.
    pub form: KeyForm,
    /// The normalised path of the directory.
    pub directory: String,
    /// The suffix of each row's name.
    pub suffixes: Vec<u32>,
    /// The write intent of the items there; empty for none.
    pub intent: String,
}

/// Entries to change, with the decision for each.
pub struct Change {
    entries: Py<Entries>,
    /// The operation ids, concatenated; empty for a change that is already logged.
    ids: String,
    /// The change at the old key.
    pub own: Own,
    /// None unless they are moved.
    pub place: Option<Place>,
}

impl Change {
    /// A logged change, with an operation id for each entry.
    pub fn new(
        entries: Py<Entries>,
        own: Own,
        place: Option<Place>,
        entropy: &[u8],
    ) -> PyResult<Arc<Self>> {
        let entropy = many(entropy)?;
        if entropy.len() != entries.get().len() {
            return Err(PyValueError::new_err("16 bytes of entropy are needed for each entry"));
        }
        let mut ids = String::with_capacity(entropy.len() * UUID_CHARACTERS);
        for sixteen in entropy {
            push_uuid(&mut ids, sixteen);
        }
        Ok(Arc::new(Self { entries, ids, own, place }))
    }

    /// A change that is already logged.
    pub fn unlogged(entries: Py<Entries>, own: Own) -> Arc<Self> {
        Arc::new(Self { entries, ids: String::new(), own, place: None })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.get().len()
    }

    /// The stored entry of a row.
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

    /// The number of actions for each entry.
    pub fn width(&self) -> usize {
        1 + usize::from(self.place.is_some())
    }

    /// The action of an entry in this role: 0 on its own item, 1 at its target.
    pub fn action<'py>(
        &self,
        py: Python<'py>,
        row: usize,
        role: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let items = py.import(intern!(py, "s3k_async._core.item_values"))?;
        let entry = self.get(row).ok_or_else(|| PyIndexError::new_err("there is no such row"))?;
        if let Some(place) = self.place.as_ref().filter(|_| role > 0) {
            let item = place.item(py, row, &entry, self.id(row))?;
            return items
                .getattr(intern!(py, "Put"))?
                .call1((item, items.getattr(intern!(py, "ABSENT"))?));
        }
        let key = items
            .getattr(intern!(py, "Key"))?
            .call1((entry.partition().text, entry.name().text))?;
        let when = items.getattr(intern!(py, "Condition"))?.call1(unchanged(py, &entry)?)?;
        let (next, update) = (intern!(py, "next"), intern!(py, "Update"));
        match &self.own {
            Own::Delete => items.getattr(intern!(py, "Delete"))?.call1((key, when)),
            Own::AddIntent(intent) => {
                let set = PyDict::new(py);
                set.set_item(next, intent)?;
                if entry.is_dir() {
                    set.set_item(intern!(py, "op"), self.id(row))?;
                }
                items.getattr(update)?.call1((key, when, set))
            }
            Own::RemoveIntent => {
                items.getattr(update)?.call1((key, when, PyDict::new(py), (next,)))
            }
        }
    }
}

/// The fields of the condition that an entry is unchanged since it was read: as
/// `table.codec.unchanged`.
fn unchanged<'py>(
    py: Python<'py>,
    entry: &EntryView<'_>,
) -> PyResult<(bool, Bound<'py, PyDict>, Bound<'py, PyTuple>)> {
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
    Ok((true, equals, missing))
}

impl Place {
    /// The item of an entry at its target, as by `table.codec.to_item`.
    fn item<'py>(
        &self,
        py: Python<'py>,
        row: usize,
        entry: &EntryView<'_>,
        operation: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut partition = String::new();
        self.form.push_partition(
            &mut partition,
            &self.directory,
            self.suffixes.get(row).copied().unwrap_or(0),
        );
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
        for (name, text) in [
            (intern!(py, "etag"), entry.text(Attribute::Etag).text),
            (intern!(py, "sum"), entry.text(Attribute::Checksum).text),
            (intern!(py, "attrs"), entry.text(Attribute::Attributes).text),
            (intern!(py, "next"), self.intent.as_str()),
        ] {
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
