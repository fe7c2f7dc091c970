//! Operations in lines of the log, and in facts of the shuffle.
//!
//! Sources of the formats: `oplog/entries.py` and `integrity/shuffle.py`. Only lines in exactly the
//! form in which this package writes them are read here, and everything that the reader of the log
//! refuses is refused.

use std::borrow::Cow;

use crate::entries::UNCOMMITTED;
use crate::json::read::{Cursor, Quoted};
use crate::json::write::{push_ascii_quoted, push_integer};
use crate::keys::{KeyForm, is_id, is_trash};
use crate::operations::MAX_VERSION;
use crate::paths::is_normal;
use crate::suffix::SuffixCount;

/// The state before or after an operation. Texts are as they are escaped, unless stated otherwise.
pub struct State<'a> {
    /// The path.
    pub path: &'a str,
    /// The path without escapes.
    pub place: Cow<'a, str>,
    /// The key of the directory in layout `tree`; None in layout `path`.
    pub directory: Option<&'a str>,
    /// The id of the object.
    pub id: &'a str,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The version.
    pub version: i64,
    /// The time of creation, epoch seconds.
    pub ctime: i64,
    /// The time of the last change, epoch milliseconds.
    pub mtime_ms: i64,
    /// The size, bytes.
    pub size: i64,
    /// The physical object; None for null.
    pub physical: Option<&'a str>,
    /// Whether it is a file whose bytes are durable.
    pub committed: bool,
    /// The etag.
    pub etag: &'a str,
    /// The checksum.
    pub checksum: &'a str,
    /// The attributes; empty for none.
    pub attributes: &'a str,
    /// The id of the operation that wrote it.
    pub operation: &'a str,
    /// The end of the lease, epoch milliseconds.
    pub lease_ms: i64,
    /// The write intent; empty for none.
    pub pending: &'a str,
}

/// An operation.
pub struct Operation<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// The id of the object.
    pub object: &'a str,
    /// The version that it leads to.
    pub version: i64,
    /// Its time, epoch milliseconds.
    pub time_ms: i64,
    /// The state before it.
    pub before: Option<State<'a>>,
    /// The state after it.
    pub after: Option<State<'a>>,
}

impl State<'_> {
    /// Appends it in the form of the log.
    pub fn push_document(&self, out: &mut String) {
        push_text(out, "{\"path\":", self.path);
        if let Some(directory) = self.directory {
            push_text(out, ",\"directory\":", directory);
        }
        push_truth(out, ",\"is_dir\":", self.is_dir);
        push_text(out, ",\"id\":", self.id);
        push_number(out, ",\"version\":", self.version);
        push_number(out, ",\"ctime\":", self.ctime);
        push_number(out, ",\"mtime_ms\":", self.mtime_ms);
        push_number(out, ",\"size\":", self.size);
        match self.physical {
            Some(physical) => push_text(out, ",\"physical\":", physical),
            None => out.push_str(",\"physical\":null"),
        }
        push_truth(out, ",\"committed\":", self.committed);
        push_text(out, ",\"etag\":", self.etag);
        push_text(out, ",\"checksum\":", self.checksum);
        if !self.attributes.is_empty() {
            push_text(out, ",\"attributes\":", self.attributes);
        }
        push_text(out, ",\"operation\":", self.operation);
        push_number(out, ",\"lease_ms\":", self.lease_ms);
        push_text(out, ",\"pending\":", self.pending);
        out.push('}');
    }
}

/// Appends a text as it is escaped.
fn push_text(out: &mut String, name: &str, text: &str) {
    out.push_str(name);
    out.push('"');
    out.push_str(text);
    out.push('"');
}

fn push_number(out: &mut String, name: &str, number: i64) {
    out.push_str(name);
    push_integer(out, number);
}

fn push_truth(out: &mut String, name: &str, is_true: bool) {
    out.push_str(name);
    out.push_str(if is_true { "true" } else { "false" });
}

/// A text of another form.
struct OtherForm;

/// How a line is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As the log has it: objects with names.
    Document,
    /// As the shuffle has it: arrays.
    Row,
}

impl Form {
    /// What precedes the value of this name, which begins with a comma.
    fn sign(self, name: &'static [u8]) -> &'static [u8] {
        match self {
            Self::Document => name,
            Self::Row => b",",
        }
    }
}

/// Reads operations.
pub struct OperationReader {
    /// The form and the suffixes of the keys; None: of any volume.
    keys: Option<(KeyForm, SuffixCount)>,
}

impl OperationReader {
    /// A reader for a volume with keys of this form.
    pub fn new(form: KeyForm, count: SuffixCount) -> Self {
        Self { keys: Some((form, count)) }
    }

