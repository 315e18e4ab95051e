//! Finds circles of waiting.
//!
//! Only a thread that holds a lock can be in a circle. If such a thread has waited for [`deadlock_check`](super::ClientBuilder::deadlock_check),
//! it starts a thread that takes a census, and again each time when its wait is twice as old. The member that began to wait last looks when
//! all others have waited for longer than it, so its look finds the whole circle. It tells the others.

use super::Space;
use super::events::Event;
use crate::base::say::say;
use crate::base::signal::Listening;
use crate::base::stop::Lookout;
use crate::base::threads::spawn;
use crate::base::time::Moment;
use crate::census::{Deadlock, Member, circles};
use crate::registry::{Waiter, holds_any, registry};
use once_cell::sync::OnceCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// A look begins up to a quarter of the setting later than that says, in such parts of it.
const PARTS: u32 = 256;

/// A wait of this length is worth a line.
const SLOW: Duration = Duration::from_secs(5);

/// Looks after one wait.
pub(crate) struct Post<'a> {
    space: &'a Arc<Space>,
    /// What the call waits for, as its caller named it.
    resource: &'a str,
    waiter: &'a Arc<Waiter>,
    /// Whether somebody can be kept waiting by the thread of this wait, and it by somebody.
    may_be_stuck: bool,
    /// When to look next, ns.
    due: AtomicU64,
    awake: OnceCell<Option<Box<dyn Listening>>>,
}

impl<'a> Post<'a> {
    /// Of a wait of the current thread. It may be stuck if threads hold what it waits for.
    pub(crate) fn new(
        space: &'a Arc<Space>,
        resource: &'a str,
        waiter: &'a Arc<Waiter>,
        are_held_by_threads: bool,
    ) -> Self {
        let may_be_stuck = are_held_by_threads && holds_any();
        Self { space, resource, waiter, may_be_stuck, due: AtomicU64::new(u64::MAX), awake: OnceCell::new() }
    }
}

impl Drop for Post<'_> {
    /// The wait is over.
    fn drop(&mut self) {
        let Some((since, _)) = self.waiter.report.of() else { return };
        let waited = self.space.clock.now().since(since);
        if waited >= SLOW {
            say!(debug, "a call waited {:.1} s for {:?}", waited.as_secs_f64(), self.resource);
        }
    }
}

impl Lookout for Post<'_> {
    fn begins(&self, now: Moment, deadline: Option<Moment>) {
        self.waiter.report.begin(now, deadline);
        if self.may_be_stuck {
            // The members of a circle need not all look at once.
            let after = self.space.config.deadlock_check;
            let later = after / PARTS * u32::try_from(now.micros() % u64::from(PARTS / 4)).unwrap_or(0);
            self.due.store(now.plus(after).plus(later).0, SeqCst);
        }
    }

    fn listens(&self) {
        self.space.answers();
        self.awake.get_or_init(|| self.space.stays_awake());
    }

    fn due(&self) -> Moment {
        Moment(self.due.load(SeqCst))
    }

    fn look(&self, now: Moment) -> Option<Arc<str>> {
        if now >= self.due() {
            let (age, after) = (self.waiter.report.age(now), self.space.config.deadlock_check);
            // A look of another thread of this client serves this one, too, if this wait was old enough by then. One that goes on may not, nor
            // does the last one of this thread: that was at half this age.
            let is_seen = age >= now.since(self.space.looked()).saturating_add(after.max(age / 4 * 3));
            let pause = if is_seen || self.space.looks() { age } else { after / 8 };
            self.due.store(now.plus(pause).0, SeqCst);
        }
        self.waiter.report.doomed()
    }
}

impl Space {
    /// When the last look began that the server answered.
    fn looked(&self) -> Moment {
        Moment(self.looked.load(SeqCst))
    }

    /// Starts a thread that looks for circles, unless one looks already. Returns whether it did.
    fn looks(self: &Arc<Self>) -> bool {
        if self.looking.swap(true, SeqCst) {
            return false;
        }
        let space = Arc::clone(self);
        let look = move || {
            if catch_unwind(AssertUnwindSafe(|| space.look())).is_err() {
                say!(error, "the look for circles of waiting panicked: it is repeated");
            }
            space.looking.store(false, SeqCst);
        };
        let started = spawn("redlatch-lookout", look);
        if let Err(error) = &started {
            self.looking.store(false, SeqCst);
            say!(debug, "no thread looks for circles of waiting: {error}");
        }
        started.is_ok()
    }

    /// Looks among the threads of this client, which needs no server, and then among those of all. Other threads may be in circles with other
    /// clients while two of this one wait for each other for ever.
    fn look(self: &Arc<Self>) {
        let own = circles(&[(self.account(), Duration::ZERO)]);
        own.iter().for_each(|circle| self.found(circle));
        self.look_around().iter().filter(|circle| !own.contains(circle)).for_each(|circle| self.found(circle));
    }

    fn look_around(self: &Arc<Self>) -> Vec<Deadlock> {
        let began = self.clock.now();
        match self.gather() {
            Ok(gathered) => {
                self.looked.store(began.0, SeqCst);
                circles(&gathered.accounts)
            }
            Err(error) => {
                say!(debug, "circles of waiting are looked for again later: {error}");
                Vec::new()
            }
        }
    }

    /// Others are told only of a circle with waits of this client and of others, and once: each member looks, and many circles may be there at a
    /// time. They are told before the last wait fails: then the others end, and a client does not learn of a circle whose waits are over.
    fn found(self: &Arc<Self>, circle: &Deadlock) {
        let own = self.id.to_string();
        let has_others = circle.members.iter().any(|member| member.process.client != own);
        if self.learns_of(circle) && has_others {
            self.tell(circle);
        }
        if let Some(waiter) = self.waiter_of(circle.last()).filter(|_| self.config.fail_deadlocks) {
            waiter.report.doom(&circle.to_string());
            waiter.semaphore.release();
        }
    }

    /// Logs a circle with a wait of this client, once. Returns whether it did.
    pub(super) fn learns_of(self: &Arc<Self>, circle: &Deadlock) -> bool {
        let own: Vec<_> = circle.members.iter().filter_map(|member| self.waiter_of(member)).collect();
        let mut hasher = DefaultHasher::new();
        circle.text().hash(&mut hasher);
        let circle_hash = hasher.finish();
        // Each is marked, not only the first.
        let are_new = own.iter().filter(|waiter| waiter.report.log_once(circle_hash)).count();
        let is_news = are_new > 0 && are_new == own.len();
        if is_news {
            say!(warn, "threads wait for each other: {circle}");
            self.events.report(Event::Deadlock(circle.clone()));
        }
        is_news
    }

    /// The wait of a member that is a thread of this client, if it still waits as it did when the circle was found.
    fn waiter_of(&self, member: &Member) -> Option<Arc<Waiter>> {
        let name = format!("{}{}", self.config.key_prefix, member.waits_for);
        let is_that =
            |waiter: &Arc<Waiter>| waiter.report.of().is_some_and(|(since, _)| self.owners.time(since) == member.since);
        let grounds = [self.id, self.shared].into_iter().filter(|_| member.process.client == self.id.to_string());
        grounds.filter_map(|ground| registry().waiter(ground, &name, member.thread)).find(is_that)
    }
}
