//! AWS Signature Version 4, in the `Authorization` header.
//!
//! Source: "AWS Signature Version 4 for API requests" in the AWS IAM User Guide; for S3,
//! "Authenticating Requests (AWS Signature Version 4)" in the S3 API Reference.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, KeyInit as _, Mac as _};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use sha2::{Digest as _, Sha256};

use crate::digest::RELEASE_BYTES;
use crate::errors::{bad_argument, bad_credentials};
use crate::hex::push_hex;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DYNAMODB_CONTENT_TYPE: &str = "application/x-amz-json-1.0";
/// Block size of SHA-256, to which a key of HMAC is padded.
const BLOCK: usize = 64;
/// The first millisecond of the year 10000, which a date of eight digits cannot represent.
const END_OF_DATES_MS: i64 = 253_402_300_800_000;
/// Headers that proxies may change.
const UNSIGNED: [&str; 6] = [
    "accept-encoding",
    "connection",
    "expect",
    "transfer-encoding",
    "user-agent",
    "x-amzn-trace-id",
];

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    let mut block = [0; BLOCK];
    let digest;
    let short = if key.len() > BLOCK {
        digest = Sha256::digest(key);
        digest.as_slice()
    } else {
        key
    };
    block.iter_mut().zip(short).for_each(|(to, from)| *to = *from);
    Hmac::new(&block.into())
}

fn mac(key: &[u8], data: &str) -> [u8; 32] {
    hmac(key).chain_update(data).finalize().into_bytes().into()
}

/// A time in the form of signatures: `20261121T070000Z`.
#[derive(Clone, PartialEq, Eq)]
struct Moment(String);

impl Moment {
    /// From milliseconds since the epoch; None outside the years 1970 to 9999.
    fn new(time_ms: i64) -> Option<Self> {
        if !(0..END_OF_DATES_MS).contains(&time_ms) {
            return None;
        }
        let seconds = time_ms / 1000;
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let mut text = String::with_capacity(16);
        let _infallible =
            write!(text, "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z");
        Some(Self(text))
    }

    /// The day: `20261121`.
    fn date(&self) -> &str {
        self.0.get(..8).unwrap_or_default()
    }
}

/// Year, month and day from days since 1970-01-01, by eras of 400 years of the proleptic Gregorian
/// calendar, with years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Canonical headers: names in lower case and sorted, values with single spaces.
struct Canonical(Vec<(String, String)>);

impl Canonical {
    fn of<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut signed: Vec<(String, String)> = Vec::new();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            if UNSIGNED.contains(&name.as_str()) {
                continue;
            }
            let mut text = String::with_capacity(value.len());
            for word in value.split_whitespace() {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(word);
            }
            match signed.iter_mut().find(|(known, _)| *known == name) {
                Some((_, joined)) => {
                    joined.push(',');
                    joined.push_str(&text);
                }
                None => signed.push((name, text)),
            }
        }
        signed.sort();
        Self(signed)
    }

    fn names(&self) -> String {
        self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";")
    }
}

/// The signed parts of a request except the headers. Path and query are in canonical form.
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    body_sha256: &'a str,
}

impl Request<'_> {
    fn digest(&self, headers: &Canonical, names: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [self.method, self.path, self.query] {
            hash.update(part);
            hash.update("\n");
        }
        for (name, value) in &headers.0 {
            hash.update(name);
            hash.update(":");
            hash.update(value);
            hash.update("\n");
        }
        for part in ["\n", names, "\n", self.body_sha256] {
            hash.update(part);
        }
        hash.finalize().into()
    }
}

/// The derived key for a day, a region and a service.
struct DayKey {
    scope: String,
    key: Hmac<Sha256>,
}

/// Signs requests for one service in one region with one set of credentials.
#[pyclass(frozen, module = "s3k_async._native")]
pub struct Signer {
    access_key: String,
    /// The secret, after the prefix of the key derivation.
    secret: String,
    token: Option<String>,
    region: String,
    service: String,
    day: Mutex<Option<DayKey>>,
}

