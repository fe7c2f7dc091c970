//! Fuzz targets: properties of all parsers of foreign bytes in this crate.
//!
//! Each target takes arbitrary bytes. It panics if a parser does, or if a parsed value does not
//! survive a round trip. The coverage-guided runs are in `fuzz/`, with the seeds; the tests below
//! run each target on its seeds and mutations of them.

#![allow(clippy::missing_panics_doc)] // to panic is how a target reports a defect

use std::convert::Infallible;
use std::sync::Arc;

use crate::dynamodb::item_reader::ItemReader;
use crate::dynamodb::response::{batch_frame, item_frame, page_frame, read_answer};
use crate::entries::{EntryColumns, EntryView};
use crate::http;
use crate::items::{Attribute, Body, Items};
use crate::json::read::{Cursor, Damage};
use crate::keys::{KeyForm, Volume, checked_item, is_id};
use crate::operation_lines::{Operation, OperationReader, State, object_in_fact};
use crate::operations::Side;
use crate::paths::{
    check_name, is_name, is_normal, normal, normal_directory, parent_and_name, plain_name,
    push_child,
};
use crate::physical::object_id;
use crate::s3_answers;
use crate::suffix::{Hash, SuffixCount};
use crate::xml;

/// The volume that decoded items belong to.
const VOLUME: &str = "v";

/// The forms of keys of both layouts.
fn forms() -> impl Iterator<Item = KeyForm> {
    Volume::new(VOLUME).map(KeyForm::Path).into_iter().chain([KeyForm::Tree])
}

/// A fuzz target: its name, its function, and valid seed inputs.
pub struct Target {
    /// Its name, which the binaries in `fuzz/` share.
    pub name: &'static str,
    /// Processes an input.
    pub run: fn(&[u8]),
    /// Inputs that are parsed to the end.
    pub seeds: &'static [&'static str],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "page",
        run: page,
        seeds: &[include_str!("../fuzz/seeds/page/1"), include_str!("../fuzz/seeds/page/2")],
    },
    Target { name: "batch", run: batch, seeds: &[include_str!("../fuzz/seeds/batch/1")] },
    Target {
        name: "item",
        run: item,
        seeds: &[
            include_str!("../fuzz/seeds/item/1"),
            include_str!("../fuzz/seeds/item/2"),
            include_str!("../fuzz/seeds/item/3"),
        ],
    },
    Target {
        name: "listing",
        run: listing,
        seeds: &[include_str!("../fuzz/seeds/listing/1"), include_str!("../fuzz/seeds/listing/2")],
    },
    Target {
        name: "refusal",
        run: refusal,
        seeds: &[
            include_str!("../fuzz/seeds/refusal/1"),
            include_str!("../fuzz/seeds/refusal/2"),
            include_str!("../fuzz/seeds/refusal/3"),
        ],
    },
    Target {
        name: "answer",
        run: answer,
        seeds: &[include_str!("../fuzz/seeds/answer/1"), include_str!("../fuzz/seeds/answer/2")],
    },
    Target {
        name: "path",
        run: path,
        seeds: &[
            include_str!("../fuzz/seeds/path/1"),
            include_str!("../fuzz/seeds/path/2"),
            include_str!("../fuzz/seeds/path/3"),
            include_str!("../fuzz/seeds/path/4"),
            include_str!("../fuzz/seeds/path/5"),
            include_str!("../fuzz/seeds/path/6"),
        ],
    },
    Target {
        name: "key",
        run: key,
        seeds: &[
            include_str!("../fuzz/seeds/key/1"),
            include_str!("../fuzz/seeds/key/2"),
            include_str!("../fuzz/seeds/key/3"),
            include_str!("../fuzz/seeds/key/4"),
            include_str!("../fuzz/seeds/key/5"),
        ],
    },
    Target {
        name: "entry_key",
        run: entry_key,
        seeds: &[
            include_str!("../fuzz/seeds/entry_key/1"),
            include_str!("../fuzz/seeds/entry_key/2"),
            include_str!("../fuzz/seeds/entry_key/3"),
        ],
    },
    Target {
        name: "operation",
        run: operation,
        seeds: &[
            include_str!("../fuzz/seeds/operation/1"),
            include_str!("../fuzz/seeds/operation/2"),
            include_str!("../fuzz/seeds/operation/3"),
        ],
    },
    Target {
        name: "physical",
        run: physical,
        seeds: &[
            include_str!("../fuzz/seeds/physical/1"),
            include_str!("../fuzz/seeds/physical/2"),
        ],
    },
];

