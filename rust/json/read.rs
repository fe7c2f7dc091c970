//! A cursor over JSON text (RFC 8259) without copies, which stops at the first error.

use std::borrow::Cow;

/// Maximum nesting of objects and arrays. `DynamoDB` nests 32 levels of values, with two levels of
/// JSON each.
pub const MAX_DEPTH: usize = 128;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const QUOTES: u64 = u64::from_ne_bytes([b'"'; 8]);
const BACKSLASHES: u64 = u64::from_ne_bytes([b'\\'; 8]);

/// A syntax error and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The reason.
    pub reason: &'static str,
    /// Position in bytes.
    pub at: usize,
}

/// A string between its quotes, with escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its first byte.
    pub start: usize,
    /// The byte of its closing quote.
    pub end: usize,
    /// Whether it has a backslash.
    pub escaped: bool,
}

/// Maximum digits of an integer: those of the largest number of `DynamoDB`, 9.9…E+125.
pub const WHOLE_DIGITS: usize = 126;

/// A position in a text.
pub struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Whether the text has control characters: if not, strings need not be searched for them.
    controls: bool,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of a text. Refuses invalid UTF-8.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Damage> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Damage { reason: "the text is not UTF-8", at: error.valid_up_to() })?;
        let controls = bytes.iter().fold(0, |found, &byte| found | u8::from(byte < b' ')) != 0;
        Ok(Self { text, bytes, at: 0, controls })
    }

    /// An error at this position.
    pub fn damage(&self, reason: &'static str) -> Damage {
        Damage { reason, at: self.at }
    }

    /// The next byte after white space.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// The position of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Takes the next byte if it equals this one.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Whether nothing is left, not even white space.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Takes exactly this text, white space included, if it is next.
    #[inline]
    pub fn take_text(&mut self, text: &[u8]) -> bool {
        let found = self.bytes.get(self.at..self.at + text.len()) == Some(text);
        if found {
            self.at += text.len();
        }
        found
    }

    /// Takes this byte, or fails for `reason`.
    #[inline]
    pub fn need(&mut self, byte: u8, reason: &'static str) -> Result<(), Damage> {
        if self.take(byte) { Ok(()) } else { Err(self.damage(reason)) }
    }

    /// The bytes from `start` to here.
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// Refuses anything but white space.
    pub fn end(&mut self) -> Result<(), Damage> {
        if self.peek().is_none() {
            Ok(())
        } else {
            Err(self.damage("something follows the end of the text"))
        }
    }

    /// Takes a string.
    #[inline]
    pub fn string(&mut self) -> Result<Quoted, Damage> {
        self.need(b'"', "a string is missing")?;
        self.string_rest()
    }

    /// Takes a string after its opening quote.
    #[inline]
    pub fn string_rest(&mut self) -> Result<Quoted, Damage> {
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let place = first_special(rest).ok_or_else(|| self.damage("a string has no end"))?;
            if self.controls && rest.iter().take(place).any(|&byte| byte < b' ') {
                return Err(self.damage("a string has a control character"));
            }
            self.at += place;
            if self.bytes.get(self.at) == Some(&b'"') {
                let quoted = Quoted { start, end: self.at, escaped };
                self.at += 1;
                return Ok(quoted);
            }
            escaped = true;
            self.at += 2;
        }
    }

    /// Takes `-?[0-9]+` and its closing quote, if they are next, and returns the position.
    #[inline]
    pub fn whole_number_rest(&mut self) -> Option<(usize, usize)> {
        let start = self.at;
        let first = start + usize::from(self.bytes.get(start) == Some(&b'-'));
        let digits =
            self.bytes.get(first..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = first + digits;
        if !(1..=WHOLE_DIGITS).contains(&digits) || self.bytes.get(end) != Some(&b'"') {
            return None;
        }
        self.at = end + 1;
        Some((start, end))
    }

    /// The text between the quotes, with escapes.
    pub fn raw(&self, quoted: Quoted) -> &'a str {
        self.text.get(quoted.start..quoted.end).unwrap_or_default()
    }

    /// The unescaped text of a string.
    pub fn text(&self, quoted: Quoted) -> Result<Cow<'a, str>, Damage> {
        if !quoted.escaped {
            return Ok(Cow::Borrowed(self.raw(quoted)));
        }
        let mut text = String::with_capacity(quoted.end - quoted.start);
        self.unescape(quoted, &mut text)?;
        Ok(Cow::Owned(text))
    }

    /// Appends the unescaped text of a string.
    pub fn unescape(&self, quoted: Quoted, out: &mut String) -> Result<(), Damage> {
        let mut rest = self.raw(quoted);
        while let Some((plain, escape)) = rest.split_once('\\') {
            out.push_str(plain);
            let damage = |reason| Damage { reason, at: quoted.end - escape.len() - 1 };
            let mut after = escape.chars();
            let meant = match after.next() {
                Some(same @ ('"' | '\\' | '/')) => same,
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('u') => {
                    let (meant, rest) = unicode_escape(after.as_str()).map_err(damage)?;
                    after = rest.chars();
                    meant
                }
                _ => return Err(damage("a string has an unknown escape")),
            };
            out.push(meant);
            rest = after.as_str();
        }
        out.push_str(rest);
        Ok(())
    }

    /// Takes `true` or `false`.
    pub fn boolean(&mut self) -> Result<bool, Damage> {
        self.peek();
        if self.take_text(b"true") {
            Ok(true)
        } else if self.take_text(b"false") {
            Ok(false)
        } else {
            Err(self.damage("neither true nor false"))
        }
    }

    /// Takes `null`, if it is next.
    pub fn null(&mut self) -> bool {
        self.peek();
        self.take_text(b"null")
    }

    /// Takes the text of a number.
    pub fn number(&mut self) -> Result<&'a str, Damage> {
        self.peek();
        let start = self.at;
        self.take_text(b"-");
        if !self.take_text(b"0") {
            self.digits()?;
        }
        if self.take_text(b".") {
            self.digits()?;
        }
        if self.take_text(b"e") || self.take_text(b"E") {
            let _ = self.take_text(b"+") || self.take_text(b"-");
            self.digits()?;
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    fn digits(&mut self) -> Result<(), Damage> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { Err(self.damage("this is no value")) } else { Ok(()) }
    }

    /// Takes an object; `each` takes the value for every name.
    pub fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, &str) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        self.need(b'{', "an object is missing")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let name = self.string()?;
            let name = self.text(name)?;
            self.need(b':', "a colon is missing")?;
            each(self, &name)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.need(b',', "a comma is missing")?;
        }
    }

    /// Takes an array; `each` takes every value.
    pub fn elements(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        self.need(b'[', "an array is missing")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            each(self)?;
            if self.take(b']') {
                return Ok(());
            }
            self.need(b',', "a comma is missing")?;
        }
    }

    /// Skips a value at nesting level `depth`.
    pub fn skip(&mut self, depth: usize) -> Result<(), Damage> {
        if depth >= MAX_DEPTH {
            return Err(self.damage("values are nested too deeply"));
        }
        match self.peek() {
            Some(b'{') => self.members(|cursor, _| cursor.skip(depth + 1)),
            Some(b'[') => self.elements(|cursor| cursor.skip(depth + 1)),
            Some(b'"') => self.string().and_then(|quoted| self.text(quoted)).map(drop),
            Some(b't' | b'f') => self.boolean().map(drop),
            Some(b'n') if self.null() => Ok(()),
            _ => self.number().map(drop),
        }
    }
}

