//! The holder is killed: the other program gets the lock when the lease ends, and not before.

use crate::process::{Peer, hear, tell, with_peer};
use crate::server::Server;
use crate::servers::Servers;
use crate::setting::{Family, Holder, Setting, WATCHED, asleep};
use crate::sides::{Side, now};
use crate::threads::{LATE, finish};
use std::time::Duration;

const LEASE: Duration = WATCHED;

#[test]
fn a_killed_jvm_with_redisson() {
    jvm_is_killed(Family::REDISSON);
}

#[test]
fn a_killed_jvm_with_redissons_fenced_lock() {
    jvm_is_killed(Family::FENCED);
}

#[test]
fn a_killed_jvm_with_redissons_fair_lock() {
    jvm_is_killed(Family::FAIR);
}

#[test]
fn a_killed_jvm_with_jedis() {
    jvm_is_killed(Family::JEDIS);
}

#[test]
fn a_killed_jvm_with_redisson_in_a_sharded_cluster() {
    jvm_is_killed(Family::SHARDED);
}

#[test]
fn a_killed_jvm_with_redisson_in_a_plain_cluster() {
    jvm_is_killed(Family::PLAIN);
}

fn jvm_is_killed(family: Family) {
    let mut setting = Setting::new(family, Holder::Java, LEASE);
    setting.sides().0.lock("n");
    let (waited, killed) = std::thread::scope(|scope| {
        let (locks, before) = (setting.locks.clone(), setting.servers.scripts_run());
        let waiter = scope.spawn(move || lock_and_unlock(&crate::sides::Rust(locks)));
        asleep(&setting.servers, &family.channel("n"), before);
        let killed = now();
        setting.jvm.kill();
        (finish(waiter), killed)
    });
    assert_free_within_the_lease(&setting, killed, waited);
}

#[test]
fn a_killed_rust_process_beside_redisson() {
    with_peer(|url| hold_until_killed(Family::REDISSON, url), |start| process_is_killed(Family::REDISSON, start));
}

#[test]
fn a_killed_rust_process_beside_redissons_fenced_lock() {
    with_peer(|url| hold_until_killed(Family::FENCED, url), |start| process_is_killed(Family::FENCED, start));
}

#[test]
fn a_killed_rust_process_beside_redissons_fair_lock() {
    with_peer(|url| hold_until_killed(Family::FAIR, url), |start| process_is_killed(Family::FAIR, start));
}

#[test]
fn a_killed_rust_process_beside_jedis() {
    with_peer(|url| hold_until_killed(Family::JEDIS, url), |start| process_is_killed(Family::JEDIS, start));
}

#[test]
fn a_killed_rust_process_beside_redisson_in_a_sharded_cluster() {
    with_peer(|url| hold_until_killed(Family::SHARDED, url), |start| process_is_killed(Family::SHARDED, start));
}

#[test]
fn a_killed_rust_process_beside_redisson_in_a_plain_cluster() {
    with_peer(|url| hold_until_killed(Family::PLAIN, url), |start| process_is_killed(Family::PLAIN, start));
}

fn hold_until_killed(family: Family, url: &str) {
    let locks = family.locks(&Servers::url_beside(url), LEASE, "");
    locks.lock("n").unwrap();
    tell(url, "held");
    std::thread::park();
}

fn process_is_killed(family: Family, start: &dyn Fn(&Server) -> Peer) {
    let setting = Setting::new(family, Holder::Rust, LEASE);
    let peer = start(&setting.servers.news);
    assert_eq!(hear(&setting.servers.news), "held");
    let waiter = setting.sides().1;
    let (waited, killed) = setting.while_asleep(
        "n",
        || lock_and_unlock(&*waiter),
        || {
            let killed = now();
            // Its drop is a SIGKILL.
            drop(peer);
            killed
        },
    );
    assert_free_within_the_lease(&setting, killed, waited);
}

/// When it was acquired.
fn lock_and_unlock(side: &dyn Side) -> u64 {
    let acquired = side.lock("n").ended;
    side.unlock("n");
    acquired
}

fn assert_free_within_the_lease(setting: &Setting, killed: u64, acquired: u64) {
    assert!(acquired > killed, "it got in before the holder was killed");
    let free = Duration::from_nanos(acquired - killed);
    assert!(free <= LEASE + LATE, "free after {free:?}");
    setting.record("holder killed", &format!("in after {free:.2?}, with a lease of {LEASE:?}"));
}
