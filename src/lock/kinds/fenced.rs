//! [`FencedLock`]: Redisson's `RFencedLock` on one store, a lock whose holds have tokens (docs/protocol.md, 14).

use crate::base::error::{Applied, Cause, Result};
use crate::base::key::Key;
use crate::base::kind::{Kind, Touched};
use crate::base::lives::Life;
use crate::base::script::Count::Exactly;
use crate::base::script::scripts;
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Lease, Moment, whole_millis};
use crate::base::unwind::survives_a_panic;
use crate::base::value::Value;
use crate::client::Client;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::lock::engine::Engine;
use crate::lock::forward::answered_by;
use crate::lock::keys::{IN_TURN, Keys, QUARANTINE};
use crate::lock::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::queue::{Manner, Queue};
use crate::lock::{Command, RedLock};
use crate::store::node::{Answer, Arg, Failure, Lane, Limits, Reply, Request};
use std::sync::Arc;
use std::time::Duration;

/// Each hold has a token from the store, so no hold may follow another in memory.
static FENCED: Kind = Kind {
    passed_on: false,
    has_tokens: true,
    touches: &[Touched { key: counter_of, by: &[&["GET"], &["SET", "0", "NEITHER"]] }],
    ..Kind::new("fenced lock")
};

scripts! {
    /// Reply: the token or the holder's PTTL in ms.
    ACQUIRE_FENCED = "fenced/acquire.lua", Exactly(2), Exactly(4), queued: IN_TURN, strict: QUARANTINE;
    /// Reply: the token.
    MINT = "fenced/mint.lua", Exactly(1), Exactly(2);
}

fn counter_of(key: &Key) -> String {
    key.token_parts().concat()
}

/// A re-entrant lock, shared on the wire with Redisson's `RFencedLock`, whose every hold has a [token](crate::Hold::token) greater
/// than all before it. It is for data that can refuse a writer that comes too late.
///
/// A holder may be paused for longer than its lease, by its machine or a garbage collector. Then it goes on where it was, and may
/// write after the next holder did. No lock can prevent that. The data can, if it keeps the greatest token that it has seen and
/// refuses writes with a smaller one:
///
/// ```no_run
/// use redlatch::{Client, FencedLock, RedLockExt};
///
/// # struct Database;
/// # impl Database { fn execute(&self, _: &str, _: &[u64]) -> usize { 1 } }
/// # let database = Database;
/// let locks = FencedLock::new(&Client::connect("redis://127.0.0.1/")?);
/// let guard = locks.guard("order:42")?;
/// let token = guard.token().expect("a fenced lock has one");
/// let written = database.execute("UPDATE orders SET paid = 1, token = ?1 WHERE id = 42 AND token <= ?1", &[token]);
/// assert_eq!(written, 1, "somebody else has had the lock since");
/// guard.unlock()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// All else is as with a [`ReentrantLock`](crate::ReentrantLock), which excludes it under the same name and gives no token. In one
/// process the lock goes from thread to thread through the server, not in memory, for each hold needs a token of its own. The
/// Redlock algorithm has no such lock: what several servers count has no order.
///
/// # The tokens
///
/// Tokens grow with each acquire of a name, whoever made it; there are gaps. The string `redisson_lock_token:{name}` keeps the last
/// one. If the name has braces, they are those: the locks `shop` and `{shop}` are two and share their tokens, as in Redisson. The
/// string stays when the lock is free, for ever unless [`ClientBuilder::token_ttl`](crate::ClientBuilder::token_ttl) sets a time.
/// Tokens follow the server's clock in microseconds wherever that is ahead of them. So they go on growing after the server lost its
/// data: by a restart, `FLUSHALL`, an eviction, or a failover to a replica that lags. That holds if the clock of the server that then
/// mints is not behind the last token. A Java client that is the first to lock after such a loss begins at 1.
///
/// If the counter holds no number, or one that leaves no other below 2^53, an acquire is an
/// [`Error::Refused`](crate::Error::Refused) with code `TOKEN`, and locks nothing.
#[derive(Clone)]
pub struct FencedLock {
    client: Client,
    shared: Arc<Shared>,
}

/// What all fenced locks of one client share.
struct Shared {
    engine: Arc<Engine>,
    fenced: Arc<Fenced>,
}

survives_a_panic!(Shared);

impl FencedLock {
    /// The locks of a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let shared = client.of_kind(&FENCED, || {
            let store = Arc::clone(client.store());
            let keys = Keys::new(Arc::clone(&store), &client.space().config).in_turn(client.space());
            let fenced = Arc::new(Fenced { keys, ttl: client.space().config.token_ttl });
            let primitive = Arc::<Fenced>::clone(&fenced);
            Arc::new(Shared { engine: Engine::new(Arc::clone(client.space()), &FENCED, primitive, store), fenced })
        });
        Self { client: client.clone(), shared }
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
    /// does: data beside the lock needs no token.
    ///
    /// # Errors
    /// As there.
    pub fn while_held(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.shared.engine.while_held(&**self.client.store(), hold, commands)
    }

    /// The last token that was minted for a resource, asked of the server. It is that of the last hold, or a greater one if an
    /// acquire was repeated because its answer was lost. `None` if the server knows none.
    ///
    /// # Errors
    /// As of [`RedLock`].
    pub fn last_token(&self, resource: &str) -> Result<Option<u64>> {
        let engine = &self.shared.engine;
        let key = engine.space.key(resource)?;
        let last = |answer_by| self.shared.fenced.last_token(&key, answer_by);
        engine.patience(resource).persist(last)
    }
}

