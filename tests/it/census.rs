//! Who holds, who waits, and who waits for whom.

use crate::harness::deployment::{Clustered, Deployment, Replicas, Sealed, Sentinel, Single, Tcp};
use crate::harness::lateness::Mark;
use crate::process::{hear, tell, with_peer};
use crate::proxy::{Proxy, pass_after};
use crate::server::Server;
use crate::shutdowns::{keep_log, logged};
use crate::threads::{LONG, eventually, ms, of_redlatch, timed};
use redlatch::inspect::{Access, Account, Census, Inspector, Process};
use redlatch::{
    CancelToken, Client, CountDownLatch, Deadlock, Error, FairLock, FencedLock, LocalRedLock, MultiLock, ReadWriteLock,
    RedLock, RedLockExt, ReentrantLock, Semaphore, Terms,
};
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// After how long waits look for circles.
const CHECK: Duration = Duration::from_millis(400);

fn census(inspector: &Inspector) -> Census {
    inspector.census().expect("a census")
}

/// Accounts until one is as it should be.
fn account_that(inspector: &Inspector, what: &str, is_meant: impl Fn(&Account) -> bool) -> Account {
    let mut found = None;
    eventually(LONG, what, || {
        found = census(inspector).accounts.into_iter().find(&is_meant);
        found.is_some()
    });
    found.unwrap()
}

/// Ends the waits of a test, also of one that fails.
struct CancelsAtEnd<'a>(&'a CancelToken);

impl Drop for CancelsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs an act on a thread with a name.
fn named<'s>(scope: &'s thread::Scope<'s, '_>, name: &str, act: impl FnOnce() + Send + 's) {
    thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, act).unwrap();
}

