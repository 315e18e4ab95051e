//! [`LeasedSemaphore`]: Redisson's `RPermitExpirableSemaphore` on one store, a semaphore whose permits have leases (docs/protocol.md, 18).

mod memory;

use crate::base::error::Result;
use crate::base::key::{Key, Naming, Side};
use crate::base::kind::{Kind, Touched};
use crate::base::lives::Life;
use crate::base::script::Count::{AtLeast, Exactly};
use crate::base::script::{Script, scripts};
use crate::base::signal::{Listening, Semaphore as Signal};
use crate::base::time::{Lease, Moment};
use crate::base::unwind::survives_a_panic;
use crate::client::Client;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::lock::Terms;
use crate::lock::engine::Engine;
use crate::lock::keys::{ENOUGH, Keys, QUARANTINE, SERVING};
use crate::lock::operation::Operations;
use crate::lock::permits::{Asked, Floor, Giver, MOST, MOST_LEASED, Permits, Place, check_permits};
use crate::lock::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::queue::{Manner, Queue};
use crate::lock::waiting::wait::Outcome;
use crate::store::memory::InMemory;
use crate::store::node::{Answer, Arg, Failure, Lane, Limits, Reply, Request};
use std::sync::Arc;
use std::time::Duration;

/// Each hold has permits of its own, and any thread may give them back.
static LEASED: Kind = Kind {
    passed_on: false,
    of_thread: false,
    side: Side::Permits(1),
    touches: &[
        Touched {
            key: |key| key.full().to_owned(),
            by: &[&["GET"], &["SET", "0", "NEITHER"], &["INCRBY", "x"], &["DECRBY", "x"], &["DEL"]],
        },
        Touched {
            key: Key::leases,
            by: &[
                &["ZADD", "none", "x"],
                &["ZREM", "x"],
                &["ZSCORE", "x"],
                &["ZRANGE", "0", "0"],
                &["ZRANGEBYSCORE", "1", "0"],
                &["ZCARD"],
                &["PERSIST"],
                &["DEL"],
            ],
        },
        Touched { key: |key| key.operations_parts().concat(), by: &[&["GET"], &["SET", "0", "NEITHER"]] },
        Touched {
            key: |key| key.places_parts().concat(),
            by: &[&["HGET", "x"], &["HGETALL"], &["HSET", "x", "1", "y"], &["HDEL", "x"], &["PEXPIRE", "1"]],
        },
    ],
    ..Kind::new("leased semaphore")
};

scripts! {
    /// Reply: nil (acquired) or an array of three, for [`Leased::asked`].
    ACQUIRE_LEASED = "leased/acquire.lua", Exactly(2), Exactly(8), strict: QUARANTINE;
    /// Reply: 1 or 0 (lost) for each key.
    RENEW_LEASED = "leased/renew.lua", AtLeast(1), AtLeast(4), strict: SERVING;
    /// Reply: that of `Freed::of`.
    RELEASE_LEASED = "leased/release.lua", Exactly(2), Exactly(4);
    /// Reply: that of `Freed::of`.
    FORCE_LEASED = "leased/force.lua", Exactly(2), Exactly(2);
    /// Reply: 1 (set) or 0 (they were set before).
    SET_LEASED = "leased/set.lua", Exactly(3), Exactly(7);
    /// Reply: nil (nobody has set them) or an array of three.
    LOOK_LEASED = "leased/look.lua", Exactly(2), Exactly(2);
    /// Reply: 1 (deleted) or 0 (nobody had set its permits).
    DELETE_LEASED = "leased/delete.lua", Exactly(2), Exactly(0);
}

