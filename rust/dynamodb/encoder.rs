//! The JSON of items, keys and actions: conditions, updates, and their names and values.
//!
//! Source: the Amazon `DynamoDB` API Reference (`AttributeValue`, `TransactWriteItem`, condition
//! and update expressions).

use crate::json::write::{push_integer, push_quoted};

/// The attribute that every item has: its partition key.
const PARTITION: &str = "path";

/// Text with placeholders at offsets. `S` is their kind.
pub struct Body<S> {
    /// The text so far.
    pub text: String,
    /// The placeholders, in their order.
    pub slots: Vec<(usize, S)>,
}

impl<S> Body<S> {
    /// An empty text with capacity for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), slots: Vec::new() }
    }

    /// Adds a placeholder at the end.
    pub fn push_slot(&mut self, slot: S) {
        self.slots.push((self.text.len(), slot));
    }

    fn append(&mut self, other: Self) {
        let start = self.text.len();
        self.text.push_str(&other.text);
        self.slots.extend(other.slots.into_iter().map(|(at, slot)| (start + at, slot)));
    }
}

/// Appends `{"path":{"S":…},"children":{"S":…}}`.
#[inline]
pub fn push_key(out: &mut String, partition: &str, sort: &str) {
    out.push_str("{\"path\":{\"S\":");
    push_quoted(out, partition);
    out.push_str("},\"children\":{\"S\":");
    push_quoted(out, sort);
    out.push_str("}}");
}

/// Appends a text as an `AttributeValue`.
#[inline]
pub fn push_text(out: &mut String, text: &str) {
    out.push_str("{\"S\":");
    push_quoted(out, text);
    out.push('}');
}

/// Appends a number as an `AttributeValue`.
#[inline]
pub fn push_number(out: &mut String, digits: &str) {
    for part in ["{\"N\":\"", digits, "\"}"] {
        out.push_str(part);
    }
}

/// Appends a boolean as an `AttributeValue`.
#[inline]
pub fn push_truth(out: &mut String, truth: bool) {
    out.push_str(if truth { "{\"BOOL\":true}" } else { "{\"BOOL\":false}" });
}

/// The writer of one action, in a transaction or as a separate request: first the condition, then
/// the item or the key, then the parts of the update and `end_update`, then `end`. A method that
/// returns a body expects an `AttributeValue` to be appended.
pub struct Action<'a, S> {
    body: &'a mut Body<S>,
    names: Vec<String>,
    values: Body<S>,
    value_count: usize,
    /// The clause that the last part of the update belongs to.
    clause: Option<Clause>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    Set,
    Remove,
}

impl<'a, S> Action<'a, S> {
    /// An action on an item of the table.
    pub fn begin(body: &'a mut Body<S>, table: &str) -> Self {
        body.text.push_str("{\"TableName\":");
        push_quoted(&mut body.text, table);
        body.text.push_str(",\"ConditionExpression\":\"");
        Self {
            body,
            names: Vec::new(),
            values: Body::with_capacity(0),
            value_count: 0,
            clause: None,
        }
    }

    /// Requires that the item does not exist. No other requirement may follow.
    pub fn absent(&mut self) {
        self.push_call("attribute_not_exists", PARTITION);
    }

    /// Requires that the item exists; the first requirement.
    pub fn present(&mut self) {
        self.push_call("attribute_exists", PARTITION);
    }

    /// Requires that an attribute has a value.
    pub fn equal(&mut self, name: &str) -> &mut Body<S> {
        self.body.text.push_str(" AND ");
        self.push_assignment(name)
    }

    /// Requires that the attribute does not exist.
    pub fn missing(&mut self, name: &str) {
        self.body.text.push_str(" AND ");
        self.push_call("attribute_not_exists", name);
    }

    /// The whole item follows, as an object.
    pub fn item(&mut self) -> &mut Body<S> {
        self.body.text.push_str("\",\"Item\":");
        self.body
    }

    /// The key follows, as an object.
    pub fn key(&mut self) -> &mut Body<S> {
        self.body.text.push_str("\",\"Key\":");
        self.body
    }

