//! Commands that run only while the lock is held, beside the same script by EVALSHA on a private connection.

use crate::Scale;
use crate::report::{Report, Target};
use crate::support::{Outcome, Server, connect, sent_scripts, take_turns};
use harness::lua;
use redis::Connection;
use redlatch::{Command, RedLockExt, ReentrantLock};

const NAME: &str = "bench:held:n";
const VALUES: [&str; 2] = ["bench:held:o", "bench:held:f"];

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    server.on_one_core(|| beside_floor(&server.unix(), "one core", scale, report))?;
    beside_floor(&server.unix(), "any core", scale, report)
}

fn beside_floor(url: &str, place: &str, scale: Scale, report: &mut Report) -> Outcome<()> {
    let (locks, mut probe) = (ReentrantLock::connect(url)?, connect(url)?);
    let guard = locks.guard(NAME)?;
    let mut floor = Floor::new(url)?;
    let set = [Command::new("SET").key(VALUES[0]).arg("paid")];
    let mut ours = || Ok(locks.while_held(guard.hold(), &set).map(drop)?);
    let (mut ratios, mut micros) = (Vec::new(), Vec::new());
    for round in 0..=scale.rounds {
        let [one, other] = take_turns(round, scale.pairs, [&mut || floor.set(), &mut ours])?;
        if round > 0 {
            ratios.push(other.p50() / one.p50());
            micros.push(other.p50() / 1_000.0);
        }
    }
    let before = sent_scripts(&mut probe)?;
    ours()?;
    let sent = sent_scripts(&mut probe)? - before;
    guard.unlock()?;
    report.row("guarded", format!("while_held of a SET, p50, {place}"), "x floor", ratios, Target::None);
    report.row("guarded", format!("  ours, {place}"), "µs", micros, Target::None);
    report.row("guarded", format!("  ours, {place}"), "commands", vec![sent], Target::Exactly(1.0));
    Ok(())
}

/// The script and nothing else, while the same hold is there.
struct Floor {
    connection: Connection,
    script: String,
    owner: String,
    deadline: u64,
}

impl Floor {
    fn new(url: &str) -> Outcome<Self> {
        let mut connection = connect(url)?;
        let script = redis::cmd("SCRIPT").arg("LOAD").arg(lua::script("while_held/run")).query(&mut connection)?;
        let owners: Vec<String> = redis::cmd("HKEYS").arg(NAME).query(&mut connection)?;
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection)?;
        let [owner] = <[String; 1]>::try_from(owners).map_err(|_| "the lock has no owner")?;
        Ok(Self { connection, script, owner, deadline: (seconds + 3_600) * 1_000_000 })
    }

    fn set(&mut self) -> Outcome<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script).arg(2).arg(NAME).arg(VALUES[1]).arg(self.deadline).arg(&self.owner);
        command.arg(3).arg("SET").arg(VALUES[1]).arg("paid");
        let (failed, ..): (i64, String, Vec<String>) = command.query(&mut self.connection)?;
        if failed == 0 { Ok(()) } else { Err("the floor's hold was gone".into()) }
    }
}
