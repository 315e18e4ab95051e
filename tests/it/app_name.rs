//! What a client's connections are called.

use crate::server::Server;
use crate::threads::{LONG, eventually, spawn_asleep};
use redlatch::inspect::{Inspector, Process};
use redlatch::{Client, ClientBuilder, RedLock, RedLockExt, ReentrantLock};

fn locks_of(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

/// The names of the connections that are not the administrator's; "" for one that has none.
fn names(server: &Server) -> Vec<String> {
    let list: String = server.ask(&["CLIENT", "LIST"]);
    let others = list.lines().filter(|line| !line.contains(" cmd=client"));
    others.map(|line| line.split(" name=").nth(1).unwrap().split(' ').next().unwrap().to_owned()).collect()
}

/// What each of them says of its process.
fn processes(server: &Server) -> Vec<Process> {
    let locks = server.locks();
    Inspector::new(locks.client()).processes().unwrap().iter().cloned().collect()
}

#[test]
fn every_connection_names_its_program_and_process() {
    let server = Server::start();
    let locks = locks_of(server.builder().app_name("shop/1"));
    let guard = locks.guard("n").unwrap();
    std::thread::scope(|scope| {
        let other = locks_of(server.builder().app_name("shop/1"));
        spawn_asleep(scope, move || drop(other.guard("n").unwrap()));
        eventually(LONG, "it listens", || server.subscribers("redisson_lock__channel:{n}") == 1);
        let names = names(&server);
        let is_ours = |name: &String| name.starts_with("redlatch:shop/1@");
        assert!(names.len() >= 3 && names.iter().all(is_ours), "{names:?}");
        guard.unlock().unwrap();
    });
    let found = processes(&server);
    let mine = found.iter().find(|process| process.client == locks.client().id()).expect("it is connected");
    assert_eq!((mine.app.as_str(), mine.pid), ("shop/1", std::process::id()));
}

#[test]
fn without_an_app_name_it_is_the_file_of_the_program() {
    let server = Server::start();
    let locks = server.locks();
    drop(locks.guard("n").unwrap());
    let file = std::env::current_exe().unwrap();
    let file = file.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(processes(&server).iter().all(|process| process.app == file), "{:?}", processes(&server));
}

#[test]
fn who_may_not_name_a_connection_locks_all_the_same() {
    let server = Server::start();
    let url = server.let_in("app", "pass", "~* allchannels +@all -client|setname");
    let locks = locks_of(Client::builder(&url).app_name("shop"));
    assert!(locks.try_lock("n").unwrap() && !names(&server).iter().any(|name| name.contains("shop")));
    locks.unlock("n").unwrap();
}