/// A semaphore whose permits have leases, shared on the wire with Redisson's `RPermitExpirableSemaphore`: so many may do something at once,
/// in whatever process.
///
/// The watchdog renews permits until they are [released](Permits::release). If their process dies, they come back when the lease is over.
/// A holder is told if its permits are [lost](crate::Hold::lost).
///
/// Somebody sets the number of permits once, by [`try_set_permits`](Self::try_set_permits). Calls that come earlier wait.
///
/// ```no_run
/// use redlatch::{Client, LeasedSemaphore, Terms};
///
/// let workers = LeasedSemaphore::new(&Client::connect("redis://127.0.0.1/")?);
/// workers.try_set_permits("customer:42", 3)?;
/// if let Some(permit) = workers.acquire("customer:42", 1, &Terms::new())? {
///     // At most three of these run at once.
///     permit.release()?;
/// }
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// # In which order
/// The threads of a process wait one behind the other, and processes in order of arrival: each for its first thread. So a call that wants five
/// is served beside a stream of calls that want one. A process that gets permits goes to the end. Redisson's clients take what is left,
/// in no order. A process that dies while it waits keeps those behind it waiting for up to three
/// [poll caps](crate::ClientBuilder::poll_cap). A call that wants more permits than will ever come back keeps them waiting until its own wait ends.
///
/// # Which permits come back, and when
/// Permits come back by the server's clock. A client of Redisson's returns them by its own clock, in each of its calls: if that is ahead, it
/// takes permits from holders too early.
#[derive(Clone)]
pub struct LeasedSemaphore {
    client: Client,
    shared: Arc<Shared>,
}

/// What all leased semaphores of one client share.
struct Shared {
    engine: Arc<Engine>,
    leased: Arc<Leased>,
}

survives_a_panic!(Shared);

impl LeasedSemaphore {
    /// The semaphores of a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let shared = client.of_kind(&LEASED, || {
            let (space, store) = (client.space(), Arc::clone(client.store()));
            let keys = Keys::new(Arc::clone(&store), &space.config);
            let floor = Floor::new(space, &LEASED, keys);
            let leased = Arc::new(Leased { floor, operations: Operations::new(space, 'p') });
            let primitive = Arc::<Leased>::clone(&leased);
            Arc::new(Shared { engine: Engine::new(Arc::clone(space), &LEASED, primitive, store), leased })
        });
        Self { client: client.clone(), shared }
    }

    /// The semaphores of a new client with default settings; see [`Client::connect`] for the URL.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a URL that is not understood. Nothing is connected yet.
    pub fn connect(url: &str) -> Result<Self> {
        Client::connect(url).map(|client| Self::new(&client))
    }

    /// The same without a server, for tests of programs: a namespace of its own, shared by its clones. Its client answers, and has no servers.
    #[must_use]
    pub fn in_memory() -> Self {
        let channel_of = |key: &str| Key::new(Naming::default(), "", key).of_side(Side::Permits(1)).channel();
        Self::new(&Client::of_store(Arc::new(InMemory::new(memory::run, channel_of))))
    }

    /// The client that these semaphores were made on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sets how many permits there are in all, unless that is set; whether it was not.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock), also `Config` for more than 2,147,483,647.
    pub fn try_set_permits(&self, name: &str, permits: u32) -> Result<bool> {
        self.set(name, permits, false)
    }

    /// Sets how many permits there are in all, those that are out among them. If more are out than that, they stay with their holders, and the
    /// first that come back are not given out again.
    ///
    /// # Errors
    /// As [`try_set_permits`](Self::try_set_permits).
    pub fn set_permits(&self, name: &str, permits: u32) -> Result<()> {
        self.set(name, permits, true).map(drop)
    }

    fn set(&self, name: &str, permits: u32, anew: bool) -> Result<bool> {
        let (engine, permits) = (&self.shared.engine, check_permits(permits.max(1), MOST).map(|_| permits)?);
        let (key, leased) = (engine.key(name)?, &self.shared.leased);
        let mut operation = leased.operations.begin(&key);
        let patience = operation.within(engine.patience(name));
        let (channel, places) = (Arg::Parts(key.channel_parts()), Arg::Beside(key.places_parts()));
        let rest = [Arg::Number(permits.into()), Arg::Number(anew.into()), channel, places];
        let set =
            operation.run(leased.keys(), &patience, &SET_LEASED, (&key, &[&key.leases()]), &rest, |_| Some(ENOUGH));
        set.map(|set| set == 1)
    }

    /// How many permits are left, asked of the server: fewer than zero if more are out than there are. `None`: nobody has set them.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn available_permits(&self, name: &str) -> Result<Option<i64>> {
        Ok(self.look(name)?.map(|found| found.left))
    }

    /// How many permits are out, in whatever process. `None`: nobody has set how many there are.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn acquired_permits(&self, name: &str) -> Result<Option<i64>> {
        Ok(self.look(name)?.map(|found| found.out))
    }

    /// In what time the next permit comes back if its holder does nothing. `None`: none is out.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn next_return(&self, name: &str) -> Result<Option<Duration>> {
        Ok(self.look(name)?.and_then(|found| found.next_return))
    }

    fn look(&self, name: &str) -> Result<Option<Found>> {
        let engine = &self.shared.engine;
        let key = engine.key(name)?;
        engine.patience(name).persist(|answer_by| self.shared.leased.look(&key, answer_by))
    }

    /// Acquires permits on the given terms, all of them or none; `None` when the wait ended without them.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock); `Config` also for zero permits and for more than 1,000;
    /// [`Error::Cancelled`](crate::Error::Cancelled).
    #[must_use = "`None` means that no permit is held: write `let Some(permits) = .. else {`"]
    pub fn acquire(&self, name: &str, permits: u32, terms: &Terms<'_>) -> Result<Option<Permits>> {
        let (engine, leased) = (&self.shared.engine, &self.shared.leased);
        let key = engine.key(name)?.of_side(Side::Permits(check_permits(permits, MOST_LEASED)?));
        let asked = engine.space.config.asked(terms.lease, terms.renewed)?;
        let mut tenure = engine.space.tenure(&key);
        let hold = leased.floor.contend(&key, engine.patience(name).on(terms), terms, |patience, place, is_last| {
            // An attempt without an answer gave up its owner id: the sweeper gives back what that took.
            if !tenure.is_unused() {
                tenure = engine.space.tenure(&key);
            }
            let mut busy = (0, false);
            let taken = engine.try_take_by(&mut tenure, asked, false, patience, |tenure, lease, limits| {
                leased
                    .acquire(tenure, lease, place.args(tenure.key(), is_last), limits)
                    .and_then(|answer| leased.asked(tenure, &answer, &mut busy))
            })?;
            Ok(match taken {
                Outcome::Won(hold) => Asked::Won(hold),
                Outcome::Again => Asked::Again,
                Outcome::Late => Asked::Late,
                Outcome::Busy(left) => Asked::Busy { left, rank: busy.0, is_unset: busy.1 },
                Outcome::Reserved(left) => Asked::Busy { left: Some(left), rank: busy.0, is_unset: busy.1 },
            })
        })?;
        Ok(hold.map(|hold| Permits::of(OnLease { hold, engine: Arc::clone(engine) }, &self.client)))
    }

    /// Acquires permits if so many are left and nobody waits for some; `None` if not.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`None` means that no permit is held: write `let Some(permits) = .. else {`"]
    pub fn try_acquire(&self, name: &str, permits: u32) -> Result<Option<Permits>> {
        self.acquire(name, permits, &Terms::new().wait(Duration::ZERO))
    }

    /// Takes all permits back that are out, whoever has them; whether any were. A holder in this process knows at once, a holder in another
    /// process at its next renewal.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn force_release(&self, name: &str) -> Result<bool> {
        self.shared.engine.force_unlock(name)
    }

    /// Deletes the semaphore, with all permits that are out; whether it was there. Holders are told at their next renewal, and who waits goes on
    /// waiting until somebody sets the permits again.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn delete(&self, name: &str) -> Result<bool> {
        let (engine, leased) = (&self.shared.engine, &self.shared.leased);
        let key = engine.key(name)?;
        let delete = |answer_by| leased.call(&DELETE_LEASED, &key, &[], answer_by)?.was_there();
        engine.patience(name).remove(delete).map(|(was_there, _)| was_there)
    }
}

