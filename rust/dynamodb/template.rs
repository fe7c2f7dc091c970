//! Bodies of transactions from columns: each action is encoded once, with placeholders for the
//! parts that differ between entries.

use std::cell::OnceCell;

use crate::dynamodb::change::{Change, Own, Place};
use crate::dynamodb::encoder::{Action, Body, push_text, push_truth};
use crate::entries::EntryView;
use crate::items::{Attribute, Text};
use crate::json::write::{push_integer, push_quoted};

/// Parts that differ between entries.
#[derive(Clone, Copy)]
enum Slot {
    /// The object id, quoted.
    Id,
    Version,
    /// The pending change, quoted.
    Pending,
    /// The key of the stored item.
    Key,
    /// The operation id of the change.
    Operation,
    /// The suffix of the name at the target of the move.
    Suffix,
    /// The attributes of the item at the target, except its partition key and intent.
    Attributes,
}

/// An action with placeholders for the parts that differ between entries.
struct Template {
    /// Texts, each with the placeholder after it.
    parts: Vec<(String, Slot)>,
    tail: String,
}

/// The actions of a change.
pub struct Templates<'a> {
    table: &'a str,
    change: &'a Change,
    /// For items of files without and with an intent, then for directories. Most requests need only
    /// one of them.
    own: [OnceCell<Template>; 4],
    /// For items at the target.
    put: Option<(Template, &'a Place)>,
}

impl<'a> Templates<'a> {
    /// For actions on a table.
    pub fn new(table: &'a str, change: &'a Change) -> Self {
        let put = change.place.as_ref().map(|place| (Template::at_target(table, place), place));
        Self { table, change, own: [const { OnceCell::new() }; 4], put }
    }

    /// Appends the actions for the entry of a row, preceded by a comma unless they are the first in
    /// a list.
    pub fn push(&self, out: &mut String, row: usize) {
        let Some(entry) = self.change.get(row) else { return };
        if !out.ends_with('[') {
            out.push(',');
        }
        let [file, intent_file, directory, intent_directory] = &self.own;
        let (is_dir, has_intent) = (entry.is_dir(), entry.has_intent());
        let own = match (is_dir, has_intent) {
            (false, false) => file,
            (false, true) => intent_file,
            (true, false) => directory,
            (true, true) => intent_directory,
        };
        let own =
            own.get_or_init(|| Template::on_item(self.table, &self.change.own, is_dir, has_intent));
        let operation = self.change.id(row);
        own.push(out, &entry, operation, 0);
        if let Some((put, place)) = &self.put {
            out.push(',');
            put.push(out, &entry, operation, place.suffixes.get(row).copied().unwrap_or_default());
        }
    }
}

impl Template {
    /// The action on the stored item of an entry, which must be unchanged.
    fn on_item(table: &str, own: &Own, is_dir: bool, has_intent: bool) -> Self {
        let mut body = Body::with_capacity(512);
        body.text.push_str(if *own == Own::Delete { "{\"Delete\":" } else { "{\"Update\":" });
        let mut action = Action::begin(&mut body, table);
        action.present();
        text(action.equal("id"), Slot::Id);
        quoted(action.equal("ver"), "N", Slot::Version);
        if has_intent {
            text(action.equal("next"), Slot::Pending);
        } else {
            action.missing("next");
        }
        action.key().push_slot(Slot::Key);
        match own {
            Own::Delete => {}
            Own::AddIntent(intent) => {
                push_text(&mut action.set("next").text, intent);
                if is_dir {
                    quoted(action.set("op"), "S", Slot::Operation);
                }
                action.end_update();
            }
            Own::RemoveIntent => {
                action.remove("next");
                action.end_update();
            }
        }
        action.end();
        body.text.push('}');
        Self::of(body)
    }

    /// The creation of the item at the target of a move.
    fn at_target(table: &str, place: &Place) -> Self {
        let mut body = Body::with_capacity(1024);
        body.text.push_str("{\"Put\":");
        let mut action = Action::begin(&mut body, table);
        action.absent();
        let item = action.item();
        let mut partition = String::new();
        place.form.push_partition(&mut partition, &place.directory, 0);
        item.text.push_str("{\"path\":{\"S\":");
        push_quoted(&mut item.text, &partition);
        // Without the closing quote and the suffix, which is 0 here and specific to each row in the
        // body.
        item.text.truncate(item.text.len() - "0\"".len());
        item.push_slot(Slot::Suffix);
        item.text.push_str("\"}");
        item.push_slot(Slot::Attributes);
        if !place.intent.is_empty() {
            item.text.push_str(",\"next\":");
            push_text(&mut item.text, &place.intent);
        }
        item.text.push('}');
        action.end();
        body.text.push('}');
        Self::of(body)
    }

