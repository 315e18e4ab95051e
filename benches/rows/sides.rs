//! Read-write locks: each side beside its two scripts, and threads of one process that read one name.

use crate::Scale;
use crate::crowd::rate;
use crate::report::{Report, Target};
use crate::support::{Outcome, Server, connect, sent_scripts, take_turns};
use harness::lua;
use redis::Connection;
use redlatch::{ReadWriteLock, RedLock};

const OURS: &str = "bench:pair:o";
const FLOOR: &str = "bench:pair:f";
const OWNER: &str = "01234567-89ab-cdef-0123-456789abcdef:1:12345";
const THREADS: usize = 8;

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    let url = server.unix();
    let locks = ReadWriteLock::connect(&url)?;
    for (side, what) in [(locks.read() as &dyn RedLock, "read"), (locks.write(), "write")] {
        server.on_one_core(|| beside_floor(&url, what, side, "one core", scale, report))?;
        beside_floor(&url, what, side, "any core", scale, report)?;
        count(&url, what, side, scale, report)?;
    }
    together(locks.read(), scale, report)
}

/// The scripts of a side, with the arguments that a call has which would wait.
struct Floor {
    connection: Connection,
    acquire: (String, Vec<String>, Vec<String>),
    release: (String, Vec<String>, Vec<String>),
}

/// What the ears of clients begin with.
const EARS: &str = "redlatch_ear";

impl Floor {
    fn new(url: &str, side: &str) -> Outcome<Self> {
        let mut connection = connect(url)?;
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection)?;
        let deadline = ((seconds + 3_600) * 1_000_000).to_string();
        let timeout = format!("{{{FLOOR}}}:{OWNER}:rwlock_timeout:1");
        let (channel, prefix) = (format!("redisson_rwlock:{{{FLOOR}}}"), format!("{{{FLOOR}}}:"));
        let [marks, turn] = ["writer", "readers"].map(|name| format!("redlatch_{name}:{{{FLOOR}}}"));
        let field = if side == "read" { OWNER.to_owned() } else { format!("{OWNER}:write") };
        let keys: &[&str] = if side == "read" { &[FLOOR, &timeout] } else { &[FLOOR] };
        let proof = if side == "read" { "" } else { "1" };
        let acquire: &[&str] = &[&deadline, "30000", &field, proof, &marks, &turn, EARS, "10000", "1"];
        let release: &[&str] = match side {
            "read" => &["1", "10", "10000", &field, &channel, &prefix, &marks, EARS, "", "", "", "", ""],
            _ => &["1", "10", "0", "10000", &field, &channel, &prefix, &marks, &turn, EARS],
        };
        let mut script = |verb: &str, args: &[&str]| -> Outcome<_> {
            let text = lua::script(&format!("{side}s/{verb}"));
            let sha = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection)?;
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            Ok((sha, owned(keys), owned(args)))
        };
        let (acquire, release) = (script("acquire", acquire)?, script("release", release)?);
        Ok(Self { connection, acquire, release })
    }

    fn pair(&mut self) -> Outcome<()> {
        let call = |(sha, keys, args): &(String, Vec<String>, Vec<String>)| {
            redis::cmd("EVALSHA").arg(sha).arg(keys.len()).arg(keys).arg(args).take()
        };
        let taken: i64 = call(&self.acquire).query(&mut self.connection)?;
        let freed: Vec<i64> = call(&self.release).query(&mut self.connection)?;
        match (taken.to_string() == self.acquire.2[0], freed.first()) {
            (true, Some(1..)) => Ok(()),
            other => Err(format!("the floor's lock was not free or not held: {other:?}").into()),
        }
    }
}

fn beside_floor(
    url: &str,
    what: &str,
    side: &dyn RedLock,
    place: &str,
    scale: Scale,
    report: &mut Report,
) -> Outcome<()> {
    let (mut floor, mut ratios) = (Floor::new(url, what)?, Vec::new());
    for round in 0..=scale.rounds {
        let (mut least, mut pair) = (|| floor.pair(), || Ok(side.lock(OURS).and_then(|()| side.unlock(OURS))?));
        let [one, other] = take_turns(round, scale.pairs, [&mut least, &mut pair])?;
        if round > 0 {
            ratios.push(other.p50() / one.p50());
        }
    }
    report.row("sides", format!("{what} pair, p50, {place}"), "x floor", ratios, Target::AtMost(1.05));
    Ok(())
}

fn count(url: &str, what: &str, side: &dyn RedLock, scale: Scale, report: &mut Report) -> Outcome<()> {
    let mut probe = connect(url)?;
    let before = sent_scripts(&mut probe)?;
    for _ in 0..scale.pairs {
        side.lock(OURS).and_then(|()| side.unlock(OURS))?;
    }
    let commands = (sent_scripts(&mut probe)? - before) / scale.pairs as f64;
    report.row("sides", format!("a {what} pair"), "commands", vec![commands], Target::Exactly(2.0));
    Ok(())
}

/// Threads that read and do nothing else.
fn together(read: &dyn RedLock, scale: Scale, report: &mut Report) -> Outcome<()> {
    let pairs = |threads| rate(threads, scale.span, |_| Ok(|| Ok(read.lock(OURS).and_then(|()| read.unlock(OURS))?)));
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let one = pairs(1)?;
        let all = pairs(THREADS)?;
        ratios.push(all / one);
        rates.push(all);
    }
    report.row(
        "sides",
        "8 threads that read one name".to_owned(),
        "x one thread's pairs/s",
        ratios,
        Target::AtLeast(50.0),
    );
    report.row("sides", "  the same".to_owned(), "pairs/s", rates, Target::None);
    Ok(())
}
