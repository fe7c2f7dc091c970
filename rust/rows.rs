//! Items of a table as a Python sequence of mappings.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString};

use crate::entries::EntryColumns;
use crate::entry_sequence::{Entries, RELEASE_ROWS};
use crate::errors::{BadItem, Fault, InvalidPath, key_text_of, text_of};
use crate::items::{Attribute, Body, Cell, Extra, Items, Kind, MAX_BYTES, WIDTH};
use crate::keys::KeyForm;
use crate::paths::{is_normal, push_child};
use crate::view::{Subscript, View, compared, count_of, index_of};

/// Items of a table, in columns.
#[pyclass(frozen, sequence, module = "s3k_async._native")]
pub struct Rows {
    items: Arc<Items>,
    view: View,
}

impl Rows {
    /// All items.
    pub fn of(items: Items) -> Self {
        let view = View::All(items.rows.len());
        Self { items: Arc::new(items), view }
    }

    /// The items of the columns.
    pub fn items(&self) -> Arc<Items> {
        Arc::clone(&self.items)
    }

    /// The rows of the columns that these are, in order.
    pub fn places(&self) -> impl ExactSizeIterator<Item = usize> {
        self.view.iter()
    }
}

#[pymethods]
impl Rows {
    #[new]
    fn new(items: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(rows) = items.cast::<Self>() {
            let rows = rows.get();
            return Ok(Self { items: Arc::clone(&rows.items), view: rows.view.clone() });
        }
        let mut written = Written::default();
        for item in items.try_iter()? {
            written.push(&item?)?;
        }
        Ok(Self::of(written.items))
    }

    fn __len__(&self) -> usize {
        self.view.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.view.subscript(index)? {
            Subscript::Row(row) => Ok(mapping(py, &self.items, row)?.into_any()),
            Subscript::Rows(view) => {
                Ok(Bound::new(py, Self { items: Arc::clone(&self.items), view })?.into_any())
            }
        }
    }

    fn __eq__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        compared(this.as_any(), other)
    }

    /// The decoded entries of the items. In layout `tree`, `paths` has the paths of directories by
    /// directory key.
    #[pyo3(signature = (volume, *, records = false, paths = None))]
    fn entries(
        &self,
        py: Python<'_>,
        volume: KeyForm,
        records: bool,
        paths: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Entries> {
        let read =
            || EntryColumns::read(Arc::clone(&self.items), self.view.iter(), &volume, records);
        let columns = if self.view.len() > RELEASE_ROWS { py.detach(read) } else { read() };
        let (KeyForm::Tree, Some(paths)) = (&volume, paths) else {
            return Ok(Entries::of(columns?));
        };
        let path_of = |directory: &str| path_of(&paths, directory);
        match columns {
            Ok(columns) => Ok(Entries::of(columns.with_paths(path_of)?)),
            Err(refused) => Err(with_known_path(refused, &volume, path_of)?.into()),
        }
    }

    /// Place of the first equal element from `start` up to `stop`.
    #[pyo3(signature = (value, start = 0, stop = None))]
    fn index(
        this: &Bound<'_, Self>,
        value: &Bound<'_, PyAny>,
        start: isize,
        stop: Option<isize>,
    ) -> PyResult<usize> {
        index_of(this.as_any(), value, start, stop)
    }

    /// The number of equal elements.
    fn count(this: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        count_of(this.as_any(), value)
    }

    fn __repr__(&self) -> String {
        format!("<Rows of {} items>", self.view.len())
    }
}

/// The path of a directory by its key, if it is known.
fn path_of(paths: &Bound<'_, PyDict>, directory: &str) -> PyResult<Option<String>> {
    let Some(path) = paths.get_item(directory)? else { return Ok(None) };
    let path = path.cast_into::<PyString>()?;
    let path = text_of(&path)?;
    if is_normal(path) {
        Ok(Some(path.to_owned()))
    } else {
        Err(InvalidPath::new(Fault::NotNormal, path).into())
    }
}

/// The error of an item at an entry key, with the path if that of the directory is known.
fn with_known_path(
    refused: BadItem,
    form: &KeyForm,
    path_of: impl Fn(&str) -> PyResult<Option<String>>,
) -> PyResult<BadItem> {
    let Ok((directory, name)) = form.directory_and_name(&refused.place) else { return Ok(refused) };
    let Some(parent) = path_of(directory)? else { return Ok(refused) };
    let mut place = String::new();
    push_child(&mut place, &parent, name);
    Ok(BadItem { place, ..refused })
}

