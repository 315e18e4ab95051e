//! Grants and renewals that replicas have to confirm: a master and two replicas, some of which are stopped.

use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, eventually, finish, lost_within, ms, refusal, timed};
use redlatch::{Client, Error, HoldState, MultiLock, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(3_000);

/// How long replicas are waited for.
const WAIT: Duration = Duration::from_millis(400);

/// Both follow the master.
struct Group {
    /// They go first, for they are clients of the master.
    replicas: [Server; 2],
    master: Server,
}

/// They would be left as clients of each other.
impl Drop for Group {
    fn drop(&mut self) {
        self.replicas.iter().for_each(|replica| drop(replica.ask::<String>(&["REPLICAOF", "NO", "ONE"])));
    }
}

impl Group {
    fn start() -> Self {
        let (master, replicas) = (Server::start_on_tcp(), [(); 2].map(|()| Server::start()));
        master.ask::<String>(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        for replica in &replicas {
            replica.ask::<String>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        }
        // What one that is new has says nothing of whether it hears of more already.
        let confirmed = || {
            master.ask::<String>(&["SET", "n", "n"]);
            master.ask::<i64>(&["DEL", "n"]);
            master.ask::<i64>(&["WAIT", "2", "100"]) == 2
        };
        for _ in 0..2 {
            eventually(LONG, "both confirm what it has", confirmed);
        }
        Self { replicas, master }
    }

    /// A client that wants so many to confirm.
    fn locks(&self, replicas: usize, wait: Duration) -> ReentrantLock {
        let builder = Client::builder(&self.master.url()).watchdog_timeout(LEASE).outage_budget(ms(300));
        ReentrantLock::new(&builder.sync_replicas(replicas, wait).pool_size(1).build().unwrap())
    }

    /// Waits until nobody holds these locks: what an attempt took that was not answered in time is given back later.
    #[track_caller]
    fn free_within(&self, bound: Duration, names: &[&str]) {
        let exist = [&["EXISTS"], names].concat();
        eventually(bound, "all are given back", || self.master.ask::<i64>(&exist) == 0);
    }

    /// One replica stands still meanwhile.
    fn while_one_is_frozen<T>(&self, act: impl FnOnce() -> T) -> T {
        struct Thaw<'a>(&'a Server);
        impl Drop for Thaw<'_> {
            fn drop(&mut self) {
                self.0.thaw();
            }
        }
        let _thaw = Thaw(&self.replicas[1]);
        self.replicas[1].freeze();
        act()
    }
}

/// That a call is refused because so few confirmed it. On a busy machine the other replica may be late, too: then it is asked
/// again.
#[track_caller]
fn assert_unconfirmed<T>(mut call: impl FnMut() -> Result<T, Error>, said: &str) {
    eventually(LONG, "the replica that is not frozen confirms it", || match refusal(&mut call) {
        Error::Refused { code, cause, .. } if code == "NOREPLICAS" => {
            let cause = cause.to_string();
            assert!(cause.contains(said) || cause.contains("0 of 2"), "{cause}");
            cause.contains(said)
        }
        error => panic!("{error:?}"),
    });
}

#[test]
fn a_grant_and_its_confirmation_are_one_write() {
    let group = Group::start();
    let locks = group.locks(2, WAIT);
    let pair = || {
        locks.lock("n").unwrap();
        locks.unlock("n").unwrap();
    };
    pair();
    let commands = group.master.commands_during(pair);
    let verbs: Vec<_> = commands.iter().map(|command| command.split('"').nth(1).unwrap().to_owned()).collect();
    assert_eq!(verbs, ["evalsha", "wait", "evalsha"]);
    assert!(commands[1].contains("\"2\" \"400\""), "{commands:?}");
}

#[test]
fn what_too_few_confirm_is_given_back_and_refused() {
    let group = Group::start();
    let locks = group.locks(2, WAIT);
    group.while_one_is_frozen(|| {
        let try_lock = || {
            group.free_within(LEASE, &["n"]);
            locks.try_lock("n")
        };
        assert_unconfirmed(try_lock, "1 of 2 replicas confirmed it in time");
        group.free_within(SOON, &["n"]);
        let lock = || {
            let (locked, took) = timed(|| locks.lock("n"));
            assert!(took <= ms(300) + WAIT + LATE, "{took:?}");
            locked
        };
        assert_unconfirmed(lock, "1 of 2");
    });
    assert!(locks.try_lock_for("n", LONG).unwrap(), "both are there again");
    locks.unlock("n").unwrap();
}

#[test]
fn one_of_two_is_enough_for_who_wants_one() {
    let group = Group::start();
    let locks = group.locks(1, WAIT);
    group.while_one_is_frozen(|| assert!(locks.try_lock("n").unwrap() && locks.unlock("n").is_ok()));
}

#[test]
fn a_lock_call_rides_it_out() {
    let group = Group::start();
    let builder = Client::builder(&group.master.url()).watchdog_timeout(LEASE);
    let locks = ReentrantLock::new(&builder.sync_replicas(2, WAIT).build().unwrap());
    std::thread::scope(|scope| {
        let waiter = group.while_one_is_frozen(|| {
            let waiter = scope.spawn(|| locks.lock("n").and_then(|()| locks.unlock("n")));
            std::thread::sleep(ms(500));
            assert!(!waiter.is_finished());
            waiter
        });
        finish(waiter).unwrap();
    });
}

