//! Keys of layout `tree`: `s3k:tree/<directory id>-sf<index>` and the name.
//!
//! An entry key is `<directory id>/<name>`.

use crate::errors::Fault;
use crate::keys::without_suffix;
use crate::paths::check_name;

/// The beginning of every partition key.
pub const PREFIX: &str = "s3k:tree/";

/// The directory id of the root.
const ROOT: &str = "00000000-0000-4000-8000-000000000000";
/// The directory id of the trash, whose items are named by their object ids.
const TRASH: &str = "00000000-0000-4000-8000-000000000001";

/// The longest object id.
const MAX_ID_BYTES: usize = 64;

/// Whether a text is an object id that keys of the log and of layout `tree` can hold.
#[inline]
pub fn is_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(fits)
}

/// Whether an id belongs to a directory without an item: the root or the trash.
pub fn is_reserved(id: &[u8]) -> bool {
    id == ROOT.as_bytes() || id == TRASH.as_bytes()
}

/// Whether a directory id is that of the trash.
pub fn is_trash(id: &str) -> bool {
    id == TRASH
}

/// Refuses a text that is no directory id.
pub fn check_directory(text: &str) -> Result<(), Fault> {
    if is_id(text) {
        Ok(())
    } else if text.starts_with('/') {
        Err(Fault::Path)
    } else {
        Err(Fault::DirectoryId)
    }
}

/// Directory id and name of an entry key.
pub fn directory_and_name(entry_key: &str) -> Result<(&str, &str), Fault> {
    if entry_key.starts_with('/') {
        return Err(Fault::Path);
    }
    let (directory, name) = entry_key.split_once('/').ok_or(Fault::EntryKey)?;
    check_directory(directory)?;
    check_name(name)?;
    Ok((directory, name))
}

/// The directory id of a partition key, or the error of an invalid one.
pub fn directory_of(partition: &str) -> Result<&str, &'static str> {
    let rest = partition
        .strip_prefix(PREFIX)
        .ok_or("the partition key does not begin with 's3k:tree/'")?;
    let directory = without_suffix(rest)?;
    if is_id(directory) { Ok(directory) } else { Err("the partition key has no directory id") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_NAME_BYTES;

    #[test]
    fn the_last_hyphen_is_the_cut() {
        let longest = "x".repeat(MAX_ID_BYTES);
        for id in ["a", "-", "a-sf1", "-sf0-sf0", ROOT, TRASH, "A_9", &longest] {
            assert_eq!(directory_of(&format!("s3k:tree/{id}-sf65535")), Ok(id));
        }
        for bad in [
            "s3k:tree/-sf0",
            "s3k:tree/a",
            "s3k:tree/a-sf",
            "s3k:tree/a-sf01",
            "s3k:tree/a-sf65536",
            "s3k:tree//a-sf0",
            "s3k:tree/a/b-sf0",
            "s3k:tree/a b-sf0",
            "s3k:tree/é-sf0",
            "s3k:treea-sf0",
            "s3k:root",
            "ks://v/a-sf0",
            &format!("s3k:tree/{longest}x-sf0"),
        ] {
            assert!(directory_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_entry_key_is_an_id_and_a_name() {
        let (longest, long) = ("x".repeat(MAX_NAME_BYTES), "x".repeat(MAX_NAME_BYTES + 1));
        for name in ["b", "...", "-sf0", "é 😀", &longest] {
            assert_eq!(directory_and_name(&format!("a-1/{name}")), Ok(("a-1", name)));
        }
        for (text, fault) in [
            ("", Fault::EntryKey),
            ("a", Fault::EntryKey),
            ("/", Fault::Path),
            ("/a/b", Fault::Path),
            ("a b/c", Fault::DirectoryId),
            ("a/", Fault::NotAName),
            ("a//b", Fault::NotAName),
            ("a/b/c", Fault::NotAName),
            ("a/b/", Fault::NotAName),
            ("a/.", Fault::NotAName),
            ("a/..", Fault::NotAName),
            ("a/b\0", Fault::Nul),
            (&format!("a/{long}"), Fault::NameTooLong),
        ] {
            assert_eq!(directory_and_name(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn only_root_and_trash_are_reserved() {
        assert!(is_reserved(ROOT.as_bytes()) && is_reserved(TRASH.as_bytes()));
        assert!(is_id(ROOT) && is_id(TRASH));
        assert!(!is_reserved(b"00000000-0000-4000-8000-000000000002"));
    }
}
