//! Bodies of `DynamoDB` requests, from the values of the item port.
//!
//! Source: the Amazon `DynamoDB` API Reference (`GetItem`, `BatchGetItem`, `Query`, `Scan`,
//! `PutItem`, `UpdateItem`, `DeleteItem`, `TransactWriteItems`, `BatchWriteItem`).

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyMapping, PyString, PyType};

use crate::errors::{bad_argument, text_of};
use crate::moves::push_actions;
use crate::quote::push_quoted;

const PARTITION: &str = "path";
/// Bytes of an action in a body, about.
const TYPICAL_ACTION: usize = 768;

/// A key given as a pair of texts.
type PyKey<'py> = (Bound<'py, PyString>, Bound<'py, PyString>);

/// What an action does.
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
            let module = py.import("s3k_async.stores.items")?;
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

/// Text of an item that is no part of a key.
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
        out.push_str("{\"S\":");
        push_quoted(out, plain_text(text, "the text of an attribute")?);
    } else if let Ok(truth) = value.cast::<PyBool>() {
        out.push_str(if truth.is_true() { "{\"BOOL\":true" } else { "{\"BOOL\":false" });
    } else if value.is_instance_of::<PyInt>() {
        out.push_str("{\"N\":\"");
        out.push_str(&value.call_method0(intern!(value.py(), "__int__"))?.str()?.to_string_lossy());
        out.push('"');
    } else {
        let kind = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "an attribute is a str, int or bool, not a {kind}"
        )));
    }
    out.push('}');
    Ok(())
}

fn push_number(out: &mut String, number: &Bound<'_, PyInt>) -> PyResult<()> {
    out.push_str(&number.str()?.to_string_lossy());
    Ok(())
}

/// Appends `{"path":{"S":…},"children":{"S":…}}`.
pub fn push_key(out: &mut String, partition: &str, sort: &str) {
    out.push_str("{\"path\":{\"S\":");
    push_quoted(out, partition);
    out.push_str("},\"children\":{\"S\":");
    push_quoted(out, sort);
    out.push_str("}}");
}

fn push_py_key(out: &mut String, key: &PyKey<'_>) -> PyResult<()> {
    push_key(out, text_of(&key.0)?, text_of(&key.1)?);
    Ok(())
}

/// The names and values that the expressions of one action refer to.
#[derive(Default)]
struct Expressions {
    names: Vec<String>,
    values: String,
    value_count: usize,
}

impl Expressions {
    fn push_name(&mut self, out: &mut String, attribute: &str) {
        let place = self.names.iter().position(|name| name == attribute).unwrap_or_else(|| {
            self.names.push(attribute.to_owned());
            self.names.len() - 1
        });
        out.push_str("#n");
        out.push_str(&place.to_string());
    }

    fn push_value(&mut self, out: &mut String, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let placeholder = format!(":v{}", self.value_count);
        out.push_str(&placeholder);
        if self.value_count > 0 {
            self.values.push(',');
        }
        self.value_count += 1;
        push_quoted(&mut self.values, &placeholder);
        self.values.push(':');
        push_value(&mut self.values, value)
    }

    fn condition(&mut self, when: &Bound<'_, PyAny>) -> PyResult<String> {
        let py = when.py();
        let mut out = String::with_capacity(128);
        if !when.getattr(intern!(py, "exists"))?.is_truthy()? {
            self.push_call(&mut out, "attribute_not_exists", PARTITION);
            return Ok(out);
        }
        self.push_call(&mut out, "attribute_exists", PARTITION);
        each_pair(&when.getattr(intern!(py, "equals"))?, |name, value| {
            out.push_str(" AND ");
            self.push_name(&mut out, plain_text(name, "the name of an attribute")?);
            out.push_str(" = ");
            self.push_value(&mut out, value)
        })?;
        for name in when.getattr(intern!(py, "missing"))?.try_iter()? {
            out.push_str(" AND ");
            let name = name?.cast_into::<PyString>()?;
            self.push_call(
                &mut out,
                "attribute_not_exists",
                plain_text(&name, "the name of an attribute")?,
            );
        }
        Ok(out)
    }

    fn push_call(&mut self, out: &mut String, function: &str, attribute: &str) {
        out.push_str(function);
        out.push('(');
        self.push_name(out, attribute);
        out.push(')');
    }