impl std::fmt::Debug for LeasedSemaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeasedSemaphore").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Permits that are renewed.
struct OnLease {
    hold: Hold,
    engine: Arc<Engine>,
}

impl Giver for OnLease {
    fn key(&self) -> &Key {
        self.hold.tenure().key()
    }

    fn give_back(&self, hasty: bool) -> Result<()> {
        self.hold.hurry(hasty);
        self.engine.release(&self.hold)
    }

    fn hold(&self) -> Option<&Hold> {
        Some(&self.hold)
    }
}

/// What a look at a semaphore found.
struct Found {
    left: i64,
    out: i64,
    next_return: Option<Duration>,
}

/// The commands of the kind.
struct Leased {
    floor: Arc<Floor>,
    operations: Operations,
}

impl Leased {
    fn keys(&self) -> &Keys {
        &self.floor.keys
    }

    /// Makes an attempt that gives no permits out, and that may be executed until `answer_by`.
    fn call(&self, script: &'static Script, key: &Key, args: &[Arg<'_>], answer_by: Moment) -> Result<Answer, Failure> {
        let leases = key.leases();
        self.keys().attempt(Request::of(script, &[key.full(), &leases], args), Limits::any_time(answer_by))
    }

    fn look(&self, key: &Key, answer_by: Moment) -> Result<Option<Found>, Failure> {
        let args = [Arg::Deadline, Arg::Parts(key.channel_parts())];
        match &self.call(&LOOK_LEASED, key, &args, answer_by)?.reply {
            Reply::Nil => Ok(None),
            Reply::Array(found) if found.len() == 3 => {
                let next_return = u64::try_from(found[2].number()?).ok().map(Duration::from_millis);
                Ok(Some(Found { left: found[0].number()?, out: found[1].number()?, next_return }))
            }
            _ => Err(Failure::not_understood()),
        }
    }

    fn acquire(
        &self,
        tenure: &Tenure,
        lease: Lease,
        place: [Arg<'_>; 3],
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let (key, leases) = (tenure.key(), tenure.key().leases());
        let [places, place, ttl] = place;
        let (owner, permits) = (Arg::Text(tenure.owner()), Arg::Number(key.permits().into()));
        let channel = Arg::Parts(key.channel_parts());
        let args = [Arg::Deadline, Arg::Number(lease.millis()), owner, permits, channel, places, place, ttl];
        self.keys().acquire(&ACQUIRE_LEASED, &[key.full(), &leases], &args, key, Manner::Newcomer, limits)
    }

    /// What an acquire found. `busy`: how many wait before, and whether nobody has set the permits.
    fn asked(&self, tenure: &Tenure, answer: &Answer, busy: &mut (u32, bool)) -> Result<Take, Failure> {
        match &answer.reply {
            Reply::Array(said) if said.len() == 3 => {
                *busy = (u32::try_from(said[1].number()?).unwrap_or(0), said[2].number()? == 1);
                Ok(Take::busy(said[0].number()?))
            }
            _ => self.keys().took(tenure, Manner::Newcomer, answer),
        }
    }
}