/// A page of a query or scan, and the entries of its items.
pub fn page(data: &[u8]) {
    if let Ok((items, _)) = read_answer(data, None, page_frame) {
        use_items(items, data);
    }
}

/// The answer to a batch of reads.
pub fn batch(data: &[u8]) {
    if let Ok((items, left)) = read_answer(data, None, |reader| batch_frame(reader, "t")) {
        assert!(left.len() <= data.len());
        use_items(items, data);
    }
}

/// An answer with one item, or an item by itself.
pub fn item(data: &[u8]) {
    if let Ok((items, ())) = read_answer(data, None, item_frame) {
        use_items(items, data);
    }
    if let Ok((items, ())) = read_answer(data, None, alone) {
        use_items(items, data);
    }
}

/// Takes an item outside of an answer.
fn alone(reader: &mut ItemReader<'_>) -> Result<(), Damage> {
    reader.item()
}

/// Runs all operations on parsed items.
fn use_items(mut items: Items, data: &[u8]) {
    items.body = Body::Owned(data.to_vec());
    for row in 0..items.rows.len() {
        for attribute in Attribute::ALL {
            let _ = items.known_text(items.cell(row, attribute));
        }
        for extra in items.extras_of(row) {
            assert!(!items.text(extra.name).is_empty() || items.bytes(extra.name).is_empty());
            let _ = items.text(extra.value);
        }
    }
    let items = Arc::new(items);
    let read = |form: &KeyForm, records| {
        EntryColumns::read(Arc::clone(&items), 0..items.rows.len(), form, records)
    };
    for form in forms() {
        for records in [true, false] {
            let Ok(columns) = read(&form, records) else { continue };
            use_entries(&columns, &form);
            if let KeyForm::Tree = form {
                let Ok(columns) = columns.with_paths(|id| Ok::<_, Infallible>(path_of(id)));
                use_entries(&columns, &form);
            }
        }
    }
}

/// The path of some directories of layout `tree`; those of the others are not known.
fn path_of(id: &str) -> Option<String> {
    id.len().is_multiple_of(2).then(|| format!("/{id}"))
}

/// Uses each entry, and a copy of it.
fn use_entries(columns: &EntryColumns, form: &KeyForm) {
    let views = || (0..columns.len()).filter_map(|row| columns.get(row));
    let gathered = EntryColumns::gather(views());
    assert_eq!(gathered.len(), columns.len());
    for (entry, copy) in views().zip((0..gathered.len()).filter_map(|row| gathered.get(row))) {
        use_entry(&entry, form);
        assert_eq!(described(&entry), described(&copy));
    }
}

/// Checks that an entry has an entry key with the keys that it was read from, a path unless that of
/// its directory is not known, and a readable log line.
fn use_entry(entry: &EntryView<'_>, form: &KeyForm) {
    let (mut path, mut entry_key) = (String::new(), Vec::new());
    entry.push_path(&mut path);
    entry.push_entry_key_bytes(&mut entry_key);
    let (partition, name) = (entry.partition().text, entry.name().text);
    let directory = checked_item(form.directory_of(partition), partition, name);
    assert_eq!(directory, Ok(entry.directory_key()));
    assert_eq!(entry.is_below("/", &mut String::new()), entry.has_path());
    if entry.has_path() {
        assert!(is_normal(&path));
        assert_eq!(parent_and_name(&path), Ok((entry.parent(), name)));
    } else {
        assert_eq!(path.as_bytes(), entry_key);
    }
    match entry.directory_id() {
        Some(id) => {
            assert_eq!(entry_key, format!("{id}/{name}").as_bytes());
            assert!(!entry.has_path() || path_of(id).as_deref() == Some(entry.parent()));
        }
        None => assert_eq!(path.as_bytes(), entry_key),
    }
    assert!(entry.by_path(entry).is_eq());
    assert!(entry.version() > 0 && entry.size() >= 0);
    let line = described(entry);
    let whole = Cursor::new(line.as_bytes()).and_then(|mut cursor| {
        cursor.skip(1)?;
        cursor.end()
    });
    assert_eq!(whole, Ok(()), "{line}");
}

/// An entry in the form of the log.
fn described(entry: &EntryView<'_>) -> String {
    let mut line = String::new();
    let side = Side {
        parent: entry.parent(),
        directory_id: entry.directory_id(),
        version: entry.version(),
        operation: entry.text(Attribute::Operation).text,
        pending: entry.text(Attribute::Pending).text,
    };
    side.push(&mut line, entry);
    line
}

