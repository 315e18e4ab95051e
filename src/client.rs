//! The client: one server's pools, subscriber and watchdog, and the settings of the locks made on it.

mod builder;

use crate::backend::Backend;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::hold::{Hold, LostHold};
use crate::key::{FullKey, Key, check_name};
use crate::owner::Owners;
use crate::pubsub::PubSub;
use crate::registry::{registry, thread_number};
use crate::stats::{Counters, Stats};
use crate::sweeper::Sweeper;
use crate::tenure::{Standing, Tenure};
use crate::time::{Clock, Moment};
use crate::watchdog::Watchdog;
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use uuid::Uuid;

pub use builder::ClientBuilder;

/// What is called when a hold is lost.
pub(crate) type Callback = Arc<dyn Fn(LostHold) + Send + Sync>;

/// One namespace of locks and its accounting: a client has one, and so has a lock in memory.
pub(crate) struct Space {
    pub(crate) id: Uuid,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) watchdog: Watchdog,
    pub(crate) sweeper: Sweeper,
    forced: AtomicU64,
    pub(crate) counters: Arc<Counters>,
    owners: Owners,
    events: Events,
    closed: AtomicBool,
    fork: forkguard::Guard,
}

impl Space {
    pub(crate) fn new(config: Config, counters: Arc<Counters>, on_lost: Option<Callback>) -> Self {
        let id = Uuid::new_v4();
        Self {
            id,
            watchdog: Watchdog::new(config.watchdog_lease, config.max_hold, Clock::Boot),
            sweeper: Sweeper::new(Clock::Boot),
            forced: AtomicU64::new(0),
            counters,
            config,
            clock: Clock::Boot,
            owners: Owners::new(id),
            events: Events::new(on_lost),
            closed: AtomicBool::new(false),
            fork: forkguard::new(),
        }
    }

    /// Whether this process is a fork of the one that made the namespace. Both would mint the same owner ids
    /// and share sockets, so a child may use neither. Not seen is a child that was made behind the C library's back.
    pub(crate) fn is_forked(&self) -> bool {
        // A guard tells once, and each operation has to be told.
        self.fork.clone().detected_fork()
    }

    /// First in every operation that may use the wire or change a count.
    ///
    /// # Errors
    /// `Closed` after a shutdown and in a forked child.
    pub(crate) fn check_open(&self, resource: &str) -> Result<()> {
        if self.is_forked() { Err(Error::closed(resource)) } else { self.check_not_shut(resource) }
    }

    /// The same later in an operation, which no forked child goes on with.
    ///
    /// # Errors
    /// `Closed` after a shutdown.
    pub(crate) fn check_not_shut(&self, resource: &str) -> Result<()> {
        if self.closed.load(SeqCst) { Err(Error::closed(resource)) } else { Ok(()) }
    }

    /// The key of a lock, for a look at what this process knows of it.
    ///
    /// # Errors
    /// `Config` for a name that is empty or too long; `Closed`.
    pub(crate) fn full_key<'r>(&self, resource: &'r str) -> Result<FullKey<'r>> {
        self.check_open(resource)?;
        check_name(resource)?;
        Ok(FullKey::new(&self.config.key_prefix, resource))
    }

    /// The names of a lock.
    ///
    /// # Errors
    /// As [`full_key`](Self::full_key).
    pub(crate) fn key(&self, resource: &str) -> Result<Key> {
        self.full_key(resource).map(|full| self.key_of(full))
    }

    /// The same from a key that was looked at.
    pub(crate) fn key_of(&self, full: FullKey<'_>) -> Key {
        Key::of(self.config.naming, &self.config.key_prefix, full)
    }

    /// A tenure with an owner id that was never used.
    pub(crate) fn tenure(&self, key: &Key) -> Arc<Tenure> {
        Arc::new(Tenure::new(key.clone(), self.owners.mint(thread_number()), self.clock.clone()))
    }

    /// A subscriber with a private control channel.
    pub(crate) fn subscriber(&self, backend: &Arc<Backend>) -> Arc<PubSub> {
        let control = Key::new(self.config.naming, &self.config.key_prefix, &format!("redlatch:{}", self.id));
        Arc::new(PubSub::new(Arc::clone(backend), control.channel()))
    }

    /// Puts a tenure with a new owner id in the place of one that ended.
    pub(crate) fn replace_ended(&self, tenure: &mut Arc<Tenure>) {
        if tenure.standing() == Standing::Ended {
            *tenure = self.tenure(tenure.key());
        }
    }

    /// How often a force unlock of this namespace ended. An acquire during which it changes is not believed: the
    /// force unlock may have freed what the acquire had just taken.
    pub(crate) fn forced(&self) -> u64 {
        self.forced.load(SeqCst)
    }

    pub(crate) fn note_forced(&self) {
        self.forced.fetch_add(1, SeqCst);
    }

    /// When a single attempt from now gives up.
    pub(crate) fn one_answer(&self) -> Moment {
        self.clock.now().plus(self.config.response_timeout)
    }

    /// In a forked child the map may be locked for ever, so only the counts are given there.
    pub(crate) fn stats(&self, outage: Option<Duration>) -> Stats {
        let census = if self.is_forked() { (0, 0) } else { registry().census(self.id) };
        self.counters.snapshot(census, outage)
    }

    pub(crate) fn report(&self, lost: LostHold) {
        self.counters.lost.add(1);
        self.events.report(lost);
    }

    /// Ends every wait, releases every hold and stops the watchdog; once, and never in a forked child.
    pub(crate) fn close(&self) {
        if self.is_forked() || self.closed.swap(true, SeqCst) {
            return;
        }
        registry().wake_all(self.id);
        let until = self.clock.now().plus(self.config.outage_budget);
        let mut answers = true;
        for hold in registry().holds(self.id) {
            hold.tenure().end();
            answers = answers && self.clock.now() < until && free(&hold);
            self.sweep_open(&hold);
            hold.close(true);
            registry().clear(self.id, &hold);
        }
        self.watchdog.close();
        self.sweeper.close();
        self.events.close();
    }

    /// An acquire that was never answered may still be executed: it is swept after that.
    fn sweep_open(&self, hold: &Hold) {
        if let (Some(open_until), Some(keeper)) = (hold.tenure().open_until(), hold.keeper()) {
            self.sweeper.sweep(hold.tenure(), keeper, open_until.plus(Duration::from_millis(1)));
        }
    }
}

