//! Rows 156 to 158: releases of groups of which a part is answered, releases during stalls and starts, and refused ones.

use crate::doubts::{Case, Kind, Way, hold_all, of_all_kinds, pair_if_group, rounds};
use crate::proxy::{Flow, Proxy, pass, pass_after, runs};
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, ms};
use harness::cluster::{self, Cluster};
use harness::sentinel::{self, Group};
use redlatch::{Client, Error, FencedLock, Hold, MultiLock, RedLock, ReentrantLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Two names for a group, of which other kinds use the first.
fn names(kind: Kind) -> Vec<String> {
    vec![format!("{kind:?}"), format!("{kind:?}2")]
}

/// A group of two locks at two nodes of a cluster.
fn group_at(cluster: &Cluster, way: Way) -> Case {
    let names = [0, 1].map(|node| cluster.name_at(node, way as usize));
    Case::of(Kind::Group, way, cluster.builder(), names.into())
}

#[test]
fn fault_156_a_member_that_one_node_misses_is_told_though_the_other_node_stalls() {
    let cluster = Cluster::of(cluster::Shape::STEADY);
    for way in Way::ALL {
        for _ in 0..rounds(1) {
            let case = group_at(&cluster, way);
            case.prepare();
            scope(|scope| {
                let ended = case.turn(way, |holds| {
                    let _: i64 = cluster.nodes[0].ask(&["DEL", holds[0].resource()]);
                    cluster.nodes[1].freeze();
                    scope.spawn(|| {
                        sleep(ms(2_600));
                        cluster.nodes[1].thaw();
                    });
                });
                let says = matches!(ended, Err(Error::Lost { .. } | Error::Unprotected { .. }));
                assert!(says == way.has_result(), "{way:?}: {ended:?}");
            });
            eventually(LONG, "the callback is told", || case.told() == (1, 1));
        }
    }
}

/// The lease ends while the other node is asked. Which of them is asked first nobody says.
#[test]
fn fault_156_what_a_node_has_said_in_time_counts_however_long_the_other_one_takes() {
    let cluster = Cluster::of(cluster::Shape::STEADY);
    let client = cluster.builder().build().unwrap();
    let locks = ReentrantLock::new(&client);
    let told = [[0, 1], [1, 0]].map(|[gone, stalls]| {
        let names = [0, 1].map(|node| cluster.name_at(node, gone));
        let group = MultiLock::of(names.clone().map(|name| (&locks, name)));
        let guard = group.request().lease(ms(1_000)).guard().unwrap().unwrap();
        let _: i64 = cluster.nodes[gone].ask(&["DEL", &names[gone]]);
        cluster.nodes[stalls].freeze();
        let ended = guard.unlock();
        cluster.nodes[stalls].thaw();
        matches!(ended, Err(Error::Lost { .. }))
    });
    assert!(told.contains(&true), "{told:?}");
}

/// One node does not serve the slot for a while.
#[test]
fn fault_156_what_a_node_does_not_serve_for_a_while_is_released_later() {
    let cluster = Cluster::of(cluster::Shape::STEADY.partial());
    for way in [Way::Unlock, Way::Guard, Way::Closure] {
        for _ in 0..rounds(1) {
            let case = group_at(&cluster, way);
            case.prepare();
            scope(|scope| {
                let ended = case.turn(way, |holds| {
                    let slot = cluster::slot_of(holds[1].resource()).to_string();
                    cluster.nodes[1].ask::<String>(&["CLUSTER", "DELSLOTS", &slot]);
                    scope.spawn({
                        let node = &cluster.nodes[1];
                        move || {
                            sleep(ms(600));
                            node.ask::<String>(&["CLUSTER", "ADDSLOTS", &slot]);
                        }
                    });
                });
                assert!(ended.is_ok() && case.told() == (0, 0), "{way:?}: {ended:?}");
            });
        }
    }
}

/// It begins while the holds are valid. Whether the node finds them or not when it comes, nothing was lost.
#[test]
fn fault_156_a_lease_that_ends_while_its_release_travels_is_no_loss() {
    let (server, lease) = (Server::start(), ms(400));
    let proxy = Proxy::new(server.socket());
    for kind in [Kind::Plain, Kind::Read, Kind::Leased, Kind::Group] {
        let mut case = Case::of(kind, Way::Unlock, Client::builder(&proxy.url()), names(kind));
        case.prepare();
        case.lease = lease;
        for delay in [360, 392, 396, 400, 405, 420].into_iter().cycle().take(6 * rounds(1)) {
            let ended = case.turn(Way::Unlock, |holds| {
                let end = Instant::now() + ms(delay);
                proxy.set(move |_, flow, data| match flow {
                    Flow::Request => pass_after(end.saturating_duration_since(Instant::now()), data),
                    Flow::Reply => pass(data),
                });
                assert!(holds.iter().all(Hold::is_valid));
            });
            proxy.clear();
            assert!(ended.is_ok() && case.told() == (0, 0), "{kind:?} after {delay} ms: {ended:?}");
        }
    }
}

/// Each member has the whole time, and not a part of it that is shorter than a fail-over: together, and one by one.
#[test]
fn fault_156_a_group_of_eight_is_released_though_its_master_is_replaced() {
    for round in 0..2 * rounds(1) {
        let mut group = Group::of(sentinel::Shape::SMALL);
        let client = group.builder().build().unwrap();
        let locks: &dyn RedLock = if round % 2 == 0 { &ReentrantLock::new(&client) } else { &FencedLock::new(&client) };
        let all = MultiLock::of((0..8).map(|number| (locks, format!("n{number}"))));
        all.lock().unwrap();
        group.replicated(0);
        group.nodes[0].kill();
        let unlocked = all.unlock();
        assert!(unlocked.is_ok() && client.stats().lost == 0, "{unlocked:?}");
    }
}

/// The share of a server is shorter than an answer may take. One request is lost, and the server is asked again.
#[test]
fn fault_156_a_request_of_a_group_that_is_lost_is_no_error_though_the_time_is_short() {
    let servers = [Server::start(), Server::start()];
    let proxies = servers.each_ref().map(|server| Proxy::new(server.socket()));
    let [one, other] = proxies.each_ref().map(|proxy| {
        let builder = Client::builder(&proxy.url()).response_timeout(ms(1_000)).outage_budget(ms(1_800));
        ReentrantLock::new(&builder.build().unwrap())
    });
    let group = MultiLock::of([(&one, "n"), (&other, "m")]);
    for proxy in &proxies {
        group.lock().unwrap();
        let (is_release, mut is_lost) = (runs("release"), false);
        proxy.set(move |_, flow, data| {
            let loses = is_release(flow, data) && !std::mem::replace(&mut is_lost, true);
            if loses { vec![] } else { pass(data) }
        });
        let unlocked = group.unlock();
        proxy.clear();
        assert!(unlocked.is_ok(), "{unlocked:?}");
    }
}

/// How long nothing is answered.
const STALL: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
enum Stall {
    /// The server's process is stopped.
    Stopped,
    /// `CLIENT PAUSE`.
    Paused,
    /// From the message that gave the lock on: renewals are executed, but not answered. Releases do not arrive.
    AtTheGift,
}

/// A way to the server that stalls, once it is armed, when it has told somebody of a gift.
fn stalls_at_the_gift(server: &Server, armed: &Arc<AtomicBool>) -> Proxy {
    let (proxy, armed) = (Proxy::new(server.socket()), Arc::clone(armed));
    let (releases, mut given) = (["release", "release_in_turn"].map(runs), None);
    proxy.set(move |_, flow, data| {
        let left = given.map_or(Duration::ZERO, |given: Instant| STALL.saturating_sub(given.elapsed()));
        if armed.load(SeqCst) && given.is_none() && String::from_utf8_lossy(data).contains(" given") {
            given = Some(Instant::now());
        }
        let is_release = releases.iter().any(|is_release| is_release(flow, data));
        match flow {
            Flow::Request if is_release && !left.is_zero() => vec![],
            Flow::Request => pass(data),
            Flow::Reply => pass_after(left, data),
        }
    });
    proxy
}

/// A hold that was handed over has 1.5 s at most. Clients hand over after a first contention.
#[test]
fn fault_157_work_after_a_hand_over_is_released_during_a_stall() {
    let (server, mut done) = (&Server::start(), 0);
    let stalls = [Stall::Stopped, Stall::Paused, Stall::AtTheGift];
    let all = stalls.into_iter().flat_map(|stall| [1, 20, 100].map(|work| (work, stall))).cycle();
    for (work, stall) in all.take(9 * rounds(1)) {
        let armed = Arc::<AtomicBool>::default();
        let proxy = stalls_at_the_gift(server, &armed);
        let url = if matches!(stall, Stall::AtTheGift) { proxy.url() } else { server.url() };
        let (giver, taker) = (server.locks(), ReentrantLock::connect(&url).unwrap());
        for is_stalled in [false, true] {
            armed.store(is_stalled, SeqCst);
            giver.lock("n").unwrap();
            scope(|scope| {
                let taking = scope.spawn(|| {
                    taker.lock("n").unwrap();
                    let hold = taker.hold("n").unwrap();
                    match stall {
                        _ if !is_stalled => {}
                        Stall::Stopped => server.freeze(),
                        Stall::Paused => server.ask(&["CLIENT", "PAUSE", "2000"]),
                        Stall::AtTheGift => {}
                    }
                    if is_stalled {
                        scope.spawn(|| {
                            sleep(STALL);
                            server.thaw();
                        });
                        sleep(ms(work));
                    }
                    let was_valid = hold.is_valid();
                    (was_valid, taker.unlock("n"), server.pttl("n"))
                });
                eventually(LONG, "it is queued", || server.ask::<i64>(&["ZCARD", "redlatch_queue:{n}"]) == 1);
                giver.unlock("n").unwrap();
                let (was_valid, unlocked, left) = finish(taking);
                let is_ok = unlocked.is_ok() && left == -2;
                assert!(is_ok || !was_valid, "{work} ms, {stall:?}: {unlocked:?}, {left} ms left");
                done += usize::from(is_stalled && was_valid);
            });
        }
    }
    println!("{done} released during a stall");
    assert!(done > 4 * rounds(1), "the machine is too late");
}

/// The server comes back with its data, and takes some time to read it.
#[test]
fn fault_157_a_release_waits_for_a_server_that_reads_its_data() {
    let mut server = Server::start_with_data();
    server.fill(8_000);
    for kind in [Kind::Plain, Kind::Group, Kind::Leased] {
        for _ in 0..rounds(1) {
            let mut case = Case::of(kind, Way::Unlock, server.builder().outage_budget(LONG), names(kind));
            case.prepare();
            case.lease = Duration::from_secs(6);
            let ended = case.turn(Way::Unlock, |_| {
                server.kill();
                server.restart_slowly(Duration::from_micros(1));
            });
            assert!(ended.is_ok() && case.told() == (0, 0), "{kind:?}: {ended:?}");
            eventually(LONG, "it is there", || server.try_ask::<String>(&["PING"]).is_ok());
        }
    }
    server.clear();
}

/// The background releases it when it may, and tells that it was lost.
#[test]
fn fault_158_a_loss_is_told_after_a_release_that_is_refused() {
    let server = Server::start();
    let url = server.let_in("app", "secret", "~* &* +@all");
    for _ in 0..rounds(1) {
        let cases = of_all_kinds(|| Client::builder(&url), pair_if_group);
        cases.iter().for_each(Case::prepare);
        let mut ended = Vec::new();
        let refuse = || {
            server.clear();
            let _: String = server.ask(&["ACL", "SETUSER", "app", "-evalsha", "-eval"]);
        };
        hold_all(&cases, &refuse, &mut ended);
        let _: String = server.ask(&["ACL", "SETUSER", "app", "+evalsha", "+eval"]);
        for (case, (ended, channels)) in cases.iter().rev().zip(ended) {
            let is_refused = matches!(&ended, Err(Error::Refused { code, .. }) if code == "NOPERM");
            let is_silent = matches!(case.way, Way::Closure | Way::Drop | Way::Panic) && ended.is_ok();
            let what = format!("{:?} by {:?}: {ended:?}", case.kind, case.way);
            assert!(is_refused || is_silent, "{what}");
            assert!(channels.iter().any(|channel| channel.recv_timeout(LONG).is_ok()), "no channel: {what}");
            eventually(LONG, &what, || case.told().0 >= 1 && case.told().1 >= 1);
        }
    }
}

/// The script itself is let through, and then not all of its commands.
#[test]
fn fault_158_a_release_whose_command_is_refused_is_no_loss() {
    let server = Server::start();
    let url = server.let_in("app", "secret", "~* &* +@all");
    for kind in [Kind::Plain, Kind::Read, Kind::Write, Kind::Leased] {
        let case = Case::of(kind, Way::Unlock, Client::builder(&url), names(kind));
        case.prepare();
        let ended = case.turn(Way::Unlock, |_| {
            let _: String = server.ask(&["ACL", "SETUSER", "app", "-del", "-zrem"]);
        });
        let _: String = server.ask(&["ACL", "SETUSER", "app", "+del", "+zrem"]);
        // The background tries again after a second.
        sleep(ms(1_200));
        let is_lost = matches!(ended, Err(Error::Lost { .. })) || case.told() != (0, 0);
        assert!(!is_lost, "{kind:?}: {ended:?}");
    }
    server.clear();
}
