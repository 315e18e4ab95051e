//! What is seen of locks from outside, on each deployment.

use crate::harness::deployment::{Clustered, Deployment, Replicas, Sealed, Sentinel, Single, Tcp};
use crate::server::Server;
use crate::threads::{LONG, eventually, spawn_asleep};
use redlatch::inspect::{Inspector, Sight, What};
use redlatch::{
    Client, Command, FairLock, FencedLock, LeasedSemaphore, ReadWriteLock, RedLock, RedLockExt, ReentrantLock,
    Semaphore,
};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

fn a_holder_is_seen_with_its_process<D: Deployment>() {
    let deployment = D::start();
    let client = deployment.builder().build().unwrap();
    let began = SystemTime::now();
    let guard = ReentrantLock::new(&client).owned_guard("n").unwrap();
    let looks = ReentrantLock::new(&deployment.builder().build().unwrap());
    let seen = looks.holder("n").unwrap().expect("it is held");
    let [holder] = seen.holders() else { panic!("{seen:?}") };
    assert_eq!((holder.field.as_str(), holder.depth), (guard.owner(), 1));
    assert_eq!(holder.client, client.id());
    assert_eq!(holder.process.as_ref().expect("it is connected").pid, std::process::id());
    assert_eq!(holder.is_connected, Some(true));
    let asked = holder.asked.unwrap().duration_since(began).unwrap_or_default();
    assert!(asked < LONG && seen.left.unwrap() > Duration::from_secs(25), "{seen:?}");
    guard.unlock().unwrap();
    assert!(looks.holder("n").unwrap().is_none());
}

fn those_that_wait_are_counted<D: Deployment>() {
    let deployment = D::start();
    let make = || deployment.builder().build().unwrap();
    let (holder, inspector) = (make(), Inspector::new(&make()));
    let (plain, fair) = (ReentrantLock::new(&holder), FairLock::new(&holder));
    let guards = (plain.guard("p").unwrap(), fair.guard("f").unwrap());
    std::thread::scope(|scope| {
        let (one, other) = (make(), make());
        spawn_asleep(scope, move || drop(ReentrantLock::new(&one).guard("p").unwrap()));
        spawn_asleep(scope, move || drop(FairLock::new(&other).guard("f").unwrap()));
        let waiting = |name: &str| inspector.look(name).unwrap();
        eventually(LONG, "a process waits", || waiting("p").processes == Some(1));
        eventually(LONG, "a thread waits", || waiting("f").threads == Some(1));
        guards.0.unlock().unwrap();
        guards.1.unlock().unwrap();
    });
}

fn all_locks_are_listed_once<D: Deployment>() {
    let deployment = D::start();
    let client = deployment.builder().build().unwrap();
    let locks = ReentrantLock::new(&client);
    let names: BTreeSet<_> = (0..40).map(|at| format!("order:{at}")).collect();
    let guards: Vec<_> = names.iter().map(|name| locks.guard(name).unwrap()).collect();
    let inspector = Inspector::new(&client);
    let list = |pattern: &str| -> Vec<String> {
        let pages = inspector.scan(pattern).unwrap().map(|page| page.unwrap().locks);
        pages.flatten().map(|sight| sight.name).collect()
    };
    let listed = list("order:*");
    assert_eq!((listed.len(), listed.into_iter().collect::<BTreeSet<_>>()), (40, names.clone()));
    assert_eq!(list("order:?").len(), 10);
    assert!(list("shop:*").is_empty());
    drop(guards);
}

fn a_lock_is_freed_for_the_holder_that_was_seen<D: Deployment>() {
    let deployment = D::start();
    let client = deployment.builder().build().unwrap();
    let (locks, inspector) = (ReentrantLock::new(&client), Inspector::new(&deployment.builder().build().unwrap()));
    let guard = locks.guard("n").unwrap();
    let seen = inspector.look("n").unwrap();
    guard.unlock().unwrap();
    let next = locks.guard("n").unwrap();
    assert!(!inspector.free(&seen).unwrap() && locks.verify(next.hold()).unwrap(), "another holds it");
    assert!(inspector.free(&inspector.look("n").unwrap()).unwrap());
    assert!(!locks.verify(next.hold()).unwrap(), "its holder learns of it");
    assert!(!inspector.free(&inspector.look("n").unwrap()).unwrap(), "nobody holds it");
}

/// The waiter sleeps until it is told.
fn freeing_wakes_who_waits<D: Deployment>() {
    let deployment = D::start();
    let make = || deployment.builder().poll_cap(Duration::from_secs(60)).build().unwrap();
    let inspector = Inspector::new(&make());
    type Make = fn(&Client) -> Box<dyn RedLock>;
    let kinds: [Make; 4] = [
        |client| Box::new(ReentrantLock::new(client)),
        |client| Box::new(FairLock::new(client)),
        |client| Box::new(FencedLock::new(client)),
        |client| Box::new(ReadWriteLock::new(client).write().clone()),
    ];
    for kind in kinds {
        let holder = kind(&make());
        holder.lock("n").unwrap();
        let seen = inspector.look("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = make();
            let waits = scope.spawn(move || {
                let locks = kind(&waiter);
                locks.lock("n").unwrap();
                locks.unlock("n").unwrap();
            });
            std::thread::sleep(Duration::from_millis(300));
            assert!(inspector.free(&seen).unwrap());
            eventually(LONG, "it is woken", || waits.is_finished());
        });
        assert_err!(holder.unlock("n"), Lost);
    }
}

