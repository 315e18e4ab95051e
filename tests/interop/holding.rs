//! What one program sees while the other holds: its depth, its watchdog, a timed wait in vain, a force unlock.

use crate::java::Span;
use crate::setting::{FOR_EVER, Family, Holder, Setting, WATCHED};
use crate::sides::{Side, now};
use crate::threads::{LATE, LONG, eventually, finish, ms};
use redlatch::LossCause;
use std::time::Duration;

const AT_ONCE: Duration = Duration::ZERO;

both_ways!(
    the_other_side_stays_out_until_the_outermost_unlock,
    the_watchdog_keeps_the_other_side_out,
    a_timed_wait_ends_in_time,
    a_force_unlock_ousts_the_other_side
);

fn the_other_side_stays_out_until_the_outermost_unlock(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    let (holder, other) = setting.sides();
    for depth in 1..=3 {
        holder.lock("n");
        assert_eq!(setting.servers.owner("n").1, depth);
    }
    for left in [3, 2, 1] {
        assert_eq!(setting.servers.owner("n").1, left);
        assert!(!other.try_lock("n", AT_ONCE).0 && other.is_locked("n"), "it got in at depth {left}");
        holder.unlock("n");
    }
    assert!(!other.is_locked("n") && other.try_lock("n", AT_ONCE).0);
    other.unlock("n");
    setting.record("re-entry", "out at depths 3, 2 and 1, in at 0");
}

fn the_watchdog_keeps_the_other_side_out(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, WATCHED);
    let (holder, other) = setting.sides();
    holder.lock("n");
    let wait = 2 * WATCHED;
    let (tried, renewals) = std::thread::scope(|scope| {
        let tried = scope.spawn(|| other.try_lock("n", wait).0);
        let mut left = vec![setting.servers.pttl("n")];
        while !tried.is_finished() {
            std::thread::sleep(ms(5));
            left.push(setting.servers.pttl("n"));
        }
        assert!(left.iter().all(|&ms| ms > 0), "the key was gone: {left:?}");
        (finish(tried), left.windows(2).filter(|pair| pair[1] > pair[0]).count())
    });
    assert!(!tried, "it got in");
    // Every third of the lease makes six of them; a machine that stalls may lose some.
    assert!(renewals >= 2, "seen {renewals} times");
    holder.unlock("n");
    assert!(other.try_lock("n", AT_ONCE).0);
    other.unlock("n");
    let figures = format!("out for {wait:?} with a lease of {WATCHED:?}: TTL seen to grow {renewals} times");
    setting.record("watchdog", &figures);
}

fn a_timed_wait_ends_in_time(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    // How late a JVM comes back is not ours to promise.
    let late = if holder == Holder::Java { LATE } else { LONG };
    // Redisson counts in whole ms.
    let early = if holder == Holder::Java { Duration::ZERO } else { ms(1) };
    let (holder, other) = setting.sides();
    let wait = ms(300);
    // The first call of a JVM loads classes meanwhile.
    assert!(other.try_lock("warm-up", AT_ONCE).0);
    other.unlock("warm-up");
    holder.lock("n");
    let (acquired, span) = other.try_lock("n", wait);
    assert!(!acquired && span.length() + early >= wait && span.length() <= wait + late, "{acquired} after {span:?}");
    let channel = setting.family.channel("n");
    eventually(LONG, "the subscription is gone", || setting.servers.subscribers(&channel) == 0);
    let (woken, freed) = setting.while_asleep("n", || woken_in_a_timed_wait(&*other), || holder.unlock("n"));
    assert!(woken.after(freed) < LONG, "not woken in a timed wait: {woken:?} {freed:?}");
    setting.record("timed tryLock", &format!("of {wait:?}, in vain: back after {:.0?}", span.length()));
}

fn woken_in_a_timed_wait(waiter: &dyn Side) -> Span {
    let (acquired, span) = waiter.try_lock("n", FOR_EVER);
    assert!(acquired);
    waiter.unlock("n");
    span
}

fn a_force_unlock_ousts_the_other_side(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, WATCHED);
    let (ousted, other) = setting.sides();
    ousted.lock("n");
    assert!(other.force_unlock("n").0 && !other.force_unlock("n").0);
    assert!(other.try_lock("n", AT_ONCE).0, "it is free");
    let held = setting.servers.owner("n");
    let told = ousted.try_unlock("n").unwrap_err();
    assert_eq!(setting.servers.owner("n"), held, "the unlock of the ousted touched another's lock");
    other.unlock("n");
    // It may lock again once it has unlocked what it lost.
    ousted.lock("n");
    ousted.unlock("n");
    setting.record("ousted by forceUnlock", &format!("its unlock says: {}", kind(&told)));
}

/// The Java exception by its class, ours by its words.
fn kind(error: &str) -> &str {
    error.split_once(": attempt").or(error.split_once(": n is")).map_or(error, |(class, _)| class)
}

/// The Rust side learns it from its watchdog too, before it asks.
#[test]
fn an_ousted_hold_is_told() {
    let on_one_server = [Family::REDISSON, Family::FENCED, Family::READ_WRITE, Family::JEDIS];
    for family in on_one_server.into_iter().chain([Family::SHARDED, Family::PLAIN]) {
        let setting = Setting::new(family, Holder::Rust, WATCHED);
        let (ousted, other) = setting.sides();
        ousted.lock("n");
        let hold = setting.locks.hold("n").unwrap();
        let (_, freed) = other.force_unlock("n");
        let lost = hold.lost().recv_timeout(LONG).unwrap();
        let told = Duration::from_nanos(now() - freed.began);
        assert_eq!(lost.cause(), LossCause::Removed);
        assert!(told <= WATCHED / 3 + LATE, "told after {told:?}");
        assert_err!(setting.locks.unlock("n"), Lost);
        setting.record("ousted hold is told", &format!("after {told:.0?}, with a renewal every {:?}", WATCHED / 3));
    }
}
