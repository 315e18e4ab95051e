//! Redisson's RSemaphore and RPermitExpirableSemaphore, and ours: one number of permits for both programs.

use crate::counters::{Both, Kind, assert_woken, client, done, micros, pass};
use crate::java::Span;
use crate::process::{hear, tell, with_peer};
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, WATCHED};
use crate::sides::{now, spanned};
use crate::threads::{LATE, LONG, finish, ms};
use redlatch::{LeasedSemaphore, Semaphore};
use std::cmp::max;
use std::thread::scope;
use std::time::Duration;

const CHANNEL: &str = "redisson_sc:{n}";
const AT_ONCE: Duration = Duration::ZERO;

on_one_server_and_in_clusters!(each_counts_what_the_other_took each_wakes_the_other never_more_are_out_than_there_are);
on_one_server!(a_name_with_braces_is_the_same_semaphore each_hears_only_of_enough);

/// That so many are left, to both programs.
#[track_caller]
fn assert_left<K: Kind>(both: &Both, ours: &K, left: i64) {
    let java = both.java(K::VERBS).number("available", "n");
    assert_eq!((ours.available("n"), java), (Some(left), left));
}

fn each_counts_what_the_other_took<K: Kind>(family: Family) {
    let both = Both::new(family, FOR_EVER);
    let (ours, java) = (K::new(&both.client), both.java(K::VERBS));
    assert!(ours.try_set("n", 5) && !java.is("trySet", "n", &[9]));
    assert_left(&both, &ours, 5);
    java.ask("acquire", "n", &[2]);
    assert_left(&both, &ours, 3);
    let permits = ours.acquire("n", 2, AT_ONCE).unwrap();
    assert_left(&both, &ours, 1);
    assert!(ours.acquire("n", 2, AT_ONCE).is_none() && !java.is("tryAcquire", "n", &[2, 0]));
    assert!(java.is("tryAcquire", "n", &[1, 0]) && ours.acquire("n", 1, AT_ONCE).is_none());
    permits.release().unwrap();
    assert_left(&both, &ours, 2);
    java.ask("release", "n", &[3]);
    assert_left(&both, &ours, 5);
    both.forget(&["n"]);
    assert!(java.is("trySet", "n", &[3]) && !ours.try_set("n", 9));
    assert_left(&both, &ours, 3);
    both.forget(&["n"]);
    both.record(K::NAME, "both", "each counts what the other took, and sets the number once");
}

fn each_wakes_the_other<K: Kind>(family: Family) {
    let both = Both::new(family, FOR_EVER);
    let (ours, java, other) = (K::new(&both.client), both.java(K::VERBS), both.java_on("other", K::VERBS));
    assert!(ours.try_set("n", 1));
    let permit = ours.acquire("n", 1, AT_ONCE).unwrap();
    let wait = || other.spanned("acquire", "n", &[1]).1;
    let (waited, freed) = both.while_asleep(CHANNEL, wait, || done(|| permit.release().unwrap()));
    let java_woken = assert_woken(waited, freed);
    let free = || other.spanned("release", "n", &[1]).1;
    let (waited, freed) = both.while_asleep(CHANNEL, || pass(&ours, "n", 1), free);
    let ours_woken = assert_woken(waited, freed);
    java.ask("acquire", "n", &[1]);
    java.ask("release", "n", &[1]);
    assert_left(&both, &ours, 1);
    both.forget(&["n"]);
    both.record(K::NAME, "both", &format!("JVM and ours woken after {}", micros([java_woken, ours_woken])));
}

const TOTAL: i64 = 5;
const STREAM: Duration = Duration::from_secs(3);

/// Acquires and releases permits for some time, as the Java program does: how often, and how many were out at most.
fn turns<K: Kind>(both: &Both, ours: &K, permits: u32) -> (u64, i64) {
    let gauge = |by: i64| both.servers.ask::<i64>("gauge", &["INCRBY", "gauge", &by.to_string()]);
    let (end, mut turns, mut most) = (now() + STREAM.as_nanos() as u64, 0, 0);
    while now() < end {
        let held = ours.acquire("n", permits, LONG).expect("its turn");
        most = max(most, gauge(i64::from(permits)));
        std::thread::sleep(ms(1));
        gauge(-i64::from(permits));
        held.release().unwrap();
        turns += 1;
    }
    (turns, most)
}

fn java_turns<K: Kind>(both: &Both, thread: &str, permits: u64) -> (u64, i64) {
    let said = both.java_on(thread, K::VERBS).ask("turns", "n", &[permits, STREAM.as_millis() as u64]);
    let (turns, most) = said.split_once(' ').unwrap();
    (turns.parse().unwrap(), most.parse().unwrap())
}

