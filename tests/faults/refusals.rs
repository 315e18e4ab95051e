//! Rows 8 to 10, 13 and 18: servers that answer, but do not do what they are asked.

use crate::proxy::{Flow, Proxy, Step, pass};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, eventually, finish, ms, patiently, spawn_asleep, timed};
use crate::{LEASE, assert_given_up, assert_refused, assert_told, hasty};
use redlatch::{Applied, Client, Error, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn set(server: &Server, setting: &str, value: &str) {
    server.ask::<String>(&["CONFIG", "SET", setting, value]);
}

#[test]
fn fault_08_without_memory_a_lock_is_refused_and_a_hold_can_be_released() {
    let server = Server::start();
    let locks = hasty(&server);
    let guard = patiently(|| locks.guard("n"));
    set(&server, "maxmemory", "1");
    assert_given_up(timed(|| locks.lock("m")));
    assert_told("OOM", || locks.try_lock("m"));
    guard.unlock().unwrap();
    assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0);
    set(&server, "maxmemory", "0");
}

#[test]
fn fault_08_without_memory_an_inner_level_is_refused_and_every_level_can_be_released() {
    let server = Server::start();
    let locks = hasty(&server);
    patiently(|| locks.lock("n"));
    patiently(|| locks.lock("n"));
    let hold = locks.hold("n").unwrap();
    set(&server, "maxmemory", "1");
    assert_told("OOM", || locks.try_lock("n"));
    assert_eq!((hold.count(), server.owner("n").1), (2, 2));
    assert!(hold.is_valid());
    locks.unlock("n").unwrap();
    assert_eq!((hold.count(), server.owner("n").1), (1, 2), "its mirror cannot be written");
    locks.unlock("n").unwrap();
    assert_eq!(server.pttl("n"), -2);
    set(&server, "maxmemory", "0");
}

/// A way to have every write refused, renewals and releases too.
struct Refusal {
    code: &'static str,
    /// The first version that refuses the writes of scripts as well.
    since: (u32, u32),
    begin: fn(&Server),
    end: fn(&Server),
}

impl Refusal {
    /// A server that can refuse in this way.
    fn server(&self) -> Option<Server> {
        let server = Server::start();
        let cannot = server.cannot_before(self.since, &format!("its scripts are not refused with {}", self.code));
        (!cannot).then_some(server)
    }
}

/// A snapshot to disk failed.
const MISCONF: Refusal = Refusal {
    code: "MISCONF",
    since: (6, 0),
    begin: |server| {
        set(server, "save", "3600 1");
        std::fs::create_dir(snapshot(server)).unwrap();
        server.ask::<String>(&["BGSAVE"]);
        let failed = || server.ask::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err");
        eventually(LONG, "the snapshot failed", failed);
    },
    end: |server| {
        std::fs::remove_dir(snapshot(server)).unwrap();
        server.ask::<String>(&["SAVE"]);
    },
};

fn snapshot(server: &Server) -> PathBuf {
    let (_, folder): (String, String) = server.ask(&["CONFIG", "GET", "dir"]);
    Path::new(&folder).join("dump.rdb")
}

/// Fewer replicas than the server is told to insist on.
const NOREPLICAS: Refusal = Refusal {
    code: "NOREPLICAS",
    since: (6, 2),
    begin: |server| set(server, "min-replicas-to-write", "1"),
    end: |server| set(server, "min-replicas-to-write", "0"),
};

fn assert_acquire_is_refused_until_it_passes(refusal: &Refusal) {
    let Some(server) = refusal.server() else { return };
    let (locks, patient) = (hasty(&server), server.locks());
    (refusal.begin)(&server);
    assert_given_up(timed(|| locks.lock("n")));
    assert_told(refusal.code, || locks.try_lock("n"));
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || patient.try_lock_for("n", LONG).unwrap() && patient.unlock("n").is_ok());
        assert!(!waiter.is_finished());
        (refusal.end)(&server);
        let passed = Mark::now();
        let (got, when) = finish(waiter);
        assert!(got && when - passed <= SOON, "served {:?} after it passed", when - passed);
    });
}

