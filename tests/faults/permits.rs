//! Rows 142 to 151: what may become of the permits of semaphores, and of latches.
//!
//! The poll cap is a minute where nothing but messages and the ends of leases is to serve a waiter in time.

use crate::process::{hear, tell, with_peer};
use crate::proxy::{Flow, Proxy, pass, runs};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms, spawn_asleep};
use harness::queue::MINUTE;
use harness::sentinel::{Group, Shape};
use redlatch::{Applied, Client, CountDownLatch, Error, HoldState, LeasedSemaphore, Permits, Semaphore, Terms};
use std::thread::scope;
use std::time::Duration;

/// Of leases that are to end soon.
const LEASE: Duration = Duration::from_millis(1_000);

const PLACES: &str = "redlatch_places:{n}";

fn client_at(url: &str, poll_cap: Duration) -> Client {
    Client::builder(url).poll_cap(poll_cap).watchdog_timeout(LEASE).build().unwrap()
}

fn leased_at(url: &str) -> LeasedSemaphore {
    LeasedSemaphore::new(&client_at(url, MINUTE))
}

fn counted_at(url: &str) -> Semaphore {
    Semaphore::new(&client_at(url, MINUTE))
}

fn long() -> Terms<'static> {
    Terms::new().wait(LONG)
}

/// All permits are in.
#[track_caller]
fn eventually_all_in(semaphore: &LeasedSemaphore, total: i64) {
    eventually(LONG, "all permits are back", || {
        (semaphore.available_permits("n").unwrap(), semaphore.acquired_permits("n").unwrap()) == (Some(total), Some(0))
    });
}

fn is_lost(permits: &Permits) -> bool {
    permits.hold().is_some_and(|hold| hold.state() == HoldState::Lost)
}

#[test]
fn fault_142_permits_of_a_killed_process_come_back_with_their_lease() {
    with_peer(
        |url| {
            let held = leased_at(url).acquire("n", 3, &long()).unwrap();
            tell(url, "has them");
            std::thread::sleep(LONG);
            drop(held);
        },
        |start| {
            let server = Server::start();
            let ours = leased_at(&server.url());
            ours.try_set_permits("n", 3).unwrap();
            scope(|scope| {
                let peer = start(&server);
                assert_eq!(hear(&server), "has them");
                let waiter = spawn_asleep(scope, || ours.acquire("n", 2, &long()).unwrap().unwrap());
                let killed = Mark::now();
                drop(peer);
                let (permits, when) = finish(waiter);
                assert!(when - killed <= LEASE + SOON, "it was served after {:?}", when - killed);
                permits.release().unwrap();
            });
            eventually_all_in(&ours, 3);
        },
    );
}

#[test]
fn fault_143_permits_without_a_lease_of_a_killed_process_stay_out() {
    with_peer(
        |url| {
            let held = counted_at(url).acquire("n", 2, &long()).unwrap();
            tell(url, "has them");
            std::thread::sleep(LONG);
            drop(held);
        },
        |start| {
            let server = Server::start();
            let ours = counted_at(&server.url());
            ours.try_set_permits("n", 2).unwrap();
            let peer = start(&server);
            assert_eq!(hear(&server), "has them");
            drop(peer);
            assert!(ours.acquire("n", 1, &Terms::new().wait(2 * LEASE)).unwrap().is_none());
            scope(|scope| {
                let waiter = spawn_asleep(scope, || ours.acquire("n", 2, &long()).unwrap().unwrap());
                ours.add_permits("n", 2).unwrap();
                finish(waiter).0.release().unwrap();
            });
            assert_eq!(ours.available_permits("n").unwrap(), Some(2));
        },
    );
}

#[test]
fn fault_144_a_process_that_is_killed_while_it_waits_delays_the_others_by_three_poll_caps() {
    const POLL: Duration = Duration::from_millis(500);
    with_peer(
        |url| {
            let _ = LeasedSemaphore::new(&client_at(url, POLL)).acquire("n", 2, &long());
        },
        |start| {
            let server = Server::start();
            let ours = LeasedSemaphore::new(&client_at(&server.url(), POLL));
            ours.try_set_permits("n", 2).unwrap();
            let held = ours.acquire("n", 1, &long()).unwrap().unwrap();
            let peer = start(&server);
            eventually(LONG, "it waits", || server.ask::<i64>(&["HLEN", PLACES]) == 1);
            drop(peer);
            let start = Mark::now();
            let permit = ours.acquire("n", 1, &long()).unwrap().unwrap();
            let took = start.elapsed();
            assert!(took <= 4 * POLL + SOON, "it was served after {took:?}");
            permit.release().and_then(|()| held.release()).unwrap();
            eventually_all_in(&ours, 2);
        },
    );
}

