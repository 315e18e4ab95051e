//! Faults on the way of the commands that take and release a group.

use crate::proxy::{Flow, Gate, Proxy, Step, cut_after, pass, runs};
use crate::server::Server;
use crate::threads::{LATE, LONG, eventually, ms, timed};
use redlatch::{Client, Error, MultiLock, RedLock, ReentrantLock};
use std::time::Duration;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The locks of a client behind the proxy, once the server knows the scripts.
fn locks(proxy: &Proxy) -> ReentrantLock {
    let client = Client::builder(&proxy.url()).response_timeout(ms(500)).outage_budget(ms(1_000)).build().unwrap();
    let locks = ReentrantLock::new(&client);
    group(&locks).guard().unwrap().unlock().unwrap();
    locks
}

fn group(locks: &ReentrantLock) -> MultiLock<'_> {
    NAMES.into_iter().map(|name| (locks, name)).collect()
}

fn keys(server: &Server) -> Vec<String> {
    server.ask(&["KEYS", "*"])
}

#[track_caller]
fn assert_swept(server: &Server) {
    eventually(LONG, "what may have been applied is swept", || keys(server).is_empty());
}

/// What happens to a command that is hit.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The server gets only so many bytes of it.
    Request(usize),
    /// The server executes it, and the caller gets only so many bytes of the answer.
    Reply(usize),
    /// The server executes it twice.
    Twice,
}

const FAULTS: [Fault; 6] =
    [Fault::Request(0), Fault::Request(1), Fault::Request(150), Fault::Reply(0), Fault::Reply(2), Fault::Twice];

/// Hits the first so many commands that run the script.
fn hit(proxy: &Proxy, script: &str, fault: Fault, mut times: usize) {
    let wanted = runs(script);
    let mut answering = None;
    proxy.set(move |connection, flow, data| {
        let wanted = wanted(flow, data);
        if wanted && times > 0 {
            times -= 1;
            return match fault {
                Fault::Request(bytes) => cut_after(bytes, data),
                Fault::Reply(_) => {
                    answering = Some(connection);
                    pass(data)
                }
                Fault::Twice => vec![Step::Copy(data.to_vec()), Step::Send(data.to_vec())],
            };
        }
        match fault {
            Fault::Reply(bytes) if flow == Flow::Reply && answering == Some(connection) => {
                answering = None;
                cut_after(bytes, data)
            }
            _ => pass(data),
        }
    });
}

#[test]
fn an_acquire_that_is_broken_once_is_repeated() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    let group = group(&locks);
    for fault in FAULTS {
        hit(&proxy, "acquire_group", fault, 1);
        // With no time at all a machine that is late would end it unknown.
        let guard = group.request().wait(LONG).guard().unwrap().expect("the same attempt is repeated");
        for hold in guard.holds() {
            assert!(hold.is_valid());
            assert_eq!(server.owner(hold.resource()), (hold.owner().to_owned(), 1), "{fault:?}");
        }
        guard.unlock().unwrap();
        assert!(keys(&server).is_empty(), "{fault:?}");
        assert!(group.try_lock().unwrap(), "{fault:?}");
        group.unlock().unwrap();
    }
}

#[test]
fn an_acquire_that_is_never_answered_leaves_nothing_and_is_not_believed() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    let group = group(&locks);
    for fault in [Fault::Request(150), Fault::Reply(0)] {
        hit(&proxy, "acquire_group", fault, usize::MAX);
        assert_err!(group.try_lock(), OutcomeUnknown);
        assert_eq!((group.hold_count(), locks.client().stats().holds), (0, 0));
        proxy.clear();
        assert_swept(&server);
        assert!(group.try_lock_for(LONG).unwrap());
        group.unlock().unwrap();
    }
}

/// A group that waits rides it out, member by member.
#[test]
fn a_wait_goes_on_when_the_command_for_all_is_never_answered() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    let pair = MultiLock::of([(&locks, "a"), (&locks, "b")]);
    hit(&proxy, "acquire_group", Fault::Reply(0), usize::MAX);
    let guard = pair.request().wait(LONG).guard().unwrap().unwrap();
    for hold in guard.holds() {
        assert_eq!(server.owner(hold.resource()).0, hold.owner());
    }
    drop(guard);
    proxy.clear();
}

