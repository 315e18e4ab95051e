//! Each node of a quorum is a server of its own: two addresses of one server are found out by its run id.

use crate::harness::quorum::{SLOW, builder, eventually_confirmed, eventually_free, start};
use crate::server::Server;
use crate::threads::{LONG, eventually, patiently};
use redlatch::{QuorumLock, RedLockExt};

/// How often a node was asked which process it is.
fn infos(commands: &[String]) -> usize {
    commands.iter().filter(|command| command.to_lowercase().contains("\"info\" \"server\"")).count()
}

#[test]
fn each_connection_asks_once_which_server_it_reached() {
    let servers = start(3);
    let locks = builder(&servers).pool_size(1).node_timeout(SLOW).build().unwrap();
    // A majority is enough for the caller, so a node that lags may still have its commands before it.
    let used = || {
        for _ in 0..20 {
            let guard = locks.guard("n").unwrap();
            eventually_confirmed(&locks, 3);
            guard.unlock().unwrap();
        }
    };
    // One for calls; nobody waits or is renewed.
    let connecting = servers[0].commands_during(|| {
        used();
        eventually_free(&servers);
    });
    assert_eq!(infos(&connecting), 1, "{connecting:#?}");
    let connected = servers[0].commands_during(used);
    assert!(connected.len() >= 20 && infos(&connected) == 0, "{connected:#?}");
    eventually_free(&servers);
}

/// It has another run id then.
#[test]
fn a_node_that_was_started_anew_is_let_in_again() {
    let mut servers = start(3);
    let locks = builder(&servers).build().unwrap();
    for server in &mut servers {
        drop(patiently(|| locks.guard("n")));
        server.kill();
        drop(locks.guard("n").unwrap());
        server.restart();
        eventually(LONG, "all answer", || locks.ping(LONG).is_ok_and(|answered| answered == (3, 3)));
        let guard = locks.guard("n").unwrap();
        eventually_confirmed(&locks, 3);
        drop(guard);
    }
    eventually_free(&servers);
}

#[test]
fn a_server_that_does_not_name_itself_votes_as_ever() {
    let server = Server::start_on_tcp();
    let others = start(2);
    server.let_in("app", "secret", "~* &* +@all -info");
    let url = format!("redis://app:secret@127.0.0.1:{}/", server.port());
    let urls = [url, others[0].url(), others[1].url()];
    let locks = QuorumLock::builder(urls).node_timeout(SLOW).build().unwrap();
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 3);
    guard.unlock().unwrap();
    eventually_free(&others);
    eventually(LONG, "it is free there", || server.ask::<i64>(&["EXISTS", "n"]) == 0);
}
