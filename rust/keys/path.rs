//! Keys of layout `path`: `ks://<volume>/<parent path>-sf<index>` and the name.

use std::borrow::Cow;

use crate::errors::{Fault, InvalidPath};
use crate::keys::{SUFFIX, without_suffix};
use crate::limits::MAX_PARTITION_BYTES;
use crate::paths::{is_normal, normal};

/// The beginning of every partition key.
pub const SCHEME: &str = "ks://";

/// A volume's name: the authority of its partition keys.
pub struct Volume(String);

impl Volume {
    /// The name, if it is a valid authority.
    pub fn new(name: &str) -> Result<Self, InvalidPath> {
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(InvalidPath::new(Fault::Volume, name));
        }
        Ok(Self(name.to_owned()))
    }

    /// Refuses a parent whose partition key with suffix `last` is too long.
    pub fn check_length(&self, parent: &str, last: u32) -> Result<(), Fault> {
        let digits = last.checked_ilog10().map_or(1, |power| power as usize + 1);
        if SCHEME.len() + self.0.len() + parent.len() + SUFFIX.len() + digits > MAX_PARTITION_BYTES
        {
            return Err(Fault::KeyTooLong);
        }
        Ok(())
    }

    /// Appends the part of each partition key that precedes the directory.
    pub fn push_authority(&self, out: &mut String) {
        out.push_str(SCHEME);
        out.push_str(&self.0);
    }

    /// The position of the directory in a partition key.
    pub fn parent_start(&self) -> usize {
        SCHEME.len() + self.0.len()
    }

    /// The directory of a partition key, or the error of an invalid one.
    #[inline]
    pub fn parent_of<'a>(&self, partition: &'a str) -> Result<&'a str, &'static str> {
        let rest = partition
            .strip_prefix(SCHEME)
            .ok_or("the partition key does not begin with 'ks://'")?;
        let rest = rest
            .strip_prefix(self.0.as_str())
            .filter(|rest| rest.starts_with('/'))
            .ok_or("the partition key is not of this volume")?;
        let parent = without_suffix(rest)?;
        if partition.len() > MAX_PARTITION_BYTES {
            return Err("the partition key is too long");
        }
        if !is_normal(parent) {
            return Err("the partition key's directory is not a normalised path");
        }
        Ok(parent)
    }
}

/// The normal form of a path that begins with `/`, as no entry key of layout `tree` does.
#[inline]
pub fn absolute(path: &str) -> Result<Cow<'_, str>, InvalidPath> {
    if path.starts_with('/') {
        return normal(path);
    }
    Err(normal(path).err().unwrap_or_else(|| InvalidPath::new(Fault::Relative, path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hyphen_is_the_cut() {
        let volume = Volume::new("v-sf1").unwrap();
        assert_eq!(volume.parent_of("ks://v-sf1/a-sf1-sf2"), Ok("/a-sf1"));
        assert_eq!(volume.parent_of("ks://v-sf1/-sf0"), Ok("/"));
        for bad in [
            "ks://v-sf1",
            "ks://v-sf1-sf0",
            "ks://v/a-sf1",
            "ks://v-sf1/a",
            "ks://v-sf1/a/-sf1",
            "s3k:volume",
            "s3k:tree/a-sf1",
        ] {
            assert!(volume.parent_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_suffix_decides_the_length() {
        let volume = Volume::new("v").unwrap();
        let parent = format!("/{}", "x".repeat(MAX_PARTITION_BYTES - "ks://v/-sf9".len()));
        assert_eq!(volume.check_length(&parent, 0), Ok(()));
        assert_eq!(volume.check_length(&parent, 9), Ok(()));
        assert_eq!(volume.check_length(&parent, 10), Err(Fault::KeyTooLong));
    }

    #[test]
    fn a_partition_key_that_no_table_holds_is_refused() {
        let volume = Volume::new("v").unwrap();
        let parent = "/x".repeat((MAX_PARTITION_BYTES - "ks://v-sf9".len()) / 2);
        assert_eq!(volume.parent_of(&format!("ks://v{parent}-sf9")), Ok(parent.as_str()));
        assert!(volume.parent_of(&format!("ks://v{parent}x-sf9")).is_err());
    }

    #[test]
    fn only_a_path_begins_with_a_slash() {
        assert_eq!(absolute("//a/./b/").as_deref(), Ok("/a/b"));
        for (text, fault) in [
            ("a/b", Fault::Relative),
            (".", Fault::Relative),
            ("..", Fault::AboveRoot),
            ("", Fault::Empty),
        ] {
            assert_eq!(absolute(text), Err(InvalidPath::new(fault, text)));
        }
    }
}