impl Signer {
    fn authorization(&self, request: &Request<'_>, headers: &Canonical, moment: &Moment) -> String {
        let names = headers.names();
        let digest = request.digest(headers, &names);
        let mut held = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |held: &DayKey| held.scope.get(..8) == Some(moment.date());
        let day = match held.take().filter(fresh) {
            Some(day) => held.insert(day),
            None => held.insert(self.day_key(moment.date())),
        };
        let mut text = String::with_capacity(256);
        for part in [ALGORITHM, "\n", &moment.0, "\n", &day.scope, "\n"] {
            text.push_str(part);
        }
        push_hex(&mut text, &digest);
        let signature = day.key.clone().chain_update(&text).finalize().into_bytes();
        text.clear();
        for part in [
            ALGORITHM,
            " Credential=",
            &self.access_key,
            "/",
            &day.scope,
            ", SignedHeaders=",
            &names,
        ] {
            text.push_str(part);
        }
        text.push_str(", Signature=");
        push_hex(&mut text, &signature);
        text
    }

    fn day_key(&self, date: &str) -> DayKey {
        let mut key = mac(self.secret.as_bytes(), date);
        for part in [&self.region, &self.service, "aws4_request"] {
            key = mac(&key, part);
        }
        DayKey {
            scope: format!("{date}/{}/{}/aws4_request", self.region, self.service),
            key: hmac(&key),
        }
    }
}

/// A credential's text. The error does not contain the text.
fn credential(text: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = text
        .cast::<PyString>()
        .map_err(|_| bad_credentials("a part of the credentials is no text"))?;
    match text.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(bad_credentials("a part of the credentials cannot be encoded as UTF-8")),
    }
}

fn text<'a>(string: &'a Bound<'_, PyString>, what: &str) -> PyResult<&'a str> {
    string.to_str().map_err(|cause| {
        let error = bad_argument(format!("the {what} of a request cannot be encoded as UTF-8"));
        error.set_cause(string.py(), Some(cause));
        error
    })
}

fn moment_of(time_ms: i64) -> PyResult<Moment> {
    Moment::new(time_ms).ok_or_else(|| bad_argument(format!("no date has {time_ms} ms since 1970")))
}

#[pymethods]
impl Signer {
    #[new]
    #[pyo3(signature = (access_key, secret_key, token, region, service))]
    fn new(
        access_key: &Bound<'_, PyAny>,
        secret_key: &Bound<'_, PyAny>,
        token: Option<&Bound<'_, PyAny>>,
        region: &Bound<'_, PyString>,
        service: &Bound<'_, PyString>,
    ) -> PyResult<Self> {
        Ok(Self {
            access_key: credential(access_key)?,
            secret: format!("AWS4{}", credential(secret_key)?),
            token: token.map(credential).transpose()?,
            region: text(region, "region")?.to_owned(),
            service: text(service, "service")?.to_owned(),
            day: Mutex::new(None),
        })
    }

    fn __repr__(&self) -> String {
        format!("<Signer {} {}>", self.service, self.region)
    }