fn assert_hold_turns_suspect_and_lost(refusal: &Refusal) {
    let Some(server) = refusal.server() else { return };
    let locks = hasty(&server);
    let guard = patiently(|| locks.guard("n"));
    (refusal.begin)(&server);
    let begun = Mark::now();
    eventually(LONG, "it is suspect", || guard.state() == HoldState::Suspect);
    assert!(guard.is_valid());
    assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    assert!(begun.elapsed() <= LEASE + LATE, "lost after {:?}", begun.elapsed());
    assert!(!guard.is_valid());
    assert_err!(guard.unlock(), Lost);
    eventually(LONG, "the key ends with its lease", || server.pttl("n") == -2);
    (refusal.end)(&server);
    drop(patiently(|| locks.guard("n")));
}

fn assert_hold_goes_on_when_it_passes(refusal: &Refusal) {
    let Some(server) = refusal.server() else { return };
    let locks = server.locks_watched(Duration::from_secs(6));
    let guard = locks.guard("n").unwrap();
    (refusal.begin)(&server);
    eventually(LONG, "it is suspect", || guard.state() == HoldState::Suspect);
    (refusal.end)(&server);
    eventually(LONG, "it is held again", || guard.state() == HoldState::Held);
    guard.unlock().unwrap();
}

fn assert_refused_release_ends_the_hold(refusal: &Refusal) {
    let Some(server) = refusal.server() else { return };
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    let hold = guard.hold().clone();
    (refusal.begin)(&server);
    assert_refused(guard.unlock(), refusal.code);
    assert!(!hold.is_valid());
    assert_eq!((hold.count(), locks.hold_count("n")), (0, 0));
    assert!(server.pttl("n") > 0, "it is still on the server");
    (refusal.end)(&server);
    eventually(LONG, "it is released in the background", || !locks.is_locked("n").unwrap());
}

fn assert_refused_release_leaves_the_key_to_its_lease(refusal: &Refusal) {
    let Some(server) = refusal.server() else { return };
    let locks = server.locks();
    let guard = locks.request("n").lease(ms(700)).guard().unwrap().unwrap();
    let taken = Mark::now();
    (refusal.begin)(&server);
    assert!(guard.unlock().is_err());
    eventually(LONG, "the key ends with its lease", || server.pttl("n") == -2);
    assert!(taken.elapsed() <= ms(700) + SOON, "gone after {:?}", taken.elapsed());
    (refusal.end)(&server);
}

#[test]
fn fault_09_an_acquire_is_refused_until_a_snapshot_succeeds() {
    assert_acquire_is_refused_until_it_passes(&MISCONF);
}

#[test]
fn fault_09_a_hold_turns_suspect_and_lost_after_a_failed_snapshot() {
    assert_hold_turns_suspect_and_lost(&MISCONF);
}

#[test]
fn fault_09_a_hold_goes_on_when_a_snapshot_succeeds_in_time() {
    assert_hold_goes_on_when_it_passes(&MISCONF);
}

#[test]
fn fault_09_a_release_that_is_refused_ends_the_hold_all_the_same() {
    assert_refused_release_ends_the_hold(&MISCONF);
}

#[test]
fn fault_09_what_could_not_be_released_ends_with_its_lease() {
    assert_refused_release_leaves_the_key_to_its_lease(&MISCONF);
}

#[test]
fn fault_10_an_acquire_is_refused_until_there_are_replicas() {
    assert_acquire_is_refused_until_it_passes(&NOREPLICAS);
}

#[test]
fn fault_10_a_hold_turns_suspect_and_lost_without_replicas() {
    assert_hold_turns_suspect_and_lost(&NOREPLICAS);
}

