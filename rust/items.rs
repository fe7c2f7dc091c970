//! Items in columns: kinds of their attributes, and positions of their texts.

use pyo3::pybacked::PyBackedBytes;

/// Declares the attributes with a column, and their names in the table.
macro_rules! attributes {
    ($($(#[$about:meta])* $attribute:ident = $name:literal),* $(,)?) => {
        /// An attribute of an entry's item.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Attribute {
            $($(#[$about])* $attribute),*
        }

        impl Attribute {
            /// All attributes, in the order of their columns.
            pub const ALL: [Self; WIDTH] = [$(Self::$attribute),*];

            /// Its name in the table.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$attribute => $name),*
                }
            }

            /// The attribute with a name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$attribute),)*
                    _ => None,
                }
            }
        }
    };
}

attributes! {
    /// The partition key.
    Partition = "path",
    /// The sort key.
    Sort = "children",
    /// Whether this is a directory.
    IsDirectory = "isdir",
    /// Creation time, epoch seconds.
    Ctime = "ctime",
    /// Version.
    Version = "ver",
    /// Object id.
    Id = "id",
    /// Modification time, epoch milliseconds.
    Mtime = "mtime",
    /// Id of the operation that wrote the item.
    Operation = "op",
    /// Bytes of the file.
    Size = "size",
    /// Physical key of the file.
    Physical = "physpath",
    /// Whether the data of the file is durable.
    Committed = "physcommitted",
    /// Etag of the bytes.
    Etag = "etag",
    /// Checksum of the bytes.
    Checksum = "sum",
    /// Mode, owner, read-only and user metadata, as canonical JSON.
    Attributes = "attrs",
    /// The write intent of the entry, as stored.
    Pending = "next",
    /// A reservation's expiry, epoch milliseconds.
    Lease = "lease",
}

/// The number of attributes with a column.
pub const WIDTH: usize = 16;

/// Maximum bytes of texts in a table of items.
pub const MAX_BYTES: usize = 1 << 29;

/// The value of an attribute: its kind, and the position of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell(u64);

/// The kind of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Absent: the item has no such attribute.
    Absent,
    /// A text.
    Text,
    /// An integer, in decimal.
    Number,
    /// A truth value.
    Truth(bool),
}

impl Cell {
    /// No value.
    pub const ABSENT: Self = Self(0);

    const TEXT: u64 = 1;
    const NUMBER: u64 = 2;
    const TRUTH: u64 = 3;

    /// The text from byte `start` to `end`, both below `2 * MAX_BYTES`.
    #[inline]
    pub fn text(start: usize, end: usize) -> Self {
        Self::new(Self::TEXT, start, end)
    }

    /// The number with digits from byte `start` to `end`.
    #[inline]
    pub fn number(start: usize, end: usize) -> Self {
        Self::new(Self::NUMBER, start, end)
    }

    /// A truth value.
    #[inline]
    pub fn truth(value: bool) -> Self {
        Self::new(Self::TRUTH, usize::from(value), usize::from(value))
    }

    #[inline]
    fn new(kind: u64, start: usize, end: usize) -> Self {
        Self((start as u64) | ((end - start) as u64) << 31 | kind << 62)
    }

    /// The kind of value.
    #[inline]
    pub fn kind(self) -> Kind {
        match self.0 >> 62 {
            Self::TEXT => Kind::Text,
            Self::NUMBER => Kind::Number,
            Self::TRUTH => Kind::Truth(self.start() == 1),
            _ => Kind::Absent,
        }
    }

    /// Whether there is no value.
    #[inline]
    pub fn is_absent(self) -> bool {
        self.0 == 0
    }

    /// Its bytes; positions in `written` begin at the end of `body`.
    #[inline]
    pub fn cut<'a>(self, body: &'a [u8], written: &'a [u8]) -> &'a [u8] {
        let (source, start) = match self.start().checked_sub(body.len()) {
            None => (body, self.start()),
            Some(start) => (written, start),
        };
        source.get(start..start + self.length()).unwrap_or_default()
    }

    /// The text of `length` bytes from byte `start` of this one.
    #[inline]
    pub fn part(self, start: usize, length: usize) -> Self {
        Self::text(self.start() + start, self.start() + start + length)
    }

