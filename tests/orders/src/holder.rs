//! One holder, in a process of its own: it takes the lock, sees that it has it, and writes when it is told to, however late that is.

use crate::order::{Order, Way};
use redlatch::{Client, Command, Error, FencedLock, RedLockExt};
use std::io::Read;
use std::time::Duration;

/// What it says when it holds the lock.
pub(crate) const SAYS_HELD: &str = "held";

/// Renewed as long as the process runs: only a pause ends it.
const LEASE: Duration = Duration::from_millis(400);

pub(crate) fn run(words: &[String]) {
    let (order, way, state) = (Order::of(&words[..3]), Way::of(&words[3]), &words[4]);
    let locks = FencedLock::new(&Client::connect(order.redis()).expect("a client"));
    let name = order.name();
    let guard = locks.request(&name).renewed_lease(LEASE).guard().expect("a server").expect("it waits for it");
    // Asked before each step that must not happen twice, as one should. The pause comes right after it.
    assert!(guard.is_valid());
    println!("{SAYS_HELD}");
    std::io::stdin().read_exact(&mut [0]).expect("it is told");
    match way {
        Way::Token => order.update_with(state, guard.token().expect("a fenced lock has one")),
        Way::NoToken => order.update(state),
        Way::Plain => order.set(state),
        Way::WhileHeld => {
            let write = Command::new("SET").key(order.key()).arg(state);
            match locks.while_held(guard.hold(), &[write]) {
                Ok(_) | Err(Error::Lost { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    // Who was paused is told here, after its write, what is-valid would have said before it.
    let _ = guard.unlock();
}
