//! Groups on several servers, one of which is down, stopped or refuses.

use super::members::Wrapper;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, elsewhere, eventually, ms, timed, while_held_elsewhere};
use redlatch::{Client, ClientBuilder, Error, LocalRedLock, MultiLock, RedLock, ReentrantLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::Duration;

fn locks(server: &Server, response: Duration) -> ReentrantLock {
    ReentrantLock::new(&server.builder().outage_budget(ms(600)).response_timeout(response).build().unwrap())
}

/// A group with members before and after one on the second server, which can be killed.
struct Scene {
    living: ReentrantLock,
    dying: ReentrantLock,
    local: LocalRedLock,
    servers: [Server; 2],
}

impl Scene {
    fn new() -> Self {
        Self::with(ms(300))
    }

    /// With so long a response time-out.
    fn with(response: Duration) -> Self {
        let servers = [Server::start(), Server::start()];
        let [living, dying] = servers.each_ref().map(|server| locks(server, response));
        Self { living, dying, local: LocalRedLock::new(), servers }
    }

    fn group(&self) -> MultiLock<'_> {
        MultiLock::of([
            (&self.living as &dyn RedLock, "a"),
            (&self.dying, "b"),
            (&self.local, "c"),
            (&self.living, "d"),
        ])
    }

    /// A call whose time is up has it freed in the background.
    fn assert_rest_free(&self) {
        eventually(SOON, "what was taken is given back", || self.servers[0].ask::<i64>(&["DBSIZE"]) == 0);
        assert!(!self.local.is_locked("c").unwrap());
        assert!(elsewhere(|| self.living.try_lock("a").unwrap() && self.living.unlock("a").is_ok()));
    }
}

fn is_of_b(error: &Error) -> bool {
    error.resource() == Some("b")
}

#[test]
fn a_server_that_is_down_fails_the_group_and_nothing_is_held() {
    let mut scene = Scene::new();
    scene.servers[1].kill();
    let group = scene.group();
    let error = group.try_lock().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && is_of_b(&error), "{error}");
    scene.assert_rest_free();
    let (error, took) = timed(|| group.try_lock_for(ms(200)).unwrap_err());
    assert!(matches!(error, Error::Unavailable { .. }) && is_of_b(&error), "{error}");
    assert!(took >= ms(200) && took <= ms(200) + LATE, "{took:?}");
    scene.assert_rest_free();
    // The outage budget is ridden out, while nothing is held.
    let (error, took) = timed(|| group.lock().unwrap_err());
    assert!(matches!(error, Error::Unavailable { .. }) && is_of_b(&error), "{error}");
    assert!(took <= LONG, "{took:?}");
    scene.assert_rest_free();
    assert_eq!(group.hold_count(), 0);
}

#[test]
fn a_server_that_comes_back_is_waited_for() {
    let mut scene = Scene::new();
    let locks = ReentrantLock::new(&scene.servers[1].builder().outage_budget(LONG).build().unwrap());
    scene.servers[1].kill();
    let server = &mut scene.servers[1];
    let group = MultiLock::of([(&scene.living, "a"), (&locks, "b")]);
    scope(|scope| {
        let waiter = crate::threads::spawn_asleep(scope, || group.lock().and_then(|()| group.unlock()));
        eventually(LONG, "the other member is free", || scene.living.try_lock("a").unwrap());
        scene.living.unlock("a").unwrap();
        server.restart();
        crate::threads::finish(waiter).0.unwrap();
    });
}

/// It waits for the second member while it has the first in hand.
#[test]
fn a_strict_group_whose_server_goes_away_while_it_waits_gives_back_what_it_has() {
    let mut servers = [Server::start(), Server::start()];
    let strict = |server: &Server| {
        let builder = server.builder().outage_budget(ms(600)).response_timeout(ms(300)).strict(true);
        ReentrantLock::new(&builder.watchdog_timeout(ms(600)).build().unwrap())
    };
    let [living, dying] = servers.each_ref().map(strict);
    let other = strict(&servers[1]);
    other.lock("b").unwrap();
    let group = MultiLock::of([(&living, "a"), (&dying, "b")]);
    let [first, second] = &mut servers;
    let error = scope(|scope| {
        scope.spawn(|| {
            eventually(LONG, "it has the first in hand", || first.pttl("a") > 0);
            second.kill();
        });
        group.lock().unwrap_err()
    });
    assert!(matches!(error, Error::Unavailable { .. }) && is_of_b(&error), "{error}");
    eventually(SOON, "what was taken is given back", || servers[0].pttl("a") == -2);
    assert_eq!(group.hold_count(), 0);
    servers[0].clear();
}

