//! Looks for the master, and follows it: by a thread for each server that is asked, since a frozen one must not keep the
//! others from telling. They start with the first call, and end with the client.

use super::{Council, Course, Guide, Master, Seen};
use crate::base::say::say;
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use crate::store::Common;
use crate::store::node::{Backend, Bell, Broken, Failure, Lane, Outage};
use crate::store::subscriber::PubSub;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The first pause between looks while there is no master, doubled each time up to [`LONGEST_PAUSE`]; and the first pause
/// before a server that is asked is connected to again.
pub(in crate::store) const FIRST_PAUSE: Duration = Duration::from_millis(25);
pub(in crate::store) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Failing calls have all servers asked, at most this often, however many calls fail.
const URGE_EVERY: Duration = Duration::from_millis(100);

/// A node for as long as it is the master.
struct Generation<M> {
    master: M,
    node: Arc<Backend>,
}

pub(in crate::store) struct Watch<G: Guide> {
    pub(in crate::store) guide: G,
    pub(in crate::store) common: Common,
    pub(in crate::store) clock: Clock,
    pub(in crate::store) pubsub: PubSub,
    /// While there is no master.
    outage: Outage,
    state: Mutex<State<G>>,
    /// Calls wait on it for a master.
    changed: Condvar,
}

struct State<G: Guide> {
    council: G::Council,
    current: Option<Generation<Master<G>>>,
    /// The last master, while there is none.
    left: Option<Master<G>>,
    /// How often the answers were that there is no master. A look that began before such an answer leads to no move.
    leaves: u64,
    /// The server that was named, and is being asked whether it is the master.
    looked_at: Option<Master<G>>,
    /// Why the last server that was named could not be followed, and how many in a row could not.
    unfit: Option<(Moment, Failure)>,
    failed_looks: u32,
    /// Of each thread that asks.
    bells: Vec<Arc<Bell>>,
    urged: Option<Moment>,
    closed: bool,
}

impl<G: Guide> Watch<G> {
    pub(super) fn new(guide: G, council: G::Council, common: &Common) -> Self {
        let state = State {
            council,
            current: None,
            left: None,
            leaves: 0,
            looked_at: None,
            unfit: None,
            failed_looks: 0,
            bells: Vec::new(),
            urged: None,
            closed: false,
        };
        let (common, outage) = (common.clone(), Outage::new(&common.config, &common.counters));
        let (pubsub, state, changed) = (PubSub::new(), Mutex::new(state), Condvar::new());
        Self { guide, common, clock: Clock::Boot, pubsub, outage, state, changed }
    }

    /// The master as far as it is known, without asking.
    fn known(&self) -> Option<Arc<Backend>> {
        self.state.lock().current.as_ref().map(|current| Arc::clone(&current.node))
    }

    /// How long the master has been out of reach.
    pub(super) fn outage<T>(&self, see: impl FnOnce(&Outage) -> T) -> T {
        match self.known() {
            Some(node) => see(node.outage()),
            None => see(&self.outage),
        }
    }

    /// The master. While there is none a call waits until it is found.
    pub(super) fn master(self: &Arc<Self>, until: Moment) -> Result<Arc<Backend>, Failure> {
        if let Some(node) = self.known() {
            return Ok(node);
        }
        let began = self.clock.now();
        let mut state = self.state.lock();
        self.start(&mut state).map_err(|error| Failure::Unreached(Broken::new(format!("no thread: {error}"))))?;
        let asked = state.urge(began);
        self.find(state, asked, until).inspect_err(|failure| {
            // A call that had less time than an answer may take learned nothing of the server.
            if self.state.lock().failure_since(asked).is_some()
                || until.since(began) >= self.common.config.response_timeout
            {
                self.outage.note(began, failure);
            }
        })
    }

    /// Waits until there is a master, or until each server has failed since `asked`.
    fn find(&self, mut state: MutexGuard<'_, State<G>>, asked: Moment, until: Moment) -> Result<Arc<Backend>, Failure> {
        while state.current.is_none() && !state.closed {
            let left = until.since(self.clock.now());
            if let Some(failure) = state.failure_since(asked) {
                return Err(failure);
            }
            if self.changed.wait_for(&mut state, left).timed_out() {
                return Err(state.failure_since(asked).unwrap_or_else(|| state.last_failure()));
            }
        }
        let closed = || Failure::Unreached(Broken::new("the client is closed"));
        state.current.as_ref().map(|current| Arc::clone(&current.node)).ok_or_else(closed)
    }

