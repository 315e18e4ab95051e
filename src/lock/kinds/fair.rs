//! [`FairLock`]: Redisson's `RFairLock` on one store, a lock that goes to waiting threads in order of arrival (docs/protocol.md, 17).

use crate::base::error::Result;
use crate::base::key::Key;
use crate::base::kind::{Kind, Touched};
use crate::base::lives::Life;
use crate::base::script::Count::Exactly;
use crate::base::script::{Wrapper, scripts};
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Lease, Moment};
use crate::base::value::Value;
use crate::client::Client;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::lock::engine::Engine;
use crate::lock::forward::answered_by;
use crate::lock::keys::{Keys, QUARANTINE};
use crate::lock::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::queue::{Manner, Queue};
use crate::lock::{Command, RedLock};
use crate::store::node::{Arg, Failure, Lane, Limits};
use std::sync::Arc;
use std::time::Duration;

/// A hold that followed another in memory would come before those who wait in other processes. So each thread waits at the server.
static FAIR: Kind = Kind { passed_on: false, in_line: false, touches: TOUCHES, ..Kind::new("fair lock") };

/// The keys of the queue, and the lock, whose holder an ask looks at. RPUSH is missing: it has no words that change nothing.
const TOUCHES: &[Touched] = &[
    Touched { key: |key| key.full().to_owned(), by: &[&["HKEYS"]] },
    Touched {
        key: |key| key.order_parts()[0].concat(),
        by: &[
            &["LLEN"],
            &["LINDEX", "0"],
            &["LRANGE", "0", "0"],
            &["LREM", "1", "x"],
            &["LINSERT", "BEFORE", "x", "y"],
        ],
    },
    Touched {
        key: |key| key.order_parts()[1].concat(),
        by: &[&["ZSCORE", "x"], &["ZRANGE", "0", "0"], &["ZREM", "x"], &["ZADD", "none", "x"]],
    },
    Touched { key: |key| key.order_parts()[2].concat(), by: &[&["HGET", "x"], &["HDEL", "x"]] },
];

/// Around an acquire. Reply: the inner one if that grants, or an array of four, for [`Queue::not_won_in_turn`].
static IN_ORDER: Wrapper = Wrapper { file: include_str!("fair/in_order.lua"), args: 7 };

scripts! {
    /// Reply: nil (acquired) or the holder's PTTL in ms.
    ACQUIRE_FAIR = "../keys/acquire.lua", Exactly(1), Exactly(4), queued: IN_ORDER, strict: QUARANTINE;
    /// Reply: that of `Freed::of`, or an array of three, for [`Queue::told`].
    RELEASE_FAIR = "fair/release.lua", Exactly(1), Exactly(6);
    /// Reply: that of `Freed::of`.
    FORCE_UNLOCK_FAIR = "fair/force_unlock.lua", Exactly(1), Exactly(4);
}

