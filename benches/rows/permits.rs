//! Semaphores: a permit beside its two scripts, the keys that operations leave, very many permits, and very many that wait for few.

use crate::Scale;
use crate::counting::bytes;
use crate::report::{Report, Target};
use crate::support::turns::MILLI;
use crate::support::{Outcome, Samples, Server, connect, cpu_seconds, monotonic, sent_scripts, take_turns};
use harness::lua;
use redis::Connection;
use redlatch::{HoldState, LeasedSemaphore, Permits, Semaphore, Terms};
use std::thread::Builder;
use std::time::{Duration, Instant};

const OURS: &str = "bench:permits:o";
const FLOOR: &str = "bench:permits:f";
const CLIENT: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// How many permits very many wait for.
const FEW: u32 = 10;

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    let url = server.unix();
    let (leased, counted) = (LeasedSemaphore::connect(&url)?, Semaphore::connect(&url)?);
    let names = ["leased", "semaphore"].map(|kind| format!("{OURS}:{kind}"));
    let pairs: [(&str, Acquire<'_>); 2] = [
        ("leased", &|| Ok(leased.acquire(&names[0], 1, &Terms::new())?)),
        ("semaphore", &|| Ok(counted.acquire(&names[1], 1, &Terms::new())?)),
    ];
    leased.try_set_permits(&names[0], 5)?;
    counted.try_set_permits(&names[1], 5)?;
    for (kind, acquire) in pairs {
        server.on_one_core(|| beside_floor(&url, kind, acquire, "one core", scale, report))?;
        beside_floor(&url, kind, acquire, "any core", scale, report)?;
        count(&url, kind, acquire, scale, report)?;
    }
    results(&url, &counted, scale, report)?;
    holds(&leased, scale, report)?;
    crowd(&url, &leased, scale, report)
}

/// The scripts of a kind, with the arguments that a call has which would wait. `{number}` is replaced by one that grows.
struct Floor {
    connection: Connection,
    acquire: (String, Vec<String>, Vec<String>),
    release: (String, Vec<String>, Vec<String>),
    number: u64,
}

impl Floor {
    fn new(url: &str, kind: &str) -> Outcome<Self> {
        let mut connection = connect(url)?;
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection)?;
        let (name, deadline) = (format!("{FLOOR}:{kind}"), ((seconds + 3_600) * 1_000_000).to_string());
        redis::cmd("SET").arg(&name).arg(5).exec(&mut connection)?;
        redis::cmd("DEL").arg(format!("redlatch_op:{{{name}}}{CLIENT}:1")).exec(&mut connection)?;
        let (channel, places) = (format!("redisson_sc:{{{name}}}"), format!("redlatch_places:{{{name}}}"));
        let owner = format!("{CLIENT}:1:{{number}}");
        let second =
            if kind == "leased" { format!("{{{name}}}:timeout") } else { format!("redlatch_op:{{{name}}}{CLIENT}:1") };
        let (acquire, verb, release): (Vec<&str>, _, Vec<&str>) = match kind {
            "leased" => (
                vec![&deadline, "30000", &owner, "1", &channel, &places, "", "0"],
                "release",
                vec![&owner, "1", &channel, &places],
            ),
            _ => (
                vec![&deadline, "{number}", "21000", "1", &places, "", "0"],
                "add",
                vec![&deadline, "{number}", "21000", "1", &channel, &places, "0"],
            ),
        };
        let mut script = |verb: &str, args: &[&str]| -> Outcome<_> {
            let text = lua::script(&format!("{kind}/{verb}"));
            let sha = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection)?;
            let args = args.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            Ok((sha, vec![name.clone(), second.clone()], args))
        };
        let (acquire, release) = (script("acquire", &acquire)?, script(verb, &release)?);
        Ok(Self { connection, acquire, release, number: 0 })
    }

    /// A release of the plain semaphore is an operation of its own, and one of leased permits names the acquire.
    fn pair(&mut self) -> Outcome<()> {
        let is_leased = self.acquire.2.len() == 8;
        let (taken, freed) = (self.number + 1, if is_leased { self.number + 1 } else { self.number + 2 });
        self.number += 2;
        let call = |(sha, keys, args): &(String, Vec<String>, Vec<String>), number: u64| {
            let args: Vec<_> = args.iter().map(|word| word.replace("{number}", &number.to_string())).collect();
            redis::cmd("EVALSHA").arg(sha).arg(keys.len()).arg(keys).arg(args).take()
        };
        let taken: i64 = call(&self.acquire, taken).query(&mut self.connection)?;
        let freed: i64 = call(&self.release, freed).query(&mut self.connection)?;
        match (taken.to_string() == self.acquire.2[0], freed) {
            (true, 1..) => Ok(()),
            other => Err(format!("the floor got no permit: {other:?}").into()),
        }
    }
}

type Acquire<'a> = &'a dyn Fn() -> Outcome<Option<Permits>>;

fn pair(acquire: Acquire<'_>) -> Outcome<()> {
    Ok(acquire()?.ok_or("no permit")?.release()?)
}

fn beside_floor(
    url: &str,
    kind: &str,
    acquire: Acquire<'_>,
    place: &str,
    scale: Scale,
    report: &mut Report,
) -> Outcome<()> {
    let (mut floor, mut ratios) = (Floor::new(url, kind)?, Vec::new());
    for round in 0..=scale.rounds {
        let (mut least, mut ours) = (|| floor.pair(), || pair(acquire));
        let [one, other] = take_turns(round, scale.pairs, [&mut least, &mut ours])?;
        if round > 0 {
            ratios.push(other.p50() / one.p50());
        }
    }
    report.row("permits", format!("{kind} pair, p50, {place}"), "x floor", ratios, Target::AtMost(1.05));
    Ok(())
}

