//! `redlatch run`: a command under a lock. Nothing of it runs when another may have the lock (docs/tool.md has the rules).
//!
//! | file | what is in it |
//! | --- | --- |
//! | `run.rs` | the order of things: the lock, the job, the release |
//! | `run/held.rs` | the lock, of whatever kind, and who is in the way |
//! | `run/command.rs` | whether there is such a command |
//! | `run/job.rs` | the job: how it begins, what it is told, when it is over |
//! | `run/group.rs` | the processes of the job: a process group, and a cgroup where one can be made |
//! | `run/guard.rs` | the process that ends the job if `run` cannot |
//! | `run/enter.rs` | what a job is before it begins |
//! | `run/terminal.rs` | whose keys the terminal sends |
//! | `run/outcome.rs` | how it ended: exit code, line, JSON |

mod command;
pub(crate) mod enter;
pub(crate) mod group;
pub(crate) mod guard;
mod held;
mod job;
mod outcome;
mod terminal;

use crate::cli::{Cli, OnLost, Run};
use crate::out::{self, Failed};
use crossbeam_channel::{Receiver, select, unbounded};
use held::Held;
use job::Job;
use outcome::{How, Outcome, Report};
use redlatch::{CancelToken, Client, Error};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use terminal::stop_with_the_others;

/// What is passed on to the job, and SIGCHLD.
const SIGNALS: [i32; 10] = [SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH];

/// A wait goes without a word for so long.
const SILENT: Duration = Duration::from_secs(2);

/// Those that end a wait for the lock.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// The times of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) grace: Duration,
    /// SIGKILL comes so long before the lock may be another's.
    pub(super) margin: Duration,
    pub(super) max_hold: Option<Duration>,
    pub(super) on_lost: OnLost,
}

pub(crate) fn run(cli: &Cli, args: &Run) -> Result<u8, Failed> {
    let report = Report::to(args.result_fd)?;
    let began = Instant::now();
    let outcome =
        outcome(cli, args, began).unwrap_or_else(|failed| Outcome::without_the_lock(How::Failed(failed), began));
    Ok(outcome.tell(cli, args, report))
}

fn outcome(cli: &Cli, args: &Run, began: Instant) -> Result<Outcome, Failed> {
    let times = times(args)?;
    if let Some(failed) = command::why_not(&args.command[0]) {
        return Ok(Outcome::without_the_lock(How::NotRun(failed), began));
    }
    if std::env::var("REDLATCH_LOCK").is_ok_and(|name| name == args.name) {
        log::warn!(
            "{}: a command under this very lock asks for it, and may wait for itself: only readers, and permits that are left, come in",
            args.name
        );
    }
    let token = CancelToken::new();
    let (waits, client) = (Waits::default(), held::client(cli, args)?);
    let signals = signals(&token, &waits)?;
    let taken = waits.tell_who_is_in_the_way(cli, args, &client, || Held::take(&client, args, &token));
    let outcome = match taken {
        Ok(Some(held)) => under(held, args, times, &signals, began),
        Ok(None) => Ok(Outcome::without_the_lock(How::Busy(held::in_the_way(&client, &args.name)), began)),
        // Whatever the wait was doing: it was on its way to a server, or waited for another.
        Err(_) if token.is_cancelled() => {
            Ok(Outcome::without_the_lock(How::Ended(ending(&signals).unwrap_or(SIGTERM)), began))
        }
        Err(error) => Outcome::of_error(&error, began),
    };
    // A wait that ended in vain has a place in a queue. Others would wait behind that, so this process ends when the place is gone.
    client.shutdown();
    outcome
}

/// # Errors
/// For times that do not go together.
fn times(args: &Run) -> Result<Times, Failed> {
    let Run { lease, grace, max_hold, on_lost, .. } = *args;
    let grace = grace.unwrap_or(lease / 10);
    if grace > lease / 3 {
        return Err(Failed::usage(format!(
            "--grace {grace:?} is more than a third of --lease {lease:?}: in normal running only two thirds of a lease are left, so the command \
             would be stopped for nothing"
        )));
    }
    if lease < Duration::from_secs(1) {
        return Err(Failed::usage(format!("--lease {lease:?} is too short to end a command in time: give 1s or more")));
    }
    Ok(Times { grace, margin: (lease / 50).max(Duration::from_millis(100)), max_hold, on_lost })
}

