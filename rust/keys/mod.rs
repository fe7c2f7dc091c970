//! Table keys: the partition of a directory and a suffix of its children, and the name.
//!
//! An entry key is what the keys of an item are made of, as text: in layout `path` the path, in
//! layout `tree` the id of the directory and the name. A directory key is the part of it that
//! stands for the directory. A path begins with `/`, an entry key of layout `tree` never does.

mod path;
mod tree;

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::columns::{Strings, TextColumn};
use crate::errors::{BadItemKey, Fault, InvalidPath, key_text_of, text_of};
use crate::paths::{is_name, normal_directory, parent_and_name, plain_name, push_child};
use crate::recent::Recent;
use crate::suffix::{Hash, MAX_SUFFIX_COUNT, SuffixCount, SuffixIndex};

pub use path::Volume;
pub use tree::{is_id, is_reserved, is_trash};

const SUFFIX: &str = "-sf";

/// The form of a volume's keys.
pub enum KeyForm {
    /// Layout `path`, of a volume with this name.
    Path(Volume),
    /// Layout `tree`.
    Tree,
}

impl KeyForm {
    /// The directory key that an argument stands for.
    fn directory<'a>(&self, given: &'a str) -> Result<Cow<'a, str>, InvalidPath> {
        match self {
            Self::Path(_) => path::absolute(given),
            Self::Tree => tree::check_directory(given)
                .map(|()| Cow::Borrowed(given))
                .map_err(|fault| InvalidPath::new(fault, given)),
        }
    }

    /// The entry key that an argument stands for, if it is valid. In layout `tree` it is checked by
    /// `directory_and_name`.
    #[inline]
    fn entry_key<'a>(&self, given: &'a str) -> Result<Cow<'a, str>, InvalidPath> {
        match self {
            Self::Path(_) => path::absolute(given),
            Self::Tree => Ok(Cow::Borrowed(given)),
        }
    }

    /// Directory key and name of an entry key.
    #[inline]
    pub fn directory_and_name<'a>(&self, entry_key: &'a str) -> Result<(&'a str, &'a str), Fault> {
        match self {
            Self::Path(_) => parent_and_name(entry_key),
            Self::Tree => tree::directory_and_name(entry_key),
        }
    }

    /// Partition and sort key of the entry key that an argument stands for.
    #[inline]
    pub fn item_key(
        &self,
        given: &str,
        count: SuffixCount,
        hash: Hash,
    ) -> Result<(String, String), InvalidPath> {
        let refuse = |fault| InvalidPath::new(fault, given);
        let entry_key = self.entry_key(given)?;
        let (directory, name) = self.directory_and_name(&entry_key).map_err(refuse)?;
        self.check_length(directory, count.last()).map_err(refuse)?;
        let mut partition = String::with_capacity(given.len() + self.directory_start() + 16);
        self.push_partition(&mut partition, directory, hash.index(name, count));
        Ok((partition, name.to_owned()))
    }

    /// As `directory_and_name` for an argument that ends in a plain name. The directory is not
    /// checked in layout `path`.
    fn plain_name<'a>(&self, given: &'a str) -> Option<(&'a str, &'a str)> {
        match self {
            Self::Path(_) if given.starts_with('/') => plain_name(given),
            Self::Path(_) => None,
            Self::Tree => tree::directory_and_name(given).ok(),
        }
    }

    /// The directory key that `plain_name` split off.
    fn plain_directory<'a>(&self, directory: &'a str) -> Result<Cow<'a, str>, Fault> {
        match self {
            Self::Path(_) => normal_directory(directory),
            Self::Tree => Ok(Cow::Borrowed(directory)),
        }
    }

    /// Refuses a directory key whose partition key with suffix `last` is too long.
    #[inline]
    pub fn check_length(&self, directory: &str, last: u32) -> Result<(), Fault> {
        match self {
            Self::Path(volume) => volume.check_length(directory, last),
            Self::Tree => Ok(()),
        }
    }

    /// Appends the partition key of a suffix of a directory.
    pub fn push_partition(&self, out: &mut String, directory: &str, index: u32) {
        match self {
            Self::Path(volume) => volume.push_authority(out),
            Self::Tree => out.push_str(tree::PREFIX),
        }
        out.push_str(directory);
        out.push_str(SUFFIX);
        push_number(out, index);
    }

    /// The position of the directory key in a partition key.
    pub fn directory_start(&self) -> usize {
        match self {
            Self::Path(volume) => volume.parent_start(),
            Self::Tree => tree::PREFIX.len(),
        }
    }

    /// The directory key in a partition key, or the error of an invalid one.
    #[inline]
    pub fn directory_of<'a>(&self, partition: &'a str) -> Result<&'a str, &'static str> {
        match self {
            Self::Path(volume) => volume.parent_of(partition),
            Self::Tree => tree::directory_of(partition),
        }
    }
}

