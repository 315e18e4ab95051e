//! Who looks for the master of a group, and who follows it: a thread for each sentinel, since one that is frozen must not keep
//! the others from telling. They start with the first call, and end with the client.

use super::council::{Council, Named};
use super::link::{Link, Word};
use super::place::Place;
use super::url::Group;
use crate::base::say::say;
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use crate::store::Common;
use crate::store::node::{Backend, Bell, Broken, Failure, Lane, Outage, Part, Server, Target};
use crate::store::subscriber::PubSub;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A sentinel that tells nothing is asked this often: it may have gone without a word.
const EVERY: Duration = Duration::from_secs(3);

/// How soon it is looked again at a master that was named and is none yet, doubled each time up to [`LONGEST_PAUSE`]; and how
/// soon a sentinel is connected to again.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Calls that fail have the sentinels asked, at most this often, however many they are.
const URGE_EVERY: Duration = Duration::from_millis(100);

/// A node for as long as it is the master.
struct Generation {
    named: Named,
    node: Arc<Backend>,
}

pub(super) struct Watch {
    pub(super) group: Group,
    common: Common,
    clock: Clock,
    pub(super) pubsub: PubSub,
    /// While no master was found yet.
    outage: Outage,
    state: Mutex<State>,
    /// Calls wait on it for the first master.
    changed: Condvar,
}

struct State {
    council: Council,
    current: Option<Generation>,
    /// Who was named, and is being asked whether it is the master.
    looked_at: Option<Named>,
    /// Why the last one that was named could not be followed, and how many in a row.
    unfit: Option<(Moment, Failure)>,
    failed_looks: u32,
    /// Of each sentinel's thread.
    bells: Vec<Arc<Bell>>,
    urged: Option<Moment>,
    closed: bool,
}

impl Watch {
    pub(super) fn new(group: Group, common: &Common) -> Self {
        let state = State {
            council: Council::new(&group.sentinels),
            current: None,
            looked_at: None,
            unfit: None,
            failed_looks: 0,
            bells: Vec::new(),
            urged: None,
            closed: false,
        };
        let (common, outage) = (common.clone(), Outage::new(&common.config));
        let (pubsub, state, changed) = (PubSub::new(), Mutex::new(state), Condvar::new());
        Self { group, common, clock: Clock::Boot, pubsub, outage, state, changed }
    }

    /// The master as far as it is known; nothing is asked.
    pub(super) fn known(&self) -> Option<Arc<Backend>> {
        self.state.lock().current.as_ref().map(|current| Arc::clone(&current.node))
    }

    /// How long it has been out of reach.
    pub(super) fn outage<T>(&self, see: impl FnOnce(&Outage) -> T) -> T {
        match self.known() {
            Some(node) => see(node.outage()),
            None => see(&self.outage),
        }
    }

    /// The master. The first call of a client waits until it is found.
    pub(super) fn master(self: &Arc<Self>, until: Moment) -> Result<Arc<Backend>, Failure> {
        if let Some(node) = self.known() {
            return Ok(node);
        }
        let began = self.clock.now();
        self.find(began, until).inspect_err(|failure| {
            // Who had less time than an answer may take learned nothing.
            if self.state.lock().has_failed_since(began) || until.since(began) >= self.common.config.response_timeout {
                self.outage.note(began, failure);
            }
        })
    }

    fn find(self: &Arc<Self>, began: Moment, until: Moment) -> Result<Arc<Backend>, Failure> {
        let mut state = self.state.lock();
        self.start(&mut state).map_err(|error| Failure::Unreached(Broken::new(format!("no thread: {error}"))))?;
        self.urge_now(&mut state, began);
        while state.current.is_none() && !state.closed {
            let left = until.since(self.clock.now());
            if state.has_failed_since(began) || self.changed.wait_for(&mut state, left).timed_out() {
                return Err(state.failure());
            }
        }
        let closed = || Failure::Unreached(Broken::new("the client is closed"));
        state.current.as_ref().map(|current| Arc::clone(&current.node)).ok_or_else(closed)
    }

    /// Has the sentinels' threads run.
    ///
    /// # Errors
    /// When the system gives none.
    pub(super) fn run(self: &Arc<Self>) -> io::Result<()> {
        self.start(&mut self.state.lock())
    }

    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let is_first = state.bells.is_empty() && !state.closed;
        let mut places = self.group.sentinels.iter().filter(|_| is_first);
        places.try_for_each(|place| self.start_one(state, place.clone()))
    }

    fn start_one(self: &Arc<Self>, state: &mut State, place: Place) -> io::Result<()> {
        let (watch, bell) = (Arc::clone(self), Arc::new(Bell::new()?));
        let rung = Arc::clone(&bell);
        spawn("redlatch-sentinel", move || {
            watch.watch(&place, &rung);
            watch.state.lock().bells.retain(|bell| !Arc::ptr_eq(bell, &rung));
        })?;
        state.bells.push(bell);
        Ok(())
    }

    /// Something went wrong at the master: it may be none any more.
    pub(super) fn urge(&self) {
        let now = self.clock.now();
        self.urge_now(&mut self.state.lock(), now);
    }

    fn urge_now(&self, state: &mut State, now: Moment) {
        if state.urged.is_none_or(|urged| now.since(urged) >= URGE_EVERY) {
            state.urged = Some(now);
            state.bells.iter().for_each(|bell| bell.ring());
        }
    }

    /// Ends the threads, each as soon as it has the answer that it waits for. The master that is known stays.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.bells.iter().for_each(|bell| bell.ring());
        self.changed.notify_all();
    }
}

