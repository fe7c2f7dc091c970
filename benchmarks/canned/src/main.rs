//! `canned [--threads N] [--port P]`: serve on 127.0.0.1 until killed; says `port P` when ready.

use std::io::Write;
use std::process::ExitCode;

use canned::{Server, serve};

fn option(name: &str) -> Option<usize> {
    let mut words = std::env::args().skip_while(|word| word != name).skip(1);
    words.next().and_then(|value| value.parse().ok())
}

fn main() -> ExitCode {
    let threads = option("--threads").unwrap_or(1);
    let mut builder = if threads > 1 {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    let outcome = builder.enable_all().build().and_then(|runtime| {
        runtime.block_on(async {
            let port = u16::try_from(option("--port").unwrap_or(0)).unwrap_or(0);
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
            writeln!(std::io::stdout(), "port {}", listener.local_addr()?.port())?;
            std::io::stdout().flush()?;
            serve(listener, Server::default()).await
        })
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("canned: {error}");
            ExitCode::FAILURE
        }
    }
}