    /// A reader that does not know the volume.
    pub fn of_any_volume() -> Self {
        Self { keys: None }
    }

    /// The operation in a line; None if it is not in the form of this package, contradicts itself,
    /// concerns the trash, or has a state that no item of the volume can have.
    pub fn read<'a>(&self, line: &'a [u8]) -> Option<Operation<'a>> {
        let mut cursor = ascii(line)?;
        let id = text_after(&mut cursor, b"{\"id\":")?;
        self.rest(&mut cursor, Form::Document, id)
    }

    /// As `read`, of a fact of the shuffle; None also if the operation is not committed.
    pub fn read_fact<'a>(&self, line: &'a [u8]) -> Option<Operation<'a>> {
        let mut cursor = ascii(line)?;
        let state = text_after(&mut cursor, b"[")?;
        raw_after(&mut cursor, b",")?; // the key of the log object
        let id = text_after(&mut cursor, b",").filter(|_| state == "committed")?;
        self.rest(&mut cursor, Form::Row, id)
    }

    /// The operation, whose id has been taken.
    fn rest<'a>(&self, cursor: &mut Cursor<'a>, form: Form, id: &'a str) -> Option<Operation<'a>> {
        let kind = text_after(cursor, form.sign(b",\"kind\":"))?;
        let object = text_after(cursor, form.sign(b",\"object\":"))?;
        let version = number_after(cursor, form.sign(b",\"version\":"))?;
        let time_ms = number_after(cursor, form.sign(b",\"time_ms\":"))?;
        let before = self.side(cursor, form, b",\"before\":", object).ok()?;
        let after = self.side(cursor, form, b",\"after\":", object).ok()?;
        let end: &[u8] = if form == Form::Row { b"]" } else { b"}" };
        if !cursor.take_text(end) || !cursor.is_at_end() {
            return None;
        }
        let fits = match (kind, &before, &after) {
            ("create" | "update", None, Some(after)) => after.version == version,
            ("update" | "rename", Some(before), Some(after)) => {
                after.version == version && before.version < version
            }
            ("delete", Some(before), None) => before.version.checked_add(1) == Some(version),
            _ => false,
        };
        if !fits || !(1..=MAX_VERSION).contains(&version) || !is_id(id) || !is_id(object) {
            return None;
        }
        Some(Operation { id, kind, object, version, time_ms, before, after })
    }

    /// The state with this name, or null.
    fn side<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        form: Form,
        name: &'static [u8],
        object: &str,
    ) -> Result<Option<State<'a>>, OtherForm> {
        if !cursor.take_text(form.sign(name)) {
            return Err(OtherForm);
        }
        if cursor.take_text(b"null") {
            return Ok(None);
        }
        self.state(cursor, form, object).map(Some).ok_or(OtherForm)
    }

    fn state<'a>(&self, cursor: &mut Cursor<'a>, form: Form, object: &str) -> Option<State<'a>> {
        let is_row = form == Form::Row;
        let path = quoted_after(cursor, if is_row { b"[" } else { b"{\"path\":" })?;
        let mut directory = if !is_row && cursor.take_text(b",\"directory\":") {
            Some(plain(cursor)?)
        } else {
            None
        };
        let is_dir = truth_after(cursor, form.sign(b",\"is_dir\":"))?;
        let id = text_after(cursor, form.sign(b",\"id\":")).filter(|id| *id == object)?;
        let version = number_after(cursor, form.sign(b",\"version\":"))?;
        let ctime = number_after(cursor, form.sign(b",\"ctime\":"))?;
        let mtime_ms = number_after(cursor, form.sign(b",\"mtime_ms\":"))?;
        let size = number_after(cursor, form.sign(b",\"size\":"))?;
        if !(1..=i64::MAX / 1000).contains(&ctime) || version < 1 || size < 0 {
            return None;
        }
        if !cursor.take_text(form.sign(b",\"physical\":")) {
            return None;
        }
        let physical = if cursor.take_text(b"null") { None } else { Some(raw(cursor)?) };
        let committed = truth_after(cursor, form.sign(b",\"committed\":"))?;
        if committed && (is_dir || physical.is_none_or(|physical| physical == UNCOMMITTED)) {
            return None;
        }
        let etag = raw_after(cursor, form.sign(b",\"etag\":"))?;
        let checksum = raw_after(cursor, form.sign(b",\"checksum\":"))?;
        let attributes = if is_row {
            raw_after(cursor, b",")?
        } else if cursor.take_text(b",\"attributes\":") {
            raw(cursor).filter(|text| !text.is_empty())?
        } else {
            ""
        };
        let operation = raw_after(cursor, form.sign(b",\"operation\":"))?;
        let lease_ms = number_after(cursor, form.sign(b",\"lease_ms\":"))?;
        let pending = raw_after(cursor, form.sign(b",\"pending\":"))?;
        if is_row && cursor.take_text(b",") {
            directory = Some(plain(cursor)?);
        }
        if !cursor.take_text(if is_row { b"]" } else { b"}" }) {
            return None;
        }
        let (path, place) = (cursor.raw(path), cursor.text(path).ok()?);
        self.check_place(&place, directory)?;
        Some(State {
            path,
            place,
            directory,
            id,
            is_dir,
            version,
            ctime,
            mtime_ms,
            size,
            physical,
            committed,
            etag,
            checksum,
            attributes,
            operation,
            lease_ms,
            pending,
        })
    }

    /// None unless an item of the volume, or of any, can have the path and the directory key.
    fn check_place(&self, path: &str, directory: Option<&str>) -> Option<()> {
        if path == "/" || !is_normal(path) {
            return None;
        }
        match (&self.keys, directory) {
            (Some((form @ KeyForm::Path(_), count)), None) => {
                let (parent, _) = form.directory_and_name(path).ok()?;
                form.check_length(parent, count.last()).ok()
            }
            // The names of a normalised path fit into keys.
            (None | Some((KeyForm::Tree, _)), Some(directory)) => {
                (is_id(directory) && !is_trash(directory) && is_short(path)).then_some(())
            }
            (None, None) => is_short(path).then_some(()),
            _ => None,
        }
    }
}

