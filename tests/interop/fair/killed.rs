//! Who dies while it waits or holds, beside threads of both programs.

use super::{TICKETS, assert_nothing_is_left, pass, queue, queued, thread};
use crate::java::Lent;
use crate::process::{Peer, with_peer};
use crate::server::Server;
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, Holder, SentHome, Setting, WATCHED, quiet};
use crate::sides::{Java, Rust, Side, now};
use crate::threads::{LATE, LONG, SOON, eventually, finish, ms};
use redlatch::{Client, FairLock, RedLock};
use std::sync::Mutex;
use std::thread::scope;
use std::time::Duration;

const LEASE: Duration = WATCHED;

/// For how long a process that is dead may have the lock, if nobody can tell that it is.
const OFFER: Duration = Duration::from_millis(1_500);

#[track_caller]
fn one_is_queued(setting: &Setting) {
    eventually(LONG, "it is queued", || queue(&setting.servers, "n").len() == 1);
    quiet(&setting.servers);
}

#[test]
fn a_killed_jvm_costs_its_wait() {
    jvm_is_killed(Family::FAIR);
}

#[test]
fn a_killed_jvm_in_a_sharded_cluster_costs_its_wait() {
    jvm_is_killed(Family::FAIR_SHARDED);
}

#[test]
fn a_killed_jvm_in_a_plain_cluster_costs_its_wait() {
    jvm_is_killed(Family::FAIR_PLAIN);
}

/// Redisson adds the rest of the lease that it meets when it queues.
fn jvm_is_killed(family: Family) {
    let mut setting = Setting::new(family, Holder::Rust, LEASE);
    let (wait, joined) = (ms(2_000), now());
    setting.locks.lock("n").unwrap();
    let _never = setting.jvm.begin("main", &["fair.tryLock", "n", &wait.as_millis().to_string()]);
    one_is_queued(&setting);
    setting.jvm.kill();
    let other = Rust(family.locks(&setting.servers.url(), LEASE, ""));
    let waited = scope(|scope| {
        let _home = SentHome(&other.0);
        let waiter = queued(scope, &setting, || pass(&other));
        setting.locks.unlock("n").unwrap();
        finish(waiter)
    });
    let cost = Duration::from_nanos(waited.ended - joined);
    assert!(cost >= wait, "it came before the JVM's wait was over: after {cost:?}");
    assert!(cost <= wait + LEASE + SOON, "it came after {cost:?}");
    assert_nothing_is_left(&setting);
    setting.record(
        "a JVM killed that waits",
        &format!("the next in after {cost:.2?}, with a wait of {wait:?} and a lease of {LEASE:?}"),
    );
}

#[test]
fn a_killed_rust_process_costs_an_offer() {
    with_peer(|url| wait_until_killed(Family::FAIR, url), |start| processes_are_killed(Family::FAIR, start));
}

#[test]
fn a_killed_rust_process_in_a_sharded_cluster_costs_an_offer() {
    let family = Family::FAIR_SHARDED;
    with_peer(|url| wait_until_killed(family, url), |start| processes_are_killed(family, start));
}

#[test]
fn a_killed_rust_process_in_a_plain_cluster_costs_an_offer() {
    let family = Family::FAIR_PLAIN;
    with_peer(|url| wait_until_killed(family, url), |start| processes_are_killed(family, start));
}

fn wait_until_killed(family: Family, url: &str) {
    let _ = family.locks(&Servers::url_beside(url), FOR_EVER, "").lock("n");
}

/// The other program waits behind it. By channels of all nodes nobody sees that a process is dead, so it is given the lock for an offer; a
/// JVM behind it comes when the lease ends that it was told last.
fn processes_are_killed(family: Family, start: &dyn Fn(&Server) -> Peer) {
    let (lease, offers) = if family == Family::FAIR_PLAIN { (LEASE, 2) } else { (FOR_EVER, 1) };
    for holder in [Holder::Java, Holder::Rust] {
        let setting = Setting::new(family, holder, lease);
        let (first, other) = setting.sides();
        first.lock("n");
        let peer = start(&setting.servers.news);
        one_is_queued(&setting);
        let (waited, freed) = scope(|scope| {
            let _home = SentHome(&setting.locks);
            let waiter = queued(scope, &setting, || pass(&*other));
            // Its drop is a SIGKILL.
            drop(peer);
            let freed = first.unlock("n");
            (finish(waiter), freed)
        });
        let cost = waited.after(freed);
        assert!(cost <= offers * OFFER + SOON, "{holder:?} holds: it came after {cost:?}");
        assert_nothing_is_left(&setting);
        setting.record("a Rust process killed that waits", &format!("the next in after {cost:.2?}"));
    }
}