/// What waits by a client, until the token is cancelled.
type Wait = fn(&Client, &Terms<'_>);

type Act = fn(&Client);

type Case = (&'static str, Act, Act, Wait, Access);

/// Each kind: how it is held, if by a thread; what waits for it, and how that is told.
const KINDS: [Case; 7] = [
    (
        "plain",
        |c| hold(&ReentrantLock::new(c)),
        |c| free(&ReentrantLock::new(c)),
        |c, t| wait(&ReentrantLock::new(c), t),
        Access::Alone,
    ),
    (
        "fair",
        |c| hold(&FairLock::new(c)),
        |c| free(&FairLock::new(c)),
        |c, t| wait(&FairLock::new(c), t),
        Access::Alone,
    ),
    (
        "fenced",
        |c| hold(&FencedLock::new(c)),
        |c| free(&FencedLock::new(c)),
        |c, t| wait(&FencedLock::new(c), t),
        Access::Alone,
    ),
    (
        "write",
        |c| hold(ReadWriteLock::new(c).read()),
        |c| free(ReadWriteLock::new(c).read()),
        |c, t| wait(ReadWriteLock::new(c).write(), t),
        Access::Alone,
    ),
    (
        "read",
        |c| hold(ReadWriteLock::new(c).write()),
        |c| free(ReadWriteLock::new(c).write()),
        |c, t| wait(ReadWriteLock::new(c).read(), t),
        Access::Shared,
    ),
    ("permits", |_| (), |_| (), |c, t| assert_err!(Semaphore::new(c).acquire("n", 1, t), Cancelled), Access::Counted),
    (
        "latch",
        |c| assert!(CountDownLatch::new(c).try_set_count("n", 1, None).unwrap()),
        |c| assert!(CountDownLatch::new(c).open("n").unwrap()),
        |c, t| assert_err!(CountDownLatch::new(c).wait("n", t), Cancelled),
        Access::Counted,
    ),
];

fn hold(lock: &dyn RedLock) {
    lock.lock("n").unwrap();
}

fn free(lock: &dyn RedLock) {
    lock.unlock("n").unwrap();
}

fn wait(lock: &dyn RedLock, terms: &Terms<'_>) {
    assert_err!(lock.acquire("n", terms), Cancelled);
}

fn who_holds_and_who_waits_is_told<D: Deployment>() {
    let deployment = D::start();
    let make = || deployment.builder().build().unwrap();
    let (holder, client, inspector) = (make(), make(), Inspector::new(&make()));
    let own = ReentrantLock::new(&client).owned_guard("own").unwrap();
    for (kind, holds, frees, waits, access) in KINDS {
        let token = CancelToken::new();
        holds(&holder);
        thread::scope(|scope| {
            let terms = Terms::new().wait(ms(60_000)).cancelled_by(&token);
            let waiter = client.clone();
            named(scope, "the waiter", move || waits(&waiter, &terms));
            let _end = CancelsAtEnd(&token);
            let account = account_that(&inspector, kind, |account| !account.waits.is_empty());
            let (wait, hold) = (&account.waits[0], &account.holds[0]);
            assert_eq!((wait.name.as_str(), wait.access, account.waits.len()), ("n", access, 1), "{kind}");
            assert_eq!(wait.thread_name.as_deref(), Some("the waiter"));
            assert!(wait.left.is_some_and(|left| left > ms(30_000) && left <= ms(60_000)), "{wait:?}");
            assert!(hold.since <= wait.since && hold.thread != wait.thread);
            assert_eq!((hold.name.as_str(), hold.access, account.holds.len()), ("own", Access::Alone, 1), "{kind}");
            assert!(hold.left.is_some_and(|left| left > ms(15_000) && left <= ms(30_000)), "{hold:?}");
            assert_eq!((&account.process.client, account.process.pid), (&client.id(), std::process::id()));
        });
        frees(&holder);
    }
    own.unlock().unwrap();
    let is_idle = |account: &Account| account.process.client == client.id() && account.waits.is_empty();
    assert!(account_that(&inspector, "nothing is left", is_idle).holds.is_empty());
    // Tests that share the servers have prefixes of their own, which are the names of their clients as well.
    let (own, silent) = (account_that(&inspector, "it answers", is_idle).process.app, census(&inspector).silent);
    assert!(silent.iter().all(|process| process.app != own), "{own} {silent:?}");
}

/// Two threads with a client each. The first holds `a` and waits for `b`, and the other the other way round, later.
fn circle(first: &Client, last: &Client, begin: impl Fn(&str) + Sync) -> [redlatch::Result<()>; 2] {
    let cross = |client: &Client, [holds, waits]: [&str; 2], both: &std::sync::Barrier, later: Duration| {
        let locks = ReentrantLock::new(client);
        let guard = locks.guard(holds).unwrap();
        both.wait();
        thread::sleep(later);
        begin(holds);
        let ended = locks.request(waits).wait(LONG).guard().map(|waited| assert!(waited.is_some(), "{waits}"));
        guard.unlock().unwrap();
        ended
    };
    let both = Barrier::new(2);
    thread::scope(|scope| {
        let one = scope.spawn(|| cross(first, ["a", "b"], &both, Duration::ZERO));
        let other = scope.spawn(|| cross(last, ["b", "a"], &both, ms(100)));
        [one.join().unwrap(), other.join().unwrap()]
    })
}

/// What a client is told, and the client.
fn told<D: Deployment>(deployment: &D) -> (Client, Receiver<Deadlock>) {
    let (tell, told) = channel();
    let builder = deployment.builder().deadlock_check(CHECK).fail_deadlocks(true);
    (builder.on_deadlock(move |circle| drop(tell.send(circle))).build().unwrap(), told)
}

fn the_last_of_a_circle_fails_and_the_others_go_on<D: Deployment>() {
    let deployment = D::start();
    let ((first, of_first), (last, of_last)) = (told(&deployment), told(&deployment));
    let [of_one, of_other] = circle(&first, &last, |_| ());
    assert!(of_one.is_ok(), "{of_one:?}");
    let Err(error @ Error::Deadlock { .. }) = of_other else { panic!("{of_other:?}") };
    assert_eq!((error.resource(), error.is_retryable()), (Some("a"), false));
    assert!(error.to_string().contains("holds \"a\" and waits for \"b\""), "{error}");
    for told in [of_first, of_last] {
        let circle = told.recv_timeout(LONG).expect("each client is told");
        let members: Vec<_> =
            circle.members.iter().map(|member| (&*member.process.client, &*member.waits_for)).collect();
        assert_eq!(members, [(&*last.id(), "a"), (&*first.id(), "b")]);
        assert!(told.try_recv().is_err(), "once");
    }
}

/// The message to the other member is slow. The wait that fails must not end the other's before that is told.
#[test]
fn all_members_are_told_before_the_last_one_fails() {
    let (server, (tell, told)) = (Server::start(), channel());
    let proxy = Proxy::new(server.socket());
    proxy.set(|_, _, data| {
        let tells = data.windows(8).any(|window| window == b"circle 1");
        pass_after(if tells { ms(500) } else { ms(0) }, data)
    });
    // The last one alone looks.
    let first = server.builder().deadlock_check(LONG).on_deadlock(move |circle| drop(tell.send(circle)));
    let last = Client::builder(&proxy.url()).deadlock_check(ms(100)).fail_deadlocks(true).build().unwrap();
    let [of_one, of_other] = circle(&first.build().unwrap(), &last, |_| ());
    assert!(of_one.is_ok() && matches!(of_other, Err(Error::Deadlock { .. })), "{of_one:?} {of_other:?}");
    assert_eq!(told.recv_timeout(LONG).expect("it is told").members.len(), 2);
}

macro_rules! everywhere {
    ($($name:ident: $At:ty;)*) => {$(
        mod $name {
            use super::*;
            everywhere! { @each $At, who_holds_and_who_waits_is_told the_last_of_a_circle_fails_and_the_others_go_on }
        }
    )*};
    (@each $At:ty, $($case:ident)*) => {$(
        #[test]
        fn $case() {
            super::$case::<$At>();
        }
    )*};
}

everywhere! {
    single: Single;
    tcp: Tcp;
    tls: Sealed;
    sentinel: Sentinel;
    replicas: Replicas;
    cluster: Clustered;
}

/// After how long the processes of a circle look for it.
const CHECK_OF_PROCESSES: Duration = Duration::from_millis(800);

/// One process of a circle: it holds a lock with its number, and waits for the next one when it is told to.
fn member(url: &str, check: Duration) {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut ask = |words: &[&str]| -> String { redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap() };
    let size: u64 = ask(&["GET", "it:size"]).parse().unwrap();
    let own = redis::cmd("INCR").arg("it:numbers").query::<u64>(&mut connection).unwrap() - 1;
    let (name, next) = (format!("c{own}"), format!("c{}", (own + 1) % size));
    let told = url.to_owned();
    let builder = Client::builder(url).deadlock_check(check).fail_deadlocks(true);
    let tells = move |circle: Deadlock| tell(&told, &format!("told {own} of {}", circle.members.len()));
    let locks = ReentrantLock::new(&builder.on_deadlock(tells).build().unwrap());
    let guard = locks.guard(&name).unwrap();
    tell(url, "ready");
    let _: (String, String) =
        redis::cmd("BLPOP").arg(format!("it:go:{own}")).arg(LONG.as_secs()).query(&mut connection).unwrap();
    let ended = match locks.request(&next).wait(LONG).guard() {
        Ok(Some(_)) => "had its turn".to_owned(),
        Ok(None) => "waited in vain".to_owned(),
        Err(error) => error.to_string(),
    };
    guard.unlock().unwrap();
    tell(url, &format!("end of {own}: {ended}"));
}

/// Each process is told within twice the setting, counted from when the last of them began to wait. Only the last one fails.
fn a_circle_of_processes(size: usize, start: &dyn Fn(&Server) -> crate::process::Peer) {
    let server = Server::start();
    let _: () = server.ask(&["SET", "it:size", &size.to_string()]);
    let peers: Vec<_> = (0..size).map(|_| start(&server)).collect();
    (0..size).for_each(|_| assert_eq!(hear(&server), "ready"));
    let mut begun = Mark::now();
    for number in 0..size {
        begun = Mark::now();
        let _: i64 = server.ask(&["RPUSH", &format!("it:go:{number}"), "go"]);
        thread::sleep(ms(100));
    }
    let (mut told, mut ends) = (Vec::new(), Vec::new());
    while told.len() < size || ends.len() < size {
        let news = hear(&server);
        let is_told = news.starts_with("told ");
        assert!(!is_told || begun.elapsed() <= 2 * CHECK_OF_PROCESSES, "{news} after {:?}", begun.elapsed());
        if is_told { told.push(news) } else { ends.push(news) }
    }
    println!("a circle of {size} processes was known after {:?}", begun.elapsed());
    told.sort();
    ends.sort();
    assert_eq!(told, (0..size).map(|number| format!("told {number} of {size}")).collect::<Vec<_>>());
    let last = ends.pop().unwrap();
    assert!(last.starts_with(&format!("end of {}: waiting for \"c0\" ended", size - 1)), "{last}");
    assert!(ends.iter().all(|end| end.ends_with("had its turn")), "{ends:?}");
    peers.into_iter().for_each(crate::process::Peer::join);
    let _: i64 = server.ask(&["DEL", "it:size", "it:numbers"]);
}

#[test]
fn a_circle_of_two_processes_is_told_in_time_and_broken() {
    with_peer(|url| member(url, CHECK_OF_PROCESSES), |start| a_circle_of_processes(2, start));
}

#[test]
fn a_circle_of_three_processes_is_told_in_time_and_broken() {
    with_peer(|url| member(url, CHECK_OF_PROCESSES), |start| a_circle_of_processes(3, start));
}

#[test]
fn a_circle_of_five_processes_is_told_in_time_and_broken() {
    with_peer(|url| member(url, CHECK_OF_PROCESSES), |start| a_circle_of_processes(5, start));
}

/// The default: all members wait on, and the log and the callback tell of it once, however long that lasts.
#[test]
fn a_circle_that_nobody_breaks_is_told_once() {
    let server = Server::start();
    let token = CancelToken::new();
    let (tell, told) = channel();
    let client = |tell: std::sync::mpsc::Sender<Deadlock>| {
        let builder = server.builder().deadlock_check(ms(100));
        builder.on_deadlock(move |circle| drop(tell.send(circle))).build().unwrap()
    };
    let clients = [client(tell.clone()), client(tell)];
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for (client, [holds, waits]) in clients.iter().zip([["a", "b"], ["b", "a"]]) {
            scope.spawn(|| {
                let locks = ReentrantLock::new(client);
                let _guard = locks.guard(holds).unwrap();
                both.wait();
                assert_err!(locks.request(waits).cancelled_by(&token).guard(), Cancelled);
            });
        }
        let _end = CancelsAtEnd(&token);
        (0..2).for_each(|_| assert_eq!(told.recv_timeout(LONG).unwrap().members.len(), 2));
        // Looks at twice and four times the age find it again.
        thread::sleep(ms(700));
        assert!(told.try_recv().is_err(), "it was told again");
    });
}

