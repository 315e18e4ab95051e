//! What is on the server while locks are used: keys, fields, times to live, messages, and the commands sent.

use crate::server::Server;
use crate::threads::{LONG, OUTLIVED, WATCHED, elsewhere, eventually, ms, while_held_elsewhere};
use redlatch::{
    Client, HoldState, LocalRedLock, LossCause, Naming, RedLock, RedLockExt, ReentrantLock, Reentry, Terms,
};
use std::time::Duration;

/// The commands of a transcript by name.
fn verbs(commands: &[String]) -> Vec<&str> {
    commands.iter().map(|command| command.split('"').nth(1).unwrap()).collect()
}

fn locks(client: Client) -> ReentrantLock {
    ReentrantLock::new(&client)
}

/// The first message on a channel that comes of `act`.
fn message_of(server: &Server, channel: &str, act: impl FnOnce()) -> String {
    let mut connection = server.connection();
    connection.set_read_timeout(Some(LONG)).unwrap();
    let mut listener = connection.as_pubsub();
    listener.subscribe(channel).unwrap();
    act();
    listener.get_message().unwrap().get_payload().unwrap()
}

#[test]
fn the_owner_field_is_client_thread_and_hold() {
    let server = Server::start();
    let locks = server.locks();
    let owner_of = |name| {
        let guard = locks.guard(name).unwrap();
        let (owner, count) = server.owner(name);
        assert_eq!((owner.as_str(), count), (guard.owner(), 1));
        assert_eq!(server.ask::<String>(&["TYPE", name]), "hash");
        owner
    };
    let owners = [owner_of("a"), owner_of("a"), elsewhere(|| owner_of("a"))];
    let parts: Vec<Vec<_>> = owners.iter().map(|owner| owner.split(':').collect()).collect();
    assert!(parts.iter().all(|part| part.len() == 3 && part[0] == parts[0][0] && part[0].len() == 36), "{owners:?}");
    assert_eq!(parts[0][1], parts[1][1], "one thread, one number");
    assert_ne!(parts[0][1], parts[2][1], "each thread has its own");
    assert!(parts[0][2] != parts[1][2] && parts[1][2] != parts[2][2], "each hold has its own");
    assert!(parts.iter().all(|part| part[1..].iter().all(|number| number.parse::<u64>().is_ok())));
}

#[test]
fn the_depth_is_mirrored_on_the_server() {
    let server = Server::start();
    let locks = server.locks();
    for depth in 1..=3 {
        locks.lock("n").unwrap();
        assert_eq!(server.owner("n").1, depth);
    }
    for depth in [2, 1] {
        locks.unlock("n").unwrap();
        assert_eq!(server.owner("n").1, depth);
    }
    locks.unlock("n").unwrap();
}

#[test]
fn local_re_entry_costs_no_command_and_mirrors_no_depth() {
    let server = Server::start();
    let locks = locks(server.builder().reentry(Reentry::Local).build().unwrap());
    locks.lock("n").unwrap();
    let commands = server.commands_during(|| {
        locks.lock("n").unwrap();
        assert_eq!(locks.hold_count("n"), 2);
        locks.unlock("n").unwrap();
    });
    assert_eq!(verbs(&commands), [""; 0]);
    locks.lock("n").unwrap();
    assert_eq!(server.owner("n").1, 1);
    locks.unlock("n").unwrap();
    locks.unlock("n").unwrap();
}

#[test]
fn local_re_entry_asks_the_server_for_a_longer_lease() {
    let server = Server::start();
    let locks = locks(server.builder().reentry(Reentry::Local).build().unwrap());
    let _outer = locks.request("n").lease(ms(5_000)).guard().unwrap();
    let _inner = locks.request("n").lease(Duration::from_secs(60)).guard().unwrap();
    assert!(server.pttl("n") > 50_000);
}

#[test]
fn an_uncontended_pair_is_two_scripts_and_nothing_else() {
    let server = Server::start();
    let locks = server.locks();
    let pair = || {
        locks.lock("n").unwrap();
        locks.unlock("n").unwrap();
    };
    pair();
    let commands = server.commands_during(|| (0..10).for_each(|_| pair()));
    assert_eq!(verbs(&commands), ["evalsha"; 20]);
}

