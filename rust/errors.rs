//! Errors of paths and keys, and their Python exceptions.

use std::fmt;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

#[allow(missing_docs)]
mod python {
    pyo3::import_exception!(s3k_async.errors, CredentialsError);
    pyo3::import_exception!(s3k_async.errors, InvalidArgumentError);
    pyo3::import_exception!(s3k_async.errors, InvalidPathError);
    pyo3::import_exception!(s3k_async.errors, ItemFormatError);
    pyo3::import_exception!(s3k_async.errors, LogFormatError);
    pyo3::import_exception!(s3k_async.errors, ResponseLostError);
}

use crate::limits::{MAX_NAME_BYTES, MAX_PARTITION_BYTES};

/// The reason why a path, key, name, volume name or object id is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An empty path.
    Empty,
    /// A NUL character.
    Nul,
    /// `..` leads above the root.
    AboveRoot,
    /// A component is too long for a sort key.
    NameTooLong,
    /// Not exactly one path component.
    NotAName,
    /// The root has no name, no parent and no item.
    Root,
    /// The parent is too long for a partition key.
    KeyTooLong,
    /// A volume name that is invalid in a key.
    Volume,
    /// An object id that is invalid in a physical key.
    ObjectId,
    /// A text in layout `path` that does not begin with `/`, such as an entry key of layout `tree`.
    Relative,
    /// A path that is not in its normal form, where one is needed.
    NotNormal,
    /// A path in layout `tree`.
    Path,
    /// Not an entry key of layout `tree`.
    EntryKey,
    /// Not a directory id of layout `tree`.
    DirectoryId,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the path is empty"),
            Self::Nul => f.write_str("the path contains a NUL character"),
            Self::AboveRoot => f.write_str("'..' leads above the root"),
            Self::NameTooLong => write!(f, "a name is longer than {MAX_NAME_BYTES} bytes of UTF-8"),
            Self::NotAName => {
                f.write_str("not a single name: it is empty, '.', '..' or contains '/'")
            }
            Self::Root => f.write_str("the root has no parent, no name and no item"),
            Self::KeyTooLong => write!(
                f,
                "the path is too long: with the name of the volume, its partition key would be \
                 longer than {MAX_PARTITION_BYTES} bytes of UTF-8"
            ),
            Self::Volume => f.write_str("not a volume name: it is empty or contains '/' or NUL"),
            Self::ObjectId => f.write_str(
                "not an object id: it is empty, too long, or contains '/', NUL or '.id='",
            ),
            Self::Relative => {
                f.write_str("not a path of layout 'path': it does not begin with '/'")
            }
            Self::NotNormal => f.write_str("the path is not normalised"),
            Self::Path => f.write_str(
                "a path is no key of layout 'tree': '<directory id>/<name>' is one, or the \
                 directory id alone",
            ),
            Self::EntryKey => {
                f.write_str("not an entry key of layout 'tree': '<directory id>/<name>'")
            }
            Self::DirectoryId => {
                f.write_str("not a directory id: 1 to 64 ASCII letters, digits, '-' and '_'")
            }
        }
    }
}

/// A refused path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPath {
    /// What is wrong with it.
    pub fault: Fault,
    /// The path as given.
    pub path: String,
}

impl InvalidPath {
    /// `fault`, found in `path`.
    pub fn new(fault: Fault, path: &str) -> Self {
        Self { fault, path: path.to_owned() }
    }
}

impl From<InvalidPath> for PyErr {
    fn from(error: InvalidPath) -> Self {
        Python::attach(|py| {
            with_path(
                py.get_type::<python::InvalidPathError>(),
                &error.fault.to_string(),
                &error.path,
            )
        })
    }
}

/// A stored key that this layout does not write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadItemKey {
    /// What is wrong with it.
    pub reason: &'static str,
    /// The item's partition key.
    pub partition: String,
    /// The item's sort key.
    pub sort: String,
}

impl fmt::Display for BadItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (sort key {:?})", self.reason, self.sort)
    }
}

impl From<BadItemKey> for PyErr {
    fn from(error: BadItemKey) -> Self {
        BadItem::from(error).into()
    }
}

/// `CredentialsError`.
pub fn bad_credentials(message: &'static str) -> PyErr {
    PyErr::new::<python::CredentialsError, _>(message)
}

/// `InvalidArgumentError`.
pub fn bad_argument(message: String) -> PyErr {
    PyErr::new::<python::InvalidArgumentError, _>(message)
}

/// A stored item that is no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadItem {
    /// What is wrong with it.
    pub reason: String,
    /// Its key, or its path.
    pub place: String,
}

impl From<BadItemKey> for BadItem {
    fn from(error: BadItemKey) -> Self {
        let reason = error.to_string();
        Self { reason, place: error.partition }
    }
}

impl From<BadItem> for PyErr {
    fn from(error: BadItem) -> Self {
        Python::attach(|py| {
            with_path(py.get_type::<python::ItemFormatError>(), &error.reason, &error.place)
        })
    }
}

/// The error for an unreadable answer.
pub fn lost(reason: &str) -> PyErr {
    python::ResponseLostError::new_err(reason.to_owned())
}

/// `LogFormatError`, for an operation on the entry at a path.
pub fn bad_operation(message: &str, path: &str) -> PyErr {
    Python::attach(|py| with_path(py.get_type::<python::LogFormatError>(), message, path))
}

/// An error of a class of `errors.py`, with its message and path.
pub fn with_path(class: Bound<'_, PyType>, message: &str, path: &str) -> PyErr {
    let named = PyDict::new(class.py());
    match named.set_item("path", path).and_then(|()| class.call((message,), Some(&named))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The UTF-8 text of a Python string. Lone surrogates have none: `InvalidPathError`, with the path
/// escaped.
pub fn text_of<'a>(string: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    let class = || string.py().get_type::<python::InvalidPathError>();
    string
        .to_str()
        .map_err(|cause| not_utf8(class(), "the path cannot be encoded as UTF-8", string, cause))
}

/// As `text_of`, for stored keys: `ItemFormatError`.
pub fn key_text_of<'a>(string: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    let class = || string.py().get_type::<python::ItemFormatError>();
    string
        .to_str()
        .map_err(|cause| not_utf8(class(), "the key cannot be encoded as UTF-8", string, cause))
}

fn not_utf8(
    class: Bound<'_, PyType>,
    message: &str,
    string: &Bound<'_, PyString>,
    cause: PyErr,
) -> PyErr {
    let error = with_path(class, message, &escaped(string));
    error.set_cause(string.py(), Some(cause));
    error
}

fn escaped(string: &Bound<'_, PyString>) -> String {
    string
        .call_method1("encode", ("utf-8", "backslashreplace"))
        .and_then(|bytes| bytes.extract::<Vec<u8>>())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
