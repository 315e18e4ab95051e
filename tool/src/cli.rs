//! The command line: every command, its options and its help.

use crate::connect::Server;
use crate::out::{Failed, line};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Locks on Redis for shell scripts, and answers for people on call.
///
/// The locks are those of the redlatch library and of Redisson. Durations have a unit: 500ms, 30s, 5m.
#[derive(Debug, Parser)]
#[command(name = "redlatch", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Tells more: -v what the library warns of and does, -vv also what nobody has to act on.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Prints results and errors, and nothing besides.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Cli {
    pub(crate) fn log_level(&self) -> log::LevelFilter {
        match (self.quiet, self.verbose) {
            (true, _) => log::LevelFilter::Off,
            (_, 0) => log::LevelFilter::Warn,
            (_, 1) => log::LevelFilter::Info,
            _ => log::LevelFilter::Debug,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Runs a command while it holds a lock, and stops it before anybody else can have the lock.
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Tells whether locks are free or held, by whom, since when, and who waits.
    #[command(after_help = STATUS_HELP)]
    Status(Status),
    /// Lists all locks of the servers.
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Prints a line whenever a lock changes, until Ctrl-C.
    #[command(after_help = WATCH_HELP)]
    Watch(Watch),
    /// Shows locks full-screen, the 1,000 with most waiters first. q ends it.
    #[command(after_help = TOP_HELP)]
    Top(Top),
    /// Finds threads that hold locks and wait for each other in a circle.
    #[command(after_help = DEADLOCKS_HELP)]
    Deadlocks(Deadlocks),
    /// Shows who holds a lock, asks, and frees it if the same still hold it.
    #[command(after_help = UNLOCK_HELP)]
    Unlock(Unlock),
    /// Checks whether a server is fit for locks. It writes nothing but a key of its own.
    #[command(after_help = DOCTOR_HELP)]
    Doctor(Doctor),
    /// Measures locks on this server, on keys of its own.
    #[command(after_help = BENCH_HELP)]
    Bench(Bench),
    /// Prints the completions of a shell.
    Completions {
        /// For which shell.
        shell: Shell,
    },
    /// Writes the manual pages into a folder.
    Man {
        /// Into which folder.
        folder: PathBuf,
    },
}

const RUN_HELP: &str = "\
Examples:
  redlatch run backup -- pg_dump -f /backup/shop.sql shop        one at a time, on whatever machine
  redlatch run --wait 0s report -- ./report.sh                   skips it if another machine has it
  redlatch run --wait 0s --min-hold 50s report -- ./report.sh    once a minute, though clocks differ
  redlatch run -n 3 import -- ./import.sh file.csv               at most three at once

Exit codes: that of the command; 128 + the signal that ended it; 75 busy; 76 lost; 79 --max-hold reached;
69 no server; 77 refused; 64 wrong use; 126 not executable; 127 not found; 1 run itself fails. A line on stderr
tells which it was.";

const STATUS_HELP: &str = "\
Examples:
  redlatch status order:42
  redlatch status --json order:42 | jq .holders[0].process.host

Exit codes: 0 all are held; 1 one of them is free; 2 one of them is no lock, as a semaphore; 69 no server;
77 refused; 64 wrong use; 74 the output fails.";

const LIST_HELP: &str = "\
Examples:
  redlatch list
  redlatch list --match 'order:*' --json | jq -r .name

Semaphores and latches are not listed: at the server they look like any number. status shows them by name.

Exit codes: 0; 69 no server; 77 refused; 64 wrong use; 74 the output fails.";

const WATCH_HELP: &str = "\
Example:
  redlatch watch order:42 order:43

It goes through outages, and says so on stderr. Exit codes: 130 Ctrl-C; 141 nobody reads its output any more;
77 refused; 64 wrong use; 74 the output fails.";

const TOP_HELP: &str = "\
Keys: q ends it, arrows and j, k, space move, Ctrl-Z stops it.

Exit codes: 0; 69 no server at the beginning; 77 refused; 64 wrong use, or no terminal.";

const DEADLOCKS_HELP: &str = "\
Examples:
  redlatch deadlocks
  redlatch deadlocks --json | jq '.members[0]'    the thread that began to wait last

The clients tell what their threads hold and wait for, once they have waited for a lock at the server.

Exit codes: 0 no circle is found; 1 a circle is found; 69 no server; 77 refused; 64 wrong use; 74 the output fails.";

const BENCH_HELP: &str = "\
Exit codes: 0; 1 declined; 69 no server; 77 refused; 64 wrong use.";

const UNLOCK_HELP: &str = "\
Examples:
  redlatch unlock order:42          shows the holder and asks
  redlatch unlock --yes order:42    for scripts

Exit codes: 0 freed, or free already; 1 declined, or another holder has it by now; 69 no server; 77 refused;
64 no lock, or a wrong use.";

const DOCTOR_HELP: &str = "\
Exit codes: 0 all good; 1 something to mind; 2 something bad; 69 no server.";

/// Which kind of lock `run` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Redisson's RLock.
    Reentrant,
    /// Redisson's RFairLock: in order of arrival.
    Fair,
    /// Redisson's RFencedLock: REDLATCH_TOKEN has the token.
    Fenced,
    /// The readers' side of Redisson's RReadWriteLock.
    Read,
    /// The writer's side of it.
    Write,
}

