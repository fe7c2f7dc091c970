//! JSON strings and numbers.

use crate::hex::digits;

/// Appends a JSON string of UTF-8, with the escapes that JSON requires.
#[inline]
pub fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(place) =
        rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
    {
        let (plain, from) = rest.split_at(place);
        out.push_str(plain);
        let mut characters = from.chars();
        characters.next().into_iter().for_each(|character| push_escape(out, character));
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

/// Appends a JSON string of ASCII alone, as Python's `json.dumps`.
pub fn push_ascii_quoted(out: &mut String, text: &str) {
    // Without an early exit the loop is vectorised.
    #[allow(clippy::needless_bitwise_bool)] // without branches the loop is vectorised
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\');
    out.push('"');
    if text.bytes().fold(true, |so_far, byte| so_far & plain(byte)) {
        out.push_str(text);
    } else {
        for character in text.chars() {
            match character {
                '"' | '\\' | '\0'..'\x20' => push_escape(out, character),
                '\x20'..'\x7f' => out.push(character),
                _ => character
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|&unit| push_unit(out, unit)),
            }
        }
    }
    out.push('"');
}

fn push_escape(out: &mut String, character: char) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        other => other.encode_utf16(&mut [0; 2]).iter().for_each(|&unit| push_unit(out, unit)),
    }
}

fn push_unit(out: &mut String, unit: u16) {
    out.push_str("\\u");
    for byte in unit.to_be_bytes() {
        let [high, low] = digits(byte);
        out.push(char::from(high));
        out.push(char::from(low));
    }
}

/// Appends an integer in decimal.
#[inline]
pub fn push_integer(out: &mut String, number: i64) {
    if number < 0 {
        out.push('-');
    }
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = number.unsigned_abs();
    #[allow(clippy::indexing_slicing)] // a number of 64 bits has at most 20 digits
    loop {
        first -= 1;
        digits[first] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push_str(str::from_utf8(digits.get(first..).unwrap_or_default()).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(text: &str) -> (String, String) {
        let (mut utf8, mut ascii) = (String::new(), String::new());
        push_quoted(&mut utf8, text);
        push_ascii_quoted(&mut ascii, text);
        (utf8, ascii)
    }

    #[test]
    fn what_json_cannot_hold_is_escaped() {
        let (utf8, ascii) = both("a\"b\\c\n\r\t\u{8}\u{c}\0\u{1f}\u{7f}é😀/");
        assert_eq!(utf8, "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0000\\u001f\u{7f}é😀/\"");
        assert_eq!(
            ascii,
            "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0000\\u001f\\u007f\\u00e9\\ud83d\\ude00/\""
        );
        assert_eq!(both(""), ("\"\"".into(), "\"\"".into()));
    }

    #[test]
    fn whole_numbers_of_every_size() {
        for number in [0, 7, -7, 10, 1_700_000_000_000, i64::MAX, i64::MIN] {
            let mut out = String::new();
            push_integer(&mut out, number);
            assert_eq!(out, number.to_string());
        }
    }
}
