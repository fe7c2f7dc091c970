//! What a benchmark says to the server: `/_/directory`, `/_/latency` (microseconds:
//! `us` of all requests, or `table`, `write`, `read` and `list`), `/_/counts`, `/_/keep` (files
//! too; `files=0`: no longer), `/_/reset` (a volume stays), `/_/forget`.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::directories::Directory;
use crate::http::{Answer, Request};
use crate::state::{Server, lock};

fn number(request: &Request<'_>, name: &str, default: usize) -> usize {
    request.parameter(name).and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Carry out a command.
pub fn answer(server: &Server, command: &str, request: &Request<'_>) -> Answer {
    let body = match command {
        "directory" => {
            let name = |name| request.parameter(name).unwrap_or_default();
            lock(&server.dynamo).add(Directory::new(
                &name("volume"),
                &name("path"),
                number(request, "entries", 0),
                number(request, "suffixes", 1),
                number(request, "page", 3_000),
            ));
            json!({})
        }
        "latency" => {
            let all = number(request, "us", 0);
            let latency = &server.latency;
            for (name, of) in [
                ("table", &latency.table),
                ("write", &latency.write),
                ("read", &latency.read),
                ("list", &latency.list),
            ] {
                of.store(number(request, name, all) as u64, Ordering::Relaxed);
            }
            json!({})
        }
        "keep" => {
            lock(&server.dynamo).keep_files(number(request, "files", 1) != 0);
            json!({})
        }
        "forget" => {
            lock(&server.dynamo).forget();
            lock(&server.objects).clear("");
            json!({})
        }
        "reset" => {
            lock(&server.dynamo).forget_files();
            lock(&server.objects).clear(&request.parameter("keep").unwrap_or_default());
            lock(&server.counts).clear();
            json!({})
        }
        "counts" => json!(*lock(&server.counts)),
        _ => return Answer::new(404, String::new(), b"no such command".to_vec()),
    };
    Answer::json(200, body.to_string().into_bytes())
}
