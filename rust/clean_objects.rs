//! The healthy objects of a part of fsck's shuffle, decided without a Python object.
//!
//! An object is clean here only if none of the rules of `integrity/verify_rules.py` finds anything
//! about it. Everything else is left to the rules: the facts of such objects are returned.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods};

use crate::json::read::Cursor;
use crate::physical::object_id;

/// The fields of an entry, as text of JSON.
#[derive(Clone, Copy)]
struct EntryRow<'a> {
    path: &'a str,
    /// Everything in which log and table must agree beside the place: from `is_dir` to
    /// `attributes`, the physical object included.
    compared: &'a [u8],
    id: &'a str,
    size: &'a str,
    /// None for null.
    physical: Option<&'a str>,
    is_dir: bool,
    committed: bool,
    has_intent: bool,
    directory: Option<&'a str>,
}

impl<'a> EntryRow<'a> {
    fn take(cursor: &mut Cursor<'a>) -> Option<Self> {
        let path = after(cursor, b"[")?;
        comma(cursor)?;
        let start = cursor.at();
        let is_dir = cursor.boolean().ok()?;
        let id = after(cursor, b",")?;
        comma(cursor)?;
        cursor.number().ok()?;
        comma(cursor)?;
        cursor.number().ok()?;
        comma(cursor)?;
        cursor.number().ok()?;
        comma(cursor)?;
        let size = cursor.number().ok()?;
        comma(cursor)?;
        let physical = if cursor.null() { None } else { Some(text(cursor)?) };
        comma(cursor)?;
        let committed = cursor.boolean().ok()?;
        after(cursor, b",")?;
        after(cursor, b",")?;
        after(cursor, b",")?;
        let compared = cursor.since(start);
        after(cursor, b",")?;
        comma(cursor)?;
        cursor.number().ok()?;
        let has_intent = !after(cursor, b",")?.is_empty();
        let directory = if cursor.take_text(b",") { Some(text(cursor)?) } else { None };
        cursor.take_text(b"]").then_some(Self {
            path,
            compared,
            id,
            size,
            physical,
            is_dir,
            committed,
            has_intent,
            directory,
        })
    }

    /// Whether the entry is exactly the one that the log has. The path of an entry in a directory
    /// that is known by its id is compared without those of the directories above.
    fn equals(&self, logged: &Self) -> bool {
        let name = |path: &'a str| path.rsplit_once('/').map(|(_, name)| name);
        let same_place = self.directory == logged.directory
            && match self.directory {
                None => self.path == logged.path,
                Some(_) => name(self.path) == name(logged.path),
            };
        same_place && self.compared == logged.compared
    }
}

/// What is known of one object.
#[derive(Default)]
struct Object<'a> {
    entries: usize,
    entry: Option<EntryRow<'a>>,
    /// The highest committed version, with the state after it, None if the object was removed.
    logged: Option<(i64, Option<EntryRow<'a>>)>,
    blobs: usize,
    /// Key and size of the physical object.
    blob: Option<(&'a str, &'a str)>,
    /// Whether the rules have to decide, whatever else is known.
    is_doubtful: bool,
}

impl<'a> Object<'a> {
    fn add_record(&mut self, record: &Record<'a>) {
        self.is_doubtful |= !record.committed;
        match &self.logged {
            Some((version, _)) if *version > record.version => {}
            Some((version, _)) if *version == record.version => self.is_doubtful = true,
            _ => self.logged = Some((record.version, record.after)),
        }
    }

    /// Whether no rule finds anything about the object.
    fn is_clean(&self, is_logged: bool) -> bool {
        if self.is_doubtful || self.logged.is_some() != is_logged {
            return false;
        }
        match (&self.entry, &self.logged) {
            // Removed, and nothing is left of it.
            (None, Some((_, None))) => self.blobs == 0,
            (Some(entry), Some((_, Some(logged)))) => self.is_whole(entry) && entry.equals(logged),
            (Some(entry), None) => self.is_whole(entry),
            _ => false,
        }
    }

    /// Whether this is the only entry of the object, without a write intent, and its data is there
    /// and nothing else.
    fn is_whole(&self, entry: &EntryRow<'a>) -> bool {
        if self.entries != 1 || entry.has_intent {
            return false;
        }
        if entry.is_dir {
            return self.blobs == 0;
        }
        entry.committed
            && self.blobs == 1
            && self.blob.is_some_and(|(key, size)| {
                entry.physical == Some(key)
                    && entry.size == size
                    && !key.contains("://")
                    && !key.starts_with('/')
                    && !key.ends_with('/')
            })
    }
}