/// A page of `ListObjectsV2`.
pub fn listing(data: &[u8]) {
    if let Ok(page) = s3_answers::listing(data) {
        assert!(page.rows.len() <= data.len());
        assert!(page.next.is_none_or(|token| !token.is_empty()));
        assert_eq!(xml::root(data), Some(xml::Element::ListBucketResult));
    }
}

/// The head of an HTTP answer: it ends with an empty line, no part of it is one, and no value has a
/// line break or outer white space.
pub fn answer(data: &[u8]) {
    let Some(found) = http::head(data) else { return };
    let (whole, _) = data.split_at(found.size);
    assert!(whole.ends_with(b"\r\n\r\n"));
    assert_eq!(http::head(whole).as_ref(), Some(&found));
    assert!((0..found.size).all(|size| http::head(data.split_at(size).0).is_none()));
    for (name, value) in &found.fields {
        assert!(!name.is_empty() && name.is_ascii());
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        assert_eq!(value.trim_ascii(), *value);
    }
    if let Ok(framing) = found.framing() {
        assert!(!(framing.is_chunked && framing.length.is_some()));
        assert!(framing.length.is_none_or(|length| length < 10_u64.pow(18)));
    }
}

/// The other answers of S3.
pub fn refusal(data: &[u8]) {
    let _ = s3_answers::copied(data);
    let _ = s3_answers::refused(data);
    if let Some((code, _)) = s3_answers::refusal(data) {
        assert!(!code.is_empty());
    }
}

/// Checks that normalisation is idempotent, and that parent and name give the path.
pub fn path(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some((directory, name)) = plain_name(&text) {
        assert!(is_name(name));
        if let Ok(directory) = normal_directory(directory) {
            assert!(is_normal(&directory));
        }
    }
    let Ok(found) = normal(&text) else { return };
    assert!(is_normal(&found));
    assert_eq!(normal(&found).as_deref(), Ok(&*found));
    let Ok((parent, name)) = parent_and_name(&found) else {
        assert_eq!(found, "/");
        return;
    };
    let mut joined = String::new();
    push_child(&mut joined, parent, name);
    assert_eq!(joined, found);
}

/// A partition and a sort key, one line each, decode to a directory key and a name, in at most one
/// layout, or are refused.
pub fn key(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (partition, sort) = text.split_once('\n').unwrap_or((&text, ""));
    let mut layouts = 0;
    for form in forms() {
        let Ok(directory) = checked_item(form.directory_of(partition), partition, sort) else {
            continue;
        };
        layouts += 1;
        assert_eq!(check_name(sort), Ok(()));
        match form {
            KeyForm::Path(_) => assert!(is_normal(directory)),
            KeyForm::Tree => assert!(is_id(directory)),
        }
        let suffix = partition.rsplit_once("-sf").and_then(|(_, index)| index.parse().ok());
        let mut again = String::new();
        form.push_partition(&mut again, directory, suffix.unwrap_or_default());
        assert_eq!(again, partition);
    }
    assert!(layouts <= 1);
}

/// An entry key has keys that decode to it, in at most one layout, or is refused.
pub fn entry_key(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(count) = SuffixCount::new(7) else { return };
    let mut layouts = 0;
    for form in forms() {
        for hash in [Hash::Xxh3, Hash::Java31] {
            let Ok((partition, sort)) = form.item_key(&text, count, hash) else { continue };
            layouts += 1;
            let directory = checked_item(form.directory_of(&partition), &partition, &sort);
            let mut again = String::new();
            push_child(&mut again, directory.as_deref().unwrap_or_default(), &sort);
            match form {
                KeyForm::Path(_) => assert_eq!(normal(&text).as_deref(), Ok(&*again)),
                KeyForm::Tree => assert_eq!(text, again),
            }
        }
    }
    assert!(layouts == 0 || layouts == 2);
}

/// A physical key.
pub fn physical(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(id) = object_id(&text) {
        assert!(!id.is_empty() && text.ends_with(id));
    }
}

/// A line of the log, or a fact of the shuffle about it.
pub fn operation(data: &[u8]) {
    for reader in operation_readers() {
        if let Some(found) = reader.read(data) {
            assert_eq!(line_of(&found).as_bytes(), data);
        }
        if let Some(found) = reader.read_fact(data) {
            let line = line_of(&found);
            assert!(reader.read(line.as_bytes()).is_some_and(|again| line_of(&again) == line));
            assert_eq!(object_in_fact(data), Some(found.object));
        }
    }
}

