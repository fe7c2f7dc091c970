//! Items in the JSON of `DynamoDB`: `{"name": {"S": "text"}, …}` (Amazon `DynamoDB` API Reference,
//! `AttributeValue`).

use std::collections::HashSet;

use crate::items::{Attribute, Body, Cell, Extra, Items, MAX_BYTES, Row, WIDTH};
use crate::json::read::{Cursor, Damage, Quoted, WHOLE_DIGITS};
use crate::json::write::push_quoted;

/// Maximum nesting of values. `DynamoDB` allows 32.
const MAX_NESTING: usize = 64;

const NOT_A_VALUE: &str = "this is no attribute value";
const TWICE: &str = "an attribute stands twice";

/// The types of the attributes of entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Text,
    Number,
    Truth,
}

/// The text that last followed an attribute, up to the start of the next value: `"ver":{"N":"`.
#[derive(Clone, Copy)]
struct Expected<'a> {
    text: &'a [u8],
    attribute: Attribute,
    kind: Type,
}

/// The reader of the items of one answer.
pub struct ItemReader<'a> {
    /// The position in the answer.
    pub cursor: Cursor<'a>,
    body: &'a [u8],
    written: String,
    rows: Vec<Row>,
    extras: Vec<Extra>,
    /// For each attribute its last successor, and the last start of an item: the items of a page
    /// are similar.
    expected: [Option<Expected<'a>>; WIDTH + 1],
}

impl<'a> ItemReader<'a> {
    /// A reader of an answer.
    pub fn new(body: &'a [u8]) -> Result<Self, Damage> {
        if body.len() > MAX_BYTES {
            return Err(Damage { reason: "the text is longer than any answer", at: MAX_BYTES });
        }
        Ok(Self {
            cursor: Cursor::new(body)?,
            body,
            written: String::new(),
            rows: Vec::new(),
            extras: Vec::new(),
            expected: [None; WIDTH + 1],
        })
    }

    /// The columns, whose texts are slices of `body`, the input.
    pub fn into_items(self, body: Body) -> Items {
        Items { body, written: self.written, rows: self.rows, extras: self.extras }
    }

    /// Takes an array of items.
    pub fn items(&mut self) -> Result<(), Damage> {
        self.cursor.need(b'[', "an array is missing")?;
        if self.cursor.take(b']') {
            return Ok(());
        }
        let start = self.cursor.at();
        self.item()?;
        // The other items are about as long as the first: capacity is reserved once, and bounded by
        // the length of the input.
        let length = (self.cursor.at() - start).max(size_of::<Row>());
        self.rows.reserve(self.body.len().saturating_sub(start) / length);
        loop {
            if self.cursor.take(b']') {
                return Ok(());
            }
            self.cursor.need(b',', "a comma is missing")?;
            self.item()?;
        }
    }

    /// Takes an item.
    pub fn item(&mut self) -> Result<(), Damage> {
        let mut row = [Cell::ABSENT; WIDTH];
        self.cursor.need(b'{', "an object is missing")?;
        if !self.cursor.take(b'}') {
            let mut place = WIDTH;
            loop {
                place = self.attribute(&mut row, place)?;
                if self.cursor.take(b'}') {
                    break;
                }
                self.cursor.need(b',', "a comma is missing")?;
            }
        }
        self.rows.push(row);
        Ok(())
    }

    /// Takes an attribute, the one after the column `place`; returns its own column.
    #[inline]
    #[allow(clippy::indexing_slicing)] // a place is a column, or WIDTH
    fn attribute(&mut self, row: &mut Row, place: usize) -> Result<usize, Damage> {
        self.cursor.peek();
        let (attribute, value) = match self.expected[place] {
            Some(expected) if self.cursor.take_text(expected.text) => {
                (Some(expected.attribute), self.simple(expected.kind)?)
            }
            _ => self.unexpected(place)?,
        };
        self.cursor.need(b'}', NOT_A_VALUE)?;
        let Some(attribute) = attribute else { return Ok(place) };
        let column = attribute as usize;
        if !row[column].is_absent() {
            return Err(self.cursor.damage(TWICE));
        }
        row[column] = value;
        Ok(column)
    }

    /// Takes the name, type and value of an attribute. An attribute without a column is added to
    /// the extras.
    #[allow(clippy::indexing_slicing)] // a place is a column, or WIDTH
    fn unexpected(&mut self, place: usize) -> Result<(Option<Attribute>, Cell), Damage> {
        let start = self.cursor.at();
        let name = self.cursor.string()?;
        let attribute = Attribute::named(&self.cursor.text(name)?);
        self.cursor.need(b':', "a colon is missing")?;
        self.cursor.need(b'{', NOT_A_VALUE)?;
        let kind = self.cursor.string()?;
        self.cursor.need(b':', "a colon is missing")?;
        let kind = match self.cursor.raw(kind) {
            "S" => Type::Text,
            "N" => Type::Number,
            "BOOL" => Type::Truth,
            other => {
                let value = self.foreign(other)?;
                return self.placed(attribute, name, value);
            }
        };
        self.cursor.peek();
        if kind != Type::Truth {
            self.cursor.need(b'"', NOT_A_VALUE)?;
        }
        if let Some(attribute) = attribute {
            self.expected[place] =
                Some(Expected { text: self.cursor.since(start), attribute, kind });
        }
        let value = self.simple(kind)?;
        self.placed(attribute, name, value)
    }