    /// Sets an attribute; before all removals.
    pub fn set(&mut self, name: &str) -> &mut Body<S> {
        self.begin_part(Clause::Set);
        self.push_assignment(name)
    }

    /// Removes an attribute.
    pub fn remove(&mut self, name: &str) {
        self.begin_part(Clause::Remove);
        self.push_name(name);
    }

    /// Completes an update.
    pub fn end_update(&mut self) {
        let part = if self.clause.is_some() { "\"" } else { ",\"UpdateExpression\":\"\"" };
        self.body.text.push_str(part);
    }

    /// Completes the action: a failed condition returns the stored item.
    pub fn end(self) {
        let out = &mut self.body.text;
        out.push_str(",\"ExpressionAttributeNames\":{");
        for (place, name) in (0..).zip(&self.names) {
            out.push_str(if place == 0 { "\"#n" } else { ",\"#n" });
            push_integer(out, place);
            out.push_str("\":");
            push_quoted(out, name);
        }
        out.push('}');
        if self.value_count > 0 {
            out.push_str(",\"ExpressionAttributeValues\":{");
            self.body.append(self.values);
            self.body.text.push('}');
        }
        self.body.text.push_str(",\"ReturnValuesOnConditionCheckFailure\":\"ALL_OLD\"}");
    }

    fn begin_part(&mut self, clause: Clause) {
        let last = self.clause.replace(clause);
        self.body.text.push_str(match (last, clause) {
            (None, Clause::Set) => ",\"UpdateExpression\":\"SET ",
            (None, Clause::Remove) => ",\"UpdateExpression\":\"REMOVE ",
            (Some(Clause::Set), Clause::Remove) => " REMOVE ",
            _ => ", ",
        });
    }

    fn push_call(&mut self, function: &str, name: &str) {
        self.body.text.push_str(function);
        self.body.text.push('(');
        self.push_name(name);
        self.body.text.push(')');
    }

    /// Appends the name's placeholder: many names are reserved words.
    fn push_name(&mut self, name: &str) {
        let place = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        push_placeholder(&mut self.body.text, "#n", place);
    }

    fn push_assignment(&mut self, name: &str) -> &mut Body<S> {
        self.push_name(name);
        self.body.text.push_str(" = ");
        push_placeholder(&mut self.body.text, ":v", self.value_count);
        let values = &mut self.values.text;
        values.push_str(if self.value_count == 0 { "\"" } else { ",\"" });
        push_placeholder(values, ":v", self.value_count);
        values.push_str("\":");
        self.value_count += 1;
        &mut self.values
    }
}

fn push_placeholder(out: &mut String, kind: &str, place: usize) {
    out.push_str(kind);
    push_integer(out, i64::try_from(place).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_written_in_order() {
        let mut body = Body::with_capacity(0);
        let mut action = Action::begin(&mut body, "t\"");
        action.present();
        action.equal("id").push_slot('i');
        push_number(&mut action.equal("ver").text, "3");
        action.missing("next");
        push_key(&mut action.key().text, "p", "s");
        push_truth(&mut action.set("id").text, true);
        action.remove("lease");
        action.remove("next");
        action.end_update();
        action.end();
        assert_eq!(
            body.text,
            "{\"TableName\":\"t\\\"\",\"ConditionExpression\":\"attribute_exists(#n0) AND #n1 = :v0 \
             AND #n2 = :v1 AND attribute_not_exists(#n3)\",\"Key\":{\"path\":{\"S\":\"p\"},\
             \"children\":{\"S\":\"s\"}},\"UpdateExpression\":\"SET #n1 = :v2 REMOVE #n4, #n3\",\
             \"ExpressionAttributeNames\":{\"#n0\":\"path\",\"#n1\":\"id\",\"#n2\":\"ver\",\
             \"#n3\":\"next\",\"#n4\":\"lease\"},\"ExpressionAttributeValues\":{\":v0\":,\
             \":v1\":{\"N\":\"3\"},\":v2\":{\"BOOL\":true}},\
             \"ReturnValuesOnConditionCheckFailure\":\"ALL_OLD\"}"
        );
        let [(at, 'i')] = body.slots[..] else { panic!("one slot") };
        assert!(body.text[..at].ends_with("\":v0\":"));
    }
}
