//! Facts of fsck about committed operations of the log.
//!
//! Source of the format: `oplog/entries.py`. Only operations in exactly the form in which this
//! package writes them are read here, and everything that its reader refuses is refused.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods};

use crate::fact_lines::FactLines;
use crate::json::write::{push_ascii_quoted, push_integer};
use crate::keys::KeyForm;
use crate::operation_lines::{Operation, OperationReader, State};
use crate::suffix::SuffixCount;

/// Adds the fact of a committed operation.
fn add(facts: &mut FactLines, operation: &Operation<'_>, key: &str) {
    let out = facts.buffer();
    out.push_str("[\"committed\",");
    push_ascii_quoted(out, key);
    for text in [operation.id, operation.kind, operation.object] {
        push_raw(out, text);
    }
    push_numbers(out, &[operation.version, operation.time_ms]);
    for side in [&operation.before, &operation.after] {
        out.push(',');
        match side {
            Some(state) => push_state(out, state),
            None => out.push_str("null"),
        }
    }
    out.push(']');
    facts.end_line(operation.object);
}

/// Appends the fields of a state as a row of the shuffle.
fn push_state(out: &mut String, state: &State<'_>) {
    out.push_str("[\"");
    out.push_str(state.path);
    out.push_str(if state.is_dir { "\",true" } else { "\",false" });
    push_raw(out, state.id);
    push_numbers(out, &[state.version, state.ctime, state.mtime_ms, state.size]);
    match state.physical {
        Some(physical) => push_raw(out, physical),
        None => out.push_str(",null"),
    }
    out.push_str(if state.committed { ",true" } else { ",false" });
    for text in [state.etag, state.checksum, state.attributes, state.operation] {
        push_raw(out, text);
    }
    push_numbers(out, &[state.lease_ms]);
    push_raw(out, state.pending);
    if let Some(directory) = state.directory {
        push_raw(out, directory);
    }
    out.push(']');
}

/// Appends a string as it is escaped.
fn push_raw(out: &mut String, text: &str) {
    out.push_str(",\"");
    out.push_str(text);
    out.push('"');
}

fn push_numbers(out: &mut String, numbers: &[i64]) {
    for &number in numbers {
        out.push(',');
        push_integer(out, number);
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
        let reader = OperationReader::new(volume, count);
        let bytes = lines.iter().map(|line| line.len()).sum();
        let mut facts = FactLines::with_capacity(lines.len(), bytes);
        let mut seen = HashSet::with_capacity(lines.len());
        for line in lines {
            let operation = reader.read(line)?;
            if !seen.insert((operation.object, operation.version, operation.id)) {
                return None;
            }
            add(&mut facts, &operation, key);
        }
        Some(facts)
    })
}