fn never_more_are_out_than_there_are<K: Kind>(family: Family) {
    let both = Both::new(family, FOR_EVER);
    let ours = K::new(&both.client);
    assert!(ours.try_set("n", TOTAL as u32));
    let (of_rust, of_java): (Vec<_>, Vec<_>) = scope(|scope| {
        let (both, ours) = (&both, &ours);
        let rust = [1, 2, 3].map(|permits| scope.spawn(move || turns(both, ours, permits)));
        let java = [("a", 1), ("b", 2), ("c", 1)];
        let java = java.map(|(thread, permits)| scope.spawn(move || java_turns::<K>(both, thread, permits)));
        (rust.into_iter().map(finish).collect(), java.into_iter().map(finish).collect())
    });
    let most = of_rust.iter().chain(&of_java).map(|(_, most)| *most).max().unwrap();
    assert!(most <= TOTAL, "{most} were out together");
    assert!(most > 2, "nobody had permits beside another: {of_rust:?} {of_java:?}");
    let count = |of: &[(u64, i64)]| of.iter().map(|(turns, _)| turns).sum::<u64>();
    assert!(of_rust.iter().chain(&of_java).all(|(turns, _)| *turns > 0), "one starved: {of_rust:?} {of_java:?}");
    assert_left(&both, &ours, TOTAL);
    both.forget(&["n", "gauge"]);
    let figures = format!("{} turns of a JVM, {} of ours, {most} out at most", count(&of_java), count(&of_rust));
    both.record(&format!("{} of {TOTAL}", K::NAME), "both", &figures);
}

const NAMES: [&str; 7] =
    ["order:42", "{order}:42", "order:{42}", "{order}", "a{b", "with space: \"'*?[x]\\", "schloß/注文/🔒"];

/// The channel of a semaphore, by the rule that the documentation states.
fn channel(name: &str) -> String {
    if name.contains('{') { format!("redisson_sc:{name}") } else { format!("redisson_sc:{{{name}}}") }
}

fn a_name_with_braces_is_the_same_semaphore<K: Kind>(family: Family) {
    let both = Both::new(family, FOR_EVER);
    let (ours, java) = (K::new(&both.client), both.java(K::VERBS));
    for name in NAMES {
        assert!(java.is("trySet", name, &[2]) && ours.available(name) == Some(2), "{name}");
        java.ask("acquire", name, &[2]);
        assert!(ours.acquire(name, 1, AT_ONCE).is_none(), "{name}");
        let free = || java.spanned("release", name, &[2]).1;
        let (waited, freed) = both.while_asleep(&channel(name), || pass(&ours, name, 2), free);
        assert_woken(waited, freed);
        let permits = ours.acquire(name, 1, AT_ONCE).unwrap();
        assert!(!java.is("tryAcquire", name, &[2, 0]) && java.number("available", name) == 1, "{name}");
        let wait = || java.spanned("acquire", name, &[2]).1;
        let (waited, freed) = both.while_asleep(&channel(name), wait, || done(|| permits.release().unwrap()));
        assert_woken(waited, freed);
        java.ask("release", name, &[2]);
    }
    both.record(K::NAME, "both", &format!("{} names with braces, spaces and beyond ASCII", NAMES.len()));
}

/// One that wants three waits on while one after the other comes back.
fn each_hears_only_of_enough<K: Kind>(family: Family) {
    let both = Both::new(family, FOR_EVER);
    let (ours, java, other) = (K::new(&both.client), both.java(K::VERBS), both.java_on("other", K::VERBS));
    assert!(ours.try_set("n", 3));
    java.ask("acquire", "n", &[3]);
    let free_one = || java.spanned("release", "n", &[1]).1;
    let (waited, freed) =
        both.while_asleep(CHANNEL, || pass(&ours, "n", 3), || [free_one(), free_one(), free_one()][2]);
    assert_woken(waited, freed);
    let held = [(); 3].map(|()| ours.acquire("n", 1, AT_ONCE).unwrap());
    let free_all = || held.into_iter().map(|permit| done(|| permit.release().unwrap())).last().unwrap();
    let (waited, freed) = both.while_asleep(CHANNEL, || other.spanned("acquire", "n", &[3]).1, free_all);
    assert_woken(waited, freed);
    other.ask("release", "n", &[3]);
    assert_left(&both, &ours, 3);
}

