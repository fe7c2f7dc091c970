//! Table keys: `ks://<volume>/<parent>-sf<index>` and the name.

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::columns::{Strings, TextColumn};
use crate::errors::{BadItemKey, Fault, InvalidPath, key_text_of, text_of};
use crate::limits::MAX_PARTITION_BYTES;
use crate::paths::{
    is_name, is_normal, normal, normal_directory, parent_and_name, plain_name, push_child,
};
use crate::recent::Recent;
use crate::suffix::{Hash, MAX_SUFFIX_COUNT, SuffixCount, SuffixIndex};

const SCHEME: &str = "ks://";
const SUFFIX: &str = "-sf";

/// A volume's name: the authority of its partition keys.
pub struct Volume(String);

impl Volume {
    /// The name, if it is a valid authority.
    pub fn new(name: &str) -> Result<Self, InvalidPath> {
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(InvalidPath::new(Fault::Volume, name));
        }
        Ok(Self(name.to_owned()))
    }

    /// Refuses a parent whose partition key with suffix `last` is too long.
    pub fn check_length(&self, parent: &str, last: u32) -> Result<(), Fault> {
        let digits = last.checked_ilog10().map_or(1, |power| power as usize + 1);
        if SCHEME.len() + self.0.len() + parent.len() + SUFFIX.len() + digits > MAX_PARTITION_BYTES
        {
            return Err(Fault::KeyTooLong);
        }
        Ok(())
    }

    /// Appends the partition key of a suffix of a directory.
    pub fn push_partition(&self, out: &mut String, parent: &str, index: u32) {
        for part in [SCHEME, &self.0, parent, SUFFIX] {
            out.push_str(part);
        }
        push_number(out, index);
    }

    /// The position of the directory in a partition key.
    pub fn parent_start(&self) -> usize {
        SCHEME.len() + self.0.len()
    }

    /// The directory of a partition key, or the error of an invalid one.
    pub fn parent_of<'a>(&self, partition: &'a str) -> Result<&'a str, &'static str> {
        let rest = partition
            .strip_prefix(SCHEME)
            .ok_or("the partition key does not begin with 'ks://'")?;
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
        Ok(Self::new(text_of(&argument.cast::<PyString>()?.to_owned())?)?)
    }
}

/// The directory of the item `sort`, whose partition key was read as `parent`.
pub fn checked_item<'a>(
    parent: Result<&'a str, &'static str>,
    partition: &str,
    sort: &str,
) -> Result<&'a str, BadItemKey> {
    let parent = parent
        .and_then(|parent| if is_name(sort) { Ok(parent) } else { Err("the sort key is no name") });
    parent.map_err(|reason| BadItemKey {
        reason,
        partition: partition.to_owned(),
        sort: sort.to_owned(),
    })
}

/// `sf<number>` in normal form: decimal, no sign, no leading zero, within bounds.
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
pub fn partition_key(
    volume: Volume,
    parent: &Bound<'_, PyString>,
    index: SuffixIndex,
) -> PyResult<String> {
    let given = text_of(parent)?;
    let parent = normal(given)?;
    volume.check_length(&parent, index.0).map_err(|fault| InvalidPath::new(fault, given))?;
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
    let given = text_of(parent)?;
    let parent = normal(given)?;
    volume.check_length(&parent, count.last()).map_err(|fault| InvalidPath::new(fault, given))?;
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
    let given = text_of(path)?;
    let refuse = |fault| InvalidPath::new(fault, given);
    let path = normal(given)?;
    let (parent, name) = parent_and_name(&path).map_err(refuse)?;
    volume.check_length(parent, count.last()).map_err(refuse)?;
    let mut partition = String::with_capacity(given.len() + volume.0.len() + 16);
    volume.push_partition(&mut partition, parent, hash.index(name, count));
    Ok((partition, name.to_owned()))
}

/// Partition keys and sort keys, row by row.
type KeyLists<'py> = (Bound<'py, PyList>, Bound<'py, PyList>);

