//! The status of a path.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::entries::{EntryColumns, EntryView};
use crate::items::Attribute;

/// The status of one path: sizes in bytes, times in epoch milliseconds and as `datetime`.
#[pyclass(frozen, eq, hash, module = "s3k_async.model")]
pub struct FileStatus(Source);

const NAMES: [&str; 12] = [
    "path",
    "is_dir",
    "size",
    "mtime_ms",
    "ctime_ms",
    "id",
    "version",
    "committed",
    "etag",
    "checksum",
    "physical",
    "attributes_json",
];

/// What precedes a version id in the place of a checksum; as in `_core/object_version.py`.
const VERSION: &[u8] = b"version:";

enum Source {
    /// A row of the columns of a listing.
    Row(Arc<EntryColumns>, usize),
    /// Owned values.
    Own(Box<Own>),
}

struct Own {
    path: String,
    is_dir: bool,
    size: i64,
    mtime_ms: i64,
    ctime_ms: i64,
    id: String,
    version: i64,
    committed: bool,
    etag: String,
    checksum: String,
    physical: Option<String>,
    attributes: String,
}

/// The values of all fields in order, texts as UTF-8.
#[derive(PartialEq, Eq, Hash)]
struct Fields<'a> {
    path: Cow<'a, [u8]>,
    is_dir: bool,
    size: i64,
    mtime_ms: i64,
    ctime_ms: i64,
    id: &'a [u8],
    version: i64,
    committed: bool,
    etag: &'a [u8],
    checksum: &'a [u8],
    physical: Option<&'a [u8]>,
    attributes: &'a [u8],
}

impl FileStatus {
    /// A row of columns.
    pub fn row(columns: &Arc<EntryColumns>, row: usize) -> Self {
        Self(Source::Row(Arc::clone(columns), row))
    }

    /// A field by `row` for a row, or by `own` for owned values.
    #[inline]
    fn tell<'a, T: Default>(
        &'a self,
        row: impl FnOnce(EntryView<'a>) -> T,
        own: impl FnOnce(&'a Own) -> T,
    ) -> T {
        match &self.0 {
            Source::Row(columns, place) => columns.get(*place).map(row).unwrap_or_default(),
            Source::Own(values) => own(values),
        }
    }

    fn path_bytes(&self) -> Cow<'_, [u8]> {
        self.tell(
            |entry| {
                let mut path = Vec::new();
                entry.push_path_bytes(&mut path);
                Cow::Owned(path)
            },
            |own| Cow::Borrowed(own.path.as_bytes()),
        )
    }

    fn name_bytes(&self) -> &[u8] {
        self.tell(
            |entry| entry.bytes(Attribute::Sort),
            |own| own.path.rsplit('/').next().unwrap_or_default().as_bytes(),
        )
    }

    fn id_bytes(&self) -> &[u8] {
        self.tell(|entry| entry.bytes(Attribute::Id), |own| own.id.as_bytes())
    }

    fn etag_bytes(&self) -> &[u8] {
        self.tell(|entry| entry.bytes(Attribute::Etag), |own| own.etag.as_bytes())
    }

    /// As stored: a checksum, or the version id of an adopted object after `VERSION`.
    fn identity_bytes(&self) -> &[u8] {
        self.tell(|entry| entry.bytes(Attribute::Checksum), |own| own.checksum.as_bytes())
    }

    fn physical_bytes(&self) -> Option<&[u8]> {
        self.tell(
            |entry| entry.committed().then(|| entry.bytes(Attribute::Physical)),
            |own| own.physical.as_deref().map(str::as_bytes),
        )
    }

    fn attributes_bytes(&self) -> &[u8] {
        self.tell(|entry| entry.bytes(Attribute::Attributes), |own| own.attributes.as_bytes())
    }

    fn fields(&self) -> Fields<'_> {
        Fields {
            path: self.path_bytes(),
            is_dir: self.is_dir(),
            size: self.size(),
            mtime_ms: self.mtime_ms(),
            ctime_ms: self.ctime_ms(),
            id: self.id_bytes(),
            version: self.version(),
            committed: self.committed(),
            etag: self.etag_bytes(),
            checksum: self.identity_bytes(),
            physical: self.physical_bytes(),
            attributes: self.attributes_bytes(),
        }
    }
}

impl PartialEq for FileStatus {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}

impl Eq for FileStatus {}

impl Hash for FileStatus {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fields().hash(state);
    }
}

#[pymethods]
impl FileStatus {
    #[new]
    #[pyo3(signature = (path, is_dir, size, mtime_ms, ctime_ms, id, version, committed, etag = "", checksum = "", physical = None, attributes_json = ""))]
    #[allow(clippy::too_many_arguments)] // the fields
    fn new(
        path: String,
        is_dir: bool,
        size: i64,
        mtime_ms: i64,
        ctime_ms: i64,
        id: String,
        version: i64,
        committed: bool,
        etag: &str,
        checksum: &str,
        physical: Option<String>,
        attributes_json: &str,
    ) -> Self {
        Self(Source::Own(Box::new(Own {
            path,
            is_dir,
            size,
            mtime_ms,
            ctime_ms,
            id,
            version,
            committed,
            etag: etag.to_owned(),
            checksum: checksum.to_owned(),
            physical,
            attributes: attributes_json.to_owned(),
        })))
    }