#[test]
fn fault_145_a_server_that_loses_its_data_has_no_permits_until_they_are_set_again() {
    let server = Server::start();
    let ours = leased_at(&server.url());
    ours.try_set_permits("n", 2).unwrap();
    let held = ours.acquire("n", 2, &long()).unwrap().unwrap();
    server.clear();
    assert_eq!(ours.available_permits("n").unwrap(), None);
    assert!(ours.try_acquire("n", 1).unwrap().is_none());
    scope(|scope| {
        let waiter = spawn_asleep(scope, || ours.acquire("n", 2, &long()).unwrap().unwrap());
        assert!(ours.try_set_permits("n", 2).unwrap());
        let next = finish(waiter).0;
        eventually(LEASE + LONG, "the holder is told", || is_lost(&held));
        assert!(matches!(held.release(), Err(Error::Lost { .. })));
        next.release().unwrap();
    });
    eventually_all_in(&ours, 2);
}

#[test]
fn fault_145_strict_clients_get_no_permit_of_a_server_that_lost_its_data_before_all_are_told() {
    let mut server = Server::start();
    let builder = Client::builder(&server.url()).watchdog_timeout(LEASE).strict(true);
    let ours = LeasedSemaphore::new(&builder.build().unwrap());
    ours.try_set_permits("n", 1).unwrap();
    let held = ours.acquire("n", 1, &long()).unwrap().unwrap();
    server.kill();
    server.restart();
    assert!(ours.try_set_permits("n", 1).unwrap());
    let next = ours.acquire("n", 1, &long()).unwrap().unwrap();
    assert!(!held.hold().unwrap().is_valid(), "two believe");
    drop(held);
    next.release().unwrap();
    eventually_all_in(&ours, 1);
    server.clear();
}

#[test]
fn fault_146_without_memory_permits_are_renewed_and_go_back_and_none_goes_out() {
    let server = Server::start();
    let (leased, counted) = (leased_at(&server.url()), counted_at(&server.url()));
    leased.try_set_permits("n", 2).unwrap();
    counted.try_set_permits("m", 2).unwrap();
    let (one, other) = (leased.try_acquire("n", 1).unwrap().unwrap(), counted.try_acquire("m", 1).unwrap().unwrap());
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused =
        |error: Error| assert!(error.applied() == Applied::No && error.to_string().contains("OOM"), "{error}");
    refused(leased.try_acquire("n", 1).unwrap_err());
    refused(counted.try_acquire("m", 1).unwrap_err());
    std::thread::sleep(2 * LEASE);
    assert_eq!(one.hold().unwrap().state(), HoldState::Held);
    one.release().unwrap();
    other.release().unwrap();
    assert_eq!(counted.available_permits("m").unwrap(), Some(2));
    eventually_all_in(&leased, 2);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
}

#[test]
fn fault_147_without_rights_for_places_permits_are_given_in_no_order() {
    let server = Server::start();
    let url = server.let_in("user", "pw", "~n ~{n}:timeout ~redlatch_op:* +@all &*");
    let (leased, counted) = (leased_at(&url), counted_at(&url));
    leased.try_set_permits("n", 1).unwrap();
    let permit = leased.acquire("n", 1, &long()).unwrap().unwrap();
    scope(|scope| {
        let waiter = spawn_asleep(scope, || leased.acquire("n", 1, &long()).unwrap().unwrap());
        permit.release().unwrap();
        finish(waiter).0.release().unwrap();
    });
    eventually_all_in(&leased, 1);
    server.clear();
    counted.try_set_permits("n", 1).unwrap();
    counted.acquire("n", 1, &long()).unwrap().unwrap().release().unwrap();
    assert_eq!(counted.available_permits("n").unwrap(), Some(1));
}

