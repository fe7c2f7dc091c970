//! Directories that are described, not stored: their pages are templates with the numbers filled
//! in.

use serde_json::{Map, Value, json};

/// Digits of an entry's number wherever it is written.
const DIGITS: usize = 8;
const PLACE: &str = "########";

/// Entries `part-00000000` and up, spread over the suffixes by turns. All of them may carry the
/// mark of a job.
pub struct Directory {
    volume: String,
    path: String,
    partition: String,
    entries: usize,
    suffixes: usize,
    page: usize,
    version: u32,
    /// The attribute that holds the mark, with a comma before it; empty for none.
    mark: String,
    pages: Vec<Option<PageTemplate>>,
}

/// A full page of one suffix: where the numbers go, from one item to the next.
struct PageTemplate {
    bytes: Vec<u8>,
    places: Vec<usize>,
    stride: usize,
}

fn name(number: usize) -> String {
    format!("part-{number:08}")
}

/// The number in an entry's name.
pub fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix("part-")
        .filter(|digits| digits.len() == DIGITS)
        .and_then(|digits| digits.parse().ok())
}

/// A committed file as the package stores it.
fn item_text(partition: &str, digits: &str, version: u32, mark: &str) -> String {
    format!(
        concat!(
            r#"{{"children":{{"S":"part-{digits}"}},"ctime":{{"N":"1767225600"}},"#,
            r#""etag":{{"S":"9bb58f26192e4ba00f01e2e7b136bbd8"}},"id":{{"S":"{digits}-0000-4000-8000-000000000000"}},"#,
            r#""isdir":{{"BOOL":false}},"mtime":{{"N":"1767225600123"}},"#,
            r#""op":{{"S":"{digits}-1111-4111-8111-111111111111"}},"path":{{"S":"{partition}"}},"#,
            r#""physcommitted":{{"BOOL":true}},"physpath":{{"S":"{digits}-2222-4222-8222-222222222222"#,
            r#".id={digits}-0000-4000-8000-000000000000"}},"size":{{"N":"1048576"}},"ver":{{"N":"{version}"}}{mark}}}"#
        ),
        digits = digits,
        partition = partition,
        version = version,
        mark = mark,
    )
}

impl Directory {
    /// A directory of `entries` files over `suffixes` partitions.
    pub fn new(volume: &str, path: &str, entries: usize, suffixes: usize, page: usize) -> Self {
        let suffixes = suffixes.max(1);
        let pages = std::iter::repeat_with(|| None).take(suffixes).collect();
        Self {
            volume: volume.to_owned(),
            path: path.to_owned(),
            partition: format!("ks://{volume}{path}-sf"),
            entries,
            suffixes,
            page: page.max(1),
            version: 2,
            mark: String::new(),
            pages,
        }
    }

