//! What the queue costs who is alone: nothing.

use super::{CHANNEL, QUEUE, eventually_empty, holder, pass, patient, queued};
use crate::lua;
use crate::server::Server;
use crate::threads::{LONG, eventually, finish};
use redlatch::{RedLock, ReentrantLock};
use std::thread::scope;

/// The scripts that came over the wire meanwhile, by name, and nothing else did.
fn scripts_during(server: &Server, act: impl FnOnce()) -> Vec<&'static str> {
    const NAMES: [&str; 5] = ["acquire", "release", "in_turn+acquire", "release_in_turn", "queue/leave"];
    let hashes = NAMES.map(|name| redis::Script::new(&lua::script(name)).get_hash().to_owned());
    let name = |command: &String| {
        let script = hashes.iter().position(|hash| command.contains(hash));
        NAMES[script.unwrap_or_else(|| panic!("no script of these: {command}"))]
    };
    server.commands_during(act).iter().map(name).collect()
}

fn pair(locks: &ReentrantLock) {
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
}

fn assert_plain(server: &Server, locks: &ReentrantLock) {
    assert_eq!(scripts_during(server, || (0..5).for_each(|_| pair(locks))), ["acquire", "release"].repeat(5));
}

#[test]
fn who_is_alone_uses_the_plain_scripts() {
    let server = Server::start();
    let locks = patient(&server);
    pair(&locks);
    assert_plain(&server, &locks);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
    assert_eq!(server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]), [""; 0]);
}

/// Whoever waited is gone: the next release tells nobody, and those after it do not look.
#[test]
fn who_is_alone_again_uses_the_plain_scripts_again() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        holder.unlock("n").unwrap();
        assert!(finish(waiter).0);
    });
    eventually_empty(&server);
    drop(other);
    eventually(LONG, "its own channels are left too", || server.channels_of_locks().is_empty());
    pair(&holder);
    pair(&holder);
    assert_plain(&server, &holder);
    assert_eq!(server.ask::<i64>(&["EXISTS", QUEUE]), 0);
}

/// As long as others listen they may wait; after two seconds without any that is forgotten, for each name by itself.
#[test]
fn company_is_forgotten_by_name_and_in_time() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let scripts = scripts_during(&server, || {
            holder.lock("m").unwrap();
            holder.unlock("m").unwrap();
        });
        assert_eq!(scripts, ["acquire", "release"], "of another name");
        holder.unlock("n").unwrap();
        assert!(finish(waiter).0);
    });
    eventually(LONG, "nobody listens", || server.subscribers(CHANNEL) == 0);
    std::thread::sleep(crate::threads::ms(2_100));
    assert_plain(&server, &holder);
    assert_plain(&server, &other);
}

/// A try never queues, and is the plain script whoever waits.
#[test]
fn a_try_is_the_plain_script() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let third = patient(&server);
        assert!(!third.try_lock("n").unwrap());
        assert_eq!(scripts_during(&server, || assert!(!third.try_lock("n").unwrap())), ["acquire"]);
        holder.unlock("n").unwrap();
        assert!(finish(waiter).0);
    });
    eventually_empty(&server);
}
