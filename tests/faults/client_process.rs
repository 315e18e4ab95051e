//! Rows 40 to 55: what the client's own process does, and what is done to it.

use crate::server::Server;
use crate::threads::{LATE, LONG, eventually, ms, timed};
use redlatch::{RedLockExt, ReentrantLock};

#[test]
fn fault_44_a_guards_drop_is_bounded_by_one_answer() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().response_timeout(ms(300)).build().unwrap());
    let guard = locks.guard("n").unwrap();
    server.freeze();
    let ((), took) = timed(|| drop(guard));
    assert!(took <= ms(300) + LATE, "took {took:?}");
    server.thaw();
    eventually(LONG, "the key is gone", || server.pttl("n") == -2);
}