#[test]
fn fault_10_a_hold_goes_on_when_replicas_are_back_in_time() {
    assert_hold_goes_on_when_it_passes(&NOREPLICAS);
}

#[test]
fn fault_10_a_release_that_is_refused_ends_the_hold_all_the_same() {
    assert_refused_release_ends_the_hold(&NOREPLICAS);
}

#[test]
fn fault_10_what_could_not_be_released_ends_with_its_lease() {
    assert_refused_release_leaves_the_key_to_its_lease(&NOREPLICAS);
}

#[test]
fn fault_10_work_is_done_though_its_release_is_refused() {
    let Some(server) = NOREPLICAS.server() else { return };
    let locks = server.locks();
    let value = locks.execute_in_lock("n", || {
        (NOREPLICAS.begin)(&server);
        42
    });
    assert_eq!(value.unwrap(), 42);
    (NOREPLICAS.end)(&server);
    eventually(LONG, "it is released in the background", || !locks.is_locked("n").unwrap());
}

/// Ends the script that the server runs, also for a test that fails.
struct EndScript<'s>(&'s Server);

impl Drop for EndScript<'_> {
    fn drop(&mut self) {
        let _ = self.0.try_ask::<String>(&["SCRIPT", "KILL"]);
    }
}

/// Runs `act` while a script runs for ever and the server says so, and ends the script.
fn while_busy(server: &Server, act: impl FnOnce()) {
    set(server, "lua-time-limit", "100");
    std::thread::scope(|scope| {
        let end = EndScript(server);
        let mut connection = server.connection();
        scope.spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection).unwrap_err());
        let busy = || server.try_ask::<String>(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"));
        eventually(LONG, "the server is busy", busy);
        act();
        drop(end);
    });
}

#[test]
fn fault_13_a_busy_server_is_ridden_out() {
    let server = Server::start();
    let locks = server.locks_watched(Duration::from_secs(15));
    let guard = locks.guard("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = std::cell::Cell::new(None);
        while_busy(&server, || {
            assert_told("BUSY", || locks.try_lock("m"));
            waiter.set(Some(spawn_asleep(scope, || locks.lock("m").is_ok() && locks.unlock("m").is_ok())));
            eventually(LONG, "it is suspect", || guard.state() == HoldState::Suspect);
        });
        let killed = Mark::now();
        let (got, when) = finish(waiter.take().unwrap());
        assert!(got && when - killed <= SOON, "served late");
    });
    eventually(LONG, "it is held again", || guard.state() == HoldState::Held);
    guard.unlock().unwrap();
}

#[test]
fn fault_13_a_wait_for_a_busy_server_is_bounded_and_a_hold_is_lost_in_time() {
    let server = Server::start();
    let locks = hasty(&server);
    let guard = patiently(|| locks.guard("n"));
    while_busy(&server, || {
        assert_given_up(timed(|| locks.lock("m")));
        assert_told("BUSY", || locks.try_lock("m"));
        let (result, took) = timed(|| locks.try_lock_for("m", ms(300)));
        assert!(result.as_ref().is_err_and(Error::is_retryable), "{result:?}");
        assert!(took <= ms(300) + LATE, "took {took:?}");
        assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    });
    assert_err!(guard.unlock(), Lost);
}

/// Closes every connection but the administrator's, so that each client needs a new one.
fn disconnect_all(server: &Server) {
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
}

fn works(locks: &ReentrantLock) -> bool {
    locks.lock("m").is_ok() && locks.unlock("m").is_ok()
}

