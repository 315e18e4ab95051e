//! What a lock costs beyond its two scripts: `cargo bench --bench pair`.
//!
//! The floor is the scripts themselves, by EVALSHA on a private connection; ours is `lock` + `unlock`. On a
//! shared machine a difference of a few percent drowns in what the minute brings, so both take turns in short
//! rounds and are compared round by round. Criterion and divan measure one contender to its end before the
//! next, hence a plain `main`. Even so, where the scheduler puts client and server moves a pair by a third; so
//! it is measured twice: with both on one core, where the ratio repeats to a percent and is the hardest on us,
//! for a round trip costs the least there; and on any core.
//!
//! A wake-up is the time from the start of an unlock here until a waiter in another process knows that it
//! holds. Round trips are PINGs of the same run: back to back, and `rested`, each after a sleep, as a wake-up
//! is. Its floor is a waiter written by hand. Lease and poll cap are a minute, so only the message can have
//! woken the waiter.
//!
//! It brings its own `redis-server`. Without `--bench` (as `cargo test --benches` does) or with `--test`, it
//! only shows that it works.

#[allow(dead_code, reason = "each bench uses a part")]
mod support;

use redis::Connection;
use redlatch::{Client, RedLock, RedLockExt, RedisRedLock, Reentry};
use std::hint::black_box;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::{Outcome, Samples, Server, WAITER, WAITER_BY_HAND, Waiter, command_counts, connect, monotonic, ping};

/// How much is measured.
#[derive(Clone, Copy)]
struct Scale {
    rounds: usize,
    pairs: usize,
    /// In memory: samples, each the mean of as many calls.
    batches: usize,
    calls: usize,
    wakes: usize,
}

const FULL: Scale = Scale { rounds: 30, pairs: 500, batches: 200, calls: 1_000, wakes: 200 };
const TINY: Scale = Scale { rounds: 2, pairs: 5, batches: 2, calls: 10, wakes: 2 };

/// On a machine that crawls, fewer rounds.
const ROUNDS_AT_MOST: Duration = Duration::from_secs(5);

