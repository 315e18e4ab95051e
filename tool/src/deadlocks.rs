//! `redlatch deadlocks`: threads that hold locks and wait for each other in a circle.

use crate::census::warn_of_silent;
use crate::cli::{Cli, Deadlocks};
use crate::out::{Failed, line, plain};
use crate::show::{self, ShownProcess};
use redlatch::inspect::Inspector;
use redlatch::{Deadlock, Member};
use serde::Serialize;

/// The exit code if there is a circle.
const FOUND: u8 = 1;

/// The columns.
const HEAD: [&str; 5] = ["PROCESS", "THREAD", "HOLDS", "WAITS FOR", "BEGAN"];

/// A circle as JSON. The first member began to wait last.
#[derive(Serialize)]
struct Shown<'s> {
    members: Vec<ShownMember<'s>>,
}

#[derive(Serialize)]
struct ShownMember<'s> {
    process: ShownProcess<'s>,
    client: &'s str,
    thread: u64,
    thread_name: Option<&'s str>,
    holds: &'s str,
    waits_for: &'s str,
    /// Since 1970.
    began_at_ms: u64,
}

pub(crate) fn deadlocks(cli: &Cli, args: &Deadlocks) -> Result<u8, Failed> {
    let census = Inspector::new(&cli.server.client()?).census()?;
    warn_of_silent(&census, "circles may be missing");
    let circles = census.circles();
    match args.json {
        true => circles.iter().map(json).try_for_each(line)?,
        false => told(&circles).into_iter().try_for_each(line)?,
    }
    Ok(if circles.is_empty() { 0 } else { FOUND })
}

fn json(circle: &Deadlock) -> String {
    let members = circle.members.iter().map(ShownMember::of).collect();
    serde_json::to_string(&Shown { members }).expect("names are text")
}

/// A table for each circle, with an empty line between two.
fn told(circles: &[Deadlock]) -> Vec<String> {
    let tables: Vec<_> = circles.iter().map(|circle| table(circle).join("\n")).collect();
    if tables.is_empty() { vec!["no circles".to_owned()] } else { vec![tables.join("\n\n")] }
}

fn table(circle: &Deadlock) -> Vec<String> {
    let head = format!("a circle of {}", circle.members.len());
    let rows: Vec<_> = circle.members.iter().map(row).collect();
    [head].into_iter().chain(show::columns(&HEAD, &rows)).collect()
}

fn row(member: &Member) -> Vec<String> {
    let Member { process, thread, thread_name, holds, waits_for, since, .. } = member;
    let cells = [&show::process(process), &show::thread(*thread, thread_name.as_deref()), holds, waits_for];
    let cells = cells.into_iter().map(|cell| plain(cell));
    cells.chain([format!("{} ago", show::ago(Some(*since)))]).collect()
}

impl<'s> ShownMember<'s> {
    fn of(member: &'s Member) -> Self {
        Self {
            process: ShownProcess::of(&member.process),
            client: &member.process.client,
            thread: member.thread,
            thread_name: member.thread_name.as_deref(),
            holds: &member.holds,
            waits_for: &member.waits_for,
            began_at_ms: show::since_1970(member.since),
        }
    }
}
