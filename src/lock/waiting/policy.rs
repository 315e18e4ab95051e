//! The numbers of all waiting: how often somebody looks at a lock, how long a lock is given for, and how long what was seen counts.
//!
//! Some of them bind a script or the model, too. That is said beside them; a test compares the bounds of an offer.

use crate::base::time::Lease;
use std::time::Duration;

/// What a server says is left of so many ms may last for one more.
pub(super) const ROUNDING: Duration = Duration::from_millis(1);

// How often one that waits looks at the lock.

/// While no subscription is confirmed. A lock that is free is found within this, whatever the server refuses.
pub(super) const UNTOLD: Duration = Duration::from_secs(1);

/// The same of one that has a place in the queue all the same: others wait for up to so long once it was given the lock.
pub(super) const POLLED: Duration = Duration::from_millis(50);

/// All who wait look when a lease ends: spread over so long, and not before it is over.
pub(super) const SPREAD: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];

/// Whoever may publish can wake a call as often as he likes, and each look is a command. So many hints in a row are followed at once, more
/// than a lock in demand gives in that time. In the long run one in [`HINT_EVERY`] is.
pub(super) const HINTS_AT_ONCE: u32 = 32;
pub(super) const HINT_EVERY: Duration = Duration::from_millis(2);

/// One of `n` that wait, told like everybody that the lock is free, looks after up to `n` times this. From [`FEW`] on it is so many times
/// more as there are fours among them: one look is enough, for it has the lock given to the first. Who had the lock may be one who tells no
/// first, such as a JVM: then it is free for as long.
pub(super) const STEP: Duration = Duration::from_millis(2);
pub(super) const FEW: u32 = 4;

/// Into so many that time is divided, of which each wait has one.
pub(super) const SHARES: u32 = 1 << 10;

// The queue of processes.

/// For how long the first of the queue has a lock that was given to it, and has not asked for. A machine that stands still for .6 s keeps
/// what it was given. Whoever was given a lock and is stopped keeps the others waiting for so long: who has others before it looks as often.
///
/// `give.lua` drops a longer offer, or a shorter one than [`SHORTEST_OFFER`]. The model's tick is a third of it.
pub(super) const OFFER: Lease = Lease::of_millis(1_500);

/// A shorter one is none.
pub(super) const SHORTEST_OFFER: Lease = Lease::of_millis(10);

/// Whoever waits looks once a poll cap, and so joins again: after so many of them nobody waits, and the queue ends. `in_turn.lua` prolongs
/// it when a third is over.
pub(super) const POLL_CAPS: u32 = 3;

/// No queue outlives its waiters for longer, ms: a day.
pub(super) const LONGEST_TTL: u64 = 86_400_000;

/// So many earlier names of a wait are kept in mind, as each look has another one.
pub(super) const NAMES: usize = 8;

/// One release in turn of so many is told to all, and gives the lock to nobody. It is counted by lock: of two that are always taken
/// together one would never be free. Of 8 that wait for 80 ms each looks at the lock because of it. With one of 32 that made .18 scripts more
/// for each time that the lock was held.
pub(super) const TO_ALL: u64 = 128;

/// In a cluster of shards each lock has ears of its own. From so many on those are forgotten whom nobody waits for.
pub(super) const MANY_EARS: usize = 64;

// Foreigners: JVMs that wait, or subscribers that never ask.

/// So many times as long as another process of ours may need to come is left to a JVM.
pub(super) const FOREIGN: u64 = 4;

/// More of it does not count.
pub(super) const LONGEST_GIVE_WAY: u64 = 200;

/// `in_turn.lua` believes no longer mark.
pub(super) const LONGEST_MARK: u64 = 1_000;

/// While foreigners take their turns, the next turn comes so long after one was seen to have the lock, times ours for each of them. With 4 ms
/// two JVMs beside two of ours made less than half of the turns that they had made before locks were given.
pub(super) const AMONG_OURS: Duration = Duration::from_millis(2);

/// The least time between two turns that were not used, four times as long with each of them, up to 1.6 s: what a foreigner costs who only
/// listens.
pub(super) const AGAIN: Duration = Duration::from_millis(100);
pub(super) const MOST_RAISED: u32 = 2;

/// Each of ours leaves turns to foreigners, and all together no more than one would. More of ours are not counted.
pub(super) const MOST_OURS: u32 = 1_000;

// Company: which locks others want.

/// How long it is remembered that others want a lock.
pub(super) const LATELY: Duration = Duration::from_secs(2);

/// So many names are kept before old ones are looked for.
pub(super) const NAMES_KEPT: usize = 64;