/// What `run` does when the lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM while there is time, and SIGKILL before another can have the lock.
    Term,
    /// SIGKILL as soon as it is known.
    Kill,
    /// Nothing: the command goes on beside others.
    Ignore,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The lock.
    pub(crate) name: String,
    /// The command and its arguments. No shell reads them.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// How long to wait for the lock, outages included; 0s tries once. Without it: for ever.
    #[arg(short, long, value_parser = duration, value_name = "DURATION")]
    pub(crate) wait: Option<Duration>,
    /// For how long the server keeps the lock without news of this process. It is renewed until the command ends.
    #[arg(short, long, value_parser = duration, value_name = "DURATION", default_value = "30s")]
    pub(crate) lease: Duration,
    /// How long the command has after SIGTERM, before SIGKILL; at most a third of the lease. Without it: a tenth of the lease.
    #[arg(short, long, value_parser = duration, value_name = "DURATION")]
    pub(crate) grace: Option<Duration>,
    /// Keeps the lock for at least so long, also if the command ends earlier.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) min_hold: Option<Duration>,
    /// Ends the command after so long.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) max_hold: Option<Duration>,
    /// Lets so many run at once: NAME is a semaphore whose permits have leases.
    #[arg(short, value_name = "N", conflicts_with = "kind", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) n: Option<u32>,
    /// The kind of the lock.
    #[arg(long, value_enum, default_value = "reentrant")]
    pub(crate) kind: Kind,
    /// What to do when the lock is lost.
    #[arg(long, value_enum, default_value = "term")]
    pub(crate) on_lost: OnLost,
    /// Makes no cgroup: what leaves the command's process group is found by its parents alone.
    #[arg(long)]
    pub(crate) no_cgroup: bool,
    /// Writes how it ended to this file descriptor, as JSON.
    #[arg(long, value_name = "FD")]
    pub(crate) result_fd: Option<RawFd>,
    #[command(flatten)]
    pub(crate) codes: Codes,
}

/// The exit codes of `run` that are its own.
#[derive(Debug, Args)]
pub(crate) struct Codes {
    /// The exit code if another has the lock.
    #[arg(long, value_name = "CODE", default_value = "75")]
    pub(crate) busy_code: u8,
    /// The exit code if the lock was lost.
    #[arg(long, value_name = "CODE", default_value = "76")]
    pub(crate) lost_code: u8,
    /// The exit code if --max-hold was reached.
    #[arg(long, value_name = "CODE", default_value = "79")]
    pub(crate) overheld_code: u8,
    /// The exit code if no server answers.
    #[arg(long, value_name = "CODE", default_value = "69")]
    pub(crate) unavailable_code: u8,
    /// The exit code if the server refuses.
    #[arg(long, value_name = "CODE", default_value = "77")]
    pub(crate) refused_code: u8,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The locks, or semaphores or latches.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Prints one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The names to list: * is any text, ? any character, [ab] one of these.
    #[arg(short, long, value_name = "PATTERN", default_value = "*")]
    pub(crate) r#match: String,
    /// Prints one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The locks, or semaphores or latches.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// How often to look.
    #[arg(long, value_parser = pause, value_name = "DURATION", default_value = "200ms")]
    pub(crate) every: Duration,
    /// Prints one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The names to show: * is any text, ? any character, [ab] one of these.
    #[arg(short, long, value_name = "PATTERN", default_value = "*")]
    pub(crate) r#match: String,
    /// How often to look at the locks that are shown.
    #[arg(long, value_parser = pause, value_name = "DURATION", default_value = "1s")]
    pub(crate) every: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Deadlocks {
    /// Prints one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Unlock {
    /// The lock.
    pub(crate) name: String,
    /// Frees it without asking.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Prints one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// How long each of the measurements takes.
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "2s")]
    pub(crate) seconds: Duration,
    /// How many threads the crowd has.
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) threads: u16,
    /// Begins without asking, also on a busy server.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A duration with a unit. A bare number could mean seconds or milliseconds.
fn duration(text: &str) -> Result<Duration, String> {
    if text.chars().all(|sign| sign.is_ascii_digit()) {
        return Err("a duration needs a unit: write 0s, 500ms, 30s or 5m".to_owned());
    }
    if text.contains(['M', 'y']) || text.contains("month") {
        return Err("months and years are no durations of locks: write 5m for minutes, or 30d".to_owned());
    }
    let span = humantime::parse_duration(text).map_err(|error| format!("{error}: write 0s, 500ms, 30s or 5m"))?;
    if span <= LONGEST { Ok(span) } else { Err("that is too long: give 365 days at most".to_owned()) }
}

/// No lease is longer.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long to pause: not so short that it keeps a server busy.
fn pause(text: &str) -> Result<Duration, String> {
    let span = duration(text)?;
    if span >= Duration::from_millis(10) { Ok(span) } else { Err("that is too often: give 10ms or more".to_owned()) }
}

pub(crate) fn completions(shell: Shell) -> Result<u8, Failed> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "redlatch", &mut text);
    line(String::from_utf8_lossy(&text)).map(|()| 0)
}

/// One page for the tool and one for each command.
pub(crate) fn man(folder: &Path) -> Result<u8, Failed> {
    let made = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    made.map(|()| 0)
        .map_err(|error| Failed::new(1, format!("cannot write the pages into {}: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!([duration("0s"), duration("5m")], [Ok(Duration::ZERO), Ok(Duration::from_secs(300))]);
        assert!(duration("1M").is_err_and(|told| told.contains("5m")) && duration("1y").is_err());
        for bad in ["5", "0", "", "5 parsecs", "-1s", "s"] {
            assert!(duration(bad).is_err_and(|told| told.contains("write 0s")), "{bad}");
        }
    }

    #[test]
    fn a_command_keeps_its_own_options() {
        let cli = Cli::try_parse_from(["redlatch", "run", "--wait", "0s", "n", "--", "ls", "-l", "--json"]).unwrap();
        let Verb::Run(run) = cli.verb else { panic!("run") };
        assert_eq!((run.name.as_str(), run.command), ("n", ["ls", "-l", "--json"].map(OsString::from).to_vec()));
    }
}
