//! Strings as JSON writes them.

use crate::hex::digits;

/// Appends a JSON string of UTF-8, with the escapes that JSON requires.
pub fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(place) = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        let (plain, from) = rest.split_at(place);
        out.push_str(plain);
        let mut characters = from.chars();
        characters.next().into_iter().for_each(|character| push_escape(out, character));
        rest = characters.as_str();
    }
    out.push_str(rest);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_cannot_hold_is_escaped() {
        let mut out = String::new();
        push_quoted(&mut out, "a\"b\\c\n\r\t\u{8}\u{c}\0\u{1f}\u{7f}é😀/");
        assert_eq!(out, "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0000\\u001f\u{7f}é😀/\"");
    }
}