/// A writer that waits for readers, who all wait for the writer, is in a circle with each. After 64 of them its wait tells no more.
fn circles_of_a_writer(readers: usize, circles: usize) {
    let (server, token, all, (tell, told)) =
        (Server::start(), CancelToken::new(), Barrier::new(readers + 1), channel());
    let builder = server.builder().deadlock_check(ms(100));
    let client = builder.on_deadlock(move |circle| drop(tell.send(circle))).build().unwrap();
    let (locks, sides) = (ReentrantLock::new(&client), ReadWriteLock::new(&client));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = locks.guard("m").unwrap();
            all.wait();
            assert_err!(sides.write().request("l").cancelled_by(&token).guard(), Cancelled);
        });
        for _ in 0..readers {
            scope.spawn(|| {
                let _guard = sides.read().guard("l").unwrap();
                all.wait();
                assert_err!(locks.request("m").cancelled_by(&token).guard(), Cancelled);
            });
        }
        let _end = CancelsAtEnd(&token);
        (0..circles).for_each(|_| assert_eq!(told.recv_timeout(LONG).unwrap().members.len(), 2));
        thread::sleep(ms(700));
        assert!(told.try_recv().is_err(), "one was told again");
    });
}

#[test]
fn circles_that_share_a_wait_are_told_once_each() {
    circles_of_a_writer(2, 2);
}