#[test]
fn a_stopped_server_does_not_make_a_wait_late() {
    let scene = Scene::with(Duration::from_secs(2));
    let group = scene.group();
    group.guard().unwrap().unlock().unwrap();
    scene.servers[1].freeze();
    let (result, took) = timed(|| group.try_lock_for(ms(150)));
    assert!(result.is_err(), "{result:?}");
    assert!(took <= ms(350) + LATE, "{took:?}");
    scene.assert_rest_free();
    scene.servers[1].thaw();
    eventually(LONG, "what it executed late is swept", || scene.servers[1].pttl("b") == -2);
    group.guard().unwrap().unlock().unwrap();
}

#[test]
fn a_release_goes_on_past_a_server_that_is_down() {
    let mut scene = Scene::new();
    scene.group().lock().unwrap();
    scene.servers[1].kill();
    let error = scene.group().unlock().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) && is_of_b(&error), "{error}");
    assert_eq!(scene.group().hold_count(), 0);
    scene.assert_rest_free();
}

#[test]
fn a_guard_is_dropped_past_a_server_that_is_stopped() {
    let scene = Scene::new();
    let group = scene.group();
    let guard = group.guard().unwrap();
    scene.servers[1].freeze();
    let ((), took) = timed(|| drop(guard));
    assert!(took <= ms(500) + LATE, "one attempt took {took:?}");
    scene.assert_rest_free();
    scene.servers[1].thaw();
    eventually(LONG, "it is released in the background", || scene.servers[1].pttl("b") == -2);
}

#[test]
fn work_that_is_done_stays_done_when_a_release_fails() {
    let mut scene = Scene::new();
    let mut servers = std::mem::replace(&mut scene.servers, [Server::start(), Server::start()]);
    let group = scene.group();
    assert_eq!(group.execute_in_lock(|| servers[1].kill()).map(|()| 42).unwrap(), 42);
    assert!(!group.is_held_by_current_thread());
    assert_eq!(servers[0].ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
    drop(group);
    drop(scene);
}

#[test]
fn a_force_unlock_goes_on_past_a_server_that_is_down() {
    let mut scene = Scene::new();
    scene.group().lock().unwrap();
    scene.servers[1].kill();
    let error = scene.group().force_unlock().unwrap_err();
    assert!(is_of_b(&error), "{error}");
    scene.assert_rest_free();
    assert_err!(scene.group().unlock(), Lost);
    assert!(scene.group().is_locked().is_err());
}

#[test]
fn a_part_that_is_lost_before_the_group_is_whole_is_nobodys_loss() {
    let server = Server::start();
    let (locks, times) = (server.locks(), Arc::new(AtomicUsize::new(3)));
    let (forcing, left) = (locks.clone(), Arc::clone(&times));
    // The group has `a` when it asks for this one.
    let last = Wrapper::new(move |_| {
        if left.load(SeqCst) > 0 {
            left.fetch_sub(1, SeqCst);
            assert!(forcing.force_unlock("a")?);
        }
        Ok(())
    });
    let group = MultiLock::of([(&locks as &dyn RedLock, "a"), (&last, "z")]);
    group.lock().unwrap();
    assert_eq!((times.load(SeqCst), locks.client().stats().lost), (0, 0));
    // From when it is whole on, each loss is told.
    assert!(locks.force_unlock("a").unwrap());
    assert_err!(group.unlock(), Lost);
    assert_eq!(locks.client().stats().lost, 1);
}

/// The part may not be released when the group gives it back, and the background finds it lost when the call is over.
#[test]
fn a_part_whose_loss_is_found_late_is_nobodys_loss() {
    let server = Arc::new(Server::start());
    let client = Client::builder(&server.let_in("user", "pw", "~* +@all &*")).build().unwrap();
    let (locks, asked) = (ReentrantLock::new(&client), Arc::clone(&server));
    let may =
        |server: &Server, sign: &str| server.ask::<String>(&["ACL", "SETUSER", "user", &format!("{sign}evalsha")]);
    let last = Wrapper::new(move |_| {
        asked.ask::<i64>(&["DEL", "a"]);
        may(&asked, "-");
        Ok(())
    });
    while_held_elsewhere(&last.inner, "z", |_| {
        let group = MultiLock::of([(&locks as &dyn RedLock, "a"), (&last, "z")]);
        assert!(!group.try_lock().unwrap());
    });
    may(&server, "+");
    // The background tries each second.
    sleep(ms(2_500));
    assert_eq!(client.stats().lost, 0);
    assert!(locks.try_lock("a").unwrap());
    locks.unlock("a").unwrap();
}

#[test]
fn a_server_that_refuses_fails_the_group_and_nothing_is_held() {
    let scene = Scene::new();
    scene.servers[1].ask::<String>(&["SET", "b", "not a lock"]);
    for wait in [Duration::ZERO, LONG] {
        let error = scene.group().try_lock_for(wait).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }) && is_of_b(&error), "{error}");
        scene.assert_rest_free();
    }
    scene.servers[1].ask::<i64>(&["DEL", "b"]);
}