    /// The same value, with its text at another position.
    pub fn moved_to(self, start: usize) -> Self {
        match self.kind() {
            Kind::Absent | Kind::Truth(_) => self,
            Kind::Text | Kind::Number => Self::new(self.0 >> 62, start, start + self.length()),
        }
    }

    /// The part of `new` that this is of `old`, which has the same text.
    #[inline]
    pub fn moved_with(self, old: Self, new: Self) -> Self {
        new.part(self.start().saturating_sub(old.start()), self.length())
    }

    #[allow(clippy::cast_possible_truncation)] // 31 bits
    fn start(self) -> usize {
        (self.0 & 0x7FFF_FFFF) as usize
    }

    #[allow(clippy::cast_possible_truncation)] // 31 bits
    fn length(self) -> usize {
        (self.0 >> 31 & 0x7FFF_FFFF) as usize
    }
}

/// The cells of one item.
pub type Row = [Cell; WIDTH];

/// An attribute without a column.
#[derive(Clone, Copy, Debug)]
pub struct Extra {
    /// The row of its item.
    pub row: usize,
    /// Its name, a text.
    pub name: Cell,
    /// Its value.
    pub value: Cell,
}

/// The bytes of an answer.
pub enum Body {
    /// None: all texts are in `written`.
    Empty,
    /// An immutable Python object.
    Bytes(PyBackedBytes),
    /// Owned bytes.
    Owned(Vec<u8>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Bytes(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A text, and whether it is valid in JSON without escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// The text.
    pub text: &'a str,
    /// Whether it certainly needs no escapes, because it was a JSON string without a backslash.
    pub plain: bool,
}

/// Many items.
pub struct Items {
    /// The source of the texts, which occur in it without escapes.
    pub body: Body,
    /// Unescaped texts. Their positions begin at the end of the body.
    pub written: String,
    /// The items.
    pub rows: Vec<Row>,
    /// The attributes without a column, by row.
    pub extras: Vec<Extra>,
}

impl Items {
    /// The value of an attribute of an item; absent for a missing row.
    #[inline]
    pub fn cell(&self, row: usize, attribute: Attribute) -> Cell {
        self.rows
            .get(row)
            .and_then(|cells| cells.get(attribute as usize))
            .copied()
            .unwrap_or_default()
    }

    /// The text of a cell, or the digits of its number; None for anything else.
    #[inline]
    pub fn text(&self, cell: Cell) -> &str {
        std::str::from_utf8(self.bytes(cell)).unwrap_or_default()
    }

    /// As `text`, and whether it needs escapes.
    pub fn known_text(&self, cell: Cell) -> Text<'_> {
        Text { text: self.text(cell), plain: cell.start() < self.body.bytes().len() }
    }

    /// The UTF-8 of a cell's text.
    #[inline]
    pub fn bytes(&self, cell: Cell) -> &[u8] {
        cell.cut(self.body.bytes(), self.written.as_bytes())
    }

    /// The attributes of an item without a column.
    pub fn extras_of(&self, row: usize) -> &[Extra] {
        let start = self.extras.partition_point(|extra| extra.row < row);
        let end = self.extras.partition_point(|extra| extra.row <= row);
        self.extras.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_keeps_what_it_was_made_of() {
        let largest = Cell::text(2 * MAX_BYTES - 1, 4 * MAX_BYTES - 2);
        assert_eq!((largest.start(), largest.length()), (2 * MAX_BYTES - 1, 2 * MAX_BYTES - 1));
        assert_eq!(largest.kind(), Kind::Text);
        assert_eq!(Cell::number(3, 5).kind(), Kind::Number);
        assert_eq!(Cell::truth(true).kind(), Kind::Truth(true));
        assert_eq!(Cell::truth(false).kind(), Kind::Truth(false));
        assert_eq!(Cell::ABSENT.kind(), Kind::Absent);
        assert!(!Cell::text(0, 0).is_absent());
    }

    #[test]
    fn columns_are_in_order() {
        for (column, attribute) in Attribute::ALL.into_iter().enumerate() {
            assert_eq!(attribute as usize, column);
            assert_eq!(Attribute::named(attribute.name()), Some(attribute));
        }
    }
}