macro_rules! everywhere {
    ($($name:ident: $At:ty;)*) => {$(
        mod $name {
            use super::*;
            everywhere! { @each $At,
                a_holder_is_seen_with_its_process those_that_wait_are_counted all_locks_are_listed_once
                a_lock_is_freed_for_the_holder_that_was_seen freeing_wakes_who_waits
            }
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

#[test]
fn each_kind_is_told_by_its_shape() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    let (inspector, sides) = (Inspector::new(&client), ReadWriteLock::new(&client));
    let look = |name: &str| inspector.look(name).unwrap().what;
    assert_eq!(look("free"), What::Nothing);
    let reader = sides.read().guard("n").unwrap();
    assert!(matches!(look("n"), What::Readers(readers) if readers.len() == 1));
    reader.unlock().unwrap();
    let writer = sides.write().guard("n").unwrap();
    let beside = sides.read().guard("n").unwrap();
    assert!(matches!(look("n"), What::Writer(holds) if holds.len() == 2));
    beside.unlock().unwrap();
    writer.unlock().unwrap();
    let (leased, counted) = (LeasedSemaphore::new(&client), Semaphore::new(&client));
    assert!(leased.try_set_permits("l", 5).unwrap() && counted.try_set_permits("c", 4).unwrap());
    let permits = leased.try_acquire("l", 2).unwrap().unwrap();
    assert_eq!(look("l"), What::Counter { left: 3, out: Some(2) });
    assert_eq!(look("c"), What::Counter { left: 4, out: None });
    permits.release().unwrap();
    let _: () = server.ask(&["SET", "text", "words"]);
    assert_eq!(look("text"), What::Other("string".to_owned()));
    let _: () = server.ask(&["DEL", "text"]);
    assert!(leased.delete("l").unwrap() && counted.delete("c").unwrap());
}

/// Redisson's owner ids have no time.
#[test]
fn a_holder_of_redisson_is_seen_without_a_time() {
    let server = Server::start();
    let _: () = server.ask(&["HSET", "n", "285475da-9152-4c83-822a-67ee2f116a79:52", "1"]);
    let seen = server.locks().holder("n").unwrap().unwrap();
    let [holder] = seen.holders() else { panic!("{seen:?}") };
    assert_eq!((holder.thread, holder.asked, &holder.process, holder.is_connected), (52, None, &None, None));
    assert!(seen.left.is_none() && seen.to_string().contains("it has no end"), "{seen}");
    let _: () = server.ask(&["DEL", "n"]);
}

#[test]
fn a_holder_that_is_gone_has_no_process() {
    let server = Server::start();
    let _: () = server.ask(&["HSET", "n", "285475da-9152-4c83-822a-67ee2f116a79:1:1700000000000000", "1"]);
    let seen = server.locks().holder("n").unwrap().unwrap();
    assert!(seen.holders()[0].process.is_none() && seen.holders()[0].asked.is_some());
    assert_eq!(seen.holders()[0].is_connected, Some(false));
    let _: () = server.ask(&["DEL", "n"]);
}

#[test]
fn who_may_not_list_connections_sees_holders_all_the_same() {
    let server = Server::start();
    let url = server.let_in("app", "pass", "~* allchannels +@all -client|list");
    let guard = server.locks().owned_guard("n").unwrap();
    let client = Client::connect(&url).unwrap();
    let seen = ReentrantLock::new(&client).holder("n").unwrap().unwrap();
    assert!(seen.is_held() && seen.holders()[0].process.is_none() && seen.holders()[0].is_connected.is_none());
    assert_err!(Inspector::new(&client).processes(), Refused);
    guard.unlock().unwrap();
}

#[test]
fn a_refused_command_is_an_answer_and_the_others_are_asked() {
    let server = Server::start();
    let locks = server.locks();
    let inspector = Inspector::new(locks.client());
    let said = inspector.ask(&[Command::new("NOSUCH"), Command::new("PING")]).unwrap();
    let values = said.into_iter().next().unwrap().1.unwrap();
    assert!(matches!(&values[0], redlatch::Value::Error(said) if said.starts_with("ERR")), "{values:?}");
    assert_eq!(values[1].text(), Some("PONG"));
}

#[test]
fn nothing_is_written_by_a_look() {
    let server = Server::start();
    let locks = server.locks();
    let _guard = locks.guard("n").unwrap();
    let inspector = Inspector::new(locks.client());
    let words = [
        "get", "type", "pttl", "zcard", "llen", "hlen", "hgetall", "scan", "hscan", "dbsize", "client", "evalsha",
        "eval",
    ];
    let said = server.commands_during(|| {
        inspector.look("n").unwrap();
        inspector.scan("*").unwrap().for_each(|page| drop(page.unwrap()));
        inspector.processes().unwrap();
    });
    let others: Vec<_> =
        said.iter().filter(|line| !words.iter().any(|word| line.to_lowercase().contains(word))).collect();
    assert!(!said.is_empty() && others.is_empty(), "{others:?}");
}

#[test]
fn a_server_that_is_away_is_told_in_time() {
    let client = Client::connect("unix:///nowhere/at/all").unwrap();
    let inspector = Inspector::new(&client);
    assert_err!(inspector.look("n"), Unavailable);
    assert_err!(inspector.scan("*").map(drop), Unavailable);
    assert_err!(inspector.look(""), Config);
    assert!(matches!(inspector.free(&freed()), Ok(false)));
}

fn freed() -> Sight {
    let server = Server::start();
    Inspector::new(server.locks().client()).look("n").unwrap()
}