/// From "subscribed" to "surely asleep": the waiter still looks at the lock once in between.
const FALL_ASLEEP: Duration = Duration::from_millis(3);

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [WAITER, url] => return wait_for_each(url),
        [WAITER_BY_HAND, url] => return wait_by_hand(url),
        _ => {}
    }
    if has("--list") {
        return Ok(());
    }
    let tiny = has("--test") || !has("--bench");
    match Server::start() {
        Ok(server) => run(&server, if tiny { TINY } else { FULL }),
        Err(error) if tiny => {
            println!("not run: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn run(server: &Server, scale: Scale) -> Outcome<()> {
    let Scale { rounds, pairs, .. } = scale;
    println!("{:42}{:>12}{:>12}{:>12}", format!("{rounds} rounds of {pairs} pairs each"), "p50", "p90", "p99");
    for (name, url) in [("Unix socket", server.unix()), ("TCP loopback", server.tcp())] {
        println!("{name}, one core");
        server.on_one_core(|| {
            show("PING", &pings(&url, scale)?, MICROS);
            compare(&url, scale)?;
            wire_rows(&url, scale)
        })?;
        println!("{name}, any core");
        let ping = pings(&url, scale)?;
        show("PING", &ping, MICROS);
        compare(&url, scale)?;
        wake_up(&url, scale, &ping)?;
    }
    println!("commands of a pair");
    count(&server.unix(), scale)?;
    println!("in memory");
    memory_rows(&server.unix(), scale)
}

/// A unit and its length in nanoseconds.
type Unit = (&'static str, f64);
const MICROS: Unit = ("µs", 1_000.0);
const NANOS: Unit = ("ns", 1.0);

fn show(name: &str, samples: &Samples, (unit, nanos): Unit) {
    let at = |share| format!("{:.1} {unit}", samples.quantile(share) / nanos);
    println!("  {name:40}{:>12}{:>12}{:>12}", at(0.5), at(0.9), at(0.99));
}

fn pings(url: &str, scale: Scale) -> Outcome<Samples> {
    let mut connection = connect(url)?;
    repeat(scale.pairs, || ping(&mut connection))?;
    repeat(scale.pairs * 4, || ping(&mut connection))
}

fn repeat(times: usize, mut act: impl FnMut() -> Outcome<()>) -> Outcome<Samples> {
    let mut samples = Samples::default();
    for _ in 0..times {
        samples.time(&mut act)?;
    }
    Ok(samples)
}

/// What a lock is called on the wire.
struct Name {
    key: String,
    channel: String,
}

impl Name {
    fn new(key: &str) -> Self {
        Self { key: key.to_owned(), channel: format!("redisson_lock__channel:{{{key}}}") }
    }
}

/// The two scripts and nothing else.
struct Floor {
    connection: Connection,
    acquire: String,
    release: String,
    deadline: u64,
}

impl Floor {
    const OWNER: &str = "01234567-89ab-cdef-0123-456789abcdef:1:12345";

    fn new(url: &str) -> Outcome<Self> {
        let mut connection = connect(url)?;
        let mut load = |text| redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection);
        let acquire = load(include_str!("../src/lua/acquire.lua"))?;
        let release = load(include_str!("../src/lua/release.lua"))?;
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection)?;
        Ok(Self { connection, acquire, release, deadline: (seconds + 3_600) * 1_000_000 })
    }

    fn take(&mut self, name: &Name) -> Outcome<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.acquire).arg(1).arg(&name.key).arg(Self::OWNER).arg(1).arg(30_000).arg(self.deadline);
        let busy: Option<i64> = command.query(&mut self.connection)?;
        if busy.is_none() { Ok(()) } else { Err("the floor's lock was not free".into()) }
    }

    fn free(&mut self, name: &Name) -> Outcome<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(&name.key).arg(Self::OWNER).arg(0).arg(&name.channel);
        let released: i64 = command.query(&mut self.connection)?;
        if released == 1 { Ok(()) } else { Err("the floor's lock was not held".into()) }
    }

    fn pair(&mut self, name: &Name) -> Outcome<()> {
        self.take(name)?;
        self.free(name)
    }
}

struct Ours {
    locks: RedisRedLock,
}

impl Ours {
    fn new(url: &str) -> Outcome<Self> {
        Ok(Self { locks: RedisRedLock::connect(url)? })
    }

    fn pair(&self) -> Outcome<()> {
        self.locks.lock(OURS)?;
        Ok(self.locks.unlock(OURS)?)
    }
}

/// Names of one length.
const OURS: &str = "bench:pair:o";
const FLOOR: &str = "bench:pair:f";

fn compare(url: &str, scale: Scale) -> Outcome<()> {
    let (mut floor, name, ours) = (Floor::new(url)?, Name::new(FLOOR), Ours::new(url)?);
    repeat(scale.pairs, || floor.pair(&name).and_then(|()| ours.pair()))?;
    let (mut all_floor, mut all_ours, mut ratios) = (Samples::default(), Samples::default(), Samples::default());
    let begun = Instant::now();
    for round in 0..scale.rounds {
        if begun.elapsed() > ROUNDS_AT_MOST {
            println!("  (cut off after {round} rounds)");
            break;
        }
        let (one_floor, one_ours) = take_turns(round, scale.pairs, || floor.pair(&name), || ours.pair())?;
        ratios.push(one_ours.p50() / one_floor.p50());
        all_floor.extend(one_floor);
        all_ours.extend(one_ours);
    }
    show("floor: the two scripts", &all_floor, MICROS);
    show("ours: lock + unlock", &all_ours, MICROS);
    let (least, middle, most) = (ratios.quantile(0.0), ratios.p50(), ratios.quantile(1.0));
    let ratio = all_ours.p50() / all_floor.p50();
    println!("  ours / floor {ratio:.3} (by rounds: {least:.3} to {most:.3}, median {middle:.3})");
    Ok(())
}