#[test]
fn added_permits_are_seen_and_wake_the_other_program() {
    let both = Both::new(Family::REDISSON, FOR_EVER);
    let (ours, java, other) =
        (Semaphore::new(&both.client), both.java("semaphore"), both.java_on("other", "semaphore"));
    assert!(ours.try_set_permits("n", 0).unwrap());
    let add = || java.spanned("add", "n", &[2]).1;
    let (waited, added) = both.while_asleep(CHANNEL, || pass(&ours, "n", 2), add);
    assert_woken(waited, added);
    assert_eq!(ours.remove_permits("n", 2).unwrap(), 0);
    let wait = || other.spanned("acquire", "n", &[3]).1;
    let (waited, added) = both.while_asleep(CHANNEL, wait, || done(|| _ = ours.add_permits("n", 3).unwrap()));
    assert_woken(waited, added);
    // Taken away while they are out: so many do not come back into the game.
    assert_eq!(ours.remove_permits("n", 1).unwrap(), -1);
    assert_left(&both, &ours, -1);
    other.ask("release", "n", &[3]);
    assert_left(&both, &ours, 2);
    assert_eq!(java.number("drain", "n"), 2);
    assert_left(&both, &ours, 0);
    java.ask("add", "n", &[4]);
    assert_eq!(ours.drain_permits("n").unwrap(), 4);
    assert_left(&both, &ours, 0);
}

/// Total, out and left, as both programs see them.
#[track_caller]
fn assert_leased(both: &Both, ours: &LeasedSemaphore, [total, out, left]: [i64; 3]) {
    let java = both.java("leased");
    assert_eq!(["total", "out", "available"].map(|verb| java.number(verb, "n")), [total, out, left], "a JVM");
    let seen = (ours.acquired_permits("n").unwrap(), ours.available_permits("n").unwrap());
    assert_eq!(seen, (Some(out), Some(left)));
}

#[test]
fn a_number_that_is_set_anew_is_seen_and_wakes_the_other_program() {
    let both = Both::new(Family::REDISSON, FOR_EVER);
    let (ours, java, other) =
        (LeasedSemaphore::new(&both.client), both.java("leased"), both.java_on("other", "leased"));
    assert!(ours.try_set_permits("n", 1).unwrap());
    let held = ours.try_acquire("n", 1).unwrap().unwrap();
    assert_leased(&both, &ours, [1, 1, 0]);
    let wait = || other.spanned("acquire", "n", &[2]).1;
    let (waited, set) = both.while_asleep(CHANNEL, wait, || done(|| ours.set_permits("n", 3).unwrap()));
    assert_woken(waited, set);
    assert_leased(&both, &ours, [3, 3, 0]);
    let (waited, set) = both.while_asleep(CHANNEL, || pass(&ours, "n", 2), || java.spanned("set", "n", &[5]).1);
    assert_woken(waited, set);
    assert_leased(&both, &ours, [5, 3, 2]);
    java.ask("add", "n", &[2]);
    assert_leased(&both, &ours, [7, 3, 4]);
    // Fewer than are out: what comes back first is not given out again.
    ours.set_permits("n", 2).unwrap();
    assert_leased(&both, &ours, [2, 3, -1]);
    held.release().unwrap();
    assert!(!java.is("tryAcquire", "n", &[1, 0]) && ours.try_acquire("n", 1).unwrap().is_none());
    other.ask("release", "n", &[2]);
    assert_leased(&both, &ours, [2, 0, 2]);
}

/// Redisson says here how many it added, and not how many are left.
#[test]
fn added_permits_with_leases_wake_one_that_wants_more_than_were_added() {
    let both = Both::new(Family::REDISSON, FOR_EVER);
    let (ours, java) = (LeasedSemaphore::new(&both.client), both.java("leased"));
    ours.try_set_permits("n", 1).unwrap();
    let (waited, added) = both.while_asleep(CHANNEL, || pass(&ours, "n", 2), || java.spanned("add", "n", &[1]).1);
    assert_woken(waited, added);
    assert_leased(&both, &ours, [2, 0, 2]);
}

/// Permits that a JVM has for ever have no end that is near.
#[test]
fn permits_of_a_jvm_without_a_lease_stay_out() {
    let both = Both::new(Family::REDISSON, FOR_EVER);
    let (ours, java) = (LeasedSemaphore::new(&both.client), both.java("leased"));
    ours.try_set_permits("n", 2).unwrap();
    java.ask("acquire", "n", &[1]);
    assert!(ours.next_return("n").unwrap().is_some_and(|left| left > FOR_EVER));
    let held = ours.try_acquire("n", 1).unwrap().unwrap();
    assert!(ours.next_return("n").unwrap().is_some_and(|left| left <= FOR_EVER));
    assert!(Kind::acquire(&ours, "n", 1, ms(200)).is_none());
    held.release().unwrap();
    java.ask("release", "n", &[1]);
    assert_left(&both, &ours, 2);
}

