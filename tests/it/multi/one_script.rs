//! Members of one client on one server: one command takes them, one releases them.

use crate::proxy::{Flow, Gate, Proxy, Step, pass, runs};
use crate::server::Server;
use crate::threads::{LONG, Mark, OUTLIVED, SOON, WATCHED, elsewhere, finish, spawn_asleep, while_held_elsewhere};
use redlatch::{HandOff, LocalRedLock, MultiLock, RedLock, ReentrantLock};
use std::sync::mpsc::channel;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn group(locks: &ReentrantLock) -> MultiLock<'_> {
    NAMES.into_iter().map(|name| (locks, name)).collect()
}

/// How many keys each script had that was run meanwhile.
fn keys_of_scripts(server: &Server, act: impl FnOnce()) -> Vec<usize> {
    let commands = server.commands_during(act);
    let keys = commands.iter().filter_map(|command| command.strip_prefix("\"evalsha\" \"")?.split('"').nth(2));
    keys.map(|count| count.parse().unwrap()).collect()
}

/// Makes the scripts known to the server, which is asked for them once more otherwise.
fn warm(group: &MultiLock<'_>, locks: &ReentrantLock) {
    group.guard().unwrap().unlock().unwrap();
    locks.lock("warm").unwrap();
    locks.lock("warm").unwrap();
    locks.unlock("warm").unwrap();
    locks.unlock("warm").unwrap();
}

#[test]
fn a_pair_is_two_commands() {
    let server = Server::start();
    let locks = server.locks();
    let group = group(&locks);
    warm(&group, &locks);
    let pair = keys_of_scripts(&server, || group.lock().and_then(|()| group.unlock()).unwrap());
    assert_eq!(pair, [3, 3]);
    let guard = keys_of_scripts(&server, || drop(group.guard().unwrap()));
    assert_eq!(guard, [3, 3]);
}

#[test]
fn two_lock_objects_of_a_client_are_one() {
    let server = Server::start();
    let (one, other) = {
        let locks = server.locks();
        (ReentrantLock::new(locks.client()), locks)
    };
    let group = MultiLock::of([(&one, "a"), (&other, "b")]);
    warm(&group, &one);
    assert_eq!(keys_of_scripts(&server, || drop(group.guard().unwrap())), [2, 2]);
}

#[test]
fn what_cannot_go_together_goes_one_by_one() {
    let server = Server::start();
    let (locks, other, local) = (server.locks(), server.locks(), LocalRedLock::new());
    warm(&group(&locks), &locks);
    warm(&group(&other), &other);
    let two_clients = MultiLock::of([(&locks, "a"), (&other, "b")]);
    assert_eq!(keys_of_scripts(&server, || drop(two_clients.guard().unwrap())), [1; 4]);
    let with_local = MultiLock::of([(&locks as &dyn RedLock, "a"), (&local, "b")]);
    assert_eq!(keys_of_scripts(&server, || drop(with_local.guard().unwrap())), [1; 2]);
    let twice = MultiLock::of([(&locks, "a"), (&locks, "b"), (&locks, "a")]);
    assert_eq!(keys_of_scripts(&server, || drop(twice.guard().unwrap())), [1; 6]);
    // One of them is held by this thread: that one is re-entered.
    locks.lock("b").unwrap();
    let commands = keys_of_scripts(&server, || drop(group(&locks).guard().unwrap()));
    assert_eq!(commands, [1; 6]);
    locks.unlock("b").unwrap();
}

#[test]
fn a_strict_client_takes_one_by_one() {
    let server = Server::start();
    let strict = server.builder().strict(true).watchdog_timeout(WATCHED).build().unwrap();
    let locks = ReentrantLock::new(&strict);
    let group = group(&locks);
    let guard = group.guard().unwrap();
    assert!(guard.is_valid());
    drop(guard);
    assert_eq!(keys_of_scripts(&server, || drop(group.guard().unwrap())), [1; 6]);
}

#[test]
fn each_member_is_a_hold_of_its_own_and_renewed() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let group = group(&locks);
    let guard = group.guard().unwrap();
    for hold in guard.holds() {
        assert_eq!(server.owner(hold.resource()), (hold.owner().to_owned(), 1));
    }
    let mut owners: Vec<_> = guard.holds().iter().map(redlatch::Hold::owner).collect();
    owners.dedup();
    assert_eq!(owners.len(), 3);
    std::thread::sleep(OUTLIVED);
    assert!(guard.is_valid(), "{guard:?}");
    guard.unlock().unwrap();
    let stats = locks.client().stats();
    assert_eq!((stats.acquires, stats.holds), (3, 0));
}