impl Primitive for Leased {
    fn take(&self, tenure: &Arc<Tenure>, lease: Lease, _: Manner<'_>, limits: Limits<'_>) -> Result<Take, Failure> {
        let answer = self.acquire(tenure, lease, Place::NONE.args(tenure.key(), true), limits)?;
        self.asked(tenure, &answer, &mut (0, false))
    }

    /// A hold of permits has one level.
    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        _: usize,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Option<Moment>, Failure> {
        let renewed = self.renew(Lane::Calls, std::slice::from_ref(tenure), lease, limits.answer_by)?;
        renewed.into_iter().next().unwrap_or(Ok(None))
    }

    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        let names: Vec<_> = tenures.iter().map(|tenure| tenure.key().leases()).collect();
        let keys: Vec<_> = names.iter().map(String::as_str).collect();
        let args =
            tenures.iter().flat_map(|tenure| [Arg::Text(tenure.owner()), Arg::Number(tenure.key().permits().into())]);
        self.keys().renew_by(&RENEW_LEASED, lane, tenures, (&keys, args), lease, answer_by)
    }

    fn release(&self, tenure: &Arc<Tenure>, _: usize, answer_by: Moment) -> Result<bool, Failure> {
        let key = tenure.key();
        let (owner, permits) = (Arg::Text(tenure.owner()), Arg::Number(key.permits().into()));
        let args = [owner, permits, Arg::Parts(key.channel_parts()), Arg::Beside(key.places_parts())];
        self.keys().released(tenure, 0, self.call(&RELEASE_LEASED, key, &args, answer_by))
    }

    /// One by one: each goes back to two keys.
    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        tenures.iter().try_for_each(|tenure| self.sweep(tenure, answer_by))
    }

    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        let args = [Arg::Parts(key.channel_parts()), Arg::Beside(key.places_parts())];
        let answer = self.call(&FORCE_LEASED, key, &args, answer_by)?;
        Ok((self.keys().freed(key, &answer, answer.reply.number()?).is_done(), answer.life))
    }

    /// Several semaphores are not taken as one.
    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn time_to_live(&self, key: &Key, answer_by: Moment) -> Result<Option<Option<Duration>>, Failure> {
        Ok(self.look(key, answer_by)?.and_then(|found| found.next_return).map(Some))
    }

    fn queue(&self, _: &Key) -> Option<&Queue> {
        None
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Signal>) -> Option<Box<dyn Listening>> {
        self.keys().listen(key, semaphore)
    }
}