#[test]
fn of_a_wait_in_a_hundred_circles_64_are_told_once_each() {
    circles_of_a_writer(100, 64);
}

/// Four clients are in two circles. Each finds both when it looks, again and again.
#[test]
fn a_circle_is_published_by_its_members_and_once_by_each() {
    let (server, token, all) = (Server::start(), CancelToken::new(), Barrier::new(4));
    let clients = [(); 4].map(|()| server.builder().deadlock_check(ms(100)).build().unwrap());
    let listener = redis::Client::open(server.url()).unwrap();
    let mut connection = listener.get_connection().unwrap();
    let mut heard = connection.as_pubsub();
    heard.subscribe("redlatch_census:{0:}").unwrap();
    heard.set_read_timeout(Some(LONG)).unwrap();
    thread::scope(|scope| {
        for (client, [holds, waits]) in clients.iter().zip([["a", "b"], ["b", "a"], ["c", "d"], ["d", "c"]]) {
            let (token, all) = (&token, &all);
            scope.spawn(move || {
                let locks = ReentrantLock::new(client);
                let _guard = locks.guard(holds).unwrap();
                all.wait();
                assert_err!(locks.request(waits).cancelled_by(token).guard(), Cancelled);
            });
        }
        let _end = CancelsAtEnd(&token);
        let (mut looks, mut told) = (0, HashMap::new());
        while looks < 12 || told.len() < 2 {
            let text: String = heard.get_message().expect("all look again").get_payload().unwrap();
            if text.starts_with("census") {
                looks += 1;
            } else {
                *told.entry(text).or_insert(0) += 1;
            }
        }
        assert!(told.len() == 2 && told.values().all(|times| *times <= 2), "{told:?}");
    });
}

