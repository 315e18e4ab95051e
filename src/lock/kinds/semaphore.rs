//! [`Semaphore`]: Redisson's `RSemaphore` on one store, a counter of permits (docs/protocol.md, 18 and 19).

mod memory;

use crate::base::error::{Error, Result};
use crate::base::key::{Key, Naming, Side};
use crate::base::kind::{Kind, Touched};
use crate::base::say::say;
use crate::base::script::Count::Exactly;
use crate::base::script::{Script, scripts};
use crate::base::time::Moment;
use crate::base::unwind::survives_a_panic;
use crate::client::{Client, Space};
use crate::lease::hold::Hold;
use crate::lease::sweeper::Chore;
use crate::lock::Terms;
use crate::lock::keys::{ENOUGH, Keys, takes};
use crate::lock::operation::{Left, Operation, Operations};
use crate::lock::patience::Patience;
use crate::lock::permits::{Asked, Floor, Giver, MOST, Permits, Place, check_permits};
use crate::store::Store;
use crate::store::memory::InMemory;
use crate::store::node::{Arg, Failure, Limits, Reply, Request};
use std::sync::Arc;
use std::time::Duration;

/// Its permits are no holds.
static COUNTED: Kind = Kind {
    of_thread: false,
    side: Side::Permits(1),
    touches: &[
        Touched {
            key: |key| key.full().to_owned(),
            by: &[&["GET"], &["SET", "0", "NEITHER"], &["INCRBY", "x"], &["DECRBY", "x"]],
        },
        Touched {
            key: |key| key.operations_parts().concat(),
            by: &[&["GET"], &["SET", "0", "NEITHER"], &["PEXPIRE", "1"], &["DEL"]],
        },
        Touched {
            key: |key| key.places_parts().concat(),
            by: &[&["HGET", "x"], &["HGETALL"], &["HSET", "x", "1", "y"], &["HDEL", "x"], &["PEXPIRE", "1"]],
        },
    ],
    ..Kind::new("semaphore")
};

scripts! {
    /// Reply: nil (acquired) or an array of two.
    ACQUIRE_COUNTED = "semaphore/acquire.lua", Exactly(2), Exactly(7);
    /// Reply: how many are left.
    ADD = "semaphore/add.lua", Exactly(2), Exactly(7);
    /// Reply: 1 (set) or 0 (they were set before).
    SET_COUNTED = "semaphore/set.lua", Exactly(2), Exactly(6);
    /// Reply: how many were taken.
    DRAIN = "semaphore/drain.lua", Exactly(2), Exactly(3);
    /// Reply: 0 (it took none) or that of `tell`.
    UNDO = "semaphore/undo.lua", Exactly(2), Exactly(4);
    /// Reply: 1 (deleted) or 0 (nobody had set its permits).
    DELETE_COUNTED = "semaphore/delete.lua", Exactly(1), Exactly(0);
}

/// A counter of permits, shared on the wire with Redisson's `RSemaphore`: so many may do something at once, in whatever process.
///
/// Its permits have no lease. Those of a process that dies stay out until somebody [adds](Self::add_permits) as many: for work that may die
/// there is [`LeasedSemaphore`](crate::LeasedSemaphore), whose permits come back. Calls wait [in the same
/// order](crate::LeasedSemaphore#in-which-order).
///
/// Somebody sets the number of permits once, by [`try_set_permits`](Self::try_set_permits). Calls that come earlier wait.
///
/// ```no_run
/// use redlatch::{Client, Semaphore, Terms};
///
/// let slots = Semaphore::new(&Client::connect("redis://127.0.0.1/")?);
/// slots.try_set_permits("reports", 5)?;
/// if let Some(permits) = slots.acquire("reports", 2, &Terms::new())? {
///     permits.release()?;
/// }
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// # What is lost when
/// An answer that is lost costs nothing: each call is done once, or taken back in the background. The background tries for ten
/// [outage budgets](crate::ClientBuilder::outage_budget). What it has not given back by then may stay out, and a warning says so. Over a failover
/// a release that was not replicated is gone for good, and its permits stay out.
#[derive(Clone)]
pub struct Semaphore {
    client: Client,
    shared: Arc<Counted>,
}

/// What all semaphores of one client share.
struct Counted {
    space: Arc<Space>,
    store: Arc<dyn Store>,
    floor: Arc<Floor>,
    operations: Operations,
}

survives_a_panic!(Counted);

