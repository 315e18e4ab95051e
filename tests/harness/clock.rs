//! Servers whose clocks are not the machine's: a preloaded library puts the wall clock of a process ahead or back.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SOURCE: &str = include_str!("clock.c");

/// A clock that can be set, given to a process at its start.
pub(crate) struct Clock {
    library: PathBuf,
    /// The library reads the difference from this file.
    file: PathBuf,
}

impl Clock {
    /// Builds the library in the server's folder, by `cc`, which also links Rust programs. `None` if the machine has no program of
    /// that name.
    pub(crate) fn new(dir: &Path, ahead_ms: i64) -> Option<Self> {
        let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
        std::fs::write(&source, SOURCE).expect("room for a file");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).stderr(Stdio::null());
        let clock = Self { library, file: dir.join("clock") };
        clock.set(ahead_ms);
        command.status().is_ok_and(|status| status.success()).then_some(clock)
    }

    /// Writes the difference in one piece, because the process may read it at any time.
    pub(crate) fn set(&self, ahead_ms: i64) {
        let us = std::ffi::c_long::try_from(ahead_ms * 1_000).expect("a time that a clock has");
        let file = std::fs::OpenOptions::new().create(true).write(true).truncate(false).open(&self.file);
        std::os::unix::fs::FileExt::write_all_at(&file.expect("a file"), &us.to_ne_bytes(), 0)
            .expect("room for a number");
    }

    pub(crate) fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("REDLATCH_CLOCK", &self.file);
    }
}

/// How far a server's clock is ahead of the machine's, in ms, by its answer to TIME, less the way of the answer; negative if behind.
pub fn ahead((seconds, micros): (u64, u64)) -> i64 {
    let told = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    told.as_millis() as i64 - now.as_millis() as i64
}