/// Keys of many items; items of a cached directory share its partition keys.
#[derive(Default)]
struct ItemKeys<'a> {
    partitions: TextColumn,
    /// For each item the row of its partition key, and the name.
    items: Vec<(usize, &'a str)>,
}

/// Suffixes of a cached directory with shared partition keys.
const SHARED_SUFFIXES: usize = 128;

/// A directory with a valid path, and the rows of the partition keys last written for it.
struct Directory<'a> {
    path: Cow<'a, str>,
    rows: Vec<Option<(u32, usize)>>,
}

impl<'a> Directory<'a> {
    /// The directory `parent`, as split from a path: empty for the root, not always normalised.
    fn new(volume: &Volume, parent: &'a str, count: SuffixCount) -> Result<Self, Fault> {
        let path = normal_directory(parent)?;
        volume.check_length(&path, count.last())?;
        Ok(Self { path, rows: vec![None; SHARED_SUFFIXES.min(count.get() as usize)] })
    }

    /// The row of the partition key of suffix `index`.
    fn row(&mut self, partitions: &mut TextColumn, volume: &Volume, index: u32) -> usize {
        let place = self.rows.get_mut(index as usize % SHARED_SUFFIXES);
        match place {
            Some(&mut Some((held, row))) if held == index => row,
            place => {
                volume.push_partition(partitions.buffer(), &self.path, index);
                partitions.end_row();
                let row = partitions.len() - 1;
                if let Some(place) = place {
                    *place = Some((index, row));
                }
                row
            }
        }
    }
}

impl<'a> ItemKeys<'a> {
    fn of(
        volume: &Volume,
        paths: &[&'a str],
        count: SuffixCount,
        hash: Hash,
    ) -> Result<Self, InvalidPath> {
        let mut keys =
            Self { partitions: TextColumn::default(), items: Vec::with_capacity(paths.len()) };
        let mut directories = Recent::for_rows(paths.len());
        for &path in paths {
            let refuse = |fault| InvalidPath::new(fault, path);
            if let Some((parent, name)) = plain_name(path) {
                let directory =
                    directories.get_or_make(parent, || Directory::new(volume, parent, count));
                let row = directory.map_err(refuse)?.row(
                    &mut keys.partitions,
                    volume,
                    hash.index(name, count),
                );
                keys.items.push((row, name));
            } else {
                let normal = normal(path)?;
                let (parent, name) = parent_and_name(&normal).map_err(refuse)?;
                let mut directory = Directory::new(volume, parent, count).map_err(refuse)?;
                let row = directory.row(&mut keys.partitions, volume, hash.index(name, count));
                keys.items.push((row, borrowed_from(path, name)));
            }
        }
        Ok(keys)
    }

    /// A list of the partition keys and one of the sort keys.
    fn to_lists<'py>(&self, py: Python<'py>) -> PyResult<KeyLists<'py>> {
        let made: Vec<_> = self.partitions.iter().map(|text| PyString::new(py, text)).collect();
        #[allow(clippy::indexing_slicing)] // a row is the place of a partition key
        let partitions = PyList::new(py, self.items.iter().map(|&(row, _)| &made[row]))?;
        Ok((partitions, PyList::new(py, self.items.iter().map(|&(_, name)| name))?))
    }
}

/// The same text as `part`, which occurs in `whole`, with the lifetime of `whole`.
fn borrowed_from<'a>(whole: &'a str, part: &str) -> &'a str {
    whole.find(part).and_then(|start| whole.get(start..start + part.len())).unwrap_or_default()
}

/// Partition and sort keys of many paths.
#[pyfunction]
pub fn item_keys<'py>(
    py: Python<'py>,
    volume: Volume,
    paths: Strings<'py>,
    count: SuffixCount,
    hash: Hash,
) -> PyResult<KeyLists<'py>> {
    let paths = paths.texts()?;
    py.detach(|| ItemKeys::of(&volume, &paths, count, hash))?.to_lists(py)
}