/// All permits come back to the program that takes them all, and in Redisson's own keys.
#[test]
fn a_force_release_takes_those_of_a_jvm_back() {
    let both = Both::new(Family::REDISSON, FOR_EVER);
    let (ours, java, other) =
        (LeasedSemaphore::new(&both.client), both.java("leased"), both.java_on("other", "leased"));
    ours.try_set_permits("n", 2).unwrap();
    java.ask("acquire", "n", &[1]);
    let held = ours.try_acquire("n", 1).unwrap().unwrap();
    let wait = || other.spanned("tryAcquire", "n", &[2, 20_000]);
    let act = || done(|| assert!(ours.force_release("n").unwrap()));
    let ((acquired, waited), forced) = both.while_asleep(CHANNEL, wait, act);
    assert_eq!(acquired, "true");
    assert_woken(waited, forced);
    assert!(matches!(held.release(), Err(redlatch::Error::Lost { .. })));
    // Redisson's own exception that says so comes in another.
    assert!(both.jvm.ask("main", &["leased.release", "n", "1"]).0.is_err(), "the JVM gave back what it had lost");
    assert_leased(&both, &ours, [2, 2, 0]);
    other.ask("release", "n", &[2]);
    assert_leased(&both, &ours, [2, 0, 2]);
}

const LEASE: Duration = WATCHED;

#[test]
fn permits_of_a_killed_jvm_come_back() {
    jvm_is_killed(Family::REDISSON);
}

#[test]
fn permits_of_a_killed_jvm_come_back_in_a_sharded_cluster() {
    jvm_is_killed(Family::SHARDED);
}

#[track_caller]
fn assert_back_within_the_lease(both: &Both, killed: u64, waited: Span) {
    assert!(waited.ended > killed, "it was served before");
    let back = Duration::from_nanos(waited.ended - killed);
    assert!(back <= LEASE + LATE, "back after {back:?}");
    both.record("holder of permits killed", "both", &format!("in after {back:.2?}, with a lease of {LEASE:?}"));
}

fn jvm_is_killed(family: Family) {
    let mut both = Both::new(family, LEASE);
    let ours = LeasedSemaphore::new(&both.client);
    ours.try_set_permits("n", 3).unwrap();
    both.java("leased").ask("acquireFor", "n", &[2, LEASE.as_millis() as u64]);
    both.jvm.kill();
    let killed = now();
    let waited = pass(&ours, "n", 3);
    // The lease began before the kill.
    assert_back_within_the_lease(&both, killed, waited);
    assert_eq!((ours.acquired_permits("n").unwrap(), ours.available_permits("n").unwrap()), (Some(0), Some(3)));
    both.forget(&["n"]);
}

#[test]
fn permits_of_a_killed_rust_process_come_back() {
    with_peer(|url| hold_until_killed(Family::REDISSON, url), |start| process_is_killed(Family::REDISSON, start));
}

#[test]
fn permits_of_a_killed_rust_process_come_back_in_a_sharded_cluster() {
    with_peer(|url| hold_until_killed(Family::SHARDED, url), |start| process_is_killed(Family::SHARDED, start));
}

fn hold_until_killed(family: Family, url: &str) {
    let ours = LeasedSemaphore::new(&client(family, &Servers::url_beside(url), LEASE));
    let held = Kind::acquire(&ours, "n", 2, LONG);
    tell(url, "held");
    std::thread::park();
    drop(held);
}

fn process_is_killed(family: Family, start: &dyn Fn(&crate::server::Server) -> crate::process::Peer) {
    let both = Both::new(family, LEASE);
    let (ours, java) = (LeasedSemaphore::new(&both.client), both.java("leased"));
    ours.try_set_permits("n", 3).unwrap();
    let peer = start(&both.servers.news);
    assert_eq!(hear(&both.servers.news), "held");
    let wait = || java.spanned("acquire", "n", &[3]).1;
    // Its drop is a SIGKILL.
    let (waited, killed) = both.while_asleep(CHANNEL, wait, || done(|| drop(peer)));
    assert_back_within_the_lease(&both, killed.began, waited);
    java.ask("release", "n", &[3]);
    assert_left(&both, &ours, 3);
    both.forget(&["n"]);
}

/// The watchdog keeps permits out beside JVMs that return what is over.
#[test]
fn the_watchdog_keeps_permits_from_a_jvm() {
    let both = Both::new(Family::REDISSON, LEASE);
    let (ours, java) = (LeasedSemaphore::new(&both.client), both.java("leased"));
    ours.try_set_permits("n", 2).unwrap();
    let held = ours.try_acquire("n", 1).unwrap().unwrap();
    let (acquired, _) = spanned(|| java.is("tryAcquire", "n", &[2, 2 * LEASE.as_millis() as u64]));
    assert!(!acquired && held.hold().unwrap().is_valid(), "a JVM took permits that are renewed");
    held.release().unwrap();
    assert!(java.is("tryAcquire", "n", &[2, 0]));
    java.ask("release", "n", &[2]);
    assert_left(&both, &ours, 2);
}
