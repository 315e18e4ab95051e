//! Rows 109 to 114: what a managed service refuses, or does not know, costs a feature and never a lock.

use crate::locks_of;
use crate::process::alone;
use crate::proxy::{Flow, Proxy, pass};
use crate::server::Server;
use crate::threads::{LONG, SOON, WATCHED, answered, eventually, finish, ms, spawn_asleep, timed};
use crate::warnings::{self, Warnings};
use harness::proxy::Step;
use redlatch::{Client, ClientBuilder, Error, MultiLock, RedLock, RedLockExt, ReentrantLock};

/// How a service keeps a command from its users.
#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    /// Nobody finds it.
    Unknown,
    /// This user may not use it.
    Refused,
}

/// A server without some commands, and where to log in.
fn service(how: How, commands: &'static [&'static str]) -> (Server, String) {
    let server = if how == How::Unknown { Server::start_without(commands) } else { Server::start() };
    let refused: Vec<_> = commands.iter().map(|command| format!("-{}", command.to_lowercase())).collect();
    let rules = if how == How::Unknown { String::new() } else { refused.join(" ") };
    let url = server.let_in("app", "secret", &format!("~* &* +@all {rules}"));
    (server, url)
}

/// Of each of those who take a lock from each other.
const TURNS: usize = 20;

fn clients(url: &str, set: fn(ClientBuilder) -> ClientBuilder) -> [ReentrantLock; 3] {
    [(); 3].map(|()| locks_of(set(Client::builder(url).watchdog_timeout(WATCHED).poll_cap(ms(300)))))
}

/// Every call on locks works, and whoever waits is served.
fn use_all(all: &[ReentrantLock; 3]) {
    let [locks, other, _] = all;
    locks.client().ping(SOON).unwrap();
    let guard = locks.guard("n").unwrap();
    assert!(locks.try_lock("n").unwrap() && locks.verify(&guard).unwrap() && other.is_locked("n").unwrap());
    locks.unlock("n").unwrap();
    guard.extend(WATCHED).unwrap();
    assert!(other.remaining_time_to_live("n").unwrap().is_some());
    assert!(!answered(|| other.try_lock_for("n", ms(50))).0);
    wake(guard, other);
    let renewed = locks.guard("renewed").unwrap();
    let before = locks.client().stats().renewals;
    eventually(LONG, "it is renewed", || locks.client().stats().renewals > before);
    renewed.unlock().unwrap();
    locks.lock_with_lease("forced", WATCHED).unwrap();
    assert!(other.force_unlock("forced").unwrap());
    assert_err!(locks.unlock("forced"), Lost);
    MultiLock::of([(locks, "a"), (other, "b")]).guard().unwrap().unlock().unwrap();
    take_turns(all);
}

/// All take a lock from each other again and again, for long enough to queue.
fn take_turns(all: &[ReentrantLock; 3]) {
    let turns = |locks: &ReentrantLock| {
        for _ in 0..TURNS {
            let guard = locks.guard("crowd").unwrap();
            std::thread::sleep(ms(5));
            guard.unlock().unwrap();
        }
    };
    std::thread::scope(|scope| all.iter().for_each(|locks| drop(scope.spawn(move || turns(locks)))));
}

/// Whoever waits gets it when it is given back.
fn wake(guard: redlatch::LockGuard<'_, ReentrantLock>, other: &ReentrantLock) {
    let name = guard.resource().to_owned();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || other.lock(&name).and_then(|()| other.unlock(&name)));
        guard.unlock().unwrap();
        finish(waiter).0.unwrap();
    });
}

/// Several names are waited for, one after the other.
fn wait_for_several([locks, other, _]: &[ReentrantLock; 3]) {
    (0..4).for_each(|number| wake(locks.guard(&format!("n{number}")).unwrap(), other));
}

/// What is logged while all calls are made by three clients, in both ways in which a command may be missing: these lines, and
/// perhaps those, once a client at most, however many names it locks. For a process of its own.
fn assert_said(command: &'static [&'static str], lines: &[&str], perhaps: &[&str]) {
    let said = warnings::that_say("");
    for how in [How::Unknown, How::Refused] {
        let (_server, url) = service(how, command);
        let clients = clients(&url, |builder| builder);
        use_all(&clients);
        wait_for_several(&clients);
        drop(clients);
        let logged = taken(said);
        let count = |words: &str| logged.iter().filter(|line| line.contains(words)).count();
        // To those who may not the self-test says so, beside what it costs.
        let known = [lines, perhaps, &["may not do all that locks need"]].concat();
        assert!(known.iter().all(|words| count(words) <= 3), "{how:?}: {logged:#?}");
        assert!(lines.iter().all(|words| count(words) > 0), "{how:?}: {logged:#?}");
        assert_eq!(known.iter().map(|words| count(words)).sum::<usize>(), logged.len(), "{how:?}: {logged:#?}");
    }
}