/// A server that is full closes a new connection. Mostly that is all that is seen of it, because what it says first
/// is gone with the reset.
#[test]
fn fault_18_a_full_server_is_asked_again_until_it_has_room() {
    let server = Server::start();
    let locks = server.locks_watched(Duration::from_secs(6));
    let hasty = hasty(&server);
    let guard = locks.guard("n").unwrap();
    set(&server, "maxclients", "1");
    disconnect_all(&server);
    let (result, took) = timed(|| hasty.lock("m"));
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. } | Error::Refused { .. }), "{error:?}");
    assert!(error.is_retryable() && error.applied() == Applied::No, "{error:?}");
    assert!(took >= ms(400) && took <= ms(500) + SOON, "took {took:?}");
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || works(&locks));
        assert!(!waiter.is_finished());
        set(&server, "maxclients", "100");
        assert!(finish(waiter).0);
    });
    eventually(LONG, "it is held", || guard.state() == HoldState::Held);
    guard.unlock().unwrap();
}

/// That a call is told what the server says to each new connection before it closes it.
fn assert_passed_on(farewell: &'static str, retryable: bool) {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let client = Client::builder(&proxy.url()).response_timeout(ms(300)).build().unwrap();
    let locks = ReentrantLock::new(&client);
    proxy.set(move |_, flow, data| match flow {
        Flow::Request => pass(data),
        Flow::Reply => vec![Step::Send(format!("-{farewell}\r\n").into()), Step::Cut],
    });
    eventually(LONG, farewell, || {
        let error = locks.try_lock("n").unwrap_err();
        assert_eq!(error.applied(), Applied::No, "{error:?}");
        error.to_string().contains(farewell.split_once(' ').unwrap().1) && error.is_retryable() == retryable
    });
}

#[test]
fn fault_18_what_a_server_says_before_it_closes_a_connection_is_told() {
    assert_passed_on("ERR max number of clients reached", true);
    assert_passed_on("DENIED Redis is running in protected mode", false);
}

#[test]
fn fault_18_a_connection_that_the_server_closed_when_idle_is_not_noticed() {
    let server = Server::start();
    let locks = server.locks();
    assert!(works(&locks));
    set(&server, "timeout", "1");
    let mine = || server.ask::<String>(&["CLIENT", "LIST"]).lines().count() > 1;
    eventually(LONG, "the idle connection is closed", || !mine());
    assert!(works(&locks));
    assert_eq!(locks.client().stats().reconnects, 1);
}

/// The connections there are stay; a new one is refused, and a refusal of that kind does not pass.
#[test]
fn fault_18_a_password_set_at_run_time_refuses_only_new_connections() {
    let server = Server::start();
    let locks = server.locks_watched(LEASE);
    let guard = locks.guard("n").unwrap();
    let before = locks.client().stats().renewals;
    eventually(LONG, "both kinds of connections are there", || locks.client().stats().renewals > before);
    set(&server, "requirepass", "secret");
    let before = locks.client().stats().renewals;
    eventually(LONG, "it is renewed", || locks.client().stats().renewals > before);
    assert!(works(&locks));
    disconnect_all(&server);
    let (result, took) = timed(|| (locks.lock("m"), locks.lock("m")));
    assert!(matches!(&result.0, Err(Error::Refused { code, .. }) if code == "NOAUTH"), "{result:?}");
    assert!(!assert_refused(result.1, "NOAUTH").is_retryable());
    assert!(took <= SOON, "took {took:?}");
    assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    assert_err!(guard.unlock(), Lost);
    eventually(LONG, "the key ends with its lease", || server.pttl("n") == -2);
    set(&server, "requirepass", "");
    assert!(works(&locks));
}

/// Names and scripts are far below the smallest limit, and the client's address is local.
#[test]
fn fault_18_protected_mode_and_small_bulk_strings_change_nothing() {
    let server = Server::start_on_tcp();
    let locks = ReentrantLock::connect(&server.tcp_url()).unwrap();
    assert!(works(&locks));
    set(&server, "protected-mode", "yes");
    set(&server, "proto-max-bulk-len", "1048576");
    server.ask::<String>(&["SCRIPT", "FLUSH"]);
    disconnect_all(&server);
    assert!(works(&locks));
    let name = "x".repeat(1_024);
    drop(locks.guard(&name).unwrap());
}
