//! The client: one store, its watchdog, the thread of its callbacks, and the settings of the locks made on it.

mod builder;
mod census;
#[cfg(feature = "metrics")]
mod classes;
mod closing;
mod events;
mod lookout;

use crate::base::config::{Config, Settings};
use crate::base::error::{Error, Result};
use crate::base::key::{FullKey, Key, check_key, check_name};
use crate::base::kind::Kind;
use crate::base::owner::Owners;
use crate::base::signal::{Moves, Shutdown};
use crate::base::stats::{Counters, Stats};
use crate::base::time::{Clock, Moment};
use crate::base::unwind::survives_a_panic;
use crate::lease::hold::{Hold, LostHold};
use crate::lease::recent_releases::RecentReleases;
use crate::lease::sweeper::Sweeper;
use crate::lease::tenure::{Tenure, TenureState};
use crate::lease::watchdog::Watchdog;
use crate::registry::{registry, thread_number};
use crate::store::node::pool_worker;
use crate::store::{Common, Moved, Store};
use census::Desk;
pub(crate) use events::Listeners;
use events::{Event, Events};
use parking_lot::Mutex;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use uuid::Uuid;

pub use builder::ClientBuilder;
pub(crate) use lookout::Post;

/// One namespace of locks and its counts. Each client has one, and so has each lock in memory.
pub(crate) struct Space {
    pub(crate) id: Uuid,
    /// The part of the registry for kinds that threads share: a thread may have a shared hold beside one that it has alone.
    shared: Uuid,
    /// The part for holds that are no thread's, each with a name of its own, and for the calls that wait for such.
    unbound: Uuid,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) watchdog: Watchdog,
    pub(crate) sweeper: Sweeper,
    pub(crate) recent_releases: Arc<RecentReleases>,
    forced: AtomicU64,
    pub(crate) counters: Arc<Counters>,
    owners: Owners,
    events: Events,
    desk: Desk,
    /// A thread looks for circles of waiting.
    looking: AtomicBool,
    /// When the last look began that the server answered. A client that hangs may be missing in it.
    looked: AtomicU64,
    pub(crate) shutdown: Shutdown,
    pub(crate) moves: Arc<Moves>,
    fork: forkguard::Guard,
}

impl Space {
    pub(crate) fn new(config: Config, listeners: Listeners) -> Self {
        let id = config.client;
        Self {
            id,
            shared: Uuid::new_v4(),
            unbound: Uuid::new_v4(),
            watchdog: Watchdog::new(config.watchdog_lease, config.max_hold, Clock::Boot),
            sweeper: Sweeper::new(Clock::Boot),
            recent_releases: Arc::new(RecentReleases::new(Clock::Boot)),
            forced: AtomicU64::new(0),
            counters: Arc::new(Counters::new(&config.classes)),
            config,
            clock: Clock::Boot,
            owners: Owners::new(id, Clock::Boot.now()),
            events: Events::new(listeners),
            desk: Desk::default(),
            looking: AtomicBool::new(false),
            looked: AtomicU64::new(0),
            shutdown: Shutdown::default(),
            moves: Arc::default(),
            fork: forkguard::new(),
        }
    }

    /// Whether this process is a fork of the one that made the namespace. Parent and child would mint the same owner ids and share sockets,
    /// so a child may use neither. A child that was made without the C library's `fork` is not detected.
    pub(crate) fn is_forked(&self) -> bool {
        // A guard reports a fork once, and each operation needs the answer.
        self.fork.clone().detected_fork()
    }

    /// The part of the registry for shared holds, or for others.
    pub(crate) fn ground(&self, shared: bool) -> Uuid {
        if shared { self.shared } else { self.id }
    }

    /// The part of the registry for the holds of a kind.
    pub(crate) fn ground_of(&self, kind: &Kind) -> Uuid {
        if kind.of_thread { self.ground(kind.shared) } else { self.unbound }
    }

    fn grounds(&self) -> [Uuid; 3] {
        [self.id, self.shared, self.unbound]
    }

    /// The number of holds, and of calls that may have to wait.
    fn census(&self) -> (usize, usize) {
        let each = self.grounds().map(|ground| registry().census(ground));
        (each.iter().map(|census| census.0).sum(), each.iter().map(|census| census.1).sum())
    }

