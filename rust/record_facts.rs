//! Facts of fsck about committed operations of the log.
//!
//! Source of the format: `oplog/entries.py`. Only operations in exactly the form in which this
//! package writes them are read here, and everything that its reader refuses is refused.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods};

use crate::entries::UNCOMMITTED;
use crate::fact_lines::FactLines;
use crate::json::read::{Cursor, Quoted};
use crate::json::write::{push_ascii_quoted, push_integer};
use crate::keys::{KeyForm, is_id, is_trash};
use crate::operations::MAX_VERSION;
use crate::paths::is_normal;
use crate::suffix::SuffixCount;

/// The state before or after an operation: its version, and its fields as a row of the shuffle.
struct State {
    version: i64,
    row: String,
}

/// A text of another form.
struct OtherForm;

/// Reads the operations of one volume.
struct Reader {
    form: KeyForm,
    count: SuffixCount,
}

/// What identifies an operation in a segment.
type Identity<'a> = (&'a str, i64, &'a str);

impl Reader {
    /// Adds the fact of the operation in a line; None if it is not in the form of this package, or
    /// contradicts itself.
    fn add<'a>(&self, facts: &mut FactLines, line: &'a [u8], key: &str) -> Option<Identity<'a>> {
        if !line.is_ascii() {
            return None;
        }
        let mut cursor = Cursor::new(line).ok()?;
        let id = text_after(&mut cursor, b"{\"id\":")?;
        let kind = text_after(&mut cursor, b",\"kind\":")?;
        let object = text_after(&mut cursor, b",\"object\":")?;
        let version = number_after(&mut cursor, b",\"version\":")?;
        let time_ms = number_after(&mut cursor, b",\"time_ms\":")?;
        let before = self.side(&mut cursor, b",\"before\":", object).ok()?;
        let after = self.side(&mut cursor, b",\"after\":", object).ok()?;
        if !cursor.take_text(b"}") || cursor.end().is_err() {
            return None;
        }
        let fits = match (kind, &before, &after) {
            ("create" | "update", None, Some(after)) => after.version == version,
            ("update" | "rename", Some(before), Some(after)) => {
                after.version == version && before.version < version
            }
            ("delete", Some(before), None) => before.version.checked_add(1) == Some(version),
            _ => false,
        };
        if !fits || !(1..=MAX_VERSION).contains(&version) || !is_id(id) || !is_id(object) {
            return None;
        }
        let out = facts.buffer();
        out.push_str("[\"committed\",");
        push_ascii_quoted(out, key);
        for text in [id, kind, object] {
            out.push_str(",\"");
            out.push_str(text);
            out.push('"');
        }
        for number in [version, time_ms] {
            out.push(',');
            push_integer(out, number);
        }
        for side in [&before, &after] {
            out.push(',');
            out.push_str(side.as_ref().map_or("null", |side| &side.row));
        }
        out.push(']');
        facts.end_line(object);
        Some((object, version, id))
    }

    /// The state with this name, or null.
    fn side(
        &self,
        cursor: &mut Cursor<'_>,
        name: &[u8],
        object: &str,
    ) -> Result<Option<State>, OtherForm> {
        if !cursor.take_text(name) {
            return Err(OtherForm);
        }
        if cursor.null() {
            return Ok(None);
        }
        self.state(cursor, object).map(Some).ok_or(OtherForm)
    }

    fn state(&self, cursor: &mut Cursor<'_>, object: &str) -> Option<State> {
        let mut row = String::with_capacity(512);
        let path = quoted_after(cursor, b"{\"path\":")?;
        let directory =
            if cursor.take_text(b",\"directory\":") { Some(plain(cursor)?) } else { None };
        self.check_place(&cursor.text(path).ok()?, directory)?;
        row.push('[');
        push_raw(&mut row, cursor, path);
        let is_dir = truth_after(cursor, b",\"is_dir\":")?;
        row.push_str(if is_dir { ",true" } else { ",false" });
        if text_after(cursor, b",\"id\":")? != object {
            return None;
        }
        row.push_str(",\"");
        row.push_str(object);
        row.push('"');
        let version = number_after(cursor, b",\"version\":")?;
        let ctime = number_after(cursor, b",\"ctime\":")?;
        let mtime_ms = number_after(cursor, b",\"mtime_ms\":")?;
        let size = number_after(cursor, b",\"size\":")?;
        if !(1..=i64::MAX / 1000).contains(&ctime) || version < 1 || size < 0 {
            return None;
        }
        push_numbers(&mut row, &[version, ctime, mtime_ms, size]);
        if !cursor.take_text(b",\"physical\":") {
            return None;
        }
        let physical = if cursor.null() { None } else { Some(cursor.string().ok()?) };
        row.push(',');
        match physical {
            Some(physical) => push_raw(&mut row, cursor, physical),
            None => row.push_str("null"),
        }
        let physical = physical.map(|physical| cursor.text(physical)).transpose().ok()?;
        let committed = truth_after(cursor, b",\"committed\":")?;
        if committed && (is_dir || physical.is_none_or(|physical| physical == UNCOMMITTED)) {
            return None;
        }
        row.push_str(if committed { ",true" } else { ",false" });
        for name in [&b",\"etag\":"[..], b",\"checksum\":"] {
            row.push(',');
            push_text_after(&mut row, cursor, name)?;
        }
        row.push(',');
        if cursor.take_text(b",\"attributes\":") {
            push_text(&mut row, cursor)?;
        } else {
            row.push_str("\"\"");
        }
        row.push(',');
        push_text_after(&mut row, cursor, b",\"operation\":")?;
        push_numbers(&mut row, &[number_after(cursor, b",\"lease_ms\":")?]);
        row.push(',');
        push_text_after(&mut row, cursor, b",\"pending\":")?;
        if let Some(directory) = directory {
            row.push_str(",\"");
            row.push_str(directory);
            row.push('"');
        }
        row.push(']');
        cursor.take_text(b"}").then_some(State { version, row })
    }

    /// None unless an item of the volume can have the path and the directory key.
    fn check_place(&self, path: &str, directory: Option<&str>) -> Option<()> {
        if path == "/" || !is_normal(path) {
            return None;
        }
        match (&self.form, directory) {
            (KeyForm::Path(_), None) => {
                let (parent, _) = self.form.directory_and_name(path).ok()?;
                self.form.check_length(parent, self.count.last()).ok()
            }
            // The names of a normalised path fit into keys.
            (KeyForm::Tree, Some(directory)) => {
                (is_id(directory) && !is_trash(directory) && is_short(path)).then_some(())
            }
            _ => None,
        }
    }
}