    fn placed(
        &mut self,
        attribute: Option<Attribute>,
        name: Quoted,
        value: Cell,
    ) -> Result<(Option<Attribute>, Cell), Damage> {
        if attribute.is_none() {
            let row = self.rows.len();
            let name = self.text_of(name)?;
            let text = |cell: Cell| cell.cut(self.body, self.written.as_bytes());
            let mut others = self.extras.iter().rev().take_while(|extra| extra.row == row);
            if others.any(|extra| text(extra.name) == text(name)) {
                return Err(self.cursor.damage(TWICE));
            }
            self.extras.push(Extra { row, name, value });
        }
        Ok((attribute, value))
    }

    /// Takes the rest of a value of one of the types of an entry's attributes.
    #[inline]
    fn simple(&mut self, kind: Type) -> Result<Cell, Damage> {
        match kind {
            Type::Text => {
                let quoted = self.cursor.string_rest()?;
                self.text_of(quoted)
            }
            Type::Number => self.number_rest(),
            Type::Truth => Ok(Cell::truth(self.cursor.boolean()?)),
        }
    }

    #[inline]
    fn text_of(&mut self, quoted: Quoted) -> Result<Cell, Damage> {
        if !quoted.escaped {
            return Ok(Cell::text(quoted.start, quoted.end));
        }
        let start = self.written.len();
        self.cursor.unescape(quoted, &mut self.written)?;
        Ok(self.written_since(start))
    }

    fn written_since(&self, start: usize) -> Cell {
        Cell::text(self.body.len() + start, self.body.len() + self.written.len())
    }

    /// Takes a number after its opening quote; one that is no integer is kept as JSON text.
    #[inline]
    fn number_rest(&mut self) -> Result<Cell, Damage> {
        if let Some((start, end)) = self.cursor.whole_number_rest() {
            return Ok(Cell::number(start, end));
        }
        let quoted = self.cursor.string_rest()?;
        let text = self.cursor.text(quoted)?;
        let start = self.written.len();
        if is_whole(&text) {
            self.written.push_str(&text);
            return Ok(Cell::number(self.body.len() + start, self.body.len() + self.written.len()));
        }
        self.written.push_str("{\"N\":");
        push_quoted(&mut self.written, &text);
        self.written.push('}');
        Ok(self.written_since(start))
    }

    /// Takes a value of any other type, as JSON text.
    fn foreign(&mut self, kind: &str) -> Result<Cell, Damage> {
        let start = self.written.len();
        self.written.push('{');
        push_typed(&mut self.cursor, &mut self.written, kind, 0)?;
        self.written.push('}');
        Ok(self.written_since(start))
    }
}

