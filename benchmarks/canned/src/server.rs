//! Connections: requests in, answers out, latency by a timer.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::control;
use crate::dynamodb::Dynamo;
use crate::http::{Answer, Connection, Request};
use crate::objects::Objects;

/// What all connections share.
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
    fn answer(&self, request: &Request<'_>) -> Answer {
        if let Some(command) = request.path.strip_prefix("/_/") {
            return control::answer(self, command, request);
        }
        if let Some((_, operation)) = request.target.and_then(|target| target.rsplit_once('.')) {
            self.count(operation);
            lock(&self.dynamo).answer(operation, &request.body)
        } else {
            self.count(request.method);
            lock(&self.objects).answer(request)
        }
    }

    fn count(&self, operation: &str) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(operation) {
            *count += 1;
        } else {
            counts.insert(operation.to_owned(), 1);
        }
    }

    fn latency(&self) -> Option<Duration> {
        let latency = self.latency_us.load(Ordering::Relaxed);
        (latency > 0).then(|| Duration::from_micros(latency))
    }
}

/// Serve every connection of `listener`.
///
/// # Errors
/// When no more connections can be accepted.
pub async fn serve(listener: TcpListener, server: Server) -> io::Result<()> {
    let server = Arc::new(server);
    loop {
        let (stream, _) = listener.accept().await?;
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            // A client that goes away is no failure of ours.
            drop(converse(stream, &server).await);
        });
    }
}

async fn converse(stream: TcpStream, server: &Server) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection::new(stream);
    while let Some(size) = connection.receive().await? {
        let (answer, is_head, is_control) = {
            let Some(request) = connection.request(size) else { return Ok(()) };
            (server.answer(&request), request.method == "HEAD", request.path.starts_with("/_/"))
        };
        connection.consume(size);
        if let Some(latency) = server.latency().filter(|_| !is_control) {
            tokio::time::sleep(latency).await;
        }
        connection.send(&answer, is_head).await?;
    }
    Ok(())
}
