//! A holder that was paused beyond its lease writes too late, and what it writes to refuses it by the token of its hold.
//!
//! No lock can keep a process that stands still from going on where it was. Here the pause is a sleep beyond a short lease; it may as
//! well be a machine that swaps or is moved.
//!
//! Run it with `cargo run --example fenced`; the server is the one at `REDLATCH_URL`, by default `redis://127.0.0.1/`.

use redlatch::{FencedLock, LockGuard, RedLockExt};
use std::time::Duration;

const RESOURCE: &str = "example:fenced";

/// What the lock protects. In a database: `UPDATE .. SET text = ?, token = ? WHERE token <= ?`.
#[derive(Default)]
struct Document {
    text: String,
    token: u64,
}

impl Document {
    /// Whether it was written: not by who has had the lock before somebody who wrote already.
    fn write(&mut self, text: &str, token: u64) -> bool {
        let is_in_time = token >= self.token;
        if is_in_time {
            *self = Self { text: text.to_owned(), token };
        }
        is_in_time
    }
}

fn token(guard: &LockGuard<'_, FencedLock>) -> u64 {
    guard.token().expect("a hold of a fenced lock has a token")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let [one, other] = [FencedLock::connect(&url)?, FencedLock::connect(&url)?];
    let mut document = Document::default();

    let paused =
        one.request(RESOURCE).lease(Duration::from_millis(200)).guard()?.expect("it waits as long as it takes");
    println!("one has the lock, and is paused");

    let guard = other.guard(RESOURCE)?;
    println!("the other writes: {}", document.write("by the other", token(&guard)));

    println!("one goes on, and writes: {}", document.write("by one", token(&paused)));
    println!("the document is {:?}", document.text);
    guard.unlock()?;
    println!("unlock: {}", paused.unlock().expect_err("it was lost"));
    Ok(())
}