/// Whether a path is so short that it could be a key.
fn is_short(path: &str) -> bool {
    path.len() <= crate::limits::MAX_PARTITION_BYTES
}

/// A cursor over a line, which is ASCII without control characters.
fn ascii(line: &[u8]) -> Option<Cursor<'_>> {
    let is_printable = line.iter().all(|byte| (b' '..=b'~').contains(byte));
    if is_printable { Cursor::new(line).ok() } else { None }
}

/// The object id in a fact about a record.
pub fn object_in_fact(line: &[u8]) -> Option<&str> {
    let mut cursor = ascii(line)?;
    raw_after(&mut cursor, b"[")?;
    for _ in 0..3 {
        raw_after(&mut cursor, b",")?; // the key of the log object, the operation id and its kind
    }
    text_after(&mut cursor, b",")
}

/// The string that is next, without white space before it; None if it is escaped in another way
/// than Python's `json.dumps` does.
fn quoted(cursor: &mut Cursor<'_>) -> Option<Quoted> {
    if !cursor.take_text(b"\"") {
        return None;
    }
    let quoted = cursor.string_rest().ok()?;
    if quoted.escaped {
        let mut written = String::new();
        push_ascii_quoted(&mut written, &cursor.text(quoted).ok()?);
        if written.get(1..written.len() - 1) != Some(cursor.raw(quoted)) {
            return None;
        }
    }
    Some(quoted)
}

fn quoted_after(cursor: &mut Cursor<'_>, name: &[u8]) -> Option<Quoted> {
    if cursor.take_text(name) { quoted(cursor) } else { None }
}

/// A string as it is escaped.
fn raw<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    let quoted = quoted(cursor)?;
    Some(cursor.raw(quoted))
}

fn raw_after<'a>(cursor: &mut Cursor<'a>, name: &[u8]) -> Option<&'a str> {
    if cursor.take_text(name) { raw(cursor) } else { None }
}

/// A string without escapes.
fn plain<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    let quoted = quoted(cursor)?;
    (!quoted.escaped).then(|| cursor.raw(quoted))
}

fn text_after<'a>(cursor: &mut Cursor<'a>, name: &[u8]) -> Option<&'a str> {
    if cursor.take_text(name) { plain(cursor) } else { None }
}