/// The signals that this process gets, from now on, but for those that it is to ignore, as under nohup. Those that end it end a wait for the
/// lock first, and Ctrl-Z stops a wait.
fn signals(token: &CancelToken, waits: &Waits) -> Result<Receiver<i32>, Failed> {
    let ignored = ignored();
    // The system waits for children itself where SIGCHLD is ignored, and then nobody learns how the command ended.
    let heard = SIGNALS.into_iter().filter(|signal| *signal == SIGCHLD || ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(heard).map_err(|error| Failed::new(1, format!("cannot handle signals: {error}")))?;
    let (sender, receiver) = unbounded();
    let (token, waits) = (token.clone(), waits.clone());
    thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGTSTP && waits.are_under_way() {
                let _ = stop_with_the_others();
            } else if sender.send(signal).is_err() {
                return;
            }
            if ENDING.contains(&signal) {
                token.cancel();
            }
        }
    });
    Ok(receiver)
}

/// A bit for each signal that whoever started this process wants it to ignore.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether the lock is waited for.
#[derive(Clone)]
struct Waits(Arc<AtomicBool>);

impl Default for Waits {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Waits {
    fn are_under_way(&self) -> bool {
        self.0.load(SeqCst)
    }

    /// Waits, and says once what it waits for, if that takes a while.
    fn tell_who_is_in_the_way<T>(&self, cli: &Cli, args: &Run, client: &Client, wait: impl FnOnce() -> T) -> T {
        if !cli.quiet && (cli.verbose > 0 || std::io::stderr().is_terminal()) {
            let (waits, client, name) = (self.clone(), client.clone(), args.name.clone());
            // Nobody waits for this thread: a server that does not answer must not delay the command.
            thread::spawn(move || {
                thread::sleep(SILENT);
                let who = held::in_the_way(&client, &name).map_or_else(String::new, |who| format!(", {who}"));
                if waits.are_under_way() {
                    out::say(&format!("{name}: waiting{who}"));
                }
            });
        }
        let waited = wait();
        self.0.store(false, SeqCst);
        waited
    }
}

/// A signal that ended the wait. Ctrl-Z stops `run` here, and what came besides was for no job.
fn ending(signals: &Receiver<i32>) -> Option<i32> {
    let told: Vec<_> = signals.try_iter().collect();
    if told.contains(&SIGTSTP) {
        let _ = stop_with_the_others();
    }
    told.into_iter().rfind(|signal| ENDING.contains(signal))
}

fn under(held: Held, args: &Run, times: Times, signals: &Receiver<i32>, began: Instant) -> Result<Outcome, Failed> {
    let waited = began.elapsed();
    if let Some(signal) = ending(signals) {
        return Ok(Outcome::without_the_lock(How::Ended(signal), began));
    }
    let job = Job::begin(&held, args, times)?;
    let reach = job.reach();
    let how = job.watch(signals);
    // By its lease. The server may know better.
    let was_alone = how.is_in_time().unwrap_or_else(|| !held.hold().remaining().is_zero());
    let how = match args.min_hold {
        Some(at_least) if was_alone && how.is_in_time().is_none() => {
            keep(&held, args, at_least, signals).unwrap_or(how)
        }
        _ => how,
    };
    let outcome = Outcome::new(how, waited, &held, reach);
    Ok(if is_gone(held, args, was_alone) { outcome.but_gone() } else { outcome })
}

/// Keeps the lock until it was held for so long, a signal ends that, or the lock is lost. Then it returns how it was lost.
fn keep(held: &Held, args: &Run, at_least: Duration, signals: &Receiver<i32>) -> Option<How> {
    let (until, lost) = (held.hold().acquired_at() + at_least, held.hold().lost());
    // Whether the job was alone can be asked now, and not once the lock was lost while it is kept.
    let asked = held.hold().extend(args.lease);
    if matches!(asked, Err(Error::Lost { .. })) {
        return Some(How::lost("it was gone when the command had ended"));
    }
    let why = "it was gone after the command had ended, and before --min-hold was over".to_owned();
    let later = How::Lost { why, is_in_time: asked.is_ok() };
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        select! {
            recv(signals) -> signal => match signal {
                Ok(SIGTSTP) => _ = stop_with_the_others(),
                Ok(signal) if ENDING.contains(&signal) => break,
                _ => {}
            },
            recv(*lost) -> _ => return Some(later),
            default(left) => break,
        }
    }
    let is_gone =
        held.hold().remaining().is_zero() || matches!(held.hold().extend(args.lease), Err(Error::Lost { .. }));
    is_gone.then_some(later)
}

/// The job is over by now. Releases the lock, and returns whether it was gone before: a loss may be found only here. A release that fails
/// otherwise leaves the lock to its lease.
fn is_gone(held: Held, args: &Run, was_alone: bool) -> bool {
    let (now, left) = (Instant::now(), held.hold().remaining());
    match held.release() {
        Ok(()) => false,
        // A lease that was over only after the job says nothing of the time before.
        Err(Error::Lost { .. }) => !was_alone || now.elapsed() < left,
        Err(error) => {
            log::warn!(
                "{:?} may not have been released, and ends with its lease: {}",
                args.name,
                out::plain(&error.to_string())
            );
            false
        }
    }
}
