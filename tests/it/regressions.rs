//! What an attempt to break the lock found once: slow, late and lost answers, mostly.

use crate::proxy::{Flow, Gate, Proxy, Step, pass, pass_after, runs};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, answered, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{Client, ClientBuilder, Error, HandOff, LocalRedLock, RedLock, RedLockExt, ReentrantLock};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// The locks of a client behind the proxy, once the server knows every script.
fn locks(proxy: &Proxy) -> ReentrantLock {
    locks_of(Client::builder(&proxy.url()))
}

fn locks_of(builder: ClientBuilder) -> ReentrantLock {
    let locks = ReentrantLock::new(&builder.build().unwrap());
    locks.lock("warm").unwrap();
    locks.lock("warm").unwrap();
    locks.hold("warm").unwrap().extend(MINUTE).unwrap();
    locks.unlock("warm").unwrap();
    locks.unlock("warm").unwrap();
    locks.force_unlock("warm").unwrap();
    locks
}

/// That the client gives back what its calls may have left, long before the lease is over.
#[track_caller]
fn assert_swept(server: &Server, name: &str) {
    eventually(LONG, "what may have been applied is swept", || server.pttl(name) == -2);
}

/// A call of the subscriber that it read among the replies to its own commands was lost, and channels with it.
#[test]
fn a_subscriber_called_while_it_subscribes_misses_no_channel() {
    let server = Server::start();
    let (holder, other) = (server.locks(), server.locks());
    let names: Vec<_> = (0..60).map(|number| format!("n{number}")).collect();
    let subscribed = |name: &String| server.subscribers(&format!("redisson_lock__channel:{{{name}}}")) == 1;
    for name in &names {
        holder.lock(name).unwrap();
    }
    holder.lock("first").unwrap();
    assert!(!answered(|| other.try_lock_for("first", ms(50))).0);
    std::thread::scope(|scope| {
        for name in &names {
            let other = &other;
            scope.spawn(move || {
                other.lock(name).unwrap();
                other.unlock(name).unwrap();
            });
        }
        // Well before the next poll of any of them, which would subscribe again.
        let start = Mark::now();
        while !names.iter().all(subscribed) && start.elapsed() <= 3 * SOON {
            sleep(ms(1));
        }
        let missed = names.iter().filter(|name| !subscribed(name)).count();
        for name in &names {
            holder.unlock(name).unwrap();
        }
        assert_eq!(missed, 0);
    });
    holder.unlock("first").unwrap();
}

/// A wait shorter than an answer takes came back after several answers.
#[test]
fn a_short_wait_at_a_slow_server_is_not_late() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (locks, direct) = (locks(&proxy), server.locks());
    for name in ["n", "m"] {
        direct.lock(name).unwrap();
        proxy.delay(ms(180));
        let (result, took) = timed(|| locks.try_lock_for(name, ms(10)));
        assert!(took <= ms(10) + LATE, "{took:?} for {result:?}");
        proxy.clear();
        direct.unlock(name).unwrap();
    }
}

/// An acquisition whose lease was over when its answer came was released beyond the end of the wait.
#[test]
fn a_wait_is_not_late_for_giving_back_what_came_too_late() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    let releases = runs("release");
    let mut dead = None;
    proxy.set(move |connection, flow, data| {
        if releases(flow, data) {
            dead = Some(connection);
            return Vec::new();
        }
        if flow == Flow::Reply && dead != Some(connection) { pass_after(ms(80), data) } else { pass(data) }
    });
    let (result, took) = timed(|| locks.try_lock_for_with_lease("n", ms(100), ms(50)));
    assert!(took <= ms(100) + LATE, "{took:?} for {result:?}");
    assert!(!matches!(result, Ok(true)));
}

/// A hold that was lost to a late answer left the long lease on the server if its one release was cut.
#[test]
fn an_extension_answered_after_the_loss_leaves_no_long_lease() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks(&proxy);
    locks.lock_with_lease("n", ms(100)).unwrap();
    let hold = locks.hold("n").unwrap();
    proxy.delay(ms(150));
    let extended = hold.extend(Duration::from_secs(3_600));
    assert!(extended.is_err() && !hold.is_valid(), "{extended:?}, {hold:?}");
    let releases = runs("release");
    let mut cut = false;
    proxy.set(move |_, flow, data| {
        if cut || !releases(flow, data) {
            return pass(data);
        }
        cut = true;
        vec![Step::Cut]
    });
    assert_err!(locks.unlock("n"), Lost);
    assert_swept(&server, "n");
}