/// Whether a path is so short that it could be a key.
fn is_short(path: &str) -> bool {
    path.len() <= crate::limits::MAX_PARTITION_BYTES
}

fn quoted_after(cursor: &mut Cursor<'_>, name: &[u8]) -> Option<Quoted> {
    if cursor.take_text(name) { cursor.string().ok() } else { None }
}

/// A string without escapes.
fn plain<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    let quoted = cursor.string().ok()?;
    (!quoted.escaped).then(|| cursor.raw(quoted))
}

fn text_after<'a>(cursor: &mut Cursor<'a>, name: &[u8]) -> Option<&'a str> {
    if cursor.take_text(name) { plain(cursor) } else { None }
}

fn number_after(cursor: &mut Cursor<'_>, name: &[u8]) -> Option<i64> {
    if cursor.take_text(name) { cursor.number().ok()?.parse().ok() } else { None }
}

fn truth_after(cursor: &mut Cursor<'_>, name: &[u8]) -> Option<bool> {
    if cursor.take_text(name) { cursor.boolean().ok() } else { None }
}

/// Appends a string as it is escaped; None for one that is no text.
fn push_text_after(row: &mut String, cursor: &mut Cursor<'_>, name: &[u8]) -> Option<()> {
    if cursor.take_text(name) { push_text(row, cursor) } else { None }
}

fn push_text(row: &mut String, cursor: &mut Cursor<'_>) -> Option<()> {
    let quoted = cursor.string().ok()?;
    if quoted.escaped {
        cursor.text(quoted).ok()?;
    }
    push_raw(row, cursor, quoted);
    Some(())
}

fn push_raw(row: &mut String, cursor: &Cursor<'_>, quoted: Quoted) {
    row.push('"');
    row.push_str(cursor.raw(quoted));
    row.push('"');
}

fn push_numbers(row: &mut String, numbers: &[i64]) {
    for &number in numbers {
        row.push(',');
        push_integer(row, number);
    }
}

/// The facts of committed operations in lines of one log object, or None if a line is left to the
/// reader of the log. `key`: that of the log object in the facts.
#[pyfunction]
pub fn record_facts(
    py: Python<'_>,
    lines: Vec<Bound<'_, PyBytes>>,
    key: &str,
    volume: KeyForm,
    count: SuffixCount,
) -> Option<FactLines> {
    let lines: Vec<&[u8]> = lines.iter().map(PyBytesMethods::as_bytes).collect();
    py.detach(|| {
        let reader = Reader { form: volume, count };
        let bytes = lines.iter().map(|line| line.len()).sum();
        let mut facts = FactLines::with_capacity(lines.len(), bytes);
        let mut seen = HashSet::with_capacity(lines.len());
        for line in lines {
            if !seen.insert(reader.add(&mut facts, line, key)?) {
                return None;
            }
        }
        Some(facts)
    })
}
