//! Row 108: a password changes at the server, and the program learns the new one later.

use crate::harness::cluster::{Cluster, Shape};
use crate::harness::quorum;
use crate::harness::sentinel::{Group, Shape as GroupShape};
use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, eventually, finish, ms, spawn_asleep, timed};
use crate::{MINUTE, locks_of};
use redlatch::{Applied, Client, ClientBuilder, Credentials, Error, HoldState};
use redlatch::{MultiLock, RedLock, RedLockExt, ReentrantLock, Result};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// What the program believes to be the password, and how often the client asked for it.
#[derive(Clone, Default)]
struct Believed {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicU64>,
}

impl Believed {
    fn of(password: &str) -> Self {
        let believed = Self::default();
        believed.set(password);
        believed
    }

    fn set(&self, password: &str) {
        password.clone_into(&mut self.password.lock().unwrap());
    }

    fn given_to<K>(&self, builder: ClientBuilder<K>) -> ClientBuilder<K> {
        let believed = self.clone();
        builder.credentials(move || {
            believed.asked.fetch_add(1, SeqCst);
            Ok::<_, std::io::Error>(Credentials::new("app", believed.password.lock().unwrap().as_str()))
        })
    }

    fn builder(&self, server: &Server) -> ClientBuilder {
        self.given_to(Client::builder(&server.url()))
    }
}

/// At the server: nobody logs in with an older one.
fn set_password(server: &Server, password: &str) {
    server.let_in("app", password, "~* &* +@all");
}

/// The same, and whoever is logged in is sent away.
fn rotate(server: &Server, password: &str) {
    set_password(server, password);
    let _: i64 = server.ask(&["CLIENT", "KILL", "USER", "app"]);
}

/// That a call ended after `span` because the server refuses the login, and says that a later call may succeed.
#[track_caller]
fn assert_refused<T: Debug>(call: impl FnOnce() -> Result<T>, span: Duration) {
    let (told, took) = timed(call);
    let error = told.unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"), "{error:?}");
    assert!(error.is_retryable() && error.applied() == Applied::No, "{error:?}");
    assert!(error.to_string().contains("check user and password"), "{error}");
    assert!(error.to_string().contains("the callback of ClientBuilder::credentials"), "{error}");
    assert!(took >= span && took <= span + LATE, "{error:?} after {took:?}");
}

#[test]
fn fault_108_a_password_that_is_rotated_under_load_fails_no_call() {
    let (server, believed) = (Server::start(), Believed::of("0"));
    set_password(&server, "0");
    let locks = locks_of(believed.builder(&server));
    let (is_over, pairs) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let work = |number: usize| {
            let name = format!("n{}", number % 2);
            while !is_over.load(SeqCst) {
                locks.guard(&name).unwrap().unlock().unwrap();
                pairs.fetch_add(1, SeqCst);
            }
        };
        let workers = [0, 1, 2, 3].map(|number| scope.spawn(move || work(number)));
        for round in 1..=20 {
            let password = round.to_string();
            rotate(&server, &password);
            std::thread::sleep(ms(15));
            believed.set(&password);
            let before = pairs.load(SeqCst);
            eventually(LONG, "they go on", || pairs.load(SeqCst) > before + 10);
        }
        is_over.store(true, SeqCst);
        workers.into_iter().for_each(finish);
    });
    println!("20 passwords, {} pairs", pairs.load(SeqCst));
}