/// What an acquisition left that was under way during a shutdown stayed until its lease was over.
#[test]
fn a_shutdown_during_an_acquisition_leaves_no_lease() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).response_timeout(ms(300)));
    let acquires = runs("acquire");
    let mut dead = None;
    proxy.set(move |connection, flow, data| {
        if acquires(flow, data) {
            dead = Some(connection);
        }
        if flow == Flow::Reply && dead == Some(connection) { Vec::new() } else { pass(data) }
    });
    std::thread::scope(|scope| {
        let acquiring = scope.spawn(|| locks.lock("n"));
        eventually(LONG, "it is applied", || server.pttl("n") > 0);
        locks.client().shutdown();
        assert!(finish(acquiring).is_err());
    });
    proxy.clear();
    assert_swept(&server, "n");
}

/// A shutdown waited for one time-out per hold.
#[test]
fn a_shutdown_of_many_holds_at_a_stopped_server_is_bounded() {
    let server = Server::start();
    let client = server.builder().response_timeout(ms(300)).connect_timeout(ms(300)).build().unwrap();
    let locks = ReentrantLock::new(&client);
    for number in 0..20 {
        locks.lock(&format!("n{number}")).unwrap();
    }
    server.freeze();
    let ((), took) = timed(|| client.shutdown());
    server.thaw();
    server.clear();
    assert!(took <= ms(1_500), "{took:?}");
}

/// A holder went on believing after a force unlock of its own client that nobody saw answered.
#[test]
fn a_force_unlock_without_an_answer_ends_the_belief() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).response_timeout(ms(300)).outage_budget(ms(500)));
    locks.lock_with_lease("n", MINUTE).unwrap();
    let hold = locks.hold("n").unwrap();
    let forces = runs("force_unlock");
    let mut asked = Vec::new();
    proxy.set(move |connection, flow, data| {
        if forces(flow, data) {
            asked.push(connection);
        }
        if flow == Flow::Reply && asked.contains(&connection) { vec![Step::Cut] } else { pass(data) }
    });
    let forced = locks.force_unlock("n");
    proxy.clear();
    let other = server.locks();
    assert!(other.try_lock("n").unwrap(), "{forced:?}");
    assert!(!hold.is_valid(), "{forced:?}, {hold:?}");
    other.unlock("n").unwrap();
    assert!(locks.unlock("n").is_err());
}

/// An acquirer believed an answer that a force unlock of its own client had overtaken.
#[test]
fn a_force_unlock_overtakes_the_answer_to_an_acquisition() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (locks, other, gate) = (locks(&proxy), server.locks(), Gate::default());
    let (acquires, held) = (runs("acquire"), gate.clone());
    let mut slow = None;
    proxy.set(move |connection, flow, data| {
        if slow.is_none() && acquires(flow, data) {
            slow = Some(connection);
        }
        let is_held = flow == Flow::Reply && slow == Some(connection);
        if is_held { vec![Step::Hold(held.clone()), Step::Send(data.to_vec())] } else { pass(data) }
    });
    let other_believes = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let acquiring = scope.spawn(|| {
            locks.lock_with_lease("n", MINUTE).unwrap();
            let both = locks.hold("n").unwrap().is_valid() && other_believes.load(SeqCst);
            locks.unlock("n").unwrap();
            both
        });
        eventually(LONG, "it is applied", || server.pttl("n") > 0);
        assert!(locks.force_unlock("n").unwrap());
        assert!(other.try_lock("n").unwrap());
        other_believes.store(true, SeqCst);
        gate.open();
        sleep(ms(500));
        other_believes.store(false, SeqCst);
        other.unlock("n").unwrap();
        assert!(!finish(acquiring), "both believed");
    });
}

