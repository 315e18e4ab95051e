//! In a cluster the keys of the commands are in the slot of the lock, also while that is on its way.

use super::{Runs, bytes, set};
use crate::harness::cluster::{Cluster, Keys, slot_of};
use crate::threads::{LONG, eventually, ms};
use redlatch::{Command, Error, FencedLock, Hold, ReadWriteLock, RedLockExt, ReentrantLock, ShardedPubsub, Value};

fn assert_runs(locks: &dyn Runs, hold: &Hold, key: &str, before: Option<&str>, after: &str) {
    let got = before.map_or(Value::Nil, bytes);
    let commands = [Command::new("GET").key(key), set(key, after)];
    assert_eq!(locks.run(hold, &commands).unwrap(), [got, bytes("OK")], "{key}");
}

#[test]
fn a_key_in_another_slot_is_refused_before_anything_is_sent() {
    let cluster = Cluster::start();
    let name = cluster.name_at(0, 0);
    let locks = ReentrantLock::new(&cluster.builder().build().unwrap());
    let guard = locks.guard(&name).unwrap();
    let inside = format!("{{{name}}}:state");
    for other in [cluster.name_at(1, 0), cluster.name_at(0, 1)] {
        let error = locks.while_held(guard.hold(), &[set(&inside, "1"), set(&other, "1")]).unwrap_err();
        assert!(matches!(&error, Error::Config { .. }) && error.to_string().contains(&other), "{error}");
    }
    assert_runs(&locks, guard.hold(), &inside, None, "1");
    // One that is not declared is found out by the server.
    let hidden = Command::new("SET").arg(cluster.name_at(1, 0)).arg("1");
    assert_err!(locks.while_held(guard.hold(), &[set(&inside, "2"), hidden]), CommandFailed);
    guard.unlock().unwrap();
    cluster.nodes[0].ask::<i64>(&["DEL", &inside]);
}

/// All that is named is where the slot was, or where it goes, or it is in both places, where nobody runs it.
#[test]
fn commands_follow_a_slot_that_is_half_moved() {
    let cluster = Cluster::start();
    let budget = cluster.builder().outage_budget(ms(300));
    let client = budget.sharded_pubsub(ShardedPubsub::Off).build().unwrap();
    let (plain, fenced) = (ReentrantLock::new(&client), FencedLock::new(&client));
    let sides = ReadWriteLock::new(&client);
    let kinds: [&dyn Runs; 3] = [&plain, &fenced, sides.write()];
    for (number, locks) in kinds.into_iter().enumerate() {
        let name = cluster.name_at(0, number);
        let (slot, key) = (slot_of(&name), format!("{{{name}}}:state"));
        let guard = locks.guard(&name).unwrap();
        assert_runs(locks, guard.hold(), &key, None, "1");
        let moved = cluster.half_move(slot, 1, Keys::None);
        assert_runs(locks, guard.hold(), &key, Some("1"), "2");
        let both = [set(&key, "x"), set(&format!("{key}:new"), "x")];
        // On a busy machine the last attempt of a call may go without its answer.
        eventually(LONG, "both places say that a key is in the other", || {
            let error = locks.run(guard.hold(), &both).unwrap_err();
            matches!(&error, Error::Refused { code, .. } if code == "TRYAGAIN") && error.is_retryable()
        });
        cluster.cancel_move(moved);
        let moved = cluster.half_move(slot, 1, Keys::Named(&[&name, &key]));
        assert_runs(locks, guard.hold(), &key, Some("2"), "3");
        cluster.finish_move(moved);
        assert_runs(locks, guard.hold(), &key, Some("3"), "4");
        let there = locks.run(guard.hold(), &[Command::new("DEL").key(&key)]).unwrap();
        assert_eq!(there, [Value::Integer(1)]);
        guard.unlock().unwrap();
    }
}