    #[classattr]
    fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, NAMES)
    }

    /// Path in the volume.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        PyString::from_bytes(py, &self.path_bytes())
    }

    /// Whether this is a directory.
    #[getter]
    fn is_dir(&self) -> bool {
        self.tell(|entry| entry.is_dir(), |own| own.is_dir)
    }

    /// Bytes of a file, 0 for a directory.
    #[getter]
    fn size(&self) -> i64 {
        self.tell(|entry| entry.size(), |own| own.size)
    }

    /// Modification time.
    #[getter]
    fn mtime_ms(&self) -> i64 {
        self.tell(|entry| entry.mtime_ms(), |own| own.mtime_ms)
    }

    /// Creation time.
    #[getter]
    fn ctime_ms(&self) -> i64 {
        self.tell(|entry| entry.ctime_ms(), |own| own.ctime_ms)
    }

    /// Modification time, an aware `datetime` in UTC.
    #[getter]
    fn modified<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.mtime_ms())
    }

    /// Creation time, an aware `datetime` in UTC.
    #[getter]
    fn created<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.ctime_ms())
    }

    /// Object id.
    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        PyString::from_bytes(py, self.id_bytes())
    }

    /// Version.
    #[getter]
    fn version(&self) -> i64 {
        self.tell(|entry| entry.version(), |own| own.version)
    }

    /// False only for a reservation: a file whose writer has not finished.
    #[getter]
    fn committed(&self) -> bool {
        self.tell(|entry| entry.is_dir() || entry.committed(), |own| own.committed)
    }

    /// Etag of the bytes, empty if unknown.
    #[getter]
    fn etag<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        PyString::from_bytes(py, self.etag_bytes())
    }

    /// Checksum of the bytes, empty if unknown.
    #[getter]
    fn checksum<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let stored = self.identity_bytes();
        PyString::from_bytes(py, if stored.starts_with(VERSION) { b"" } else { stored })
    }

    /// Version id of the adopted object in its bucket, empty if none is recorded.
    #[getter]
    fn object_version<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        PyString::from_bytes(py, self.identity_bytes().strip_prefix(VERSION).unwrap_or(b""))
    }

    /// Physical key or URI of the bytes of a committed file, else None.
    #[getter]
    fn physical<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.physical_bytes().map(|text| PyString::from_bytes(py, text)).transpose()
    }

    /// Mode, owner, read-only and user metadata, as canonical JSON; empty if there are none.
    #[getter]
    fn attributes_json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        PyString::from_bytes(py, self.attributes_bytes())
    }

    /// Mode, owner, read-only and user metadata.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = py.import("s3k_async.attributes")?.getattr("Attributes")?;
        class.call_method1("from_json", (self.attributes_json(py)?,))
    }

    /// Last component of the path; empty for the root.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        PyString::from_bytes(py, self.name_bytes())
    }

    /// Whether this is a file.
    #[getter]
    fn is_file(&self) -> bool {
        !self.is_dir()
    }

    fn __reduce__<'py>(
        this: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        Ok((this.get_type().into_any(), this.get().values(this.py())?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let what = match (self.is_dir(), self.committed()) {
            (true, _) => "directory".to_owned(),
            (false, true) => format!("file, {} bytes", self.size()),
            (false, false) => "file being written".to_owned(),
        };
        let modified = match self.modified(py) {
            Ok(time) => time.call_method1("isoformat", (" ", "milliseconds"))?.to_string(),
            // Out of the range of `datetime`.
            Err(_) => format!("{} ms", self.mtime_ms()),
        };
        Ok(format!("<FileStatus {} {what}, modified {modified}>", self.path(py)?.repr()?))
    }
}

/// The public view of an entry.
#[pyfunction]
pub fn status_of(entry: &Bound<'_, PyAny>) -> PyResult<FileStatus> {
    let is_dir: bool = entry.getattr("is_dir")?.extract()?;
    let committed: bool = entry.getattr("committed")?.extract()?;
    Ok(FileStatus(Source::Own(Box::new(Own {
        path: entry.getattr("path")?.extract()?,
        is_dir,
        size: entry.getattr("size")?.extract()?,
        mtime_ms: entry.getattr("mtime_ms")?.extract()?,
        ctime_ms: entry.getattr("ctime")?.mul(1000)?.extract()?,
        id: entry.getattr("id")?.extract()?,
        version: entry.getattr("version")?.extract()?,
        committed: is_dir || committed,
        etag: entry.getattr("etag")?.extract()?,
        checksum: entry.getattr("checksum")?.extract()?,
        physical: if committed { entry.getattr("physical")?.extract()? } else { None },
        attributes: match entry.getattr_opt("attributes")? {
            Some(attributes) => attributes.extract()?,
            None => String::new(),
        },
    }))))
}

/// An aware `datetime` in UTC. `OverflowError` out of its range.
fn datetime(py: Python<'_>, milliseconds: i64) -> PyResult<Bound<'_, PyAny>> {
    let module = py.import("datetime")?;
    let utc = module.getattr("UTC")?;
    let epoch = module.getattr("datetime")?.call_method1("fromtimestamp", (0, utc))?;
    epoch.add(module.getattr("timedelta")?.call1((0, 0, 0, milliseconds))?)
}

impl FileStatus {
    /// The values of the fields, in order.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let values = (
            self.path(py)?,
            self.is_dir(),
            self.size(),
            self.mtime_ms(),
            self.ctime_ms(),
            self.id(py)?,
            self.version(),
            self.committed(),
            self.etag(py)?,
            PyString::from_bytes(py, self.identity_bytes())?,
            self.physical(py)?,
            self.attributes_json(py)?,
        );
        values.into_pyobject(py)
    }
}
