//! S3's small operations over objects in memory, by path-style addresses.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use crate::http::{Answer, Part, Request, unquote};

const LIST: usize = 1_000;
/// Most bytes whose entity tag is their MD5 digest, as S3's is; that of more would take too long.
const DIGESTED: usize = 64 * 1024;

/// Objects by `/bucket/key`.
#[derive(Default)]
pub struct Objects {
    objects: BTreeMap<String, Object>,
}

#[derive(Clone)]
struct Object {
    data: Arc<Vec<u8>>,
    etag: String,
}

impl Object {
    fn new(data: Vec<u8>) -> Self {
        let etag = if data.len() <= DIGESTED {
            format!("{:x}", md5::compute(&data))
        } else {
            format!("{:08x}{:024x}", crc32fast::hash(&data), data.len())
        };
        Self { data: Arc::new(data), etag }
    }

    fn headers(&self) -> String {
        format!(
            "etag: \"{}\"\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\naccept-ranges: bytes\r\n\
             content-type: binary/octet-stream\r\n",
            self.etag
        )
    }

    /// The answer with some of the bytes, which are not copied.
    fn answer(&self, status: u16, headers: String, first: usize, end: usize) -> Answer {
        let part = Part { data: Arc::clone(&self.data), range: first..end };
        Answer { part: Some(part), ..Answer::new(status, headers, Vec::new()) }
    }
}

fn xml(body: String) -> Answer {
    Answer::new(200, "content-type: application/xml\r\n".to_owned(), body.into_bytes())
}

fn refusal(status: u16, code: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>canned</Message></Error>"
    );
    Answer::new(status, "content-type: application/xml\r\n".to_owned(), body.into_bytes())
}

/// First and last byte of `bytes=a-b`, `bytes=a-`.
fn range_of(range: &str, size: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let first = first.parse().ok()?;
    let last = if last.is_empty() { size } else { last.parse::<usize>().ok()? + 1 };
    (first < size).then_some((first, last.min(size)))
}

impl Objects {
    /// Forget all objects but those whose last part of the key is `keep`.
    pub fn clear(&mut self, keep: &str) {
        self.objects.retain(|path, _| !keep.is_empty() && path.ends_with(keep));
    }

    /// The answer to a request.
    pub fn answer(&mut self, request: &Request<'_>) -> Answer {
        let path = unquote(request.path);
        let of_bucket =
            path.trim_matches('/').split_once('/').is_none_or(|(_, key)| key.is_empty());
        match request.method {
            "GET" if of_bucket => self.list(&path, request),
            "POST" if request.parameter("delete").is_some() => {
                self.delete_many(&path, &request.body)
            }
            "PUT" if of_bucket => Answer::new(200, String::new(), Vec::new()),
            "HEAD" if of_bucket => {
                Answer::new(200, "x-amz-bucket-region: us-east-1\r\n".to_owned(), Vec::new())
            }
            "PUT" => self.put(path, request),
            "GET" | "HEAD" => self.get(&path, request),
            "DELETE" => {
                self.objects.remove(&path);
                Answer::new(204, String::new(), Vec::new())
            }
            _ => refusal(405, "MethodNotAllowed"),
        }
    }

    fn put(&mut self, path: String, request: &Request<'_>) -> Answer {
        if request.if_none_match && self.objects.contains_key(&path) {
            return refusal(412, "PreconditionFailed");
        }
        if let Some(source) = request.copy_source {
            let source = unquote(source);
            let Some(object) =
                self.objects.get(&format!("/{}", source.trim_start_matches('/'))).cloned()
            else {
                return refusal(404, "NoSuchKey");
            };
            let answer = format!(
                "<?xml version=\"1.0\"?><CopyObjectResult><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>&quot;{}&quot;</ETag></CopyObjectResult>",
                object.etag
            );
            self.objects.insert(path, object);
            return xml(answer);
        }
        let object = Object::new(request.body.to_vec());
        let answer = Answer::new(200, object.headers(), Vec::new());
        self.objects.insert(path, object);
        answer
    }

    fn get(&self, path: &str, request: &Request<'_>) -> Answer {
        let Some(object) = self.objects.get(path) else { return refusal(404, "NoSuchKey") };
        let size = object.data.len();
        if request.method == "HEAD" {
            return Answer { length: Some(size), ..Answer::new(200, object.headers(), Vec::new()) };
        }
        let Some(range) = request.range else {
            return object.answer(200, object.headers(), 0, size);
        };
        let Some((first, end)) = range_of(range, size) else {
            return refusal(416, "InvalidRange");
        };
        let told =
            format!("{}content-range: bytes {first}-{}/{size}\r\n", object.headers(), end - 1);
        object.answer(206, told, first, end)
    }

    fn delete_many(&mut self, bucket: &str, body: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(body);
        let quiet = text.contains("<Quiet>true</Quiet>");
        let mut answer = String::from("<?xml version=\"1.0\"?><DeleteResult>");
        for part in text.split("<Key>").skip(1) {
            if let Some((key, _)) = part.split_once("</Key>") {
                self.objects.remove(&format!("/{}/{key}", bucket.trim_matches('/')));
                if !quiet {
                    let _ = write!(answer, "<Deleted><Key>{key}</Key></Deleted>");
                }
            }
        }
        answer.push_str("</DeleteResult>");
        xml(answer)
    }

    fn list(&self, bucket: &str, request: &Request<'_>) -> Answer {
        let root = format!("/{}/", bucket.trim_matches('/'));
        let prefix = format!("{root}{}", request.parameter("prefix").unwrap_or_default());
        let after =
            request.parameter("continuation-token").or_else(|| request.parameter("start-after"));
        let most = request
            .parameter("max-keys")
            .and_then(|most| most.parse().ok())
            .unwrap_or(LIST)
            .min(LIST);
        let from = after.map_or_else(|| prefix.clone(), |key| format!("{root}{key}\u{1}"));
        let mut found =
            self.objects.range(from..).take_while(|(path, _)| path.starts_with(&prefix));
        let mut body = String::from("<?xml version=\"1.0\"?><ListBucketResult>");
        let mut last = "";
        let mut listed = 0;
        for (path, object) in found.by_ref().take(most) {
            listed += 1;
            last = path.strip_prefix(&root).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = write!(
                body,
                "<Contents><Key>{last}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>&quot;{}&quot;</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                object.etag,
                object.data.len()
            );
        }
        if found.next().is_some() {
            let _ = write!(
                body,
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>"
            );
        } else {
            body.push_str("<IsTruncated>false</IsTruncated>");
        }
        body.push_str("</ListBucketResult>");
        Answer { listed: Some(listed), ..xml(body) }
    }
}
