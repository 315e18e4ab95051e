//! The job: how it begins, what it is told, and when it is over.

use super::Times;
use super::enter;
use super::group::{Group, children};
use super::guard::{self, Guard, boot_now};
use super::held::Held;
use super::outcome::{How, TOO_EARLY};
use super::terminal::{Terminal, stop_with_the_others, without};
use crate::cli::{OnLost, Run};
use crate::out::Failed;
use crossbeam_channel::{Receiver, never, select};
use nix::sys::signal::Signal as Blocked;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGINT, SIGKILL, SIGTSTP, SIGTTIN, SIGTTOU};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// This program, also if its file was replaced meanwhile.
pub(super) const SELF: &str = "/proc/self/exe";

/// So often a job that is about to end is looked at.
const LOOKS: Duration = Duration::from_millis(10);

/// `run` comes so much later to see that its guard has ended the job.
const LATE: Duration = Duration::from_millis(50);

const TOO_LATE: &str = "it could not be renewed in time";

/// What is said besides of a job that is gone before its lock is another's.
const ALONE: &str = "and nothing of the command ran when its lease was over";

/// A job under a lock.
pub(super) struct Job<'h> {
    held: &'h Held,
    times: Times,
    group: Group,
    guard: Guard,
    terminal: Terminal,
    began: Instant,
    /// Why it is ended, and when SIGKILL comes.
    ending: Option<(Why, Instant)>,
    /// How the command itself ended. What it started may go on.
    ended: Option<WaitStatus>,
    /// Why there was no command, if there was none.
    failure: File,
    /// The guard has ended it before the end of the lease.
    is_in_time: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    Lost(String),
    Overheld,
    /// The command has ended, and something that it started has not.
    LeftOver,
}