/// A record of the log.
struct Record<'a> {
    committed: bool,
    object: &'a str,
    version: i64,
    after: Option<EntryRow<'a>>,
}

impl<'a> Record<'a> {
    fn take(cursor: &mut Cursor<'a>) -> Option<Self> {
        let committed = after(cursor, b"[")? == "committed";
        after(cursor, b",")?; // the key of the log object
        after(cursor, b",")?; // the operation id
        after(cursor, b",")?; // its kind
        let object = after(cursor, b",")?;
        comma(cursor)?;
        let version = cursor.number().ok()?.parse().ok()?;
        comma(cursor)?;
        cursor.number().ok()?;
        comma(cursor)?;
        state(cursor).ok()?;
        comma(cursor)?;
        let after = state(cursor).ok()?;
        if cursor.take_text(b",") {
            cursor.skip(0).ok()?; // the attributes of a deletion
        }
        cursor.take_text(b"]").then_some(Self { committed, object, version, after })
    }
}

/// A text of another form.
struct OtherForm;

/// A state of an entry, or null.
fn state<'a>(cursor: &mut Cursor<'a>) -> Result<Option<EntryRow<'a>>, OtherForm> {
    if cursor.null() { Ok(None) } else { EntryRow::take(cursor).map(Some).ok_or(OtherForm) }
}

fn comma(cursor: &mut Cursor<'_>) -> Option<()> {
    cursor.take_text(b",").then_some(())
}

/// A string, with escapes.
fn text<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    let quoted = cursor.string().ok()?;
    Some(cursor.raw(quoted))
}

fn after<'a>(cursor: &mut Cursor<'a>, sign: &[u8]) -> Option<&'a str> {
    if cursor.take_text(sign) { text(cursor) } else { None }
}

/// Lines of facts with the ids of their objects.
type Lines<'a> = Vec<(Cow<'a, str>, &'a [u8])>;

/// The facts of one part.
#[derive(Default)]
struct Part<'a> {
    objects: HashMap<Cow<'a, str>, Object<'a>>,
    entries: Lines<'a>,
    records: Lines<'a>,
    blobs: Lines<'a>,
}

impl<'a> Part<'a> {
    fn object(&mut self, id: &Cow<'a, str>) -> &mut Object<'a> {
        self.objects.entry(id.clone()).or_default()
    }

    fn add_entry(&mut self, line: &'a [u8]) -> Option<()> {
        let mut cursor = Cursor::new(line).ok()?;
        let entry = EntryRow::take(&mut cursor)?;
        let id = plain_id(entry.id)?;
        let object = self.object(&id);
        object.entries += 1;
        object.entry = Some(entry);
        self.entries.push((id, line));
        cursor.end().ok()
    }

    fn add_record(&mut self, line: &'a [u8]) -> Option<()> {
        let mut cursor = Cursor::new(line).ok()?;
        let record = Record::take(&mut cursor)?;
        let id = plain_id(record.object)?;
        self.object(&id).add_record(&record);
        self.records.push((id, line));
        cursor.end().ok()
    }

    fn add_blob(&mut self, line: &'a [u8], adopted: &HashSet<String>) -> Option<()> {
        let mut cursor = Cursor::new(line).ok()?;
        if !cursor.take_text(b"[") {
            return None;
        }
        let quoted = cursor.string().ok()?;
        comma(&mut cursor)?;
        let size = cursor.number().ok()?;
        let key = cursor.text(quoted).ok()?;
        let id = match &key {
            Cow::Borrowed(key) => Cow::Borrowed(object_id(key).unwrap_or(key)),
            Cow::Owned(key) => Cow::Owned(object_id(key).unwrap_or(key).to_owned()),
        };
        let raw = cursor.raw(quoted);
        let is_adopted = adopted.contains(key.as_ref());
        let object = self.object(&id);
        object.blobs += 1;
        object.blob = Some((raw, size));
        object.is_doubtful |= is_adopted;
        self.blobs.push((id, line));
        Some(())
    }
}

/// The lines whose objects are not clean.
fn left(lines: &Lines<'_>, clean: &HashSet<&str>) -> Vec<u8> {
    let mut left = Vec::new();
    for (id, line) in lines {
        if !clean.contains(id.as_ref()) {
            left.extend_from_slice(line);
            left.push(b'\n');
        }
    }
    left
}

/// An id, unless it has escapes: then two texts of one id need not be equal.
fn plain_id(id: &str) -> Option<Cow<'_, str>> {
    (!id.contains('\\')).then_some(Cow::Borrowed(id))
}