const LOOKS: Duration = Duration::from_millis(500);

/// Redisson sees the end of its place alone, which is three poll caps after its last look.
#[test]
fn a_killed_rust_process_between_jvms_costs_three_poll_caps() {
    let waits = |url: &str| _ = FairLock::new(&Client::builder(url).poll_cap(LOOKS).build().unwrap()).lock("n");
    with_peer(waits, process_is_killed_between_jvms);
}

fn process_is_killed_between_jvms(start: &dyn Fn(&Server) -> Peer) {
    let setting = Setting::new(Family::FAIR, Holder::Java, LEASE);
    let (first, other) = (thread(&setting, Holder::Java, "first"), thread(&setting, Holder::Java, "other"));
    first.lock("n");
    let peer = start(&setting.servers.news);
    one_is_queued(&setting);
    let (waited, killed) = scope(|scope| {
        let waiter = queued(scope, &setting, || pass(&*other));
        let killed = now();
        drop(peer);
        first.unlock("n");
        (finish(waiter), killed)
    });
    let cost = Duration::from_nanos(waited.ended - killed);
    assert!(cost <= 3 * LOOKS + LEASE + SOON, "it came after {cost:?}");
    // Its ticket, which Redisson does not know, ends a day after its place.
    let left = setting.servers.pttl(TICKETS);
    assert!(left > 0 && left <= 86_400_000 + (3 * LOOKS).as_millis() as i64, "{left}");
    setting.servers.ask::<i64>("n", &["DEL", TICKETS]);
    assert_nothing_is_left(&setting);
    setting.record(
        "a Rust process killed between JVMs",
        &format!("the next in after {cost:.2?}, with a poll cap of {LOOKS:?}"),
    );
}

#[test]
fn those_behind_a_killed_jvm_come_in_their_order() {
    holder_is_killed(Family::FAIR);
}

#[test]
fn those_behind_a_killed_jvm_in_a_sharded_cluster_come_in_their_order() {
    holder_is_killed(Family::FAIR_SHARDED);
}

#[test]
fn those_behind_a_killed_jvm_in_a_plain_cluster_come_in_their_order() {
    holder_is_killed(Family::FAIR_PLAIN);
}

/// Either program is the first once.
fn holder_is_killed(family: Family) {
    for programs in [[Holder::Java, Holder::Rust], [Holder::Rust, Holder::Java]] {
        let setting = Setting::new(family, programs[0], LEASE);
        let mut dying = Lent::of(family.program, &setting.servers, LEASE, "");
        Java(&dying, "main", "fair.").lock("n");
        let came = Mutex::new(Vec::new());
        let killed = scope(|scope| {
            let _home = SentHome(&setting.locks);
            let waiters: Vec<_> = (0..4)
                .map(|number| {
                    let (setting, came) = (&setting, &came);
                    queued(scope, setting, move || {
                        let (name, program) = (number.to_string(), programs[number % 2]);
                        let side = thread(setting, program, &name);
                        let span = side.lock("n");
                        came.lock().unwrap().push((number, span.ended));
                        side.unlock("n");
                    })
                })
                .collect();
            let killed = now();
            dying.kill();
            waiters.into_iter().for_each(finish);
            killed
        });
        let came = came.into_inner().unwrap();
        assert_eq!(came.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3], "{programs:?}");
        let after = [0, 3].map(|number| Duration::from_nanos(came[number].1.saturating_sub(killed)));
        assert!(after[0] <= LEASE + LATE && after[1] <= LEASE + SOON, "{programs:?}: {after:?}");
        assert_nothing_is_left(&setting);
        let [first, last] = after;
        setting.record(
            "holder killed, four wait",
            &format!(
                "{:?} first, in after {first:.2?}, the last after {last:.2?}, with a lease of {LEASE:?}",
                programs[0]
            ),
        );
    }
}
