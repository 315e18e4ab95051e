//! A cluster as a program sees it: a slot moves from one master to another and a master dies, and locks in several slots go
//! on excluding each other's threads.
//!
//! Two threads for each lock add to its counter in two steps, which would lose increments if both did it at once. A call that
//! meets a slot without a master asks on until there is one.
//!
//! Run it with `scripts/cluster`, which starts a cluster, moves a slot and kills a master; or beside a cluster of yours with
//! `cargo run --example cluster`, where `REDLATCH_URL` has some of its nodes, by default `redis+cluster://127.0.0.1:6379`.
//! It ends after as many seconds as its argument says, by default 15.

use redlatch::{Client, Error, RedLockExt, RedisRedLock};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Each in a slot of its own: names without a tag in braces are.
const LOCKS: usize = 6;
const THREADS: usize = 2;
const WORK: Duration = Duration::from_millis(2);

/// What the threads did, all of them since the start, and the longest wait since it was last told, ms.
#[derive(Default)]
struct Seen {
    increments: AtomicU64,
    longest: AtomicU64,
}

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis+cluster://127.0.0.1:6379".to_owned());
    let seconds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(15);
    let client = Client::builder(&url)
        .app_name("example-cluster")
        // Longer than a cluster needs to replace a master, which waits for `cluster-node-timeout` first.
        .outage_budget(Duration::from_secs(60))
        .on_lost(|lost| println!("told: {lost}"))
        .build()?;
    let locks = RedisRedLock::new(&client);
    let (seen, counters) = (Seen::default(), [(); LOCKS].map(|()| AtomicU64::new(0)));
    let end = Instant::now() + Duration::from_secs(seconds);

    let outcomes: Vec<_> = scope(|scope| {
        let threads = (0..LOCKS * THREADS).map(|thread| {
            let (locks, seen, counter) = (&locks, &seen, &counters[thread % LOCKS]);
            scope.spawn(move || count(locks, &format!("example:cluster:{}", thread % LOCKS), counter, seen, end))
        });
        let threads: Vec<_> = threads.collect();
        println!("{} threads count under {LOCKS} locks", threads.len());
        (0..seconds).for_each(|_| tell(&seen));
        threads.into_iter().map(|thread| thread.join().expect("a thread does not panic")).collect()
    });
    outcomes.into_iter().collect::<redlatch::Result<()>>()?;
    let (done, counted) = (seen.increments.load(SeqCst), counters.iter().map(|counter| counter.load(SeqCst)).sum());
    println!("{done} increments, {} of them lost", done.saturating_sub(counted));
    Ok(())
}

/// What a thread does.
fn count(locks: &RedisRedLock, name: &str, counter: &AtomicU64, seen: &Seen, end: Instant) -> redlatch::Result<()> {
    while Instant::now() < end {
        let start = Instant::now();
        let guard = locks.guard(name)?;
        seen.longest.fetch_max(start.elapsed().as_millis() as u64, SeqCst);
        let number = counter.load(SeqCst);
        sleep(WORK);
        counter.store(number + 1, SeqCst);
        seen.increments.fetch_add(1, SeqCst);
        done(guard.unlock())?;
    }
    Ok(())
}

fn tell(seen: &Seen) {
    sleep(Duration::from_secs(1));
    let (increments, longest) = (seen.increments.load(SeqCst), seen.longest.swap(0, SeqCst));
    println!("{increments} increments, longest wait {longest} ms");
}

/// What was not replicated when its master died is lost, and its program has to bear it.
fn done(unlocked: redlatch::Result<()>) -> redlatch::Result<()> {
    match unlocked {
        Err(error @ (Error::Lost { .. } | Error::OutcomeUnknown { .. })) => println!("the unlock says: {error}"),
        other => other?,
    }
    Ok(())
}