    /// Called first in every operation that may use the wire or change a count.
    ///
    /// # Errors
    /// `Closed` after a shutdown and in a forked child.
    pub(crate) fn check_open(&self, resource: &str) -> Result<()> {
        if self.is_forked() { Err(Error::closed(resource)) } else { self.check_not_shut(resource) }
    }

    /// The same check later in an operation, which a forked child never reaches.
    ///
    /// # Errors
    /// `Closed` after a shutdown.
    pub(crate) fn check_not_shut(&self, resource: &str) -> Result<()> {
        self.shutdown.check(resource)
    }

    /// The key of a lock, for a look into this process's own state.
    ///
    /// # Errors
    /// `Config` for a name that is empty or too long; `Closed`.
    pub(crate) fn full_key<'r>(&self, resource: &'r str) -> Result<FullKey<'r>> {
        self.check_open(resource)?;
        check_name(resource)?;
        let full = FullKey::new(&self.config.key_prefix, resource);
        check_key(&full)?;
        Ok(full)
    }

    /// The names of a lock.
    ///
    /// # Errors
    /// As [`full_key`](Self::full_key).
    pub(crate) fn key(&self, resource: &str) -> Result<Key> {
        self.full_key(resource).map(|full| self.key_of(full))
    }

    /// The names of a lock, from a key that was looked at.
    pub(crate) fn key_of(&self, full: FullKey<'_>) -> Key {
        Key::of(self.config.naming, &self.config.key_prefix, full)
    }

    /// A tenure with a new owner id.
    pub(crate) fn tenure(&self, key: &Key) -> Arc<Tenure> {
        Arc::new(Tenure::new(key.clone(), self.owners.mint(thread_number(), self.clock.now()), self.clock.clone()))
    }

    /// The shared parts of the namespace's stores.
    ///
    /// # Errors
    /// `Config` if the system gives no thread for their pools.
    pub(crate) fn common(&self) -> Result<Common> {
        let (config, counters) = (self.config.clone(), Arc::clone(&self.counters));
        let (alarm, moves) = (self.watchdog.alarm(), Arc::clone(&self.moves));
        let (releases, sweeper) = (Arc::clone(&self.recent_releases), self.sweeper.clone());
        let moved: Moved = Arc::new(move |is_meant| {
            alarm(is_meant);
            releases.free_again(&sweeper, is_meant);
            moves.tell();
        });
        let grounds = self.grounds();
        let in_use = Arc::new(move || grounds.iter().any(|ground| registry().census(*ground) != (0, 0)));
        Ok(Common { config, counters, worker: pool_worker()?, moved, in_use })
    }

    /// Replaces a tenure that ended by one with a new owner id.
    pub(crate) fn replace_ended(&self, tenure: &mut Arc<Tenure>) {
        if tenure.state() == TenureState::Ended {
            *tenure = self.tenure(tenure.key());
        }
    }

    /// The number of this namespace's force unlocks that ended. If it changes during an acquire, the acquire is not believed: the force
    /// unlock may have freed what the acquire had just taken.
    pub(crate) fn forced(&self) -> u64 {
        self.forced.load(SeqCst)
    }

    pub(crate) fn note_forced(&self) {
        self.forced.fetch_add(1, SeqCst);
    }

    /// The end of a single attempt from now.
    pub(crate) fn one_answer(&self) -> Moment {
        self.clock.now().plus(self.config.response_timeout)
    }

    /// In a forked child the registry's lock may be held for ever, so only the counts are given there.
    pub(crate) fn stats(&self, outage: Option<Duration>) -> Stats {
        let holds = if self.is_forked() { 0 } else { self.census().0 };
        self.counters.snapshot(holds, outage, self.clock.now())
    }

    pub(crate) fn report(&self, lost: LostHold) {
        self.counters.lost.add(1);
        self.counters.meters.lost(lost.cause() as usize);
        self.events.report(Event::Lost(lost));
    }

    /// Ends every wait, releases every hold and stops the watchdog. Does so once, and never in a forked child.
    pub(crate) fn close(&self) {
        if self.is_forked() || !self.shutdown.begin() {
            return;
        }
        let grounds = self.grounds();
        grounds.iter().for_each(|ground| registry().wake_all(*ground));
        let holds: Vec<_> = grounds.iter().flat_map(|ground| registry().holds(*ground)).collect();
        holds.iter().for_each(end);
        let span = self.config.outage_budget.max(self.config.watchdog_lease.span());
        closing::free_all(&holds, self.config.pool_size as usize, &self.clock, self.clock.now().plus(span));
        for hold in holds {
            self.sweep_open(&hold);
            hold.close(true);
            registry().clear(self.ground_of(hold.kind()), &hold);
        }
        self.watchdog.close();
        // An undo is due one response time-out after its acquire, and takes as long.
        let response = self.config.response_timeout;
        self.sweeper.close(response, self.config.outage_budget.max(2 * response));
        self.events.close();
    }

    /// The server may still execute an acquire without an answer: the sweeper releases it after that.
    fn sweep_open(&self, hold: &Hold) {
        if let (Some(due), Some(keeper)) = (hold.tenure().sweep_due(), hold.keeper()) {
            self.sweeper.sweep(hold.tenure(), keeper, due);
        }
    }
}