/// A re-entrant lock that goes to the waiting threads in order of arrival, shared on the wire with Redisson's `RFairLock`.
///
/// Each waiting thread has a place in a queue at the server. It stands behind all that asked before it: threads of this process, of
/// other processes, and of JVMs with Redisson. An unlock gives the lock to the first thread of the queue.
///
/// ```no_run
/// use redlatch::{FairLock, RedLock, RedLockExt};
/// use std::time::Duration;
///
/// let locks = FairLock::connect("redis://127.0.0.1/")?;
/// locks.execute_in_lock("printer:7", || println!("my turn"))?;     // waits for its turn
///
/// if locks.try_lock_for("printer:7", Duration::from_secs(2))? {    // leaves the queue after 2 s
///     println!("my turn again");
///     locks.unlock("printer:7")?;
/// }
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// Calls, leases, re-entry, renewal and errors are those of a [`ReentrantLock`](crate::ReentrantLock). If the server refuses the queue
/// (a permission, a key of another type, no memory), the lock works without an order. The log names the queue once. Such a client may wait for
/// as long as others queue, for the lock goes from one of them to the next.
///
/// # When to use it
///
/// A [`ReentrantLock`](crate::ReentrantLock) has an order, too: processes get it in order of arrival, and so do the threads of one
/// process. But a process may keep it for some milliseconds for its own threads, and a [`try_lock`](RedLock::try_lock) may come first.
/// It is faster, because the threads of a process pass it on without a command. Nobody starves, so its order is enough for most programs.
/// Use a `FairLock` if one of these is true:
///
/// * Threads of several processes must get the lock exactly in the order in which they asked.
/// * The longest wait matters more than the number of holds a second.
/// * JVMs use Redisson's `RFairLock` under that name, or JVMs and Rust programs must have their turns in one order.
///
/// # Order
///
/// * The order is that in which the first asks of the calls reach the server. A wait that begins again has a new place.
/// * A `try_lock` has no place. It fails if somebody waits, even if the lock is free at that moment.
/// * A call that ends without the lock, by its time or a [`CancelToken`](crate::CancelToken), leaves the queue.
/// * A thread that holds the lock locks again without a place.
/// * If the server loses the queue, the waiting threads join it again when they look. Their order is then that of their looks.
/// * After an outage the order is kept if all waiting clients are back before the lock is next free, and within three poll caps. Threads of a
///   client that comes later look dead, and join again, at the end. Strict clients join again after their quarantine, in any order.
/// * A group ([`MultiLock`](crate::MultiLock)) that has to let go of its members has a new place each time.
///
/// # What it costs
///
/// Each hand-off goes through the server: one script of the waiter, one script of the unlock, and one message. That is so however many threads
/// wait. These cost the waiter one script more: a process that has not subscribed to the lock yet, a lease that is not renewed, a strict client,
/// and `sync_replicas`. Nothing is passed on in memory, and no setting of [`HandOff`](crate::HandOff) plays a part.
///
/// Each waiting thread looks at the lock once in a [`poll_cap`](crate::ClientBuilder::poll_cap), and each 1.5 s if others are before it. The
/// server goes through the whole queue when a thread joins, and beside threads of Redisson at each look. That takes it 1 ms for 1,000 places:
/// beside Redisson it is too much for more than some 1,000 threads.
///
/// # Waiters that are gone
///
/// | a waiting thread | costs those behind it |
/// | --- | --- |
/// | ended its wait | nothing |
/// | is of a process that died | nothing: the unlock sees that nobody listens, and takes the next thread |
/// | the same, in a cluster without sharded pub/sub, or if it could not subscribe | 1.5 s, or its lease if that is shorter |
/// | the same, and a JVM unlocks | 1.5 s for a thread of ours. A thread of Redisson's looks when the end of that place comes: three poll caps, and more if others of Redisson's were before it |
/// | is of a process that is stopped when it is given the lock | 1.5 s, or its lease if that is shorter, once. It then queues at the end. So a process costs that for each of its waiting threads, for 3 poll caps at most |
/// | ended its wait at a master, and another one without that news takes over | nothing, once its process has moved there; 1.5 s, or its lease if that is shorter, if its process is stopped, or ended more than 1,024 waits and holds since |
/// | is of a JVM that died | until the end that Redisson noted for it: 5 minutes or more, or by the wait of its `tryLock`. Until then the lock is free, and no `try_lock` gets it |
///
/// # Beside other locks of the same name
///
/// A `FairLock` and a [`ReentrantLock`](crate::ReentrantLock) of the same name exclude each other, but neither knows the other's order:
///
/// * The unlock of a `FairLock` tells waiters of the other kind only if nobody waits in its queue. Else they look when the holder's
///   lease ends, or after a `poll_cap`.
/// * The unlock of a `ReentrantLock` gives the lock to its own queue first. If that is empty, the waiters of the `FairLock` are told.
///
/// With [`Naming::Jedis`](crate::Naming) a `FairLock` is not shared with Redisson: its threads would not be told.
///
/// So use one kind for a name. Nor use two names that differ only in braces, such as `x` and `{x}`: they are two locks with one queue, as in
/// Redisson. Waiters of one lose their places by those of the other, and a JVM that waits for one keeps the other free.
#[derive(Clone)]
pub struct FairLock {
    client: Client,
    engine: Arc<Engine>,
}