impl State {
    /// Whether a call that began then need not wait for more.
    fn has_failed_since(&self, began: Moment) -> bool {
        self.unfit.as_ref().is_some_and(|(when, _)| *when >= began) || self.council.failure(began).is_some()
    }

    fn failure(&self) -> Failure {
        let unfit = self.unfit.as_ref().map(|(_, failure)| failure.clone());
        unfit.unwrap_or_else(|| self.council.last_failure())
    }

    /// How long a sentinel is listened to before it is asked again.
    fn patience(&self) -> Duration {
        let is_settled = self.current.is_some() && self.failed_looks == 0;
        if is_settled { EVERY } else { FIRST_PAUSE.saturating_mul(1 << self.failed_looks.min(6)).min(LONGEST_PAUSE) }
    }
}

/// The thread of a sentinel.
impl Watch {
    /// One connection after the other.
    fn watch(self: &Arc<Self>, place: &Place, bell: &Bell) {
        let (addr, login) = (place.addr(), self.group.sentinel_login.clone());
        let target = Target { addr, login, part: Part::Sentinel };
        let server = Server::new(target, &self.common.config, Arc::clone(&self.common.counters));
        let (mut pause, mut refused) = (FIRST_PAUSE, false);
        while !self.state.lock().closed {
            let session = AssertUnwindSafe(|| self.session(place, &server, bell, &mut pause, &mut refused));
            match catch_unwind(session) {
                Ok(Ok(())) => return,
                Ok(Err(failure)) => self.note(place, Err(failure)),
                Err(_) => self.say_panicked(),
            }
            if self.state.lock().council.dismiss(place) {
                return;
            }
            bell.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn say_panicked(&self) {
        self.state.lock().looked_at = None;
        say!(error, "a thread that asks a sentinel panicked and starts again");
    }

    /// `Ok`: closed.
    fn session(
        self: &Arc<Self>,
        place: &Place,
        server: &Server,
        bell: &Bell,
        pause: &mut Duration,
        refused: &mut bool,
    ) -> Result<(), Failure> {
        let mut link = Link::open(server, refused)?;
        while !self.state.lock().closed {
            let word = link.ask(&self.group.name)?.mapped(&self.common.config.address_map);
            *pause = FIRST_PAUSE;
            self.note(place, Ok(word));
            let patience = self.state.lock().patience();
            link.wait(bell, self.clock.now().plus(patience))?;
        }
        Ok(())
    }

    /// Books what came of asking a sentinel, and does what follows.
    fn note(self: &Arc<Self>, place: &Place, said: Result<Word, Failure>) {
        if let Err(failure) = &said {
            say!(debug, "sentinel {place} does not tell where the master is: {failure:?}");
        }
        let mut state = self.state.lock();
        for new in state.council.note(place, said, self.clock.now()) {
            // It is not needed as long as others answer.
            let _ = self.start_one(&mut state, new);
        }
        let next = self.next(&mut state);
        drop(state);
        if let Some(next) = next {
            self.look_at(next);
        }
        self.changed.notify_all();
    }

    /// Who was named, and is not looked at by another thread.
    fn next(&self, state: &mut State) -> Option<Named> {
        let current = state.current.as_ref();
        let is_in_doubt = current.is_some_and(|current| current.node.outage().lasted().is_some());
        let next = state.council.next(current.map(|current| &current.named), is_in_doubt, self.clock.now());
        let next = next.filter(|next| state.looked_at.as_ref() != Some(next) && !state.closed)?;
        state.looked_at = Some(next.clone());
        Some(next)
    }

    /// Follows it if it says itself that it is the master. The connection on which it did is the first of its pool.
    fn look_at(&self, named: Named) {
        let (addr, login) = (named.master.addr(), self.group.login.clone());
        let target = Target { addr, login, part: Part::Master };
        let Common { config, counters, worker, .. } = &self.common;
        let node = Arc::new(Backend::new(target, config, counters, worker));
        let ready = node.warm(Lane::Calls);
        let mut state = self.state.lock();
        if state.looked_at.as_ref() == Some(&named) {
            state.looked_at = None;
        }
        match ready {
            Ok(()) => self.follow(state, Generation { named, node }),
            Err(failure) => {
                state.unfit = Some((self.clock.now(), failure));
                state.failed_looks += 1;
            }
        }
    }

    /// Begins a generation. The old node is retired before any call can be made at the new one, and the subscriber is led there
    /// under the same lock: of two moves the later one counts for both.
    fn follow(&self, mut state: MutexGuard<'_, State>, next: Generation) {
        let is_over = |current: &Generation| next.named.epoch < current.named.epoch || next.named == current.named;
        if state.closed || state.current.as_ref().is_some_and(is_over) {
            return;
        }
        (state.unfit, state.failed_looks) = (None, 0);
        let (node, master) = (Arc::clone(&next.node), next.named.master.clone());
        let old = state.current.replace(next);
        old.iter().for_each(|old| old.node.server().retire());
        self.pubsub.lead_to(node);
        drop(state);
        self.changed.notify_all();
        if let Some(old) = old {
            (self.common.moved)();
            let (name, old) = (&self.group.name, old.named.master);
            say!(warn, "{name} has a new master, {master}, in place of {old}: every lock is asked for there");
        }
    }
}