/// Ends the tenure of a hold that its client gives up. If the hold is lost and that was not reported yet, this reports it: nothing would
/// later.
fn end(hold: &Hold) {
    let tenure = hold.tenure();
    if tenure.state() == TenureState::Ended {
        // By a release of its own, which the server may execute before the one of this shutdown.
        tenure.note_release_under_way();
    }
    tenure.end();
    if let (TenureState::Lost, Some(keeper)) = (tenure.state(), hold.keeper()) {
        keeper.lost(tenure, tenure.expiry());
    }
}

/// A connection to one Redis server, and everything that its locks share. It is cheap to clone and `Send + Sync`; a program needs one.
///
/// It connects at the first use of a lock. The drop of the last clone is a [`shutdown`](Self::shutdown). Each lock object has a clone.
///
/// ```no_run
/// use redlatch::{Client, RedLock, ReentrantLock};
/// use std::time::Duration;
///
/// let client = Client::builder("redis://user:secret@10.0.0.5/2")
///     .key_prefix("shop:")
///     .outage_budget(Duration::from_secs(3))
///     .on_lost(|lost| eprintln!("{lost}"))
///     .build()?;
/// let locks = ReentrantLock::new(&client);
/// locks.lock("order:42")?;
/// locks.unlock("order:42")?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

survives_a_panic!(Client);

/// The part that the user's clones share. Background threads and holds have only `space` and `store`.
struct Handle {
    space: Arc<Space>,
    store: Arc<dyn Store>,
    kinds: Mutex<Vec<OfKind>>,
}

