//! HTTP/1.1 with keep-alive, as much as the clients of two services need.

use std::borrow::Cow;
use std::fmt::Write;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MOST_HEADERS: usize = 64;
/// Bodies up to this size go out in one buffer with their head.
const SMALL: usize = 16 * 1024;

/// A request that has come whole.
pub struct Request<'a> {
    pub method: &'a str,
    /// As sent, still percent-encoded.
    pub path: &'a str,
    pub query: &'a str,
    /// `x-amz-target`.
    pub target: Option<&'a str>,
    pub range: Option<&'a str>,
    pub if_none_match: bool,
    pub copy_source: Option<&'a str>,
    /// Without the chunks in which it may have come.
    pub body: Cow<'a, [u8]>,
}

impl Request<'_> {
    /// The decoded value of a query parameter; empty where it has none.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then(|| unquote(value))
        })
    }
}

/// Text without its percent-encoding.
pub fn unquote(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
            let value = std::str::from_utf8(&digits)
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            plain.push(value.unwrap_or(b'?'));
        } else {
            plain.push(byte);
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Where a request lies in the buffer.
#[derive(Clone, Copy)]
pub struct Size {
    head: usize,
    body: usize,
    in_chunks: bool,
}

/// Some of the bytes of an object.
pub struct Part {
    pub data: Arc<Vec<u8>>,
    pub range: Range<usize>,
}

/// A response.
pub struct Answer {
    pub status: u16,
    /// Whole lines, each with its line end.
    pub headers: String,
    pub body: Vec<u8>,
    /// What is sent instead of the body.
    pub part: Option<Part>,
    /// What `content-length` says where it is not the body's: an answer to HEAD.
    pub length: Option<usize>,
    /// The number of keys in a listing of objects.
    pub listed: Option<usize>,
}

impl Answer {
    /// An answer with a body.
    pub fn new(status: u16, headers: String, body: Vec<u8>) -> Self {
        Self { status, headers, body, part: None, length: None, listed: None }
    }

    /// A DynamoDB answer with its checksum.
    pub fn json(status: u16, body: Vec<u8>) -> Self {
        let crc = crc32fast::hash(&body);
        let headers = format!(
            "content-type: application/x-amz-json-1.0\r\nx-amz-crc32: {crc}\r\nx-amzn-requestid: CANNED\r\n"
        );
        Self::new(status, headers, body)
    }
}

/// One client's connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::with_capacity(SMALL) }
    }

    /// Read until a whole request is in the buffer; None at the end or for what is no request.
    pub async fn receive(&mut self) -> io::Result<Option<Size>> {
        let mut told_to_continue = false;
        loop {
            if let Some(framing) = Framing::of(&self.buffer) {
                let come = self.buffer.len() - framing.head;
                let length = framing.length(&self.buffer);
                if let Some(body) = length.filter(|&length| come >= length) {
                    return Ok(Some(Size {
                        head: framing.head,
                        body,
                        in_chunks: framing.told.is_none(),
                    }));
                }
                if framing.wants_continue && !told_to_continue {
                    told_to_continue = true;
                    self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
                self.buffer.reserve(length.map_or(SMALL, |length| length - come));
            } else {
                self.buffer.reserve(SMALL);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The request of that size at the front of the buffer.
    pub fn request(&self, size: Size) -> Option<Request<'_>> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        parsed.parse(self.buffer.get(..size.head)?).ok()?;
        let (path, query) = parsed.path?.split_once('?').unwrap_or((parsed.path?, ""));
        let find = |name: &str| {
            let header =
                parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(header.value).ok()
        };
        let mut body = Cow::Borrowed(self.buffer.get(size.head..size.head + size.body)?);
        if size.in_chunks {
            body = Cow::Owned(unchunked(&body)?.0);
        }
        if find("x-amz-decoded-content-length").is_some() {
            body = Cow::Owned(unchunked(&body)?.0);
        }
        Some(Request {
            method: parsed.method?,
            path,
            query,
            target: find("x-amz-target"),
            range: find("range"),
            if_none_match: find("if-none-match").is_some(),
            copy_source: find("x-amz-copy-source"),
            body,
        })
    }

    /// Forget the request at the front.
    pub fn consume(&mut self, size: Size) {
        self.buffer.drain(..size.head + size.body);
    }

    /// Send an answer.
    pub async fn send(&mut self, answer: &Answer, is_head: bool) -> io::Result<()> {
        let reason = if answer.status < 300 { "OK" } else { "Error" };
        let body = answer.part.as_ref().map_or(answer.body.as_slice(), |part| {
            part.data.get(part.range.clone()).unwrap_or_default()
        });
        let length = answer.length.unwrap_or(body.len());
        let mut head = String::with_capacity(256);
        let written = write!(
            head,
            "HTTP/1.1 {} {reason}\r\n{}content-length: {length}\r\n\r\n",
            answer.status, answer.headers
        );
        written.map_err(io::Error::other)?;
        let body: &[u8] = if is_head { &[] } else { body };
        if body.len() <= SMALL {
            let mut whole = head.into_bytes();
            whole.extend_from_slice(body);
            return self.stream.write_all(&whole).await;
        }
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.write_all(body).await
    }
}

/// How the request at the front of the buffer says where it ends.
struct Framing {
    head: usize,
    /// `content-length`, or None for a body in chunks.
    told: Option<usize>,
    /// Whether its client waits for `100 Continue`.
    wants_continue: bool,
}

impl Framing {
    fn of(buffer: &[u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(head) = parsed.parse(buffer).ok()? else { return None };
        let mut framing = Self { head, told: Some(0), wants_continue: false };
        for header in parsed.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                framing.told = Some(std::str::from_utf8(header.value).ok()?.trim().parse().ok()?);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                framing.told = None;
            } else if header.name.eq_ignore_ascii_case("expect") {
                framing.wants_continue = true;
            }
        }
        Some(framing)
    }

    /// Bytes of the body as it is sent; None while that is not known.
    fn length(&self, buffer: &[u8]) -> Option<usize> {
        self.told.or_else(|| unchunked(buffer.get(self.head..)?).map(|(_, length)| length))
    }
}

/// The data of a body in chunks, those of HTTP and those of S3 (`aws-chunked`) alike, and the
/// length of the whole with sizes and trailers; None while some of it is missing.
fn unchunked(body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut data = Vec::new();
    let mut at = 0;
    loop {
        let line = line_at(body, &mut at)?;
        let digits = line.split(|&byte| byte == b';').next()?;
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?.trim(), 16).ok()?;
        if size == 0 {
            while !line_at(body, &mut at)?.is_empty() {}
            return Some((data, at));
        }
        data.extend_from_slice(body.get(at..at.checked_add(size)?)?);
        at += size + 2;
    }
}

/// The line that begins at a place, which moves behind it.
fn line_at<'a>(body: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = body.get(*at..)?;
    let end = memchr::memmem::find(rest, b"\r\n")?;
    *at += end + 2;
    rest.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_and_their_end_is_found() {
        let body = b"5;chunk-signature=0\r\nhello\r\n1\r\n!\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\nGET /next";
        let end = body.len() - b"GET /next".len();
        assert_eq!(unchunked(body), Some((b"hello!".to_vec(), end)));
        for cut in 0..end {
            assert_eq!(unchunked(&body[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_request_tells_where_it_ends() {
        let sized = b"PUT /a HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        let framing = Framing::of(sized).unwrap();
        assert_eq!(
            (framing.head, framing.length(sized), framing.wants_continue),
            (sized.len(), Some(5), true)
        );
        let chunked = b"PUT /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
        let framing = Framing::of(chunked).unwrap();
        assert_eq!(framing.length(chunked), Some(chunked.len() - framing.head));
        assert_eq!(framing.length(&chunked[..framing.head + 3]), None);
    }
}