#[test]
fn fault_148_a_latch_whose_party_died_expires_for_all_that_wait() {
    with_peer(
        |url| {
            tell(url, "is there");
            std::thread::sleep(LONG);
        },
        |start| {
            let server = Server::start();
            let latches = CountDownLatch::new(&client_at(&server.url(), MINUTE));
            let time = 2 * LEASE;
            latches.try_set_count("n", 2, Some(time)).unwrap();
            let set = Mark::now();
            let peer = start(&server);
            assert_eq!(hear(&server), "is there");
            latches.count_down("n").unwrap();
            drop(peer);
            let waited = latches.wait("n", &long());
            assert!(matches!(waited, Err(Error::Expired { .. })), "{waited:?}");
            let took = set.elapsed();
            assert!(took >= time - ms(10) && took <= time + SOON, "it expired after {took:?}");
        },
    );
}

fn builder_of(group: &Group) -> redlatch::ClientBuilder {
    group.builder().watchdog_timeout(3 * LEASE).outage_budget(LONG)
}

/// What is done while the master tells its replica nothing is forgotten.
fn forgotten(group: &mut Group, act: impl FnOnce()) {
    group.replicated(0);
    group.sever(0);
    act();
    group.nodes[0].kill();
    group.replaced(0);
}

#[test]
fn fault_149_leased_permits_are_all_there_again_one_lease_after_a_failover() {
    let mut group = Group::of(Shape::SMALL);
    let ours = LeasedSemaphore::new(&builder_of(&group).build().unwrap());
    ours.try_set_permits("n", 2).unwrap();
    let came_back = ours.acquire("n", 1, &long()).unwrap().unwrap();
    let mut went_out = None;
    forgotten(&mut group, || {
        came_back.release().unwrap();
        went_out = ours.acquire("n", 1, &long()).unwrap();
    });
    let went_out = went_out.unwrap();
    eventually(LONG, "the holder is told", || is_lost(&went_out));
    drop(went_out);
    eventually_all_in(&ours, 2);
}

#[test]
fn fault_150_a_permit_whose_return_a_failover_forgot_stays_out() {
    let mut group = Group::of(Shape::SMALL);
    let ours = Semaphore::new(&builder_of(&group).build().unwrap());
    ours.try_set_permits("n", 2).unwrap();
    let permit = ours.acquire("n", 1, &long()).unwrap().unwrap();
    forgotten(&mut group, || permit.release().unwrap());
    eventually(LONG, "the new master answers", || ours.available_permits("n").is_ok_and(|left| left == Some(1)));
    assert!(ours.acquire("n", 2, &Terms::new().wait(LEASE)).unwrap().is_none());
    ours.add_permits("n", 1).unwrap();
    ours.acquire("n", 2, &long()).unwrap().unwrap().release().unwrap();
}

/// A client whose calls give up soon.
fn hasty_at(url: &str) -> Semaphore {
    let builder = Client::builder(url).watchdog_timeout(LEASE).outage_budget(LEASE / 2).response_timeout(LEASE / 4);
    Semaphore::new(&builder.build().unwrap())
}

/// `right`: without which the script is refused, or one of its steps.
fn assert_all_in_after_a_refusal(right: &str) {
    let server = Server::start();
    let ours = hasty_at(&server.let_in("user", "pw", "~* +@all &*"));
    ours.try_set_permits("n", 3).unwrap();
    let (released, dropped) = (ours.try_acquire("n", 1).unwrap().unwrap(), ours.try_acquire("n", 2).unwrap().unwrap());
    let may = |sign: &str| server.ask::<String>(&["ACL", "SETUSER", "user", &format!("{sign}{right}")]);
    may("-");
    let refused = released.release().unwrap_err();
    assert!(refused.to_string().contains("NOPERM"), "{right}: {refused}");
    drop(dropped);
    std::thread::sleep(2 * LEASE);
    may("+");
    eventually(LONG, "all permits are in", || ours.available_permits("n").unwrap() >= Some(3));
    std::thread::sleep(2 * LEASE);
    assert_eq!(ours.available_permits("n").unwrap(), Some(3), "{right}: a permit was given back twice");
}

#[test]
fn fault_151_permits_whose_return_was_refused_are_in_when_the_right_is_there_again() {
    scope(|scope| {
        for right in ["evalsha", "pexpire", "set", "incrby"] {
            scope.spawn(|| assert_all_in_after_a_refusal(right));
        }
    });
}

