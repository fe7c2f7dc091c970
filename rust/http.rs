//! Heads of HTTP/1.1 messages: requests that are sent, answers that arrive.
//!
//! As in RFC 9112, read strictly: what that standard lets a recipient repair or guess is an error,
//! since another reading of the same bytes might be another body.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

mod python {
    pyo3::import_exception!(s3k_async.errors, InvalidArgumentError);
    pyo3::import_exception!(s3k_async.errors, ResponseLostError);
}

/// Fields of a head, at most.
const MOST_FIELDS: usize = 128;
/// Digits of a length, at most.
const MOST_DIGITS: usize = 18;
const LINE_END: &[u8] = b"\r\n";

/// What makes an answer unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// More fields than the limit.
    Fields,
    /// Two lengths or codings, or a length that is no number.
    Length,
    /// A transfer coding that is unknown, beside a length, or in HTTP/1.0.
    Coding,
}

impl Malformed {
    fn text(self) -> &'static str {
        match self {
            Self::Fields => "a head over the limit",
            Self::Length => "the length",
            Self::Coding => "the transfer coding",
        }
    }
}

impl From<Malformed> for PyErr {
    fn from(malformed: Malformed) -> Self {
        let what = malformed.text();
        python::ResponseLostError::new_err(format!("the answer cannot be understood ({what})"))
    }
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Head<'a> {
    minor_version: u8,
    /// The status code.
    pub status: u16,
    /// Names and values, these without white space around them, in their order.
    pub fields: Vec<(&'a [u8], &'a [u8])>,
    /// Its bytes.
    pub size: usize,
}

/// Where the body of an answer ends.
#[derive(Debug, PartialEq, Eq)]
pub struct Framing {
    /// The announced length of the body.
    pub length: Option<u64>,
    /// Whether the body is chunked.
    pub is_chunked: bool,
    /// Whether another request may follow on the connection.
    pub is_persistent: bool,
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= 0x80 || (0x20..0x7f).contains(&byte)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The longest beginning of bytes of one kind, and the rest.
fn leading(data: &[u8], is_in: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = data.iter().position(|&byte| !is_in(byte)).unwrap_or(data.len());
    data.split_at_checked(end).unwrap_or((data, &[]))
}

fn without_space(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The head at the beginning of `data`; None if it is not whole, or malformed.
#[must_use]
pub fn head(data: &[u8]) -> Option<Head<'_>> {
    let (version, rest) = data.strip_prefix(b"HTTP/1.")?.split_first()?;
    let (digits, rest) = rest.strip_prefix(b" ")?.split_at_checked(3)?;
    if !matches!(version, b'0' | b'1') || digits.first() == Some(&b'0') {
        return None;
    }
    let status = u16::try_from(number(digits)?).ok()?;
    let reason = rest.strip_prefix(b" ").map_or(rest, |reason| leading(reason, is_text).1);
    let mut rest = reason.strip_prefix(LINE_END)?;
    let mut fields = Vec::with_capacity(16);
    while !rest.starts_with(LINE_END) {
        let (name, after) = leading(rest, is_token);
        let (value, after) = leading(after.strip_prefix(b":")?, is_text);
        if name.is_empty() {
            return None;
        }
        fields.push((name, without_space(value)));
        rest = after.strip_prefix(LINE_END)?;
    }
    let size = data.len() - rest.len() + LINE_END.len();
    Some(Head { minor_version: version - b'0', status, fields, size })
}

impl Head<'_> {
    /// The only value of a field.
    fn single(&self, wanted: &str) -> Result<Option<&[u8]>, Malformed> {
        let mut values = self.values(wanted);
        let value = values.next();
        if values.next().is_some() { Err(Malformed::Length) } else { Ok(value) }
    }

    fn values(&self, wanted: &str) -> impl Iterator<Item = &[u8]> {
        let is_wanted = move |name: &[u8]| name.eq_ignore_ascii_case(wanted.as_bytes());
        self.fields.iter().filter(move |(name, _)| is_wanted(name)).map(|(_, value)| *value)
    }

    /// Where the body ends.
    pub fn framing(&self) -> Result<Framing, Malformed> {
        let length = self.single("content-length")?;
        let coding = self.single("transfer-encoding")?;
        let is_usable = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked") && length.is_none();
        if coding.is_some_and(|coding| !(self.minor_version > 0 && is_usable(coding))) {
            return Err(Malformed::Coding);
        }
        Ok(Framing {
            length: length.map(|digits| number(digits).ok_or(Malformed::Length)).transpose()?,
            is_chunked: coding.is_some(),
            is_persistent: self.minor_version > 0 && !self.values("connection").any(has_close),
        })
    }
}

fn has_close(value: &[u8]) -> bool {
    value.windows(b"close".len()).any(|part| part.eq_ignore_ascii_case(b"close"))
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > MOST_DIGITS {
        return None;
    }
    digits.iter().try_fold(0, |sum: u64, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0'))
    })
}

/// ISO 8859-1, as which fields are read.
fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.is_ascii() => PyString::new(py, text),
        _ => PyString::new(py, &bytes.iter().copied().map(char::from).collect::<String>()),
    }
}

type Answer<'py> = (u16, usize, Bound<'py, PyDict>, Option<u64>, bool, bool);

/// The head of an answer at a position of `data`: status, where it ends, fields by name in lower
/// case, length of the body, whether that is chunked, whether the connection persists. None if it
/// is not whole, or malformed. Of a field that occurs twice the first value counts. Of an
/// informational answer only the first two are read.
#[pyfunction]
pub fn answer_head<'py>(py: Python<'py>, data: &[u8], at: usize) -> PyResult<Option<Answer<'py>>> {
    let Some(head) = data.get(at..).and_then(head) else { return Ok(None) };
    if head.fields.len() > MOST_FIELDS {
        return Err(Malformed::Fields.into());
    }
    let fields = PyDict::new(py);
    let end = at + head.size;
    if head.status < 200 {
        return Ok(Some((head.status, end, fields, None, false, true)));
    }
    let Framing { length, is_chunked, is_persistent } = head.framing()?;
    for (name, value) in head.fields.iter().rev() {
        fields.set_item(latin1(py, &name.to_ascii_lowercase()), latin1(py, value))?;
    }
    Ok(Some((head.status, end, fields, length, is_chunked, is_persistent)))
}

/// The head of a request. `fixed`: further fields, as lines with their ends; `length`: of the body,
/// None for a request without one. Raises `InvalidArgumentError` for a line break in a part.
#[pyfunction]
pub fn request_head<'py>(
    py: Python<'py>,
    method: &str,
    target: &str,
    fixed: &str,
    headers: Vec<(Bound<'py, PyString>, Bound<'py, PyString>)>,
    length: Option<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut head = String::with_capacity(1024);
    let mut push = |part: &str, end: &str| {
        if part.contains(['\r', '\n']) {
            let message = "a header of a request has a line break";
            return Err(python::InvalidArgumentError::new_err(message));
        }
        head.push_str(part);
        head.push_str(end);
        Ok(())
    };
    push(method, " ")?;
    push(target, " HTTP/1.1\r\n")?;
    for (name, value) in &headers {
        push(name.to_str()?, ": ")?;
        push(value.to_str()?, "\r\n")?;
    }
    if let Some(length) = length {
        push("Content-Length", ": ")?;
        push(&length.to_string(), "\r\n")?;
    }
    head.push_str(fixed);
    head.push_str("\r\n");
    Ok(PyBytes::new(py, head.as_bytes()))
}
