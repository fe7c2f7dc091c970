//! XML answers of S3: pages of a listing, copies, deletions, errors.

use pyo3::prelude::*;

use crate::columns::Strings;
use crate::errors::with_path;
use crate::xml::{Damaged, Element, push_escaped, read, root};

mod python {
    pyo3::import_exception!(s3k_async.errors, ResponseLostError);
}

const DAY_MS: i64 = 86_400_000;

/// An object of a listing: key, bytes, entity tag without quotes, epoch milliseconds.
type Row = (String, u64, String, i64);

/// The error for a damaged answer: the request may have been applied.
fn lost(py: Python<'_>, path: &str) -> PyErr {
    let message = "the answer was damaged before the whole answer came";
    with_path(py.get_type::<python::ResponseLostError>(), message, path)
}

#[derive(Default)]
struct Object {
    key: Option<String>,
    size: Option<u64>,
    etag: String,
    mtime_ms: i64,
}

/// A page of a listing.
#[derive(Default)]
pub struct Listing {
    /// Its objects.
    pub rows: Vec<Row>,
    /// The token of the next page.
    pub next: Option<String>,
    /// Whether another page follows.
    pub truncated: bool,
}

/// Reads a page of `ListObjectsV2`.
pub fn listing(body: &[u8]) -> Result<Listing, Damaged> {
    let mut page = Listing::default();
    let mut object = Object::default();
    let mut encoded = false;
    read(body, |path, text| {
        match path {
            [Element::ListBucketResult] => return Ok(()),
            [Element::ListBucketResult, Element::Contents, field] => match field {
                Element::Key => object.key = Some(text.to_owned()),
                Element::Size => object.size = Some(text.trim().parse().map_err(|_| Damaged)?),
                Element::EntityTag => text.trim_matches('"').clone_into(&mut object.etag),
                Element::LastModified => object.mtime_ms = epoch_ms(text.trim()).ok_or(Damaged)?,
                _ => {}
            },
            [Element::ListBucketResult, Element::Contents] => {
                let ended = std::mem::take(&mut object);
                let (Some(key), Some(size)) = (ended.key, ended.size) else { return Err(Damaged) };
                page.rows.push((key, size, ended.etag, ended.mtime_ms));
            }
            [Element::ListBucketResult, Element::EncodingType] => encoded = text == "url",
            [Element::ListBucketResult, Element::IsTruncated] => {
                page.truncated = text.trim() == "true";
            }
            [Element::ListBucketResult, Element::NextContinuationToken] => {
                page.next = (!text.is_empty()).then(|| text.to_owned());
            }
            [Element::ListBucketResult, ..] => {}
            _ => return Err(Damaged),
        }
        Ok(())
    })?;
    if encoded {
        for row in &mut page.rows {
            row.0 = unquoted(&row.0);
        }
    }
    Ok(page)
}