    /// Starts the threads that ask.
    ///
    /// # Errors
    /// When the system gives none.
    pub(super) fn run(self: &Arc<Self>) -> io::Result<()> {
        self.start(&mut self.state.lock())
    }

    fn start(self: &Arc<Self>, state: &mut State<G>) -> io::Result<()> {
        if !state.bells.is_empty() || state.closed {
            return Ok(());
        }
        self.guide.asked(&self.common).into_iter().try_for_each(|asked| self.start_one(state, asked))
    }

    fn start_one(self: &Arc<Self>, state: &mut State<G>, asked: G::Asked) -> io::Result<()> {
        let (watch, bell) = (Arc::clone(self), Arc::new(Bell::new()?));
        let rung = Arc::clone(&bell);
        spawn(G::THREAD, move || {
            watch.watch(asked, &rung);
            watch.state.lock().bells.retain(|bell| !Arc::ptr_eq(bell, &rung));
        })?;
        state.bells.push(bell);
        Ok(())
    }

    /// Something went wrong at the master, or it is time to look: it may no longer be the master.
    pub(in crate::store) fn urge(&self) {
        let now = self.clock.now();
        self.state.lock().urge(now);
    }

    pub(in crate::store) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// How long it is waited before one is asked again: so long when there is nothing to look for.
    pub(in crate::store) fn patience(&self, every: Duration) -> Duration {
        self.state.lock().patience(every)
    }

    /// Has the council note something from which nothing follows.
    pub(in crate::store) fn tell<T>(&self, tell: impl FnOnce(&mut G::Council) -> T) -> T {
        tell(&mut self.state.lock().council)
    }

    /// Ends the threads, each as soon as it has the answer that it waits for. The known master stays.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.ring();
        self.changed.notify_all();
    }
}

impl<G: Guide> State<G> {
    fn ring(&self) {
        self.bells.iter().for_each(|bell| bell.ring());
    }

    /// Has all servers asked, unless that was done within [`URGE_EVERY`]. Returns when it was done.
    fn urge(&mut self, now: Moment) -> Moment {
        match self.urged.filter(|urged| now.since(*urged) < URGE_EVERY) {
            Some(urged) => urged,
            None => {
                self.ask_all(now);
                now
            }
        }
    }

    fn ask_all(&mut self, now: Moment) {
        self.urged = Some(now);
        self.council.begin(now);
        self.ring();
    }

    /// Why a call need not wait for more answers, if all servers were asked at `since`.
    fn failure_since(&self, since: Moment) -> Option<Failure> {
        let unfit = self.unfit.as_ref().filter(|(when, _)| *when >= since).map(|(_, failure)| failure.clone());
        unfit.or_else(|| self.council.failure(since))
    }

    /// What to tell a call whose time is over.
    fn last_failure(&self) -> Failure {
        let unfit = self.unfit.as_ref().map(|(_, failure)| failure.clone());
        unfit.unwrap_or_else(|| self.council.last_failure())
    }

    fn patience(&self, every: Duration) -> Duration {
        let is_settled = self.current.is_some() && self.failed_looks == 0;
        if is_settled { every } else { FIRST_PAUSE.saturating_mul(1 << self.failed_looks.min(6)).min(LONGEST_PAUSE) }
    }

    /// A server that was looked at says that it is the master. Returns whether it is followed.
    fn accepts(&mut self, next: &Master<G>) -> bool {
        (self.unfit, self.failed_looks) = (None, 0);
        self.council.accepts(self.current.as_ref().map(|current| &current.master), next)
    }

    fn note_unfit(&mut self, master: &Master<G>, failure: Failure, now: Moment) {
        self.failed_looks += 1;
        if self.council.note_unfit(master, &failure, now) {
            self.ask_all(now);
        } else {
            self.unfit = Some((now, failure));
        }
    }