#[test]
fn a_watched_hold_is_renewed() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let guard = locks.guard("n").unwrap();
    let (mut last, mut rises) = (server.pttl("n"), 0);
    eventually(LONG, "the third renewal", || {
        let left = server.pttl("n");
        assert!((1..=2_000).contains(&left), "{left} ms left");
        rises += u32::from(left > last + 100);
        last = left;
        rises == 3
    });
    assert!(guard.is_valid() && locks.verify(&guard).unwrap());
    assert!(guard.acquired_at().elapsed() > ms(1_900), "three thirds");
}

#[test]
fn a_renewal_never_shortens_a_longer_lease() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let _outer = locks.guard("n").unwrap();
    let _inner = locks.request("n").lease(Duration::from_secs(3_600)).guard().unwrap();
    let renewals = server.commands_during(|| std::thread::sleep(WATCHED / 2));
    assert!(!renewals.is_empty(), "no renewal was sent");
    assert!(server.pttl("n") > 3_500_000);
}

#[test]
fn an_explicit_lease_is_not_renewed() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    locks.lock_with_lease("n", ms(900)).unwrap();
    let hold = locks.hold("n").unwrap();
    let mut last = server.pttl("n");
    eventually(LONG, "the key is gone", || {
        let left = server.pttl("n");
        assert!(left <= last, "it was renewed from {last} to {left} ms");
        last = left;
        left == -2
    });
    assert_eq!(hold.state(), HoldState::Lost);
    assert_err!(locks.unlock("n"), Lost);
}

#[test]
fn a_watched_level_inside_a_lease_is_renewed_until_it_is_unlocked() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    locks.lock_with_lease("n", ms(1_500)).unwrap();
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    eventually(LONG, "it outlives both leases", || {
        assert!(hold.is_valid(), "{hold:?}");
        hold.acquired_at().elapsed() > OUTLIVED
    });
    locks.unlock("n").unwrap();
    assert_eq!(hold.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    assert_err!(locks.unlock("n"), Lost);
}

#[test]
fn a_hold_is_renewed_though_inner_levels_come_and_go() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let guard = locks.guard("n").unwrap();
    eventually(LONG, "it outlives its lease", || {
        drop(locks.request("n").lease(ms(10)).guard().unwrap());
        assert!(guard.is_valid(), "{guard:?}");
        guard.acquired_at().elapsed() > OUTLIVED
    });
}

/// The server stands still while the renewals come due, so all but the first wait for the watchdog's threads.
#[test]
fn many_holds_that_wait_to_be_renewed_are_renewed_together() {
    let server = Server::start();
    let locks = server.locks_watched(ms(3_000));
    let names: Vec<_> = (0..150).map(|number| format!("n{number}")).collect();
    let guards: Vec<_> = names.iter().map(|name| locks.guard(name).unwrap()).collect();
    let (last, renewals) = (guards.last().unwrap().acquired_at(), || locks.client().stats().renewals);
    let before = renewals();
    let commands = server.commands_during(|| {
        server.freeze();
        eventually(LONG, "all are due", || last.elapsed() > ms(1_200));
        server.thaw();
        eventually(LONG, "all are renewed", || renewals() >= before + 150);
    });
    let renewals = commands.iter().filter(|command| command.starts_with("\"eval")).count();
    assert!((2..=10).contains(&renewals), "{renewals} commands renewed 150 holds");
}

#[test]
fn an_unlock_publishes_a_plain_zero() {
    let server = Server::start();
    let locks = server.locks();
    let payload = message_of(&server, "redisson_lock__channel:{n}", || drop(locks.guard("n").unwrap()));
    assert_eq!(payload, "0");
    let payload = message_of(&server, "redisson_lock__channel:a{b}c", || drop(locks.guard("a{b}c").unwrap()));
    assert_eq!(payload, "0");
}

#[test]
fn a_force_unlock_publishes_a_plain_zero() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("n").unwrap();
    let payload = message_of(&server, "redisson_lock__channel:{n}", || assert!(locks.force_unlock("n").unwrap()));
    assert_eq!(payload, "0");
    assert_err!(locks.unlock("n"), Lost);
}

