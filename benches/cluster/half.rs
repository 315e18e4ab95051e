//! A slot that stays half moved: every call for locks whose keys are still at the old master, and for those that have none there.

use crate::support::turns::MILLI;
use crate::support::{Outcome, monotonic};
use crate::tally::Tally;
use crate::{BUDGET, SAFE_LEASE, Scale, built, names_at};
use harness::cluster::{Cluster, Keys, Shape, slot_of};
use harness::threads::{finish, ms};
use redlatch::{MultiLock, RedLock, RedLockExt, ReentrantLock};
use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// So many locks a second are held before, each for calls of all kinds.
const PREPARED: u64 = 20;

/// For so long a try waits that is in vain.
const IN_VAIN: Duration = Duration::from_millis(50);

/// Between the calls for one lock and those for the next.
const PAUSE: Duration = Duration::from_millis(5);

/// What all workers know.
struct Stage {
    /// All locks of it are in the slot.
    tag: String,
    /// A lock of another slot.
    elsewhere: String,
    span: Duration,
    /// Whoever holds what is to stay has it; then the slot is half moved.
    turns: Barrier,
}

impl Stage {
    fn name(&self, of: &str, number: u64) -> String {
        format!("{{{}}}:{of}{number}", self.tag)
    }

    /// Waits until the slot is half moved; when to stop.
    fn begin(&self) -> Instant {
        self.turns.wait();
        self.turns.wait();
        Instant::now() + self.span
    }

    /// So many are held before.
    fn prepared(&self) -> u64 {
        PREPARED * self.span.as_secs()
    }

    /// A group with this lock, a free one of the slot, and one elsewhere.
    fn group<'l>(&self, locks: &'l ReentrantLock, name: &str) -> MultiLock<'l> {
        let other = format!("{name}:other");
        MultiLock::of([name, &other, &self.elsewhere].map(|name| (locks, name)))
    }
}

pub(crate) fn rows(scale: &Scale) -> Outcome<()> {
    let cluster = Cluster::of(Shape::STEADY);
    let plain = || built(cluster.builder().outage_budget(BUDGET));
    let strict = built(cluster.builder().outage_budget(BUDGET).strict(true).watchdog_timeout(SAFE_LEASE))?;
    let (one, other, third) = (plain()?, plain()?, plain()?);
    let (tag, [elsewhere]) = (cluster.name_at(0, 0), names_at(&cluster, 2));
    let stage = Stage { tag, elsewhere, span: scale.half, turns: Barrier::new(5) };
    println!("a slot is half moved for {:?}; ms\n", scale.half);
    let (tallies, waited) = scope(|scope| {
        let stage = &stage;
        let absent = scope.spawn(|| absent(stage, &one));
        let present = scope.spawn(|| present(stage, &other, &third));
        let quiet = scope.spawn(|| grants_nothing(stage, &strict));
        let waits = scope.spawn(|| waits_for_the_end(stage, &strict));
        stage.turns.wait();
        let moved = cluster.half_move(slot_of(&stage.tag), 1, Keys::None);
        stage.turns.wait();
        let [absent, present, quiet] = [absent, present, quiet].map(finish);
        let end = monotonic();
        cluster.finish_move(moved);
        (
            [("plain, absent", absent), ("plain, at the old one", present), ("strict", quiet)],
            finish(waits).map(|at| at - end),
        )
    });
    println!("| client, keys | call | made | failed | granted or true | p50 | longest |");
    println!("| --- | --- |{}", " ---: |".repeat(5));
    tallies.iter().for_each(|(who, tally)| tally.show(who));
    println!(
        "\na strict lock was waited for all the time, and granted {:.0} ms after the slot had moved",
        waited? as f64 / MILLI
    );
    Ok(())
}

/// What a holder can ask besides its unlock.
fn ask_as_holder(tally: &mut Tally, locks: &ReentrantLock, name: &str) {
    tally.done("lock, re-enters", || locks.lock(name));
    if let Some(hold) = locks.hold(name) {
        tally.done("extend", || hold.extend(SAFE_LEASE));
        tally.make("verify", || locks.verify(&hold));
    }
    tally.make("is_locked", || locks.is_locked(name));
    tally.done("unlock, one level", || locks.unlock(name));
}