/// Locks of so many clients on a server that is stopped in the moment when the group's last member is found busy: what was
/// taken has to be given back to a server that does not answer.
fn with_a_part_at_a_stopped_server(clients: usize, act: impl FnOnce(&MultiLock<'_>)) {
    let server = Arc::new(Server::start());
    let holders: Vec<_> = (0..clients).map(|_| locks(&server, Duration::from_secs(2))).collect();
    let stopped = Arc::clone(&server);
    let busy = Wrapper::new(move |_| {
        stopped.freeze();
        Ok(())
    });
    while_held_elsewhere(&busy.inner, "z", |_| {
        let parts = holders.iter().enumerate().map(|(at, locks)| (locks as &dyn RedLock, format!("a{at}")));
        act(&parts.chain([(&busy as &dyn RedLock, "z".to_owned())]).collect());
    });
    server.thaw();
    eventually(LONG, "it is freed in the background", || server.ask::<i64>(&["DBSIZE"]) == 0);
}

#[test]
fn a_part_that_cannot_be_given_back_does_not_outlast_the_wait() {
    for clients in [1, 3] {
        with_a_part_at_a_stopped_server(clients, |group| {
            let (got, took) = timed(|| group.try_lock_for(ms(100)));
            assert!(!got.unwrap() && took <= ms(100) + LATE, "{clients} clients: {took:?}");
        });
    }
}

#[test]
fn a_part_that_cannot_be_given_back_costs_a_try_one_answer() {
    with_a_part_at_a_stopped_server(3, |group| {
        let (got, took) = timed(|| group.try_lock());
        assert!(!got.unwrap() && took <= Duration::from_secs(2) + LATE, "{took:?}");
    });
}

/// Each client has its own time-out, and they must not add up.
#[test]
fn a_release_at_stopped_servers_takes_the_time_of_one() {
    let server = Server::start();
    let holders: Vec<_> = (0..4).map(|_| locks(&server, ms(500))).collect();
    let group = MultiLock::of(holders.iter().enumerate().map(|(at, locks)| (locks, format!("a{at}"))));
    let guard = group.guard().unwrap();
    group.lock().unwrap();
    server.freeze();
    let (released, took) = timed(|| group.unlock());
    assert!(released.is_ok() && took <= ms(600) + LATE, "inner levels: {took:?}");
    let ((), took) = timed(|| drop(guard));
    assert!(took <= ms(500) + LATE, "a drop: {took:?}");
    server.thaw();
    eventually(LONG, "it is freed in the background", || server.ask::<i64>(&["DBSIZE"]) == 0);
    group.lock().unwrap();
    server.freeze();
    let (released, took) = timed(|| group.unlock());
    assert!(released.is_err_and(|error| error.is_retryable()) && took <= ms(600) + LATE, "an unlock: {took:?}");
    server.thaw();
    eventually(LONG, "it is freed in the background", || server.ask::<i64>(&["DBSIZE"]) == 0);
}

/// Whichever member is released first, and whatever becomes of the other.
#[test]
fn work_of_a_group_that_lost_a_member_is_told_so_also_past_a_stopped_server() {
    for lost in ["a", "z"] {
        let servers = [Server::start(), Server::start()];
        let [one, other] = servers.each_ref().map(|server| locks(server, ms(300)));
        let group = MultiLock::of([(&one, lost), (&other, "m")]);
        let worked = group.execute_in_lock(|| {
            servers[0].ask::<i64>(&["DEL", lost]);
            servers[1].freeze();
        });
        servers[1].thaw();
        assert!(worked.is_err_and(|error| error.work_ran()), "{lost}");
        eventually(LONG, "it is freed in the background", || servers[1].ask::<i64>(&["DBSIZE"]) == 0);
    }
}

/// Leases are over before all members are taken, then a member is held for longer than the budget, and then leases are over once more.
#[test]
fn a_group_that_waited_for_long_survives_leases_that_end_too_soon() {
    let servers = [Server::start(), Server::start()];
    let proxy = Proxy::new(servers[1].socket());
    let client = |builder: ClientBuilder| ReentrantLock::new(&builder.outage_budget(2 * SOON).build().unwrap());
    let (near, far) = (client(servers[0].builder()), client(Client::builder(&proxy.url())));
    let group = MultiLock::of([(&near, "a"), (&far, "b"), (&far, "c"), (&far, "d")]);
    let slow = || {
        proxy.delay(ms(60));
        sleep(ms(300));
    };
    scope(|scope| {
        scope.spawn(|| {
            slow();
            let direct = servers[1].locks();
            direct.lock("b").unwrap();
            proxy.clear();
            sleep(2 * SOON + ms(300));
            proxy.delay(ms(60));
            direct.unlock("b").unwrap();
            slow();
            proxy.clear();
        });
        group.lock_with_lease(ms(150)).unwrap();
    });
    // Its lease may be over by now.
    let _ = group.unlock();
}
