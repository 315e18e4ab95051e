//! Rows 22 to 28 and 30: the network between client and server.

use crate::proxy::{Flow, Gate, Proxy, Step, deliver, numbers, pass, runs};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, answered, eventually, finish, ms, patiently, spawn_asleep, timed};
use crate::{hasty, locks_of};
use redlatch::{Applied, Client, ClientBuilder, Error, RedLock, RedLockExt, ReentrantLock};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// How long an answer may take here.
const ANSWER: Duration = Duration::from_millis(300);

/// A quiet subscriber asks for a sign of life this often.
const PING_EVERY: Duration = Duration::from_secs(3);

fn through(proxy: &Proxy) -> ClientBuilder {
    Client::builder(&proxy.url()).response_timeout(ANSWER)
}

#[test]
fn fault_22_a_dead_server_is_ridden_out_until_the_budget_ends() {
    let mut server = Server::start();
    let locks = hasty(&server);
    drop(patiently(|| locks.guard("n")));
    server.kill();
    let (result, took) = timed(|| locks.lock("n"));
    assert!(matches!(result, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })), "{result:?}");
    assert!(took >= ms(400) && took <= ms(500) + SOON, "took {took:?}");
    let start = Mark::now();
    assert!(locks.lock("n").is_err());
    assert!(start.elapsed() <= SOON, "the outage is known, not every call waits again");
    server.restart();
    drop(patiently(|| locks.guard("n")));
}

/// A port where nobody ever listens, a network without a route, and a name that no resolver takes.
#[test]
fn fault_22_who_cannot_be_reached_was_not_asked() {
    let nowhere = format!("{}.invalid", "x".repeat(64));
    for host in ["127.0.0.1:1".to_owned(), "255.255.255.255:6379".to_owned(), nowhere.clone()] {
        let locks = locks_of(Client::builder(&format!("redis://{host}/")).outage_budget(ms(300)));
        let (result, took) = timed(|| locks.lock("n"));
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{host}: {error:?}");
        assert_eq!((error.applied(), error.is_retryable()), (Applied::No, true), "{host}");
        assert!(took >= ms(300) && took <= ms(300) + SOON, "{host}: took {took:?}");
        let (result, took) = timed(|| locks.try_lock_for("n", ms(100)));
        assert_err!(result, Unavailable);
        // The look-up of a name is the system's, and has no bound.
        let late = if host == nowhere { SOON } else { LATE };
        assert!(took <= ms(100) + late, "{host}: took {took:?}");
    }
}

/// The proxy's resets are resets, and not only a good-bye.
#[test]
fn a_reset_is_told_as_such() {
    let server = Server::start();
    let proxy = Proxy::on_tcp(server.socket());
    for resets in [Flow::Request, Flow::Reply] {
        proxy.set(move |_, flow, data| if flow == resets { vec![Step::Reset] } else { pass(data) });
        let address = proxy.url().replace("redis://", "").replace('/', "");
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let error = stream.read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
}

/// Resets the connection of a lock and of an unlock after every so many bytes: each has its effect once.
fn reset_at_any_byte(flow: Flow, step: usize) {
    let server = Server::start();
    let proxy = Proxy::on_tcp(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()));
    let pair = || {
        locks.lock("n").unwrap();
        let hold = locks.hold("n").unwrap();
        assert!(hold.is_valid());
        assert_eq!(server.owner("n"), (hold.owner().to_owned(), 1));
        locks.unlock("n").unwrap();
        assert!(!hold.is_valid() && locks.hold_count("n") == 0);
    };
    pair();
    for script in ["acquire", "release"] {
        let (mut at, mut end) = (0, usize::MAX);
        while at <= end {
            let length = reset_once(&proxy, script, flow, at);
            pair();
            end = *length.get().expect("it was reset");
            at += step;
        }
        assert!(end > 3, "{end} bytes");
    }
    proxy.clear();
    pair();
    eventually(LONG, "no key is left", || server.pttl("n") == -2);
    assert!(locks.client().stats().reconnects >= 8);
}