    fn of(body: Body<Slot>) -> Self {
        let mut start = 0;
        let parts = body.slots.into_iter().map(|(at, slot)| {
            let part = body.text.get(start..at).unwrap_or_default().to_owned();
            start = at;
            (part, slot)
        });
        let parts = parts.collect();
        Self { parts, tail: body.text.get(start..).unwrap_or_default().to_owned() }
    }

    fn push(&self, out: &mut String, entry: &EntryView<'_>, operation: &str, suffix: u32) {
        for (part, slot) in &self.parts {
            out.push_str(part);
            match slot {
                Slot::Id => push_known(out, entry.text(Attribute::Id)),
                Slot::Version => push_integer(out, entry.version()),
                Slot::Pending => push_known(out, entry.text(Attribute::Pending)),
                Slot::Key => {
                    out.push_str("{\"path\":{\"S\":");
                    push_known(out, entry.partition());
                    out.push_str("},\"children\":{\"S\":");
                    push_known(out, entry.name());
                    out.push_str("}}");
                }
                Slot::Operation => out.push_str(operation),
                Slot::Suffix => push_integer(out, i64::from(suffix)),
                Slot::Attributes => push_attributes(out, entry, operation),
            }
        }
        out.push_str(&self.tail);
    }
}

/// Appends a text as an `AttributeValue`.
fn text(body: &mut Body<Slot>, slot: Slot) {
    body.text.push_str("{\"S\":");
    body.push_slot(slot);
    body.text.push('}');
}

/// Appends an `AttributeValue` with a text or digits that need no escapes.
fn quoted(body: &mut Body<Slot>, kind: &str, slot: Slot) {
    for part in ["{\"", kind, "\":\""] {
        body.text.push_str(part);
    }
    body.push_slot(slot);
    body.text.push_str("\"}");
}

/// Appends attributes of the moved item, each preceded by a comma, in the order of
/// `table.codec.to_item`.
fn push_attributes(out: &mut String, entry: &EntryView<'_>, operation: &str) {
    out.push_str(",\"children\":{\"S\":");
    push_known(out, entry.name());
    out.push_str("},\"isdir\":");
    push_truth(out, entry.is_dir());
    push_whole(out, ",\"ctime\":{\"N\":\"", entry.ctime());
    push_whole(out, ",\"ver\":{\"N\":\"", entry.version().saturating_add(1));
    out.push_str(",\"id\":{\"S\":");
    push_known(out, entry.text(Attribute::Id));
    push_whole(out, "},\"mtime\":{\"N\":\"", entry.mtime_ms());
    for part in [",\"op\":{\"S\":\"", operation, "\"}"] {
        out.push_str(part);
    }
    if let Some(physical) = entry.physical() {
        push_whole(out, ",\"size\":{\"N\":\"", entry.size());
        out.push_str(",\"physpath\":{\"S\":");
        push_known(out, physical);
        out.push_str("},\"physcommitted\":");
        push_truth(out, entry.committed());
    }
    for (head, attribute) in [
        (",\"etag\":{\"S\":", Attribute::Etag),
        (",\"sum\":{\"S\":", Attribute::Checksum),
        (",\"attrs\":{\"S\":", Attribute::Attributes),
    ] {
        let text = entry.text(attribute);
        if !text.text.is_empty() {
            out.push_str(head);
            push_known(out, text);
            out.push('}');
        }
    }
    if entry.lease_ms() != 0 {
        push_whole(out, ",\"lease\":{\"N\":\"", entry.lease_ms());
    }
}

/// Appends the text before the digits of a number, and the number.
fn push_whole(out: &mut String, head: &str, number: i64) {
    out.push_str(head);
    push_integer(out, number);
    out.push_str("\"}");
}

/// Appends a JSON string, without a search for escapes if it certainly needs none.
#[inline]
fn push_known(out: &mut String, text: Text<'_>) {
    if text.plain {
        out.push('"');
        out.push_str(text.text);
        out.push('"');
    } else {
        push_quoted(out, text.text);
    }
}