impl FairLock {
    /// The locks of a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let engine = client.of_kind(&FAIR, || {
            let store = Arc::clone(client.store());
            let keys = Keys::new(Arc::clone(&store), &client.space().config).in_order(client.space());
            Engine::new(Arc::clone(client.space()), &FAIR, Arc::new(Fair { keys }), store)
        });
        Self { client: client.clone(), engine }
    }

    /// The locks of a new client with default settings; see [`Client::connect`] for the URL.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a URL that is not understood. Nothing is connected yet.
    pub fn connect(url: &str) -> Result<Self> {
        Client::connect(url).map(|client| Self::new(&client))
    }

    /// The client that these locks were made on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs commands at the server if this very hold is still there, as [`ReentrantLock::while_held`](crate::ReentrantLock::while_held)
    /// does.
    ///
    /// # Errors
    /// As there.
    pub fn while_held(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.engine.while_held(&**self.client.store(), hold, commands)
    }
}

impl std::fmt::Debug for FairLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FairLock").field("client", &self.client).finish_non_exhaustive()
    }
}

impl RedLock for FairLock {
    answered_by!(self => self.engine);
}

/// The commands of the kind: those of any lock that is a key, but for what looks at the queue.
struct Fair {
    keys: Keys,
}

impl Primitive for Fair {
    fn take(
        &self,
        tenure: &Arc<Tenure>,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Take, Failure> {
        let key = tenure.key();
        let args = [Arg::Deadline, Arg::Number(lease.millis()), Arg::Text(tenure.owner()), Arg::Number(1)];
        let answer = self.keys.acquire(&ACQUIRE_FAIR, &[key.full()], &args, key, manner, limits)?;
        self.keys.took(tenure, manner, &answer)
    }

    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        count: usize,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Option<Moment>, Failure> {
        self.keys.reenter(tenure, count, lease, limits)
    }

    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        self.keys.renew(lane, tenures, lease, answer_by)
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, answer_by: Moment) -> Result<bool, Failure> {
        let key = tenure.key();
        let Some(queue) = self.keys.queue(key) else { return self.keys.release(tenure, left, answer_by) };
        let [list, ends, tickets] = key.order_parts().map(Arg::Beside);
        let (owner, left_over) = (Arg::Text(tenure.owner()), Arg::Number(left as u64));
        let args = [owner, left_over, Arg::Parts(key.channel_parts()), list, ends, tickets];
        let answer = self.keys.call(&RELEASE_FAIR, key, &args, answer_by);
        match left {
            0 => self.keys.released_in_turn(queue, tenure, answer),
            _ => self.keys.released(tenure, left, answer),
        }
    }

    /// The script of groups does not look at the queue.
    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        tenures.iter().try_for_each(|tenure| self.sweep(tenure, answer_by))
    }

    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        let [list, ends, tickets] = key.order_parts().map(Arg::Beside);
        let args = [Arg::Parts(key.channel_parts()), list, ends, tickets];
        let answer = self.keys.call(&FORCE_UNLOCK_FAIR, key, &args, answer_by)?;
        Ok((self.keys.freed(key, &answer, answer.reply.number()?).is_done(), answer.life))
    }

    /// The script of groups does not look at the queue.
    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn time_to_live(&self, key: &Key, answer_by: Moment) -> Result<Option<Option<Duration>>, Failure> {
        self.keys.time_to_live(key, answer_by)
    }

    fn queue(&self, key: &Key) -> Option<&Queue> {
        self.keys.queue(key)
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.keys.listen(key, semaphore)
    }
}
