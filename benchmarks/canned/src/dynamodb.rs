//! DynamoDB's operations, as far as clients in benchmarks call them. Conditions always hold.

use serde_json::{Map, Value, json};

use crate::directories::Directory;
use crate::http::Answer;
use crate::table::{Item, Key, Table, key_of, update};

/// Transactions over this size are not parsed if they are about files alone.
const LARGE: usize = 8 * 1024;

/// The table, whatever its name.
#[derive(Default)]
pub struct Dynamo {
    table: Table,
    directories: Vec<Directory>,
    tags: Map<String, Value>,
    keeps_files: bool,
}

impl Dynamo {
    /// Answer from now on as if this directory were stored.
    pub fn add(&mut self, directory: Directory) {
        self.directories.retain(|held| !held.is_at(&directory));
        self.directories.push(directory);
    }

    /// Keep items of files as well from now on, or no longer. Forgetting everything ends it.
    pub fn keep_files(&mut self, keep: bool) {
        self.keeps_files = keep;
    }

    /// Forget what was written below the root, and the directories that were described.
    pub fn forget_files(&mut self) {
        self.table.forget_entries();
        self.directories.clear();
    }

    /// Forget everything.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The answer to an operation.
    pub fn answer(&mut self, operation: &str, body: &[u8]) -> Answer {
        let looked_at = self.keeps_files || body.len() <= LARGE || !is_about_files(body);
        if operation == "TransactWriteItems" && !looked_at {
            return Answer::json(200, b"{}".to_vec());
        }
        let Ok(request) = serde_json::from_slice::<Value>(body) else {
            return refusal("SerializationException");
        };
        match operation {
            "Query" => Answer::json(200, self.query(&request)),
            "Scan" => Answer::json(200, self.scan(&request)),
            "GetItem" => {
                let item = key(&request).and_then(|key| self.get(&key));
                found(item.map_or_else(|| json!({}), |item| json!({"Item": item})))
            }
            "BatchGetItem" => found(self.batch_get(&request)),
            "PutItem" | "DeleteItem" | "UpdateItem" => {
                let verb = operation.trim_end_matches("Item");
                self.write(verb, &request);
                found(json!({}))
            }
            "TransactWriteItems" => {
                for action in
                    request.get("TransactItems").and_then(Value::as_array).into_iter().flatten()
                {
                    for (verb, request) in action.as_object().into_iter().flatten() {
                        self.write(verb, request);
                    }
                }
                found(json!({}))
            }
            "BatchWriteItem" => found(json!({"UnprocessedItems": {}})),
            _ => self.administer(operation, &request),
        }
    }

    fn get(&self, key: &Key) -> Option<Item> {
        match self.table.get(key) {
            Some(written) => written.clone(),
            None => self.directories.iter().find_map(|directory| directory.item(&key.0, &key.1)),
        }
    }

    fn batch_get(&self, request: &Value) -> Value {
        let mut responses = Map::new();
        for (table, wanted) in
            request.get("RequestItems").and_then(Value::as_object).into_iter().flatten()
        {
            let keys = wanted.get("Keys").and_then(Value::as_array).into_iter().flatten();
            let items = keys
                .filter_map(Value::as_object)
                .filter_map(key_of)
                .filter_map(|key| self.get(&key));
            responses.insert(table.clone(), items.map(Value::Object).collect());
        }
        json!({"Responses": responses, "UnprocessedKeys": {}})
    }

    fn write(&mut self, verb: &str, request: &Value) {
        match verb {
            "Put" => {
                let item = request.get("Item").and_then(Value::as_object);
                if let Some(item) = item.filter(|item| self.keeps_files || is_kept(item)) {
                    self.table.put(item.clone());
                }
            }
            "Update" => {
                if let Some(key) = key(request) {
                    let fresh = || {
                        [("path", &key.0), ("children", &key.1)]
                            .map(|(name, text)| (name.to_owned(), json!({"S": text})))
                    };
                    let mut item = self.get(&key).unwrap_or_else(|| fresh().into_iter().collect());
                    let before = state_of(&item).to_owned();
                    update(&mut item, request);
                    if state_of(&item) == "published" && before != "published" {
                        self.publish(&item);
                    }
                    self.table.put(item);
                }
            }
            "Delete" => {
                if let Some(key) = key(request).filter(|key| self.table.get(key).is_some()) {
                    self.table.delete(key);
                }
            }
            _ => {}
        }
    }

