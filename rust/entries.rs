//! Entries in columns, decoded from items of a volume's table.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::sync::Arc;

use crate::errors::BadItem;
use crate::items::{Attribute, Body, Cell, Items, Kind, Row, Text, WIDTH};
use crate::keys::{KeyForm, checked_item, is_entry_partition, is_id, is_reserved};
use crate::paths::{is_name, push_child};
use crate::recent::Recent;

/// Value of `physpath` for a file whose data is not durable yet.
pub const UNCOMMITTED: &str = "<uncommitted>";

/// The decoded values of a row of the table, except texts.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// The row of the item; there are fewer rows than input bytes.
    row: u32,
    /// The position of the directory key in the partition key.
    directory: Cell,
    /// Whether the item is one of layout `tree`.
    in_tree: bool,
    is_dir: bool,
    committed: bool,
    version: i64,
    ctime: i64,
    mtime_ms: i64,
    size: i64,
    lease_ms: i64,
}

/// Paths of directories in layout `tree`, as far as they are known; none in layout `path`.
#[derive(Default)]
struct DirectoryPaths {
    texts: Vec<Box<str>>,
    /// For each row of the items the index of the path of its directory, or `Self::UNKNOWN`.
    rows: Vec<u32>,
}

impl DirectoryPaths {
    const UNKNOWN: u32 = u32::MAX;

    #[inline]
    fn get(&self, row: u32) -> Option<&str> {
        let text = self.texts.get(*self.rows.get(row as usize)? as usize)?;
        Some(text)
    }

    /// Adds a path, and returns its index.
    fn add(&mut self, path: impl Into<Box<str>>) -> u32 {
        self.texts.push(path.into());
        row_number(self.texts.len() - 1)
    }

    fn set(&mut self, row: u32, text: u32) {
        let row = row as usize;
        if self.rows.len() <= row {
            self.rows.resize(row + 1, Self::UNKNOWN);
        }
        if let Some(place) = self.rows.get_mut(row) {
            *place = text;
        }
    }
}

/// Many entries.
pub struct EntryColumns {
    items: Arc<Items>,
    facts: Vec<Facts>,
    paths: DirectoryPaths,
}

/// One of many entries.
#[derive(Clone, Copy)]
pub struct EntryView<'a> {
    items: &'a Items,
    paths: &'a DirectoryPaths,
    facts: &'a Facts,
}

impl Facts {
    #[inline]
    fn item(&self) -> usize {
        self.row as usize
    }
}

impl EntryColumns {
    /// The entries of items; with `records`, without items that are records of the volume.
    ///
    /// Refuses the first item that S3-FileSystem 1.0 would refuse.
    pub fn read(
        items: Arc<Items>,
        rows: impl ExactSizeIterator<Item = usize>,
        form: &KeyForm,
        records: bool,
    ) -> Result<Self, BadItem> {
        let directory_start = form.directory_start();
        let mut facts: Vec<Facts> = Vec::with_capacity(rows.len());
        for row in rows {
            let item = ItemView { items: &items, row, form, directory_start };
            if records && !item.is_entry() {
                continue;
            }
            let neighbour = facts.last().copied();
            facts.push(item.facts(neighbour)?);
        }
        Ok(Self { items, facts, paths: DirectoryPaths::default() })
    }

