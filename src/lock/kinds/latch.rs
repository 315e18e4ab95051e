//! [`CountDownLatch`]: Redisson's `RCountDownLatch` on one store (docs/protocol.md, 19 and 20).

mod memory;

use crate::base::error::{Error, Result};
use crate::base::key::{Key, Naming, Side};
use crate::base::kind::{Kind, Touched};
use crate::base::lives::Life;
use crate::base::meters::{Meter, Timer};
use crate::base::script::Count::Exactly;
use crate::base::script::{Script, scripts};
use crate::base::signal::{Listening, Semaphore};
use crate::base::stats::Contention;
use crate::base::time::{Lease, Moment};
use crate::base::unwind::survives_a_panic;
use crate::client::{Client, Post, Space};
use crate::lock::Terms;
use crate::lock::keys::{Keys, OPENED};
use crate::lock::operation::Operations;
use crate::lock::patience::Patience;
use crate::lock::primitive::heard;
use crate::lock::waiting::bid::{Bid, Call};
use crate::lock::waiting::line::Line;
use crate::lock::waiting::wait::Outcome;
use crate::registry::{Lent, registry};
use crate::store::Store;
use crate::store::memory::InMemory;
use crate::store::node::{Arg, Failure, Limits, Reply, Request};
use std::sync::Arc;
use std::time::Duration;

/// Nobody holds a latch.
static LATCH: Kind = Kind {
    of_thread: false,
    side: Side::Latch,
    touches: &[
        Touched {
            key: |key| key.full().to_owned(),
            by: &[&["GET"], &["SET", "0", "NEITHER"], &["DECRBY", "x"], &["PTTL"], &["DEL"]],
        },
        Touched {
            key: |key| key.operations_parts().concat(),
            by: &[&["GET"], &["SET", "0", "NEITHER"], &["PEXPIRE", "1"], &["DEL"]],
        },
        Touched {
            key: Key::latch_end,
            by: &[&["GET"], &["SET", "0", "NEITHER"], &["DEL"], &["PTTL"], &["PEXPIRE", "1"]],
        },
    ],
    ..Kind::new("latch")
};

scripts! {
    /// Reply: 1 (set) or 0 (it had a count).
    SET_COUNT = "latch/set.lua", Exactly(3), Exactly(6);
    /// Reply: how many have not counted down; -1: its time was over before it opened.
    COUNT_DOWN = "latch/count_down.lua", Exactly(3), Exactly(4);
    /// Reply: nil (open), ms until its time is over, or a text: it did not open in time.
    LOOK_AT_LATCH = "latch/look.lua", Exactly(2), Exactly(1);
    /// Reply: that of `Freed::of`.
    OPEN = "latch/open.lua", Exactly(2), Exactly(1);
}

/// A latch that opens when enough parties have counted it down, shared on the wire with Redisson's `RCountDownLatch`: one waits for many, in
/// whatever processes.
///
/// ```no_run
/// use redlatch::{Client, CountDownLatch, Terms};
/// use std::time::Duration;
///
/// let latches = CountDownLatch::new(&Client::connect("redis://127.0.0.1/")?);
/// // One process, for three others. They have an hour.
/// latches.try_set_count("import:2026-11", 3, Some(Duration::from_secs(3_600)))?;
/// // Each of the three, when it is done:
/// latches.count_down("import:2026-11")?;
/// // Whoever goes on when all are done:
/// if latches.wait("import:2026-11", &Terms::new().wait(Duration::from_secs(60)))? {
///     println!("all done");
/// }
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// # A party that dies
/// It does not count down, and the latch stays closed. Give the latch a time: when that is over, all that wait for it get
/// [`Error::Expired`], and so does who comes within as long a time again. After that the name counts as open. Without a time they wait as long
/// as their [`Terms`] say. [`open`](Self::open) opens it by hand.
///
/// # What counts as open
/// A latch without a count is open, as in Redisson: nobody has to count it down. So set the count before anybody counts down or waits. A latch
/// that has opened has no count, either: to set it again closes it. So set it once a run, under a name of that run. A server that lost
/// its data opens its latches. A latch that a client of Redisson's opened shortly before its time was over counts as expired for those who come
/// after that time.
#[derive(Clone)]
pub struct CountDownLatch {
    client: Client,
    shared: Arc<Latches>,
}

/// What all latches of one client share.
struct Latches {
    space: Arc<Space>,
    store: Arc<dyn Store>,
    keys: Keys,
    operations: Operations,
    meter: Meter,
}

