//! What all connections share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::dynamodb::Dynamo;
use crate::objects::Objects;

/// The stores, the counts of requests, and the latency of answers.
#[derive(Default)]
pub struct Server {
    pub(crate) dynamo: Mutex<Dynamo>,
    pub(crate) objects: Mutex<Objects>,
    pub(crate) counts: Mutex<BTreeMap<String, u64>>,
    pub(crate) latency: Latency,
}

/// Microseconds that pass before an answer.
#[derive(Default)]
pub(crate) struct Latency {
    /// Of a request to the table.
    pub(crate) table: AtomicU64,
    /// Of a request that writes, copies or deletes objects.
    pub(crate) write: AtomicU64,
    /// Of a request that reads an object, and the least of a listing.
    pub(crate) read: AtomicU64,
    /// Of a listing of a thousand keys.
    pub(crate) list: AtomicU64,
}

/// What a request is for.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    Table,
    Write,
    Read,
    /// With the number of keys in the answer.
    List(usize),
}

/// What a poisoned lock holds is as good as it was: a benchmark's state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub(crate) fn count(&self, operation: &str) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(operation) {
            *count += 1;
        } else {
            counts.insert(operation.to_owned(), 1);
        }
    }

    pub(crate) fn latency(&self, work: Work) -> Option<Duration> {
        let of = |latency: &AtomicU64| latency.load(Ordering::Relaxed);
        let latency = match work {
            Work::Table => of(&self.latency.table),
            Work::Write => of(&self.latency.write),
            Work::Read => of(&self.latency.read),
            Work::List(keys) => {
                (of(&self.latency.list) * keys as u64 / 1_000).max(of(&self.latency.read))
            }
        };
        (latency > 0).then(|| Duration::from_micros(latency))
    }
}
