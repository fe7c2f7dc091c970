//! Log operations of a change of many entries.
//!
//! Source of the format: `oplog/entries.py`.

use std::ops::Range;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyList, PyString};

use crate::dynamodb::change::{Change, Place};
use crate::entries::EntryView;
use crate::errors::bad_operation;
use crate::items::Attribute;
use crate::json::write::{push_ascii_quoted, push_integer};
use crate::keys::is_id;
use crate::operation_lines::OperationReader;
use crate::paths::push_child;
use crate::view::{Subscript, View, compared, count_of, index_of};

/// The highest version that a key of the log can hold.
pub const MAX_VERSION: i64 = 9_999_999_999;

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The entries are moved.
    Rename,
    /// The entries are removed.
    Delete,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Rename => "rename",
            Self::Delete => "delete",
        }
    }
}

/// Operations of the log on many entries.
#[pyclass(frozen, sequence, module = "s3k_async._native")]
pub struct Operations {
    change: Arc<Change>,
    view: View,
    kind: Kind,
    time_ms: i64,
}

impl Operations {
    /// The log operations of some rows of a change, with one time.
    pub fn new(change: Arc<Change>, view: View, kind: Kind, time_ms: i64) -> Self {
        Self { change, view, kind, time_ms }
    }

    fn object<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let before = self.change.entry(py, row)?;
        let id = self.change.id(row);
        let after = match &self.change.place {
            Some(place) => {
                let mut path = String::new();
                let name = self.change.get(row).map(|entry| entry.name().text);
                push_child(&mut path, &place.directory, name.unwrap_or_default());
                let named = PyDict::new(py);
                named.set_item(intern!(py, "operation"), id)?;
                Some(before.call_method(intern!(py, "moved"), (path,), Some(&named))?)
            }
            None => None,
        };
        let version = before.getattr(intern!(py, "version"))?.add(1)?;
        let object = before.getattr(intern!(py, "id"))?;
        let class = py.import(intern!(py, "s3k_async.model"))?.getattr(intern!(py, "Operation"))?;
        class.call1((id, self.kind.name(), object, version, self.time_ms, before, after))
    }

    fn push_line(&self, out: &mut String, row: usize) -> Result<(), Refused> {
        let Some(entry) = self.change.get(row) else { return Ok(()) };
        let refuse = |reason| {
            let mut path = String::new();
            entry.push_path(&mut path);
            Err(Refused { reason, path })
        };
        let object = entry.text(Attribute::Id).text;
        if !is_id(object) {
            return refuse("an operation id or object id that no key can hold");
        }
        if entry.version() >= MAX_VERSION {
            return refuse("the version is out of range");
        }
        if !entry.has_path() {
            return refuse("the path of the entry is not known");
        }
        let (id, kind) = (self.change.id(row), self.kind.name());
        for part in [
            "{\"id\":\"",
            id,
            "\",\"kind\":\"",
            kind,
            "\",\"object\":\"",
            object,
            "\",\"version\":",
        ] {
            out.push_str(part);
        }
        push_integer(out, entry.version() + 1);
        push_number(out, ",\"time_ms\":", self.time_ms);
        let before = Side {
            parent: entry.parent(),
            directory_id: entry.directory_id(),
            version: entry.version(),
            operation: entry.text(Attribute::Operation).text,
            pending: entry.text(Attribute::Pending).text,
        };
        out.push_str(",\"before\":");
        let written = before.push(out, &entry);
        out.push_str(",\"after\":");
        match &self.change.place {
            Some(Place { directory, .. }) => {
                let after = Side {
                    parent: directory,
                    directory_id: None,
                    version: entry.version() + 1,
                    operation: id,
                    pending: "",
                };
                after.push_again(out, &entry, written);
            }
            None => out.push_str("null"),
        }
        out.push_str("}\n");
        Ok(())
    }
}

/// An operation that the log cannot hold.
struct Refused {
    reason: &'static str,
    path: String,
}

/// The fields that differ before and after a change.
pub struct Side<'a> {
    /// The path of its directory.
    pub parent: &'a str,
    /// The id of its directory in layout `tree`; None in layout `path`.
    pub directory_id: Option<&'a str>,
    /// Its version.
    pub version: i64,
    /// The id of the operation that wrote it.
    pub operation: &'a str,
    /// Its pending change, or nothing.
    pub pending: &'a str,
}

/// Where the fields that do not differ before and after a change have been written.
pub struct Unchanged {
    /// From `is_dir` to `id`.
    object: Range<usize>,
    /// From `ctime` to `attributes`.
    content: Range<usize>,
}