    /// From now on the described directories that a job has prepared show its marks, at its source
    /// and its target.
    fn publish(&mut self, job: &Item) {
        let [id, source, target] = ["children", "source", "target"].map(|name| text_of(job, name));
        let mark = |then| format!(r#"{{"job":"{id}","then":"{then}"}}"#);
        let moved = self
            .directories
            .iter()
            .filter(|_| !target.is_empty())
            .filter_map(|each| each.moved(source, target));
        let mut made: Vec<Directory> = moved.collect();
        for directory in &mut made {
            directory.mark(&mark("here"));
        }
        for directory in self.directories.iter_mut().filter(|directory| directory.is_below(source))
        {
            directory.mark(&mark("gone"));
        }
        for directory in made {
            self.add(directory);
        }
    }

    fn query(&mut self, request: &Value) -> Vec<u8> {
        let values = request.get("ExpressionAttributeValues").and_then(Value::as_object);
        let partition = values
            .into_iter()
            .flatten()
            .find_map(|(_, value)| value.get("S"))
            .and_then(Value::as_str);
        let partition = partition.unwrap_or_default();
        let limit = limit(request);
        let after = start(request).map(|(_, sort)| sort);
        for directory in &mut self.directories {
            if let Some(suffix) = directory.suffix_of(partition) {
                return directory.query(suffix, after.as_deref(), limit);
            }
        }
        stored(&self.table.query(partition))
    }

    /// A segment is every so many-th partition of the described directories, then what is stored
    /// for the first one.
    fn scan(&mut self, request: &Value) -> Vec<u8> {
        let number = |name| {
            request
                .get(name)
                .and_then(Value::as_u64)
                .and_then(|number| usize::try_from(number).ok())
        };
        let (segment, segments) =
            (number("Segment").unwrap_or(0), number("TotalSegments").unwrap_or(1));
        let limit = limit(request);
        let mut after = start(request);
        for directory in &mut self.directories {
            for suffix in (0..directory.suffixes()).filter(|suffix| suffix % segments == segment) {
                let sort = match after.take() {
                    None => None,
                    Some((partition, sort)) if directory.suffix_of(&partition) == Some(suffix) => {
                        Some(sort)
                    }
                    elsewhere => {
                        after = elsewhere;
                        continue;
                    }
                };
                let page = directory.query(suffix, sort.as_deref(), limit);
                if !page.starts_with(br#"{"Count":0,"#) {
                    return with_more(page);
                }
            }
        }
        let rest: Vec<&Item> = self.table.items().filter(|_| segment == 0).collect();
        stored(&rest)
    }

    fn administer(&mut self, operation: &str, request: &Value) -> Answer {
        match operation {
            "DescribeTable" | "CreateTable" => {
                let name = request.get("TableName").and_then(Value::as_str).unwrap_or_default();
                let described = describe(name);
                let label = if operation == "CreateTable" { "TableDescription" } else { "Table" };
                found(json!({label: described}))
            }
            "TagResource" => {
                for tag in request.get("Tags").and_then(Value::as_array).into_iter().flatten() {
                    if let (Some(Value::String(name)), Some(value)) =
                        (tag.get("Key"), tag.get("Value"))
                    {
                        self.tags.insert(name.clone(), value.clone());
                    }
                }
                found(json!({}))
            }
            "ListTagsOfResource" => {
                let tags =
                    self.tags.iter().map(|(name, value)| json!({"Key": name, "Value": value}));
                found(json!({"Tags": tags.collect::<Vec<_>>()}))
            }
            _ => refusal("UnknownOperationException"),
        }
    }
}

/// Whether what is written there matters later: directories, and records of a volume.
fn is_kept(item: &Item) -> bool {
    let is_directory =
        item.get("isdir").and_then(|value| value.get("BOOL")) == Some(&Value::Bool(true));
    is_directory || key_of(item).is_some_and(|(partition, _)| partition.starts_with("s3k:"))
}

/// Whether each key in a transaction's body is that of a file of a described directory.
fn is_about_files(body: &[u8]) -> bool {
    let mut keys = memchr::memmem::find_iter(body, br#""children""#);
    keys.all(|at| {
        body.get(at..at + 32).is_some_and(|near| memchr::memmem::find(near, b"\"part-").is_some())
    })
}

fn text_of<'a>(item: &'a Item, name: &str) -> &'a str {
    item.get(name).and_then(|value| value.get("S")).and_then(Value::as_str).unwrap_or_default()
}