/// Whether a number is `-?[0-9]+` and within the limit of digits.
pub fn is_whole(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    (1..=WHOLE_DIGITS).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// Takes the value after the type's name and colon, and appends both in the form of Python's
/// `json.dumps`.
fn push_typed(
    cursor: &mut Cursor<'_>,
    out: &mut String,
    kind: &str,
    depth: usize,
) -> Result<(), Damage> {
    if depth >= MAX_NESTING {
        return Err(cursor.damage("values are nested too deeply"));
    }
    push_quoted(out, kind);
    out.push(':');
    match kind {
        "S" | "N" | "B" => push_text(cursor, out),
        "BOOL" | "NULL" => {
            out.push_str(if cursor.boolean()? { "true" } else { "false" });
            Ok(())
        }
        "SS" | "NS" | "BS" => push_list(cursor, out, push_text),
        "L" => push_list(cursor, out, |cursor, out| push_value(cursor, out, depth + 1)),
        "M" => push_map(cursor, out, depth + 1),
        _ => Err(cursor.damage(NOT_A_VALUE)),
    }
}

fn push_value(cursor: &mut Cursor<'_>, out: &mut String, depth: usize) -> Result<(), Damage> {
    cursor.need(b'{', NOT_A_VALUE)?;
    out.push('{');
    let kind = cursor.string()?;
    cursor.need(b':', "a colon is missing")?;
    push_typed(cursor, out, cursor.raw(kind), depth)?;
    cursor.need(b'}', NOT_A_VALUE)?;
    out.push('}');
    Ok(())
}

fn push_text(cursor: &mut Cursor<'_>, out: &mut String) -> Result<(), Damage> {
    let quoted = cursor.string()?;
    push_quoted(out, &cursor.text(quoted)?);
    Ok(())
}

fn push_list(
    cursor: &mut Cursor<'_>,
    out: &mut String,
    mut push: impl FnMut(&mut Cursor<'_>, &mut String) -> Result<(), Damage>,
) -> Result<(), Damage> {
    out.push('[');
    let mut first = true;
    cursor.elements(|cursor| {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        push(cursor, out)
    })?;
    out.push(']');
    Ok(())
}

fn push_map(cursor: &mut Cursor<'_>, out: &mut String, depth: usize) -> Result<(), Damage> {
    out.push('{');
    let mut names = HashSet::new();
    cursor.members(|cursor, name| {
        if !names.is_empty() {
            out.push(',');
        }
        if !names.insert(name.to_owned()) {
            return Err(cursor.damage(TWICE));
        }
        push_quoted(out, name);
        out.push(':');
        push_value(cursor, out, depth)
    })?;
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::Kind;

    fn read(json: &str) -> Result<Items, &'static str> {
        let mut reader = ItemReader::new(json.as_bytes()).map_err(|damage| damage.reason)?;
        reader.items().and_then(|()| reader.cursor.end()).map_err(|damage| damage.reason)?;
        Ok(reader.into_items(Body::Owned(json.as_bytes().to_vec())))
    }

    fn value(json: &str) -> Result<String, &'static str> {
        let items = read(&format!(r#"[{{"id":{json}}}]"#))?;
        let cell = items.cell(0, Attribute::Id);
        Ok(match cell.kind() {
            Kind::Truth(truth) => truth.to_string(),
            _ => items.text(cell).to_owned(),
        })
    }

    #[test]
    fn values_of_every_type_are_read() {
        let long = format!(r#"{{"N":"{}"}}"#, "9".repeat(38));
        let cases = [
            (r#"{"S":"a"}"#, "a"),
            (r#"{"S":"a\n\u00e9"}"#, "a\né"),
            (r#"{"N":"-12"}"#, "-12"),
            (&long, &"9".repeat(38)),
            (r#"{"N":"\u0031"}"#, "1"),
            (r#"{"N":"1.5E-3"}"#, r#"{"N":"1.5E-3"}"#),
            (r#"{"BOOL":true}"#, "true"),
            (r#"{"NULL":true}"#, r#"{"NULL":true}"#),
            (r#"{"B":"AAE="}"#, r#"{"B":"AAE="}"#),
            (r#"{ "SS" : [ "a" , "\u00e9\"" ] }"#, r#"{"SS":["a","é\""]}"#),
            (
                r#"{"M":{"a":{"L":[{"N":"1"},{"M":{}}]}, "b":{"BOOL":false}}}"#,
                r#"{"M":{"a":{"L":[{"N":"1"},{"M":{}}]},"b":{"BOOL":false}}}"#,
            ),
        ];
        for (json, wanted) in cases {
            assert_eq!(value(json).as_deref(), Ok(wanted), "{json}");
        }
    }

    #[test]
    fn what_is_no_attribute_value_is_refused() {
        for json in [
            "1",
            "null",
            "[]",
            "{}",
            r#"{"S":1}"#,
            r#"{"N":1}"#,
            r#"{"BOOL":"true"}"#,
            r#"{"X":"a"}"#,
            r#"{"S":"a","N":"1"}"#,
            r#"{"M":{"a":1}}"#,
            r#"{"M":{"a":{"S":"1"},"a":{"S":"1"}}}"#,
            r#"{"L":{}}"#,
            r#"{"SS":[1]}"#,
            r#"{"S":null}"#,
            r#"{"S":"\ud800"}"#,
        ] {
            assert!(value(json).is_err(), "{json}");
        }
        let deep = |levels: usize| r#"{"L":["#.repeat(levels) + &"]}".repeat(levels);
        assert!(value(&deep(MAX_NESTING)).is_ok());
        assert!(value(&deep(MAX_NESTING + 1)).is_err());
    }

    #[test]
    fn items_may_look_different() {
        let items = read(
            r#" [ {"path":{"S":"p"},"ver":{"N":"1"},"x":{"S":"y"}} , {"ver":{"N":"2"},"path":{"S":"q"}},{},
                {"path":{"S":"p"},"ver":{"BOOL":true},"\u0069d":{"S":"i"}}, {"path":{"S":"r"},"ver":{"N":"3"}} ] "#,
        )
        .unwrap();
        let column = |attribute| {
            (0..5).map(|row| items.text(items.cell(row, attribute))).collect::<Vec<_>>()
        };
        assert_eq!(column(Attribute::Partition), ["p", "q", "", "p", "r"]);
        assert_eq!(column(Attribute::Version), ["1", "2", "", "", "3"]);
        assert_eq!(column(Attribute::Id), ["", "", "", "i", ""]);
        let extras: Vec<_> = items
            .extras_of(0)
            .iter()
            .map(|extra| (items.text(extra.name), items.text(extra.value)))
            .collect();
        assert_eq!(extras, [("x", "y")]);
        assert!(items.extras_of(1).is_empty());
    }

    #[test]
    fn an_attribute_stands_once() {
        for json in
            [r#"[{"id":{"S":"a"},"id":{"S":"b"}}]"#, r#"[{"x":{"S":"a"},"\u0078":{"S":"b"}}]"#]
        {
            assert_eq!(read(json).err(), Some(TWICE));
        }
        assert!(read(r#"[{"x":{"S":"a"}},{"x":{"S":"b"}}]"#).is_ok());
    }
}
