//! Servers whose clocks differ: a library that is preloaded puts the wall clock of a process ahead.

use super::Member;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SOURCE: &str = include_str!("clock.c");

/// What a process is started with whose clock is not the machine's.
pub(crate) struct Clock {
    library: PathBuf,
    /// In ms.
    ahead: i64,
}

impl Clock {
    pub(crate) fn new(library: &Path, ahead: i64) -> Self {
        Self { library: library.to_owned(), ahead }
    }

    pub(crate) fn put_ahead(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("REDLATCH_CLOCK_US", (self.ahead * 1_000).to_string());
    }
}

/// Built by the compiler that links Rust programs too; nothing where there is none of that name.
pub(super) fn library(dir: &Path) -> Option<PathBuf> {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    std::fs::write(&source, SOURCE).expect("room for a file");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success()).then_some(library)
}

impl Member {
    /// How far its clock is ahead of the machine's, in ms, less the way of its answer; behind: negative.
    pub fn clock_ahead(&self) -> i64 {
        let (seconds, micros): (u64, u64) = self.ask(&["TIME"]);
        let told = Duration::from_secs(seconds) + Duration::from_micros(micros);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        told.as_millis() as i64 - now.as_millis() as i64
    }
}