/// The lines in chunks, each of which ends with a whole line.
pub fn lines<'a>(chunks: &[&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
    chunks
        .iter()
        .flat_map(|chunk| chunk.split(|&byte| byte == b'\n'))
        .filter(|line| !line.is_empty())
}

/// Lines of entries, records and physical objects.
type Facts = (Vec<u8>, Vec<u8>, Vec<u8>);

fn undecided(
    chunks: [&[&[u8]]; 3],
    adopted: &HashSet<String>,
    doubtful: &[String],
    is_logged: bool,
) -> Option<Facts> {
    let mut part = Part::default();
    for line in lines(chunks[0]) {
        part.add_entry(line)?;
    }
    for line in lines(chunks[1]) {
        part.add_record(line)?;
    }
    for line in lines(chunks[2]) {
        part.add_blob(line, adopted)?;
    }
    for id in doubtful {
        part.object(&Cow::Owned(id.clone())).is_doubtful = true;
    }
    let clean = part
        .objects
        .iter()
        .filter(|(_, object)| object.is_clean(is_logged))
        .map(|(id, _)| id.as_ref())
        .collect();
    Some((left(&part.entries, &clean), left(&part.records, &clean), left(&part.blobs, &clean)))
}

/// The bytes of chunks.
pub fn slices<'a>(chunks: &'a [Bound<'_, PyBytes>]) -> Vec<&'a [u8]> {
    chunks.iter().map(PyBytesMethods::as_bytes).collect()
}

/// The lines of the entries, records and physical objects of one part, without those of objects
/// that are surely clean; None if a line is not of the expected form.
#[pyfunction]
pub fn undecided_facts<'py>(
    py: Python<'py>,
    entries: Vec<Bound<'py, PyBytes>>,
    records: Vec<Bound<'py, PyBytes>>,
    blobs: Vec<Bound<'py, PyBytes>>,
    adopted: HashSet<String>,
    doubtful: Vec<String>,
    is_logged: bool,
) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (entries, records, blobs) = (slices(&entries), slices(&records), slices(&blobs));
    let left =
        py.detach(|| undecided([&entries, &records, &blobs], &adopted, &doubtful, is_logged));
    left.map(|(entries, records, blobs)| {
        (PyBytes::new(py, &entries), PyBytes::new(py, &records), PyBytes::new(py, &blobs))
    })
}

/// The lines of entries whose parents are not among the directories.
#[pyfunction]
pub fn lonely_children<'py>(
    py: Python<'py>,
    directories: Vec<Bound<'py, PyBytes>>,
    children: Vec<Bound<'py, PyBytes>>,
) -> Bound<'py, PyBytes> {
    let (directories, children) = (slices(&directories), slices(&children));
    let left = py.detach(|| {
        let known: HashSet<&str> = lines(&directories).filter_map(first_text).collect();
        let mut left = Vec::new();
        for line in lines(&children) {
            if !first_text(line).is_some_and(|parent| known.contains(parent)) {
                left.extend_from_slice(line);
                left.push(b'\n');
            }
        }
        left
    });
    PyBytes::new(py, &left)
}

/// The lines of physical objects that no key names, and the number and bytes of the others.
#[pyfunction]
pub fn unnamed_blobs<'py>(
    py: Python<'py>,
    named: Vec<Bound<'py, PyBytes>>,
    blobs: Vec<Bound<'py, PyBytes>>,
) -> (Bound<'py, PyBytes>, usize, i64) {
    let (named, blobs) = (slices(&named), slices(&blobs));
    let (left, count, size) = py.detach(|| {
        let known: HashSet<&str> = lines(&named).filter_map(first_text).collect();
        let mut left = Vec::new();
        let (mut count, mut size) = (0, 0_i64);
        for line in lines(&blobs) {
            match key_and_size(line) {
                Some((key, bytes)) if known.contains(key) => {
                    count += 1;
                    size = size.saturating_add(bytes);
                }
                _ => {
                    left.extend_from_slice(line);
                    left.push(b'\n');
                }
            }
        }
        (left, count, size)
    });
    (PyBytes::new(py, &left), count, size)
}

/// The key, with escapes, and the bytes of a physical object in the fact about it.
pub fn key_and_size(line: &[u8]) -> Option<(&str, i64)> {
    let mut cursor = Cursor::new(line).ok()?;
    let key = after(&mut cursor, b"[")?;
    comma(&mut cursor)?;
    Some((key, cursor.number().ok()?.parse().ok()?))
}

/// The string that is the line, or the first one of its array, with escapes.
fn first_text(line: &[u8]) -> Option<&str> {
    let mut cursor = Cursor::new(line).ok()?;
    cursor.take_text(b"[");
    text(&mut cursor)
}