/// The state of a job's record; empty for every other item.
fn state_of(item: &Item) -> &str {
    text_of(item, "state")
}

fn key(request: &Value) -> Option<Key> {
    request.get("Key").and_then(Value::as_object).and_then(key_of)
}

fn start(request: &Value) -> Option<Key> {
    request.get("ExclusiveStartKey").and_then(Value::as_object).and_then(key_of)
}

fn limit(request: &Value) -> usize {
    request
        .get("Limit")
        .and_then(Value::as_u64)
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX)
}

fn found(body: Value) -> Answer {
    Answer::json(200, body.to_string().into_bytes())
}

fn refusal(code: &str) -> Answer {
    let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "not canned"});
    Answer::json(400, body.to_string().into_bytes())
}

fn stored(items: &[&Item]) -> Vec<u8> {
    json!({"Count": items.len(), "Items": items, "ScannedCount": items.len()})
        .to_string()
        .into_bytes()
}

/// The page of a scan that is not its last: it goes on after its last item even where a query would
/// have ended.
fn with_more(page: Vec<u8>) -> Vec<u8> {
    if memchr::memmem::rfind(&page, b"LastEvaluatedKey").is_some() {
        return page;
    }
    let Ok(mut body) = serde_json::from_slice::<Value>(&page) else { return page };
    let last = body
        .get("Items")
        .and_then(Value::as_array)
        .and_then(|items| items.last())
        .and_then(Value::as_object);
    let Some((partition, sort)) = last.and_then(key_of) else { return page };
    if let Some(body) = body.as_object_mut() {
        body.insert(
            "LastEvaluatedKey".to_owned(),
            json!({"path": {"S": partition}, "children": {"S": sort}}),
        );
    }
    body.to_string().into_bytes()
}