/// A volume's name, or None for layout `tree`.
impl<'a, 'py> FromPyObject<'a, 'py> for KeyForm {
    type Error = PyErr;

    fn extract(argument: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if argument.is_none() {
            return Ok(Self::Tree);
        }
        Ok(Self::Path(Volume::new(text_of(&argument.cast::<PyString>()?.to_owned())?)?))
    }
}

/// Whether a partition key is that of an entry, of either layout. Records of the volume have
/// others.
pub fn is_entry_partition(partition: &[u8]) -> bool {
    [path::SCHEME, tree::PREFIX].iter().any(|prefix| partition.starts_with(prefix.as_bytes()))
}

/// What precedes the suffix of a partition key.
#[inline]
fn without_suffix(partition: &str) -> Result<&str, &'static str> {
    let (rest, suffix) = partition.rsplit_once('-').ok_or("the partition key has no suffix")?;
    if is_suffix(suffix) {
        Ok(rest)
    } else {
        Err("the partition key does not end in '-sf<number>'")
    }
}

/// The directory key of the item `sort`, whose partition key was read as `directory`.
pub fn checked_item<'a>(
    directory: Result<&'a str, &'static str>,
    partition: &str,
    sort: &str,
) -> Result<&'a str, BadItemKey> {
    let directory = directory.and_then(|directory| {
        if is_name(sort) { Ok(directory) } else { Err("the sort key is no name") }
    });
    directory.map_err(|reason| BadItemKey {
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
    volume: KeyForm,
    parent: &Bound<'_, PyString>,
    index: SuffixIndex,
) -> PyResult<String> {
    let given = text_of(parent)?;
    let directory = volume.directory(given)?;
    volume.check_length(&directory, index.0).map_err(|fault| InvalidPath::new(fault, given))?;
    let mut key = String::new();
    volume.push_partition(&mut key, &directory, index.0);
    Ok(key)
}

/// Partition keys of all suffixes of a directory, in order.
#[pyfunction]
pub fn partition_keys<'py>(
    volume: KeyForm,
    parent: &Bound<'py, PyString>,
    count: SuffixCount,
) -> PyResult<Bound<'py, PyList>> {
    let py = parent.py();
    let given = text_of(parent)?;
    let directory = volume.directory(given)?;
    volume
        .check_length(&directory, count.last())
        .map_err(|fault| InvalidPath::new(fault, given))?;
    let mut column = TextColumn::default();
    for index in 0..count.get() {
        volume.push_partition(column.buffer(), &directory, index);
        column.end_row();
    }
    column.to_list(py)
}

/// Partition and sort key of an entry key.
#[pyfunction]
pub fn item_key(
    volume: KeyForm,
    path: &Bound<'_, PyString>,
    count: SuffixCount,
    hash: Hash,
) -> PyResult<(String, String)> {
    Ok(volume.item_key(text_of(path)?, count, hash)?)
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

/// A directory with a valid key, and the rows of the partition keys last written for it.
struct Directory<'a> {
    key: Cow<'a, str>,
    rows: Vec<Option<(u32, usize)>>,
}