/// Passes so many bytes of the next request that runs a script, or of its reply; how long that is.
fn reset_once(proxy: &Proxy, script: &str, flow: Flow, at: usize) -> Arc<OnceLock<usize>> {
    let (runs, length) = (runs(script), Arc::new(OnceLock::new()));
    let (told, mut asked) = (Arc::clone(&length), None);
    proxy.set(move |connection, way, data| {
        if asked.is_none() && runs(way, data) {
            asked = Some(connection);
        }
        if asked != Some(connection) || way != flow || told.set(data.len()).is_err() {
            return pass(data);
        }
        vec![Step::Send(data[..at.min(data.len())].to_vec()), Step::Reset]
    });
    length
}

#[test]
fn fault_23_a_reset_in_a_request_is_repeated_on_a_new_connection() {
    reset_at_any_byte(Flow::Request, 7);
}

#[test]
fn fault_24_a_reset_in_a_reply_is_repeated_on_a_new_connection() {
    reset_at_any_byte(Flow::Reply, 1);
}

#[test]
fn fault_25_an_unlock_without_an_answer_ends_the_hold_all_the_same() {
    let server = Server::start();
    let locks = hasty(&server);
    let guard = patiently(|| locks.guard("n"));
    let hold = guard.hold().clone();
    server.freeze();
    let (result, took) = timed(|| guard.unlock());
    assert!(result.is_err() && took <= ms(900) + SOON, "{result:?} took {took:?}");
    assert!(!hold.is_valid());
    assert_eq!((hold.count(), locks.hold_count("n")), (0, 0));
    server.thaw();
    eventually(LONG, "the key is gone", || server.pttl("n") == -2);
}

/// The held reply says "acquired"; whoever took it for that to the next request would believe in another's lock.
#[test]
fn fault_25_a_late_reply_is_never_taken_for_a_later_ones() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (locks, direct) = (locks_of(through(&proxy)), server.locks());
    direct.lock("other").unwrap();
    locks.force_unlock("warm").unwrap();
    let (gate, acquires, late) = (Gate::default(), runs("acquire"), Arc::new(OnceLock::new()));
    let (held, seen, asked_again) = (gate.clone(), Arc::clone(&late), Arc::new(AtomicBool::new(false)));
    let again = Arc::clone(&asked_again);
    proxy.set(move |connection, flow, data| {
        if acquires(flow, data) && seen.set(connection).is_err() && seen.get() == Some(&connection) {
            again.store(true, SeqCst);
        }
        let hold = flow == Flow::Reply && seen.get() == Some(&connection);
        if hold { vec![Step::Hold(held.clone()), Step::Send(data.to_vec())] } else { pass(data) }
    });
    // A client that is late may give up before it has sent anything.
    eventually(LONG, "it is sent", || match locks.try_lock_for("n", ms(1)) {
        Err(error) => error.applied() == Applied::Unknown,
        got => panic!("{got:?}"),
    });
    gate.open();
    for _ in 0..20 {
        assert!(!patiently(|| locks.try_lock("other")));
    }
    assert!(late.get().is_some() && !asked_again.load(SeqCst), "a connection with a reply owed was used again");
    eventually(LONG, "what was applied is swept", || server.pttl("n") == -2);
    direct.unlock("other").unwrap();
}

/// Each byte comes in time, all of them together do not. It is so for a command and when a connection is made.
#[test]
fn fault_25_an_answer_that_trickles_in_has_one_time_out() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (warm, cold) = (locks_of(through(&proxy)), locks_of(through(&proxy).connect_timeout(ANSWER)));
    drop(warm.guard("n").unwrap());
    let byte_by_byte = |byte: &u8| [Step::Sleep(ANSWER / 2), Step::Send(vec![*byte])];
    proxy.set(move |_, flow, data| match flow {
        Flow::Reply => data.iter().flat_map(byte_by_byte).collect(),
        Flow::Request => pass(data),
    });
    for (locks, applied) in [(&warm, Applied::Unknown), (&cold, Applied::No)] {
        // A client that is late may give up before it has sent anything.
        eventually(LONG, "it is sent, or cannot be", || {
            let (result, took) = timed(|| locks.try_lock_for("n", ms(100)));
            assert!(took <= ms(100) + LATE, "took {took:?}");
            result.unwrap_err().applied() == applied
        });
    }
    proxy.clear();
    eventually(LONG, "no key is left", || server.pttl("n") == -2);
}

/// From now on the connections that the proxy has are dead, though nobody hears of it; new ones are not.
fn black_hole(proxy: &Proxy, is_dead: impl Fn(usize) -> bool + Send + 'static) {
    proxy.set(move |connection, _, data| if is_dead(connection) { Vec::new() } else { pass(data) });
}

