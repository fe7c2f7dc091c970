//! Logical paths: absolute inside the volume, `/` between names, compared as given.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::columns::{Strings, TextColumn};
use crate::errors::{Fault, InvalidPath, text_of};
use crate::limits::{MAX_NAME_BYTES, MAX_PARTITION_BYTES};
use crate::recent::Recent;

/// The longest path with a key: the partition key holds all of it except the name.
const MAX_PATH_BYTES: usize = MAX_PARTITION_BYTES + 1 + MAX_NAME_BYTES;

/// Whether `name` is one component of a normalised path.
pub fn is_name(name: &str) -> bool {
    check_name(name).is_ok()
}

/// Refuses a text that is not one component of a normalised path.
pub fn check_name(name: &str) -> Result<(), Fault> {
    match name {
        "" | "." | ".." => Err(Fault::NotAName),
        _ if name.len() > MAX_NAME_BYTES => Err(Fault::NameTooLong),
        _ => match memchr::memchr2(b'/', 0, name.as_bytes())
            .and_then(|place| name.as_bytes().get(place))
        {
            Some(b'/') => Err(Fault::NotAName),
            Some(_) => Err(Fault::Nul),
            None => Ok(()),
        },
    }
}

/// Whether `path` is normalised.
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
pub fn parent_and_name(path: &str) -> Result<(&str, &str), Fault> {
    match path.rsplit_once('/') {
        Some((_, "")) | None => Err(Fault::Root),
        Some(("", name)) => Ok(("/", name)),
        Some(pair) => Ok(pair),
    }
}

/// Appends `name` to `parent`, both already checked.
pub fn push_child(out: &mut String, parent: &str, name: &str) {
    out.push_str(parent.trim_end_matches('/'));
    out.push('/');
    out.push_str(name);
}

/// Directory, not always normalised, and name, if the last component is a plain name.
pub fn plain_name(path: &str) -> Option<(&str, &str)> {
    let cut = memchr::memrchr(b'/', path.as_bytes())?;
    let (directory, name) = (path.get(..cut)?, path.get(cut + 1..)?);
    is_name(name).then_some((directory, name))
}

/// Normal form of the directory part that `plain_name` split off.
pub fn normal_directory(directory: &str) -> Result<Cow<'_, str>, Fault> {
    if directory.is_empty() {
        Ok(Cow::Borrowed("/"))
    } else {
        normal(directory).map_err(|error| error.fault)
    }
}

/// Normal forms of many paths. An empty row means that the path is already normalised, since no
/// normal form is empty.
fn changed_forms(paths: &[&str]) -> Result<TextColumn, InvalidPath> {
    let mut changed = TextColumn::with_capacity(paths.len(), 0);
    let mut directories = Recent::for_rows(paths.len());
    for path in paths {
        if let Some((given, name)) = plain_name(path) {
            let directory = directories.get_or_make(given, || normal_directory(given));
            let directory = directory.map_err(|fault| InvalidPath::new(fault, path))?;
            if matches!(directory, Cow::Owned(_)) || given == "/" {
                push_child(changed.buffer(), directory, name);
            }
        } else if let Cow::Owned(text) = normal(path)? {
            changed.buffer().push_str(&text);
        }
        changed.end_row();
    }
    Ok(changed)
}

/// The Python string itself if it is exactly a `str` with this text.
fn same_or_new<'py>(given: &Bound<'py, PyString>, changed: Option<&str>) -> Bound<'py, PyString> {
    match changed {
        None if given.is_exact_instance_of::<PyString>() => given.clone(),
        None => PyString::new(given.py(), &given.to_string_lossy()),
        Some(text) => PyString::new(given.py(), text),
    }
}

/// Normalised absolute form of a path.
#[pyfunction]
pub fn normalize<'py>(path: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    Ok(match normal(text_of(path)?)? {
        Cow::Borrowed(_) => same_or_new(path, None),
        Cow::Owned(text) => same_or_new(path, Some(&text)),
    })
}

/// Normalised absolute forms of many paths.
#[pyfunction]
pub fn normalize_many<'py>(py: Python<'py>, paths: Strings<'py>) -> PyResult<Bound<'py, PyList>> {
    let texts = paths.texts()?;
    let changed = py.detach(|| changed_forms(&texts))?;
    let rows = paths.objects().iter().zip(changed.iter());
    PyList::new(
        py,
        rows.map(|(given, text)| same_or_new(given, (!text.is_empty()).then_some(text))),
    )
}

/// Parent and name of a path.
#[pyfunction]
pub fn split(path: &Bound<'_, PyString>) -> PyResult<(String, String)> {
    let given = text_of(path)?;
    let path = normal(given)?;
    let (parent, name) = parent_and_name(&path).map_err(|fault| InvalidPath::new(fault, given))?;
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

/// The ancestors of a path, topmost first, without the root.
#[pyfunction]
pub fn ancestors<'py>(path: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyList>> {
    let py = path.py();
    let path = normal(text_of(path)?)?;
    if path.len() > MAX_PATH_BYTES {
        // The total length is quadratic in that of the path, so a path without a key is refused
        // first.
        return Err(InvalidPath::new(Fault::KeyTooLong, &path).into());
    }
    let slashes = path.match_indices('/').skip(1).filter_map(|(end, _)| path.get(..end));
    PyList::new(py, slashes.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_have_one_normal_form() {
        let cases = [
            ("/", "/"),
            ("//", "/"),
            (".", "/"),
            ("/a/..", "/"),
            ("a", "/a"),
            ("/a/", "/a"),
            ("//a///b", "/a/b"),
            ("./a/./b/.", "/a/b"),
            ("/a/b/../c", "/a/c"),
            ("/...", "/..."),
            ("/a:b/é/😀 ", "/a:b/é/😀 "),
        ];
        for (given, wanted) in cases {
            assert_eq!(normal(given).unwrap(), wanted, "{given}");
        }
    }

    #[test]
    fn bad_paths_are_named() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        let cases = [
            ("", Fault::Empty),
            ("/a\0", Fault::Nul),
            ("..", Fault::AboveRoot),
            ("/a/../../b", Fault::AboveRoot),
            (&long, Fault::NameTooLong),
        ];
        for (given, fault) in cases {
            assert_eq!(normal(given).unwrap_err(), InvalidPath::new(fault, given));
        }
        assert!(normal(&long[1..]).is_ok());
    }

    #[test]
    fn many_at_once_agree_with_one_at_a_time() {
        let paths =
            ["/a/b", "/a/c", "x", "/", "//y", "/a//b", "./z", "/a/b/", "/a/b/../c", "/a/./b"];
        let changed = changed_forms(&paths).unwrap();
        for (given, row) in paths.iter().zip(changed.iter()) {
            let wanted = normal(given).unwrap();
            assert_eq!(if row.is_empty() { given } else { row }, wanted);
            assert_eq!(row.is_empty(), wanted == *given, "{given}");
        }
    }

    #[test]
    fn the_root_has_no_parent() {
        assert_eq!(parent_and_name("/"), Err(Fault::Root));
        assert_eq!(parent_and_name("/a"), Ok(("/", "a")));
        assert_eq!(parent_and_name("/a/b"), Ok(("/a", "b")));
    }
}
