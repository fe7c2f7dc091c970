//! Table keys: `ks://<volume>/<parent>-sf<index>` and the name.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::columns::{TextColumn, texts};
use crate::errors::{BadItemKey, Fault, InvalidPath, key_text_of, string_argument, text_of};
use crate::paths::{is_name, is_normal, normal, parent_and_name, push_child};
use crate::suffix::{Hash, MAX_SUFFIX_COUNT, SuffixCount, SuffixIndex};

/// Bytes of UTF-8 in the longest partition key.
pub const MAX_PARTITION_BYTES: usize = 2048;

const SCHEME: &str = "ks://";
const SUFFIX: &str = "-sf";

/// A volume's name: the authority of its partition keys.
pub struct Volume(String);

impl Volume {
    /// The name, if it can be an authority.
    pub fn new(name: &str) -> Result<Self, InvalidPath> {
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(InvalidPath::new(Fault::Volume, name));
        }
        Ok(Self(name.to_owned()))
    }

    /// Refuses a parent whose partition key with suffix `last` is too long.
    fn check_length(&self, parent: &str, last: u32) -> Result<(), InvalidPath> {
        let digits = last.checked_ilog10().map_or(1, |power| power as usize + 1);
        if SCHEME.len() + self.0.len() + parent.len() + SUFFIX.len() + digits > MAX_PARTITION_BYTES {
            return Err(InvalidPath::new(Fault::KeyTooLong, parent));
        }
        Ok(())
    }

    fn push_partition(&self, out: &mut String, parent: &str, index: u32) {
        for part in [SCHEME, &self.0, parent, SUFFIX] {
            out.push_str(part);
        }
        push_number(out, index);
    }

    /// The path that an item's keys stand for, appended to `out`.
    fn push_path(&self, out: &mut String, partition: &str, sort: &str) -> Result<(), BadItemKey> {
        let parent = self
            .parent_of(partition)
            .and_then(|parent| if is_name(sort) { Ok(parent) } else { Err("the sort key is no name") });
        match parent {
            Ok(parent) => push_child(out, parent, sort),
            Err(reason) => {
                return Err(BadItemKey { reason, partition: partition.to_owned(), sort: sort.to_owned() });
            }
        }
        Ok(())
    }

    fn parent_of<'a>(&self, partition: &'a str) -> Result<&'a str, &'static str> {
        let rest = partition.strip_prefix(SCHEME).ok_or("the partition key does not begin with 'ks://'")?;
        let rest = rest
            .strip_prefix(self.0.as_str())
            .filter(|rest| rest.starts_with('/'))
            .ok_or("the partition key is not of this volume")?;
        let (parent, suffix) = rest.rsplit_once('-').ok_or("the partition key has no suffix")?;
        if !is_suffix(suffix) {
            return Err("the partition key does not end in '-sf<number>'");
        }
        if !is_normal(parent) {
            return Err("the partition key's directory is not a normalised path");
        }
        Ok(parent)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Volume {
    type Error = PyErr;

    fn extract(argument: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self::new(text_of(string_argument(&argument)?)?)?)
    }
}

/// `sf<number>` as it is written: decimal, no sign, no leading zero, within bounds.
fn is_suffix(text: &str) -> bool {
    text.strip_prefix("sf").is_some_and(|digits| {
        digits.len() <= 5
            && digits.bytes().all(|digit| digit.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'))
            && digits.parse::<u32>().is_ok_and(|index| index < MAX_SUFFIX_COUNT)
    })
}

fn push_number(out: &mut String, number: u32) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    out.push(char::from_digit(number % 10, 10).unwrap_or_default());
}

/// Partition key of one suffix of a directory.
#[pyfunction]
pub fn partition_key(volume: Volume, parent: &Bound<'_, PyString>, index: SuffixIndex) -> PyResult<String> {
    let parent = normal(text_of(parent)?)?;
    volume.check_length(&parent, index.0)?;
    let mut key = String::new();
    volume.push_partition(&mut key, &parent, index.0);
    Ok(key)
}

/// Partition keys of all suffixes of a directory, in order.
#[pyfunction]
pub fn partition_keys<'py>(
    volume: Volume,
    parent: &Bound<'py, PyString>,
    count: SuffixCount,
) -> PyResult<Bound<'py, PyList>> {
    let py = parent.py();
    let parent = normal(text_of(parent)?)?;
    volume.check_length(&parent, count.last())?;
    let mut column = TextColumn::default();
    for index in 0..count.get() {
        volume.push_partition(column.buffer(), &parent, index);
        column.end_row();
    }
    column.to_list(py)
}

