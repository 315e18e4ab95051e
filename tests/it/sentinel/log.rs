//! What a failover looks like in the log, as `docs/on-call.md` says it.

use super::locks_of;
use crate::harness::sentinel::{Group, PATIENCE};
use crate::process::alone;
use crate::threads::{LONG, eventually, ms};
use redlatch::RedLockExt;
use std::sync::Mutex;
use std::time::Duration;

/// Renewed every 3 s, so that a renewal is due while there is no master, and longer than that lasts.
const LEASE: Duration = Duration::from_secs(9);

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Lines;

impl ::log::Log for Lines {
    fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &::log::Record<'_>) {
        LINES.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// From now on all that is logged is kept, but for what is of no interest to who is on call.
pub(crate) fn keep_lines() {
    ::log::set_logger(&Lines).unwrap();
    ::log::set_max_level(::log::LevelFilter::Info);
}

/// Where the first line is that has this in it.
pub(crate) fn line_with(part: &str) -> Option<usize> {
    LINES.lock().unwrap().iter().position(|line| line.contains(part))
}

/// All that was logged.
pub(crate) fn lines() -> Vec<String> {
    LINES.lock().unwrap().clone()
}

#[test]
fn a_failover_is_told_from_its_beginning_to_its_end() {
    alone(|| {
        keep_lines();
        let mut group = Group::start();
        let [holder, waiter] =
            [(); 2].map(|()| locks_of(group.builder().watchdog_timeout(LEASE).outage_budget(PATIENCE)));
        std::thread::scope(|scope| {
            let kept = holder.guard("kept").unwrap();
            group.replicated(0);
            group.sever(0);
            let gone = holder.guard("gone").unwrap();
            let waiting = scope.spawn(|| waiter.guard("kept").map(drop));
            eventually(LONG, "it listens", || group.nodes[0].subscribers("redisson_lock__channel:{kept}") == 1);
            // The renewal of what is held is due a second after the end of the master.
            std::thread::sleep(LEASE / 3 - ms(1_000));
            group.nodes[0].kill();
            let over = ["renewals are confirmed again at", "the subscriber is connected to", "was lost while held by"];
            eventually(PATIENCE, "it is over", || over.iter().all(|part| line_with(part).is_some()));
            kept.unlock().unwrap();
            assert!(gone.unlock().is_err() && waiting.join().unwrap().is_ok());
        });
        let lines = LINES.lock().unwrap().clone();
        let moved = line_with("has a new master").expect("it is told");
        for part in ["the subscriber has no connection to", "renewing "] {
            assert!(line_with(part).is_some_and(|at| at < moved), "{part}: {lines:#?}");
        }
        let lost: Vec<_> = lines.iter().filter(|line| line.contains("was lost while held by")).collect();
        assert!(lost.len() == 1 && lost[0].contains("\"gone\"") && lost[0].ends_with("Removed"), "{lines:#?}");
    });
}
