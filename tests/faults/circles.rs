//! Rows 152 to 154: threads that wait for each other.

use crate::server::Server;
use crate::threads::{LONG, eventually, ms};
use redlatch::inspect::Inspector;
use redlatch::{CancelToken, Client, ClientBuilder, Deadlock, RedLockExt, ReentrantLock, Result};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// A client that looks early, and what it is told.
fn client(builder: ClientBuilder) -> (Client, Receiver<Deadlock>) {
    let (tell, told) = channel();
    let builder = builder.deadlock_check(ms(300)).on_deadlock(move |circle| drop(tell.send(circle)));
    (builder.build().unwrap(), told)
}

/// Each of the clients has a thread that holds one lock and waits for the next one's. `meanwhile` runs once all wait, and is given what ends
/// all waits.
fn in_a_circle(clients: &[&Client], meanwhile: impl FnOnce(&CancelToken)) -> Vec<Result<()>> {
    let (token, all) = (CancelToken::new(), Barrier::new(clients.len() + 1));
    thread::scope(|scope| {
        let member = |(at, client): (usize, &&Client)| {
            let (locks, all, token) = (ReentrantLock::new(client), &all, &token);
            let (own, next) = (format!("c{at}"), format!("c{}", (at + 1) % clients.len()));
            scope.spawn(move || {
                let guard = locks.guard(&own).unwrap();
                all.wait();
                // The last one begins last.
                thread::sleep(ms(100) * u32::try_from(at).unwrap());
                let waited = locks.request(&next).wait(LONG).cancelled_by(token).guard();
                let ended = waited.map(|waited| assert!(waited.is_some(), "{own} waited in vain"));
                guard.unlock().unwrap();
                ended
            })
        };
        let members: Vec<_> = clients.iter().enumerate().map(member).collect();
        all.wait();
        meanwhile(&token);
        members.into_iter().map(|member| member.join().unwrap()).collect()
    })
}

#[test]
fn fault_152_threads_that_wait_for_each_other_are_named_and_the_last_one_fails() {
    let server = Server::start();
    let clients = [0, 1, 2].map(|_| client(server.builder().fail_deadlocks(true)));
    let mut ended = in_a_circle(&[&clients[0].0, &clients[1].0, &clients[2].0], |_| ());
    assert_err!(ended.remove(2), Deadlock);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    for (_, told) in &clients {
        let circle = told.recv_timeout(LONG).expect("each is told");
        assert_eq!(circle.members.len(), 3);
        assert_eq!((circle.last().holds.as_str(), circle.last().waits_for.as_str()), ("c2", "c0"));
    }
}

#[test]
fn fault_152_without_the_setting_they_wait_on() {
    let server = Server::start();
    let clients = [0, 1].map(|_| client(server.builder()));
    let ended = in_a_circle(&[&clients[0].0, &clients[1].0], |token| {
        clients.iter().for_each(|(_, told)| drop(told.recv_timeout(LONG).expect("each is told")));
        thread::sleep(ms(500));
        token.cancel();
    });
    ended.into_iter().for_each(|ended| assert_err!(ended, Cancelled));
}

#[test]
fn fault_153_a_circle_is_told_when_the_server_answers_again() {
    let server = Server::start();
    let clients = [0, 1].map(|_| client(server.builder().response_timeout(ms(200)).outage_budget(LONG)));
    in_a_circle(&[&clients[0].0, &clients[1].0], |token| {
        thread::sleep(ms(250));
        server.freeze();
        thread::sleep(ms(900));
        let are_told = |told: &Receiver<Deadlock>| told.try_recv().is_ok();
        assert!(!clients.iter().any(|(_, told)| are_told(told)), "nobody could know");
        server.thaw();
        clients.iter().for_each(|(_, told)| drop(told.recv_timeout(LONG).expect("each is told")));
        token.cancel();
    });
}

#[test]
fn fault_154_forged_messages_of_a_census_end_nothing_and_are_not_told() {
    let server = Server::start();
    let (waits, told) = client(server.builder().fail_deadlocks(true));
    let (held, token) = (server.locks().owned_guard("n").unwrap(), CancelToken::new());
    let inspector = Inspector::new(&server.builder().build().unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let locks = ReentrantLock::new(&waits);
            let own = locks.guard("own").unwrap();
            assert_err!(locks.request("n").wait(LONG).cancelled_by(&token).guard(), Cancelled);
            own.unlock().unwrap();
        });
        let account = || inspector.census().unwrap().accounts.into_iter().find(|account| !account.waits.is_empty());
        eventually(LONG, "it waits", || account().is_some());
        let (process, thread) = account().map(|account| (account.process, account.waits[0].thread)).unwrap();
        let process = format!("redlatch:{}@{}:{}:{}", process.app, process.host, process.pid, process.client);
        // The right thread and lock, and a wait that began at another moment.
        let circle = format!("circle 1\n{process} {thread} 1 own n \n{process} {thread} 2 n own \n");
        let flood = ["", "census 2 x", "census 1 ", "circle 1\n", "account 1 \n", &"x".repeat(60_000), &circle];
        for text in flood.iter().cycle().take(700) {
            let _: i64 = server.ask(&["PUBLISH", "redlatch_census:{0:}", text]);
        }
        eventually(LONG, "it answers", || account().is_some());
        thread::sleep(ms(400));
        assert!(told.try_recv().is_err() && !waiting.is_finished());
        token.cancel();
    });
    held.unlock().unwrap();
}