/// However long its name is. Line breaks in it make no line of a log.
#[test]
fn a_long_name_of_a_thread_is_cut() {
    let (server, token) = (Server::start(), CancelToken::new());
    let client = server.builder().deadlock_check(ms(100)).build().unwrap();
    let (asker, held) = (server.builder().build().unwrap(), server.locks().owned_guard("n").unwrap());
    thread::scope(|scope| {
        named(scope, &"é\n".repeat(30_000), || {
            let locks = ReentrantLock::new(&client);
            assert_err!(locks.request("n").cancelled_by(&token).guard(), Cancelled);
        });
        let _end = CancelsAtEnd(&token);
        let account = account_that(&Inspector::new(&asker), "it is told", |account| !account.waits.is_empty());
        let name = account.waits[0].thread_name.clone().unwrap();
        assert_eq!((name.chars().count(), asker.stats().reconnects), (128, 0));
    });
    held.unlock().unwrap();
}

/// The other client never looks, so this one has to.
#[test]
fn a_circle_of_own_threads_hides_none_with_others() {
    let (server, token, all, (tell, told)) = (Server::start(), CancelToken::new(), Barrier::new(4), channel());
    let builder = server.builder().deadlock_check(ms(100));
    let client = builder.on_deadlock(move |circle| drop(tell.send(circle))).build().unwrap();
    let other = server.builder().deadlock_check(10 * LONG).build().unwrap();
    let threads = [(&client, ["a", "b"]), (&client, ["b", "a"]), (&other, ["c", "d"]), (&client, ["d", "c"])];
    thread::scope(|scope| {
        for (client, [holds, waits]) in threads {
            let (token, all) = (&token, &all);
            scope.spawn(move || {
                let locks = ReentrantLock::new(client);
                let _guard = locks.guard(holds).unwrap();
                all.wait();
                // It begins last, when the circle of the others is known.
                thread::sleep(if holds == "d" { ms(300) } else { ms(0) });
                assert_err!(locks.request(waits).cancelled_by(token).guard(), Cancelled);
            });
        }
        let _end = CancelsAtEnd(&token);
        let mut found = [(); 2].map(|()| told.recv_timeout(LONG).unwrap().last().waits_for.clone());
        found.sort();
        assert!(found[0].as_str() < "c" && found[1] == "c", "{found:?}");
    });
}

/// However many ask, and however slow the server is.
#[test]
fn one_thread_at_a_time_answers() {
    crate::process::alone(|| {
        let server = Server::start();
        let (proxy, held) = (Proxy::new(server.socket()), server.locks().owned_guard("n").unwrap());
        let locks = ReentrantLock::new(&Client::builder(&proxy.url()).build().unwrap());
        assert!(!locks.try_lock_for("n", ms(100)).unwrap());
        let ask = || server.ask::<usize>(&["PUBLISH", "redlatch_census:{0:}", "census 1 nobody"]);
        eventually(LONG, "it listens", || ask() == 1);
        proxy.delay(ms(100));
        let answering = || of_redlatch().iter().filter(|name| *name == "redlatch-census").count();
        let most = (0..30).map(|_| {
            ask();
            thread::sleep(ms(10));
            answering()
        });
        assert_eq!(most.max(), Some(1));
        proxy.clear();
        held.unlock().unwrap();
    });
}