#[test]
fn a_renewal_that_is_not_confirmed_moves_no_deadline() {
    let group = Group::start();
    let locks = group.locks(2, WAIT);
    let guard = locks.guard("n").unwrap();
    let hold = guard.hold();
    assert_eq!(hold.confirmed_by(), Some((2, 2)));
    group.while_one_is_frozen(|| {
        eventually(LEASE, "it is in doubt", || hold.state() == HoldState::Suspect);
        let left = hold.remaining();
        std::thread::sleep(ms(300));
        assert!(hold.remaining() <= left);
    });
    eventually(LEASE, "it is confirmed again", || hold.state() == HoldState::Held);
    drop(guard);
    let guard = locks.guard("n").unwrap();
    let hold = guard.hold();
    group.while_one_is_frozen(|| {
        lost_within(LEASE + LATE, hold);
        assert_eq!(hold.state(), HoldState::Lost);
    });
    assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
}

#[test]
fn what_is_asked_of_a_hold_is_confirmed_too() {
    let group = Group::start();
    let locks = group.locks(2, WAIT);
    let guard = locks.request("n").lease(Duration::from_secs(60)).guard().unwrap().unwrap();
    group.while_one_is_frozen(|| {
        assert_unconfirmed(|| locks.try_lock("n"), "1 of 2");
        assert_unconfirmed(|| guard.hold().extend(Duration::from_secs(120)), "1 of 2");
        assert!(guard.hold().remaining() <= Duration::from_secs(60));
    });
    guard.unlock().unwrap();
}

/// Whoever waits for the lock does not wait for replicas, also not with its next call on that connection.
#[test]
fn a_busy_lock_is_answered_at_once() {
    let group = Group::start();
    let holder = Server::locks(&group.master);
    let patient = Client::builder(&group.master.url()).pool_size(1).sync_replicas(2, SOON);
    let locks = ReentrantLock::new(&patient.build().unwrap());
    holder.lock("n").unwrap();
    assert!(!locks.try_lock("n").unwrap());
    group.while_one_is_frozen(|| {
        let (got, took) = timed(|| locks.try_lock("n").unwrap());
        assert!(!got && took <= SOON, "{took:?}");
    });
    holder.unlock("n").unwrap();
    assert!(locks.try_lock("n").unwrap(), "an answer that was owed is none of a later call");
    locks.unlock("n").unwrap();
}

#[test]
fn a_server_that_forgot_its_scripts_and_a_group_are_confirmed() {
    let group = Group::start();
    let locks = group.locks(2, WAIT);
    group.master.ask::<String>(&["SCRIPT", "FLUSH"]);
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
    let all = || MultiLock::of([(&locks, "a"), (&locks, "b")]);
    drop(all().guard().unwrap());
    group.while_one_is_frozen(|| {
        let try_guard = || {
            group.free_within(LEASE, &["a", "b"]);
            all().try_guard().map(drop)
        };
        assert_unconfirmed(try_guard, "1 of 2");
        group.free_within(SOON, &["a", "b"]);
    });
}

/// As at a master that has just been promoted: it knows no script, and one that is to follow it does not yet.
#[test]
fn a_script_that_the_server_does_not_know_is_not_kept_waiting() {
    let group = Group::start();
    let holder = Server::locks(&group.master);
    holder.lock("n").unwrap();
    let patient = Client::builder(&group.master.url()).pool_size(1).sync_replicas(2, SOON);
    let locks = ReentrantLock::new(&patient.build().unwrap());
    group.replicas[1].ask::<String>(&["REPLICAOF", "NO", "ONE"]);
    group.master.ask::<String>(&["SCRIPT", "FLUSH"]);
    let (got, took) = timed(|| locks.try_lock("n").unwrap());
    assert!(!got && took <= SOON, "{took:?}");
    holder.unlock("n").unwrap();
    group.replicas[1].ask::<String>(&["FLUSHALL"]);
}

#[test]
fn who_may_not_wait_hears_of_it_when_it_connects() {
    let server = Server::start();
    let url = server.let_in("app", "secret", "+@all -wait");
    let client = Client::builder(&url).outage_budget(ms(200)).sync_replicas(1, WAIT).build().unwrap();
    let error = client.ping(SOON).unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{error:?}");
    assert!(error.to_string().contains("wait"), "{error}");
}

/// It may be told to be the master again: as without this, calls ride it out.
#[test]
fn a_server_that_is_a_replica_is_read_only() {
    let group = Group::start();
    let client = Client::builder(&group.replicas[0].url()).outage_budget(ms(200)).sync_replicas(1, WAIT);
    let error = ReentrantLock::new(&client.build().unwrap()).lock("n").unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "READONLY"), "{error:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let second = Duration::from_secs(1);
    for (replicas, timeout) in [(0, WAIT), (101, WAIT), (1, Duration::ZERO), (1, second + ms(1))] {
        let error = Client::builder("redis://h").sync_replicas(replicas, timeout).build().unwrap_err();
        assert!(matches!(&error, Error::Config { what, .. } if what.contains("sync_replicas must be")), "{error:?}");
    }
    assert!(Client::builder("redis://h").sync_replicas(1, second).build().is_ok());
}

#[test]
fn failover_safe_is_strict_mode_and_all_replicas_within_100_ms() {
    let both = Client::builder("redis://h").strict(true).sync_replicas(2, ms(100));
    assert_eq!(format!("{:?}", Client::builder("redis://h").failover_safe(2)), format!("{both:?}"));
    let error = Client::builder("redis://h").response_timeout(ms(199)).failover_safe(2).build().unwrap_err();
    assert!(error.to_string().contains("failover_safe has 100 ms"), "{error}");
    let group = Group::start();
    let client = Client::builder(&group.master.url()).watchdog_timeout(ms(900)).failover_safe(2).build().unwrap();
    let (guard, took) = timed(|| ReentrantLock::new(&client).owned_guard("n").unwrap());
    assert!(took >= ms(800), "a server that is new to strict mode grants nothing for one lease: {took:?}");
    assert_eq!(guard.confirmed_by(), Some((2, 2)));
    guard.unlock().unwrap();
}
