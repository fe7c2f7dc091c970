//! Connections: requests in, answers out, latency by a timer.

use std::io;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use crate::control;
use crate::http::{Answer, Connection, Request};
use crate::state::{Server, Work, lock};

fn answer(server: &Server, request: &Request<'_>) -> Answer {
    if let Some(command) = request.path.strip_prefix("/_/") {
        return control::answer(server, command, request);
    }
    if let Some((_, operation)) = request.target.and_then(|target| target.rsplit_once('.')) {
        server.count(operation);
        lock(&server.dynamo).answer(operation, &request.body)
    } else {
        server.count(request.method);
        lock(&server.objects).answer(request)
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

/// What a request was for; None for a command of a benchmark.
fn work(request: &Request<'_>, answer: &Answer) -> Option<Work> {
    if request.path.starts_with("/_/") {
        return None;
    }
    Some(match (request.target, answer.listed, request.method) {
        (Some(_), _, _) => Work::Table,
        (None, Some(keys), _) => Work::List(keys),
        (None, None, "GET" | "HEAD") => Work::Read,
        _ => Work::Write,
    })
}

async fn converse(stream: TcpStream, server: &Server) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection::new(stream);
    while let Some(size) = connection.receive().await? {
        let (answer, is_head, latency) = {
            let Some(request) = connection.request(size) else { return Ok(()) };
            let answer = answer(server, &request);
            let latency = work(&request, &answer).and_then(|work| server.latency(work));
            (answer, request.method == "HEAD", latency)
        };
        connection.consume(size);
        if let Some(latency) = latency {
            tokio::time::sleep(latency).await;
        }
        connection.send(&answer, is_head).await?;
    }
    Ok(())
}