/// A hold that is unlocked, one that is renewed, waits with and without an end, and threads that lock and unlock.
#[test]
fn fault_108_a_program_that_learns_the_password_seconds_later_fails_no_call() {
    const LATER: Duration = Duration::from_millis(2_500);
    let (server, believed) = (Server::start(), Believed::of("old"));
    set_password(&server, "old");
    // The first renewal is due while the login is refused, and the lease lasts beyond that.
    let locks = locks_of(believed.builder(&server).watchdog_timeout(ms(6_000)).outage_budget(MINUTE));
    let admin = server.locks();
    let [taken, asked_for] = ["taken", "asked_for"].map(|name| admin.guard(name).unwrap());
    let held = locks.guard("held").unwrap();
    let (is_over, pairs, rotated) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(2));
    std::thread::scope(|scope| {
        let (locks, rotated, is_over, pairs) = (&locks, &rotated, &is_over, &pairs);
        let unlocks = scope.spawn(move || {
            let guard = locks.guard("unlocked").unwrap();
            rotated.wait();
            rotated.wait();
            guard.unlock().unwrap();
        });
        let waiters = [
            spawn_asleep(scope, move || locks.lock("taken").and_then(|()| locks.unlock("taken"))),
            spawn_asleep(scope, move || locks.lock("taken").and_then(|()| locks.unlock("taken"))),
            spawn_asleep(scope, move || locks.try_lock_for("asked_for", MINUTE).map(|got| assert!(got))),
        ];
        let workers = [0, 1, 2, 3].map(|number| {
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    locks.guard(&format!("n{}", number % 2)).unwrap().unlock().unwrap();
                    pairs.fetch_add(1, SeqCst);
                }
            })
        });
        rotated.wait();
        let asked = believed.asked.load(SeqCst);
        rotate(&server, "new");
        rotated.wait();
        std::thread::sleep(LATER);
        let asked = believed.asked.load(SeqCst) - asked;
        eventually(LONG, "the renewal was refused", || held.state() == HoldState::Suspect);
        believed.set("new");
        let before = pairs.load(SeqCst);
        eventually(LONG, "they go on", || pairs.load(SeqCst) > before + 10);
        is_over.store(true, SeqCst);
        [taken, asked_for].into_iter().for_each(|guard| guard.unlock().unwrap());
        waiters.into_iter().for_each(|waiter| finish(waiter).0.unwrap());
        workers.into_iter().for_each(finish);
        finish(unlocks);
        eventually(LONG, "it is renewed", || held.state() == HoldState::Held);
        // Each thread may be refused once before the client knows; from then on the client tries 8 times in that time.
        assert!(asked <= 25, "{asked} logins in {LATER:?}");
    });
    held.unlock().unwrap();
    assert_eq!(locks.client().stats().lost, 0);
}

/// Each kind of call has its time, and the threads behind the one that asks are told with it.
#[test]
fn fault_108_a_password_that_never_comes_is_told_when_the_time_of_the_call_is_over() {
    const ANSWER: Duration = Duration::from_millis(400);
    const BUDGET: Duration = Duration::from_millis(900);
    let (server, believed) = (Server::start(), Believed::of("old"));
    set_password(&server, "new");
    let builder = || believed.builder(&server).response_timeout(ANSWER).outage_budget(BUDGET);
    let locks = || locks_of(builder());
    assert_refused(|| locks().try_lock("n"), ANSWER);
    assert_refused(|| locks().try_lock_for("n", ms(600)), ms(600));
    assert_refused(|| locks().is_locked("n"), BUDGET);
    let shared = locks();
    let waits = || assert_refused(|| shared.lock("n"), BUDGET);
    std::thread::scope(|scope| [(); 3].map(|()| scope.spawn(waits)).map(finish));
    let group = locks_of(builder().response_timeout(SOON));
    assert_refused(|| MultiLock::of([(&group, "a"), (&group, "b")]).try_lock_for(ms(600)), ms(600));
    assert_refused(|| MultiLock::of([(&group, "a"), (&group, "b")]).try_lock(), SOON);
    let (pinged, took) = timed(|| group.client().ping(LONG));
    assert_err!(pinged, Refused);
    assert!(took <= LATE, "a ping repeats nothing, and took {took:?}");
}

/// It is not waited for by a release in the background, a waiter or a renewal either.
#[test]
fn fault_108_a_client_is_shut_down_while_its_login_is_refused() {
    let (server, believed) = (Server::start(), Believed::of("old"));
    set_password(&server, "old");
    let (locks, admin) = (locks_of(believed.builder(&server).watchdog_timeout(ms(3_000))), server.locks());
    let taken = admin.guard("taken").unwrap();
    let held = locks.guard("held").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.lock("taken"));
        rotate(&server, "new");
        eventually(LONG, "the renewal is refused", || held.state() == HoldState::Suspect);
        let ((), took) = timed(|| locks.client().shutdown());
        assert!(took <= SOON, "the shutdown took {took:?}");
        assert_err!(finish(waiter).0, Closed);
    });
    taken.unlock().unwrap();
    drop(held);
    server.clear();
}

