//! Objects that `fsck restore` restores as the log has them, decided without a Python object.
//!
//! An object is decided here only if the rules of `integrity/restore_rules.py` decide it as
//! "committed": all its records are committed, one has the highest version, and the state after it
//! is complete. Everything else is left to the rules.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods, PyString};

use crate::errors::text_of;
use crate::keys::KeyForm;
use crate::operation_lines::{OperationReader, State};
use crate::paths::{parent_and_name, push_child};
use crate::physical::object_id;
use crate::suffix::SuffixCount;

/// The beginning of the physical name of a file with extents, and of a version id in the checksum.
const SPECIAL_NAME: &str = "extents:";
const SPECIAL_CHECKSUM: &str = "version:";

/// A row of the external sort.
struct Row<'a> {
    object: &'a str,
    state: &'a str,
    line: &'a [u8],
}

/// What decides objects.
struct Rules {
    reader: OperationReader,
    /// The bytes of physical objects, by key.
    sizes: HashMap<String, i64>,
    /// The ids of objects in the table.
    present: HashSet<String>,
    /// The path at and below which entries are restored.
    within: String,
}

/// An object that the rules decide.
struct Undecided;

/// An object that is restored as the log has it.
struct Claim<'a> {
    state: State<'a>,
    entry_key: String,
    directory_key: String,
    /// In layout `path`.
    depth: Option<usize>,
}

impl<'a> Claim<'a> {
    fn new(state: State<'a>) -> Option<Self> {
        let (parent, name) = parent_and_name(&state.place).ok()?;
        let directory_key = state.directory.unwrap_or(parent).to_owned();
        let depth = state.directory.is_none().then(|| state.place.matches('/').count());
        let mut entry_key = String::with_capacity(directory_key.len() + 1 + name.len());
        push_child(&mut entry_key, &directory_key, name);
        Some(Self { state, entry_key, directory_key, depth })
    }

    fn to_row<'py>(&self, py: Python<'py>) -> ClaimRow<'py> {
        let text = |text: &str| PyString::new(py, text);
        let state = &self.state;
        (
            text(state.id),
            text(&self.entry_key),
            text(&self.directory_key),
            self.depth,
            state.is_dir,
            (!state.is_dir).then_some(state.size),
            state.ctime,
            text(state.text),
            state.version,
        )
    }
}

impl Rules {
    /// The claim of an object, None if it is not in the scope of the restore.
    fn decide<'a>(&self, rows: &[Row<'a>]) -> Result<Option<Claim<'a>>, Undecided> {
        let state = self.committed(rows).ok_or(Undecided)?;
        if !self.is_within(&state.place) {
            return Ok(None);
        }
        if self.present.contains(state.id) {
            return Err(Undecided);
        }
        Claim::new(state).map(Some).ok_or(Undecided)
    }

    /// The state after the operation with the highest version, if it certainly is the last one and
    /// complete. No earlier state has a higher version, which the reader refuses.
    fn committed<'a>(&self, rows: &[Row<'a>]) -> Option<State<'a>> {
        let mut last = None;
        let mut is_unique = true;
        for row in rows {
            let operation = self.reader.read(row.line)?;
            if row.state != "committed" || operation.object != row.object {
                return None;
            }
            match &last {
                Some((version, _)) if *version > operation.version => {}
                Some((version, _)) if *version == operation.version => is_unique = false,
                _ => {
                    is_unique = true;
                    last = Some((operation.version, operation.after));
                }
            }
        }
        let (_, after) = last.filter(|_| is_unique)?;
        after.filter(|state| self.is_plain(state))
    }

    /// Whether the state is that of a directory, or of a file whose bytes are one physical object
    /// of its own, without anything that the rules or the plan regard.
    fn is_plain(&self, state: &State<'_>) -> bool {
        if !state.pending.is_empty() || !state.attributes.is_empty() {
            return false;
        }
        match state.physical {
            None => state.is_dir && !state.committed,
            Some(key) => {
                !state.is_dir
                    && state.committed
                    && !state.checksum.starts_with(SPECIAL_CHECKSUM)
                    && is_own(key, state.id)
                    && self.sizes.get(key) == Some(&state.size)
            }
        }
    }

    fn is_within(&self, path: &str) -> bool {
        self.within == "/"
            || path
                .strip_prefix(&self.within)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Whether a physical name is the key of an object of the volume that belongs to this file alone. A
/// name with escapes is left to the rules.
fn is_own(key: &str, object: &str) -> bool {
    !key.contains("://")
        && !key.contains('\\')
        && !key.starts_with(SPECIAL_NAME)
        && object_id(key) == Some(object)
}

/// A claim: object id, entry key, directory key, depth if it is known, whether it is a directory,
/// bytes of a file, ctime, entry, and version.
type ClaimRow<'py> = (
    Bound<'py, PyString>,
    Bound<'py, PyString>,
    Bound<'py, PyString>,
    Option<usize>,
    bool,
    Option<i64>,
    i64,
    Bound<'py, PyString>,
    i64,
);

/// Claims, and the first index and that after the last of the records of other objects.
type Decided<'py> = (Vec<ClaimRow<'py>>, Vec<(usize, usize)>);

/// The records of objects: object id, state, key and line.
type Records<'py> =
    Vec<(Bound<'py, PyString>, Bound<'py, PyString>, Bound<'py, PyAny>, Bound<'py, PyBytes>)>;

/// The claims of the objects that are certainly restored as the log has them, and the places of the
/// records of each object that is left to the rules. The records of one object are adjacent.
#[pyfunction]
pub fn committed_claims<'py>(
    py: Python<'py>,
    records: Records<'py>,
    sizes: HashMap<String, i64>,
    present: HashSet<String>,
    within: String,
    volume: KeyForm,
    count: SuffixCount,
) -> PyResult<Decided<'py>> {
    let mut rows = Vec::with_capacity(records.len());
    for (object, state, _, line) in &records {
        rows.push(Row { object: text_of(object)?, state: text_of(state)?, line: line.as_bytes() });
    }
    let rules = Rules { reader: OperationReader::new(volume, count), sizes, present, within };
    let (committed, undecided) = py.detach(|| {
        let (mut committed, mut undecided) = (Vec::new(), Vec::new());
        let mut start = 0;
        for object in rows.chunk_by(|one, next| one.object == next.object) {
            let end = start + object.len();
            match rules.decide(object) {
                Ok(claim) => committed.extend(claim),
                Err(Undecided) => undecided.push((start, end)),
            }
            start = end;
        }
        (committed, undecided)
    });
    Ok((committed.iter().map(|claim| claim.to_row(py)).collect(), undecided))
}