#[test]
fn fault_26_a_half_open_connection_costs_a_call_one_time_out() {
    let server = Server::start();
    let proxy = Proxy::on_tcp(server.socket());
    let locks = locks_of(through(&proxy));
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
    black_hole(&proxy, |connection| connection == 0);
    let (result, took) = timed(|| locks.lock("n"));
    result.unwrap();
    assert!(took >= ANSWER && took <= ANSWER + SOON, "took {took:?}");
    let ((), took) = timed(|| locks.unlock("n").unwrap());
    assert!(took <= ANSWER + SOON, "the dead connection is not used again: {took:?}");
    black_hole(&proxy, |_| true);
    let (result, took) = timed(|| locks.try_lock_for("n", ms(100)));
    assert!(result.unwrap_err().is_retryable());
    assert!(took <= ms(100) + LATE, "took {took:?}");
    proxy.clear();
    eventually(LONG, "no key is left", || server.pttl("n") == -2);
}

#[test]
fn fault_26_half_open_connections_do_not_cost_the_hold() {
    const LEASE: Duration = Duration::from_millis(2_400);
    let server = Server::start();
    let proxy = Proxy::on_tcp(server.socket());
    let locks = locks_of(through(&proxy).watchdog_timeout(LEASE));
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    let last = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&last);
    proxy.set(move |connection, _, data| {
        seen.fetch_max(connection, SeqCst);
        pass(data)
    });
    eventually(LONG, "it is renewed", || locks.client().stats().renewals > 0);
    let dead_up_to = last.load(SeqCst);
    black_hole(&proxy, move |connection| connection <= dead_up_to);
    let renewed = locks.client().stats().renewals;
    eventually(LONG, "it is renewed again", || locks.client().stats().renewals > renewed);
    assert!(locks.client().stats().failed_renewals > 0, "the dead connection was not used");
    assert!(hold.is_valid());
    locks.unlock("n").unwrap();
}

/// The timers of this system's connections to a port of 127.0.0.1, as `/proc/net/tcp` shows them: what runs, and
/// how long it has to go.
fn timers(port: u16) -> Vec<(String, Duration)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = lines.filter(|fields| fields[2] == format!("0100007F:{port:04X}") && fields[3] == "01");
    let timer = |fields: Vec<&str>| {
        let (what, ticks) = fields[5].split_once(':').unwrap();
        (what.to_owned(), ms(u64::from_str_radix(ticks, 16).unwrap() * 10))
    };
    ours.map(timer).collect()
}

/// Commands, renewals and messages: the system itself asks after a peer that is quiet for 5 s.
#[test]
fn fault_26_every_connection_is_kept_alive() {
    const KEEPALIVE: &str = "02";
    let server = Server::start_on_tcp();
    let url = server.tcp_url();
    let port = url.trim_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    let (locks, other) = (locks_of(Client::builder(&url).watchdog_timeout(ms(3_000))), server.locks());
    let _held = other.guard("other").unwrap();
    let _guard = locks.guard("n").unwrap();
    assert!(!answered(|| locks.try_lock_for("other", ms(50))).0);
    eventually(LONG, "a renewal", || locks.client().stats().renewals > 0);
    eventually(LONG, "each has its timer", || {
        let timers = timers(port);
        timers.len() == 3 && timers.iter().all(|(what, left)| what == KEEPALIVE && *left <= Duration::from_secs(5))
    });
}

/// The message of an unlock goes to a subscriber that is dead and quiet: only its own ping finds that out.
#[test]
fn fault_27_a_half_open_subscriber_is_found_by_its_ping() {
    let server = Server::start();
    let proxy = Proxy::on_tcp(server.socket());
    let waiting = locks_of(through(&proxy).poll_cap(MINUTE).watchdog_timeout(MINUTE));
    let holder = server.locks();
    holder.lock_with_lease("n", MINUTE).unwrap();
    let (dead, subscriber) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
    let is_dead = Arc::clone(&dead);
    proxy.set(move |connection, flow, data| {
        if flow == Flow::Request && data.windows(9).any(|word| word == b"SUBSCRIBE") {
            let _ = subscriber.set(connection);
        }
        let drop = is_dead.load(SeqCst) && subscriber.get() == Some(&connection);
        if drop { Vec::new() } else { pass(data) }
    });
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.try_lock_for("n", LONG).unwrap() && waiting.unlock("n").is_ok());
        eventually(LONG, "it is subscribed", || server.subscribers("redisson_lock__channel:{n}") == 1);
        dead.store(true, SeqCst);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        println!("found after {:?}", when - unlocked);
        assert!(got && when - unlocked <= PING_EVERY + ANSWER + SOON, "found after {:?}", when - unlocked);
    });
}

