//! Bodies of requests, from the values of the item port.
//!
//! Source: the Amazon `DynamoDB` API Reference (`GetItem`, `BatchGetItem`, `Query`, `Scan`,
//! `PutItem`, `UpdateItem`, `DeleteItem`, `TransactWriteItems`, `BatchWriteItem`).

use std::convert::Infallible;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyMapping, PyString, PyType};

use crate::dynamodb::actions::push_columns;
use crate::dynamodb::encoder::{Action, Body, push_key, push_number, push_text, push_truth};
use crate::errors::{bad_argument, text_of};
use crate::json::write::push_quoted;

/// A body without placeholders.
type PlainBody = Body<Infallible>;

/// Approximate bytes of an action in a body.
const TYPICAL_ACTION: usize = 768;

/// A key given as a pair of texts.
type PyKey<'py> = (Bound<'py, PyString>, Bound<'py, PyString>);

/// The kinds of actions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Put,
    Update,
    Delete,
    Check,
}

impl Verb {
    /// The class of the port, and the name of the verb inside a transaction.
    const ALL: [(Self, &str, &str); 4] = [
        (Self::Put, "Put", "Put"),
        (Self::Delete, "Delete", "Delete"),
        (Self::Update, "Update", "Update"),
        (Self::Check, "Check", "ConditionCheck"),
    ];

    fn of(action: &Bound<'_, PyAny>) -> PyResult<(Self, &'static str)> {
        static CLASSES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();
        let py = action.py();
        let classes = CLASSES.get_or_try_init(py, || {
            let module = py.import("s3k_async._core.item_values")?;
            let classes = Self::ALL
                .iter()
                .map(|(_, class, _)| Ok(module.getattr(class)?.cast_into::<PyType>()?.into()));
            classes.collect::<PyResult<Vec<_>>>()
        })?;
        for ((verb, _, name), class) in Self::ALL.iter().zip(classes) {
            if action.is_instance(class.bind(py))? {
                return Ok((*verb, name));
            }
        }
        Err(PyTypeError::new_err("an action is a Put, Update, Delete or Check"))
    }
}

/// Text of an item outside the key.
fn plain_text<'a>(string: &'a Bound<'_, PyString>, what: &str) -> PyResult<&'a str> {
    string.to_str().map_err(|cause| {
        let error = bad_argument(format!("{what} cannot be encoded as UTF-8"));
        error.set_cause(string.py(), Some(cause));
        error
    })
}

/// Calls `take` with each name and value of a mapping.
fn each_pair<'py>(
    mapping: &Bound<'py, PyAny>,
    mut take: impl FnMut(&Bound<'py, PyString>, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(dict) = mapping.cast::<PyDict>() {
        return dict.iter().try_for_each(|(name, value)| take(name.cast::<PyString>()?, &value));
    }
    for pair in mapping.cast::<PyMapping>()?.items()? {
        let (name, value): PyKeyed<'py> = pair.extract()?;
        take(&name, &value)?;
    }
    Ok(())
}

type PyKeyed<'py> = (Bound<'py, PyString>, Bound<'py, PyAny>);

fn push_value(out: &mut String, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(text) = value.cast::<PyString>() {
        push_text(out, plain_text(text, "the text of an attribute")?);
    } else if let Ok(truth) = value.cast::<PyBool>() {
        push_truth(out, truth.is_true());
    } else if value.is_instance_of::<PyInt>() {
        let number = value.call_method0(intern!(value.py(), "__int__"))?.str()?;
        push_number(out, &number.to_string_lossy());
    } else {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "an attribute is a str, int or bool, not a {kind}"
        )));
    }
    Ok(())
}

fn push_whole(out: &mut String, number: &Bound<'_, PyInt>) -> PyResult<()> {
    out.push_str(&number.str()?.to_string_lossy());
    Ok(())
}

fn push_py_key(out: &mut String, key: &PyKey<'_>) -> PyResult<()> {
    push_key(out, text_of(&key.0)?, text_of(&key.1)?);
    Ok(())
}

/// Appends an item: `{"path":{"S":…},…}`.
fn push_item(out: &mut String, item: &Bound<'_, PyAny>) -> PyResult<()> {
    out.push('{');
    let mut first = true;
    each_pair(item, |name, value| {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        push_quoted(out, attribute_name(name)?);
        out.push(':');
        push_value(out, value)
    })?;
    out.push('}');
    Ok(())
}

/// The name of an attribute.
fn attribute_name<'a>(name: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    plain_text(name, "the name of an attribute")
}

/// Calls `take` with each name of an iterable.
fn each_name(names: &Bound<'_, PyAny>, mut take: impl FnMut(&str)) -> PyResult<()> {
    for name in names.try_iter()? {
        take(attribute_name(&name?.cast_into::<PyString>()?)?);
    }
    Ok(())
}

fn push_action(
    body: &mut PlainBody,
    table: &str,
    verb: Verb,
    given: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = given.py();
    let mut action = Action::begin(body, table);
    let when = given.getattr(intern!(py, "when"))?;
    if when.getattr(intern!(py, "exists"))?.is_truthy()? {
        action.present();
        each_pair(&when.getattr(intern!(py, "equals"))?, |name, value| {
            push_value(&mut action.equal(attribute_name(name)?).text, value)
        })?;
        each_name(&when.getattr(intern!(py, "missing"))?, |name| action.missing(name))?;
    } else {
        action.absent();
    }
    if verb == Verb::Put {
        push_item(&mut action.item().text, &given.getattr(intern!(py, "item"))?)?;
    } else {
        push_py_key(&mut action.key().text, &given.getattr(intern!(py, "key"))?.extract()?)?;
    }
    if verb == Verb::Update {
        each_pair(&given.getattr(intern!(py, "set"))?, |name, value| {
            push_value(&mut action.set(attribute_name(name)?).text, value)
        })?;
        each_name(&given.getattr(intern!(py, "remove"))?, |name| action.remove(name))?;
        action.end_update();
    }
    action.end();
    Ok(())
}