/// One round of each; who goes first changes, as what is measured second finds a warmer server.
fn take_turns(
    round: usize,
    pairs: usize,
    mut floor: impl FnMut() -> Outcome<()>,
    mut ours: impl FnMut() -> Outcome<()>,
) -> Outcome<(Samples, Samples)> {
    if round.is_multiple_of(2) {
        let first = repeat(pairs, &mut floor)?;
        Ok((first, repeat(pairs, &mut ours)?))
    } else {
        let first = repeat(pairs, &mut ours)?;
        Ok((repeat(pairs, &mut floor)?, first))
    }
}

/// What the server executed for one pair; EVALSHA is what was sent, the others ran inside of it.
fn count(url: &str, scale: Scale) -> Outcome<()> {
    let (mut floor, floor_name) = (Floor::new(url)?, Name::new(FLOOR));
    let (ours, mut probe) = (Ours::new(url)?, connect(url)?);
    ours.pair()?;
    let mut of = |name, pair: &mut dyn FnMut() -> Outcome<()>| -> Outcome<()> {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut probe)?;
        repeat(scale.pairs, pair)?;
        let counts = command_counts(&mut probe)?.into_iter();
        let each: Vec<_> = counts.map(|(name, calls)| format!("{name} {}", calls / scale.pairs as f64)).collect();
        println!("  {name:8}{}", each.join(", "));
        Ok(())
    };
    of("floor", &mut || floor.pair(&floor_name))?;
    of("ours", &mut || ours.pair())
}

/// Other operations that go to the server, twice each pair.
fn wire_rows(url: &str, scale: Scale) -> Outcome<()> {
    let locks = RedisRedLock::connect(url)?;
    let name = "bench:other:";
    let row = |title, pair: &dyn Fn() -> redlatch::Result<()>| -> Outcome<()> {
        repeat(scale.pairs, || Ok(pair()?))?;
        show(title, &repeat(scale.pairs * 4, || Ok(pair()?))?, MICROS);
        Ok(())
    };
    row("guard + drop", &|| locks.guard(name).map(drop))?;
    row("try_lock + unlock", &|| locks.try_lock(name).and_then(|_| locks.unlock(name)))?;
    row("try_lock_for + unlock", &|| {
        locks.try_lock_for(name, Duration::from_millis(500)).and_then(|_| locks.unlock(name))
    })?;
    locks.lock(name)?;
    row("inner lock + unlock, mirrored", &|| locks.lock(name).and_then(|()| locks.unlock(name)))?;
    Ok(locks.unlock(name)?)
}

/// Operations that stay in this process.
fn memory_rows(url: &str, scale: Scale) -> Outcome<()> {
    let locks = RedisRedLock::new(&Client::builder(url).reentry(Reentry::Local).build()?);
    let name = "bench:memory";
    locks.lock(name)?;
    let inner = || -> Outcome<()> { Ok(locks.lock(name).and_then(|()| locks.unlock(name))?) };
    show("inner lock + unlock, Reentry::Local", &batches(scale, inner)?, NANOS);
    let try_it = || if locks.try_lock(name)? { Err("a sibling's lock was free".into()) } else { Ok(()) };
    let sibling = std::thread::scope(|scope| scope.spawn(|| batches(scale, try_it)).join());
    show("try_lock of what a sibling holds", &sibling.map_err(|_| "the sibling panicked")??, NANOS);
    let hold = locks.hold(name).ok_or("not held")?;
    let valid = || if black_box(&hold).is_valid() { Ok(()) } else { Err("lost".into()) };
    show("Hold::is_valid", &batches(scale, valid)?, NANOS);
    Ok(locks.unlock(name)?)
}

/// Means of many calls each: reading the clock would cost more than one of them.
fn batches(scale: Scale, mut act: impl FnMut() -> Outcome<()>) -> Outcome<Samples> {
    let mut samples = Samples::default();
    for _ in 0..scale.batches {
        let start = Instant::now();
        for _ in 0..scale.calls {
            act()?;
        }
        samples.push(start.elapsed().as_nanos() as f64 / scale.calls as f64);
    }
    Ok(samples)
}

