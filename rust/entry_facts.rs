//! Facts of fsck about the items of a page of the table.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;

use crate::entries::{EntryColumns, EntryView};
use crate::fact_lines::FactLines;
use crate::items::Attribute;
use crate::json::write::{push_ascii_quoted, push_integer};
use crate::keys::{KeyForm, is_id, is_trash};
use crate::physical::{is_physical_key, object_id};
use crate::rows::Rows;
use crate::suffix::{Hash, SuffixCount};

/// What the keys of a volume are made of.
struct Keys {
    form: KeyForm,
    count: SuffixCount,
    hash: Hash,
}

impl Keys {
    /// Whether the entry has its own key, and fsck needs to know no more of the item than the entry
    /// itself: it has no write intent, no adopted object, and is not in the trash.
    fn is_plain(&self, entry: &EntryView<'_>) -> bool {
        let partition = entry.partition().text;
        let suffix = partition.rsplit_once("-sf").and_then(|(_, digits)| digits.parse().ok());
        suffix == Some(self.hash.index(entry.name().text, self.count))
            && self.form.check_length(entry.directory_key(), self.count.last()).is_ok()
            && !entry.has_intent()
            && is_id(entry.text(Attribute::Id).text)
            && !entry.physical().is_some_and(|physical| physical.text.contains("://"))
            && !entry.directory_id().is_some_and(is_trash)
    }
}

/// The facts about the plain entries of a page.
#[pyclass(frozen, get_all, module = "s3k_async._native")]
pub struct EntryFacts {
    /// The entries, by object id.
    entries: Py<FactLines>,
    /// The directories among them, by directory key.
    directories: Py<FactLines>,
    /// The entries that need a parent, by its directory key.
    children: Py<FactLines>,
    /// Committed files, directories, reservations, and the bytes of the files.
    totals: (usize, usize, usize, i64),
    /// Indexes of the other items.
    others: Vec<usize>,
}

#[derive(Default)]
struct Found {
    entries: FactLines,
    directories: FactLines,
    children: FactLines,
    totals: (usize, usize, usize, i64),
}

impl Found {
    fn add(&mut self, entry: &EntryView<'_>) {
        let id = entry.text(Attribute::Id).text;
        push_row(self.entries.buffer(), entry);
        self.entries.end_line(id);
        if entry.is_dir() {
            self.totals.1 += 1;
            self.add_directory(entry);
        } else if entry.committed() {
            self.totals.0 += 1;
            self.totals.3 = self.totals.3.saturating_add(entry.size());
        } else {
            self.totals.2 += 1;
        }
    }

    fn add_directory(&mut self, entry: &EntryView<'_>) {
        let mut entry_key = String::new();
        entry.push_path(&mut entry_key);
        let out = self.directories.buffer();
        if entry.directory_id().is_some() {
            let id = entry.text(Attribute::Id).text;
            out.push('[');
            push_ascii_quoted(out, id);
            out.push(',');
            push_ascii_quoted(out, &entry_key);
            out.push(']');
            self.directories.end_line(id);
        } else {
            push_ascii_quoted(out, &entry_key);
            self.directories.end_line(&entry_key);
        }
    }

    fn add_child(&mut self, entry: &EntryView<'_>) {
        let parent = entry.directory_key();
        let mut path = String::new();
        entry.push_path(&mut path);
        let out = self.children.buffer();
        out.push('[');
        push_ascii_quoted(out, parent);
        out.push(',');
        push_ascii_quoted(out, &path);
        out.push(',');
        push_ascii_quoted(out, entry.text(Attribute::Id).text);
        out.push(',');
        push_integer(out, entry.mtime_ms());
        out.push(']');
        self.children.end_line(parent);
    }
}