#[test]
fn an_inner_unlock_publishes_nothing() {
    let server = Server::start();
    let locks = server.locks();
    let _outer = locks.guard("n").unwrap();
    let payload = message_of(&server, "redisson_lock__channel:{n}", || {
        drop(locks.guard("n").unwrap());
        server.ask::<i64>(&["PUBLISH", "redisson_lock__channel:{n}", "the test's own"]);
    });
    assert_eq!(payload, "the test's own");
}

#[test]
fn jedis_naming_publishes_on_the_jedis_channel() {
    let server = Server::start();
    let locks = locks(server.builder().naming(Naming::Jedis).build().unwrap());
    let payload = message_of(&server, "__red__lock:n", || {
        let guard = locks.guard("n").unwrap();
        assert_eq!(server.owner("n").0, guard.owner());
    });
    assert_eq!(payload, "0");
}

#[test]
fn a_prefix_comes_before_key_and_channel() {
    let server = Server::start();
    let locks = locks(server.builder().key_prefix("shop:").build().unwrap());
    let payload = message_of(&server, "redisson_lock__channel:{shop:n}", || {
        let guard = locks.guard("n").unwrap();
        assert_eq!(server.owner("shop:n").0, guard.owner());
        assert_eq!(guard.resource(), "n");
    });
    assert_eq!(payload, "0");
}

#[test]
fn a_script_flush_between_calls_is_invisible() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let flush = || server.ask::<String>(&["SCRIPT", "FLUSH"]);
    flush();
    locks.lock("n").unwrap();
    flush();
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    flush();
    assert!(locks.verify(&hold).unwrap());
    flush();
    hold.extend(LONG).unwrap();
    flush();
    locks.unlock("n").unwrap();
    flush();
    locks.unlock("n").unwrap();
    flush();
    assert!(!locks.force_unlock("n").unwrap());
    let guard = locks.guard("n").unwrap();
    eventually(LONG, "it outlives its lease, renewed by forgotten scripts", || {
        flush();
        assert_eq!(guard.state(), HoldState::Held);
        guard.acquired_at().elapsed() > OUTLIVED
    });
}

#[test]
fn a_try_of_what_a_sibling_holds_sends_no_command() {
    let server = Server::start();
    let locks = server.locks();
    while_held_elsewhere(&locks, "n", |_| {
        let commands = server.commands_during(|| {
            assert!(!locks.try_lock("n").unwrap());
            assert!(!locks.try_lock_for("n", Duration::ZERO).unwrap());
            assert!(locks.try_guard("n").unwrap().is_none());
        });
        assert_eq!(verbs(&commands), [""; 0]);
    });
}

#[test]
fn questions_about_this_process_send_no_command() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    let commands = server.commands_during(|| {
        assert!(guard.is_valid() && locks.is_held_by_current_thread("n"));
        assert_eq!((locks.hold_count("n"), guard.state()), (1, HoldState::Held));
        assert!(guard.remaining() > Duration::ZERO && guard.lost().try_recv().is_err());
    });
    assert_eq!(verbs(&commands), [""; 0]);
}

#[test]
fn a_renewal_of_a_deleted_key_loses_the_hold_once_and_creates_nothing() {
    let server = Server::start();
    let (tell, told) = crossbeam_channel::unbounded();
    let client = server.builder().watchdog_timeout(WATCHED).on_lost(move |lost| tell.send(lost).unwrap());
    let locks = locks(client.build().unwrap());
    let guard = locks.guard("n").unwrap();
    let listener = guard.lost();
    assert_eq!(server.ask::<i64>(&["DEL", "n"]), 1);
    let lost = listener.recv_timeout(LONG).unwrap();
    assert_eq!((lost.resource(), lost.owner(), lost.cause()), ("n", guard.owner(), LossCause::Removed));
    assert_eq!((guard.state(), guard.is_valid()), (HoldState::Lost, false));
    assert_eq!(server.pttl("n"), -2);
    assert_err!(guard.unlock(), Lost);
    drop(locks);
    // Dropping the client drops the callback, after what was reported to it.
    let mut calls = Vec::new();
    while let Ok(lost) = told.recv_timeout(LONG) {
        calls.push(lost);
    }
    assert_eq!(calls, [lost]);
    assert!(listener.try_recv().is_err(), "told twice");
}