survives_a_panic!(Latches);

impl CountDownLatch {
    /// The latches of a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let shared = client.of_kind(&LATCH, || {
            let (space, store) = (Arc::clone(client.space()), Arc::clone(client.store()));
            let keys = Keys::new(Arc::clone(&store), &space.config);
            let operations = Operations::new(&space, 'l');
            let meter = space.counters.meters.of_kind(LATCH.name);
            Arc::new(Latches { space, store, keys, operations, meter })
        });
        Self { client: client.clone(), shared }
    }

    /// The latches of a new client with default settings; see [`Client::connect`] for the URL.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL that is not understood. Nothing is connected yet.
    pub fn connect(url: &str) -> Result<Self> {
        Client::connect(url).map(|client| Self::new(&client))
    }

    /// The same without a server, for tests of programs: a namespace of its own, shared by its clones. Its client answers, and has no servers.
    #[must_use]
    pub fn in_memory() -> Self {
        let channel_of = |key: &str| Key::new(Naming::default(), "", key).of_side(Side::Latch).channel();
        Self::new(&Client::of_store(Arc::new(InMemory::new(memory::run, channel_of))))
    }

    /// The client that these latches were made on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sets how many have to count the latch down, unless it has a count; whether it had none. It opens within `time_to_live` or not at all:
    /// 10 ms to 365 days. `None`: it stays until it opens.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock); `Config` also for a count of zero or of more than 2,147,483,647, and for a time out of range.
    pub fn try_set_count(&self, name: &str, count: u32, time_to_live: Option<Duration>) -> Result<bool> {
        if count == 0 || count > i32::MAX as u32 {
            return Err(Error::config(format!("a latch cannot have the count {count}: give it 1 to 2,147,483,647")));
        }
        let ttl = time_to_live.map(Lease::new).transpose()?.map_or(0, Lease::millis);
        let key = self.shared.key(name)?;
        let rest = [Arg::Number(count.into()), Arg::Number(ttl), Arg::Parts(key.channel_parts())];
        self.shared.once(&SET_COUNT, &key, &rest, |set| (set == 1).then_some("1")).map(|set| set == 1)
    }

    /// How many have not counted down, asked of the server; zero for a latch that is open, that nobody has set, or whose time is over. Only a
    /// [wait](Self::wait) tells which.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn count(&self, name: &str) -> Result<u64> {
        let key = self.shared.key(name)?;
        let look = |answer_by| self.shared.keys.ask("GET", key.full(), answer_by)?.counted();
        let count = self.shared.patience(name).persist(look)?;
        Ok(count.map_or(0, |count| u64::try_from(count).unwrap_or(0)))
    }

    /// Counts the latch down by one, and opens it with the last; how many have not counted down. Does nothing to a latch that is open.
    ///
    /// An answer that is lost costs nothing while the call goes on: it counts once. After [`Error::OutcomeUnknown`] it has counted once or not
    /// at all: look at the [count](Self::count) before you call again.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock); [`Error::Expired`] when the latch did not open in its time: this call came too late.
    pub fn count_down(&self, name: &str) -> Result<u64> {
        let key = self.shared.key(name)?;
        let rest = [Arg::Parts(key.channel_parts())];
        let left = self.shared.once(&COUNT_DOWN, &key, &rest, |left| (left == 0).then_some(OPENED))?;
        u64::try_from(left).map_err(|_| Error::expired(name))
    }

    /// Waits until the latch is open; `false` when the wait ended before.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock); [`Error::Expired`] when the latch did not open in its time; [`Error::Cancelled`]; `Config` also for
    /// terms with a lease.
    #[must_use = "`false` means that the latch is closed: write `if latches.wait(..)? {`"]
    pub fn wait(&self, name: &str, terms: &Terms<'_>) -> Result<bool> {
        if terms.lease.is_some() {
            return Err(Error::config("nobody holds a latch, so a wait for it has no lease: give terms without one"));
        }
        let timer = Timer::begin(true);
        let result = self.shared.wait(name, terms);
        timer.end(|| Some(&self.shared.meter), name, terms.wait.is_zero(), &result);
        let counters = &self.shared.space.counters;
        match &result {
            Ok(None) if !terms.wait.is_zero() => counters.timed_out.add(1),
            Err(Error::Cancelled { .. }) => counters.cancelled.add(1),
            _ => {}
        }
        result.map(|opened| opened.is_some())
    }

    /// Opens the latch, whatever its count; whether it was closed.
    ///
    /// # Errors
    /// As of [`RedLock`](crate::RedLock).
    pub fn open(&self, name: &str) -> Result<bool> {
        let key = self.shared.key(name)?;
        let (was_closed, _) = self.shared.patience(name).remove(|answer_by| self.shared.open(&key, answer_by))?;
        Ok(was_closed)
    }
}

