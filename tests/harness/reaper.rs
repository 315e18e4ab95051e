//! Servers and workers end with the orchestrator, even if that is killed. The reaper, a process of its own, hears of
//! each of them over a pipe. When the pipe breaks it ends those that are left, also stopped ones, on every Unix.

use crate::server::{Signal, signal};
use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

pub const ROLE: &str = "REDLATCH_REAPER";

static REAPER: OnceLock<Mutex<Child>> = OnceLock::new();

/// Starts the reaper, in a process group of its own, so that a ctrl-c does not reach it.
pub fn start() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, "1").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let _ = REAPER.set(Mutex::new(command.spawn().expect("a process")));
}

fn tell(line: &str) {
    let mut reaper = REAPER.get().expect("it was started").lock().unwrap();
    writeln!(reaper.stdin.as_mut().expect("a pipe"), "{line}").expect("the reaper lives");
}

/// Tells the reaper that a process was started.
pub fn watch(pid: u32) {
    tell(&format!("+{pid}"));
}

/// Tells the reaper that the process has ended.
pub fn forget(pid: u32) {
    tell(&format!("-{pid}"));
}

/// Tells the reaper of a directory to remove in the end.
pub fn tidy(dir: &Path) {
    tell(&format!("/{}", dir.display()));
}

/// What the reaper's own process does.
pub fn run() {
    let (mut alive, mut dirs) = (HashSet::new(), Vec::new());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_at(1) {
            ("+", pid) => drop(alive.insert(pid.to_owned())),
            ("-", pid) => drop(alive.remove(pid)),
            (_, dir) => dirs.push(dir.to_owned()),
        }
    }
    for pid in alive {
        let _ = pid.parse().map(|pid| signal(Signal::KILL, pid));
    }
    for dir in dirs {
        let _ = std::fs::remove_dir_all(dir);
    }
}