/// Frees the key of a hold. False when the server did not answer: it need not be asked for the next one.
fn free(hold: &Hold) -> bool {
    let freed = hold.keeper().map_or(Ok(()), |keeper| keeper.sweep(hold.tenure()));
    if let Err(error) = &freed {
        log::warn!("at shutdown, locks may stay until their leases end: {error}");
    }
    !matches!(freed, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }))
}

/// Calls the user's callback on a thread of its own: one that blocks must not starve renewals.
struct Events {
    callback: Option<Callback>,
    queue: Mutex<Option<Sender<LostHold>>>,
    closed: AtomicBool,
}

impl Events {
    fn new(callback: Option<Callback>) -> Self {
        Self { callback, queue: Mutex::default(), closed: AtomicBool::new(false) }
    }

    /// The thread starts with the first report.
    fn report(&self, lost: LostHold) {
        let Some(callback) = &self.callback else { return };
        let mut queue = self.queue.lock();
        if queue.is_none() && !self.closed.load(SeqCst) {
            *queue = call_each(Arc::clone(callback));
        }
        if let Some(queue) = queue.as_ref() {
            let _ = queue.send(lost);
        }
    }

    /// What was reported is still called; then the thread ends.
    fn close(&self) {
        self.closed.store(true, SeqCst);
        self.queue.lock().take();
    }
}

fn call_each(callback: Callback) -> Option<Sender<LostHold>> {
    let (sender, reports): (_, Receiver<LostHold>) = unbounded();
    let run = move || {
        for lost in reports {
            let call = std::panic::AssertUnwindSafe(|| callback(lost));
            if std::panic::catch_unwind(call).is_err() {
                log::error!("the on_lost callback panicked; it is called again for the next lost hold");
            }
        }
    };
    let started = std::thread::Builder::new().name("redlatch-events".to_owned()).spawn(run);
    started.map_err(|error| log::error!("the on_lost callback has no thread: {error}")).ok().map(|_| sender)
}

/// A connection to one Redis server and everything that its locks share. Cheap to clone, `Send + Sync`; one a
/// program is enough.
///
/// It connects when a lock is first used. Dropping the last clone, also that of its locks, is a
/// [`shutdown`](Self::shutdown).
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

/// What the user's clones share; background threads and holds have only the parts behind it.
struct Handle {
    space: Arc<Space>,
    backend: Arc<Backend>,
    pubsub: Arc<PubSub>,
}

impl Handle {
    fn close(&self) {
        if !self.space.is_forked() {
            self.space.close();
            self.pubsub.close();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
        if self.space.is_forked() {
            // Dropping a pool or a connection may use its locks and sockets, which belong to the parent.
            std::mem::forget((Arc::clone(&self.space), Arc::clone(&self.backend), Arc::clone(&self.pubsub)));
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

    /// Settings for the server at `url`: `redis://[user:password@]host[:port][/database]`,
    /// `unix:///path/to/socket[?db=n&user=..&pass=..]` or the same with `redis+unix://`.
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::for_servers(vec![url.to_owned()])
    }

    /// Releases what this process holds through this client, wakes waiters with [`Error::Closed`] and ends the
    /// client's threads as soon as their current command is answered. The second time it does nothing.
    pub fn shutdown(&self) {
        self.handle.close();
    }

    /// What the client did since it was made, and what it has now. No round trip.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.space.stats(self.handle.backend.outage())
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.handle.space
    }

    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.handle.backend
    }

    pub(crate) fn pubsub(&self) -> &Arc<PubSub> {
        &self.handle.pubsub
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.handle.space.id).finish_non_exhaustive()
    }
}
