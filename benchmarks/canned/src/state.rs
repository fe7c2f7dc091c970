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
    pub(crate) latency_us: AtomicU64,
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

    pub(crate) fn latency(&self) -> Option<Duration> {
        let latency = self.latency_us.load(Ordering::Relaxed);
        (latency > 0).then(|| Duration::from_micros(latency))
    }
}