    /// What to do, but for looking at one who is looked at already.
    fn course(&mut self, now: Moment) -> Course<Master<G>> {
        let current = self.current.as_ref();
        let is_in_doubt = current.is_some_and(|current| current.node.outage().lasted().is_some());
        let (current, looked_at) = (current.map(|current| &current.master), self.looked_at.as_ref());
        let course = self.council.course(Seen { current, is_in_doubt, looked_at, now });
        match course {
            _ if self.closed => Course::Stay,
            Course::Follow(next) if looked_at == Some(&next) => Course::Stay,
            course => course,
        }
    }
}

/// The thread of one server that is asked.
impl<G: Guide> Watch<G> {
    /// Makes one connection after the other.
    fn watch(self: &Arc<Self>, asked: G::Asked, bell: &Bell) {
        let mut pause = FIRST_PAUSE;
        while !self.is_closed() {
            let session = AssertUnwindSafe(|| G::session(self, &asked, bell, &mut pause));
            match catch_unwind(session) {
                Ok(Ok(())) => return,
                Ok(Err(failure)) => self.note(&asked, Err(failure)),
                Err(_) => self.say_panicked(),
            }
            if G::dismiss(&mut self.state.lock().council, &asked) {
                return;
            }
            bell.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn say_panicked(&self) {
        self.state.lock().looked_at = None;
        say!(error, "a thread that asks where the master is panicked and starts again");
    }

    /// Books the result of asking one server, and does what follows.
    pub(in crate::store) fn note(self: &Arc<Self>, asked: &G::Asked, said: Result<G::Word, Failure>) {
        let mut state = self.state.lock();
        for new in self.guide.note(&mut state.council, asked, said, &self.common) {
            // This server is not needed as long as others answer.
            let _ = self.start_one(&mut state, new);
        }
        let now = self.clock.now();
        match state.course(now) {
            Course::Stay => {}
            Course::AskAll => state.ask_all(now),
            Course::Leave(why) => self.leave(state, &why),
            Course::Follow(next) => {
                state.looked_at = Some(next.clone());
                self.look_at(state, next);
            }
        }
        self.changed.notify_all();
    }

    /// Follows a server if it says itself that it is the master. The connection that said so is the first of its pool.
    fn look_at(&self, state: MutexGuard<'_, State<G>>, master: Master<G>) {
        let leaves = state.leaves;
        drop(state);
        let Common { config, counters, worker, .. } = &self.common;
        let node = Arc::new(Backend::new(self.guide.target(&master), config, counters, worker));
        let ready = node.warm(Lane::Calls);
        let mut state = self.state.lock();
        if state.looked_at.as_ref() == Some(&master) {
            state.looked_at = None;
        }
        match ready {
            Ok(()) if state.leaves == leaves => self.follow(state, Generation { master, node }),
            Ok(()) => {}
            Err(failure) => state.note_unfit(&master, failure, self.clock.now()),
        }
    }

    /// Begins a generation. The old node is retired before any call can be made at the new one. The subscriber moves under the
    /// same lock: of two moves the later one counts for both.
    fn follow(&self, mut state: MutexGuard<'_, State<G>>, next: Generation<Master<G>>) {
        if state.closed || !state.accepts(&next.master) {
            return;
        }
        let (node, master) = (Arc::clone(&next.node), next.master.clone());
        let old = state.current.replace(next);
        old.iter().for_each(|old| old.node.server().retire());
        let old = old.map(|old| old.master).or(state.left.take());
        self.pubsub.lead_to(node);
        drop(state);
        self.outage.end();
        self.changed.notify_all();
        if let Some(old) = old {
            (self.common.moved)(&|_| true);
            self.say_moved(&old, &master);
        }
    }

    fn say_moved(&self, old: &Master<G>, master: &Master<G>) {
        let name = self.guide.name();
        if old == master {
            say!(warn, "{master} is the only master of {name} again: every lock is asked for there");
        } else {
            say!(warn, "{name} has a new master, {master}, in place of {old}: every lock is asked for there");
        }
    }

    /// Ends a generation without a new one: the old master is neither written to nor believed.
    fn leave(&self, mut state: MutexGuard<'_, State<G>>, why: &str) {
        (state.looked_at, state.unfit, state.leaves) = (None, None, state.leaves + 1);
        let Some(old) = state.current.take() else { return };
        old.node.server().retire();
        state.left = Some(old.master.clone());
        drop(state);
        say!(warn, "{} is not used as the master any more: {why}", old.master);
    }
}