#[test]
fn each_round_takes_new_owner_ids() {
    let server = Server::start();
    let locks = server.locks();
    let owners = [(); 2].map(|()| group(&locks).guard().unwrap().holds()[0].owner().to_owned());
    assert_ne!(owners[0], owners[1]);
}

#[test]
fn what_a_sibling_holds_is_busy_without_a_command() {
    let server = Server::start();
    let locks = server.locks();
    let group = group(&locks);
    warm(&group, &locks);
    while_held_elsewhere(&locks, "c", |_| {
        assert_eq!(keys_of_scripts(&server, || assert!(!group.try_lock().unwrap())), [0; 0]);
    });
}

#[test]
fn what_another_client_holds_is_told_in_one_command() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    let group = group(&locks);
    warm(&group, &locks);
    other.lock("b").unwrap();
    assert_eq!(keys_of_scripts(&server, || assert!(!group.try_lock().unwrap())), [3]);
    assert!(!other.is_locked("a").unwrap() && !other.is_locked("c").unwrap());
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || group.lock().and_then(|()| group.unlock()));
        let unlocked = Mark::now();
        other.unlock("b").unwrap();
        let (result, when) = finish(waiter);
        result.unwrap();
        assert!(when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

#[test]
fn members_are_passed_on_to_threads_of_this_process_that_wait() {
    let server = Server::start();
    let hand_off = HandOff::default().within(LONG).in_order();
    let locks = ReentrantLock::new(&server.builder().hand_off(hand_off).build().unwrap());
    let group = group(&locks);
    group.lock().unwrap();
    std::thread::scope(|scope| {
        let waiters = NAMES
            .map(|name| spawn_asleep(scope, || locks.try_lock_for(name, LONG).unwrap() && locks.unlock(name).is_ok()));
        let unlocked = Mark::now();
        group.unlock().unwrap();
        for waiter in waiters {
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked <= SOON, "served after {:?}", when - unlocked);
        }
    });
    assert_eq!(locks.client().stats().passes, 3);
}

#[test]
fn a_force_unlock_while_the_group_is_taken_leaves_no_belief_without_a_key() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = ReentrantLock::connect(&proxy.url()).unwrap();
    let group = group(&locks);
    warm(&group, &locks);
    // The answer to the first one waits until another call has freed one of its keys.
    let (acquires, gate) = (runs("acquire_group"), Gate::default());
    let (mut asking, opened) = (None, gate.clone());
    let (tell, told) = channel();
    let mut tell = Some(tell);
    proxy.set(move |connection, flow, data| {
        if acquires(flow, data) && tell.is_some() {
            asking = Some(connection);
        } else if flow == Flow::Reply && asking == Some(connection) {
            asking = None;
            tell.take().unwrap().send(()).unwrap();
            return vec![Step::Hold(opened.clone()), Step::Send(data.to_vec())];
        }
        pass(data)
    });
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let guard = group.guard().unwrap();
            assert!(guard.is_valid());
            for hold in guard.holds() {
                assert_eq!(server.owner(hold.resource()).0, hold.owner());
            }
        });
        told.recv().unwrap();
        assert!(locks.force_unlock("b").unwrap(), "the server had executed it");
        gate.open();
        finish(taker);
    });
}

#[test]
fn a_closed_client_takes_and_releases_no_group() {
    let server = Server::start();
    let locks = server.locks();
    let group = group(&locks);
    let guard = group.guard().unwrap();
    locks.client().shutdown();
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
    assert_err!(guard.unlock(), Closed);
    assert_err!(group.lock(), Closed);
    assert_err!(group.try_lock(), Closed);
    assert_err!(group.unlock(), Closed);
}

#[test]
fn a_prefix_is_part_of_the_order_and_of_the_keys() {
    let server = Server::start();
    let with_prefix = |prefix| ReentrantLock::new(&server.builder().key_prefix(prefix).build().unwrap());
    let (last, first) = (with_prefix("z:"), with_prefix("a:"));
    let group = MultiLock::of([(&last, "1"), (&first, "2"), (&first, "3")]);
    let guard = group.guard().unwrap();
    let mut taken: Vec<_> = guard.holds().iter().collect();
    taken.sort_by_key(|hold| hold.acquired_at());
    assert_eq!(taken.into_iter().map(redlatch::Hold::resource).collect::<Vec<_>>(), ["2", "3", "1"]);
    assert!(elsewhere(|| !server.locks().try_lock("a:3").unwrap()));
    assert_eq!(server.owner("z:1").0, guard.holds()[0].owner());
}
