//! Groups of fair locks that others want too.

use super::{eventually_empty, queue};
use crate::server::Server;
use crate::threads::{LONG, finish, ms};
use redlatch::{FairLock, MultiLock, RedLockExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::scope;

/// Two members in demand are hardly ever free, and a try of a group's never comes before one that waits. So it waits in order for each.
#[test]
fn a_group_of_two_that_are_in_demand_is_served() {
    let server = Server::start();
    let clients = [(); 3].map(|()| server.builder().build().unwrap());
    let (over, others) = (AtomicBool::new(false), AtomicU64::new(0));
    scope(|scope| {
        for (client, name) in clients.iter().zip(["n", "m"]).cycle().take(6) {
            let (locks, over, others) = (FairLock::new(client), &over, &others);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    let guard = locks.request(name).wait(LONG).guard().unwrap().expect("its turn");
                    std::thread::sleep(ms(1));
                    others.fetch_add(1, SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
        let _over = crate::harness::queue::Over(&over);
        let locks = FairLock::new(&clients[2]);
        let groups = scope.spawn(move || {
            let group = MultiLock::of([(&locks, "n"), (&locks, "m")]);
            (0..10).for_each(|_| group.request().wait(LONG).guard().unwrap().expect("its turn").unlock().unwrap());
        });
        finish(groups);
    });
    assert!(others.load(SeqCst) > 20 && queue(&server).is_empty());
    eventually_empty(&server);
}