    /// What is left of its path below another one; None if it is not there.
    fn below<'a>(&'a self, top: &str) -> Option<&'a str> {
        self.path.strip_prefix(top).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether it is at a path or below it.
    pub fn is_below(&self, top: &str) -> bool {
        self.below(top).is_some()
    }

    /// Let its entries carry a mark from now on.
    pub fn mark(&mut self, mark: &str) {
        self.mark = format!(r#","next":{{"S":{}}}"#, json!(mark));
        self.pages.fill_with(|| None);
    }

    /// The same entries a version later, where a rename from one path to another takes them.
    pub fn moved(&self, source: &str, target: &str) -> Option<Self> {
        let path = format!("{target}{}", self.below(source)?);
        let moved = Self::new(&self.volume, &path, self.entries, self.suffixes, self.page);
        Some(Self { version: self.version + 1, ..moved })
    }

    /// The suffix of a partition of this directory.
    pub fn suffix_of(&self, partition: &str) -> Option<usize> {
        partition
            .strip_prefix(self.partition.as_str())?
            .parse()
            .ok()
            .filter(|&suffix| suffix < self.suffixes)
    }

    /// How many partitions there are.
    pub fn suffixes(&self) -> usize {
        self.suffixes
    }

    /// Whether it is the same place as another.
    pub fn is_at(&self, other: &Self) -> bool {
        self.partition == other.partition
    }

    /// The item of an entry in any of the partitions: the hash that chooses one is the client's
    /// business.
    pub fn item(&self, partition: &str, sort: &str) -> Option<Map<String, Value>> {
        self.suffix_of(partition)?;
        number_of(sort).filter(|&number| number < self.entries)?;
        let digits = sort.get(sort.len() - DIGITS..)?;
        serde_json::from_str(&item_text(partition, digits, self.version, &self.mark)).ok()
    }

    fn count_of(&self, suffix: usize) -> usize {
        self.entries / self.suffixes + usize::from(suffix < self.entries % self.suffixes)
    }

    /// The answer to a query of one suffix, from the entry after `after`.
    pub fn query(&mut self, suffix: usize, after: Option<&str>, limit: usize) -> Vec<u8> {
        let start = after.and_then(number_of).map_or(0, |number| number / self.suffixes + 1);
        let all = self.count_of(suffix);
        let rows = self.page.min(limit).min(all.saturating_sub(start));
        let partition = format!("{}{suffix}", self.partition);
        let (page, suffixes) = (self.page.min(all), self.suffixes);
        let (version, mark) = (self.version, &self.mark);
        let mut body = format!(r#"{{"Count":{rows},"Items":["#).into_bytes();
        if let Some(place) = self.pages.get_mut(suffix) {
            let template = place.get_or_insert_with(|| {
                PageTemplate::new(item_text(&partition, PLACE, version, mark), page)
            });
            template.append(&mut body, rows, |row| (start + row) * suffixes + suffix);
        }
        body.push(b']');
        if start + rows < all && rows > 0 {
            let last = json!({"path": {"S": partition}, "children": {"S": name((start + rows - 1) * suffixes + suffix)}});
            body.extend_from_slice(format!(r#","LastEvaluatedKey":{last}"#).as_bytes());
        }
        body.extend_from_slice(format!(r#","ScannedCount":{rows}}}"#).as_bytes());
        body
    }
}

impl PageTemplate {
    /// Of the text of an item with `PLACE` wherever its number goes.
    fn new(item: String, rows: usize) -> Self {
        let mut item = item.into_bytes();
        let places = memchr::memmem::find_iter(&item, PLACE.as_bytes()).collect();
        item.push(b',');
        Self { stride: item.len(), places, bytes: item.repeat(rows) }
    }

    /// Append so many items, separated by commas, with their numbers.
    fn append(&self, body: &mut Vec<u8>, rows: usize, number: impl Fn(usize) -> usize) {
        let base = body.len();
        let Some(items) = self.bytes.get(..(rows * self.stride).saturating_sub(1)) else { return };
        body.reserve(items.len() + 512);
        body.extend_from_slice(items);
        for row in 0..rows {
            let digits = digits_of(number(row));
            for place in &self.places {
                let at = base + row * self.stride + place;
                if let Some(field) = body.get_mut(at..at + DIGITS) {
                    field.copy_from_slice(&digits);
                }
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // a digit
fn digits_of(mut number: usize) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_comes_once() {
        let mut directory = Directory::new("v", "/d", 1_003, 4, 100);
        let mut seen = Vec::new();
        for suffix in 0..4 {
            let mut after: Option<String> = None;
            loop {
                let page: Value =
                    serde_json::from_slice(&directory.query(suffix, after.as_deref(), usize::MAX))
                        .unwrap();
                for item in page["Items"].as_array().unwrap() {
                    assert_eq!(item["path"]["S"], format!("ks://v/d-sf{suffix}"));
                    seen.push(number_of(item["children"]["S"].as_str().unwrap()).unwrap());
                }
                match page["LastEvaluatedKey"]["children"]["S"].as_str() {
                    Some(last) => after = Some(last.to_owned()),
                    None => break,
                }
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..1_003).collect::<Vec<_>>());
    }

    #[test]
    fn an_entry_is_found_by_its_name() {
        let directory = Directory::new("v", "/d", 10, 4, 100);
        assert_eq!(
            directory.item("ks://v/d-sf3", "part-00000009").unwrap()["ver"],
            json!({"N": "2"})
        );
        assert_eq!(directory.item("ks://v/d-sf3", "part-00000010"), None);
        assert_eq!(directory.item("ks://v/d-sf4", "part-00000009"), None);
        assert_eq!(directory.item("ks://v/d-sf3", "other"), None);
    }
}