impl std::fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountDownLatch").field("client", &self.client).finish_non_exhaustive()
    }
}

/// How a latch was found.
enum Found {
    Open,
    /// For this long at most; `None`: until it opens.
    Closed(Option<Duration>),
    Expired,
}

impl Latches {
    fn key(&self, name: &str) -> Result<Key> {
        Ok(self.space.key(name)?.of_side(Side::Latch))
    }

    fn patience<'a>(&'a self, name: &'a str) -> Patience<'a> {
        Patience::new(&self.space, &*self.store, name)
    }

    /// Does an operation once; its result.
    fn once(
        &self,
        by: &'static Script,
        key: &Key,
        rest: &[Arg<'_>],
        tells: fn(i64) -> Option<&'static str>,
    ) -> Result<i64> {
        let end = key.latch_end();
        let mut operation = self.operations.begin(key);
        let patience = operation.within(self.patience(key.resource()));
        operation.run(&self.keys, &patience, by, (key, &[&end]), rest, tells)
    }

    fn look(&self, key: &Key, limits: Limits<'_>) -> Result<Found, Failure> {
        let (end, args) = (key.latch_end(), [Arg::Deadline]);
        let keys = [key.full(), end.as_str()];
        match self.keys.attempt(Request::of(&LOOK_AT_LATCH, &keys, &args), limits)?.reply {
            Reply::Nil => Ok(Found::Open),
            Reply::Text(_) => Ok(Found::Expired),
            left => Ok(Found::Closed(u64::try_from(left.number()?).ok().map(Duration::from_millis))),
        }
    }

    fn open(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        let (end, args) = (key.latch_end(), [Arg::Parts(key.channel_parts())]);
        let keys = [key.full(), end.as_str()];
        let answer = self.keys.attempt(Request::of(&OPEN, &keys, &args), Limits::any_time(answer_by))?;
        Ok((self.keys.freed(key, &answer, answer.reply.number()?).is_done(), answer.life))
    }

    /// `None` when the wait ended before the latch was open.
    fn wait(&self, name: &str, terms: &Terms<'_>) -> Result<Option<()>> {
        let key = &self.key(name)?;
        let patience = self.patience(name).on(terms);
        patience.stop.check()?;
        if terms.wait.is_zero() {
            let asked = LatchBid { latches: self, key, patience: &patience }.ask()?;
            return Ok(matches!(asked, Outcome::Won(())).then_some(()));
        }
        let waiter = &Lent::new(None);
        let post = Post::new(&self.space, key.resource(), waiter, false);
        let patience = &patience.woken_by(&waiter.semaphore).watched_by(&post);
        let (config, stop, contention) = (&self.space.config, &patience.stop, &Contention::new(&self.space.counters));
        let call = &Call { config, stop, contention, semaphore: &waiter.semaphore };
        let mut bid = LatchBid { latches: self, key, patience };
        // It is in the map of threads for a shutdown to find it.
        let (registry, space, name) = (registry(), self.space.ground_of(&LATCH), key.shared());
        let line = Line { registry, space, name, waiter, call, backing: patience };
        line.go_past(|| call.contend(&mut bid))
    }
}

/// The bid for an open latch: it takes nothing.
struct LatchBid<'a> {
    latches: &'a Latches,
    key: &'a Key,
    patience: &'a Patience<'a>,
}

impl Bid for LatchBid<'_> {
    type Won = ();

    fn ask(&mut self) -> Result<Outcome<()>> {
        let look = |answer_by| {
            let limits = Limits { stop: Some(&self.patience.stop), ..Limits::any_time(answer_by) };
            self.latches.look(self.key, limits)
        };
        match self.patience.persist_in_wait(look)? {
            None => Ok(Outcome::Late),
            Some(Found::Open) => Ok(Outcome::Won(())),
            Some(Found::Closed(left)) => Ok(Outcome::Busy(left)),
            Some(Found::Expired) => Err(Error::expired(self.key.resource())),
        }
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        heard(self.latches.keys.listen_to(&self.key.channel(), Arc::<Semaphore>::clone(semaphore)))
    }
}