/// One byte at a time, with pauses: nobody takes a part for the whole.
#[test]
fn fault_28_a_network_of_single_bytes_and_jitter_only_takes_longer() {
    let server = Server::start();
    let proxy = Proxy::on_tcp(server.socket());
    let clients = [(); 3].map(|()| locks_of(Client::builder(&proxy.url())));
    let mut random = numbers(0x5EED_0028);
    proxy.set(move |_, _, data| {
        let mut steps = Vec::new();
        for byte in data {
            steps.push(Step::Send(vec![*byte]));
            if random(50) == 0 {
                steps.push(Step::Sleep(Duration::from_micros(random(1_000))));
            }
        }
        steps
    });
    let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |locks: &ReentrantLock| {
        for _ in 0..10 {
            let _outer = locks.guard("n").unwrap();
            let _inner = locks.guard("n").unwrap();
            assert_eq!((inside.fetch_add(1, SeqCst), server.owner("n").1), (0, 2));
            inside.fetch_sub(1, SeqCst);
            entered.fetch_add(1, SeqCst);
        }
    };
    std::thread::scope(|scope| clients.iter().for_each(|locks| drop(scope.spawn(|| work(locks)))));
    assert_eq!(entered.load(SeqCst), 30);
    assert!(clients.iter().all(|locks| locks.client().stats().reconnects == 0), "a whole was taken for broken");
}

/// What one side says arrives, what the other says does not: the side that hears nothing believes nothing.
#[test]
fn fault_30_who_hears_nothing_believes_nothing() {
    const LEASE: Duration = Duration::from_secs(2);
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let deaf = locks_of(through(&proxy).outage_budget(ms(500)).watchdog_timeout(LEASE));
    let hearing = server.locks();
    hearing.lock("warm").unwrap();
    hearing.unlock("warm").unwrap();
    eventually(LONG, "it has a connection", || deaf.force_unlock("warm").is_ok());
    proxy.set(|_, flow, data| if flow == Flow::Reply { Vec::new() } else { pass(data) });
    let (result, took) = timed(|| deaf.lock("n"));
    assert_err!(result, OutcomeUnknown);
    assert!(took <= ms(500) + ANSWER + SOON, "took {took:?}");
    assert!(server.pttl("n") > 0, "its request was executed");
    assert!(deaf.hold("n").is_none());
    let (got, took) = timed(|| hearing.try_lock_for("n", LONG).unwrap());
    assert!(got && took <= LEASE + LATE, "free after {took:?}");
    proxy.clear();
    assert!(!patiently(|| deaf.try_lock("n")));
    assert!(hearing.hold("n").unwrap().is_valid(), "a late release of the other side freed it");
    hearing.unlock("n").unwrap();
    assert!(deaf.try_lock_for("n", LONG).unwrap());
    deaf.unlock("n").unwrap();
}

/// What is reordered between connections is reordered for the server too.
#[test]
fn a_held_request_arrives_after_a_later_one() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (gate, order) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let (held, seen) = (gate.clone(), Arc::clone(&order));
    proxy.set(move |connection, flow, data| {
        if flow == Flow::Reply {
            seen.lock().unwrap().push(connection);
        }
        let hold = flow == Flow::Request && connection == 0;
        if hold { vec![Step::Hold(held.clone()), Step::Send(data.to_vec())] } else { pass(data) }
    });
    let path = std::path::PathBuf::from(proxy.url().replace("unix://", ""));
    std::thread::scope(|scope| {
        let mut first = std::os::unix::net::UnixStream::connect(&path).unwrap();
        first.write_all(b"INCR n\r\n").unwrap();
        scope.spawn(|| assert_eq!(deliver(&path, b"INCR n\r\n").unwrap(), ":1\r\n")).join().unwrap();
        gate.open();
        let mut answer = [0; 10];
        let length = first.read(&mut answer).unwrap();
        assert_eq!(&answer[..length], b":2\r\n");
    });
    assert_eq!(*order.lock().unwrap(), [1, 0]);
    server.clear();
}