/// The part that all lock objects of a kind on one client share. Its type is defined above this layer.
type OfKind = (&'static Kind, Arc<dyn Any + Send + Sync>);

impl Handle {
    fn close(&self) {
        if !self.space.is_forked() {
            self.space.close();
            self.store.close();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
        if self.space.is_forked() {
            // A drop of a pool or a connection may use its locks and sockets, which belong to the parent.
            std::mem::forget((Arc::clone(&self.space), Arc::clone(&self.store)));
        }
    }
}

impl Client {
    /// A client with every setting at its default.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL that is not understood. Nothing is connected yet.
    pub fn connect(url: &str) -> Result<Self> {
        Self::builder(url).build()
    }

    /// A client with every setting at its default, on this store.
    pub(crate) fn of_store(store: Arc<dyn Store>) -> Self {
        let config = Settings::default().derive().unwrap_or_else(|error| unreachable!("the defaults fit: {error}"));
        let space = Arc::new(Space::new(config, Listeners::default()));
        Self { handle: Arc::new(Handle { space, store, kinds: Mutex::default() }) }
    }

    /// Settings for the server at `url`: `redis://[user:password@]host[:port][/database]`,
    /// `unix:///path/to/socket[?db=n&user=..&pass=..]` or the same with `redis+unix://`.
    ///
    /// For a master and replicas with sentinels: `redis+sentinel://[user:password@]host[:port],host[:port]/master-name[/database]`. User
    /// and password are those of the nodes. Credentials for the sentinels go behind it, as `?sentinel_username=..&sentinel_password=..`.
    ///
    /// For a cluster, with some of its nodes: `redis+cluster://[user:password@]host[:port],host[:port]`.
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::for_servers(vec![url.to_owned()])
    }

    /// Releases the locks that this process holds through this client, wakes waiters with [`Error::Closed`], and ends the client's threads
    /// as soon as their current command is answered. A second call does nothing.
    ///
    /// One command frees 100 locks; 10,000 locks take some 100 ms. The shutdown goes on as long as the server answers. It ends with the
    /// first command that is not answered within the response time-out, or is refused for a while, as by a server that loads its data. So
    /// it does not wait for the end of a failover. Locks that were not freed end with their leases; their number is logged. In a cluster
    /// this holds for each master, and the others free theirs.
    ///
    /// Permits of a [`Semaphore`](crate::Semaphore) have no lease. Calls that give some back, also in the background, are waited for, one outage
    /// budget at most. The shutdown also waits until places of calls that have returned are out of their queues, one response time-out at most.
    /// A release after the shutdown is tried twice.
    ///
    /// A program that ends without a shutdown may leave such a place. It is in the way of others for up to
    /// three [`poll_cap`](ClientBuilder::poll_cap)s.
    pub fn shutdown(&self) {
        self.handle.close();
    }

    /// Asks the server for a sign of life, for a health check: one round trip on a connection of the pool, which is made first if there is
    /// none. Returns how long the answer took, without connecting.
    ///
    /// In a cluster the first master answers.
    ///
    /// It waits for the answer for `within`, and not longer than one [`response_timeout`](ClientBuilder::response_timeout). However short
    /// `within` is, connecting gets 25 ms and the answer 200 ms. It repeats nothing, and says nothing about locks: a server that answers
    /// may still refuse to write.
    ///
    /// ```no_run
    /// use redlatch::Client;
    /// use std::time::Duration;
    ///
    /// let client = Client::connect("redis://127.0.0.1/")?;
    /// match client.ping(Duration::from_millis(500)) {
    ///     Ok(took) => println!("up: {took:?}"),
    ///     Err(error) => println!("down: {error}"),
    /// }
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no answer came, or all connections are in use. [`Error::Refused`] if the server refuses the user, or loads
    /// its data. [`Error::Closed`]. They name no resource.
    pub fn ping(&self, within: Duration) -> Result<Duration> {
        let space = &self.handle.space;
        space.check_open("")?;
        self.handle.store.ping(space.clock.now().plus(within)).map_err(|failure| failure.into_error(""))
    }

    /// The client's id, a UUID. The owner ids of its holds begin with it, and they are the fields of a lock's hash. So `HGETALL` at the
    /// server shows which client holds a lock. The log line `this is client ..`, at level info, has it, too.
    ///
    /// ```
    /// let client = redlatch::Client::connect("redis://127.0.0.1/")?;
    /// assert_eq!(client.id().len(), 36);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> String {
        self.handle.space.id.to_string()
    }

    /// The client's counts since it was made, and its holds now. No round trip.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.space.stats(self.handle.store.outage())
    }

    /// The part that all lock objects of a kind on this client share, made with the first of them. So their holds are renewed together, and
    /// a log line that is said once is said once a client.
    pub(crate) fn of_kind<T: Any + Send + Sync>(&self, kind: &'static Kind, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        // In a forked child a thread of the parent may hold this mutex for ever. Nothing that is made there is used.
        if self.handle.space.is_forked() {
            return make();
        }
        let mut kinds = self.handle.kinds.lock();
        let known = kinds.iter().find(|(known, _)| known.is(kind)).map(|(_, shared)| Arc::clone(shared));
        known.and_then(|shared| shared.downcast().ok()).unwrap_or_else(|| {
            let shared = make();
            kinds.push((kind, Arc::<T>::clone(&shared)));
            self.handle.space.config.kinds.lock().push(kind);
            shared
        })
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.handle.space
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.handle.store
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.handle.space.id).finish_non_exhaustive()
    }
}
