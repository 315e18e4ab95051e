//! `redlatch watch`: a line whenever a lock changes.

use crate::cli::{Cli, Watch};
use crate::out::{Failed, check_read, is_outage, line, plain};
use crate::show::{self, Shown};
use crate::status::Known;
use redlatch::inspect::{Inspector, Sight};
use serde::Serialize;
use std::slice::from_mut;
use std::thread::sleep;
use std::time::SystemTime;

#[derive(Serialize)]
struct Change<'s> {
    at_ms: u128,
    #[serde(flatten)]
    lock: Shown<'s>,
}

/// A name whose server does not answer.
#[derive(Serialize)]
struct Unknown<'s> {
    at_ms: u128,
    name: &'s str,
    state: &'static str,
    why: String,
}

/// One of the names, and what was seen there last.
struct Watched<'n> {
    name: &'n str,
    last: Option<Sight>,
    is_away: bool,
}

/// Until the process is ended, as by Ctrl-C, or nobody reads what it prints.
pub(crate) fn watch(cli: &Cli, args: &Watch) -> Result<u8, Failed> {
    let inspector = Inspector::new(&cli.server.client()?);
    let mut known = Known::default();
    let mut all: Vec<_> = args.names.iter().map(|name| Watched { name, last: None, is_away: false }).collect();
    loop {
        for watched in &mut all {
            watched.look(&inspector, &mut known, args.json)?;
        }
        check_read()?;
        sleep(args.every);
    }
}

impl Watched<'_> {
    fn look(&mut self, inspector: &Inspector, known: &mut Known, json: bool) -> Result<(), Failed> {
        let sight = match inspector.look(self.name) {
            Err(error) if !is_outage(&error) => return Err(error.into()),
            // Said once an outage.
            Err(error) if !std::mem::replace(&mut self.is_away, true) => return self.lose_sight(&error, json),
            Err(_) => return Ok(()),
            Ok(sight) => sight,
        };
        let is_back = std::mem::take(&mut self.is_away);
        if is_back {
            log::warn!("{}: the server answers again", self.name);
        }
        // In JSON the outage was a line of its own.
        if is_back && json || self.last.as_ref().is_none_or(|last| is_change(last, &sight)) {
            tell(sight.clone(), inspector, known, json)?;
        }
        self.last = Some(sight);
        Ok(())
    }

    fn lose_sight(&self, error: &redlatch::Error, json: bool) -> Result<(), Failed> {
        log::warn!("{error}");
        let (at_ms, why) = (millis(SystemTime::now()), error.to_string());
        let unknown = Unknown { at_ms, name: self.name, state: "unknown", why };
        if json { line(serde_json::to_string(&unknown).expect("names are text")) } else { Ok(()) }
    }
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// A renewal is none.
fn is_change(last: &Sight, now: &Sight) -> bool {
    let counts = |sight: &Sight| (sight.processes, sight.threads, sight.calls);
    last.what != now.what || counts(last) != counts(now)
}

fn tell(mut sight: Sight, inspector: &Inspector, known: &mut Known, json: bool) -> Result<(), Failed> {
    known.name(from_mut(&mut sight), inspector);
    let now = SystemTime::now();
    if json {
        return line(
            serde_json::to_string(&Change { at_ms: millis(now), lock: Shown::of(&sight) }).expect("names are text"),
        );
    }
    let time = humantime::format_rfc3339_millis(now);
    let waiting = if sight.waiting() > 0 { format!("  {} wait", sight.waiting()) } else { String::new() };
    line(format!("{time}  {}  {}{waiting}", plain(&sight.name), plain(&show::holders(&sight))))
}
