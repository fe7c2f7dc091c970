//! Bodies of transactions, cut from the columns of the entries they change.

use crate::change::{Change, Own, Place};
use crate::entries::EntryView;
use crate::items::{Attribute, Text};
use crate::quote::{push_integer, push_quoted};

/// The parts of a change's actions that are the same for every entry.
pub struct Cut<'a> {
    change: &'a Change,
    /// On the item of a file that nobody has marked.
    file: OwnAction,
    marked_file: OwnAction,
    directory: OwnAction,
    marked_directory: OwnAction,
    put: Option<Put<'a>>,
}

/// An action on the stored item of an entry.
struct OwnAction {
    /// From the beginning to the entry's id, the first of the values.
    head: String,
    /// The values after those of the condition: from the end of the last one to the operation's id,
    /// if `stamps`, else to the end of the action's values.
    values: String,
    /// Whether the item gets the operation's id.
    stamps: bool,
}

struct Put<'a> {
    place: &'a Place,
    /// From the beginning to the quoted partition key, its suffix excepted.
    head: String,
    /// The mark of the item, as an attribute; empty for none.
    mark: String,
}

const ANSWER: &str = "\"ReturnValuesOnConditionCheckFailure\":\"ALL_OLD\"";
const UNCHANGED: &str = "attribute_exists(#n0) AND #n1 = :v0 AND #n2 = :v1 AND ";
const NAMES: &str = "\"#n0\":\"path\",\"#n1\":\"id\",\"#n2\":\"ver\",\"#n3\":\"next\"";
const STAMP: &str = ",\"#n4\":\"op\"";

impl<'a> Cut<'a> {
    /// For actions on a table.
    pub fn new(table: &str, change: &'a Change) -> Self {
        let mut name = String::new();
        push_quoted(&mut name, table);
        let own = |is_dir, is_marked| OwnAction::new(&name, &change.own, is_dir, is_marked);
        Self {
            change,
            file: own(false, false),
            marked_file: own(false, true),
            directory: own(true, false),
            marked_directory: own(true, true),
            put: change.place.as_ref().map(|place| Put::new(&name, place)),
        }
    }

    /// Appends the actions to the entry of a row, a comma before them unless they are the first of
    /// a list.
    pub fn push(&self, out: &mut String, row: usize) {
        let Some(entry) = self.change.get(row) else { return };
        if !out.ends_with('[') {
            out.push(',');
        }
        let own = match (entry.is_dir(), entry.is_marked()) {
            (false, false) => &self.file,
            (false, true) => &self.marked_file,
            (true, false) => &self.directory,
            (true, true) => &self.marked_directory,
        };
        own.push(out, &entry, self.change.id(row));
        if let Some(put) = &self.put {
            out.push(',');
            put.push(out, &entry, row, self.change.id(row));
        }
    }
}

impl OwnAction {
    /// For a table, by its quoted name, and entries that are directories or files, marked or not.
    fn new(table: &str, own: &Own, is_dir: bool, is_marked: bool) -> Self {
        // The first value after those of the condition, and the next one.
        let (value, stamp) = if is_marked { (":v3", ":v4") } else { (":v2", ":v3") };
        let stamps = is_dir && matches!(own, Own::Mark(_));
        let (verb, update) = match own {
            Own::Delete => ("Delete", String::new()),
            Own::Mark(_) if stamps => {
                ("Update", format!("\"UpdateExpression\":\"SET #n3 = {value}, #n4 = {stamp}\","))
            }
            Own::Mark(_) => ("Update", format!("\"UpdateExpression\":\"SET #n3 = {value}\",")),
            Own::Unmark => ("Update", "\"UpdateExpression\":\"REMOVE #n3\",".to_owned()),
        };
        let (next, names) = (
            if is_marked { "#n3 = :v2" } else { "attribute_not_exists(#n3)" },
            if stamps { STAMP } else { "" },
        );
        let head = format!(
            "{{\"{verb}\":{{\"TableName\":{table},{ANSWER},{update}\"ConditionExpression\":\"{UNCHANGED}{next}\",\
             \"ExpressionAttributeNames\":{{{NAMES}{names}}},\"ExpressionAttributeValues\":{{\":v0\":{{\"S\":"
        );
        let mut values = String::new();
        if let Own::Mark(mark) = own {
            push_value(&mut values, value, mark);
        }
        if stamps {
            values.push_str(",\"");
            values.push_str(stamp);
            values.push_str("\":{\"S\":\"");
        }
        Self { head, values, stamps }
    }

    fn push(&self, out: &mut String, entry: &EntryView<'_>, id: &str) {
        out.push_str(&self.head);
        push_text(out, entry.text(Attribute::Id));
        out.push_str("},\":v1\":{\"N\":\"");
        push_integer(out, entry.version());
        out.push_str("\"}");
        if entry.is_marked() {
            out.push_str(",\":v2\":{\"S\":");
            push_text(out, entry.text(Attribute::Pending));
            out.push('}');
        }
        out.push_str(&self.values);
        if self.stamps {
            out.push_str(id);
            out.push_str("\"}");
        }
        out.push_str("},\"Key\":{\"path\":{\"S\":");
        push_text(out, entry.partition());
        out.push_str("},\"children\":{\"S\":");
        push_text(out, entry.name());
        out.push_str("}}}}");
    }
}

impl<'a> Put<'a> {
    /// For a table, by its quoted name.
    fn new(table: &str, place: &'a Place) -> Self {
        let mut head = format!(
            "{{\"Put\":{{\"TableName\":{table},{ANSWER},\"ConditionExpression\":\"attribute_not_exists(#n0)\",\
             \"ExpressionAttributeNames\":{{\"#n0\":\"path\"}},\"Item\":{{\"path\":{{\"S\":"
        );
        let mut partition = String::new();
        place.volume.push_partition(&mut partition, &place.directory, 0);
        push_quoted(&mut head, &partition);
        // Without the closing quote and the suffix, a 0 that stands for each row's own.
        head.truncate(head.len() - "0\"".len());
        let mut mark = String::new();
        if !place.mark.is_empty() {
            push_value(&mut mark, "next", &place.mark);
        }
        Self { place, head, mark }
    }

    fn push(&self, out: &mut String, entry: &EntryView<'_>, row: usize, id: &str) {
        out.push_str(&self.head);
        push_integer(out, i64::from(self.place.suffixes.get(row).copied().unwrap_or_default()));
        out.push_str("\"},\"children\":{\"S\":");
        push_text(out, entry.name());
        out.push_str(if entry.is_dir() {
            "},\"isdir\":{\"BOOL\":true}"
        } else {
            "},\"isdir\":{\"BOOL\":false}"
        });
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
        for (head, attribute) in
            [(",\"etag\":{\"S\":", Attribute::Etag), (",\"sum\":{\"S\":", Attribute::Checksum)]
        {
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
        out.push_str(&self.mark);
        out.push_str("}}}");
    }
}

/// Appends a further text of an item or of an action's values.
fn push_value(out: &mut String, name: &str, text: &str) {
    for part in [",\"", name, "\":{\"S\":"] {
        out.push_str(part);
    }
    push_quoted(out, text);
    out.push('}');
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
