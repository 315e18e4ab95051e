//! How a `run` ended: its exit code, a line for people, and JSON for programs.

use super::held::Held;
use crate::cli::{Cli, Codes, Run};
use crate::out::{self, Failed, REFUSED, UNAVAILABLE};
use redlatch::Error;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use serde::Serialize;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::{emulate_default_handler, signal_name};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

/// Why a command did not begin though the lock was taken.
pub(super) const TOO_EARLY: &str = "its lease was over before the command began";

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    /// The command ended with this code.
    Exited(i32),
    /// This signal ended the command.
    Signalled(i32),
    /// Another has the lock, as far as is known who.
    Busy(Option<String>),
    /// This signal ended the wait for the lock.
    Ended(i32),
    Lost {
        why: String,
        /// Nothing of the job ran when its lease was over.
        is_in_time: bool,
    },
    /// `--max-hold` was reached.
    Overheld,
    Unavailable(String),
    Refused(String),
    /// There is no such command.
    NotRun(Failed),
    /// A wrong use, or `run` itself fails.
    Failed(Failed),
}

/// What is told of it.
pub(super) struct Outcome {
    how: How,
    waited: Duration,
    held: Option<Duration>,
    token: Option<u64>,
    ended_by: Option<&'static str>,
}

#[derive(Serialize)]
struct Told<'o> {
    name: &'o str,
    outcome: &'static str,
    code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'o str>,
    /// Of a lock that was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_time: Option<bool>,
    waited_ms: u128,
    held_ms: Option<u128>,
    token: Option<u64>,
    /// What the job would have been ended by.
    ended_by: Option<&'static str>,
}

/// Where it is written for programs.
pub(super) struct Report(Option<File>);

impl Report {
    /// The descriptor is looked at before anything else, and the command does not inherit it.
    ///
    /// # Errors
    /// For a descriptor that is not open.
    pub(super) fn to(descriptor: Option<i32>) -> Result<Self, Failed> {
        let Some(number) = descriptor else { return Ok(Self(None)) };
        let is_closed = || Failed::usage(format!("--result-fd {number} is not open"));
        // Before this program opens anything, which would get that number.
        std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).map_err(|_| is_closed())?;
        // Containers may refuse the first way, which alone has sockets.
        let own = pidfd_open(getpid(), PidfdFlags::empty());
        let copy = own.and_then(|own| pidfd_getfd(own, number, PidfdGetfdFlags::empty())).map(File::from);
        let copy = copy.or_else(|_| File::options().append(true).open(format!("/proc/self/fd/{number}")));
        let copy = copy.map_err(|error| Failed::usage(format!("--result-fd {number}: {error}")))?;
        if number > 2 {
            let _ = nix::unistd::close(number);
        }
        Ok(Self(Some(copy)))
    }

    fn write(self, told: &Told<'_>) {
        let Some(mut file) = self.0 else { return };
        let text = serde_json::to_string(told).expect("a name is text");
        if let Err(error) = writeln!(file, "{text}") {
            log::warn!("nothing was written to --result-fd: {error}");
        }
    }
}

impl Outcome {
    pub(super) fn new(how: How, waited: Duration, held: &Held, ended_by: &'static str) -> Self {
        let hold = held.hold();
        Self { how, waited, held: Some(hold.acquired_at().elapsed()), token: hold.token(), ended_by: Some(ended_by) }
    }

    /// The same, but the release found that the lock was gone before its lease was over. The first reason for a loss counts.
    pub(super) fn but_gone(self) -> Self {
        let how = match self.how {
            How::Exited(_) | How::Signalled(_) | How::Overheld => How::lost("it was gone when it was released"),
            How::Lost { why, .. } => How::lost(why),
            how => how,
        };
        Self { how, ..self }
    }

    pub(super) fn without_the_lock(how: How, began: Instant) -> Self {
        Self { how, waited: began.elapsed(), held: None, token: None, ended_by: None }
    }

    /// # Errors
    /// For a wrong use.
    pub(super) fn of_error(error: &Error, began: Instant) -> Result<Self, Failed> {
        let failed = Failed::from(error.clone());
        let how = match (failed.code, error) {
            (UNAVAILABLE, _) => How::Unavailable(failed.why),
            (REFUSED, _) => How::Refused(failed.why),
            (_, Error::Lost { .. }) => How::Lost { why: TOO_EARLY.to_owned(), is_in_time: true },
            _ => return Err(failed),
        };
        Ok(Self::without_the_lock(how, began))
    }

