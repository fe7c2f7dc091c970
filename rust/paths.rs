//! Logical paths: absolute inside the volume, `/` between names, compared as given.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::columns::{TextColumn, texts};
use crate::errors::{Fault, InvalidPath, text_of};

/// Bytes of UTF-8 in the longest name: a sort key's limit.
pub const MAX_NAME_BYTES: usize = 1024;

/// Whether `name` is one component of a normalised path.
pub fn is_name(name: &str) -> bool {
    check_name(name).is_ok()
}

/// Refuses what is not one component of a normalised path.
pub fn check_name(name: &str) -> Result<(), Fault> {
    match name {
        "" | "." | ".." => Err(Fault::NotAName),
        _ if name.len() > MAX_NAME_BYTES => Err(Fault::NameTooLong),
        _ => name.bytes().try_for_each(|byte| match byte {
            b'/' => Err(Fault::NotAName),
            0 => Err(Fault::Nul),
            _ => Ok(()),
        }),
    }
}

/// Whether `path` is its own normal form.
pub fn is_normal(path: &str) -> bool {
    path == "/" || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_name))
}

/// The normal form of `path`.
pub fn normal(path: &str) -> Result<Cow<'_, str>, InvalidPath> {
    if is_normal(path) {
        return Ok(Cow::Borrowed(path));
    }
    resolve(path).map(Cow::Owned).map_err(|fault| InvalidPath::new(fault, path))
}

fn resolve(path: &str) -> Result<String, Fault> {
    if path.is_empty() {
        return Err(Fault::Empty);
    }
    let mut resolved = String::with_capacity(path.len() + 1);
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => resolved.truncate(resolved.rfind('/').ok_or(Fault::AboveRoot)?),
            name => {
                check_name(name)?;
                resolved.push('/');
                resolved.push_str(name);
            }
        }
    }
    if resolved.is_empty() {
        resolved.push('/');
    }
    Ok(resolved)
}

/// Parent and name of a normalised path.
pub fn parent_and_name(path: &str) -> Result<(&str, &str), InvalidPath> {
    match path.rsplit_once('/') {
        Some((_, "")) | None => Err(InvalidPath::new(Fault::Root, path)),
        Some(("", name)) => Ok(("/", name)),
        Some(pair) => Ok(pair),
    }
}

/// Appends `name` to `parent`, both checked already.
pub fn push_child(out: &mut String, parent: &str, name: &str) {
    out.push_str(parent.trim_end_matches('/'));
    out.push('/');
    out.push_str(name);
}

/// Normalised absolute form of a path.
#[pyfunction]
pub fn normalize<'py>(path: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    let text = text_of(path)?;
    Ok(PyString::new(path.py(), &normal(text)?))
}

/// Normalised absolute forms of many paths.
#[pyfunction]
pub fn normalize_many<'py>(py: Python<'py>, paths: Vec<Bound<'py, PyString>>) -> PyResult<Bound<'py, PyList>> {
    let texts = texts(&paths)?;
    let column = py.detach(|| -> Result<_, InvalidPath> {
        let mut column = TextColumn::with_capacity(texts.len(), texts.iter().map(|text| text.len() + 1).sum());
        for text in texts {
            column.push(&normal(text)?);
        }
        Ok(column)
    })?;
    column.to_list(py)
}

/// Parent and name of a path.
#[pyfunction]
pub fn split(path: &Bound<'_, PyString>) -> PyResult<(String, String)> {
    let path = normal(text_of(path)?)?;
    let (parent, name) = parent_and_name(&path)?;
    Ok((parent.to_owned(), name.to_owned()))
}

/// Path of a child.
#[pyfunction]
pub fn join(parent: &Bound<'_, PyString>, name: &Bound<'_, PyString>) -> PyResult<String> {
    let (parent, name) = (normal(text_of(parent)?)?, text_of(name)?);
    check_name(name).map_err(|fault| InvalidPath::new(fault, name))?;
    let mut path = String::with_capacity(parent.len() + 1 + name.len());
    push_child(&mut path, &parent, name);
    Ok(path)
}

/// The directories that lead to a path, topmost first, without the root and the path itself.
#[pyfunction]
pub fn ancestors<'py>(path: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyList>> {
    let py = path.py();
    let path = normal(text_of(path)?)?;
    let slashes = path.match_indices('/').skip(1).filter_map(|(end, _)| path.get(..end));
    PyList::new(py, slashes.collect::<Vec<_>>())
}