    /// The entries among items that are to be kept, and the indexes of all other items.
    pub fn read_some(
        items: Arc<Items>,
        rows: impl ExactSizeIterator<Item = usize>,
        form: &KeyForm,
        mut keep: impl FnMut(&EntryView<'_>) -> bool,
    ) -> (Self, Vec<usize>) {
        let directory_start = form.directory_start();
        let paths = DirectoryPaths::default();
        let mut facts: Vec<Facts> = Vec::with_capacity(rows.len());
        let mut others = Vec::new();
        for (place, row) in rows.enumerate() {
            let item = ItemView { items: &items, row, form, directory_start };
            match item.facts(facts.last().copied()) {
                Ok(read) if keep(&EntryView { items: &items, paths: &paths, facts: &read }) => {
                    facts.push(read);
                }
                _ => others.push(place),
            }
        }
        (Self { items, facts, paths }, others)
    }

    /// The same entries of layout `tree`, with the paths of their directories as far as `path_of`
    /// knows them by directory key. It is called once for each run of entries of one directory.
    pub fn with_paths<E>(
        mut self,
        path_of: impl Fn(&str) -> Result<Option<String>, E>,
    ) -> Result<Self, E> {
        let mut run: Option<(&[u8], Option<u32>)> = None;
        for facts in &self.facts {
            let directory = self.items.bytes(facts.directory);
            let text = match run {
                Some((last, text)) if last == directory => text,
                _ => path_of(self.items.text(facts.directory))?.map(|path| self.paths.add(path)),
            };
            run = Some((directory, text));
            if let Some(text) = text {
                self.paths.set(facts.row, text);
            }
        }
        Ok(self)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// The entry of a row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<EntryView<'_>> {
        self.facts.get(row).map(|facts| EntryView { items: &self.items, paths: &self.paths, facts })
    }

    /// New columns with some entries of any columns, in this order.
    pub fn gather<'a>(entries: impl Iterator<Item = EntryView<'a>>) -> Self {
        let mut written = String::new();
        let mut rows: Vec<Row> = Vec::with_capacity(entries.size_hint().0);
        let mut facts = Vec::with_capacity(entries.size_hint().0);
        let mut paths = DirectoryPaths::default();
        let most = entries.size_hint().1.unwrap_or_default();
        let mut texts: Option<Recent<'a, u32>> = None;
        for entry in entries {
            let (items, item) = (entry.items, entry.facts.item());
            let mut row = [Cell::ABSENT; WIDTH];
            for (attribute, place) in Attribute::ALL.into_iter().zip(&mut row) {
                let cell = items.cell(item, attribute);
                *place = cell.moved_to(written.len());
                written.push_str(items.text(cell));
            }
            let partition = items.cell(item, Attribute::Partition);
            let moved = row.get(Attribute::Partition as usize).copied().unwrap_or_default();
            let number = row_number(rows.len());
            facts.push(Facts {
                row: number,
                directory: entry.facts.directory.moved_with(partition, moved),
                ..*entry.facts
            });
            rows.push(row);
            if let Some(path) = entry.known_parent() {
                let texts = texts.get_or_insert_with(|| Recent::for_rows(most));
                let Ok(text) = texts.get_or_make(path, || Ok::<_, Infallible>(paths.add(path)));
                let text = *text;
                paths.set(number, text);
            }
        }
        let items = Items { body: Body::Empty, written, rows, extras: Vec::new() };
        Self { items: Arc::new(items), facts, paths }
    }
}

fn row_number(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

/// One item that may be an entry.
struct ItemView<'a> {
    items: &'a Items,
    row: usize,
    form: &'a KeyForm,
    /// The position of the directory key in a partition key.
    directory_start: usize,
}

