//! `load HOST:PORT CONNECTIONS SECONDS FILE`: send the request in FILE over and over, and print
//! answers and bytes a second.

use std::io::{Error, Result};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Length of the whole answer that begins a buffer, once its head is there. `is_head`: it answers a
/// HEAD, and has no body.
fn length_of(buffer: &[u8], is_head: bool) -> Option<usize> {
    let head = memchr::memmem::find(buffer, b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(buffer.get(..head)?).ok()?;
    if is_head {
        return Some(head);
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    Some(head + length.trim().parse::<usize>().ok()?)
}

async fn answers(address: String, request: Vec<u8>, end: Instant) -> Result<(u64, u64)> {
    let mut stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let is_head = request.starts_with(b"HEAD ");
    let mut buffer = vec![0; 1 << 20];
    let (mut count, mut bytes) = (0, 0);
    while Instant::now() < end {
        stream.write_all(&request).await?;
        let (mut filled, mut left) = (0, None);
        while left != Some(0) {
            let room = if left.is_none() { filled.. } else { 0.. };
            let got = stream.read(buffer.get_mut(room).unwrap_or_default()).await?;
            if got == 0 {
                return Err(Error::other("the connection ended"));
            }
            bytes += got as u64;
            filled += got;
            left = match left {
                Some(left) => Some(usize::saturating_sub(left, got)),
                None => length_of(buffer.get(..filled).unwrap_or_default(), is_head)
                    .map(|all| all - filled),
            };
        }
        count += 1;
    }
    Ok((count, bytes))
}

#[allow(clippy::cast_precision_loss)] // rates
fn run() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, connections, seconds, file] = words.as_slice() else {
        return Err(Error::other("load HOST:PORT CONNECTIONS SECONDS FILE"));
    };
    let request = std::fs::read(file)?;
    let connections: usize = connections.parse().map_err(Error::other)?;
    let seconds: f64 = seconds.parse().map_err(Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (count, bytes) = runtime.block_on(async {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let tasks: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(answers(address.clone(), request.clone(), end)))
            .collect();
        let (mut count, mut bytes) = (0, 0);
        for task in tasks {
            let (answers, size) = task.await.map_err(Error::other)??;
            count += answers;
            bytes += size;
        }
        Result::Ok((count, bytes))
    })?;
    println!(
        "{{\"per_second\": {:.1}, \"bytes_per_second\": {:.0}}}",
        count as f64 / seconds,
        bytes as f64 / seconds
    );
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}