    /// The headers to send: the given ones, and the signature over all of them.
    #[allow(clippy::too_many_arguments)] // a request has that many parts
    fn headers<'py>(
        &self,
        py: Python<'py>,
        method: &Bound<'py, PyString>,
        host: Bound<'py, PyString>,
        path: &Bound<'py, PyString>,
        query: &Bound<'py, PyString>,
        headers: Vec<(Bound<'py, PyString>, Bound<'py, PyString>)>,
        body_sha256: Bound<'py, PyString>,
        time_ms: i64,
    ) -> PyResult<Bound<'py, PyList>> {
        let moment = moment_of(time_ms)?;
        let mut all = headers;
        all.push((intern!(py, "Host").clone(), host));
        all.push((intern!(py, "X-Amz-Date").clone(), PyString::new(py, &moment.0)));
        if self.service == "s3" {
            all.push((intern!(py, "X-Amz-Content-SHA256").clone(), body_sha256.clone()));
        }
        if let Some(token) = &self.token {
            all.push((intern!(py, "X-Amz-Security-Token").clone(), PyString::new(py, token)));
        }
        let texts =
            all.iter().map(|(name, value)| Ok((text(name, "headers")?, text(value, "headers")?)));
        let canonical = Canonical::of(texts.collect::<PyResult<Vec<_>>>()?.into_iter());
        let request = Request {
            method: text(method, "method")?,
            path: text(path, "path")?,
            query: text(query, "query")?,
            body_sha256: text(&body_sha256, "digest")?,
        };
        let authorization = self.authorization(&request, &canonical, &moment);
        all.push((intern!(py, "Authorization").clone(), PyString::new(py, &authorization)));
        PyList::new(py, all)
    }

    /// All headers of a request to `DynamoDB` except the content length.
    fn dynamodb<'py>(
        &self,
        py: Python<'py>,
        host: &Bound<'py, PyString>,
        target: &Bound<'py, PyString>,
        body: &[u8],
        time_ms: i64,
    ) -> PyResult<Bound<'py, PyList>> {
        let moment = moment_of(time_ms)?;
        let digest = if body.len() > RELEASE_BYTES {
            py.detach(|| Sha256::digest(body))
        } else {
            Sha256::digest(body)
        };
        let mut body_sha256 = String::with_capacity(64);
        push_hex(&mut body_sha256, &digest);
        let sent = [
            ("content-type", DYNAMODB_CONTENT_TYPE),
            ("host", text(host, "host")?),
            ("x-amz-date", &moment.0),
            ("x-amz-security-token", self.token.as_deref().unwrap_or_default()),
            ("x-amz-target", text(target, "target")?),
        ];
        let sent = sent
            .into_iter()
            .filter(|(name, _)| self.token.is_some() || *name != "x-amz-security-token");
        let canonical = Canonical::of(sent);
        let request = Request { method: "POST", path: "/", query: "", body_sha256: &body_sha256 };
        let authorization = self.authorization(&request, &canonical, &moment);
        let mut headers = vec![
            (intern!(py, "Host"), host.clone()),
            (intern!(py, "Content-Type"), intern!(py, DYNAMODB_CONTENT_TYPE).clone()),
            (intern!(py, "Accept-Encoding"), intern!(py, "identity").clone()),
            (intern!(py, "X-Amz-Target"), target.clone()),
            (intern!(py, "X-Amz-Date"), PyString::new(py, &moment.0)),
            (intern!(py, "Authorization"), PyString::new(py, &authorization)),
        ];
        if let Some(token) = &self.token {
            headers.push((intern!(py, "X-Amz-Security-Token"), PyString::new(py, token)));
        }
        let pairs =
            headers.into_iter().map(|(name, value)| PyTuple::new(py, [name.clone(), value]));
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "19700101T000000Z"),
            (951_782_400_000, "20000229T000000Z"),
            (951_868_799_999, "20000229T235959Z"),
            (1_369_353_600_000, "20130524T000000Z"),
            (1_709_164_800_000, "20240229T000000Z"),
            (4_107_542_400_000, "21000301T000000Z"),
            (END_OF_DATES_MS - 1, "99991231T235959Z"),
        ];
        for (time_ms, wanted) in cases {
            assert_eq!(Moment::new(time_ms).unwrap().0, wanted, "{time_ms}");
        }
        assert!(Moment::new(-1).is_none() && Moment::new(END_OF_DATES_MS).is_none());
    }

    #[test]
    fn hmac_takes_keys_of_any_length() {
        // RFC 4231, test cases 2 and 6.
        let mut text = String::new();
        push_hex(&mut text, &mac(b"Jefe", "what do ya want for nothing?"));
        push_hex(
            &mut text,
            &mac(&[0xaa; 131], "Test Using Larger Than Block-Size Key - Hash Key First"),
        );
        assert_eq!(
            text,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843\
             60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
