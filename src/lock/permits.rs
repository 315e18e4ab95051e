//! What the semaphores have in common: how a call waits for permits, and the guard that it gets (docs/protocol.md, 18).

use super::Terms;
use super::keys::Keys;
use super::patience::Patience;
use super::primitive::heard;
use super::waiting::bid::{Bid, Call, Told};
use super::waiting::line::Line;
use super::waiting::policy::{LONGEST_TTL, POLL_CAPS, SHARES};
use super::waiting::wait::{News, Outcome};
use crate::base::error::{Error, Result};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::meters::{Meter, Timer};
use crate::base::say::say;
use crate::base::script::Count::Exactly;
use crate::base::script::scripts;
use crate::base::signal::{Ear, Listening, Semaphore};
use crate::base::stats::Contention;
use crate::base::time::{Clock, Moment};
use crate::client::{Client, Post, Space};
use crate::lease::hold::Hold;
use crate::lease::sweeper::Chore;
use crate::registry::{Lent, registry};
use crate::store::node::Arg;
use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use uuid::Uuid;

scripts! {
    /// Reply: 0 (it had no place) or that of `tell`.
    LEAVE_PLACE = "permits/leave.lua", Exactly(1), Exactly(3);
}

/// How much later than the first the others look when permits came back: our clients tell whose turn it is, and Redisson's do not.
const UNTOLD: Duration = Duration::from_millis(20);

/// The most permits that a leased semaphore gives by one acquire: each is an id of its own, and a script unpacks them all.
pub(super) const MOST_LEASED: u32 = 1_000;

/// The most permits of a semaphore: Redisson counts them in 32 bits.
pub(super) const MOST: u32 = i32::MAX as u32;

/// Refuses a number of permits that no call can have.
///
/// # Errors
/// `Config`.
pub(super) fn check_permits(permits: u32, most: u32) -> Result<u32> {
    match permits {
        0 => Err(Error::config("zero permits are none: ask for 1 or more")),
        _ if permits <= most => Ok(permits),
        _ => Err(Error::config(format!("{permits} permits at once are too many: ask for {most} at most"))),
    }
}

/// The semaphores of a client, as far as waiting for permits goes.
pub(super) struct Floor {
    space: Arc<Space>,
    /// The part of the registry where calls wait.
    ground: Uuid,
    pub(super) keys: Keys,
    meter: Meter,
    waits: AtomicU64,
    first: u64,
}

/// What an ask found.
pub(super) enum Asked<W> {
    Won(W),
    /// Won, but the answer cannot be believed.
    Again,
    Late,
    /// Too few are left, for this long at most. So many wait before, and nobody has set the permits if `is_unset`.
    Busy {
        left: Option<Duration>,
        rank: u32,
        is_unset: bool,
    },
}

/// The place of a wait among the processes that wait for permits.
pub(super) struct Place {
    /// Empty: it has none.
    name: String,
    number: u64,
    /// For how long it counts, ms.
    ttl: u64,
}

impl Place {
    pub(super) const NONE: Self = Self { name: String::new(), number: 0, ttl: 0 };

    /// The arguments of a script that gives permits in order. The last ask of a call takes no place: nobody would come back for it.
    pub(super) fn args<'a>(&'a self, key: &'a Key, is_last: bool) -> [Arg<'a>; 3] {
        let ttl = if is_last { 0 } else { self.ttl };
        [Arg::Beside(key.places_parts()), Arg::Text(&self.name), Arg::Number(ttl)]
    }
}

impl Floor {
    pub(super) fn new(space: &Arc<Space>, kind: &'static Kind, keys: Keys) -> Arc<Self> {
        Arc::new(Self {
            space: Arc::clone(space),
            ground: space.ground_of(kind),
            keys,
            meter: space.counters.meters.of_kind(kind.name),
            waits: AtomicU64::new(0),
            first: space.id.as_u64_pair().0 >> 32,
        })
    }

