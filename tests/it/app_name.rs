//! What a client's connections are called.

use crate::server::Server;
use crate::threads::{LONG, eventually, spawn_asleep};
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

#[test]
fn every_connection_has_the_name_of_its_program() {
    let server = Server::start();
    let locks = locks_of(server.builder().app_name("shop/1"));
    let guard = locks.guard("n").unwrap();
    std::thread::scope(|scope| {
        let other = locks_of(server.builder().app_name("shop/1"));
        spawn_asleep(scope, move || drop(other.guard("n").unwrap()));
        eventually(LONG, "it listens", || server.subscribers("redisson_lock__channel:{n}") == 1);
        let names = names(&server);
        assert!(names.len() >= 3 && names.iter().all(|name| name == "shop/1"), "{names:?}");
        guard.unlock().unwrap();
    });
    let unnamed = server.locks();
    drop(unnamed.guard("n").unwrap());
    assert!(names(&server).contains(&String::new()));
}

#[test]
fn who_may_not_name_a_connection_locks_all_the_same() {
    let server = Server::start();
    let url = server.let_in("app", "pass", "~* allchannels +@all -client|setname");
    let locks = locks_of(Client::builder(&url).app_name("shop"));
    assert!(locks.try_lock("n").unwrap() && !names(&server).contains(&"shop".to_owned()));
    locks.unlock("n").unwrap();
}
