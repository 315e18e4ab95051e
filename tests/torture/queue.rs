//! What the server shows of the queues of processes beside the locks.

use crate::server::Server;
use crate::work::resource;

const DEAD: &str = "gone-";

/// The tickets of a lock in order.
pub(crate) fn tickets(server: &Server, name: u64) -> Vec<String> {
    let queue = format!("redlatch_queue:{{{}}}", resource(name as u8));
    server.ask(&["ZRANGE", &queue, "0", "-1"])
}

/// Tickets of so many processes that are gone, before all others of a lock: their ears have no listeners.
pub(crate) fn leave_dead(server: &Server, name: u64, count: u64) {
    let queue = format!("redlatch_queue:{{{}}}", resource(name as u8));
    for number in 0..count {
        let _: u64 = server.ask(&["ZADD", &queue, "1", &dead(number)]);
    }
}

pub(crate) fn is_dead(ticket: &str) -> bool {
    ticket.starts_with(DEAD)
}

/// Its client is a number. It has an offer, so it could be given the lock.
fn dead(number: u64) -> String {
    format!("{DEAD}{number}:1.1.1.1.1500")
}

/// What stands beside locks only while somebody waits: every queue and mark; and the time-outs of readers.
pub(crate) const OF_WAITERS: [&str; 4] =
    ["redlatch_queue:*", "redlatch_turn:*", "redlatch_writer:*", "*:rwlock_timeout:*"];

/// What stands beside fair locks while threads wait.
pub(crate) const OF_THREADS: [&str; 3] = ["redisson_lock_queue:*", "redisson_lock_timeout:*", "redlatch_tickets:*"];

/// Such a key ends so long after its last thread counts no more, in ms.
pub(crate) const OUTLIVES_THREADS: u64 = 86_400_000;

/// The word that a reader waits: the next writer that leaves takes it away, or else it ends by itself.
pub(crate) const WORDS: [&str; 1] = ["redlatch_readers:*"];

/// How many wait for a lock without a place in its queue.
pub(crate) fn foreigners(server: &Server, name: u64) -> i64 {
    let resource = resource(name as u8);
    server.subscribers(&channel(&resource)) - server.subscribers(&format!("redlatch_members:{{{resource}}}"))
}

pub(crate) fn channel(resource: &str) -> String {
    format!("redisson_lock__channel:{{{resource}}}")
}

/// Who has a lock.
pub(crate) fn owner(ask: impl Fn(&[&str]) -> Vec<String>, name: u64) -> Option<String> {
    ask(&["HKEYS", &resource(name as u8)]).pop()
}