impl Side<'_> {
    /// Appends the entry in the form of the log.
    pub fn push(&self, out: &mut String, entry: &EntryView<'_>) -> Unchanged {
        self.push_path(out, entry);
        let start = out.len();
        push_object(out, entry);
        let object = start..out.len();
        push_number(out, ",\"version\":", self.version);
        let start = out.len();
        push_content(out, entry);
        let content = start..out.len();
        self.push_rest(out, entry);
        Unchanged { object, content }
    }

    /// Appends the entry once more, on the other side of the change.
    fn push_again(&self, out: &mut String, entry: &EntryView<'_>, written: Unchanged) {
        self.push_path(out, entry);
        out.extend_from_within(written.object);
        push_number(out, ",\"version\":", self.version);
        out.extend_from_within(written.content);
        self.push_rest(out, entry);
    }

    fn push_path(&self, out: &mut String, entry: &EntryView<'_>) {
        let mut path = String::with_capacity(256);
        push_child(&mut path, self.parent, entry.name().text);
        out.push_str("{\"path\":");
        push_ascii_quoted(out, &path);
        if let Some(directory) = self.directory_id {
            push_text(out, ",\"directory\":", directory);
        }
    }

    fn push_rest(&self, out: &mut String, entry: &EntryView<'_>) {
        push_text(out, ",\"operation\":", self.operation);
        push_number(out, ",\"lease_ms\":", entry.lease_ms());
        push_text(out, ",\"pending\":", self.pending);
        out.push('}');
    }
}

fn push_object(out: &mut String, entry: &EntryView<'_>) {
    out.push_str(if entry.is_dir() {
        ",\"is_dir\":true,\"id\":"
    } else {
        ",\"is_dir\":false,\"id\":"
    });
    push_ascii_quoted(out, entry.text(Attribute::Id).text);
}

fn push_content(out: &mut String, entry: &EntryView<'_>) {
    push_number(out, ",\"ctime\":", entry.ctime());
    push_number(out, ",\"mtime_ms\":", entry.mtime_ms());
    push_number(out, ",\"size\":", entry.size());
    out.push_str(",\"physical\":");
    match entry.physical() {
        Some(physical) => push_ascii_quoted(out, physical.text),
        None => out.push_str("null"),
    }
    out.push_str(if entry.committed() { ",\"committed\":true" } else { ",\"committed\":false" });
    push_text(out, ",\"etag\":", entry.text(Attribute::Etag).text);
    push_text(out, ",\"checksum\":", entry.text(Attribute::Checksum).text);
    let attributes = entry.text(Attribute::Attributes).text;
    if !attributes.is_empty() {
        push_text(out, ",\"attributes\":", attributes);
    }
}

fn push_number(out: &mut String, head: &str, number: i64) {
    out.push_str(head);
    push_integer(out, number);
}

fn push_text(out: &mut String, head: &str, text: &str) {
    out.push_str(head);
    push_ascii_quoted(out, text);
}

#[pymethods]
impl Operations {
    fn __len__(&self) -> usize {
        self.view.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.view.subscript(index)? {
            Subscript::Row(row) => self.object(py, row),
            Subscript::Rows(view) => {
                let part = Self::new(Arc::clone(&self.change), view, self.kind, self.time_ms);
                Ok(Bound::new(py, part)?.into_any())
            }
        }
    }

    fn __eq__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        compared(this.as_any(), other)
    }

    fn __repr__(&self) -> String {
        format!("<Operations on {} entries>", self.view.len())
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

    /// Indexes of the operations that give an entry with user metadata another place.
    fn with_metadata(&self, py: Python<'_>) -> Vec<usize> {
        if self.change.place.is_none() {
            return Vec::new();
        }
        py.detach(|| {
            let has = |row| self.change.get(row).is_some_and(|entry| entry.has_metadata());
            let found = self.view.iter().enumerate().filter(|&(_, row)| has(row));
            found.map(|(place, _)| place).collect()
        })
    }

    /// The operation ids.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.view.iter().map(|row| self.change.id(row)))
    }

    /// The lines of a segment for the operations from `start` to `end`, each ended by a newline.
    fn lines<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        end: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let end = end.min(self.view.len());
        let lines = py.detach(|| {
            let mut out = String::with_capacity(end.saturating_sub(start) * 1024);
            (start..end)
                .filter_map(|place| self.view.get(place))
                .try_for_each(|row| self.push_line(&mut out, row))?;
            Ok(out)
        });
        let lines =
            lines.map_err(|refused: Refused| bad_operation(refused.reason, &refused.path))?;
        Ok(PyBytes::new(py, lines.as_bytes()))
    }
}

/// A line of the log in the making, from an `Operation` of Python. Its methods append an attribute
/// of an object after `head`, and return None for a value of another type than the log has, or text
/// that UTF-8 cannot encode.
struct Line(String);

type Name<'a, 'py> = &'a Bound<'py, PyString>;