impl ItemView<'_> {
    fn cell(&self, attribute: Attribute) -> Cell {
        self.items.cell(self.row, attribute)
    }

    fn is_entry(&self) -> bool {
        is_entry_partition(self.items.bytes(self.cell(Attribute::Partition)))
    }

    #[inline]
    fn facts(&self, neighbour: Option<Facts>) -> Result<Facts, BadItem> {
        let keys = self
            .text(Attribute::Partition)
            .and_then(|partition| Ok((partition, self.text(Attribute::Sort)?)));
        let (partition, sort) = keys.map_err(|reason| self.refused(reason))?;
        let directory = self.directory(partition, sort, neighbour)?;
        self.meaning(directory).map_err(|reason| self.refused_at(directory, reason))
    }

    /// The decoded attributes, or the error of invalid ones.
    #[inline]
    fn meaning(&self, directory: Cell) -> Result<Facts, String> {
        let in_tree = matches!(self.form, KeyForm::Tree);
        let is_dir = self.truth(Attribute::IsDirectory)?;
        let ctime = self.number(Attribute::Ctime)?;
        let id = self.text(Attribute::Id)?;
        let version = self.number(Attribute::Version)?;
        let mtime_ms = self.number_or(Attribute::Mtime, ctime.checked_mul(1000))?;
        let size = if is_dir { 0 } else { self.number_or(Attribute::Size, Some(0))? };
        let physical = if is_dir { None } else { Some(self.text(Attribute::Physical)?) };
        // A file without the flag was written before the flag existed, hence committed.
        let committed = !is_dir && self.truth_or(Attribute::Committed, true)?;
        for attribute in
            [Attribute::Etag, Attribute::Checksum, Attribute::Attributes, Attribute::Operation]
        {
            self.text_or_nothing(attribute)?;
        }
        let lease_ms = self.number_or(Attribute::Lease, Some(0))?;
        self.text_or_nothing(Attribute::Pending)?;
        if ctime <= 0 || version <= 0 || size < 0 || self.items.bytes(id).is_empty() {
            return Err("ctime and version must be positive, size not negative, the id not empty"
                .to_owned());
        }
        if ctime.checked_mul(1000).is_none() {
            return Err(too_large(Attribute::Ctime));
        }
        if in_tree {
            self.check_directory_id(id, is_dir)?;
        }
        if committed
            && physical.is_some_and(|cell| self.items.bytes(cell) == UNCOMMITTED.as_bytes())
        {
            return Err("a committed file must name its physical object".to_owned());
        }
        Ok(Facts {
            row: row_number(self.row),
            directory,
            in_tree,
            is_dir,
            committed,
            version,
            ctime,
            mtime_ms,
            size,
            lease_ms,
        })
    }

    /// Refuses the id of a directory without an item, and of a directory whose children could have
    /// no keys.
    fn check_directory_id(&self, id: Cell, is_dir: bool) -> Result<(), String> {
        if is_reserved(self.items.bytes(id)) {
            return Err("the id is that of the root or of the trash".to_owned());
        }
        if is_dir && !is_id(self.items.text(id)) {
            return Err("the id of a directory must be 1 to 64 ASCII letters, digits, '-' and '_'"
                .to_owned());
        }
        Ok(())
    }

    /// The directory key in the partition key.
    #[inline]
    fn directory(
        &self,
        partition: Cell,
        sort: Cell,
        neighbour: Option<Facts>,
    ) -> Result<Cell, BadItem> {
        let name = self.items.text(sort);
        // The items of a page usually have one partition key, which is decoded once.
        if let Some(facts) = neighbour {
            let known = self.items.cell(facts.item(), Attribute::Partition);
            if self.items.bytes(known) == self.items.bytes(partition) {
                if !is_name(name) {
                    checked_item(Ok(""), self.items.text(partition), name)?;
                }
                return Ok(facts.directory.moved_with(known, partition));
            }
        }
        let key = self.items.text(partition);
        let directory = checked_item(self.form.directory_of(key), key, name)?;
        Ok(partition.part(self.directory_start, directory.len()))
    }

    fn text(&self, attribute: Attribute) -> Result<Cell, String> {
        let cell = self.cell(attribute);
        if cell.kind() == Kind::Text { Ok(cell) } else { Err(mistyped(attribute, "str")) }
    }

    fn text_or_nothing(&self, attribute: Attribute) -> Result<(), String> {
        if self.cell(attribute).is_absent() { Ok(()) } else { self.text(attribute).map(drop) }
    }

    fn truth(&self, attribute: Attribute) -> Result<bool, String> {
        match self.cell(attribute).kind() {
            Kind::Truth(truth) => Ok(truth),
            _ => Err(mistyped(attribute, "bool")),
        }
    }

    fn truth_or(&self, attribute: Attribute, otherwise: bool) -> Result<bool, String> {
        if self.cell(attribute).is_absent() { Ok(otherwise) } else { self.truth(attribute) }
    }

    fn number(&self, attribute: Attribute) -> Result<i64, String> {
        let cell = self.cell(attribute);
        if cell.kind() != Kind::Number {
            return Err(mistyped(attribute, "int"));
        }
        whole(self.items.bytes(cell)).ok_or_else(|| too_large(attribute))
    }

    fn number_or(&self, attribute: Attribute, otherwise: Option<i64>) -> Result<i64, String> {
        if self.cell(attribute).is_absent() {
            return otherwise.ok_or_else(|| too_large(Attribute::Ctime));
        }
        self.number(attribute)
    }

    #[cold]
    fn refused(&self, reason: String) -> BadItem {
        let shown = |attribute| {
            let cell = self.cell(attribute);
            match cell.kind() {
                Kind::Absent => "None",
                Kind::Truth(true) => "True",
                Kind::Truth(false) => "False",
                Kind::Text | Kind::Number => self.items.text(cell),
            }
        };
        BadItem {
            reason,
            place: format!("{} / {}", shown(Attribute::Partition), shown(Attribute::Sort)),
        }
    }

    #[cold]
    fn refused_at(&self, directory: Cell, reason: String) -> BadItem {
        let (directory, name) =
            (self.items.text(directory), self.items.text(self.cell(Attribute::Sort)));
        let mut place = String::new();
        push_child(&mut place, directory, name);
        BadItem { reason, place }
    }
}