impl<'a> Directory<'a> {
    /// The directory that `KeyForm::plain_name` split off.
    fn new(form: &KeyForm, directory: &'a str, count: SuffixCount) -> Result<Self, Fault> {
        let key = form.plain_directory(directory)?;
        form.check_length(&key, count.last())?;
        Ok(Self { key, rows: vec![None; SHARED_SUFFIXES.min(count.get() as usize)] })
    }

    /// The row of the partition key of suffix `index`.
    fn row(&mut self, partitions: &mut TextColumn, form: &KeyForm, index: u32) -> usize {
        let place = self.rows.get_mut(index as usize % SHARED_SUFFIXES);
        match place {
            Some(&mut Some((held, row))) if held == index => row,
            place => {
                form.push_partition(partitions.buffer(), &self.key, index);
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
        form: &KeyForm,
        entry_keys: &[&'a str],
        count: SuffixCount,
        hash: Hash,
    ) -> Result<Self, InvalidPath> {
        let mut keys =
            Self { partitions: TextColumn::default(), items: Vec::with_capacity(entry_keys.len()) };
        let mut directories = Recent::for_rows(entry_keys.len());
        for &given in entry_keys {
            let refuse = |fault| InvalidPath::new(fault, given);
            if let Some((directory, name)) = form.plain_name(given) {
                let directory =
                    directories.get_or_make(directory, || Directory::new(form, directory, count));
                let row = directory.map_err(refuse)?.row(
                    &mut keys.partitions,
                    form,
                    hash.index(name, count),
                );
                keys.items.push((row, name));
            } else {
                let entry_key = form.entry_key(given)?;
                let (directory, name) = form.directory_and_name(&entry_key).map_err(refuse)?;
                let mut directory = Directory::new(form, directory, count).map_err(refuse)?;
                let row = directory.row(&mut keys.partitions, form, hash.index(name, count));
                keys.items.push((row, borrowed_from(given, name)));
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

/// Partition and sort keys of many entry keys.
#[pyfunction]
pub fn item_keys<'py>(
    py: Python<'py>,
    volume: KeyForm,
    paths: Strings<'py>,
    count: SuffixCount,
    hash: Hash,
) -> PyResult<KeyLists<'py>> {
    let paths = paths.texts()?;
    py.detach(|| ItemKeys::of(&volume, &paths, count, hash))?.to_lists(py)
}

/// Entry key of an item.
#[pyfunction]
pub fn decode_key(
    volume: KeyForm,
    partition: &Bound<'_, PyString>,
    sort: &Bound<'_, PyString>,
) -> PyResult<String> {
    let (partition, sort) = (key_text_of(partition)?, key_text_of(sort)?);
    let mut entry_key = String::with_capacity(partition.len() + sort.len());
    let directory = checked_item(volume.directory_of(partition), partition, sort)?;
    push_child(&mut entry_key, directory, sort);
    Ok(entry_key)
}

/// Entry keys of many items.
#[pyfunction]
pub fn decode_keys<'py>(
    py: Python<'py>,
    volume: KeyForm,
    partitions: Strings<'py>,
    sorts: Strings<'py>,
) -> PyResult<Bound<'py, PyList>> {
    if partitions.len() != sorts.len() {
        return Err(PyValueError::new_err("as many partition keys as sort keys are needed"));
    }
    let (partitions, sorts) = (partitions.key_texts()?, sorts.key_texts()?);
    let items = py.detach(|| decoded(&volume, &partitions, &sorts))?;
    let mut entry_key = String::new();
    PyList::new(
        py,
        items.into_iter().map(|(directory, name)| {
            entry_key.clear();
            push_child(&mut entry_key, directory, name);
            PyString::new(py, &entry_key)
        }),
    )
}

/// Directory key and name of each item.
fn decoded<'a>(
    form: &KeyForm,
    partitions: &[&'a str],
    sorts: &[&'a str],
) -> Result<Vec<(&'a str, &'a str)>, BadItemKey> {
    let mut directories = Recent::for_rows(partitions.len());
    let items = partitions.iter().zip(sorts).map(|(&partition, &sort)| {
        let directory = directories
            .get_or_make(partition, || form.directory_of(partition))
            .map(|directory| *directory);
        checked_item(directory, partition, sort).map(|directory| (directory, sort))
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
    fn many_at_once_share_partition_keys() {
        let of = |form: KeyForm, texts: &[&str]| -> Vec<(usize, String, String)> {
            let count = SuffixCount::new(1).unwrap();
            let keys = ItemKeys::of(&form, texts, count, Hash::Xxh3).unwrap();
            let partitions: Vec<_> = keys.partitions.iter().collect();
            let key =
                |&(row, name): &(usize, &str)| (row, partitions[row].to_owned(), name.to_owned());
            keys.items.iter().map(key).collect()
        };
        let key = |row, partition: &str, name: &str| (row, partition.to_owned(), name.to_owned());
        let form = KeyForm::Path(Volume::new("v").unwrap());
        let (a, b) = ("ks://v/a-sf0", "ks://v/b-sf0");
        assert_eq!(
            of(form, &["/a/x", "/b/y", "/a/z", "/a//v", "/a/u/"]),
            [key(0, a, "x"), key(1, b, "y"), key(0, a, "z"), key(2, a, "v"), key(3, a, "u")]
        );
        let (a, b) = ("s3k:tree/a-sf0", "s3k:tree/b-sf0");
        assert_eq!(
            of(KeyForm::Tree, &["a/x", "b/y", "a/z"]),
            [key(0, a, "x"), key(1, b, "y"), key(0, a, "z")]
        );
    }

    #[test]
    fn no_text_is_a_key_of_both_layouts() {
        let count = SuffixCount::new(3).unwrap();
        let forms = [KeyForm::Path(Volume::new("v").unwrap()), KeyForm::Tree];
        for (text, faults) in [
            ("/a/b", [None, Some(Fault::Path)]),
            ("a/b", [Some(Fault::Relative), None]),
            ("/a", [None, Some(Fault::Path)]),
            ("a", [Some(Fault::Relative), Some(Fault::EntryKey)]),
        ] {
            for (form, fault) in forms.iter().zip(faults) {
                let found = ItemKeys::of(form, &[text], count, Hash::Xxh3).map(drop);
                assert_eq!(found.err().map(|refused| refused.fault), fault, "{text}");
            }
        }
        for (directory, faults) in [
            ("/", [None, Some(Fault::Path)]),
            ("/a", [None, Some(Fault::Path)]),
            ("a", [Some(Fault::Relative), None]),
            ("a/b", [Some(Fault::Relative), Some(Fault::DirectoryId)]),
        ] {
            for (form, fault) in forms.iter().zip(faults) {
                let found = form.directory(directory).map(drop);
                assert_eq!(found.err().map(|refused| refused.fault), fault, "{directory}");
            }
        }
    }

    #[test]
    fn entries_of_both_layouts_are_told_from_records() {
        for partition in ["ks://v/a-sf0", "ks://", "s3k:tree/a-sf0", "s3k:tree/"] {
            assert!(is_entry_partition(partition.as_bytes()), "{partition}");
        }
        for partition in ["", "s3k:volume", "s3k:tree", "s3k:root", "s3k:dir/a", "KS://v/a-sf0"] {
            assert!(!is_entry_partition(partition.as_bytes()), "{partition}");
        }
    }

    #[test]
    fn a_directory_key_is_where_it_was_written() {
        let forms = [KeyForm::Path(Volume::new("v-sf1").unwrap()), KeyForm::Tree];
        for (form, directory) in forms.iter().zip(["/a-sf1", "a-sf1"]) {
            let mut partition = String::new();
            form.push_partition(&mut partition, directory, 65_535);
            assert_eq!(form.directory_of(&partition), Ok(directory));
            assert!(partition[form.directory_start()..].starts_with(directory));
        }
    }
}
