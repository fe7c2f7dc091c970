//! Connections: requests in, answers out, latency by a timer.

use std::io;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use crate::control;
use crate::http::{Answer, Connection, Request};
use crate::state::{Server, lock};

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

async fn converse(stream: TcpStream, server: &Server) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection::new(stream);
    while let Some(size) = connection.receive().await? {
        let (answer, is_head, is_control) = {
            let Some(request) = connection.request(size) else { return Ok(()) };
            (answer(server, &request), request.method == "HEAD", request.path.starts_with("/_/"))
        };
        connection.consume(size);
        if let Some(latency) = server.latency().filter(|_| !is_control) {
            tokio::time::sleep(latency).await;
        }
        connection.send(&answer, is_head).await?;
    }
    Ok(())
}
