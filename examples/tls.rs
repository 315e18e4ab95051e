//! A server that wants TLS, a certificate and a password that changes while the program runs.
//!
//! Two threads count under a lock. The server asks each connection for a certificate, and its user's password is changed every
//! other second, with every connection closed by it: the callback reads the file in which whoever rotates passwords leaves the
//! new one, and no call fails.
//!
//! Run it with `scripts/tls`, which makes certificates, starts the server and changes the password; or beside a server of yours
//! with `cargo run --features tls --example tls`, where `REDLATCH_URL` names it (`rediss://host:port`) and `REDLATCH_PAPERS` the
//! folder of `ca.crt`, `client.crt`, `client.key` and `password`. It ends after as many seconds as its argument says, by default 10.

use redlatch::{Client, Credentials, RedLockExt, RedisRedLock, Tls};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const NAME: &str = "example:tls";
const USER: &str = "app";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "rediss://127.0.0.1:6380".to_owned());
    let papers = PathBuf::from(std::env::var("REDLATCH_PAPERS").unwrap_or_else(|_| ".".to_owned()));
    let seconds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10);
    let read = |name: &str| std::fs::read(papers.join(name));
    let tls = Tls::new().ca(read("ca.crt")?).client_certificate(read("client.crt")?, read("client.key")?);
    let password = papers.join("password");
    let client = Client::builder(&url)
        .tls(tls)
        // Asked for each connection, so what the file says now is what counts.
        .credentials(move || std::fs::read_to_string(&password).map(|word| Credentials::new(USER, word.trim_end())))
        .build()?;
    let (locks, counted) = (RedisRedLock::new(&client), AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(seconds);

    let outcomes: Vec<_> = scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| count(&locks, &counted, end)));
        threads.into_iter().map(|thread| thread.join().expect("a thread does not panic")).collect()
    });
    outcomes.into_iter().collect::<redlatch::Result<()>>()?;
    println!(
        "{} increments, {} connections made anew, 0 calls failed",
        counted.load(SeqCst),
        client.stats().reconnects
    );
    Ok(())
}

/// Ends with the first call that fails.
fn count(locks: &RedisRedLock, counted: &AtomicU64, end: Instant) -> redlatch::Result<()> {
    while Instant::now() < end {
        locks.execute_in_lock(NAME, || {
            let number = counted.load(SeqCst);
            sleep(Duration::from_millis(1));
            counted.store(number + 1, SeqCst);
        })?;
    }
    Ok(())
}
