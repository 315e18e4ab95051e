//! The numbers of all waiting: how often a call asks, how long an offer lasts, and how long this client remembers what it saw.
//!
//! Some of these numbers bind a script or the model, too: their comments say so. A test compares the bounds of an offer.

use crate::base::time::Lease;
use std::time::Duration;

/// A server rounds a PTTL down to whole ms, so up to 1 ms more is left.
pub(super) const ROUNDING: Duration = Duration::from_millis(1);

// How often a waiting call asks for the lock.

/// Between two asks while no subscription is confirmed. So a free lock is found within 1 s, whatever the server refuses.
pub(super) const UNTOLD: Duration = Duration::from_secs(1);

/// The same for a ticket that polls, and for a place among those that wait for permits: a script may give it the lock, and the others then wait for its next ask.
pub(super) const POLLED: Duration = Duration::from_millis(50);

/// All waiting calls ask when a lease ends: at a time in this span after the end, and not before it.
pub(super) const SPREAD: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];

/// Whoever may publish can wake a call at any rate, and each ask is a command. A call follows this many hints in a row at once: more than
/// the unlocks of a lock in demand in that time. In the long run it follows one in [`HINT_EVERY`].
pub(super) const HINTS_AT_ONCE: u32 = 32;
pub(super) const HINT_EVERY: Duration = Duration::from_millis(2);

/// The rank of a call in the queue is `n - 1`. If all are told that the lock is free, it asks after up to `STEP * n * ceil(n / FEW)`. One
/// ask is enough for all, for it has the lock given to the first. If a client without a queue released it, such as a JVM, the lock is free
/// until that ask.
pub(super) const STEP: Duration = Duration::from_millis(2);
pub(super) const FEW: u32 = 4;

/// The parts of that time, of which each wait has one.
pub(crate) const SHARES: u32 = 1 << 10;

// The queue of processes.

/// For how long the first of the queue has a lock that was given to it, before it prolongs that. A machine that stands still for 0.6 s
/// keeps the lock. If a process that was given the lock is stopped, the others lose this time: so calls with others before them ask as
/// often.
///
/// `give.lua` drops a longer offer, or one shorter than [`SHORTEST_OFFER`]. The model's tick is a third of it.
pub(super) const OFFER: Lease = Lease::of_millis(1_500);

/// The shortest offer.
pub(super) const SHORTEST_OFFER: Lease = Lease::of_millis(10);

/// The TTL of a queue in poll caps. Each waiting call asks once a poll cap, and so joins again: after this time nobody waits. `in_turn.lua`
/// prolongs the TTL when a third is over.
pub(crate) const POLL_CAPS: u32 = 3;

/// No queue outlives its waiters by more, ms: a day.
pub(crate) const LONGEST_TTL: u64 = 86_400_000;

/// The number of earlier names that a ticket keeps: each ask has a new one.
pub(crate) const NAMES: usize = 8;

/// One release in turn of this many tells all listeners and gives the lock to nobody. The count is by lock: with one count for two locks
/// that are always taken together, one of them would never be free. Of 8 processes that wait for 80 ms, each asks because of it. One in 32
/// made 0.18 more scripts for each hold.
pub(super) const TO_ALL: u64 = 128;

/// In a cluster of shards each lock has ears of its own. From this number on, ears without a waiting ticket are dropped.
pub(super) const MANY_EARS: usize = 64;

// Foreigners: JVMs that wait, or subscribers that never ask.

/// A turn of foreigners lasts this many times as long as `give_way`.
pub(super) const FOREIGN: u64 = 4;

/// The part of `give_way` that counts for a turn, ms.
pub(super) const LONGEST_GIVE_WAY: u64 = 200;

/// The longest mark that `in_turn.lua` believes, ms.
pub(super) const LONGEST_MARK: u64 = 1_000;

/// While foreigners take their turns: pause = this * (ours / foreigners), from when one was seen to hold the lock. With 4 ms two JVMs
/// beside two of ours made less than half of the turns that they had made before locks were given.
pub(super) const AMONG_OURS: Duration = Duration::from_millis(2);

/// The least pause after a turn that no foreigner used. Each such turn makes it four times as long, up to 1.6 s: this bounds the cost of a
/// foreigner that only listens.
pub(super) const AGAIN: Duration = Duration::from_millis(100);
pub(super) const MOST_RAISED: u32 = 2;

/// Each of ours leaves turns to foreigners, but all together no more than one alone would. More of ours than this are not counted.
pub(super) const MOST_OURS: u32 = 1_000;

// Company: which locks others want.

/// How long this client remembers that others want a lock.
pub(super) const LATELY: Duration = Duration::from_secs(2);

/// The number of names from which on old ones are searched for.
pub(super) const NAMES_KEPT: usize = 64;
