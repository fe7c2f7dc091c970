//! Objects that `fsck restore` restores as the log has them, decided without a Python object.
//!
//! An object is decided here only if the rules of `integrity/restore_rules.py` decide it as
//! "committed": all its records are committed, one has the highest version, and the state after it
//! is complete. Everything else is left to the rules.

use std::collections::{BTreeMap, HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods, PyList, PyString};

use crate::clean_objects::{key_and_size, lines, slices};
use crate::columns::TextColumn;
use crate::errors::text_of;
use crate::keys::KeyForm;
use crate::operation_lines::{Operation, OperationReader, State, object_in_fact};
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

impl<'a> Row<'a> {
    /// The operation, if it is committed.
    fn operation(&self, reader: &OperationReader) -> Option<Operation<'a>> {
        let operation = if self.state == "committed" { reader.read(self.line) } else { None };
        operation.filter(|operation| operation.object == self.object)
    }
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
    /// The state in the form of the log.
    entry: String,
}

impl<'a> Claim<'a> {
    fn new(state: State<'a>) -> Option<Self> {
        let (parent, name) = parent_and_name(&state.place).ok()?;
        let directory_key = state.directory.unwrap_or(parent).to_owned();
        let depth = state.directory.is_none().then(|| state.place.matches('/').count());
        let mut entry_key = String::with_capacity(directory_key.len() + 1 + name.len());
        push_child(&mut entry_key, &directory_key, name);
        let mut entry = String::with_capacity(640);
        state.push_document(&mut entry);
        Some(Self { state, entry_key, directory_key, depth, entry })
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
            text(&self.entry),
            state.version,
        )
    }
}

impl Rules {
    /// The claim of an object with these operations, None for one that is unknown or not committed.
    /// No claim if the object is not in the scope of the restore.
    fn decide<'a>(
        &self,
        operations: impl IntoIterator<Item = Option<Operation<'a>>>,
    ) -> Result<Option<Claim<'a>>, Undecided> {
        let state = self.committed(operations).ok_or(Undecided)?;
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
    fn committed<'a>(
        &self,
        operations: impl IntoIterator<Item = Option<Operation<'a>>>,
    ) -> Option<State<'a>> {
        let mut last = None;
        let mut is_unique = true;
        for operation in operations {
            let operation = operation?;
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
            match rules.decide(object.iter().map(|row| row.operation(&rules.reader))) {
                Ok(claim) => committed.extend(claim),
                Err(Undecided) => undecided.push((start, end)),
            }
            start = end;
        }
        (committed, undecided)
    });
    Ok((committed.iter().map(|claim| claim.to_row(py)).collect(), undecided))
}

/// The claims of a part of the shuffle in columns.
#[derive(Default)]
struct Claims {
    objects: TextColumn,
    entry_keys: TextColumn,
    paths: TextColumn,
    directory_keys: TextColumn,
    are_directories: Vec<bool>,
    sizes: Vec<i64>,
    ctimes: Vec<i64>,
    entries: TextColumn,
    versions: Vec<i64>,
}

impl Claims {
    fn add(&mut self, claim: &Claim<'_>) {
        let state = &claim.state;
        for (column, text) in [
            (&mut self.objects, state.id),
            (&mut self.entry_keys, &claim.entry_key),
            (&mut self.paths, &state.place),
            (&mut self.directory_keys, &claim.directory_key),
            (&mut self.entries, &claim.entry),
        ] {
            column.buffer().push_str(text);
            column.end_row();
        }
        self.are_directories.push(state.is_dir);
        self.sizes.push(if state.is_dir { 0 } else { state.size });
        self.ctimes.push(state.ctime);
        self.versions.push(state.version);
    }

    fn to_columns<'py>(&self, py: Python<'py>) -> PyResult<ClaimColumns<'py>> {
        Ok((
            self.objects.to_list(py)?,
            self.entry_keys.to_list(py)?,
            self.paths.to_list(py)?,
            self.directory_keys.to_list(py)?,
            PyList::new(py, &self.are_directories)?,
            PyList::new(py, &self.sizes)?,
            PyList::new(py, &self.ctimes)?,
            self.entries.to_list(py)?,
            PyList::new(py, &self.versions)?,
        ))
    }
}

/// Object ids, entry keys, paths, directory keys, whether they are directories, sizes, ctimes,
/// entries and versions.
type ClaimColumns<'py> = (
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
);

/// As `committed_claims`, of a part of the shuffle: the claims in columns, and the lines of the
/// records that are left to the rules. None if the object of a record is not known.
#[pyfunction]
pub fn committed_facts<'py>(
    py: Python<'py>,
    records: Vec<Bound<'py, PyBytes>>,
    blobs: Vec<Bound<'py, PyBytes>>,
    present: HashSet<String>,
    within: String,
    volume: KeyForm,
    count: SuffixCount,
) -> PyResult<Option<(ClaimColumns<'py>, Bound<'py, PyBytes>)>> {
    let (records, blobs) = (slices(&records), slices(&blobs));
    let decided = py.detach(|| {
        let sizes = lines(&blobs).filter_map(key_and_size);
        let sizes = sizes.map(|(key, size)| (key.to_owned(), size)).collect();
        let rules = Rules { reader: OperationReader::new(volume, count), sizes, present, within };
        let mut objects: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
        for line in lines(&records) {
            objects.entry(object_in_fact(line)?).or_default().push(line);
        }
        let (mut claims, mut undecided) = (Claims::default(), Vec::new());
        for facts in objects.into_values() {
            match rules.decide(facts.iter().map(|line| rules.reader.read_fact(line))) {
                Ok(Some(claim)) => claims.add(&claim),
                Ok(None) => {}
                Err(Undecided) => facts.iter().for_each(|line| {
                    undecided.extend_from_slice(line);
                    undecided.push(b'\n');
                }),
            }
        }
        Some((claims, undecided))
    });
    let Some((claims, undecided)) = decided else { return Ok(None) };
    Ok(Some((claims.to_columns(py)?, PyBytes::new(py, &undecided))))
}