/// Locks whose waiters can only be woken by a message.
fn sleepers(url: &str) -> Outcome<RedisRedLock> {
    let minute = Duration::from_secs(60);
    Ok(RedisRedLock::new(&Client::builder(url).watchdog_timeout(minute).poll_cap(minute).build()?))
}

/// The other process: takes each lock named on its input, and says when it had it.
fn wait_for_each(url: &str) -> Outcome<()> {
    let locks = sleepers(url)?;
    for name in std::io::stdin().lines() {
        let name = name?;
        locks.lock(&name)?;
        let held = monotonic();
        locks.unlock(&name)?;
        println!("{held}");
    }
    Ok(())
}

/// The same with the least that can do it: a thread that listens, one that takes the lock when it is told.
fn wait_by_hand(url: &str) -> Outcome<()> {
    let (mut floor, mut listener) = (Floor::new(url)?, connect(url)?);
    listener.set_read_timeout(None)?;
    let (wanted, channels) = channel::<String>();
    let (told, news) = channel();
    std::thread::spawn(move || -> Outcome<()> {
        let mut messages = listener.as_pubsub();
        for channel in channels {
            messages.subscribe(&channel)?;
            // Its own release of the lock before this one is heard too.
            while messages.get_message()?.get_channel_name() != channel {}
            told.send(())?;
        }
        Ok(())
    });
    for name in std::io::stdin().lines() {
        let name = Name::new(&name?);
        wanted.send(name.channel.clone())?;
        news.recv()?;
        floor.take(&name)?;
        let held = monotonic();
        floor.free(&name)?;
        println!("{held}");
    }
    Ok(())
}

fn wake_up(url: &str, scale: Scale, hot: &Samples) -> Outcome<()> {
    let (locks, mut probe) = (sleepers(url)?, connect(url)?);
    let (mut by_hand, mut ours) = (Waiter::start(WAITER_BY_HAND, url)?, Waiter::start(WAITER, url)?);
    let (mut rested, mut floor, mut wakes) = (Samples::default(), Samples::default(), Samples::default());
    for number in 0..scale.wakes {
        std::thread::sleep(FALL_ASLEEP);
        rested.time(|| ping(&mut probe))?;
        // New names each time: a channel stays subscribed for a while, and then says nothing of the waiter.
        wake(&locks, &mut by_hand, &mut probe, &Name::new(&format!("bench:hand:{number}")), &mut floor)?;
        wake(&locks, &mut ours, &mut probe, &Name::new(&format!("bench:wake:{number}")), &mut wakes)?;
    }
    show("PING, rested", &rested, MICROS);
    show("floor: wake-up by hand", &floor, MICROS);
    show("ours: wake-up", &wakes, MICROS);
    let [in_hot, in_rested, in_floor] = [hot, &rested, &floor].map(|unit| wakes.p50() / unit.p50());
    println!("  ours / floor {in_floor:.3}; ours = {in_rested:.2} round trips (rested), {in_hot:.2} back to back");
    Ok(())
}

/// From the start of an unlock here until the waiter has the lock.
fn wake(
    locks: &RedisRedLock,
    waiter: &mut Waiter,
    probe: &mut Connection,
    name: &Name,
    times: &mut Samples,
) -> Outcome<()> {
    locks.lock(&name.key)?;
    waiter.ask(&name.key)?;
    await_subscriber(probe, &name.channel)?;
    std::thread::sleep(FALL_ASLEEP);
    let start = monotonic();
    locks.unlock(&name.key)?;
    times.push((waiter.answer()? - start) as f64);
    Ok(())
}

fn await_subscriber(probe: &mut Connection, channel: &str) -> Outcome<()> {
    let patience = Instant::now() + Duration::from_secs(5);
    while Instant::now() < patience {
        let (_, subscribers): (String, usize) = redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query(probe)?;
        if subscribers == 1 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Err("the waiter did not subscribe".into())
}