    /// Asks for the permits of a key until the wait ends; `None` if it ended without them. The threads of this process wait one behind the
    /// other, and the first of them has a place among the processes.
    pub(super) fn contend<W>(
        self: &Arc<Self>,
        key: &Key,
        patience: Patience<'_>,
        terms: &Terms<'_>,
        ask: impl FnMut(&Patience<'_>, &Place, bool) -> Result<Asked<W>>,
    ) -> Result<Option<W>> {
        let timer = Timer::begin(true);
        let result = match terms.wait.is_zero() {
            true => self.try_now(&patience, ask),
            false => self.wait(key, patience, ask),
        };
        timer.end(|| Some(&self.meter), key.resource(), terms.wait.is_zero(), &result);
        match &result {
            Ok(None) if !terms.wait.is_zero() => self.space.counters.timed_out.add(1),
            Err(Error::Cancelled { .. }) => self.space.counters.cancelled.add(1),
            _ => {}
        }
        result
    }

    fn try_now<W>(
        &self,
        patience: &Patience<'_>,
        mut ask: impl FnMut(&Patience<'_>, &Place, bool) -> Result<Asked<W>>,
    ) -> Result<Option<W>> {
        patience.stop.check()?;
        match ask(patience, &Place::NONE, true)? {
            Asked::Won(won) => Ok(Some(won)),
            Asked::Late => Ok(None),
            Asked::Again | Asked::Busy { .. } => {
                self.space.counters.contended.add(1);
                Ok(None)
            }
        }
    }

    fn wait<W>(
        self: &Arc<Self>,
        key: &Key,
        patience: Patience<'_>,
        ask: impl FnMut(&Patience<'_>, &Place, bool) -> Result<Asked<W>>,
    ) -> Result<Option<W>> {
        let waiter = &Lent::new(None);
        let post = Post::new(&self.space, key.resource(), waiter, false);
        let patience = &patience.woken_by(&waiter.semaphore).watched_by(&post);
        patience.stop.check()?;
        let (config, stop, contention) = (&self.space.config, &patience.stop, &Contention::new(&self.space.counters));
        let call = &Call { config, stop, contention, semaphore: &waiter.semaphore };
        let (registry, space, name) = (registry(), self.ground, key.line());
        let line = Line { registry, space, name, waiter, call, backing: patience };
        let contend = || call.contend(&mut PermitBid::new(self, key, patience, &waiter.semaphore, ask));
        let won = line.wait(contend, |_| None);
        self.space.counters.meters.handed_over(&won, &waiter.semaphore.woken);
        won
    }

    /// A place with a name of its own. It lasts as long as three looks take.
    fn place(&self, key: &Key) -> Place {
        // Processes that start together must not have the same shares.
        let number = self.waits.fetch_add(1, Relaxed).wrapping_add(self.first);
        let permits = key.permits();
        let ttl = self.space.config.poll_cap.saturating_mul(POLL_CAPS).as_millis();
        let name = format!("{}:{number}:{permits}", self.space.id.hyphenated());
        Place { name, number, ttl: u64::try_from(ttl).unwrap_or(u64::MAX).min(LONGEST_TTL) }
    }
}

/// The bid for permits.
struct PermitBid<'a, A> {
    floor: &'a Arc<Floor>,
    key: &'a Key,
    patience: &'a Patience<'a>,
    semaphore: &'a Arc<Semaphore>,
    /// What the call has once it subscribes: most calls never wait.
    waits: OnceCell<(Place, Arc<PermitEar>)>,
    rank: u32,
    ask: A,
    is_unset: bool,
}

impl<'a, A> PermitBid<'a, A> {
    fn new(
        floor: &'a Arc<Floor>,
        key: &'a Key,
        patience: &'a Patience<'a>,
        semaphore: &'a Arc<Semaphore>,
        ask: A,
    ) -> Self {
        Self { floor, key, patience, semaphore, waits: OnceCell::new(), rank: 0, ask, is_unset: false }
    }

    /// Its place and its ear, from now on.
    fn waits(&self) -> &(Place, Arc<PermitEar>) {
        self.waits.get_or_init(|| {
            let place = self.floor.place(self.key);
            let ear = PermitEar::new(self.key.permits(), place.number, self.semaphore, self.floor.space.clock.clone());
            (place, Arc::new(ear))
        })
    }

    fn told(&self) -> Option<&Told> {
        self.waits.get().map(|(_, ear)| &ear.told)
    }

    /// Logs once a wait.
    fn say_unset(&mut self) {
        if !std::mem::replace(&mut self.is_unset, true) {
            say!(warn, "semaphore {:?} has no permits: a call waits until somebody sets them", self.key.full());
        }
    }
}

impl<W, A: FnMut(&Patience<'_>, &Place, bool) -> Result<Asked<W>>> Bid for PermitBid<'_, A> {
    type Won = W;

    fn ask(&mut self) -> Result<Outcome<W>> {
        let (no_place, is_last) = (Place::NONE, self.patience.stop.is_over());
        let place = self.waits.get().map_or(&no_place, |(place, _)| place);
        Ok(match (self.ask)(self.patience, place, is_last)? {
            Asked::Won(won) => Outcome::Won(won),
            Asked::Again => Outcome::Again,
            Asked::Late => Outcome::Late,
            Asked::Busy { left, rank, is_unset } => {
                self.rank = rank;
                self.waits.get().into_iter().for_each(|(_, ear)| ear.is_first.store(rank == 0, Relaxed));
                if is_unset {
                    self.say_unset();
                }
                Outcome::Busy(left)
            }
        })
    }

    /// A client that still listens has waited a moment ago: with its place, its first ask is the one that joins.
    fn expects_a_wait(&self) -> bool {
        self.floor.keys.hears(&self.key.channel())
    }

    fn listen(&self, _: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        let ((place, ear), keys) = (self.waits(), &self.floor.keys);
        let turn = Turn { ear: Arc::clone(ear), place: place.name.clone() };
        let _turns = heard(keys.listen_to(&self.key.places_parts().concat(), Arc::new(turn)))?;
        let changes = heard(keys.listen_to(&self.key.channel(), Arc::<PermitEar>::clone(ear)))?;
        Some(Box::new(Both { _turns, changes }))
    }

    fn rank(&self) -> Option<u32> {
        Some(self.rank)
    }

    fn forget_news(&self) {
        self.told().into_iter().for_each(Told::forget);
    }

    fn take_news(&self) -> Option<News> {
        self.told()?.take()
    }

    /// A late copy of an attempt may take the place again: then it counts until its time is over, and the others wait for so long.
    fn withdraw(&mut self) {
        let Some((place, _)) = self.waits.get() else { return };
        let (floor, now) = (Arc::clone(self.floor), self.floor.space.clock.now());
        let until = now.plus(Duration::from_millis(place.ttl));
        let leave = LeavePlace { floor, key: self.key.clone(), place: place.name.clone(), until };
        self.floor.space.sweeper.run_now(Box::new(leave));
    }
}

/// Hears how many permits are left. Those that wait behind others look a little later than the first.
struct PermitEar {
    needs: u32,
    semaphore: Arc<Semaphore>,
    clock: Clock,
    told: Told,
    /// Its share of the time over which those that wait spread their looks.
    share: u32,
    /// By its last answer nobody waits before it.
    is_first: AtomicBool,
}

impl PermitEar {
    fn new(needs: u32, number: u64, semaphore: &Arc<Semaphore>, clock: Clock) -> Self {
        let share = (number % u64::from(SHARES)) as u32;
        Self {
            needs,
            semaphore: Arc::clone(semaphore),
            clock,
            told: Told::default(),
            share,
            is_first: AtomicBool::new(false),
        }
    }

    fn put(&self, news: News) {
        if self.told.put(news) {
            self.semaphore.release();
        }
    }
}

impl Ear for PermitEar {
    /// The message of our clients is the number that is left. In some scripts of Redisson it is how many came back, or all that there are. So a
    /// call that needs more looks, too, but not at once.
    fn hear(&self, payload: &[u8]) {
        let left = std::str::from_utf8(payload).ok().and_then(|left| left.parse::<i64>().ok());
        let is_enough = left.is_none_or(|left| left >= i64::from(self.needs));
        if is_enough && self.is_first.load(Relaxed) {
            self.put(News::ForIt);
        } else if left.is_none_or(|left| left > 0) {
            self.put(News::ForAll { at: self.clock.now().plus(UNTOLD), share: self.share });
        }
    }

    fn missed(&self) {
        self.put(News::ForIt);
    }
}

/// Hears whose turn it is.
struct Turn {
    ear: Arc<PermitEar>,
    place: String,
}

impl Ear for Turn {
    fn hear(&self, payload: &[u8]) {
        if payload == self.place.as_bytes() {
            self.ear.put(News::ForIt);
        }
    }

    fn missed(&self) {
        self.ear.missed();
    }

    /// All that wait hear of each change, too, and look a little later.
    fn refused(&self) -> Option<&'static str> {
        None
    }
}

/// The subscriptions of a wait: to turns, and to changes.
struct Both {
    _turns: Box<dyn Listening>,
    changes: Box<dyn Listening>,
}

impl Listening for Both {
    /// Turns are advice: a server may refuse that channel.
    fn is_confirmed(&self) -> bool {
        self.changes.is_confirmed()
    }
}

/// Gives up a place.
struct LeavePlace {
    floor: Arc<Floor>,
    key: Key,
    place: String,
    until: Moment,
}

impl Chore for LeavePlace {
    fn run(&self) -> Result<()> {
        let key = &self.key;
        let args = [Arg::Parts(key.places_parts()), Arg::Text(&self.place), Arg::Parts(key.channel_parts())];
        match self.floor.keys.call(&LEAVE_PLACE, key, &args, self.floor.space.one_answer()) {
            Err(failure) if failure.may_pass() => Err(failure.into_error(key.resource())),
            // Refused for good: the place was never there, or ends by itself.
            _ => Ok(()),
        }
    }

    fn until(&self) -> Moment {
        self.until
    }

    fn whereabouts(&self) -> String {
        format!("a place among those that wait for permits of {:?}", self.key.full())
    }
}

/// What permits go back to.
pub(super) trait Giver: Send + Sync {
    /// How many permits they are, of which semaphore.
    fn key(&self) -> &Key;

    /// Gives them back. `hasty`: by one attempt, because a drop waits for it. What was not answered is tried again in the background.
    fn give_back(&self, hasty: bool) -> Result<()>;

    /// The hold, if they have a lease.
    fn hold(&self) -> Option<&Hold>;
}

/// Permits of a semaphore, given back when they are dropped, also in a panic. They may be sent to another thread, which may give them back, and
/// they keep their client alive.
///
/// A drop makes one attempt, at most one response time-out long, and logs a failure. [`release`](Self::release) returns the failure instead.
/// If either fails, the background tries again. Each permit goes back once.
#[must_use = "permits that are not kept go back at once: write `let _permits = ..`, not `let _ = ..`"]
pub struct Permits {
    giver: Box<dyn Giver>,
    armed: bool,
    /// Its end would give leased permits back.
    _client: Client,
}

impl Permits {
    pub(super) fn of(giver: impl Giver + 'static, client: &Client) -> Self {
        Self { giver: Box::new(giver), armed: true, _client: client.clone() }
    }

    /// How many permits these are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.giver.key().permits()
    }

    /// The name of the semaphore, as the caller gave it.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.giver.key().resource()
    }

