//! Bodies of transactions, cut from the columns of the entries they change.

use crate::entries::EntryView;
use crate::items::{Attribute, Text};
use crate::moves::{Change, Place};
use crate::quote::{push_integer, push_quoted};

/// The parts of a change's actions that are the same for every entry.
pub struct Cut<'a> {
    change: &'a Change,
    /// From the beginning of a removal to its first value, for an entry that nobody has marked.
    delete: String,
    /// As `delete`, for a marked one.
    delete_marked: String,
    put: Option<Put<'a>>,
}

struct Put<'a> {
    place: &'a Place,
    /// From the beginning to the quoted partition key, its suffix excepted.
    head: String,
}

const ANSWER: &str = "\"ReturnValuesOnConditionCheckFailure\":\"ALL_OLD\"";
const UNCHANGED: &str = "attribute_exists(#n0) AND #n1 = :v0 AND #n2 = :v1 AND ";
const NAMES: &str = "\"ExpressionAttributeNames\":{\"#n0\":\"path\",\"#n1\":\"id\",\"#n2\":\"ver\",\"#n3\":\"next\"}";

impl<'a> Cut<'a> {
    /// For actions on a table.
    pub fn new(table: &str, change: &'a Change) -> Self {
        let mut name = String::new();
        push_quoted(&mut name, table);
        let delete = |marked: &str| {
            format!(
                "{{\"Delete\":{{\"TableName\":{name},{ANSWER},\"ConditionExpression\":\"{UNCHANGED}{marked}\",\
                 {NAMES},\"ExpressionAttributeValues\":{{\":v0\":{{\"S\":"
            )
        };
        let put = change.place.as_ref().map(|place| {
            let mut head = format!(
                "{{\"Put\":{{\"TableName\":{name},{ANSWER},\"ConditionExpression\":\"attribute_not_exists(#n0)\",\
                 \"ExpressionAttributeNames\":{{\"#n0\":\"path\"}},\"Item\":{{\"path\":{{\"S\":"
            );
            let mut partition = String::new();
            place.volume.push_partition(&mut partition, &place.directory, 0);
            push_quoted(&mut head, &partition);
            // Without the closing quote and the suffix, a 0 that stands for each row's own.
            head.truncate(head.len() - "0\"".len());
            Put { place, head }
        });
        Self { change, delete: delete("attribute_not_exists(#n3)"), delete_marked: delete("#n3 = :v2"), put }
    }

    /// Appends the actions to the entry of a row, a comma before them unless they are the first of a list.
    pub fn push(&self, out: &mut String, row: usize) {
        let Some(entry) = self.change.get(row) else { return };
        if !out.ends_with('[') {
            out.push(',');
        }
        self.push_delete(out, &entry);
        if let Some(put) = &self.put {
            out.push(',');
            put.push(out, &entry, row, self.change.id(row));
        }
    }

    fn push_delete(&self, out: &mut String, entry: &EntryView<'_>) {
        let pending = entry.text(Attribute::Pending);
        let marked = !pending.text.is_empty();
        out.push_str(if marked { &self.delete_marked } else { &self.delete });
        push_text(out, entry.text(Attribute::Id));
        out.push_str("},\":v1\":{\"N\":\"");
        push_integer(out, entry.version());
        if marked {
            out.push_str("\"},\":v2\":{\"S\":");
            push_text(out, pending);
            out.push_str("}},\"Key\":{\"path\":{\"S\":");
        } else {
            out.push_str("\"}},\"Key\":{\"path\":{\"S\":");
        }
        push_text(out, entry.partition());
        out.push_str("},\"children\":{\"S\":");
        push_text(out, entry.name());
        out.push_str("}}}}");
    }
}

impl Put<'_> {
    fn push(&self, out: &mut String, entry: &EntryView<'_>, row: usize, id: &str) {
        out.push_str(&self.head);
        push_integer(out, i64::from(self.place.suffixes.get(row).copied().unwrap_or_default()));
        out.push_str("\"},\"children\":{\"S\":");
        push_text(out, entry.name());
        out.push_str(if entry.is_dir() { "},\"isdir\":{\"BOOL\":true}" } else { "},\"isdir\":{\"BOOL\":false}" });
        push_number(out, ",\"ctime\":{\"N\":\"", entry.ctime());
        push_number(out, ",\"ver\":{\"N\":\"", entry.version().saturating_add(1));
        out.push_str(",\"id\":{\"S\":");
        push_text(out, entry.text(Attribute::Id));
        push_number(out, "},\"mtime\":{\"N\":\"", entry.mtime_ms());
        for part in [",\"op\":{\"S\":\"", id, "\"}"] {
            out.push_str(part);
        }
        if let Some(physical) = entry.physical() {
            push_number(out, ",\"size\":{\"N\":\"", entry.size());
            out.push_str(",\"physpath\":{\"S\":");
            push_text(out, physical);
            out.push_str("},\"physcommitted\":{\"BOOL\":");
            out.push_str(if entry.committed() { "true}" } else { "false}" });
        }
        for (head, attribute) in [(",\"etag\":{\"S\":", Attribute::Etag), (",\"sum\":{\"S\":", Attribute::Checksum)] {
            let text = entry.text(attribute);
            if !text.text.is_empty() {
                out.push_str(head);
                push_text(out, text);
                out.push('}');
            }
        }
        if entry.lease_ms() != 0 {
            push_number(out, ",\"lease\":{\"N\":\"", entry.lease_ms());
        }
        out.push_str("}}}");
    }
}

/// Appends what leads to the digits of a number, and the number.
fn push_number(out: &mut String, head: &str, number: i64) {
    out.push_str(head);
    push_integer(out, number);
    out.push_str("\"}");
}

fn push_text(out: &mut String, text: Text<'_>) {
    if text.plain {
        out.push('"');
        out.push_str(text.text);
        out.push('"');
    } else {
        push_quoted(out, text.text);
    }
}