fn push_page(
    out: &mut String,
    start: Option<&PyKey<'_>>,
    limit: Option<&Bound<'_, PyInt>>,
) -> PyResult<()> {
    if let Some(key) = start {
        out.push_str(",\"ExclusiveStartKey\":");
        push_py_key(out, key)?;
    }
    if let Some(limit) = limit {
        out.push_str(",\"Limit\":");
        push_whole(out, limit)?;
    }
    out.push('}');
    Ok(())
}

fn begin(table: &Bound<'_, PyString>) -> PyResult<String> {
    let mut out = String::with_capacity(512);
    out.push_str("{\"ConsistentRead\":true,\"TableName\":");
    push_quoted(&mut out, plain_text(table, "the name of the table")?);
    Ok(out)
}

/// A `GetItem` request.
#[pyfunction]
pub fn encode_get<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyString>,
    partition: &Bound<'py, PyString>,
    sort: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = begin(table)?;
    out.push_str(",\"Key\":");
    push_key(&mut out, text_of(partition)?, text_of(sort)?);
    out.push('}');
    Ok(PyBytes::new(py, out.as_bytes()))
}

/// A `BatchGetItem` request for one table.
#[pyfunction]
pub fn encode_batch_get<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyString>,
    keys: Vec<PyKey<'py>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = String::with_capacity(128 * (keys.len() + 1));
    out.push_str("{\"RequestItems\":{");
    push_quoted(&mut out, plain_text(table, "the name of the table")?);
    out.push_str(":{\"ConsistentRead\":true,\"Keys\":[");
    for (place, key) in keys.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        push_py_key(&mut out, key)?;
    }
    out.push_str("]}}}");
    Ok(PyBytes::new(py, out.as_bytes()))
}

/// A `Query` request for one page of one partition.
#[pyfunction]
#[pyo3(signature = (table, partition, start, limit))]
pub fn encode_query<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyString>,
    partition: &Bound<'py, PyString>,
    start: Option<PyKey<'py>>,
    limit: Option<Bound<'py, PyInt>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = begin(table)?;
    out.push_str(
        ",\"KeyConditionExpression\":\"#p = :p\",\"ExpressionAttributeNames\":{\"#p\":\"path\"}",
    );
    out.push_str(",\"ExpressionAttributeValues\":{\":p\":");
    push_text(&mut out, text_of(partition)?);
    out.push('}');
    push_page(&mut out, start.as_ref(), limit.as_ref())?;
    Ok(PyBytes::new(py, out.as_bytes()))
}

/// A `Scan` request for one page of one segment.
#[pyfunction]
#[pyo3(signature = (table, segment, segments, start, limit))]
pub fn encode_scan<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyString>,
    segment: &Bound<'py, PyInt>,
    segments: &Bound<'py, PyInt>,
    start: Option<PyKey<'py>>,
    limit: Option<Bound<'py, PyInt>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = begin(table)?;
    out.push_str(",\"Segment\":");
    push_whole(&mut out, segment)?;
    out.push_str(",\"TotalSegments\":");
    push_whole(&mut out, segments)?;
    push_page(&mut out, start.as_ref(), limit.as_ref())?;
    Ok(PyBytes::new(py, out.as_bytes()))
}

/// A `PutItem`, `UpdateItem` or `DeleteItem` request.
#[pyfunction]
pub fn encode_write<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyString>,
    action: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut body = PlainBody::with_capacity(1024);
    let verb = Verb::of(action)?.0;
    if verb == Verb::Check {
        return Err(PyTypeError::new_err("a Check is part of a transaction"));
    }
    push_action(&mut body, plain_text(table, "the name of the table")?, verb, action)?;
    Ok(PyBytes::new(py, body.text.as_bytes()))
}

/// A `BatchWriteItem` request that puts whole items into one table.
#[pyfunction]
pub fn encode_load<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyString>,
    items: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = String::with_capacity(TYPICAL_ACTION * items.len()?);
    out.push_str("{\"RequestItems\":{");
    push_quoted(&mut out, plain_text(table, "the name of the table")?);
    out.push_str(":[");
    for (place, item) in items.try_iter()?.enumerate() {
        out.push_str(if place == 0 {
            "{\"PutRequest\":{\"Item\":"
        } else {
            ",{\"PutRequest\":{\"Item\":"
        });
        push_item(&mut out, &item?)?;
        out.push_str("}}");
    }
    out.push_str("]}}");
    Ok(PyBytes::new(py, out.as_bytes()))
}

/// A `TransactWriteItems` request.
#[pyfunction]
pub fn encode_transaction<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyString>,
    actions: &Bound<'py, PyAny>,
    token: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut body = PlainBody::with_capacity(TYPICAL_ACTION * actions.len()?);
    let table = plain_text(table, "the name of the table")?;
    body.text.push_str("{\"TransactItems\":[");
    if !push_columns(&mut body.text, table, actions) {
        for (place, action) in actions.try_iter()?.enumerate() {
            let action = action?;
            let (verb, name) = Verb::of(&action)?;
            body.text.push_str(if place == 0 { "{\"" } else { ",{\"" });
            body.text.push_str(name);
            body.text.push_str("\":");
            push_action(&mut body, table, verb, &action)?;
            body.text.push('}');
        }
    }
    let mut out = body.text;
    out.push_str("],\"ClientRequestToken\":");
    push_quoted(&mut out, plain_text(token, "an idempotency token")?);
    out.push('}');
    Ok(PyBytes::new(py, out.as_bytes()))
}
