//! A small cache for processing many keys, most of which share a few directories.

use twox_hash::xxhash3_64;

/// Maximum number of cached texts: bounds memory and the worst case for any keys.
const MOST_PLACES: usize = 1024;
/// The number of slots for a text.
const WAYS: usize = 4;

/// A cache of the last values for a number of texts.
pub struct Recent<'a, T> {
    places: Vec<Option<(&'a str, T)>>,
    /// The slot of the last text: keys of one directory are often adjacent.
    last: usize,
}

impl<'a, T> Recent<'a, T> {
    /// An empty cache for processing `rows` keys.
    pub fn for_rows(rows: usize) -> Self {
        let places = rows.next_power_of_two().clamp(WAYS, MOST_PLACES);
        Self { places: std::iter::repeat_with(|| None).take(places).collect(), last: 0 }
    }

    /// The value for `key`, computed unless it is cached.
    pub fn get_or_make<E>(
        &mut self,
        key: &'a str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&mut T, E> {
        if !self.holds(self.last, key) {
            let (place, is_there) = self.place_of(key);
            self.last = place;
            if !is_there && let Some(place) = self.places.get_mut(place) {
                *place = None;
            }
        }
        #[allow(clippy::indexing_slicing)] // places are remainders of their number
        match &mut self.places[self.last] {
            Some((_, value)) => Ok(value),
            empty => Ok(&mut empty.insert((key, make()?)).1),
        }
    }

    fn holds(&self, place: usize, key: &str) -> bool {
        matches!(self.places.get(place), Some(Some((held, _))) if *held == key)
    }

    /// The slot of `key`, or a slot for it; and whether it is cached.
    fn place_of(&self, key: &str) -> (usize, bool) {
        let first = self.first_place(key);
        for way in 0..WAYS {
            let place = (first + way) % self.places.len();
            match self.places.get(place) {
                Some(Some((held, _))) if *held == key => return (place, true),
                Some(Some(_)) => {}
                _ => return (place, false),
            }
        }
        (first, false)
    }

    #[allow(clippy::cast_possible_truncation)] // only the low bits count
    fn first_place(&self, key: &str) -> usize {
        xxhash3_64::Hasher::oneshot(key.as_bytes()) as usize % self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_for_its_own_key_however_many_there_are() {
        let keys: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
        let mut recent = Recent::for_rows(keys.len());
        for key in keys.iter().chain(&keys) {
            assert_eq!(recent.get_or_make(key, || Ok::<_, ()>(key.clone())), Ok(&mut key.clone()));
        }
    }

    #[test]
    fn a_failure_is_not_remembered() {
        let mut recent = Recent::for_rows(1);
        assert_eq!(recent.get_or_make("a", || Err::<u8, _>("no")), Err("no"));
        assert_eq!(recent.get_or_make("a", || Ok::<_, &str>(1)), Ok(&mut 1));
        assert_eq!(recent.get_or_make("a", || Err("never asked")), Ok(&mut 1));
    }
}