#[test]
fn a_lost_hold_is_not_renewed() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let guard = locks.guard("n").unwrap();
    server.ask::<i64>(&["DEL", "n"]);
    guard.lost().recv_timeout(LONG).unwrap();
    server.ask::<i64>(&["HSET", "n", guard.owner(), "1"]);
    server.ask::<i64>(&["PEXPIRE", "n", "60000"]);
    assert_eq!(verbs(&server.commands_during(|| std::thread::sleep(WATCHED / 2))), [""; 0]);
    assert!(!guard.is_valid(), "lost is for good");
    assert_err!(guard.unlock(), Lost);
    assert_eq!(server.pttl("n"), -2, "a lost hold's unlock removes what was its own");
}

#[test]
fn an_unlock_of_a_deleted_key_says_lost() {
    let server = Server::start();
    let locks = server.locks();
    for depth in [1, 2] {
        (0..depth).for_each(|_| locks.lock("n").unwrap());
        server.ask::<i64>(&["DEL", "n"]);
        (0..depth).for_each(|_| assert_err!(locks.unlock("n"), Lost));
        assert_err!(locks.unlock("n"), NotHeld);
    }
}

#[test]
fn a_re_entry_of_a_deleted_key_says_lost_and_creates_nothing() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("n").unwrap();
    server.ask::<i64>(&["DEL", "n"]);
    assert_err!(locks.lock("n"), Lost);
    assert_eq!(server.pttl("n"), -2);
    assert_eq!(locks.hold_count("n"), 1, "the failed level does not count");
    assert_err!(locks.unlock("n"), Lost);
}

#[test]
fn verify_finds_a_deleted_key() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    server.ask::<i64>(&["DEL", "n"]);
    assert!(!locks.verify(&guard).unwrap());
    assert_eq!(guard.state(), HoldState::Lost);
    assert_eq!(server.pttl("n"), -2);
}

#[test]
fn the_locks_of_two_clients_exclude_each_other() {
    let server = Server::start();
    let (one, other) = (server.locks(), server.locks());
    let guard = one.guard("n").unwrap();
    assert!(!other.try_lock("n").unwrap());
    assert_err!(other.unlock("n"), NotHeld);
    assert!(other.hold_of("n", std::thread::current().id()).is_none());
    drop(guard);
    assert!(other.try_lock("n").unwrap());
    other.unlock("n").unwrap();
}

#[test]
fn a_hold_is_released_and_verified_only_by_locks_of_its_client() {
    let server = Server::start();
    let (one, other, local) = (server.locks(), server.locks(), LocalRedLock::new());
    let hold = one.acquire("n", &Terms::new()).unwrap().unwrap();
    for stranger in [&other as &dyn RedLock, &local] {
        assert_err!(stranger.release(&hold), Config);
        assert_err!(stranger.verify(&hold), Config);
    }
    assert!(hold.is_valid() && one.verify(&hold).unwrap());
    ReentrantLock::new(one.client()).release(&hold).unwrap();
    assert!(elsewhere(|| one.try_lock_for("n", LONG).unwrap() && one.unlock("n").is_ok()), "the lock is wedged");
    assert_eq!(one.client().stats().holds, 0);
}

#[test]
fn a_client_works_over_tcp() {
    let server = Server::start_on_tcp();
    let locks = ReentrantLock::connect(&server.tcp_url()).unwrap();
    let guard = locks.guard("n").unwrap();
    assert_eq!(server.owner("n").0, guard.owner());
}

/// Another thread may ask while the lock is entered, left or passed on.
#[test]
fn verify_leaves_the_depth_alone() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    let owner = guard.owner().to_owned();
    server.ask::<i64>(&["HSET", "n", &owner, "7"]);
    assert!(elsewhere(|| locks.verify(&guard).unwrap()));
    assert_eq!(server.owner("n"), (owner, 7));
}