impl Semaphore {
    /// The semaphores of a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let shared = client.of_kind(&COUNTED, || {
            let (space, store) = (Arc::clone(client.space()), Arc::clone(client.store()));
            let floor = Floor::new(&space, &COUNTED, Keys::new(Arc::clone(&store), &space.config));
            let operations = Operations::new(&space, 's');
            Arc::new(Counted { space, store, floor, operations })
        });
        Self { client: client.clone(), shared }
    }

    /// The semaphores of a new client with default settings; see [`Client::connect`] for the URL.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL that is not understood. Nothing is connected yet.
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

    /// Sets how many permits there are, unless that is set; whether it was not.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock), also `Config` for more than 2,147,483,647.
    pub fn try_set_permits(&self, name: &str, permits: u32) -> Result<bool> {
        check_permits(permits.max(1), MOST)?;
        let key = self.shared.key(name, 1)?;
        let rest = [Arg::Number(permits.into()), Arg::Parts(key.channel_parts()), Arg::Beside(key.places_parts())];
        Ok(self.shared.once(&SET_COUNTED, &key, &rest)? == 1)
    }

    /// Adds permits, and returns how many are left then. A semaphore without permits gets its first.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock), also `Config` for zero, and for more than 2,147,483,647.
    pub fn add_permits(&self, name: &str, permits: u32) -> Result<i64> {
        self.change(name, i64::from(check_permits(permits, MOST)?))
    }

    /// Takes permits away, whether they are left or not, and returns how many are left then. If that is fewer than zero, the first
    /// that come back are not given out again. If nobody has set the permits, that sets them.
    ///
    /// # Errors
    /// As [`add_permits`](Self::add_permits).
    pub fn remove_permits(&self, name: &str, permits: u32) -> Result<i64> {
        self.change(name, -i64::from(check_permits(permits, MOST)?))
    }

    fn change(&self, name: &str, by: i64) -> Result<i64> {
        let (key, by) = (self.shared.key(name, 1)?, by.to_string());
        self.shared.once(
            &ADD,
            &key,
            &[Arg::Text(&by), Arg::Parts(key.channel_parts()), Arg::Beside(key.places_parts()), Arg::Number(1)],
        )
    }

    /// Takes all permits that are left; how many those were.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn drain_permits(&self, name: &str) -> Result<i64> {
        let key = self.shared.key(name, 1)?;
        self.shared.once(&DRAIN, &key, &[])
    }

    /// How many permits are left, asked of the server: fewer than zero after some were [taken away](Self::remove_permits) that were out.
    /// `None`: nobody has set them.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn available_permits(&self, name: &str) -> Result<Option<i64>> {
        let key = self.shared.key(name, 1)?;
        let look = |answer_by| self.shared.floor.keys.ask("GET", key.full(), answer_by)?.counted();
        self.shared.patience(name).persist(look)
    }

    /// Deletes the semaphore; whether it was there. Who waits goes on waiting until somebody sets the permits again. Releases of permits that are
    /// out add nothing until then, and after it they add to the new number: so end their holders first.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn delete(&self, name: &str) -> Result<bool> {
        let key = self.shared.key(name, 1)?;
        let delete = |answer_by| self.shared.floor.keys.call(&DELETE_COUNTED, &key, &[], answer_by)?.was_there();
        self.shared.patience(name).remove(delete).map(|(was_there, _)| was_there)
    }

    /// Acquires permits on the given terms, all of them or none; `None` when the wait ended without them.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock); `Config` also for zero permits, and for terms with a lease;
    /// [`Error::Cancelled`].
    #[must_use = "`None` means that no permit is held: write `let Some(permits) = .. else {`"]
    pub fn acquire(&self, name: &str, permits: u32, terms: &Terms<'_>) -> Result<Option<Permits>> {
        if terms.lease.is_some() {
            return Err(Error::config("permits of a Semaphore have no lease: use a LeasedSemaphore"));
        }
        let shared = &self.shared;
        let key = shared.key(name, check_permits(permits, MOST)?)?;
        let ask = |patience: &Patience<'_>, place: &Place, is_last| shared.ask(&key, patience, place, is_last);
        let won = shared.floor.contend(&key, shared.patience(name).on(terms), terms, ask)?;
        Ok(won.map(|()| Permits::of(Out { shared: Arc::clone(shared), key }, &self.client)))
    }

    /// Acquires permits if so many are left and nobody waits for some; `None` if not.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`None` means that no permit is held: write `let Some(permits) = .. else {`"]
    pub fn try_acquire(&self, name: &str, permits: u32) -> Result<Option<Permits>> {
        self.acquire(name, permits, &Terms::new().wait(Duration::ZERO))
    }
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Semaphore").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Counted {
    fn key(&self, name: &str, permits: u32) -> Result<Key> {
        Ok(self.space.key(name)?.of_side(Side::Permits(permits)))
    }

    fn patience<'a>(&'a self, name: &'a str) -> Patience<'a> {
        Patience::new(&self.space, &*self.store, name)
    }

    /// Does an operation that gives no permits out; its result.
    fn once(&self, by: &'static Script, key: &Key, rest: &[Arg<'_>]) -> Result<i64> {
        let mut operation = self.operations.begin(key);
        let patience = operation.within(self.patience(key.resource()));
        operation.run(&self.floor.keys, &patience, by, (key, &[]), rest, |_| Some(ENOUGH))
    }

    /// Asks once for permits. If an attempt was not answered, and the call goes without permits, the background gives back what that took.
    fn ask(self: &Arc<Self>, key: &Key, patience: &Patience<'_>, place: &Place, is_last: bool) -> Result<Asked<()>> {
        let mut operation = self.operations.begin(key);
        let [places, name, ttl] = place.args(key, is_last);
        let asked = patience.persist_in_wait(|answer_by| {
            // A caller may wait for longer than a result is kept.
            if self.space.clock.now() >= operation.ends() {
                self.undo(&mut operation, key);
                operation = self.operations.begin(key);
            }
            let [deadline, number, kept] = operation.args();
            let args = [deadline, number, kept, Arg::Number(key.permits().into()), places, name, ttl];
            let limits = Limits { stop: Some(&patience.stop), ..Limits::any_time(answer_by) };
            operation.attempt(&self.floor.keys, &ACQUIRE_COUNTED, (key, &[]), &args, Some(takes), limits)
        });
        let found = asked.and_then(|answer| match answer {
            None => Ok(Asked::Late),
            Some(answer) => found(&answer.reply).map_err(|failure| failure.into_error(key.resource())),
        });
        match &found {
            Ok(Asked::Won(())) => self.space.counters.acquires.add(1),
            _ => self.undo(&mut operation, key),
        }
        found
    }

    /// Has the sweeper undo an acquire when no attempt of it can be executed any more.
    fn undo(self: &Arc<Self>, operation: &mut Operation<'_>, key: &Key) {
        let Some(open) = operation.open_until() else { return };
        self.do_later(operation, key, Does::Undo, open.plus(Duration::from_millis(1)));
    }

    fn do_later(self: &Arc<Self>, operation: &mut Operation<'_>, key: &Key, does: Does, due: Moment) {
        let later = Later { shared: Arc::clone(self), key: key.clone(), of: operation.leave(), does };
        self.space.sweeper.run_at(Box::new(later), due);
    }
}