impl<'h> Job<'h> {
    /// The command begins when its guard knows it, and not before.
    pub(super) fn begin(held: &'h Held, args: &Run, times: Times) -> Result<Self, Failed> {
        let fail = |error: std::io::Error| Failed::new(1, format!("cannot start a job: {error}"));
        // What the command leaves behind becomes a child of this process, so its end is seen.
        let _ = set_child_subreaper(Some(getpid()));
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| fail(error.into()));
        let ((go, word), (failure, tell)) = (pipe()?, pipe()?);
        for inherited in [&go, &tell] {
            fcntl_setfd(inherited, FdFlags::empty()).map_err(|error| fail(error.into()))?;
        }
        let mut command = Command::new(SELF);
        let pipes = [&go, &tell].map(|pipe| pipe.as_raw_fd().to_string());
        command.arg0("redlatch").arg(enter::WORD).args(pipes).args(&args.command);
        command.process_group(0).env("REDLATCH_LOCK", &args.name).env_remove("REDLATCH_TOKEN");
        if let Some(token) = held.hold().token() {
            command.env("REDLATCH_TOKEN", token.to_string());
        }
        let others = children(getpid());
        // One that is stopped before it runs this program is in a group that no shell continues, and `spawn` waits for it.
        let child = without(&[Blocked::SIGTSTP], || command.spawn()).map_err(fail)?;
        drop((go, tell));
        let leader = Pid::from_child(&child);
        let mut group = Group::of(leader, getpid(), others, !args.no_cgroup);
        let guard = Guard::start(&mut group).map_err(fail)?;
        let (terminal, began, failure) = (Terminal::of_session(), Instant::now(), File::from(failure));
        let mut job =
            Self { held, times, group, guard, terminal, began, ending: None, ended: None, failure, is_in_time: false };
        job.tell_guard();
        log::info!("{}: the job is process {}, ended by its {}", args.name, leader.as_raw_nonzero(), job.group.reach());
        if held.hold().remaining() < times.margin && times.on_lost != OnLost::Ignore {
            // This process was stopped since it got the lock. Without a word the command does not begin.
            job.lose(TOO_EARLY);
        } else {
            // A job that was ended before it began is found when it is waited for.
            let _ = File::from(word).write_all(b"\n");
        }
        Ok(job)
    }

    pub(super) fn reach(&self) -> &'static str {
        self.group.reach()
    }

    /// Until nothing of it runs.
    pub(super) fn watch(mut self, signals: &Receiver<i32>) -> How {
        let lost = self.held.hold().lost();
        let (mut losses, ignored) = (&*lost, never());
        loop {
            self.reap();
            if self.ended.is_some() && self.group.is_empty() {
                return self.over();
            }
            self.keep_time();
            let tick = if self.ended.is_some() || self.ending.is_some() { LOOKS } else { self.tick() };
            select! {
                recv(signals) -> signal => signal.iter().for_each(|signal| self.hear(*signal)),
                recv(losses) -> loss => {
                    // It comes once.
                    losses = &ignored;
                    if let Ok(loss) = loss {
                        self.lose(&loss.to_string());
                    }
                }
                default(tick) => {}
            }
        }
    }

    /// A renewal moves the deadline each third of the lease, so it is looked at more often than that.
    fn tick(&self) -> Duration {
        (self.times.margin / 4).clamp(LOOKS, Duration::from_millis(250))
    }

    /// Waits for what has ended: the command, what it left behind, or the guard.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid == self.group.leader() {
                self.note(status);
            } else if pid == self.guard.pid() && status.exit_status() == Some(guard::IN_TIME.into()) {
                self.is_in_time = true;
            } else if pid == self.guard.pid() && !status.stopped() {
                self.replace_guard();
            } else if !status.stopped() {
                self.group.forget(pid);
            }
        }
    }

    fn note(&mut self, status: WaitStatus) {
        match status.stopping_signal() {
            None => self.ended = Some(status),
            Some(SIGTTIN | SIGTTOU) => {
                self.terminal.is_wanted = true;
                // Without a shell that could continue it, it stays stopped until somebody does.
                if self.terminal.give(self.group.leader()) || stop_with_the_others() {
                    self.group.signal(Signal::CONT);
                }
            }
            // Ctrl-Z of a job that has the terminal, or it has stopped itself. Another job is continued by whoever stopped it.
            Some(_) if self.terminal.is_given() => {
                self.terminal.take_back(true);
                self.terminal.is_wanted = true;
                if !stop_with_the_others() {
                    self.hear(SIGCONT);
                }
            }
            Some(_) => {}
        }
    }

    fn replace_guard(&mut self) {
        match Guard::start(&mut self.group) {
            Ok(guard) => self.guard = guard,
            Err(error) => log::warn!("the job has no guard: {error}"),
        }
        self.tell_guard();
    }

    fn hear(&mut self, signal: i32) {
        match signal {
            SIGCHLD => {}
            SIGTSTP => {
                self.group.signal(Signal::STOP);
                if !stop_with_the_others() {
                    self.group.signal(Signal::CONT);
                }
            }
            SIGCONT => {
                if self.terminal.is_wanted {
                    self.terminal.give(self.group.leader());
                }
                self.group.signal(Signal::CONT);
            }
            signal => Signal::from_named_raw(signal).into_iter().for_each(|signal| self.group.signal(signal)),
        }
    }

    /// When the last of it must be gone, in nanoseconds since boot.
    fn tell_guard(&mut self) {
        if self.times.on_lost == OnLost::Ignore {
            return;
        }
        let (now, left) = (boot_now(), self.held.hold().remaining());
        let left = u64::try_from(left.saturating_sub(self.times.margin).as_nanos()).unwrap_or(u64::MAX / 2);
        self.guard.until(now.saturating_add(left));
    }

    fn keep_time(&mut self) {
        self.tell_guard();
        let (Times { grace, margin, max_hold, on_lost }, left) = (self.times, self.held.hold().remaining());
        if on_lost == OnLost::Term && left < grace + margin && self.ending.is_none() {
            self.end(Why::Lost(TOO_LATE.to_owned()));
        }
        if on_lost != OnLost::Ignore && left < margin {
            self.lose(TOO_LATE);
        }
        if max_hold.is_some_and(|most| self.began.elapsed() >= most) && self.ending.is_none() {
            self.end(Why::Overheld);
        }
        if self.ended.is_some() && self.ending.is_none() {
            self.end(Why::LeftOver);
        }
        if self.ending.as_ref().is_some_and(|(_, kill_at)| Instant::now() >= *kill_at) {
            self.group.kill();
        }
    }

    fn end(&mut self, why: Why) {
        self.ending = Some((why, Instant::now() + self.times.grace));
        self.group.signal(Signal::TERM);
        // A stopped process hears nothing.
        self.group.signal(Signal::CONT);
    }

    /// Another may have the lock: nothing of the job may go on. The first reason counts.
    fn lose(&mut self, why: &str) {
        if self.times.on_lost == OnLost::Ignore {
            log::warn!("the lock was lost, and the job goes on: {why}");
            return;
        }
        self.group.kill();
        let known = self.ending.take().and_then(|(why, _)| if let Why::Lost(why) = why { Some(why) } else { None });
        self.ending = Some((Why::Lost(known.unwrap_or_else(|| why.to_owned())), Instant::now()));
    }

    fn over(&mut self) -> How {
        let status = self.ended.expect("it has ended");
        let had_terminal = self.terminal.is_given();
        self.terminal.take_back(status.signaled());
        if had_terminal && status.terminating_signal() == Some(SIGINT) {
            // Ctrl-C went to the job alone: a script that runs `run` in a loop has to hear of it.
            let _ = rustix::process::kill_current_process_group(Signal::INT);
        }
        // The guard is quicker than this process.
        let ends_now = self.times.on_lost != OnLost::Ignore && self.held.hold().remaining() <= self.times.margin + LATE;
        // Nothing of it is left by now.
        let is_in_time = self.is_in_time || !self.held.hold().remaining().is_zero();
        let lost = |why: &str| match is_in_time {
            true => How::Lost { why: format!("{why}, {ALONE}"), is_in_time },
            false => How::lost(why),
        };
        match self.ending.take() {
            Some((Why::Lost(why), _)) if why == TOO_EARLY => How::Lost { why, is_in_time: true },
            Some((Why::Lost(why), _)) => lost(&why),
            _ if ends_now && status.terminating_signal() == Some(SIGKILL) => lost(TOO_LATE),
            Some((Why::Overheld, _)) => How::Overheld,
            Some((Why::LeftOver, _)) | None => self.of_status(status),
        }
    }

    fn of_status(&mut self, status: WaitStatus) -> How {
        let mut why = String::new();
        let _ = self.failure.read_to_string(&mut why);
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) if !why.is_empty() => How::NotRun(Failed::new(u8::try_from(code).unwrap_or(1), why)),
            (Some(code), _) => How::Exited(code),
            (None, signal) => How::Signalled(signal.unwrap_or(SIGKILL)),
        }
    }
}

/// Nothing of it is left, also if this process fails on the way: the lock is released after that.
impl Drop for Job<'_> {
    fn drop(&mut self) {
        while self.ended.is_none() || !self.group.is_empty() {
            self.group.kill();
            sleep(LOOKS);
            self.reap();
        }
        self.guard.end();
        self.group.clear();
    }
}
