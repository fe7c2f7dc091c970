//! Items that were written: directories and records, by their key.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub type Item = Map<String, Value>;
pub type Key = (String, String);

/// Items by key; None where one was deleted that a described directory would still have.
#[derive(Default)]
pub struct Table {
    items: BTreeMap<Key, Option<Item>>,
}

/// The key among an item's attributes.
pub fn key_of(item: &Item) -> Option<Key> {
    let text =
        |name| item.get(name).and_then(|value: &Value| value.get("S")).and_then(Value::as_str);
    Some((text("path")?.to_owned(), text("children")?.to_owned()))
}

impl Table {
    /// What was written last at a key.
    pub fn get(&self, key: &Key) -> Option<&Option<Item>> {
        self.items.get(key)
    }

    pub fn put(&mut self, item: Item) {
        if let Some(key) = key_of(&item) {
            self.items.insert(key, Some(item));
        }
    }

    pub fn delete(&mut self, key: Key) {
        self.items.insert(key, None);
    }

    /// What is stored under a partition, in order.
    pub fn query(&self, partition: &str) -> Vec<&Item> {
        let from = (partition.to_owned(), String::new());
        let found = self.items.range(from..).take_while(|((held, _), _)| held == partition);
        found.filter_map(|(_, item)| item.as_ref()).collect()
    }

    /// All items, in order.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.values().filter_map(Option::as_ref)
    }

    /// Forget every entry of a tree; records stay.
    pub fn forget_entries(&mut self) {
        self.items.retain(|(partition, _), _| !partition.starts_with("ks://"));
    }
}

/// Apply an update expression of SET and REMOVE clauses to an item.
pub fn update(item: &mut Item, request: &Value) {
    let words = request.get("UpdateExpression").and_then(Value::as_str).unwrap_or_default();
    let names = request.get("ExpressionAttributeNames");
    let attribute = |word: &str| {
        let found = names.and_then(|names| names.get(word)).and_then(Value::as_str);
        found.unwrap_or(word).to_owned()
    };
    let (sets, removals) = match words.split_once("REMOVE ") {
        Some((sets, removals)) => (sets, removals),
        None => (words, ""),
    };
    for assignment in sets.trim().trim_start_matches("SET ").split(',') {
        let Some((name, value)) = assignment.split_once('=') else { continue };
        if let Some(value) =
            request.get("ExpressionAttributeValues").and_then(|values| values.get(value.trim()))
        {
            item.insert(attribute(name.trim()), value.clone());
        }
    }
    for name in removals.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        item.remove(&attribute(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn updates_set_and_remove() {
        let mut item = json!({"path": {"S": "p"}, "children": {"S": "c"}, "next": {"S": "x"}})
            .as_object()
            .unwrap()
            .clone();
        let request = json!({
            "UpdateExpression": "SET #n0 = :v0, #n1 = :v1 REMOVE #n2",
            "ExpressionAttributeNames": {"#n0": "ver", "#n1": "op", "#n2": "next"},
            "ExpressionAttributeValues": {":v0": {"N": "3"}, ":v1": {"S": "o"}},
        });
        update(&mut item, &request);
        assert_eq!(
            Value::Object(item),
            json!({"path": {"S": "p"}, "children": {"S": "c"}, "ver": {"N": "3"}, "op": {"S": "o"}})
        );
    }
}