/// Path of an item.
#[pyfunction]
pub fn decode_key(
    volume: Volume,
    partition: &Bound<'_, PyString>,
    sort: &Bound<'_, PyString>,
) -> PyResult<String> {
    let (partition, sort) = (key_text_of(partition)?, key_text_of(sort)?);
    let mut path = String::with_capacity(partition.len() + sort.len());
    push_child(&mut path, checked_item(volume.parent_of(partition), partition, sort)?, sort);
    Ok(path)
}

/// Paths of many items.
#[pyfunction]
pub fn decode_keys<'py>(
    py: Python<'py>,
    volume: Volume,
    partitions: Strings<'py>,
    sorts: Strings<'py>,
) -> PyResult<Bound<'py, PyList>> {
    if partitions.len() != sorts.len() {
        return Err(PyValueError::new_err("as many partition keys as sort keys are needed"));
    }
    let (partitions, sorts) = (partitions.key_texts()?, sorts.key_texts()?);
    let items = py.detach(|| decoded(&volume, &partitions, &sorts))?;
    let mut path = String::new();
    PyList::new(
        py,
        items.into_iter().map(|(parent, name)| {
            path.clear();
            push_child(&mut path, parent, name);
            PyString::new(py, &path)
        }),
    )
}

/// Directory and name of each item.
fn decoded<'a>(
    volume: &Volume,
    partitions: &[&'a str],
    sorts: &[&'a str],
) -> Result<Vec<(&'a str, &'a str)>, BadItemKey> {
    let mut parents = Recent::for_rows(partitions.len());
    let items = partitions.iter().zip(sorts).map(|(&partition, &sort)| {
        let parent =
            parents.get_or_make(partition, || volume.parent_of(partition)).map(|parent| *parent);
        checked_item(parent, partition, sort).map(|parent| (parent, sort))
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_read_only_as_they_are_written() {
        for good in ["sf0", "sf7", "sf10", "sf65535"] {
            assert!(is_suffix(good), "{good}");
        }
        for bad in [
            "",
            "sf",
            "sf-1",
            "sf+1",
            "sf01",
            "sf00",
            "sf65536",
            "sf99999999999",
            "SF1",
            "sf1 ",
            "sf١",
        ] {
            assert!(!is_suffix(bad), "{bad}");
        }
    }

    #[test]
    fn the_last_hyphen_is_the_cut() {
        let volume = Volume::new("v-sf1").unwrap();
        assert_eq!(volume.parent_of("ks://v-sf1/a-sf1-sf2"), Ok("/a-sf1"));
        assert_eq!(volume.parent_of("ks://v-sf1/-sf0"), Ok("/"));
        for bad in [
            "ks://v-sf1",
            "ks://v-sf1-sf0",
            "ks://v/a-sf1",
            "ks://v-sf1/a",
            "ks://v-sf1/a/-sf1",
            "s3k:volume",
        ] {
            assert!(volume.parent_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn many_at_once_share_partition_keys() {
        let volume = Volume::new("v").unwrap();
        let count = SuffixCount::new(1).unwrap();
        let paths = ["/a/x", "/b/y", "/a/z", "a/w", "/a//v", "/a/u/"];
        let keys = ItemKeys::of(&volume, &paths, count, Hash::Xxh3).unwrap();
        let partitions: Vec<_> = keys.partitions.iter().collect();
        let items: Vec<_> = keys.items.iter().map(|&(row, name)| (partitions[row], name)).collect();
        let (a, b) = ("ks://v/a-sf0", "ks://v/b-sf0");
        assert_eq!(items, [(a, "x"), (b, "y"), (a, "z"), (a, "w"), (a, "v"), (a, "u")]);
        assert_eq!(keys.items[0].0, keys.items[2].0);
    }

    #[test]
    fn the_longest_suffix_decides_the_length() {
        let volume = Volume::new("v").unwrap();
        let parent = format!("/{}", "x".repeat(MAX_PARTITION_BYTES - "ks://v/-sf9".len()));
        assert_eq!(volume.check_length(&parent, 0), Ok(()));
        assert_eq!(volume.check_length(&parent, 9), Ok(()));
        assert_eq!(volume.check_length(&parent, 10), Err(Fault::KeyTooLong));
    }
}