/// The position of the first quote or backslash.
#[inline]
fn first_special(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        let hits = zero_bytes(word ^ QUOTES) | zero_bytes(word ^ BACKSLASHES);
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize / 8);
        }
        at += 8;
        rest = after;
    }
    rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).map(|place| at + place)
}

/// Sets the high bit of each zero byte; reliable only up to the lowest zero byte.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS
}

/// The character of a `\u` escape and the text after it.
fn unicode_escape(digits: &str) -> Result<(char, &str), &'static str> {
    let (unit, rest) = hex_unit(digits)?;
    if let Some(meant) = char::from_u32(unit) {
        return Ok((meant, rest));
    }
    let low = rest.strip_prefix("\\u").map(hex_unit).transpose()?;
    match low {
        Some((low @ 0xDC00..=0xDFFF, rest)) if unit < 0xDC00 => {
            let point = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
            char::from_u32(point).map(|meant| (meant, rest)).ok_or(LONE_SURROGATE)
        }
        _ => Err(LONE_SURROGATE),
    }
}

const LONE_SURROGATE: &str = "a string has half of a surrogate pair, which no text has";

fn hex_unit(text: &str) -> Result<(u32, &str), &'static str> {
    let digits =
        text.get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    unit.zip(text.get(4..)).ok_or("a string has an unknown escape")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Result<String, &'static str> {
        let mut cursor = Cursor::new(json.as_bytes()).unwrap();
        let quoted = cursor.string().map_err(|damage| damage.reason)?;
        cursor.end().map_err(|damage| damage.reason)?;
        cursor.text(quoted).map(Cow::into_owned).map_err(|damage| damage.reason)
    }

    fn skips(json: &str) -> bool {
        let mut cursor = Cursor::new(json.as_bytes()).unwrap();
        cursor.skip(0).and_then(|()| cursor.end()).is_ok()
    }

    #[test]
    fn escapes_mean_what_they_should() {
        let cases = [
            (r#""""#, ""),
            (r#""plain text, longer than a word""#, "plain text, longer than a word"),
            (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r#""a\u00e9b\u0000""#, "aéb\0"),
            (r#""\ud83d\ude00\uD83D\uDE00""#, "😀😀"),
            (r#""é😀\\""#, "é😀\\"),
        ];
        for (json, wanted) in cases {
            assert_eq!(text(json).as_deref(), Ok(wanted), "{json}");
        }
    }

    #[test]
    fn strings_that_are_none_are_refused() {
        for json in [
            "",
            "x",
            "\"",
            "\"a",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u+123\"",
            "\"\n\"",
            "\"\\",
            "\"\\é\"",
            r#""\ud83d""#,
            r#""\ude00""#,
            r#""\ud83dx""#,
            r#""\ud83d\n""#,
            r#""\ud83d\ud83d""#,
            r#""\ud83d\u12""#,
        ] {
            assert!(text(json).is_err(), "{json}");
        }
    }

    #[test]
    fn values_are_skipped_to_their_end() {
        for json in [
            "0",
            "-1.5e+10",
            "1E3",
            "true",
            " null ",
            "[]",
            "[1, [2],{}]",
            r#"{"a":{"b":[null]},"c":"\n"}"#,
        ] {
            assert!(skips(json), "{json}");
        }
        for json in [
            "",
            "-",
            "01",
            "1.",
            "1e",
            ".5",
            "nul",
            "tru",
            "[1,]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{,}",
            "1 2",
            "\"\\q\"",
            "NaN",
            "{\"a\":1,}",
        ] {
            assert!(!skips(json), "{json}");
        }
        assert!(skips(&("[".repeat(MAX_DEPTH - 1) + &"]".repeat(MAX_DEPTH - 1))));
        assert!(!skips(&"[".repeat(1_000_000)));
    }
}