#[test]
fn a_slow_wait_is_an_event_when_it_ends() {
    crate::process::alone(|| {
        keep_log();
        log::set_max_level(log::LevelFilter::Debug);
        let (locks, name) = (LocalRedLock::new(), "slow");
        crate::threads::while_held_elsewhere(&locks, name, |_| {
            assert!(!locks.try_lock_for(name, ms(1_000)).unwrap());
            assert_eq!(logged("a call waited"), [""; 0]);
            assert!(!locks.try_lock_for(name, ms(5_200)).unwrap());
            let lines = logged("a call waited");
            assert!(matches!(&lines[..], [line] if line.ends_with(" s for \"slow\"")), "{lines:?}");
        });
    });
}

/// Of one process and in memory: no server is asked.
#[test]
fn a_circle_of_locks_in_memory_is_logged() {
    crate::process::alone(|| {
        keep_log();
        let (locks, token) = (LocalRedLock::new(), CancelToken::new());
        let both = Barrier::new(2);
        thread::scope(|scope| {
            for [holds, waits] in [["a", "b"], ["b", "a"]] {
                let (locks, both, token) = (&locks, &both, &token);
                named(scope, &format!("of {holds}"), move || {
                    let _guard = locks.guard(holds).unwrap();
                    both.wait();
                    assert_err!(locks.request(waits).cancelled_by(token).guard(), Cancelled);
                });
            }
            let _end = CancelsAtEnd(&token);
            let told = || logged("threads wait for each other");
            eventually(LONG, "the log tells of it", || !told().is_empty());
            let line = told().remove(0);
            let since = [["a", "b"], ["b", "a"]].map(|[holds, waits]| {
                let member = format!("(of {holds}), holds {holds:?} and waits for {waits:?} since ");
                let since = line.split_once(&member).and_then(|(_, since)| since.split_once(" s"));
                since.and_then(|(seconds, _)| seconds.parse::<u64>().ok()).unwrap_or_else(|| panic!("{line}"))
            });
            // The one that waited longer looks when its wait is so old, and the other one may have come later.
            assert!(since.into_iter().max() >= Some(5), "{line}");
        });
    });
}

/// A group holds one lock and waits for the other, and a thread the other way round: the group gives back what it has before long.
#[test]
fn groups_are_in_no_circle() {
    let server = Server::start();
    let [of_groups, other] = [(); 2].map(|()| server.builder().build().unwrap());
    let inspector = Inspector::new(&server.builder().build().unwrap());
    let until = std::time::Instant::now() + ms(2_000);
    let is_over = || std::time::Instant::now() >= until;
    let groups = || {
        // No command takes both.
        let (plain, fair) = (ReentrantLock::new(&of_groups), FairLock::new(&of_groups));
        let group = MultiLock::of([(&plain as &dyn RedLock, "a"), (&fair, "b")]);
        while !is_over() {
            drop(group.request().wait(ms(60)).guard().unwrap());
        }
    };
    let nested = || {
        let (plain, fair) = (ReentrantLock::new(&other), FairLock::new(&other));
        while !is_over() {
            let held = fair.guard("b").unwrap();
            thread::sleep(ms(3));
            drop(plain.request("a").wait(ms(100)).guard().unwrap());
            drop(held);
        }
    };
    thread::scope(|scope| {
        scope.spawn(groups);
        scope.spawn(nested);
        while !is_over() {
            let circles = census(&inspector).circles();
            assert!(circles.is_empty(), "{circles:?}");
        }
    });
}

#[test]
fn a_client_that_hangs_is_told_as_silent() {
    let peer = |url: &str| {
        let locks = ReentrantLock::new(&Client::builder(url).app_name("hangs").build().unwrap());
        assert!(!locks.try_lock_for("n", ms(200)).unwrap());
        tell(url, "has waited");
        let _ = locks.try_lock_for("n", LONG);
    };
    with_peer(peer, |start| {
        let server = Server::start();
        let (inspector, held) =
            (Inspector::new(&server.builder().build().unwrap()), server.locks().owned_guard("n").unwrap());
        let peer = start(&server);
        assert_eq!(hear(&server), "has waited");
        account_that(&inspector, "it answers", |account| account.process.app == "hangs");
        peer.freeze();
        eventually(LONG, "it is silent", || census(&inspector).silent.iter().any(|process| process.app == "hangs"));
        peer.thaw();
        account_that(&inspector, "it answers again", |account| account.process.app == "hangs");
        held.unlock().unwrap();
        peer.join();
    });
}