impl Line {
    fn push(&mut self, operation: &Bound<'_, PyAny>) -> Option<()> {
        let py = operation.py();
        if !operation.getattr(intern!(py, "trash")).ok()?.is_none() {
            return None;
        }
        self.text("{\"id\":", operation, intern!(py, "id"))?;
        self.text(",\"kind\":", operation, intern!(py, "kind"))?;
        self.text(",\"object\":", operation, intern!(py, "object_id"))?;
        self.number(",\"version\":", operation, intern!(py, "version"))?;
        self.number(",\"time_ms\":", operation, intern!(py, "time_ms"))?;
        self.state(",\"before\":", operation, intern!(py, "before"))?;
        self.state(",\"after\":", operation, intern!(py, "after"))?;
        self.0.push('}');
        Some(())
    }

    fn state<'py>(
        &mut self,
        head: &str,
        operation: &Bound<'py, PyAny>,
        name: Name<'_, 'py>,
    ) -> Option<()> {
        let (py, entry) = (operation.py(), &operation.getattr(name).ok()?);
        self.0.push_str(head);
        if entry.is_none() {
            self.0.push_str("null");
            return Some(());
        }
        self.text("{\"path\":", entry, intern!(py, "path"))?;
        self.text_unless_empty(",\"directory\":", entry, intern!(py, "directory"))?;
        self.truth(",\"is_dir\":", entry, intern!(py, "is_dir"))?;
        self.text(",\"id\":", entry, intern!(py, "id"))?;
        self.number(",\"version\":", entry, intern!(py, "version"))?;
        self.number(",\"ctime\":", entry, intern!(py, "ctime"))?;
        self.number(",\"mtime_ms\":", entry, intern!(py, "mtime_ms"))?;
        self.number(",\"size\":", entry, intern!(py, "size"))?;
        self.text_or_null(",\"physical\":", entry, intern!(py, "physical"))?;
        self.truth(",\"committed\":", entry, intern!(py, "committed"))?;
        self.text(",\"etag\":", entry, intern!(py, "etag"))?;
        self.text(",\"checksum\":", entry, intern!(py, "checksum"))?;
        self.text_unless_empty(",\"attributes\":", entry, intern!(py, "attributes"))?;
        self.text(",\"operation\":", entry, intern!(py, "operation"))?;
        self.number(",\"lease_ms\":", entry, intern!(py, "lease_ms"))?;
        self.text(",\"pending\":", entry, intern!(py, "pending"))?;
        self.0.push('}');
        Some(())
    }

    fn text<'py>(&mut self, head: &str, of: &Bound<'py, PyAny>, name: Name<'_, 'py>) -> Option<()> {
        let value = of.getattr(name).ok()?;
        push_text(&mut self.0, head, value.cast_exact::<PyString>().ok()?.to_str().ok()?);
        Some(())
    }

    fn text_unless_empty<'py>(
        &mut self,
        head: &str,
        of: &Bound<'py, PyAny>,
        name: Name<'_, 'py>,
    ) -> Option<()> {
        let value = of.getattr(name).ok()?;
        let text = value.cast_exact::<PyString>().ok()?.to_str().ok()?;
        if !text.is_empty() {
            push_text(&mut self.0, head, text);
        }
        Some(())
    }

    fn text_or_null<'py>(
        &mut self,
        head: &str,
        of: &Bound<'py, PyAny>,
        name: Name<'_, 'py>,
    ) -> Option<()> {
        if !of.getattr(name).ok()?.is_none() {
            return self.text(head, of, name);
        }
        self.0.push_str(head);
        self.0.push_str("null");
        Some(())
    }

    fn number<'py>(
        &mut self,
        head: &str,
        of: &Bound<'py, PyAny>,
        name: Name<'_, 'py>,
    ) -> Option<()> {
        let value = of.getattr(name).ok()?;
        push_number(&mut self.0, head, value.cast_exact::<PyInt>().ok()?.extract().ok()?);
        Some(())
    }

    fn truth<'py>(
        &mut self,
        head: &str,
        of: &Bound<'py, PyAny>,
        name: Name<'_, 'py>,
    ) -> Option<()> {
        let value = of.getattr(name).ok()?;
        self.0.push_str(head);
        self.0.push_str(if value.cast_exact::<PyBool>().ok()?.is_true() {
            "true"
        } else {
            "false"
        });
        Some(())
    }
}

/// Whether a state in lines of operations has a directory key: then they need the newest format of
/// what contains them. JSON escapes quotation marks within texts.
#[pyfunction]
pub fn has_directories(py: Python<'_>, lines: &[u8]) -> bool {
    py.detach(|| memchr::memmem::find(lines, b"\"directory\":").is_some())
}

/// An operation as a line of the log, without the newline. None for one that concerns the trash,
/// has a field of a wrong type, contradicts itself, or has a state that no item can have.
#[pyfunction]
pub fn operation_line<'py>(operation: &Bound<'py, PyAny>) -> Option<Bound<'py, PyBytes>> {
    let mut line = Line(String::with_capacity(1024));
    line.push(operation)?;
    let line = line.0.as_bytes();
    OperationReader::of_any_volume().read(line)?;
    Some(PyBytes::new(operation.py(), line))
}