fn count(url: &str, kind: &str, acquire: Acquire<'_>, scale: Scale, report: &mut Report) -> Outcome<()> {
    let mut probe = connect(url)?;
    let before = sent_scripts(&mut probe)?;
    for _ in 0..scale.pairs {
        pair(acquire)?;
    }
    let commands = (sent_scripts(&mut probe)? - before) / scale.pairs as f64;
    report.row("permits", format!("a {kind} pair"), "commands", vec![commands], Target::Exactly(2.0));
    Ok(())
}

/// Results that operations at full speed leave.
fn results(url: &str, semaphore: &Semaphore, scale: Scale, report: &mut Report) -> Outcome<()> {
    const THREADS: usize = 4;
    let (name, end) = (format!("{OURS}:results"), Instant::now() + scale.watch / 3);
    semaphore.try_set_permits(&name, 5)?;
    let work = || -> redlatch::Result<()> {
        while Instant::now() < end {
            semaphore.acquire(&name, 1, &Terms::new())?.into_iter().try_for_each(Permits::release)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(work));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    let keys: Vec<String> = redis::cmd("KEYS").arg(format!("redlatch_op:*{name}*")).query(&mut connect(url)?)?;
    let title = format!("results after {} s of {THREADS} threads", scale.watch.as_secs() / 3);
    report.row("permits", title, "keys", vec![keys.len() as f64], Target::AtMost(THREADS as f64));
    Ok(())
}

/// Very many permits, each a hold, under the default watchdog.
fn holds(semaphore: &LeasedSemaphore, scale: Scale, report: &mut Report) -> Outcome<()> {
    let name = format!("{OURS}:holds");
    semaphore.try_set_permits(&name, scale.holds as u32)?;
    let terms = Terms::new();
    let (taken, used) = bytes(|| {
        (0..scale.holds)
            .map(|_| semaphore.acquire(&name, 1, &terms))
            .collect::<redlatch::Result<Vec<Option<Permits>>>>()
    });
    let taken: Vec<_> = taken?.into_iter().flatten().collect();
    let (start, cpu) = (Instant::now(), cpu_seconds());
    std::thread::sleep(scale.watch);
    let share = 100.0 * (cpu_seconds() - cpu) / start.elapsed().as_secs_f64();
    let held = taken.iter().filter_map(Permits::hold).filter(|hold| hold.state() == HoldState::Held).count();
    let (group, number) = ("permits", scale.holds);
    report.row(group, format!("{number} leased permits: client"), "% of a core", vec![share], Target::AtMost(0.5));
    report.row(group, "  a permit".to_owned(), "bytes", vec![used as f64 / number as f64], Target::AtMost(1_024.0));
    report.row(group, "  Suspect or lost".to_owned(), "permits", vec![(number - held) as f64], Target::Exactly(0.0));
    Ok(taken.into_iter().try_for_each(Permits::release)?)
}

/// Very many threads of one client that wait for few permits. Woken: from the release before to the acquire after it.
fn crowd(url: &str, semaphore: &LeasedSemaphore, scale: Scale, report: &mut Report) -> Outcome<()> {
    let name = format!("{OURS}:crowd");
    semaphore.try_set_permits(&name, FEW)?;
    let first: Vec<_> = (0..FEW).map(|_| semaphore.try_acquire(&name, 1)).collect::<redlatch::Result<_>>()?;
    let threads = (0..scale.waiters).map(|_| {
        let (semaphore, name) = (semaphore.clone(), name.clone());
        let turn = move || -> redlatch::Result<(i64, i64)> {
            let permit = semaphore.acquire(&name, 1, &Terms::new())?;
            let held = monotonic();
            std::thread::sleep(Duration::from_millis(1));
            let left = monotonic();
            permit.into_iter().try_for_each(Permits::release)?;
            Ok((held, left))
        };
        Ok(Builder::new().stack_size(128 * 1024).spawn(turn)?)
    });
    let threads = threads.collect::<Outcome<Vec<_>>>()?;
    while semaphore.client().stats().waiters < scale.waiters {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut probe = connect(url)?;
    let subscribers: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut probe)?;
    let freed = monotonic();
    first.into_iter().flatten().try_for_each(Permits::release)?;
    let mut turns = threads
        .into_iter()
        .map(|thread| Ok(thread.join().map_err(|_| "a waiter panicked")??))
        .collect::<Outcome<Vec<_>>>()?;
    let (group, number) = ("permits", scale.waiters);
    let woken = woken(&mut turns, freed);
    let title = format!("{number} that wait for {FEW} permits: pub/sub connections");
    report.row(group, title, "", vec![subscribers.lines().count() as f64], Target::Exactly(1.0));
    report.row(group, "  woken, p99".to_owned(), "ms", vec![woken.quantile(0.99)], Target::None);
    report.row(group, "  woken, p50".to_owned(), "ms", vec![woken.p50()], Target::None);
    Ok(())
}

/// The n-th acquire uses the permit of the release that is so many before it.
fn woken(turns: &mut [(i64, i64)], freed: i64) -> Samples {
    turns.sort_unstable();
    let mut releases: Vec<_> = turns.iter().map(|(_, left)| *left).chain([freed; FEW as usize]).collect();
    releases.sort_unstable();
    let mut samples = Samples::default();
    for ((held, _), freed) in turns.iter().zip(releases) {
        samples.push((held - freed).max(0) as f64 / MILLI);
    }
    samples
}