    /// Says it, and returns the exit code. A process that was ended by SIGINT dies by SIGINT, so that a shell's loop ends, too.
    pub(super) fn tell(&self, cli: &Cli, args: &Run, report: Report) -> u8 {
        let code = self.how.code(&args.codes);
        let line = self.how.line(&args.name).filter(|_| !cli.quiet || self.how.is_of_run());
        line.iter().for_each(|line| out::say(line));
        let (outcome, signal, why) = self.how.words();
        let in_time = self.how.is_in_time();
        let (waited_ms, held_ms) = (self.waited.as_millis(), self.held.map(|held| held.as_millis()));
        let (name, token, ended_by) = (args.name.as_str(), self.token, self.ended_by);
        report.write(&Told { name, outcome, code, signal, why, in_time, waited_ms, held_ms, token, ended_by });
        let by_sigint = matches!(self.how, How::Ended(SIGINT) | How::Signalled(SIGINT));
        // The kernel ignores it for the first process of a container.
        if by_sigint && std::process::id() != 1 {
            let _ = emulate_default_handler(SIGINT);
        }
        code
    }
}

impl How {
    /// It may not have been alone.
    pub(super) fn lost(why: impl Into<String>) -> Self {
        Self::Lost { why: why.into(), is_in_time: false }
    }

    /// Of a lock that was lost.
    pub(super) fn is_in_time(&self) -> Option<bool> {
        if let Self::Lost { is_in_time, .. } = self { Some(*is_in_time) } else { None }
    }

    fn code(&self, codes: &Codes) -> u8 {
        match self {
            Self::Exited(code) => u8::try_from(code & 0xff).unwrap_or(1),
            Self::Signalled(signal) | Self::Ended(signal) => u8::try_from(128 + signal).unwrap_or(255),
            Self::Busy(_) => codes.busy_code,
            Self::Lost { .. } => codes.lost_code,
            Self::Overheld => codes.overheld_code,
            Self::Unavailable(_) => codes.unavailable_code,
            Self::Refused(_) => codes.refused_code,
            Self::NotRun(failed) | Self::Failed(failed) => failed.code,
        }
    }

    /// Whether it tells of `run` and not of the command: an error, which is said in any case.
    fn is_of_run(&self) -> bool {
        !matches!(self, Self::Exited(_) | Self::Signalled(_) | Self::Busy(_) | Self::Ended(_))
    }

    /// For people; nothing where nothing is worth a word.
    fn line(&self, name: &str) -> Option<String> {
        Some(match self {
            Self::Exited(0) => return None,
            Self::Exited(code) => format!("{name}: the command ended with code {code}"),
            Self::Signalled(signal) => format!("{name}: {} ended the command", signal_word(*signal)),
            Self::Busy(None) => format!("{name}: another has the lock, the command did not run"),
            Self::Busy(Some(who)) => format!("{name}: {who}; the command did not run"),
            Self::Ended(signal) => format!("{name}: {} ended the wait, the command did not run", signal_word(*signal)),
            Self::Lost { why, is_in_time: true } => format!("{name}: the lock was lost: {why}"),
            Self::Lost { why, .. } => {
                format!("{name}: the lock was lost, so the command may not have been alone: {why}")
            }
            Self::Overheld => format!("{name}: --max-hold was reached, the command was ended"),
            Self::Unavailable(why) | Self::Refused(why) => format!("{name}: the command did not run: {why}"),
            Self::NotRun(Failed { why, .. }) | Self::Failed(Failed { why, .. }) => why.clone(),
        })
    }

    fn words(&self) -> (&'static str, Option<i32>, Option<&str>) {
        match self {
            Self::Exited(_) => ("exited", None, None),
            Self::Signalled(signal) => ("signalled", Some(*signal), None),
            Self::Busy(who) => ("busy", None, who.as_deref()),
            Self::Ended(signal) => ("ended", Some(*signal), None),
            Self::Lost { why, .. } => ("lost", None, Some(why)),
            Self::Overheld => ("overheld", None, None),
            Self::Unavailable(why) => ("unavailable", None, Some(why)),
            Self::Refused(why) => ("refused", None, Some(why)),
            Self::NotRun(failed) => ("not run", None, Some(&failed.why)),
            Self::Failed(failed) => ("failed", None, Some(&failed.why)),
        }
    }
}

fn signal_word(signal: i32) -> String {
    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(how: How) -> Outcome {
        Outcome::without_the_lock(how, Instant::now())
    }

    /// The lease says that there was time, and the server says that another may have had the lock.
    #[test]
    fn a_lock_that_is_gone_before_its_lease_was_not_lost_in_time() {
        let in_time = How::Lost { why: "late".to_owned(), is_in_time: true };
        assert_eq!(outcome(in_time).but_gone().how, How::lost("late"), "the first reason counts");
        assert_eq!(outcome(How::Exited(3)).but_gone().how, How::lost("it was gone when it was released"));
    }
}