    fn update(&mut self, action: &Bound<'_, PyAny>) -> PyResult<String> {
        let py = action.py();
        let (mut out, mut clause) = (String::new(), "SET ");
        each_pair(&action.getattr(intern!(py, "set"))?, |name, value| {
            out.push_str(clause);
            clause = ", ";
            self.push_name(&mut out, plain_text(name, "the name of an attribute")?);
            out.push_str(" = ");
            self.push_value(&mut out, value)
        })?;
        clause = if out.is_empty() { "REMOVE " } else { " REMOVE " };
        for name in action.getattr(intern!(py, "remove"))?.try_iter()? {
            out.push_str(clause);
            clause = ", ";
            self.push_name(
                &mut out,
                plain_text(&name?.cast_into::<PyString>()?, "the name of an attribute")?,
            );
        }
        Ok(out)
    }

    fn push_fields(&self, out: &mut String) {
        out.push_str(",\"ExpressionAttributeNames\":{");
        for (place, name) in self.names.iter().enumerate() {
            out.push_str(if place == 0 { "\"#n" } else { ",\"#n" });
            out.push_str(&place.to_string());
            out.push_str("\":");
            push_quoted(out, name);
        }
        out.push('}');
        if self.value_count > 0 {
            out.push_str(",\"ExpressionAttributeValues\":{");
            out.push_str(&self.values);
            out.push('}');
        }
    }
}

/// Appends an item: `{"path":{"S":…},…}`.
fn push_item(out: &mut String, item: &Bound<'_, PyAny>) -> PyResult<()> {
    out.push('{');
    let mut first = true;
    each_pair(item, |name, value| {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        push_quoted(out, plain_text(name, "the name of an attribute")?);
        out.push(':');
        push_value(out, value)
    })?;
    out.push('}');
    Ok(())
}

fn push_action(
    out: &mut String,
    table: &str,
    verb: Verb,
    action: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = action.py();
    let mut expressions = Expressions::default();
    out.push_str("{\"TableName\":");
    push_quoted(out, table);
    out.push_str(",\"ConditionExpression\":");
    push_quoted(out, &expressions.condition(&action.getattr(intern!(py, "when"))?)?);
    if verb == Verb::Put {
        out.push_str(",\"Item\":");
        push_item(out, &action.getattr(intern!(py, "item"))?)?;
    } else {
        out.push_str(",\"Key\":");
        push_py_key(out, &action.getattr(intern!(py, "key"))?.extract()?)?;
    }
    if verb == Verb::Update {
        out.push_str(",\"UpdateExpression\":");
        push_quoted(out, &expressions.update(action)?);
    }
    expressions.push_fields(out);
    out.push_str(",\"ReturnValuesOnConditionCheckFailure\":\"ALL_OLD\"}");
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
        push_number(out, limit)?;
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
    out.push_str(",\"ExpressionAttributeValues\":{\":p\":{\"S\":");
    push_quoted(&mut out, text_of(partition)?);
    out.push_str("}}");
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
    push_number(&mut out, segment)?;
    out.push_str(",\"TotalSegments\":");
    push_number(&mut out, segments)?;
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
    let mut out = String::with_capacity(1024);
    let verb = Verb::of(action)?.0;
    if verb == Verb::Check {
        return Err(PyTypeError::new_err("a Check is part of a transaction"));
    }
    push_action(&mut out, plain_text(table, "the name of the table")?, verb, action)?;
    Ok(PyBytes::new(py, out.as_bytes()))
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
    let mut out = String::with_capacity(TYPICAL_ACTION * actions.len()?);
    let table = plain_text(table, "the name of the table")?;
    out.push_str("{\"TransactItems\":[");
    if !push_actions(&mut out, table, actions) {
        for (place, action) in actions.try_iter()?.enumerate() {
            let action = action?;
            let (verb, name) = Verb::of(&action)?;
            out.push_str(if place == 0 { "{\"" } else { ",{\"" });
            out.push_str(name);
            out.push_str("\":");
            push_action(&mut out, table, verb, &action)?;
            out.push('}');
        }
    }
    out.push_str("],\"ClientRequestToken\":");
    push_quoted(&mut out, plain_text(token, "an idempotency token")?);
    out.push('}');
    Ok(PyBytes::new(py, out.as_bytes()))
}