/// What an acquire found.
fn found(reply: &Reply) -> Result<Asked<()>, Failure> {
    match reply {
        Reply::Nil => Ok(Asked::Won(())),
        Reply::Array(said) if said.len() == 2 => {
            let rank = u32::try_from(said[0].number()?).unwrap_or(0);
            Ok(Asked::Busy { left: None, rank, is_unset: said[1].number()? == 1 })
        }
        _ => Err(Failure::not_understood()),
    }
}

/// What the background does for an operation whose call is over.
struct Later {
    shared: Arc<Counted>,
    key: Key,
    of: Left,
    does: Does,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Gives back what an acquire took whose caller never learned of it.
    Undo,
    /// Gives back what a caller has given up.
    Release,
}

impl Later {
    fn attempt(&self) -> Result<(), Failure> {
        let (key, names) = (&self.key, [self.key.full(), self.of.lane.as_str()]);
        let (number, channel) = (Arg::Number(self.of.number), Arg::Parts(key.channel_parts()));
        let (permits, kept) = (Arg::Number(key.permits().into()), Arg::Number(self.shared.operations.kept()));
        let places = Arg::Beside(key.places_parts());
        let release = [Arg::Deadline, number, kept, permits, channel, places, Arg::Number(0)];
        let undo = [number, permits, channel, places];
        let request = match self.does {
            Does::Undo => Request::of(&UNDO, &names, &undo),
            Does::Release => Request::of(&ADD, &names, &release),
        };
        let limits = Limits { latest: self.of.latest, ..Limits::any_time(self.shared.space.one_answer()) };
        self.shared.floor.keys.attempt(request, limits).map(drop)
    }
}

impl Chore for Later {
    /// Whatever the failure: no lease ends what would stay out, and an administrator may give back a right.
    fn run(&self) -> Result<()> {
        // The process may have been stopped meanwhile: an undo would find no result any more.
        let is_late = self.shared.space.clock.now() >= self.of.until;
        let attempted = if is_late { Err(Failure::Stale) } else { self.attempt() };
        attempted.map_err(|failure| failure.into_error(self.key.resource()))
    }

    fn until(&self) -> Moment {
        self.of.until
    }

    fn give_up(&self, error: &Error) {
        say!(warn, "{} may stay out: {error}", self.whereabouts());
    }

    fn whereabouts(&self) -> String {
        format!("{} permit(s) of semaphore {:?}", self.key.permits(), self.key.full())
    }
}

/// Permits that are out.
struct Out {
    shared: Arc<Counted>,
    key: Key,
}

impl Giver for Out {
    fn key(&self) -> &Key {
        &self.key
    }

    /// If the call fails, the background goes on with the same operation.
    fn give_back(&self, hasty: bool) -> Result<()> {
        let (shared, key) = (&self.shared, &self.key);
        // Also after a shutdown: nothing else would give them back.
        if shared.space.is_forked() {
            return Err(Error::closed(key.resource()));
        }
        let mut operation = shared.operations.begin(key);
        let places = Arg::Beside(key.places_parts());
        let permits = [Arg::Number(key.permits().into()), Arg::Parts(key.channel_parts()), places, Arg::Number(0)];
        let patience = operation.within(shared.patience(key.resource()));
        let patience = if hasty { patience.once() } else { patience };
        let released = operation.run(&shared.floor.keys, &patience, &ADD, (key, &[]), &permits, |_| Some(ENOUGH));
        if released.is_err() {
            shared.do_later(&mut operation, key, Does::Release, shared.space.clock.now());
        }
        released.map(drop)
    }

    fn hold(&self) -> Option<&Hold> {
        None
    }
}