fn describe(name: &str) -> Value {
    json!({
        "TableName": name,
        "TableStatus": "ACTIVE",
        "TableArn": format!("arn:aws:dynamodb:us-east-1:000000000000:table/{name}"),
        "KeySchema": [
            {"AttributeName": "path", "KeyType": "HASH"},
            {"AttributeName": "children", "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [
            {"AttributeName": "path", "AttributeType": "S"},
            {"AttributeName": "children", "AttributeType": "S"},
        ],
        "ItemCount": 0,
        "TableSizeBytes": 0,
        "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(dynamo: &mut Dynamo, operation: &str, request: &Value) -> Value {
        serde_json::from_slice(&dynamo.answer(operation, request.to_string().as_bytes()).body)
            .unwrap()
    }

    #[test]
    fn a_published_job_has_marked_what_is_described() {
        let mut dynamo = Dynamo::default();
        dynamo.add(Directory::new("v", "/d", 20, 2, 10));
        let key = json!({"path": {"S": "s3k:job"}, "children": {"S": "j"}});
        let mut record = key.as_object().unwrap().clone();
        for (name, text) in [("state", "preparing"), ("source", "/d"), ("target", "/e")] {
            record.insert(name.to_owned(), json!({"S": text}));
        }
        ask(&mut dynamo, "PutItem", &json!({"Item": record}));
        let query =
            |partition: &str| json!({"ExpressionAttributeValues": {":p": {"S": partition}}});
        assert_eq!(
            ask(&mut dynamo, "Query", &query("ks://v/d-sf1"))["Items"][0]["next"],
            Value::Null
        );
        let published = json!({
            "Key": key, "UpdateExpression": "SET #n0 = :v0", "ExpressionAttributeNames": {"#n0": "state"},
            "ExpressionAttributeValues": {":v0": {"S": "published"}},
        });
        ask(&mut dynamo, "UpdateItem", &published);
        for (partition, then, version) in
            [("ks://v/d-sf1", "gone", "2"), ("ks://v/e-sf1", "here", "3")]
        {
            let page = ask(&mut dynamo, "Query", &query(partition));
            assert_eq!(page["Count"], 10);
            let item = &page["Items"][9];
            assert_eq!(item["next"]["S"], format!(r#"{{"job":"j","then":"{then}"}}"#));
            assert_eq!(
                (&item["path"]["S"], &item["ver"]["N"]),
                (&json!(partition), &json!(version))
            );
        }
    }

    #[test]
    fn directories_are_kept_and_files_are_not() {
        let mut dynamo = Dynamo::default();
        let key = json!({"path": {"S": "ks://v/-sf0"}, "children": {"S": "d"}});
        for (is_directory, answer) in [
            (false, json!({})),
            (
                true,
                json!({"Item": {"path": {"S": "ks://v/-sf0"}, "children": {"S": "d"}, "isdir": {"BOOL": true}}}),
            ),
        ] {
            let mut item = key.as_object().unwrap().clone();
            item.insert("isdir".to_owned(), json!({"BOOL": is_directory}));
            ask(&mut dynamo, "PutItem", &json!({"Item": item}));
            assert_eq!(ask(&mut dynamo, "GetItem", &json!({"Key": key})), answer);
        }
        ask(
            &mut dynamo,
            "TransactWriteItems",
            &json!({"TransactItems": [{"Delete": {"Key": key}}]}),
        );
        assert_eq!(ask(&mut dynamo, "GetItem", &json!({"Key": key})), json!({}));
    }

    #[test]
    fn files_are_kept_where_that_is_asked_for() {
        let mut dynamo = Dynamo::default();
        dynamo.keep_files(true);
        let item =
            json!({"path": {"S": "ks://v/-sf0"}, "children": {"S": "f"}, "isdir": {"BOOL": false}});
        let key = json!({"path": {"S": "ks://v/-sf0"}, "children": {"S": "f"}});
        ask(&mut dynamo, "PutItem", &json!({"Item": item}));
        assert_eq!(ask(&mut dynamo, "GetItem", &json!({"Key": key})), json!({"Item": item}));
        for end in [|dynamo: &mut Dynamo| dynamo.keep_files(false), Dynamo::forget] {
            dynamo.keep_files(true);
            end(&mut dynamo);
            dynamo.forget_files();
            ask(&mut dynamo, "PutItem", &json!({"Item": item}));
            assert_eq!(ask(&mut dynamo, "GetItem", &json!({"Key": key})), json!({}));
        }
    }

    #[test]
    fn a_scan_goes_through_every_partition_of_its_segments() {
        let mut dynamo = Dynamo::default();
        dynamo.add(Directory::new("v", "/d", 95, 4, 10));
        let mut seen = 0;
        for segment in 0..3 {
            let mut last = Value::Null;
            loop {
                let mut request = json!({"Segment": segment, "TotalSegments": 3});
                if !last.is_null() {
                    request["ExclusiveStartKey"] = last;
                }
                let page = ask(&mut dynamo, "Scan", &request);
                seen += page["Count"].as_u64().unwrap();
                last = page["LastEvaluatedKey"].clone();
                if last.is_null() {
                    break;
                }
            }
        }
        assert_eq!(seen, 95);
    }
}