#[test]
fn fault_151_permits_whose_return_was_not_answered_are_in_after_the_outage() {
    let server = Server::start();
    let ours = hasty_at(&server.url());
    ours.try_set_permits("n", 3).unwrap();
    let (released, dropped) = (ours.try_acquire("n", 1).unwrap().unwrap(), ours.try_acquire("n", 2).unwrap().unwrap());
    server.freeze();
    assert!(released.release().is_err());
    drop(dropped);
    std::thread::sleep(2 * LEASE);
    server.thaw();
    eventually(LONG, "all permits are in", || ours.available_permits("n").is_ok_and(|left| left == Some(3)));
    std::thread::sleep(2 * LEASE);
    assert_eq!(ours.available_permits("n").unwrap(), Some(3), "a permit was given back twice");
}

#[test]
fn fault_151_a_shutdown_waits_for_permits_that_are_still_to_go_back() {
    let server = Server::start();
    let url = server.let_in("user", "pw", "~* +@all &*");
    let ours = Semaphore::new(&Client::connect(&url).unwrap());
    ours.try_set_permits("n", 1).unwrap();
    let permit = ours.try_acquire("n", 1).unwrap().unwrap();
    let may = |scripts: &str| server.ask::<String>(&["ACL", "SETUSER", "user", &format!("{scripts}evalsha")]);
    may("-");
    permit.release().unwrap_err();
    scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(LEASE / 2);
            may("+");
        });
        ours.client().shutdown();
    });
    assert_eq!(server.ask::<String>(&["GET", "n"]), "1");
}

/// Its result is forgotten by then: a repetition would give the permit back twice.
#[test]
fn fault_151_a_return_whose_process_was_stopped_for_long_is_not_repeated() {
    const WITHIN: Duration = Duration::from_millis(100);
    const WAY: &str = "it:way";
    with_peer(
        |url| {
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            let way = redis::cmd("BLPOP").arg(WAY).arg(20).query::<(String, String)>(&mut connection).unwrap().1;
            let ours = Client::builder(&way).outage_budget(WITHIN).response_timeout(WITHIN).build().unwrap();
            let permit = Semaphore::new(&ours).acquire("n", 1, &long()).unwrap().unwrap();
            tell(url, "has it");
            let _ = permit.release();
            tell(url, "goes on");
            std::thread::sleep(LONG);
        },
        |start| {
            let server = Server::start();
            let ours = counted_at(&server.url());
            // So the server knows the script.
            ours.add_permits("n", 1).unwrap();
            let peer = start(&server);
            let (proxy, (sender, returned)) = (Proxy::new(server.socket()), crossbeam_channel::bounded(1));
            let returns = runs("semaphore/add");
            let mut is_out = false;
            proxy.set(move |_, flow, data| {
                is_out |= returns(flow, data);
                if is_out && flow == Flow::Reply {
                    let _ = sender.try_send(());
                    return Vec::new();
                }
                pass(data)
            });
            server.ask::<i64>(&["RPUSH", WAY, &proxy.url()]);
            assert_eq!(hear(&server), "has it");
            returned.recv_timeout(LONG).unwrap();
            peer.freeze();
            proxy.clear();
            // Results are kept for twelve times as long, and a second.
            std::thread::sleep(12 * WITHIN + ms(1_500));
            peer.thaw();
            assert_eq!(hear(&server), "goes on");
            std::thread::sleep(2 * LEASE);
            assert_eq!(ours.available_permits("n").unwrap(), Some(1), "it was given back twice");
        },
    );
}

#[test]
fn fault_151_a_shutdown_waits_for_a_return_that_is_under_way() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let builder = Client::builder(&proxy.url()).response_timeout(ms(300));
    let ours = Semaphore::new(&builder.build().unwrap());
    ours.add_permits("n", 1).unwrap();
    let permit = ours.try_acquire("n", 1).unwrap().unwrap();
    let (returns, (sender, is_out)) = (runs("semaphore/add"), crossbeam_channel::bounded(1));
    // The first attempt never arrives.
    proxy.set(move |_, flow, data| {
        let is_first = returns(flow, data) && sender.try_send(()).is_ok();
        if is_first { Vec::new() } else { pass(data) }
    });
    scope(|scope| {
        let returned = scope.spawn(|| permit.release());
        is_out.recv_timeout(LONG).unwrap();
        ours.client().shutdown();
        assert_eq!(server.ask::<String>(&["GET", "n"]), "1");
        assert!(returned.join().unwrap().is_err(), "it was not answered");
    });
}