/// An item as a mapping of attribute names to values.
fn mapping<'py>(py: Python<'py>, items: &Items, row: usize) -> PyResult<Bound<'py, PyDict>> {
    let item = PyDict::new(py);
    for attribute in Attribute::ALL {
        if let Some(value) = value(py, items, items.cell(row, attribute))? {
            item.set_item(PyString::intern(py, attribute.name()), value)?;
        }
    }
    for extra in items.extras_of(row) {
        item.set_item(items.text(extra.name), value(py, items, extra.value)?)?;
    }
    Ok(item)
}

fn value<'py>(py: Python<'py>, items: &Items, cell: Cell) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(match cell.kind() {
        Kind::Absent => None,
        Kind::Text => Some(PyString::from_bytes(py, items.bytes(cell))?.into_any()),
        Kind::Truth(truth) => Some(PyBool::new(py, truth).to_owned().into_any()),
        Kind::Number => Some(number(py, items.text(cell))?),
    })
}

fn number<'py>(py: Python<'py>, digits: &str) -> PyResult<Bound<'py, PyAny>> {
    match digits.parse::<i64>() {
        Ok(number) => Ok(number.into_pyobject(py)?.into_any()),
        Err(_) => py.get_type::<PyInt>().call1((digits,)),
    }
}

/// Items under construction from mappings.
struct Written {
    items: Items,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            items: Items {
                body: Body::Empty,
                written: String::new(),
                rows: Vec::new(),
                extras: Vec::new(),
            },
        }
    }
}

impl Written {
    fn push(&mut self, item: &Bound<'_, PyAny>) -> PyResult<()> {
        self.items.rows.push([Cell::ABSENT; WIDTH]);
        if let Ok(item) = item.cast::<PyDict>() {
            for (name, value) in item.iter() {
                self.push_attribute(item, &name, &value)?;
            }
            return Ok(());
        }
        for pair in item.call_method0("items")?.try_iter()? {
            let (name, value) = pair?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            self.push_attribute(item, &name, &value)?;
        }
        Ok(())
    }

    fn push_attribute(
        &mut self,
        item: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let name = name.cast::<PyString>()?;
        let Some(value) = self.cell(value)? else {
            let reason =
                format!("attribute {} is neither text, whole number nor truth value", name.repr()?);
            return Err(BadItem { reason, place: place(item)? }.into());
        };
        let text = key_text_of(name)?;
        let row = self.items.rows.len() - 1;
        if let (Some(attribute), Some(cells)) = (Attribute::named(text), self.items.rows.last_mut())
        {
            if let Some(cell) = cells.get_mut(attribute as usize) {
                *cell = value;
            }
        } else {
            let name = self.text(text)?;
            self.items.extras.push(Extra { row, name, value });
        }
        Ok(())
    }

    fn cell(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<Cell>> {
        if let Ok(text) = value.cast::<PyString>() {
            return self.text(key_text_of(text)?).map(Some);
        }
        if let Ok(truth) = value.cast::<PyBool>() {
            return Ok(Some(Cell::truth(truth.is_true())));
        }
        if !value.is_instance_of::<PyInt>() {
            return Ok(None);
        }
        let digits = match value.extract::<i64>() {
            Ok(number) => number.to_string(),
            Err(_) => value.str()?.to_str()?.to_owned(),
        };
        let start = self.items.written.len();
        self.text(&digits)?;
        Ok(Some(Cell::number(start, self.items.written.len())))
    }

    fn text(&mut self, text: &str) -> PyResult<Cell> {
        let start = self.items.written.len();
        if start + text.len() > MAX_BYTES {
            let reason = "the items are too large to be held at once".to_owned();
            return Err(BadItem { reason, place: String::new() }.into());
        }
        self.items.written.push_str(text);
        Ok(Cell::text(start, start + text.len()))
    }
}

/// The key of a refused item in an error.
fn place(item: &Bound<'_, PyAny>) -> PyResult<String> {
    let part = |attribute: Attribute| {
        item.call_method1("get", (attribute.name(),))?.str()?.extract::<String>()
    };
    Ok(format!("{} / {}", part(Attribute::Partition)?, part(Attribute::Sort)?))
}
