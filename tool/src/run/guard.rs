//! The guard: a process in a group of its own that ends a job if `run` cannot. `run` may be stopped or killed, and then it neither renews
//! the lock nor ends the job. The guard has a pipe from `run` and knows until when the job may run.
//!
//! What comes through the pipe, a line each: `job <leader> <run> <others> <cgroup>`, `until <nanoseconds since boot>`, and `end` when the job is over. The
//! end of the pipe without `end` says that `run` is gone.

use super::group::Group;
use super::job::SELF;
use super::terminal::without;
use crate::out::Failed;
use nix::sys::signal::Signal::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, getpid};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// A deadline that moved by less, in nanoseconds, has not moved.
const NOISE: u64 = 1_000_000;

/// A guard is in time if it ended the job so many nanoseconds after the deadline: half of the least margin before the end of the lease.
const LATE: u64 = 50_000_000;

/// The exit code of a guard that ended a job in time.
pub(super) const IN_TIME: u8 = 3;

/// What neither ends nor stops a guard, from before its first instruction.
const BLOCKED: [Signal; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP];

/// How this program is told to be a guard.
pub(crate) const WORD: &str = "__guard";

/// The side of `run`.
pub(super) struct Guard {
    child: Child,
    pipe: ChildStdin,
    until: u64,
}

impl Guard {
    /// Starts the guard of a job, and returns once it knows the job. It needs nothing of the environment, which may have passwords.
    pub(super) fn start(group: &mut Group) -> std::io::Result<Self> {
        let mut command = Command::new(SELF);
        // Not in the group of `run`: what a terminal sends to that would end or stop the guard before the job.
        command.arg0("redlatch").arg(WORD).env_clear().process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // What a service manager sends to all processes must not end it before the job.
        let mut child = without(&BLOCKED, || command.spawn())?;
        let (pipe, answer) = (child.stdin.take(), child.stdout.take());
        let (Some(mut pipe), Some(mut answer)) = (pipe, answer) else { unreachable!("both are pipes") };
        group.guarded_by(Pid::from_child(&child));
        writeln!(pipe, "job {}", group.line())?;
        answer.read_exact(&mut [0])?;
        Ok(Self { child, pipe, until: u64::MAX })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The job may run until then, in nanoseconds since boot. A guard that is gone is found when it is waited for.
    pub(super) fn until(&mut self, until: u64) {
        // Two clocks are read one after the other, so the same deadline is never quite the same.
        if self.until.abs_diff(until) > NOISE {
            self.until = until;
            let _ = writeln!(self.pipe, "until {until}");
        }
    }

    /// The job is over. A guard that was stopped does not keep `run` waiting.
    pub(super) fn end(&mut self) {
        let _ = writeln!(self.pipe, "end");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nanoseconds since boot, suspended time included, as the library counts leases.
pub(super) fn boot_now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The guard's own side.
pub(crate) fn guard() -> Result<u8, Failed> {
    let fail = |error: std::io::Error| Failed::new(1, format!("the guard fails: {error}"));
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
        .map_err(|error| fail(error.into()))?;
    let (mut words, mut group, mut deadline) = (Words::default(), None, u64::MAX);
    loop {
        match words.next(&timer) {
            Next::Line(line) => match line.split_once(' ') {
                Some(("job", job)) => {
                    group = Group::told(job, getpid());
                    let _ = std::io::stdout().write_all(b"\n").and_then(|()| std::io::stdout().flush());
                }
                Some(("until", until)) => {
                    deadline = until.parse().unwrap_or(0);
                    set(&timer, deadline);
                }
                _ => return Ok(0),
            },
            Next::Over => {
                group.iter_mut().for_each(Group::kill);
                // `run` may hear of it only when its lease is over.
                let is_in_time = boot_now().saturating_sub(deadline) < LATE && boot_now() >= deadline;
                // It takes the cgroup away if `run` is not there to do it.
                std::thread::sleep(Duration::from_millis(200));
                group.iter().for_each(Group::clear);
                return Ok(if is_in_time { IN_TIME } else { 0 });
            }
        }
    }
}

fn set(timer: &OwnedFd, until: u64) {
    // A time of zero would switch the timer off.
    let span = Duration::from_nanos(until.max(1));
    let it_value =
        Timespec { tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX), tv_nsec: span.subsec_nanos().into() };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).expect("a time since boot");
}

enum Next {
    Line(String),
    /// The time is over, or `run` is gone.
    Over,
}

/// What came through the pipe and was not read yet.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn next(&mut self, timer: &OwnedFd) -> Next {
        let stdin = std::io::stdin();
        loop {
            if let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.0.drain(..=end).collect();
                return Next::Line(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut both = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(timer, PollFlags::IN)];
            if poll(&mut both, None).is_err() {
                // A signal came.
                continue;
            }
            if !both[0].revents().is_empty() {
                let mut bytes = [0; 512];
                match rustix::io::read(&stdin, &mut bytes) {
                    Ok(0) => return Next::Over,
                    Ok(count) => self.0.extend(&bytes[..count]),
                    Err(_) => {}
                }
            } else if !both[1].revents().is_empty() {
                return Next::Over;
            }
        }
    }
}