/// Appends an entry without a write intent, as it was read by a scan.
fn push_row(out: &mut String, entry: &EntryView<'_>) {
    let mut path = String::with_capacity(128);
    entry.push_path(&mut path);
    out.push('[');
    push_ascii_quoted(out, &path);
    out.push_str(if entry.is_dir() { ",true," } else { ",false," });
    push_ascii_quoted(out, entry.text(Attribute::Id).text);
    for number in [entry.version(), entry.ctime(), entry.mtime_ms(), entry.size()] {
        out.push(',');
        push_integer(out, number);
    }
    out.push(',');
    match entry.physical() {
        Some(physical) => push_ascii_quoted(out, physical.text),
        None => out.push_str("null"),
    }
    out.push_str(if entry.committed() { ",true" } else { ",false" });
    for attribute in
        [Attribute::Etag, Attribute::Checksum, Attribute::Attributes, Attribute::Operation]
    {
        out.push(',');
        push_ascii_quoted(out, entry.text(attribute).text);
    }
    out.push(',');
    push_integer(out, entry.lease_ms());
    out.push_str(",\"\"");
    if let Some(directory) = entry.directory_id() {
        out.push(',');
        push_ascii_quoted(out, directory);
    }
    out.push(']');
}

/// The facts about the plain entries among items. `roots`: directory keys that need no directory.
/// Without `every_child` only the first child of each directory, by path, is one that needs it.
#[pyfunction]
pub fn entry_facts(
    py: Python<'_>,
    items: &Bound<'_, Rows>,
    volume: KeyForm,
    count: SuffixCount,
    hash: Hash,
    roots: HashSet<String>,
    every_child: bool,
) -> PyResult<EntryFacts> {
    let rows = items.get();
    let (found, others) = py.detach(|| {
        let keys = Keys { form: volume, count, hash };
        let (entries, others) =
            EntryColumns::read_some(rows.items(), rows.places(), &keys.form, |entry| {
                keys.is_plain(entry)
            });
        let mut found = Found::default();
        let every = || (0..entries.len()).filter_map(|row| entries.get(row));
        for entry in every() {
            found.add(&entry);
        }
        let below = every().filter(|entry| !roots.contains(entry.directory_key()));
        let children = if every_child { below.collect() } else { first_children(below) };
        for entry in &children {
            found.add_child(entry);
        }
        (found, others)
    });
    Ok(EntryFacts {
        entries: Py::new(py, found.entries)?,
        directories: Py::new(py, found.directories)?,
        children: Py::new(py, found.children)?,
        totals: found.totals,
        others,
    })
}

/// The data keys that the ordinary committed files and directories among items reference, and the
/// indexes of the other items.
#[pyfunction]
pub fn named_facts(
    py: Python<'_>,
    items: &Bound<'_, Rows>,
    volume: KeyForm,
    count: SuffixCount,
    hash: Hash,
) -> (FactLines, Vec<usize>) {
    let rows = items.get();
    py.detach(|| {
        let keys = Keys { form: volume, count, hash };
        let (entries, others) =
            EntryColumns::read_some(rows.items(), rows.places(), &keys.form, |entry| {
                let is_clear = match entry.physical() {
                    Some(physical) => entry.committed() && is_physical_key(physical.text),
                    None => !entry.has(Attribute::Physical),
                };
                is_clear && keys.is_plain(entry) && !entry.has(Attribute::Pending)
            });
        let mut named = FactLines::with_capacity(entries.len(), entries.len() * 80);
        for row in 0..entries.len() {
            if let Some(key) = entries.get(row).and_then(|entry| entry.physical()) {
                push_ascii_quoted(named.buffer(), key.text);
                named.end_line(object_id(key.text).unwrap_or(key.text));
            }
        }
        (named, others)
    })
}

/// The first entry of each directory, by path.
fn first_children<'a>(entries: impl Iterator<Item = EntryView<'a>>) -> Vec<EntryView<'a>> {
    let mut first: HashMap<&str, EntryView<'a>> = HashMap::new();
    for entry in entries {
        first
            .entry(entry.directory_key())
            .and_modify(|known| {
                if entry.name().text < known.name().text {
                    *known = entry;
                }
            })
            .or_insert(entry);
    }
    first.into_values().collect()
}