impl std::fmt::Debug for FencedLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FencedLock").field("client", &self.client).finish_non_exhaustive()
    }
}

impl RedLock for FencedLock {
    answered_by!(self => self.shared.engine);
}

/// The commands of the kind: those of any lock that is a key, but for the acquire.
struct Fenced {
    keys: Keys,
    /// How long a counter outlives the lease of its last hold.
    ttl: Option<Duration>,
}

impl Fenced {
    /// Takes lock and counter by one script. If they are at two nodes, it takes the lock alone: the reply is nil.
    fn acquire(
        &self,
        tenure: &Tenure,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let (key, counter) = (tenure.key(), counter_of(tenure.key()));
        let ttl = Arg::Number(self.ttl_after(lease));
        let args = [Arg::Deadline, Arg::Number(lease.millis()), Arg::Text(tenure.owner()), ttl];
        match self.keys.acquire(&ACQUIRE_FENCED, &[key.full(), &counter], &args, key, manner, limits) {
            Err(failure) if failure.is_apart() => self.keys.acquire_key(tenure, lease, manner, limits),
            answer => answer,
        }
    }

    /// Mints a token after the lock was taken without its counter, which is at another node. Then it looks at the lock: if another owner
    /// took that before the token was minted, the token would be greater than theirs. Last it looks at the counter: while an early copy of
    /// the acquire is open, the lock may have been freed, held with a greater token and put back.
    fn mint(&self, tenure: &Arc<Tenure>, lease: Lease, answer_by: Moment) -> Result<bool, Failure> {
        let (counter, limits) = (counter_of(tenure.key()), Limits::of_lease(lease, answer_by));
        let args = [Arg::Deadline, Arg::Number(self.ttl_after(lease))];
        let keys = [counter.as_str()];
        let request = Request::of(&MINT, &keys, &args).granting(|reply| matches!(reply, Reply::Text(_)));
        let answer = self.keys.attempt(request, limits)?;
        let token = token_in(&answer.reply)?;
        tenure.token().note(token);
        let renewed = self.keys.renew(Lane::Calls, std::slice::from_ref(tenure), lease, answer_by)?;
        let is_there = renewed.into_iter().next().transpose()?.flatten().is_some();
        Ok(is_there && self.last_token(tenure.key(), answer_by)? == Some(token))
    }

    /// The counter's TTL in ms; 0: for ever.
    fn ttl_after(&self, lease: Lease) -> u64 {
        self.ttl.map_or(0, |ttl| lease.millis() + whole_millis(ttl))
    }

    fn last_token(&self, key: &Key, answer_by: Moment) -> Result<Option<u64>, Failure> {
        match self.keys.ask("GET", &counter_of(key), answer_by)? {
            Reply::Nil => Ok(None),
            // Zero is no token, as the acquire has it.
            Reply::Text(zero) if zero == b"0" => Ok(None),
            token => token_in(&token).map(Some),
        }
    }
}

/// # Errors
/// `Refused` with code `TOKEN`, as of a script that finds no number there.
fn token_in(reply: &Reply) -> Result<u64, Failure> {
    let Reply::Text(digits) = reply else { return Err(Failure::not_understood()) };
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
    let token = digits.and_then(|digits| digits.parse().ok());
    token.filter(|token| (1..1 << 53).contains(token)).ok_or_else(|| {
        let cause = Cause::new("the counter of the tokens holds no whole number below 2^53");
        Failure::Refused { code: "TOKEN".to_owned(), applied: Applied::No, cause }
    })
}

impl Primitive for Fenced {
    fn take(
        &self,
        tenure: &Arc<Tenure>,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Take, Failure> {
        let answer = self.acquire(tenure, lease, manner, limits)?;
        match &answer.reply {
            token @ Reply::Text(_) => tenure.token().note(token_in(token)?),
            Reply::Nil => {
                let minted = self.mint(tenure, lease, limits.answer_by);
                if !matches!(minted, Ok(true)) {
                    // Whatever became of the token, the server may have the lock.
                    tenure.leave_open(answer.sent, lease);
                    return minted.map(|_| Take::Busy(Some(Duration::ZERO)));
                }
            }
            _ => {}
        }
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
        let (counter, ttl) = (counter_of(tenure.key()), self.ttl_after(Lease::clamped(tenure.granted_for())));
        self.keys.release_with(Some((&counter, ttl)), tenure, left, answer_by)
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        self.keys.sweep_all(tenures, answer_by)
    }

    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        self.keys.force_unlock(key, answer_by)
    }

    fn time_to_live(&self, key: &Key, answer_by: Moment) -> Result<Option<Option<Duration>>, Failure> {
        self.keys.time_to_live(key, answer_by)
    }

    /// The script of groups mints no tokens.
    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn queue(&self, key: &Key) -> Option<&Queue> {
        self.keys.queue(key)
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.keys.listen(key, semaphore)
    }
}
