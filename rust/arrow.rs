//! Entries as an Arrow struct array, through Arrow's C data interface.

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, TimeUnit};
use pyo3::prelude::*;

use crate::entries::{EntryColumns, EntryView};
use crate::errors::bad_argument;
use crate::items::Attribute;
use crate::view::View;

/// Texts of a column from which the capacity for the others is estimated.
const SAMPLE: usize = 16;

/// Some rows of columns.
#[derive(Clone, Copy)]
pub struct Selected<'a> {
    pub columns: &'a EntryColumns,
    pub rows: &'a View,
}

impl<'a> Selected<'a> {
    fn len(self) -> usize {
        self.rows.len()
    }

    fn iter(self) -> impl Iterator<Item = EntryView<'a>> {
        self.rows.iter().filter_map(move |row| self.columns.get(row))
    }
}

/// The columns, as `listing.arrow_schema` describes them.
fn fields() -> Fields {
    [
        ("path", DataType::Utf8, false),
        ("is_dir", DataType::Boolean, false),
        ("size", DataType::Int64, false),
        ("mtime", time(), false),
        ("ctime", time(), false),
        ("id", DataType::Utf8, false),
        ("version", DataType::Int64, false),
        ("committed", DataType::Boolean, false),
        ("etag", DataType::Utf8, false),
        ("checksum", DataType::Utf8, false),
        ("attributes", DataType::Utf8, false),
        ("physical", DataType::Utf8, true),
    ]
    .into_iter()
    .map(|(name, kind, nullable)| Arc::new(Field::new(name, kind, nullable)))
    .collect()
}

fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

/// The schema of a record batch of entries.
pub fn schema() -> PyResult<FFI_ArrowSchema> {
    FFI_ArrowSchema::try_from(Schema::new(fields())).map_err(|error| refused(&error))
}

/// A record batch of entries: an array of structs.
pub fn array(entries: Selected<'_>) -> PyResult<FFI_ArrowArray> {
    columns(entries).map(|data| FFI_ArrowArray::new(&data)).map_err(|error| refused(&error))
}

/// Entries too large for one array: more than 2 GiB of one column.
fn refused(error: &ArrowError) -> PyErr {
    bad_argument(format!("the entries cannot be an Arrow array: {error}"))
}

#[allow(clippy::redundant_closure_for_method_calls)] // a method of a view is not one for views of every lifetime
fn columns(entries: Selected<'_>) -> Result<ArrayData, ArrowError> {
    let text =
        |attribute| texts(entries, |entry, out| out.extend_from_slice(entry.bytes(attribute)));
    let children = vec![
        texts(entries, |entry, out| entry.push_path_bytes(out))?,
        truths(entries, |entry| entry.is_dir())?,
        numbers(entries, DataType::Int64, |entry| entry.size())?,
        numbers(entries, time(), |entry| entry.mtime_ms())?,
        numbers(entries, time(), |entry| entry.ctime_ms())?,
        text(Attribute::Id)?,
        numbers(entries, DataType::Int64, |entry| entry.version())?,
        truths(entries, |entry| entry.is_dir() || entry.committed())?,
        text(Attribute::Etag)?,
        text(Attribute::Checksum)?,
        text(Attribute::Attributes)?,
        physical(entries)?,
    ];
    ArrayData::try_new(DataType::Struct(fields()), entries.len(), None, 0, Vec::new(), children)
}

fn numbers(
    entries: Selected<'_>,
    kind: DataType,
    number: impl Fn(&EntryView<'_>) -> i64,
) -> Result<ArrayData, ArrowError> {
    let values: Vec<i64> = entries.iter().map(|entry| number(&entry)).collect();
    ArrayData::try_new(kind, values.len(), None, 0, vec![Buffer::from_vec(values)], Vec::new())
}

fn truths(
    entries: Selected<'_>,
    truth: impl Fn(&EntryView<'_>) -> bool,
) -> Result<ArrayData, ArrowError> {
    let values: BooleanBuffer = entries.iter().map(|entry| truth(&entry)).collect();
    ArrayData::try_new(
        DataType::Boolean,
        values.len(),
        None,
        0,
        vec![values.into_inner()],
        Vec::new(),
    )
}

/// A column of texts; `push` appends that of an entry.
fn texts(
    entries: Selected<'_>,
    push: impl Fn(&EntryView<'_>, &mut Vec<u8>),
) -> Result<ArrayData, ArrowError> {
    let (offsets, values) = laid_out(entries, push)?;
    ArrayData::try_new(DataType::Utf8, entries.len(), None, 0, vec![offsets, values], Vec::new())
}

/// Physical keys of committed files; null for all others.
fn physical(entries: Selected<'_>) -> Result<ArrayData, ArrowError> {
    let (offsets, values) = laid_out(entries, |entry, out| {
        if entry.committed() {
            out.extend_from_slice(entry.bytes(Attribute::Physical));
        }
    })?;
    let valid: NullBuffer = entries.iter().map(|entry| entry.committed()).collect();
    let valid = (valid.null_count() > 0).then(|| valid.into_inner().into_inner());
    ArrayData::try_new(DataType::Utf8, entries.len(), valid, 0, vec![offsets, values], Vec::new())
}

/// Where texts end, and the texts.
fn laid_out(
    entries: Selected<'_>,
    push: impl Fn(&EntryView<'_>, &mut Vec<u8>),
) -> Result<(Buffer, Buffer), ArrowError> {
    let mut values = Vec::new();
    let mut offsets: Vec<i32> = Vec::with_capacity(entries.len() + 1);
    offsets.push(0);
    for entry in entries.iter() {
        push(&entry, &mut values);
        if offsets.len() == SAMPLE {
            values.reserve(values.len() / SAMPLE * entries.len());
        }
        let end = i32::try_from(values.len())
            .map_err(|_| ArrowError::OffsetOverflowError(values.len()))?;
        offsets.push(end);
    }
    Ok((Buffer::from_vec(offsets), Buffer::from_vec(values)))
}