/// What was logged since, but for the hold that was lost on purpose.
fn taken(said: &Warnings) -> Vec<String> {
    let lines = std::mem::take(&mut *said.seen.lock().unwrap());
    lines.into_iter().filter(|line| !line.contains("lock \"forced\"")).collect()
}

#[test]
fn fault_109_without_config_nothing_is_missing_and_nothing_is_said() {
    alone(|| assert_said(&["CONFIG"], &[], &[]));
}

/// That a client with this setting is refused its first call at once, by a text with this word, and any other client is not.
fn assert_told(how: How, command: &'static [&'static str], set: fn(ClientBuilder) -> ClientBuilder) {
    let (_server, url) = service(how, command);
    let locks = locks_of(set(Client::builder(&url)));
    let (result, took) = timed(|| locks.lock("n"));
    assert_refused(&result.unwrap_err(), how, command[0]);
    assert!(took <= SOON, "{took:?}");
    drop(locks);
    use_all(&clients(&url, |builder| builder));
}

fn assert_refused(error: &Error, how: How, command: &str) {
    let expected = if how == How::Unknown { "ERR" } else { "NOPERM" };
    assert!(matches!(error, Error::Refused { code, .. } if code == expected), "{how:?}: {error:?}");
    let text = error.to_string().to_lowercase();
    assert!(text.contains(&command.to_lowercase()), "{how:?}: {error}");
    assert!(how == How::Unknown || error.to_string().contains(&format!("ACL SETUSER app +{}", command.to_lowercase())));
}

#[test]
fn fault_110_without_info_strict_clients_are_told_at_once() {
    for how in [How::Unknown, How::Refused] {
        assert_told(how, &["INFO"], |builder| builder.strict(true));
    }
}

#[test]
fn fault_110_without_info_nothing_is_said() {
    alone(|| assert_said(&["INFO"], &[], &[]));
}

/// It would not notice that the server was started anew.
#[test]
fn fault_110_a_server_that_does_not_name_its_process_is_told_to_strict_clients_alone() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    proxy.set(|_, flow, data| match flow {
        Flow::Reply => vec![Step::Send(without_run_id(data))],
        Flow::Request => pass(data),
    });
    let locks = locks_of(Client::builder(&proxy.url()).strict(true));
    let (result, took) = timed(|| locks.lock("n"));
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "ERR"), "{error:?}");
    assert!(error.to_string().contains("INFO server gives no run_id") && took <= SOON, "{error} after {took:?}");
    drop(locks);
    use_all(&clients(&proxy.url(), |builder| builder));
}

fn without_run_id(data: &[u8]) -> Vec<u8> {
    let at = data.windows(7).position(|window| window == b"run_id:");
    let mut data = data.to_vec();
    at.into_iter().for_each(|at| data[at..at + 3].copy_from_slice(b"xxx"));
    data
}

#[test]
fn fault_111_without_wait_those_who_want_replicas_are_told_at_once() {
    for how in [How::Unknown, How::Refused] {
        assert_told(how, &["WAIT"], |builder| builder.sync_replicas(1, ms(100)));
    }
}

#[test]
fn fault_111_without_wait_nothing_is_said() {
    alone(|| assert_said(&["WAIT"], &[], &[]));
}

/// The self-test says it of who may not: that is one line, too.
#[test]
fn fault_112_without_client_a_name_that_is_not_shown_is_said_once() {
    alone(|| {
        let said = warnings::that_say("");
        for (how, words) in
            [(How::Unknown, "gives this client no name"), (How::Refused, "ACL SETUSER app +client|setname")]
        {
            let (_server, url) = service(how, &["CLIENT"]);
            use_all(&clients(&url, |builder| builder));
            assert_eq!(taken(said), [""; 0], "nobody asked for a name");
            let named = clients(&url, |builder| builder.app_name("a"));
            use_all(&named);
            drop(named);
            let lines = taken(said);
            assert!(lines.len() == 3 && lines.iter().all(|line| line.contains(words)), "{lines:#?}");
        }
    });
}

#[test]
fn fault_113_without_pubsub_the_order_is_missing_and_that_is_said_once() {
    alone(|| assert_said(&["PUBSUB"], &["the server refuses the queue"], &[]));
}

#[test]
fn fault_114_without_subscribe_waiters_poll_and_that_is_said_once() {
    alone(|| assert_said(&["SUBSCRIBE"], &["its waiters poll instead", "this client waits out of turn"], &[]));
}

#[test]
fn fault_114_without_publish_waiters_poll_and_that_is_said_once() {
    alone(|| assert_said(&["PUBLISH"], &["the server refuses to publish"], &["the server refuses the queue"]));
}
