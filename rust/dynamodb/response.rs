//! Answers of `Query`, `Scan`, `BatchGetItem` and `GetItem` (Amazon `DynamoDB` API Reference).

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::dynamodb::item_reader::ItemReader;
use crate::errors::lost;
use crate::items::{Body, Items};
use crate::json::read::{Cursor, Damage};
use crate::rows::Rows;

/// Larger bodies are read with the interpreter released.
const RELEASE_BYTES: usize = 4 * 1024;

/// Partition and sort key.
pub type Key = (String, String);

/// A page of a query or scan.
#[pyclass(frozen, module = "s3k_async._native")]
pub struct Page {
    #[pyo3(get)]
    rows: Py<Rows>,
    #[pyo3(get)]
    next: Option<Key>,
    #[pyo3(get)]
    count: u64,
    #[pyo3(get)]
    scanned: u64,
    #[pyo3(get)]
    capacity: f64,
}

/// The fields of a page besides its items.
#[derive(Default)]
pub struct Frame {
    next: Option<Key>,
    count: Option<u64>,
    scanned: Option<u64>,
    capacity: f64,
}

/// Checks a body and parses it with `read`, which leaves the items in the reader. The caller owns
/// the bytes and adds them to the items.
pub fn read_answer<T>(
    bytes: &[u8],
    crc32: Option<u32>,
    read: impl FnOnce(&mut ItemReader<'_>) -> Result<T, Damage>,
) -> Result<(Items, T), String> {
    if let Some(announced) = crc32 {
        let found = crc32fast::hash(bytes);
        if found != announced {
            return Err(format!("the answer's CRC32 is {found}, and {announced} was announced"));
        }
    }
    let read_whole = || {
        let mut reader = ItemReader::new(bytes)?;
        let frame = read(&mut reader)?;
        reader.cursor.end()?;
        Ok((reader.into_items(Body::Empty), frame))
    };
    read_whole().map_err(|damage: Damage| {
        format!("the answer is damaged: {} (byte {} of {})", damage.reason, damage.at, bytes.len())
    })
}

/// As `read_answer`, for a body owned by Python.
fn answer<T: Send>(
    py: Python<'_>,
    body: PyBackedBytes,
    crc32: Option<u32>,
    read: impl FnOnce(&mut ItemReader<'_>) -> Result<T, Damage> + Send,
) -> PyResult<(Items, T)> {
    let bytes: &[u8] = &body;
    let work = move || read_answer(bytes, crc32, read);
    let read = if bytes.len() > RELEASE_BYTES { py.detach(work) } else { work() };
    let (mut items, frame) = read.map_err(|reason| lost(&reason))?;
    items.body = Body::Bytes(body);
    Ok((items, frame))
}

/// Takes an object; `each` takes the values that it knows and returns whether it did. `null` counts
/// as absent.
fn fields<'a>(
    reader: &mut ItemReader<'a>,
    mut each: impl FnMut(&mut ItemReader<'a>, &str) -> Result<bool, Damage>,
) -> Result<(), Damage> {
    reader.cursor.need(b'{', "an object is missing")?;
    if reader.cursor.take(b'}') {
        return Ok(());
    }
    loop {
        let name = reader.cursor.string()?;
        let name = reader.cursor.text(name)?;
        reader.cursor.need(b':', "a colon is missing")?;
        if !reader.cursor.null() && !each(reader, &name)? {
            reader.cursor.skip(1)?;
        }
        if reader.cursor.take(b'}') {
            return Ok(());
        }
        reader.cursor.need(b',', "a comma is missing")?;
    }
}

/// Refuses a duplicate name.
fn once(cursor: &Cursor<'_>, seen: &mut bool) -> Result<(), Damage> {
    if std::mem::replace(seen, true) { Err(cursor.damage("a name stands twice")) } else { Ok(()) }
}

/// Takes the answer to a query or scan.
pub fn page_frame(reader: &mut ItemReader<'_>) -> Result<Frame, Damage> {
    let mut frame = Frame::default();
    let mut seen = false;
    fields(reader, |reader, name| {
        let cursor = &mut reader.cursor;
        match name {
            "Items" => {
                once(cursor, &mut seen)?;
                reader.items()?;
            }
            "LastEvaluatedKey" => frame.next = key(cursor)?,
            "Count" => frame.count = Some(whole(cursor)?),
            "ScannedCount" => frame.scanned = Some(whole(cursor)?),
            "ConsumedCapacity" => frame.capacity = capacity(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(frame)
}

fn capacity(reader: &mut ItemReader<'_>) -> Result<f64, Damage> {
    let mut units = 0.0;
    fields(reader, |reader, name| {
        if name == "CapacityUnits" {
            let number = reader.cursor.number()?;
            units = number.parse().map_err(|_| reader.cursor.damage("this is no number"))?;
        }
        Ok(name == "CapacityUnits")
    })?;
    Ok(units)
}

fn whole(cursor: &mut Cursor<'_>) -> Result<u64, Damage> {
    let number = cursor.number()?;
    number.parse().map_err(|_| cursor.damage("this is no count"))
}

/// Takes a primary key; None for an empty object.
fn key(cursor: &mut Cursor<'_>) -> Result<Option<Key>, Damage> {
    let (mut partition, mut sort) = (None, None);
    let mut empty = true;
    cursor.members(|cursor, name| {
        empty = false;
        let part = match name {
            "path" => &mut partition,
            "children" => &mut sort,
            _ => return Err(cursor.damage("this is no key of the table")),
        };
        cursor.members(|cursor, kind| {
            if kind != "S" || part.is_some() {
                return Err(cursor.damage("this is no key of the table"));
            }
            let quoted = cursor.string()?;
            *part = Some(cursor.text(quoted)?.into_owned());
            Ok(())
        })
    })?;
    match (partition, sort) {
        (Some(partition), Some(sort)) => Ok(Some((partition, sort))),
        _ if empty => Ok(None),
        _ => Err(cursor.damage("this is no key of the table")),
    }
}

/// A page of a query or scan.
#[pyfunction]
#[pyo3(signature = (body, crc32))]
pub fn decode_page(py: Python<'_>, body: PyBackedBytes, crc32: Option<u32>) -> PyResult<Page> {
    let (items, frame) = answer(py, body, crc32, page_frame)?;
    let count = frame.count.unwrap_or(items.rows.len() as u64);
    Ok(Page {
        rows: Py::new(py, Rows::of(items))?,
        next: frame.next,
        count,
        scanned: frame.scanned.unwrap_or(count),
        capacity: frame.capacity,
    })
}

/// The items of a batch, and the unprocessed keys.
#[pyfunction]
#[pyo3(signature = (body, table, crc32))]
pub fn decode_batch(
    py: Python<'_>,
    body: PyBackedBytes,
    table: &str,
    crc32: Option<u32>,
) -> PyResult<(Rows, Vec<Key>)> {
    let (items, left) = answer(py, body, crc32, |reader| batch_frame(reader, table))?;
    Ok((Rows::of(items), left))
}

/// Takes the answer to a batch of reads; returns the unprocessed keys.
pub fn batch_frame(reader: &mut ItemReader<'_>, table: &str) -> Result<Vec<Key>, Damage> {
    let mut left = Vec::new();
    let mut seen = false;
    fields(reader, |reader, name| {
        match name {
            "Responses" => fields(reader, |reader, name| {
                if name == table {
                    once(&reader.cursor, &mut seen)?;
                    reader.items()?;
                }
                Ok(name == table)
            })?,
            "UnprocessedKeys" => fields(reader, |reader, name| {
                if name == table {
                    unprocessed(reader, &mut left)?;
                }
                Ok(name == table)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(left)
}

fn unprocessed(reader: &mut ItemReader<'_>, left: &mut Vec<Key>) -> Result<(), Damage> {
    fields(reader, |reader, name| {
        if name == "Keys" {
            reader.cursor.elements(|cursor| {
                left.push(key(cursor)?.ok_or_else(|| cursor.damage("a key is empty"))?);
                Ok(())
            })?;
        }
        Ok(name == "Keys")
    })
}

/// The requested item, or no row.
#[pyfunction]
#[pyo3(signature = (body, crc32))]
pub fn decode_item(py: Python<'_>, body: PyBackedBytes, crc32: Option<u32>) -> PyResult<Rows> {
    let (items, ()) = answer(py, body, crc32, item_frame)?;
    Ok(Rows::of(items))
}

/// Takes the answer to a read of one item.
pub fn item_frame(reader: &mut ItemReader<'_>) -> Result<(), Damage> {
    let mut seen = false;
    fields(reader, |reader, name| {
        if name == "Item" {
            once(&reader.cursor, &mut seen)?;
            reader.item()?;
        }
        Ok(name == "Item")
    })
}