/// The last level, by one of both ways.
fn give_up(tally: &mut Tally, locks: &ReentrantLock, name: &str, forced: bool) {
    if forced {
        tally.make("force_unlock", || locks.force_unlock(name));
        // The hold is lost, and says so.
        let _ = locks.unlock(name);
    } else {
        tally.done("unlock", || locks.unlock(name));
    }
}

/// Of keys that the old master does not have: made at the new one.
fn absent(stage: &Stage, locks: &ReentrantLock) -> Tally {
    let (mut tally, end) = (Tally::default(), stage.begin());
    for number in (0..).take_while(|_| Instant::now() < end) {
        let name = &stage.name("absent", number);
        tally.done("lock", || locks.lock(name));
        ask_as_holder(&mut tally, locks, name);
        give_up(&mut tally, locks, name, number % 2 == 1);
        for forced in [false, true] {
            if tally.make("try_lock", || locks.try_lock(name)) {
                give_up(&mut tally, locks, name, forced);
            }
            if tally.make("try_lock_for", || locks.try_lock_for(name, ms(1_000))) {
                give_up(&mut tally, locks, name, forced);
            }
        }
        let group = stage.group(locks, name);
        if tally.done("MultiLock, lock", || group.lock()) {
            tally.done("MultiLock, unlock", || group.unlock());
        }
        sleep(PAUSE);
    }
    tally
}

/// Of keys that the old master still has: held before.
fn present(stage: &Stage, locks: &ReentrantLock, others: &ReentrantLock) -> Tally {
    let names: Vec<_> = (0..stage.prepared()).map(|number| stage.name("present", number)).collect();
    names.iter().for_each(|name| locks.lock(name).expect("it is free"));
    let (mut tally, end) = (Tally::default(), stage.begin());
    for (number, name) in names.iter().enumerate().take_while(|_| Instant::now() < end) {
        ask_as_holder(&mut tally, locks, name);
        tally.make("try_lock, another's", || others.try_lock(name));
        tally.make("try_lock_for 50 ms, another's", || others.try_lock_for(name, IN_VAIN));
        let group = stage.group(locks, name);
        if tally.done("MultiLock, lock", || group.lock()) {
            tally.done("MultiLock, unlock", || group.unlock());
        }
        if number % 2 == 0 {
            pass_on(&mut tally, locks, others, name);
        } else {
            give_up(&mut tally, locks, name, true);
        }
        sleep(PAUSE);
    }
    tally
}

/// Another waits for it; its time is from the unlock.
fn pass_on(tally: &mut Tally, locks: &ReentrantLock, others: &ReentrantLock, name: &str) {
    scope(|scope| {
        let waiting = scope.spawn(|| {
            let locked = others.lock(name);
            let served = Instant::now();
            locked.map(|()| (served, others.unlock(name)))
        });
        sleep(IN_VAIN);
        let freed = Instant::now();
        tally.done("unlock", || locks.unlock(name));
        let served = finish(waiting);
        let took = served.as_ref().map_or(Duration::ZERO, |(served, _)| served.saturating_duration_since(freed));
        let said = served.and_then(|(_, unlocked)| unlocked).map(|()| true);
        tally.of("lock, waits for it; from the unlock").note(took, said);
    });
}

/// A strict client: what it holds stays usable, and it is granted nothing.
fn grants_nothing(stage: &Stage, locks: &ReentrantLock) -> Tally {
    let names: Vec<_> = (0..stage.prepared()).map(|number| stage.name("strict", number)).collect();
    names.iter().for_each(|name| locks.lock(name).expect("it is free"));
    let (mut tally, end) = (Tally::default(), stage.begin());
    for (number, name) in names.iter().enumerate().take_while(|_| Instant::now() < end) {
        ask_as_holder(&mut tally, locks, name);
        give_up(&mut tally, locks, name, number % 2 == 1);
        let free = &stage.name("free", number as u64);
        tally.make("try_lock", || locks.try_lock(free));
        tally.make("try_lock_for 50 ms", || locks.try_lock_for(free, IN_VAIN));
        let group = stage.group(locks, free);
        tally.make("MultiLock, try_lock", || group.try_lock());
        sleep(PAUSE);
    }
    tally
}

/// When a strict client was granted what it waited for all the time.
fn waits_for_the_end(stage: &Stage, locks: &ReentrantLock) -> redlatch::Result<i64> {
    stage.begin();
    let guard = locks.guard(&stage.name("end", 0))?;
    let granted = monotonic();
    guard.unlock()?;
    Ok(granted)
}