    /// The hold of permits of a [`LeasedSemaphore`](crate::LeasedSemaphore): whether they are still held, for how long, and who is told if
    /// they are lost. `None` for those of a [`Semaphore`](crate::Semaphore), which have no lease.
    #[must_use]
    pub fn hold(&self) -> Option<&Hold> {
        self.giver.hold()
    }

    /// Gives the permits back now.
    ///
    /// # Errors
    /// [`Error::Lost`] if some of them had been lost before; otherwise what kept the server from answering. The permits are
    /// gone in any case.
    pub fn release(mut self) -> Result<()> {
        self.armed = false;
        self.giver.give_back(false)
    }

    /// Keeps the permits out. Those of a [`Semaphore`](crate::Semaphore) stay out until somebody
    /// [adds](crate::Semaphore::add_permits) as many. Those of a [`LeasedSemaphore`](crate::LeasedSemaphore) are renewed until the client is
    /// shut down or its last clone dropped, or until [`max_hold`](crate::ClientBuilder::max_hold), if they are renewed at all.
    pub fn forget(mut self) {
        self.armed = false;
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        match self.giver.give_back(true) {
            Ok(()) | Err(Error::Closed { .. } | Error::Lost { .. }) => {}
            Err(error) => say!(warn, "permits of {:?} were dropped: {error}", self.giver.key().full()),
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Permits");
        shown.field("resource", &self.resource()).field("count", &self.count()).field("hold", &self.hold()).finish()
    }
}