fn operation_readers() -> impl Iterator<Item = OperationReader> {
    let count = SuffixCount::new(1);
    forms().filter_map(move |form| Some(OperationReader::new(form, count?)))
}

/// An operation as the log has it.
fn line_of(operation: &Operation<'_>) -> String {
    let state = |state: &Option<State<'_>>| {
        let mut out = String::new();
        match state {
            Some(state) => state.push_document(&mut out),
            None => out.push_str("null"),
        }
        out
    };
    format!(
        r#"{{"id":"{}","kind":"{}","object":"{}","version":{},"time_ms":{},"before":{},"after":{}}}"#,
        operation.id,
        operation.kind,
        operation.object,
        operation.version,
        operation.time_ms,
        state(&operation.before),
        state(&operation.after),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutations of each seed.
    const ROUNDS: usize = 4000;
    /// Bytes with a meaning in one of the parsers.
    const TELLING: &[u8] = b"\"\\{}[]:,<>&;/%+-.0189eE\0\x1f\x7f\x80\xc3\xed\xff \nuNS";

    /// Xorshift, 64 bits (Marsaglia, 2003).
    struct Choice(u64);

    impl Choice {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 >> 16).unwrap_or_default() % bound.max(1)
        }

        fn byte(&mut self) -> u8 {
            let place = self.below(TELLING.len() + 8);
            TELLING
                .get(place)
                .copied()
                .unwrap_or_else(|| u8::try_from(self.below(256)).unwrap_or_default())
        }

        /// A few bytes changed, removed, repeated or inserted.
        fn mutated(&mut self, seed: &[u8]) -> Vec<u8> {
            let mut data = seed.to_vec();
            for _ in 0..=self.below(4) {
                let (at, length) = (self.below(data.len() + 1), self.below(9));
                let end = (at + length).min(data.len());
                let byte = self.byte();
                match self.below(5) {
                    0 => drop(data.splice(at..end, [])),
                    1 => drop(data.splice(at..at, [byte])),
                    2 => data.truncate(at),
                    3 => {
                        let part = data.get(at..end).unwrap_or_default().to_vec();
                        let to = self.below(data.len() + 1);
                        data.splice(to..to, part);
                    }
                    _ => {
                        if let Some(place) = data.get_mut(at) {
                            *place = byte;
                        }
                    }
                }
            }
            data
        }
    }

    #[test]
    fn foreign_bytes_are_read_or_refused() {
        for target in TARGETS {
            for seed in target.seeds {
                (target.run)(seed.as_bytes());
                let mut choice = Choice(0x9E37_79B9_7F4A_7C15);
                for _ in 0..ROUNDS {
                    (target.run)(&choice.mutated(seed.as_bytes()));
                }
            }
        }
    }

    #[test]
    fn seeds_of_answers_are_read_to_the_end() {
        for target in TARGETS {
            for seed in target.seeds.iter().map(|seed| seed.as_bytes()) {
                let is_read = match target.name {
                    "page" => read_answer(seed, None, page_frame)
                        .is_ok_and(|(items, _)| entries_of(items, seed) > 0),
                    "batch" => read_answer(seed, None, |reader| batch_frame(reader, "t"))
                        .is_ok_and(|(items, left)| entries_of(items, seed) > 0 && !left.is_empty()),
                    "item" => read_answer(seed, None, alone)
                        .is_ok_and(|(items, ())| seed == b"{}" || entries_of(items, seed) > 0),
                    "listing" => s3_answers::listing(seed).is_ok_and(|page| !page.rows.is_empty()),
                    "refusal" => {
                        s3_answers::refusal(seed).is_some()
                            || s3_answers::refused(seed).is_ok_and(|found| !found.is_empty())
                            || s3_answers::copied(seed).is_ok()
                    }
                    "answer" => http::head(seed).is_some_and(|head| head.framing().is_ok()),
                    "operation" => operation_readers().any(|reader| {
                        reader.read(seed).is_some() || reader.read_fact(seed).is_some()
                    }),
                    _ => true,
                };
                assert!(is_read, "{}: {}", target.name, String::from_utf8_lossy(seed));
            }
        }
    }

    fn entries_of(mut items: Items, body: &[u8]) -> usize {
        items.body = Body::Owned(body.to_vec());
        let count = items.rows.len();
        let items = Arc::new(items);
        let columns = forms()
            .filter_map(|form| EntryColumns::read(Arc::clone(&items), 0..count, &form, true).ok());
        columns.map(|columns| columns.len()).sum()
    }
}
