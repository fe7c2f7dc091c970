//! XML documents of the form that S3 returns: elements that hold either elements or text.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// Maximum nesting of elements in an answer of S3.
const MAX_DEPTH: usize = 16;

/// The elements read from answers; all others are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// The root of a copy's answer.
    CopyObjectResult,
    /// The root of the answer to a deletion of several objects.
    DeleteResult,
    /// The root of a page of a listing.
    ListBucketResult,
    /// The root of an error document; also a key that was not deleted.
    Error,
    /// An object of a listing.
    Contents,
    /// An error code.
    Code,
    /// An error message.
    Message,
    /// An object key.
    Key,
    /// Bytes of an object.
    Size,
    /// An entity tag.
    EntityTag,
    /// The modification time of an object.
    LastModified,
    /// The encoding of keys.
    EncodingType,
    /// Whether another page follows.
    IsTruncated,
    /// The token of the next page.
    NextContinuationToken,
    /// Anything else.
    Other,
}

impl Element {
    fn of(start: &BytesStart<'_>) -> Self {
        match start.name().local_name().into_inner() {
            "CopyObjectResult" => Self::CopyObjectResult,
            "DeleteResult" => Self::DeleteResult,
            "ListBucketResult" => Self::ListBucketResult,
            "Error" => Self::Error,
            "Contents" => Self::Contents,
            "Code" => Self::Code,
            "Message" => Self::Message,
            "Key" => Self::Key,
            "Size" => Self::Size,
            "ETag" => Self::EntityTag,
            "LastModified" => Self::LastModified,
            "EncodingType" => Self::EncodingType,
            "IsTruncated" => Self::IsTruncated,
            "NextContinuationToken" => Self::NextContinuationToken,
            _ => Self::Other,
        }
    }
}

/// The document is malformed, truncated, or not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl From<quick_xml::Error> for Damaged {
    fn from(_: quick_xml::Error) -> Self {
        Self
    }
}

/// The text of a body, without a byte order mark.
fn text_of(body: &[u8]) -> Result<&str, Damaged> {
    let text = str::from_utf8(body).map_err(|_| Damaged)?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The root element of a document, which may be truncated. None for text that is not XML.
pub fn root(body: &[u8]) -> Option<Element> {
    let mut reader = Reader::from_str(text_of(body).ok()?);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) | Event::Empty(start) => return Some(Element::of(&start)),
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// Reads a whole document, and calls back at the end of each element with the elements from the
/// root to it and the text since the last tag (an element's own text only if it holds no elements).
pub fn read(
    body: &[u8],
    mut ended: impl FnMut(&[Element], &str) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    let mut reader = Reader::from_str(text_of(body)?);
    let mut path: Vec<Element> = Vec::with_capacity(MAX_DEPTH);
    let mut text = String::new();
    let mut over = false;
    loop {
        match reader.read_event()? {
            Event::Start(start) => {
                open(&mut path, Element::of(&start), over)?;
                text.clear();
            }
            Event::Empty(start) => {
                open(&mut path, Element::of(&start), over)?;
                ended(&path, "")?;
                path.pop();
                text.clear();
                over = path.is_empty();
            }
            Event::End(_) => {
                ended(&path, &text)?;
                path.pop();
                text.clear();
                over = path.is_empty();
            }
            Event::Text(piece) => push(&mut text, &piece.xml10_content(), &path)?,
            Event::CData(piece) => push(&mut text, &piece.xml10_content(), &path)?,
            Event::GeneralRef(reference) => push(&mut text, &resolved(&reference)?, &path)?,
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::DocType(_) => return Err(Damaged),
            Event::Eof => return if over { Ok(()) } else { Err(Damaged) },
        }
    }
}

fn open(path: &mut Vec<Element>, tag: Element, over: bool) -> Result<(), Damaged> {
    if over || path.len() == MAX_DEPTH {
        return Err(Damaged);
    }
    path.push(tag);
    Ok(())
}

/// Outside the root, only white space is allowed.
fn push(text: &mut String, piece: &str, path: &[Element]) -> Result<(), Damaged> {
    if path.is_empty() {
        return if piece.trim().is_empty() { Ok(()) } else { Err(Damaged) };
    }
    text.push_str(piece);
    Ok(())
}

fn resolved(reference: &BytesRef<'_>) -> Result<Cow<'static, str>, Damaged> {
    if let Some(character) = reference.resolve_char_ref()? {
        return Ok(Cow::Owned(character.to_string()));
    }
    match &**reference {
        "lt" => Ok(Cow::Borrowed("<")),
        "gt" => Ok(Cow::Borrowed(">")),
        "amp" => Ok(Cow::Borrowed("&")),
        "quot" => Ok(Cow::Borrowed("\"")),
        "apos" => Ok(Cow::Borrowed("'")),
        _ => Err(Damaged),
    }
}

/// Appends the text of an element, including white space that a parser would change.
pub fn push_escaped(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\r' => out.push_str("&#13;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(body: &str) -> Result<Vec<(Vec<Element>, String)>, Damaged> {
        let mut found = Vec::new();
        read(body.as_bytes(), |path, text| {
            found.push((path.to_vec(), text.to_owned()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn text_is_unescaped_and_joined() {
        let found = leaves(
            "<?xml version='1.0'?>\n<!-- x --><Error a='1'><Key>a&amp;b&#x20;&#10;<![CDATA[<c>]]>\r\n</Key></Error>\n",
        );
        let key = found.unwrap().swap_remove(0);
        assert_eq!(key, (vec![Element::Error, Element::Key], "a&b \n<c>\n".to_owned()));
    }

    #[test]
    fn prefixes_of_names_are_passed_over() {
        assert_eq!(
            leaves("<s3:Error xmlns:s3='x'><s3:Code/></s3:Error>").unwrap()[0].0,
            [Element::Error, Element::Code]
        );
    }

    #[test]
    fn what_is_not_a_whole_document_is_damaged() {
        for body in [
            "",
            " ",
            "text",
            "<Error>",
            "<Error><Code></Error>",
            "<Error></Code>",
            "<Error/><Error/>",
            "<Error/>x",
            "<Error>&nope;</Error>",
            "<Error>&#0;</Error>",
            "<Error>&</Error>",
            "<!DOCTYPE x><Error/>",
            "{}",
        ] {
            assert_eq!(leaves(body), Err(Damaged), "{body}");
        }
        assert_eq!(read(b"<Error>\xff</Error>", |_, _| Ok(())), Err(Damaged));
        assert_eq!(leaves(&("<a>".repeat(17) + &"</a>".repeat(17))), Err(Damaged));
    }

    #[test]
    fn the_root_is_told_before_the_end() {
        assert_eq!(root(b"\xef\xbb\xbf<?xml version='1.0'?><Error><Co"), Some(Element::Error));
        assert_eq!(root(b"<html>"), Some(Element::Other));
        assert_eq!(root(b""), None);
        assert_eq!(root(b"\xff"), None);
    }

    #[test]
    fn what_was_escaped_reads_back() {
        let text = "a<b>&\"'\t\n\r ]]>\u{85}\u{fffd}😀";
        let mut out = "<Key>".to_owned();
        push_escaped(&mut out, text);
        out.push_str("</Key>");
        assert_eq!(leaves(&out).unwrap()[0].1, text);
    }
}
