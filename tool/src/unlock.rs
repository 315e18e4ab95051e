//! `redlatch unlock`: frees a lock if exactly those hold it that were shown.

use crate::cli::{Cli, Unlock};
use crate::out::{Failed, line};
use crate::status::{look, told};
use redlatch::inspect::{Inspector, Sight, What};
use std::io::{IsTerminal, Write};
use std::slice::from_ref;

/// The exit code if it was not freed: declined, or another holder has it by now.
const NOT_FREED: u8 = 1;

pub(crate) fn unlock(cli: &Cli, args: &Unlock) -> Result<u8, Failed> {
    let inspector = Inspector::new(&cli.server.client()?);
    let sight = look(&inspector, from_ref(&args.name))?.remove(0);
    if let Some(why) = why_not(&sight) {
        return Err(Failed::usage(format!("{:?} is {why}", args.name)));
    }
    if !cli.quiet {
        told(&sight, &[], false).into_iter().try_for_each(line)?;
    }
    if !sight.is_held() {
        return Ok(0);
    }
    if !args.yes && !agrees(&sight)? {
        line("nothing was freed")?;
        return Ok(NOT_FREED);
    }
    if inspector.free(&sight)? {
        line(after(&sight))?;
        return Ok(0);
    }
    if inspector.look(&args.name)?.is_held() {
        line("it has changed hands: nothing was freed")?;
        return Ok(NOT_FREED);
    }
    line("it was released meanwhile")?;
    Ok(0)
}

/// What becomes of the holders.
fn after(sight: &Sight) -> &'static str {
    let holders = sight.holders();
    if holders.len() > 1 {
        "freed; its holders learn of it at their next renewals"
    } else if holders.iter().any(|holder| holder.asked.is_none()) {
        "freed; its holder, a client of Redisson, may not notice before it unlocks"
    } else if holders.iter().any(|holder| holder.is_connected == Some(false)) {
        "freed; its holder is not connected: it has ended, or finds out when it is back"
    } else {
        "freed; its holder learns of it at its next renewal"
    }
}

fn why_not(sight: &Sight) -> Option<&'static str> {
    match sight.what {
        What::Counter { .. } => Some(
            "a semaphore or a latch, and unlock frees locks alone; permits of `run -n` come back when their leases end",
        ),
        What::Other(_) => Some("no lock: another program's key has this name"),
        _ => None,
    }
}

/// # Errors
/// Where nobody can be asked.
fn agrees(sight: &Sight) -> Result<bool, Failed> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failed::usage("nobody can be asked, for stdin is no terminal: give --yes"));
    }
    match sight.holders().len() {
        1 => eprint!("Free it? Its holder may still work. [y/N] "),
        holders => eprint!("Free it for all {holders} holders? They may still work. [y/N] "),
    }
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    stdin.read_line(&mut answer).map_err(|error| Failed::new(1, format!("cannot read the answer: {error}")))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
