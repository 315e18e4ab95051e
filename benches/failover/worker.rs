//! A process of those who wait: `--waiters <url> <kind> <threads>`.
//!
//! It writes `ready` when it is connected, reads a line, has all threads wait for the lock, and writes `waiting` when they do; then
//! for each `served <when>`, by `CLOCK_MONOTONIC`, or `failed <why>`. When its input ends, so does the process.

use crate::locks;
use crate::support::{Outcome, monotonic};
use redlatch::{RedLock, ReentrantLock};
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// The argument that turns this program into a worker, and what its clients are.
pub(crate) const WORKER: &str = "--waiters";
pub(crate) const SAFE: &str = "safe";
const PLAIN: &str = "plain";

/// What they wait for.
pub(crate) const NAME: &str = "bench:failover:n";

/// How long all may take to be ready, and to wait.
const PREPARED: Duration = Duration::from_secs(30);

pub(crate) fn run(url: &str, is_safe: bool, threads: usize) -> Outcome<()> {
    let locks = locks(url, is_safe)?;
    let own = format!("{NAME}:{}", std::process::id());
    locks.lock(&own).and_then(|()| locks.unlock(&own))?;
    println!("ready");
    let read = || stdin().read_line(&mut String::new());
    if read()? == 0 {
        return Ok(());
    }
    for _ in 0..threads {
        let locks = locks.clone();
        spawn(move || println!("{}", wait(&locks)));
    }
    while locks.client().stats().waiters < threads {
        sleep(Duration::from_millis(1));
    }
    println!("waiting");
    while read()? > 0 {}
    Ok(())
}

/// What came of a wait; how the lock is given up does not matter to who has waited.
fn wait(locks: &ReentrantLock) -> String {
    match locks.lock(NAME) {
        Ok(()) => {
            let served = monotonic();
            let _ = locks.unlock(NAME);
            format!("served {served}")
        }
        Err(error) => format!("failed {error}"),
    }
}

/// All of these processes. Dropping it ends them.
pub(crate) struct Crowd {
    children: Vec<(Child, ChildStdin)>,
    lines: Receiver<String>,
}

impl Crowd {
    pub(crate) fn start(url: &str, is_safe: bool, processes: usize, threads: usize) -> Outcome<Self> {
        let (tell, lines) = channel();
        let mut crowd = Self { children: Vec::new(), lines };
        for _ in 0..processes {
            let mut command = Command::new(std::env::current_exe()?);
            command.args([WORKER, url, if is_safe { SAFE } else { PLAIN }, &threads.to_string()]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
            pass_on(output, tell.clone());
            crowd.children.push((child, input));
        }
        crowd.all_say("ready")?;
        Ok(crowd)
    }

    /// Has all wait.
    pub(crate) fn wait(&mut self) -> Outcome<()> {
        self.children.iter_mut().try_for_each(|(_, input)| writeln!(input))?;
        self.all_say("waiting")
    }

    fn all_say(&self, what: &str) -> Outcome<()> {
        for _ in &self.children {
            let said = self.lines.recv_timeout(PREPARED).map_err(|_| format!("not all are {what}"))?;
            if said != what {
                return Err(format!("a worker says {said:?} instead of {what:?}").into());
            }
        }
        Ok(())
    }

    /// When each of so many was served; after the patience the others are not waited for.
    pub(crate) fn served(&self, waiters: usize, patience: Duration) -> Outcome<Vec<i64>> {
        let (end, mut served) = (Instant::now() + patience, Vec::new());
        for _ in 0..waiters {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.split_once(' ') {
                    Some(("served", when)) => served.push(when.parse()?),
                    _ => println!("a waiter says {line:?}"),
                },
                Err(_) => break,
            }
        }
        Ok(served)
    }
}

fn pass_on(output: impl std::io::Read + Send + 'static, tell: Sender<String>) {
    spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.into_iter().try_for_each(|line| tell.send(line))
    });
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
