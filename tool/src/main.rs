//! `redlatch`: locks for shell scripts, and answers for people on call. docs/tool.md tells how to use it.

#![forbid(unsafe_code)]

mod bench;
mod census;
mod cli;
mod connect;
mod deadlocks;
mod doctor;
mod list;
mod out;
mod run;
mod show;
mod status;
mod top;
mod unlock;
mod watch;

use clap::Parser;
use cli::{Cli, Verb};
use out::{Failed, USAGE};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    // What `run` starts by itself takes no options, also none of the environment.
    match words.first().and_then(|word| word.to_str()) {
        Some(run::guard::WORD) => return ended(run::guard::guard()),
        Some(run::enter::WORD) => return ended(run::enter::enter(&words[1..])),
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => {
            // Help and version are answers, everything else is a wrong use.
            let code = if told.use_stderr() { USAGE } else { 0 };
            let _ = told.print();
            return ExitCode::from(code);
        }
    };
    out::log_to_stderr(cli.log_level());
    ended(act(&cli))
}

fn ended(result: Result<u8, Failed>) -> ExitCode {
    ExitCode::from(result.unwrap_or_else(|Failed { code, why }| {
        if !why.is_empty() {
            out::say(&why);
        }
        code
    }))
}

fn act(cli: &Cli) -> Result<u8, Failed> {
    match &cli.verb {
        Verb::Run(args) => run::run(cli, args),
        Verb::Status(args) => status::status(cli, args),
        Verb::List(args) => list::list(cli, args),
        Verb::Watch(args) => watch::watch(cli, args),
        Verb::Top(args) => top::top(cli, args),
        Verb::Deadlocks(args) => deadlocks::deadlocks(cli, args),
        Verb::Unlock(args) => unlock::unlock(cli, args),
        Verb::Doctor(args) => doctor::doctor(cli, args),
        Verb::Bench(args) => bench::bench(cli, args),
        Verb::Completions { shell } => cli::completions(*shell),
        Verb::Man { folder } => cli::man(folder),
    }
}