/// A thread that had acquired the lock after a force unlock of its client, and before that call was told, was told that it had lost it.
#[test]
fn a_lock_that_is_acquired_before_the_force_unlock_is_told_is_kept() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    // However late the gate opens, the force unlock is sent once.
    let locks = locks_of(Client::builder(&proxy.url()).watchdog_timeout(MINUTE).response_timeout(LONG));
    let (other, gate) = (server.locks(), Gate::default());
    other.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiting = spawn_asleep(scope, || locks.lock_with_lease("n", MINUTE).map(|()| locks.hold("n").unwrap()));
        let (forces, held, mut slow) = (runs("force_unlock"), gate.clone(), None);
        proxy.set(move |connection, flow, data| {
            if slow.is_none() && forces(flow, data) {
                slow = Some(connection);
            }
            let is_held = flow == Flow::Reply && slow == Some(connection);
            if is_held { vec![Step::Hold(held.clone()), Step::Send(data.to_vec())] } else { pass(data) }
        });
        let forcing = scope.spawn(|| locks.force_unlock("n").unwrap());
        let hold = finish(waiting).0.unwrap();
        assert!(!forcing.is_finished() && hold.is_valid());
        gate.open();
        assert!(finish(forcing));
        assert!(locks.verify(&hold).unwrap() && hold.is_valid(), "{:?}", hold.state());
        assert!(server.locks().force_unlock("n").unwrap());
    });
    assert_err!(other.unlock("n"), Lost);
}

/// The forcing thread finds a hold that ended, and leaves its key to the release that is under way.
#[test]
fn a_lock_that_is_released_before_the_force_unlock_is_told_was_not_lost() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let builder = Client::builder(&proxy.url()).watchdog_timeout(MINUTE).response_timeout(LONG);
    let locks = locks_of(builder.hand_off(HandOff::off()));
    let (other, told, released) = (server.locks(), Gate::default(), Gate::default());
    other.lock("n").unwrap();
    std::thread::scope(|scope| {
        let (forces, releases, until_told, until_released) =
            (runs("force_unlock"), runs("release"), told.clone(), released.clone());
        let (is_released, mut slow, mut late) = (Arc::new(AtomicBool::new(false)), None, false);
        let seen = Arc::clone(&is_released);
        proxy.set(move |connection, flow, data| {
            if forces(flow, data) {
                slow = Some(connection);
            }
            let gate = if flow == Flow::Reply && slow == Some(connection) {
                &until_told
            } else if !late && releases(flow, data) {
                late = true;
                seen.store(true, SeqCst);
                &until_released
            } else {
                return pass(data);
            };
            vec![Step::Hold(gate.clone()), Step::Send(data.to_vec())]
        });
        let forcing = scope.spawn(|| locks.force_unlock("n").unwrap());
        eventually(LONG, "it is forced open", || server.pttl("n") == -2);
        let holding = scope.spawn(|| {
            locks.lock_with_lease("n", MINUTE).unwrap();
            locks.unlock("n")
        });
        eventually(LONG, "the release is under way", || is_released.load(SeqCst));
        told.open();
        assert!(finish(forcing));
        // Time for a release of another's.
        sleep(ms(200));
        assert!(server.pttl("n") > 0, "it was released behind the holder's back");
        released.open();
        finish(holding).unwrap();
    });
    assert_err!(other.unlock("n"), Lost);
}

/// A loss that an unlock noticed just before the timer did was told to nobody.
#[test]
fn a_loss_that_an_unlock_notices_first_is_told() {
    const LEASE: Duration = Duration::from_millis(10);
    let losses = AtomicUsize::new(0);
    let locks = LocalRedLock::new();
    let lose = |name: &str, spin: u64| {
        locks.lock_with_lease(name, LEASE).unwrap();
        let hold = locks.hold(name).unwrap();
        let told = hold.lost();
        sleep(hold.remaining().saturating_sub(ms(1)));
        let end = Instant::now() + hold.remaining() + Duration::from_micros(spin);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        if let Err(Error::Lost { .. }) = locks.unlock(name) {
            losses.fetch_add(1, SeqCst);
            told.recv_timeout(LONG).expect("the loss is told");
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let lose = &lose;
            scope.spawn(move || (0..100).for_each(|turn| lose(&format!("n{thread}"), (turn * 7 + thread * 13) % 150)));
        }
    });
    assert!(losses.load(SeqCst) > 0);
}