/// A user without the channels of the census: locks work as well, and who asks is told what is missing.
#[test]
fn who_may_not_listen_to_questions_is_not_asked() {
    let server = Server::start();
    if server.cannot_before((6, 2), "there are no rules for channels") {
        return;
    }
    let rules = "~* +@all resetchannels &redisson_lock__channel:*";
    let client = Client::builder(&server.let_in("few", "secret", rules)).build().unwrap();
    let all = Inspector::new(&server.builder().build().unwrap());
    let (held, token) = (server.locks().owned_guard("n").unwrap(), CancelToken::new());
    thread::scope(|scope| {
        let locks = ReentrantLock::new(&client);
        let token = &token;
        scope.spawn(move || assert_err!(locks.request("n").cancelled_by(token).guard(), Cancelled));
        let _end = CancelsAtEnd(token);
        let is_it = |process: &Process| process.client == client.id();
        eventually(LONG, "it is told as silent", || census(&all).silent.iter().any(is_it));
        assert!(census(&all).accounts.iter().all(|account| !is_it(&account.process)));
    });
    held.unlock().unwrap();
    let (refused, took) = timed(|| Inspector::new(&client).census().expect_err("it may not ask"));
    assert!(matches!(&refused, Error::Refused { code, .. } if code == "NOPERM"), "{refused}");
    assert!(took <= ms(1_000), "{took:?}");
}

/// A connection that is there for questions alone is not made again, until a call waits.
#[test]
fn an_idle_client_does_not_connect_for_questions() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    let (locks, inspector) = (ReentrantLock::new(&client), Inspector::new(&server.builder().build().unwrap()));
    let held = server.locks().owned_guard("n").unwrap();
    assert!(!locks.try_lock_for("n", ms(50)).unwrap());
    let is_told = |account: &Account| account.process.client == client.id();
    account_that(&inspector, "it answers", is_told);
    let listeners = || server.ask::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]).matches(&client.id()).count();
    assert_eq!(listeners(), 1);
    // Its other channels are given up first.
    eventually(LONG, "it listens to questions alone", || {
        server
            .ask::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"])
            .lines()
            .any(|line| line.contains(&client.id()) && line.contains(" sub=1 "))
    });
    let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    thread::sleep(ms(1_500));
    assert_eq!(listeners(), 0, "it connected for nothing");
    assert!(!locks.try_lock_for("n", ms(300)).unwrap());
    account_that(&inspector, "it answers again", is_told);
    held.unlock().unwrap();
}

/// Two databases of a server have nothing to do with each other, nor have two prefixes.
#[test]
fn who_has_another_database_or_prefix_is_not_asked() {
    let server = Server::start_on_tcp();
    let (url, other) = (server.tcp_url(), format!("{}/3", server.tcp_url().trim_end_matches('/')));
    let makes = [(&url, ""), (&other, ""), (&url, "shop:")]
        .map(|(url, prefix)| move || Client::builder(url).key_prefix(prefix).build().unwrap());
    let clients = makes.each_ref().map(|make| make());
    for (client, make) in clients.iter().zip(&makes) {
        let held = ReentrantLock::new(&make()).owned_guard("n").unwrap();
        assert!(!ReentrantLock::new(client).try_lock_for("n", ms(50)).unwrap());
        held.unlock().unwrap();
    }
    for client in &clients {
        let inspector = Inspector::new(client);
        account_that(&inspector, "it answers itself", |account| account.process.client == client.id());
        assert_eq!(census(&inspector).accounts.len(), 1);
    }
}

#[test]
fn a_look_after_no_time_is_an_error() {
    let server = crate::server::shared();
    let build = |after| Client::builder(&server.url()).deadlock_check(after).build();
    assert!(build(ms(99)).is_err_and(|error| error.to_string().contains("deadlock_check must be at least 100 ms")));
    assert!(build(ms(100)).is_ok() && build(Duration::MAX).is_ok());
}

#[test]
fn a_client_that_is_shut_down_asks_nobody() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    client.shutdown();
    assert_err!(Inspector::new(&client).census(), Closed);
}
