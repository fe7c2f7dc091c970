//! Suffixes: the partition of a name in its directory.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use twox_hash::xxhash3_64;

use crate::columns::Strings;
use crate::errors::{InvalidPath, text_of};
use crate::paths::check_name;

/// The largest suffix count a volume may have.
pub const MAX_SUFFIX_COUNT: u32 = 65_536;

/// The number of partitions of a directory: 1 to `MAX_SUFFIX_COUNT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuffixCount(u32);

impl SuffixCount {
    /// The count, if it is within bounds.
    pub fn new(count: i64) -> Option<Self> {
        u32::try_from(count).ok().filter(|count| (1..=MAX_SUFFIX_COUNT).contains(count)).map(Self)
    }

    /// The count as a number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The largest index below the count.
    pub fn last(self) -> u32 {
        self.0 - 1
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for SuffixCount {
    type Error = PyErr;

    fn extract(argument: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        integer(&argument)?.and_then(Self::new).ok_or_else(|| {
            PyValueError::new_err(format!(
                "the suffix count must be between 1 and {MAX_SUFFIX_COUNT}"
            ))
        })
    }
}

/// A suffix: 0 to `MAX_SUFFIX_COUNT` - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuffixIndex(pub u32);

impl<'a, 'py> FromPyObject<'a, 'py> for SuffixIndex {
    type Error = PyErr;

    fn extract(argument: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let index = integer(&argument)?.and_then(|index| u32::try_from(index).ok());
        index.filter(|&index| index < MAX_SUFFIX_COUNT).map(Self).ok_or_else(|| {
            PyValueError::new_err(format!(
                "the suffix index must be between 0 and {}",
                MAX_SUFFIX_COUNT - 1
            ))
        })
    }
}

/// The integer, or None when it is beyond 64 bits.
fn integer(argument: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    match argument.extract::<i64>() {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyOverflowError>(argument.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The hash function from names to suffixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// XXH3, 64 bits, seed 0, over the UTF-8 bytes, modulo the count.
    Xxh3,
    /// The Java string hash over UTF-16 code units, absolute value modulo the count.
    Java31,
}

impl Hash {
    /// The hash function with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "xxh3" => Some(Self::Xxh3),
            "java31" => Some(Self::Java31),
            _ => None,
        }
    }

    /// The suffix of `name` among `count`.
    #[allow(clippy::cast_possible_truncation)] // a remainder of a 32-bit count
    pub fn index(self, name: &str, count: SuffixCount) -> u32 {
        match self {
            Self::Xxh3 => {
                (xxhash3_64::Hasher::oneshot(name.as_bytes()) % u64::from(count.get())) as u32
            }
            Self::Java31 => java31_index(java31(name), count),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Hash {
    type Error = PyErr;

    fn extract(argument: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let argument = argument.cast::<PyString>()?;
        let name = argument.to_string_lossy();
        Self::named(&name).ok_or_else(|| {
            PyValueError::new_err(format!("unknown hash '{name}': 'xxh3' or 'java31'"))
        })
    }
}

/// Hash of a Java string: `h = 31 * h + unit` over UTF-16 code units, wrapping at 32 bits.
fn java31(name: &str) -> i32 {
    name.encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// `|hash|` modulo `count`; floor modulo for -2^31, whose absolute value exceeds 32 bits.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and the 32-bit count
fn java31_index(hash: i32, count: SuffixCount) -> u32 {
    let count = i64::from(count.get());
    let hash = if hash == i32::MIN { i64::from(hash) } else { i64::from(hash).abs() };
    hash.rem_euclid(count) as u32
}

fn checked_index(name: &str, count: SuffixCount, hash: Hash) -> Result<u32, InvalidPath> {
    check_name(name).map_err(|fault| InvalidPath::new(fault, name))?;
    Ok(hash.index(name, count))
}

/// Suffix of a name.
#[pyfunction]
pub fn suffix_index(name: &Bound<'_, PyString>, count: SuffixCount, hash: Hash) -> PyResult<u32> {
    Ok(checked_index(text_of(name)?, count, hash)?)
}

/// Suffixes of many names.
#[pyfunction]
pub fn suffix_indexes(
    py: Python<'_>,
    names: Strings<'_>,
    count: SuffixCount,
    hash: Hash,
) -> PyResult<Vec<u32>> {
    let names = names.texts()?;
    Ok(py.detach(|| {
        names.into_iter().map(|name| checked_index(name, count, hash)).collect::<Result<_, _>>()
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(count: i64) -> SuffixCount {
        SuffixCount::new(count).unwrap()
    }

    #[test]
    fn java31_is_the_hash_of_java_strings() {
        for (name, hash) in
            [("", 0), ("a", 97), ("part-00000", -1_741_854_250), ("é", 233), ("😀", 1_772_899)]
        {
            assert_eq!(java31(name), hash, "{name}");
        }
        assert_eq!(java31("polygenelubricants"), i32::MIN);
    }

    #[test]
    fn java31_takes_the_absolute_value_first() {
        assert_eq!(java31_index(-7, count(3)), 1);
        assert_eq!(java31_index(7, count(3)), 1);
        assert_eq!(java31_index(i32::MAX, count(10)), 7);
        assert_eq!(java31_index(i32::MIN + 1, count(10)), 7);
    }

    #[test]
    fn the_value_without_an_absolute_value_is_floored() {
        for (of, index) in [(1, 0), (3, 1), (10, 2), (80, 32), (64, 0)] {
            assert_eq!(java31_index(i32::MIN, count(of)), index, "{of}");
        }
    }

    #[test]
    fn counts_are_bounded() {
        for bad in [i64::MIN, -1, 0, 65_537, i64::MAX] {
            assert_eq!(SuffixCount::new(bad), None);
        }
        assert_eq!(count(65_536).last(), 65_535);
    }
}