/// Form decoding: `+` is a space, `%` and two hex digits are a byte.
fn unquoted(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let coded = (byte == b'%').then(|| bytes.get(at + 1..at + 3)).flatten().and_then(hex_pair);
        out.push(coded.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        at += if coded.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn hex_pair(digits: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Epoch milliseconds of an ISO 8601 time such as `2024-01-02T03:04:05.678Z`, to the nearest.
fn epoch_ms(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let mut parts = date.splitn(3, '-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let (clock, offset_minutes) = without_zone(time)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.splitn(3, ':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let plausible = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let seconds = (hour * 60 + minute - offset_minutes) * 60 + second;
    plausible.then_some(
        days_since_epoch(year, month, day) * DAY_MS + seconds * 1000 + milliseconds(fraction)?,
    )
}

fn number(digits: &str) -> Option<i64> {
    let sound =
        !digits.is_empty() && digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if sound { digits.parse().ok() } else { None }
}

/// A time of day, and the offset of its zone from UTC in minutes.
fn without_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix('Z') {
        return Some((clock, 0));
    }
    let (clock, zone) = time.split_at_checked(time.find(['+', '-'])?)?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Some((clock, sign * (number(hours)? * 60 + number(minutes)?)))
}

/// The fraction of a second, rounded to milliseconds.
fn milliseconds(fraction: &str) -> Option<i64> {
    let micros = number(&format!("{fraction:0<6.6}"))?;
    Some((micros + 500) / 1000)
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Reads the answer to `CopyObject`: the entity tag.
pub fn copied(body: &[u8]) -> Result<String, Damaged> {
    let mut etag = None;
    read(body, |path, text| {
        match path {
            [Element::CopyObjectResult, Element::EntityTag] => {
                etag = Some(text.trim_matches('"').to_owned());
            }
            [Element::CopyObjectResult, ..] => {}
            _ => return Err(Damaged),
        }
        Ok(())
    })?;
    etag.ok_or(Damaged)
}

/// Reads the answer to `DeleteObjects`: key, code and message of each refusal.
pub fn refused(body: &[u8]) -> Result<Vec<(String, String, String)>, Damaged> {
    let mut found = Vec::new();
    let mut refusal = <(String, String, String)>::default();
    read(body, |path, text| {
        match path {
            [Element::DeleteResult, Element::Error, field] => match field {
                Element::Key => text.clone_into(&mut refusal.0),
                Element::Code => text.clone_into(&mut refusal.1),
                Element::Message => text.clone_into(&mut refusal.2),
                _ => {}
            },
            [Element::DeleteResult, Element::Error] => found.push(std::mem::take(&mut refusal)),
            [Element::DeleteResult, ..] => {}
            _ => return Err(Damaged),
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads a refusal: code and message.
pub fn refusal(body: &[u8]) -> Option<(String, String)> {
    if root(body) != Some(Element::Error) {
        return None;
    }
    let mut found = <(String, String)>::default();
    let whole = read(body, |path, text| {
        match path {
            [Element::Error, Element::Code] => text.trim().clone_into(&mut found.0),
            [Element::Error, Element::Message] => text.clone_into(&mut found.1),
            _ => {}
        }
        Ok(())
    });
    (whole.is_ok() && !found.0.is_empty()).then_some(found)
}

/// A page of `ListObjectsV2`: its objects, the token of the next page, and whether there is one.
#[pyfunction]
pub fn decode_listing(
    py: Python<'_>,
    body: &[u8],
    path: &str,
) -> PyResult<(Vec<Row>, Option<String>, bool)> {
    let page = py.detach(|| listing(body)).map_err(|_| lost(py, path))?;
    Ok((page.rows, page.next, page.truncated))
}

/// The entity tag of a copy.
#[pyfunction]
pub fn decode_copied(py: Python<'_>, body: &[u8], path: &str) -> PyResult<String> {
    copied(body).map_err(|_| lost(py, path))
}

/// The keys that `DeleteObjects` refused to delete, each with code and message.
#[pyfunction]
pub fn decode_refused(
    py: Python<'_>,
    body: &[u8],
    path: &str,
) -> PyResult<Vec<(String, String, String)>> {
    refused(body).map_err(|_| lost(py, path))
}

/// Code and message of an error document; None for any other body.
#[pyfunction]
pub fn decode_refusal(body: &[u8]) -> Option<(String, String)> {
    refusal(body)
}

/// The body of a `DeleteObjects` request in quiet mode: the answer lists only refused keys.
#[pyfunction]
pub fn encode_deletions(keys: Strings<'_>) -> PyResult<Vec<u8>> {
    let texts = keys.texts()?;
    let mut out =
        String::with_capacity(128 + texts.iter().map(|key| key.len() + 32).sum::<usize>());
    out.push_str("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>");
    for key in texts {
        out.push_str("<Object><Key>");
        push_escaped(&mut out, key);
        out.push_str("</Key></Object>");
    }
    out.push_str("</Delete>");
    Ok(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(epoch_ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(epoch_ms("2024-01-02T03:04:05.678Z"), Some(1_704_164_645_678));
        assert_eq!(epoch_ms("2024-02-29T23:59:60.9996Z"), Some(1_709_251_201_000));
        assert_eq!(epoch_ms("1969-12-31T23:59:59.999Z"), Some(-1));
        assert_eq!(epoch_ms("2024-01-02T05:04:05.678901234+02:00"), Some(1_704_164_645_679));
        for text in [
            "",
            "T",
            "2024-01-02",
            "2024-13-02T00:00:00Z",
            "2024-01-02T00:00:00",
            "2024-01-02T0a:00:00Z",
        ] {
            assert_eq!(epoch_ms(text), None, "{text}");
        }
    }

    #[test]
    fn form_decoding() {
        assert_eq!(unquoted("a+b%2Bc%2520%C3%BC%zz%1"), "a b+c%20ü%zz%1");
        assert_eq!(unquoted("%ff"), "\u{fffd}");
    }

    #[test]
    fn a_page() {
        let page = listing(
            b"<ListBucketResult xmlns='x'><IsTruncated>true</IsTruncated><Contents><ETag>&quot;e&quot;</ETag>\
              <Size>7</Size><Key>a+b</Key><Owner><ID>o</ID></Owner></Contents><CommonPrefixes><Prefix>p</Prefix>\
              </CommonPrefixes><EncodingType>url</EncodingType><NextContinuationToken>n+1</NextContinuationToken>\
              </ListBucketResult>",
        )
        .unwrap();
        assert_eq!(page.rows, [("a b".to_owned(), 7, "e".to_owned(), 0)]);
        assert_eq!((page.next.as_deref(), page.truncated), (Some("n+1"), true));
    }

    #[test]
    fn a_page_that_is_none() {
        for body in [
            "<Error/>",
            "<ListBucketResult><Contents/></ListBucketResult>",
            "<ListBucketResult><Contents><Key>k</Key><Size>-1</Size></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>k</Key><Size>1</Size><LastModified>?</LastModified></Contents></ListBucketResult>",
            "<ListBucketResult>",
        ] {
            assert!(listing(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn refusals() {
        let body =
            b"<DeleteResult><Deleted><Key>d</Key></Deleted><Error><Key>k</Key><Code>C</Code></Error></DeleteResult>";
        assert_eq!(refused(body).unwrap(), [("k".to_owned(), "C".to_owned(), String::new())]);
        assert_eq!(
            refusal(b"<Error><Code>C</Code><Message>m</Message></Error>"),
            Some(("C".into(), "m".into()))
        );
        for none in ["", "<Error><Code>C</Code>", "<Error/>", "<DeleteResult/>", "<html>no</html>"]
        {
            assert_eq!(refusal(none.as_bytes()), None, "{none}");
        }
        assert_eq!(
            copied(b"<CopyObjectResult><ETag>\"e\"</ETag></CopyObjectResult>"),
            Ok("e".to_owned())
        );
        assert!(copied(b"<CopyObjectResult/>").is_err());
    }
}