/// Partition and sort key of a path.
#[pyfunction]
pub fn item_key(
    volume: Volume,
    path: &Bound<'_, PyString>,
    count: SuffixCount,
    hash: Hash,
) -> PyResult<(String, String)> {
    let path = normal(text_of(path)?)?;
    let (parent, name) = parent_and_name(&path)?;
    volume.check_length(parent, count.last())?;
    let mut partition = String::new();
    volume.push_partition(&mut partition, parent, hash.index(name, count));
    Ok((partition, name.to_owned()))
}

/// Keys of many items. Consecutive paths of one directory share its partition keys.
struct ItemKeys {
    partitions: TextColumn,
    rows: Vec<usize>,
    names: TextColumn,
}

impl ItemKeys {
    fn of(volume: &Volume, paths: &[&str], count: SuffixCount, hash: Hash) -> Result<Self, InvalidPath> {
        let mut keys = Self {
            partitions: TextColumn::default(),
            rows: Vec::with_capacity(paths.len()),
            names: TextColumn::with_capacity(paths.len(), paths.iter().map(|path| path.len() / 2).sum()),
        };
        let mut directory = String::new();
        let mut written: Vec<(u32, usize)> = Vec::new();
        for path in paths {
            let path = normal(path)?;
            let (parent, name) = parent_and_name(&path)?;
            if parent != directory {
                volume.check_length(parent, count.last())?;
                parent.clone_into(&mut directory);
                written.clear();
            }
            let index = hash.index(name, count);
            let row = written.iter().find(|(seen, _)| *seen == index).map(|(_, row)| *row);
            let row = row.unwrap_or_else(|| {
                let row = keys.partitions.len();
                volume.push_partition(keys.partitions.buffer(), parent, index);
                keys.partitions.end_row();
                written.push((index, row));
                row
            });
            keys.rows.push(row);
            keys.names.push(name);
        }
        Ok(keys)
    }

    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let partitions: Vec<_> = self.partitions.iter().map(|text| PyString::new(py, text)).collect();
        let pairs = self.rows.iter().zip(self.names.iter());
        let pairs = pairs.filter_map(|(&row, name)| Some((partitions.get(row)?, PyString::new(py, name))));
        PyList::new(py, pairs.collect::<Vec<_>>())
    }
}

/// Partition and sort keys of many paths.
#[pyfunction]
pub fn item_keys<'py>(
    py: Python<'py>,
    volume: Volume,
    paths: Vec<Bound<'py, PyString>>,
    count: SuffixCount,
    hash: Hash,
) -> PyResult<Bound<'py, PyList>> {
    let paths = texts(&paths)?;
    py.detach(|| ItemKeys::of(&volume, &paths, count, hash))?.to_list(py)
}

/// Path of an item.
#[pyfunction]
pub fn decode_key(volume: Volume, partition: &Bound<'_, PyString>, sort: &Bound<'_, PyString>) -> PyResult<String> {
    let mut path = String::new();
    volume.push_path(&mut path, key_text_of(partition)?, key_text_of(sort)?)?;
    Ok(path)
}

/// Paths of many items.
#[pyfunction]
pub fn decode_keys<'py>(
    py: Python<'py>,
    volume: Volume,
    partitions: Vec<Bound<'py, PyString>>,
    sorts: Vec<Bound<'py, PyString>>,
) -> PyResult<Bound<'py, PyList>> {
    if partitions.len() != sorts.len() {
        return Err(PyValueError::new_err("as many partition keys as sort keys are needed"));
    }
    let partitions = partitions.iter().map(key_text_of).collect::<PyResult<Vec<_>>>()?;
    let sorts = sorts.iter().map(key_text_of).collect::<PyResult<Vec<_>>>()?;
    let column = py.detach(|| -> Result<_, BadItemKey> {
        let mut column = TextColumn::with_capacity(sorts.len(), 0);
        for (partition, sort) in partitions.into_iter().zip(sorts) {
            volume.push_path(column.buffer(), partition, sort)?;
            column.end_row();
        }
        Ok(column)
    })?;
    column.to_list(py)
}