#[test]
fn a_release_that_is_broken_once_is_repeated() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    let group = group(&locks);
    for fault in FAULTS {
        hit(&proxy, "release_group", fault, 1);
        let guard = group.guard().unwrap();
        match fault {
            // As of one lock: the answer to the second says that somebody else removed it.
            Fault::Twice => assert_err!(guard.unlock(), Lost),
            _ => guard.unlock().unwrap(),
        }
        assert!(keys(&server).is_empty(), "{fault:?}");
        assert_eq!(locks.client().stats().holds, 0);
    }
}

#[test]
fn a_release_that_is_never_answered_says_so_and_is_swept() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    let group = group(&locks);
    for fault in [Fault::Request(150), Fault::Reply(0)] {
        group.lock().unwrap();
        hit(&proxy, "release_group", fault, usize::MAX);
        assert_err!(group.unlock(), OutcomeUnknown);
        assert_eq!((group.hold_count(), locks.client().stats().holds), (0, 0));
        assert_swept(&server);
        // A drop makes one attempt, and the work that is done stays done.
        proxy.clear();
        let guard = group.guard().unwrap();
        hit(&proxy, "release_group", fault, usize::MAX);
        drop(guard);
        assert_swept(&server);
        proxy.clear();
        group.lock().unwrap();
        hit(&proxy, "release_group", fault, usize::MAX);
        assert_eq!(group.hold_count(), 1);
        group.unlock().unwrap_err();
        assert_swept(&server);
        proxy.clear();
    }
}

#[test]
fn a_drop_makes_one_attempt() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    let group = group(&locks);
    let (wanted, gate) = (runs("release_group"), Gate::default());
    let held = gate.clone();
    let guard = group.guard().unwrap();
    proxy.set(
        move |_, flow, data| {
            if wanted(flow, data) { vec![Step::Hold(held.clone()), Step::Send(data.to_vec())] } else { pass(data) }
        },
    );
    let ((), took) = timed(|| drop(guard));
    assert!(took <= ms(500) + LATE, "{took:?}");
    assert_swept(&server);
    gate.open();
}

/// A copy that the server executes long after its caller gave up takes nothing that stays.
#[test]
fn a_late_copy_of_an_acquire_leaves_nothing() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    let group = group(&locks);
    let (wanted, gate) = (runs("acquire_group"), Gate::default());
    let held = gate.clone();
    proxy.set(
        move |_, flow, data| {
            if wanted(flow, data) { vec![Step::Hold(held.clone()), Step::Send(data.to_vec())] } else { pass(data) }
        },
    );
    let (result, took) = timed(|| group.try_lock_for(ms(300)));
    assert!(matches!(result, Err(Error::OutcomeUnknown { .. })), "{result:?}");
    assert!(took <= ms(500) + LATE, "{took:?}");
    gate.open();
    proxy.clear();
    assert!(group.try_lock_for(LONG).unwrap());
    group.unlock().unwrap();
    assert_swept(&server);
}

#[test]
fn a_group_in_use_elsewhere_is_busy_after_an_unknown() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (locks, other) = (locks(&proxy), server.locks());
    let group = group(&locks);
    other.lock("c").unwrap();
    hit(&proxy, "acquire_group", Fault::Reply(0), 1);
    assert!(!group.try_lock().unwrap());
    assert_eq!(keys(&server), ["c"]);
    other.unlock("c").unwrap();
    assert_swept(&server);
}

/// A member that somebody removed is lost; the others are released all the same.
#[test]
fn a_release_tells_which_member_was_removed() {
    let server = Server::start();
    let locks = server.locks();
    let group = group(&locks);
    for name in NAMES {
        let guard = group.guard().unwrap();
        server.ask::<i64>(&["DEL", name]);
        let hold = guard.hold().clone();
        let error = guard.unlock().unwrap_err();
        assert!(matches!(&error, Error::Lost { resource, .. } if resource == name), "{error}");
        assert!(keys(&server).is_empty());
        assert_eq!(hold.state(), redlatch::HoldState::Lost);
        assert_eq!(hold.holds().iter().filter(|hold| hold.state() == redlatch::HoldState::Released).count(), 2);
    }
}

#[test]
fn a_member_that_is_no_lock_is_named() {
    let server = Server::start();
    let locks = server.locks();
    let group = group(&locks);
    server.ask::<String>(&["SET", "b", "not a lock"]);
    for wait in [Duration::ZERO, LONG] {
        let error = group.try_lock_for(wait).unwrap_err();
        assert!(
            matches!(&error, Error::Refused { resource, code, .. } if resource == "b" && code == "WRONGTYPE"),
            "{error}"
        );
        assert_eq!(keys(&server), ["b"]);
    }
    server.ask::<i64>(&["DEL", "b"]);
}