/// Calls in a hurry, which a slow server cannot serve, made an outage of it for the patient ones.
#[test]
fn calls_in_a_hurry_make_no_outage_for_the_others() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).outage_budget(Duration::from_secs(2)));
    let (over, unserved) = (AtomicBool::new(false), AtomicUsize::new(0));
    locks.lock_with_lease("n", MINUTE).unwrap();
    std::thread::scope(|scope| {
        let parked = spawn_asleep(scope, || locks.lock("n").and_then(|()| locks.unlock("n")));
        proxy.delay(ms(250));
        scope.spawn(|| {
            while !over.load(SeqCst) {
                // A thread that is woken later than its answer comes finds it there.
                match locks.try_lock_for("other", ms(10)) {
                    Ok(true) => locks.unlock("other").unwrap(),
                    _ => _ = unserved.fetch_add(1, SeqCst),
                }
                sleep(ms(100));
            }
        });
        sleep(Duration::from_secs(4));
        let unlocked = locks.unlock("n");
        over.store(true, SeqCst);
        let (waited, _) = finish(parked);
        assert!(unlocked.is_ok() && waited.is_ok(), "{unlocked:?}, {waited:?}");
    });
    assert!(unserved.into_inner() > 0, "the server was not slow for calls in a hurry");
    proxy.clear();
    assert_swept(&server, "other");
}

/// A request that came to the server after the shutdown, its connection long broken, left a lease.
#[test]
fn a_request_applied_after_the_shutdown_leaves_no_lease() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).response_timeout(Duration::from_secs(2)));
    let (acquires, socket) = (runs("acquire"), server.socket());
    let applied = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&applied);
    let mut late = false;
    proxy.set(move |_, flow, data| {
        if late || !acquires(flow, data) {
            return pass(data);
        }
        late = true;
        let (data, tell) = (data.to_vec(), Arc::clone(&tell));
        let mut stream = UnixStream::connect(&socket).unwrap();
        std::thread::spawn(move || {
            sleep(ms(500));
            stream.write_all(&data).unwrap();
            let _ = stream.read(&mut [0; 100]);
            tell.store(true, SeqCst);
        });
        vec![Step::Cut]
    });
    locks.lock("n").unwrap();
    locks.client().shutdown();
    eventually(LONG, "the late request is applied", || applied.load(SeqCst));
    assert_swept(&server, "n");
}

/// The repetition of a force unlock found no lock any more, and the call said that there had been none.
#[test]
fn a_force_unlock_whose_answer_was_lost_does_not_deny_what_it_did() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (locks, direct) = (locks(&proxy), server.locks());
    direct.lock("n").unwrap();
    let forces = runs("force_unlock");
    let mut asked = None;
    proxy.set(move |connection, flow, data| {
        if asked.is_none() && forces(flow, data) {
            asked = Some(connection);
        }
        if flow == Flow::Reply && asked == Some(connection) { vec![Step::Cut] } else { pass(data) }
    });
    let forced = locks.force_unlock("n");
    assert_eq!(server.pttl("n"), -2);
    assert!(!matches!(forced, Ok(false)), "{forced:?}");
    assert!(direct.unlock("n").is_err());
}

/// Extensions of other holds kept every connection of the pool, and the renewals came too late.
#[test]
fn extensions_of_others_do_not_starve_renewals() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let builder = Client::builder(&proxy.url()).watchdog_timeout(ms(1_500)).response_timeout(ms(500)).pool_size(64);
    let locks = locks_of(builder);
    proxy.delay(ms(40));
    locks.lock("held").unwrap();
    let hold = locks.hold("held").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..60 {
            let (locks, over) = (&locks, &over);
            scope.spawn(move || {
                let name = format!("n{thread}");
                locks.lock_with_lease(&name, MINUTE).unwrap();
                let hold = locks.hold(&name).unwrap();
                while !over.load(SeqCst) {
                    let _ = hold.extend(MINUTE);
                }
                locks.unlock(&name).unwrap();
            });
        }
        let lost = hold.lost().recv_timeout(Duration::from_secs(4));
        over.store(true, SeqCst);
        assert!(lost.is_err(), "{lost:?}");
    });
    locks.unlock("held").unwrap();
}

/// After an outage nothing ended it: the first call had no time to connect to a server that was far away.
#[test]
fn a_far_server_that_is_back_after_a_long_outage_is_used_again() {
    let mut server = Server::start();
    let proxy = Proxy::new(server.socket());
    proxy.delay(ms(60));
    let builder = Client::builder(&proxy.url()).outage_budget(SOON).watchdog_timeout(ms(3_000));
    let locks = ReentrantLock::new(&builder.build().unwrap());
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
    server.kill();
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        assert!(locks.lock("n").is_err());
        sleep(ms(100));
    }
    server.restart();
    eventually(Duration::from_secs(5), "the server is used again", || locks.lock("n").is_ok());
    assert!(locks.try_lock_for("m", LONG).unwrap());
    for name in ["n", "m"] {
        locks.unlock(name).unwrap();
    }
}

