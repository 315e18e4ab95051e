//! `redlatch status`: what is at some names.

use crate::census::{ShownWait, Wait, Waits, warn_of_silent};
use crate::cli::{Cli, Status};
use crate::out::{Failed, line, plain};
use crate::show::{self, Shown};
use redlatch::inspect::{Holder, Inspector, Processes, Sight, What};
use serde::Serialize;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The exit code if one of the names is free, and if one is no lock.
const FREE: u8 = 1;
const NO_LOCK: u8 = 2;

pub(crate) fn status(cli: &Cli, args: &Status) -> Result<u8, Failed> {
    let inspector = Inspector::new(&cli.server.client()?);
    let sights = look(&inspector, &args.names)?;
    let waits = waits(&inspector);
    for (at, sight) in sights.iter().enumerate() {
        let waits = waits.as_ref().map(|waits| waits.at(&sight.name));
        match args.json {
            true => line(json(sight, waits))?,
            false => told(sight, waits.unwrap_or_default(), at > 0).into_iter().try_for_each(line)?,
        }
    }
    Ok(sights.iter().map(code).max().unwrap_or(0))
}

/// Who waits. Without the right to ask the clients the counts of the server are all that is known.
fn waits(inspector: &Inspector) -> Option<Waits> {
    let census = inspector.census().map_err(|error| log::warn!("those who wait are not named: {error}")).ok()?;
    warn_of_silent(&census, "some who wait may be missing");
    Some(Waits::of(census))
}

/// A name as JSON.
#[derive(Serialize)]
struct Named<'s> {
    #[serde(flatten)]
    lock: Shown<'s>,
    /// Null: it is not known.
    waits: Option<Vec<ShownWait<'s>>>,
}

fn json(sight: &Sight, waits: Option<&[Wait]>) -> String {
    let waits = waits.map(|waits| waits.iter().map(Wait::shown).collect());
    serde_json::to_string(&Named { lock: Shown::of(sight), waits }).expect("names are text")
}

fn code(sight: &Sight) -> u8 {
    match sight.what {
        What::Nothing => FREE,
        _ if sight.is_held() => 0,
        _ => NO_LOCK,
    }
}

/// The names, with the processes of their holders.
pub(crate) fn look(inspector: &Inspector, names: &[String]) -> Result<Vec<Sight>, Failed> {
    let mut sights = names.iter().map(|name| inspector.look(name)).collect::<Result<Vec<_>, _>>()?;
    Known::default().name(&mut sights, inspector);
    Ok(sights)
}

/// Connections may have come and gone after so long.
const LISTED_EVERY: Duration = Duration::from_secs(5);

/// The processes that are known by now.
#[derive(Default)]
pub(crate) struct Known {
    processes: Processes,
    /// Clients that were not connected when connections were listed last.
    missed: HashSet<String>,
    listed: Option<Instant>,
    /// The server did not say, and that was said.
    is_told: bool,
}

impl Known {
    /// Names the processes of holders. Connections are listed after the look, and again only after a while, or for a client that was not asked
    /// for before: the list of a busy server is long. Without the right to list them holders have their ids alone.
    pub(crate) fn name(&mut self, sights: &mut [Sight], inspector: &Inspector) {
        let holders = || sights.iter().flat_map(Sight::holders).filter(|holder| holder.asked.is_some());
        let is_old = self.listed.is_none_or(|listed| listed.elapsed() > LISTED_EVERY);
        let is_new = |holder: &Holder| !self.missed.contains(&holder.client) && !self.knows(holder);
        if holders().any(|holder| is_old || is_new(holder)) {
            self.list(inspector);
            let missed: Vec<_> =
                holders().filter(|holder| !self.knows(holder)).map(|holder| holder.client.clone()).collect();
            self.missed.extend(missed);
        }
        sights.iter_mut().for_each(|sight| sight.name_processes(&self.processes));
    }

    fn knows(&self, holder: &Holder) -> bool {
        self.processes.of(&holder.client).is_some()
    }

    fn list(&mut self, inspector: &Inspector) {
        if self.listed.replace(Instant::now()).is_none_or(|listed| listed.elapsed() > LISTED_EVERY) {
            self.missed.clear();
        }
        self.processes = inspector.processes().unwrap_or_else(|error| {
            if !std::mem::replace(&mut self.is_told, true) {
                log::warn!("holders are shown without their processes: {error}");
            }
            Processes::default()
        });
    }
}

/// What is told to people. Names apart have an empty line between them.
pub(crate) fn told(sight: &Sight, waits: &[Wait], is_next: bool) -> Vec<String> {
    let word = match &sight.what {
        What::Lock(_) => "held".to_owned(),
        What::Readers(_) => "held by readers".to_owned(),
        What::Writer(_) => "held by a writer".to_owned(),
        What::Other(kind) if kind == "hash" => {
            "no lock, but a hash of another program's: whoever asks for this lock waits for its end".to_owned()
        }
        What::Other(kind) => format!("no lock, but a key of type {kind}: whoever asks for this lock is refused"),
        _ => show::holders(sight),
    };
    let mut lines = vec![format!("{}: {word}", plain(&sight.name))];
    for holder in sight.holders() {
        let times = if holder.depth == 1 { String::new() } else { format!(", {} times over", holder.depth) };
        lines.push(format!("  holder   {}, thread {}{times}", plain(&show::who(holder)), holder.thread));
        match holder.asked {
            Some(_) => lines.push(format!("  asked    {} ago", show::ago(holder.asked))),
            None => lines.push("  asked    not known: Redisson does not say".to_owned()),
        }
        lines.push(format!("  field    {}", plain(&holder.field)));
    }
    match sight.left {
        Some(left) => lines.push(format!("  ends     in {} unless renewed", show::span(left))),
        None if sight.is_held() => lines.push("  ends     never: it has no lease".to_owned()),
        None => {}
    }
    let waiting = [(sight.processes, "process", "processes"), (sight.threads, "thread in order", "threads in order")];
    let waiting = waiting.into_iter().map(|(count, one, more)| (count, if count == Some(1) { one } else { more }));
    let waiting = waiting.chain([(sight.calls, "for permits")]).filter_map(|(count, what)| Some((count?, what)));
    let waiting: Vec<_> =
        waiting.filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    match &sight.what {
        What::Readers(_) | What::Writer(_) => lines.push("  waiting  not counted for read-write locks".to_owned()),
        _ if waiting.is_empty() => {}
        _ => lines.push(format!("  waiting  {}", waiting.join(", "))),
    }
    lines.extend(waits.iter().map(|wait| format!("  waits    {}", plain(&wait.told()))));
    if is_next {
        lines.insert(0, String::new());
    }
    lines
}
