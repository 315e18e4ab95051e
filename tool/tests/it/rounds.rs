//! The last write of a job beside the first moment when another could have the lock.
//!
//! `REDLATCH_ROUNDS` says how many rounds there are of each; scripts/job-rounds takes 50.

use crate::tool::{Said, ends, tool};
use harness::server::{Server, Signal, signal};
use harness::threads::{LONG, eventually};
use redlatch::{Client, RedLock, RedLockExt, ReentrantLock};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

/// The lease of the job.
const LEASE: Duration = Duration::from_secs(2);

/// A file's time may be so much older than the write: the kernel takes the time of its last tick.
const TICK: Duration = Duration::from_millis(10);

/// Four processes write: the command, what it started, what that started, and what left for another parent.
const WRITERS: &str = "w() { while :; do : > $F; done; }; (w & w) & (w &) & w";

/// By what the job's processes are found at its end: a cgroup of their own where one can be made, or their process group and their parents.
const WAYS: [&[&str]; 2] = [&[], &["--no-cgroup"]];

fn rounds() -> usize {
    std::env::var("REDLATCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

/// A job that writes all the time.
struct Writers {
    file: PathBuf,
    run: Option<std::process::Child>,
}

impl Writers {
    fn start(url: &str, words: &[&str], name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("redlatch-round-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&file);
        let script = WRITERS.replace("$F", file.to_str().unwrap());
        let lease = format!("{}ms", LEASE.as_millis());
        let words = [&["run", "n", "--lease", &lease][..], words, &["--", "sh", "-c", &script]].concat();
        let run = tool(url, &words).stderr(Stdio::piped()).spawn().unwrap();
        eventually(LONG, "it writes", || file.exists());
        Self { file, run: Some(run) }
    }

    fn id(&self) -> u32 {
        self.run.as_ref().unwrap().id()
    }

    fn last_write(&self) -> SystemTime {
        fs::metadata(&self.file).and_then(|data| data.modified()).unwrap() + TICK
    }

    /// When the last write was, once `run` is over.
    fn end(&mut self) -> (Option<i32>, SystemTime) {
        let said = ends(self.run.take().unwrap());
        std::thread::sleep(Duration::from_millis(100));
        let last = self.last_write();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(self.last_write(), last, "somebody writes though run is over");
        (said.code, last)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// How long before the grant the last write was; fewer than zero: after it.
fn distance(last: SystemTime, granted: SystemTime) -> f64 {
    match granted.duration_since(last) {
        Ok(before) => before.as_secs_f64() * 1e3,
        Err(after) => after.duration().as_secs_f64() * -1e3,
    }
}

/// Plays rounds of each way, tells what they showed, and returns all distances.
fn each_way(url: &str, what: &str, mut round: impl FnMut(&[&str]) -> f64) -> Vec<f64> {
    let of_way = |way: &&[&str]| {
        let distances: Vec<_> = (0..rounds()).map(|_| round(way)).collect();
        let (least, most) =
            (distances.iter().copied().fold(f64::MAX, f64::min), distances.iter().copied().fold(f64::MIN, f64::max));
        let (by, count) = (ended_by(url, way), distances.len());
        println!(
            "{what}, ended by its {by}: the last write was {least:.0} to {most:.0} ms before the first grant, {count} rounds"
        );
        distances
    };
    WAYS.iter().flat_map(of_way).collect()
}

/// What `run` says of it. Where no cgroup can be made, both ways are the same.
fn ended_by(url: &str, way: &[&str]) -> String {
    let words = [&["-v", "run", "probe"][..], way, &["--", "true"]].concat();
    let said: Said = tool(url, &words).output().unwrap().into();
    let by = said.err.lines().find_map(|line| line.split("ended by its ").nth(1)).expect("it says so").to_owned();
    if way.is_empty() && by != "cgroup" { format!("{by} (with a cgroup: not shown)") } else { by }
}

/// When another has the lock: it looks all the time, so the grant was not much earlier.
fn granted(locks: &ReentrantLock) -> SystemTime {
    loop {
        let asked = SystemTime::now();
        if locks.try_lock("n").unwrap() {
            locks.unlock("n").unwrap();
            return asked;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_job_whose_renewals_are_refused_ends_before_the_next_grant() {
    let server = Server::start();
    let url = server.let_in("job", "secret", "~* &* +@all");
    let distances = each_way(&url, "renewals refused", |way| {
        let mut job = Writers::start(&url, way, "refused");
        let _: () = server.ask(&["ACL", "SETUSER", "job", "-evalsha", "-eval"]);
        let granted = granted(&server.locks());
        let (code, last) = job.end();
        let _: () = server.ask(&["ACL", "SETUSER", "job", "+evalsha", "+eval"]);
        assert_eq!(code, Some(76));
        distance(last, granted)
    });
    assert!(distances.iter().all(|distance| *distance > 0.0), "{distances:?}");
}

/// The server is stopped, so its key ends when its time is over: another could be granted the lock from then on.
#[test]
fn a_job_whose_server_is_gone_ends_before_its_lease() {
    let server = Server::start();
    let distances = each_way(&server.url(), "server gone", |way| {
        let mut job = Writers::start(&server.url(), way, "gone");
        std::thread::sleep(Duration::from_millis(700));
        let (asked, left) = (SystemTime::now(), server.pttl("n"));
        server.freeze();
        let (code, last) = job.end();
        server.thaw();
        assert_eq!(code, Some(76));
        eventually(LONG, "it is free", || !server.locks().is_locked("n").unwrap());
        // The server told what was left at the earliest when it was asked.
        distance(last, asked + Duration::from_millis(left.try_into().unwrap()))
    });
    assert!(distances.iter().all(|distance| *distance > 0.0), "{distances:?}");
}

#[test]
fn a_job_whose_run_is_killed_or_stopped_ends_before_the_next_grant() {
    let server = Server::start();
    for (name, which) in [("KILL", Signal::KILL), ("STOP", Signal::STOP)] {
        let distances = each_way(&server.url(), &format!("run gets SIG{name}"), |way| {
            let mut job = Writers::start(&server.url(), way, name);
            signal(which, job.id()).unwrap();
            let granted = granted(&server.locks());
            signal(Signal::CONT, job.id()).unwrap();
            let (_, last) = job.end();
            distance(last, granted)
        });
        assert!(distances.iter().all(|distance| *distance > 0.0), "{name}: {distances:?}");
    }
}

/// The data is gone at once, and `run` learns of it at its next renewal.
#[test]
fn a_job_whose_lock_is_flushed_goes_on_for_one_renewal_at_most() {
    let server = Server::start();
    let bound = LEASE / 3 + Duration::from_secs(1);
    for what in ["FLUSHALL", "force unlock"] {
        let distances = each_way(&server.url(), what, |way| {
            let mut job = Writers::start(&server.url(), way, "flushed");
            let flushed = SystemTime::now();
            match what {
                "FLUSHALL" => server.ask(&["FLUSHALL"]),
                _ => drop(server.locks().force_unlock("n").unwrap()),
            }
            let (code, last) = job.end();
            assert_eq!(code, Some(76));
            distance(last, flushed)
        });
        assert!(distances.iter().all(|distance| -distance <= bound.as_secs_f64() * 1e3), "{what}: {distances:?}");
    }
}

/// A strict server grants nothing for a lease after it lost its data.
#[test]
fn under_strict_a_job_ends_before_the_next_grant_though_data_is_flushed() {
    let server = Server::start();
    let strict: Client = server.builder().strict(true).watchdog_timeout(LEASE).build().unwrap();
    let locks = ReentrantLock::new(&strict);
    // The first use of a server begins a quarantine, too.
    drop(locks.guard("first").unwrap());
    let distances = each_way(&server.url(), "FLUSHALL under strict", |way| {
        let mut job = Writers::start(&server.url(), &[&["--strict"], way].concat(), "strict");
        let _: () = server.ask(&["FLUSHALL"]);
        let granted = granted(&locks);
        let (code, last) = job.end();
        assert_eq!(code, Some(76));
        distance(last, granted)
    });
    assert!(distances.iter().all(|distance| *distance > 0.0), "{distances:?}");
}