/// An integer of 64 bits, without white space before it.
fn number_after(cursor: &mut Cursor<'_>, name: &[u8]) -> Option<i64> {
    if !cursor.take_text(name) {
        return None;
    }
    let start = cursor.at();
    let text = cursor.number().ok()?;
    if cursor.since(start).len() != text.len() || text == "-0" {
        return None;
    }
    text.parse().ok()
}

fn truth_after(cursor: &mut Cursor<'_>, name: &[u8]) -> Option<bool> {
    if !cursor.take_text(name) {
        return None;
    }
    let found = cursor.take_text(b"true");
    (found || cursor.take_text(b"false")).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Volume;

    const STATE: &str = r#"{"path":"/d/\u00e9","is_dir":false,"id":"o","version":2,"ctime":1,"mtime_ms":-5,"size":3,"physical":"k.id=o","committed":true,"etag":"","checksum":"","operation":"p","lease_ms":0,"pending":""}"#;

    fn line(state: &str) -> String {
        format!(
            r#"{{"id":"p","kind":"update","object":"o","version":2,"time_ms":7,"before":null,"after":{state}}}"#
        )
    }

    fn reads(line: &str) -> bool {
        let volume = Volume::new("v").unwrap();
        let count = SuffixCount::new(2).unwrap();
        OperationReader::new(KeyForm::Path(volume), count).read(line.as_bytes()).is_some()
    }

    #[test]
    fn a_line_in_the_form_of_the_log_is_read() {
        let volume = Volume::new("v").unwrap();
        let reader = OperationReader::new(KeyForm::Path(volume), SuffixCount::new(2).unwrap());
        let line = line(STATE);
        let operation = reader.read(line.as_bytes()).unwrap();
        assert_eq!((operation.object, operation.version, operation.time_ms), ("o", 2, 7));
        assert!(operation.before.is_none());
        let after = operation.after.unwrap();
        let mut document = String::new();
        after.push_document(&mut document);
        assert_eq!(document, STATE);
        assert_eq!((after.path, after.place.as_ref()), (r"/d/\u00e9", "/d/é"));
        assert_eq!((after.mtime_ms, after.size, after.physical), (-5, 3, Some("k.id=o")));
    }

    #[test]
    fn another_spelling_of_the_same_operation_is_not_read() {
        for (old, new) in [
            (r#""id":"p""#, r#""id": "p""#),
            (r#""version":2"#, r#""version": 2"#),
            (r#""before":null"#, r#""before": null"#),
            (r#""committed":true"#, r#""committed": true"#),
            (r#""lease_ms":0"#, r#""lease_ms":-0"#),
            (r#""lease_ms":0"#, r#""lease_ms":0.0"#),
            (r#""lease_ms":0"#, r#""lease_ms":0e0"#),
            (r"\u00e9", r"\u00E9"),
            (r"/d/", r"\/d\/"),
            (r#""k.id=o""#, r#""\u006b.id=o""#),
            (r#""checksum":"""#, r#""checksum":"","attributes":"""#),
            ("}}", "}} "),
            ("}}", "}}\n"),
            (r#"{"id""#, r#" {"id""#),
        ] {
            let changed = line(STATE).replacen(old, new, 1);
            assert_ne!(changed, line(STATE));
            assert!(!reads(&changed), "{changed}");
        }
    }

    #[test]
    fn a_fact_is_read_as_the_line_of_its_operation() {
        let state = r#"["/d/\u00e9",false,"o",2,1,-5,3,"k.id=o",true,"","","","p",0,""]"#;
        let fact =
            format!(r#"["committed","segments/s.committed","p","update","o",2,7,null,{state}]"#);
        let volume = Volume::new("v").unwrap();
        let reader = OperationReader::new(KeyForm::Path(volume), SuffixCount::new(2).unwrap());
        let after = reader.read_fact(fact.as_bytes()).unwrap().after.unwrap();
        let mut document = String::new();
        after.push_document(&mut document);
        assert_eq!(document, STATE);
        assert_eq!(object_in_fact(fact.as_bytes()), Some("o"));
        for (old, new) in [
            ("committed", "pending"),
            (",null,", ", null,"),
            ("]]", "],[]]"),
            (r#""o",2,7"#, r#""q",2,7"#),
            (r#",0,""]"#, r#",0,"","d"]"#),
        ] {
            let changed = fact.replacen(old, new, 1);
            assert_ne!(changed, fact);
            assert!(reader.read_fact(changed.as_bytes()).is_none(), "{changed}");
        }
    }
}