/// The sweep of a renewal that was answered late overtook the release under way, which was then told of a loss.
#[test]
fn a_renewal_answered_during_the_unlock_does_not_take_it_for_lost() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).watchdog_timeout(ms(3_000)));
    let (renews, releases) = (runs("renew"), runs("release"));
    let renewing = Arc::new(AtomicUsize::new(usize::MAX));
    let seen = Arc::clone(&renewing);
    let mut released = false;
    proxy.set(move |connection, flow, data| {
        if renews(flow, data) {
            seen.store(connection, SeqCst);
        }
        if releases(flow, data) && !std::mem::replace(&mut released, true) {
            return pass_after(ms(400), data);
        }
        let late = flow == Flow::Reply && seen.load(SeqCst) == connection;
        if late { pass_after(ms(200), data) } else { pass(data) }
    });
    locks.lock("n").unwrap();
    eventually(LONG, "a renewal is under way", || renewing.load(SeqCst) != usize::MAX);
    locks.unlock("n").unwrap();
}

/// An attempt that the server called stale, by a clock read over a slow way, was sent again with a patience of its own.
#[test]
fn an_attempt_that_is_sent_again_is_bounded_as_one() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let client = ReentrantLock::connect(&proxy.url()).unwrap();
    server.locks().execute_in_lock("loads the scripts", || ()).unwrap();
    proxy.delay(ms(190));
    assert!(!client.is_locked("n").unwrap());
    let (asks, mut delays) = (runs("acquire"), vec![ms(190), ms(150)]);
    proxy.set(move |_, flow, data| match delays.last() {
        Some(&by) if asks(flow, data) => pass_after(delays.pop().unwrap_or(by), data),
        _ => pass(data),
    });
    let (result, took) = timed(|| client.try_lock_for("n", ms(10)));
    println!("{result:?} after {took:?}");
    assert!(took <= ms(10) + LATE, "{took:?} for {result:?}");
    assert_swept(&server, "n");
}

/// What becomes of an unlock whose first attempt is not answered, after `meanwhile`: executed and its answer swallowed, or swallowed itself.
fn unlocked_twice(server: &Server, is_executed: bool, meanwhile: impl FnOnce() + Send) -> redlatch::Result<()> {
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).response_timeout(ms(200)).outage_budget(LONG));
    locks.lock("n").unwrap();
    let (is_release, was_sent) = (runs("release"), Arc::new(AtomicBool::new(false)));
    let (seen, gate) = (Arc::clone(&was_sent), Gate::default());
    let again = gate.clone();
    proxy.set(move |_, flow, data| match is_release(flow, data) {
        true if !seen.swap(true, SeqCst) => {
            if is_executed {
                pass(data)
            } else {
                vec![]
            }
        }
        _ if !seen.load(SeqCst) => pass(data),
        _ => vec![Step::Hold(gate.clone()), Step::Send(data.to_vec())],
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually(LONG, "it is sent", || was_sent.load(SeqCst));
            meanwhile();
            sleep(ms(300));
            again.open();
        });
        locks.unlock("n")
    })
}

fn follows(server: &Server, master: &Server) {
    let _: String = server.ask(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let says = || server.ask::<String>(&["INFO", "replication"]);
    eventually(LONG, "it follows", || says().contains("master_link_status:up"));
}

/// Before a release is repeated, its master has been a replica of a server without the lock, and is a master again: the same process, which has
/// not freed the lock.
#[test]
fn a_loss_at_a_master_that_was_a_replica_for_a_while_is_told() {
    let (server, between) = (Server::start_on_tcp(), Server::start_on_tcp());
    let unlocked = unlocked_twice(&server, false, || {
        follows(&server, &between);
        let _: String = server.ask(&["REPLICAOF", "NO", "ONE"]);
    });
    assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
}

/// A master takes a new replication id when its first replica comes. It has freed the lock all the same.
#[test]
fn a_first_replica_makes_no_loss_of_a_release() {
    let (server, replica) = (Server::start_on_tcp(), Server::start_on_tcp());
    unlocked_twice(&server, true, || follows(&replica, &server)).unwrap();
    let _: String = replica.ask(&["REPLICAOF", "NO", "ONE"]);
}