/// Calls in a hurry would else take turns at the login as often as their time is over.
#[test]
fn fault_108_a_login_that_is_not_answered_leaves_the_pause_after_a_refused_one() {
    let (server, believed) = (Server::start(), Believed::of("old"));
    set_password(&server, "new");
    let proxy = Proxy::new(server.socket());
    let builder = believed.given_to(Client::builder(&proxy.url()).outage_budget(MINUTE));
    let locks = locks_of(builder.response_timeout(ms(50)).connect_timeout(ms(50)));
    std::thread::scope(|scope| {
        let lock = |number: usize| locks.lock(&format!("n{number}"));
        let waiting = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| scope.spawn(move || lock(number)));
        std::thread::sleep(ms(1_500));
        proxy.set(|_, _, _| Vec::new());
        let (before, ((), took)) = (believed.asked.load(SeqCst), timed(|| std::thread::sleep(ms(2_000))));
        let asked = believed.asked.load(SeqCst) - before;
        proxy.clear();
        believed.set("new");
        waiting.into_iter().for_each(|waiter| finish(waiter).unwrap());
        let most = took.real().as_millis() / 500 + 2;
        assert!((1..=most).contains(&u128::from(asked)), "{asked} logins, {most} are allowed");
    });
}

/// A call waits while `believed` is not what the nodes take, and goes on when it is.
fn assert_waits<L: RedLock>(locks: &L, believed: &Believed, rotate: impl FnOnce()) {
    drop(locks.guard("n").unwrap());
    rotate();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.lock("n"));
        std::thread::sleep(ms(700));
        assert!(!waiter.is_finished(), "{:?}", finish(waiter).0);
        believed.set("new");
        finish(waiter).0.unwrap();
    });
}

#[test]
fn fault_108_nodes_of_a_quorum_that_refuse_the_login_do_not_decide() {
    let (servers, believed) = (quorum::start(3), Believed::of("old"));
    servers.iter().for_each(|server| set_password(server, "old"));
    let builder = || believed.given_to(quorum::builder(&servers).node_timeout(ms(400)).response_timeout(ms(400)));
    let locks = builder().build().unwrap();
    assert_waits(&locks, &believed, || servers[..2].iter().for_each(|server| rotate(server, "new")));
    believed.set("neither");
    let told = || builder().outage_budget(ms(900)).build().unwrap();
    assert_refused(|| told().try_lock_for("m", ms(600)), ms(600));
    assert_refused(|| told().lock("m"), ms(900));
}

/// A member of a group of servers takes this password alone from now on, and sends away whoever is logged in.
fn rotate_at(node: &crate::harness::member::Member, password: &str) {
    let password = format!(">{password}");
    let channels = if harness::server::version() < (6, 2) { None } else { Some("&*") };
    let words = ["ACL", "SETUSER", "app", "reset", "on", &password, "~*", "+@all"];
    let _: String = node.ask(&words.into_iter().chain(channels).collect::<Vec<_>>());
    let _: i64 = node.ask(&["CLIENT", "KILL", "USER", "app"]);
}

#[test]
fn fault_108_a_cluster_that_refuses_the_login_is_asked_again() {
    let (cluster, believed) = (Cluster::of(Shape::STEADY), Believed::of("old"));
    let rotate = |password| cluster.nodes.iter().for_each(|node| rotate_at(node, password));
    rotate("old");
    let locks: ReentrantLock = locks_of(believed.given_to(cluster.builder()));
    assert_waits(&locks, &believed, || rotate("new"));
}

#[test]
fn fault_108_a_master_behind_sentinels_that_refuses_the_login_is_asked_again() {
    let (group, believed) = (Group::of(GroupShape::STEADY), Believed::of("old"));
    let rotate = |password| group.nodes.iter().for_each(|node| rotate_at(node, password));
    rotate("old");
    let locks = locks_of(believed.given_to(group.builder()));
    assert_waits(&locks, &believed, || rotate("new"));
}