#[cold]
fn mistyped(attribute: Attribute, kind: &str) -> String {
    format!("attribute '{}' is missing or not of type {kind}", attribute.name())
}

#[cold]
fn too_large(attribute: Attribute) -> String {
    format!("attribute '{}' does not fit into 64 bits", attribute.name())
}

/// A decimal integer, if it fits.
#[inline]
fn whole(digits: &[u8]) -> Option<i64> {
    if digits.len() <= 18 && digits.first() != Some(&b'-') {
        // Any number of so few digits fits.
        return Some(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')));
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl<'a> EntryView<'a> {
    /// Its directory key: in layout `path` the path of its directory, in layout `tree` the id.
    #[inline]
    pub fn directory_key(&self) -> &'a str {
        self.items.text(self.facts.directory)
    }

    /// The id of its directory in layout `tree`; None in layout `path`.
    #[inline]
    pub fn directory_id(&self) -> Option<&'a str> {
        self.facts.in_tree.then(|| self.directory_key())
    }

    /// Whether its path is known: always in layout `path`.
    pub fn has_path(&self) -> bool {
        !self.facts.in_tree || self.known_parent().is_some()
    }

    /// The path of its directory, if it is of layout `tree` and known.
    #[inline]
    fn known_parent(&self) -> Option<&'a str> {
        self.paths.get(self.facts.row)
    }

    /// Path of its directory; in layout `tree`, where it is not known, the directory key.
    #[inline]
    pub fn parent(&self) -> &'a str {
        self.known_parent().unwrap_or_else(|| self.directory_key())
    }

    #[inline]
    fn parent_bytes(&self) -> &'a [u8] {
        let path = self.known_parent().map(str::as_bytes);
        path.unwrap_or_else(|| self.items.bytes(self.facts.directory))
    }

    /// Name in the directory.
    #[inline]
    pub fn name(&self) -> Text<'a> {
        self.text(Attribute::Sort)
    }

    /// Appends the path; in layout `tree`, where that of the directory is not known, the entry key.
    #[inline]
    pub fn push_path(&self, out: &mut String) {
        push_child(out, self.parent(), self.items.text(self.cell(Attribute::Sort)));
    }

    /// As `push_path`, in UTF-8.
    #[inline]
    pub fn push_path_bytes(&self, out: &mut Vec<u8>) {
        self.push_child_bytes(out, self.parent_bytes());
    }

    /// Appends the UTF-8 of the entry key.
    #[inline]
    pub fn push_entry_key_bytes(&self, out: &mut Vec<u8>) {
        self.push_child_bytes(out, self.items.bytes(self.facts.directory));
    }

    #[inline]
    fn push_child_bytes(&self, out: &mut Vec<u8>, parent: &[u8]) {
        out.extend_from_slice(parent.strip_suffix(b"/").unwrap_or(parent));
        out.push(b'/');
        out.extend_from_slice(self.bytes(Attribute::Sort));
    }

    /// Partition key of the item.
    pub fn partition(&self) -> Text<'a> {
        self.text(Attribute::Partition)
    }

    /// The text of an attribute, empty if there is none.
    #[inline]
    pub fn text(&self, attribute: Attribute) -> Text<'a> {
        self.items.known_text(self.cell(attribute))
    }

    /// The UTF-8 of the text of an attribute, empty if there is none.
    #[inline]
    pub fn bytes(&self, attribute: Attribute) -> &'a [u8] {
        self.items.bytes(self.cell(attribute))
    }

    #[inline]
    fn cell(&self, attribute: Attribute) -> Cell {
        self.items.cell(self.facts.item(), attribute)
    }

    /// Whether the item has the attribute, with whatever value.
    pub fn has(&self, attribute: Attribute) -> bool {
        !self.cell(attribute).is_absent()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.facts.is_dir
    }

    /// Whether it is a file whose bytes are durable.
    pub fn committed(&self) -> bool {
        self.facts.committed
    }

    /// Whether it is a file whose bytes are not durable yet.
    pub fn is_reservation(&self) -> bool {
        !self.facts.is_dir && !self.facts.committed
    }

    /// Whether its attributes say that it must not be changed.
    pub fn is_read_only(&self) -> bool {
        // In canonical JSON no name or text contains this without a backslash.
        self.text(Attribute::Attributes).text.contains("\"read_only\":true")
    }

    /// Whether its attributes contain user metadata.
    pub fn has_metadata(&self) -> bool {
        self.text(Attribute::Attributes).text.contains("\"metadata\":{")
    }

    /// Whether it has a write intent.
    #[inline]
    pub fn has_intent(&self) -> bool {
        !self.bytes(Attribute::Pending).is_empty()
    }

    /// Version.
    pub fn version(&self) -> i64 {
        self.facts.version
    }

    /// Creation time, epoch seconds.
    pub fn ctime(&self) -> i64 {
        self.facts.ctime
    }

    /// Creation time, epoch milliseconds.
    pub fn ctime_ms(&self) -> i64 {
        // Checked when it was read.
        self.facts.ctime.saturating_mul(1000)
    }

    /// Modification time, epoch milliseconds.
    pub fn mtime_ms(&self) -> i64 {
        self.facts.mtime_ms
    }

    /// Bytes of the file.
    pub fn size(&self) -> i64 {
        self.facts.size
    }

    /// A reservation's expiry, epoch milliseconds, else 0.
    pub fn lease_ms(&self) -> i64 {
        self.facts.lease_ms
    }

    /// The present or future physical key; None for a directory.
    pub fn physical(&self) -> Option<Text<'a>> {
        (!self.facts.is_dir).then(|| self.text(Attribute::Physical))
    }

    /// Whether the path begins with this text. `path` is a buffer.
    pub fn is_below(&self, prefix: &str, path: &mut String) -> bool {
        path.clear();
        self.push_path(path);
        path.starts_with(prefix)
    }

    /// The order of paths by UTF-8 bytes, component after component.
    pub fn by_path(&self, other: &Self) -> Ordering {
        let (parent, others) = (self.parent_bytes(), other.parent_bytes());
        let (name, others_name) = (self.bytes(Attribute::Sort), other.bytes(Attribute::Sort));
        if parent == others {
            return name.cmp(others_name);
        }
        // The separator sorts before everything that can be in a name.
        let components = |parent: &'a [u8], name: &'a [u8]| {
            let parent = parent.strip_suffix(b"/").unwrap_or(parent);
            let parent = parent.iter().map(|&byte| if byte == b'/' { 0 } else { byte });
            parent.chain([0]).chain(name.iter().copied())
        };
        components(parent, name).cmp(components(others, others_name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_as_far_as_they_fit() {
        for number in [0, 7, -7, i64::MAX, i64::MIN, 999_999_999_999_999_999] {
            assert_eq!(whole(number.to_string().as_bytes()), Some(number));
        }
        assert_eq!(whole(b"0000000000000000000000000012"), Some(12));
        assert_eq!(whole(b"9223372036854775808"), None);
    }
}
