//! A tenure: one owner id on the server, from the acquire that took the key to the release that freed it.
//!
//! All belief rests on one atomic word:
//!
//! | word | means | leads to |
//! | --- | --- | --- |
//! | `PENDING` | no acquire was answered yet | a deadline, or `ENDED` |
//! | a deadline | held until then, in nanoseconds since boot | a later deadline, `LOST`, `ENDED` |
//! | `ENDED` | the final release is about to be sent, or was | nothing |
//! | `LOST` | it ended under its holder | nothing |
//!
//! Every change is a compare-exchange from the value that was read, so a renewal, an expiry and a release that
//! race each other have one winner, and `LOST` and `ENDED` are for good.

use crate::base::error::Result;
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::owner::OwnerId;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::base::time::{Clock, Lease, Moment};
use notes::Notes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use watch::Watch;

mod notes;
#[cfg(test)]
mod tests;
mod watch;
pub(crate) use notes::Audience;
#[cfg(test)]
pub(crate) use tests::Nobody;

const LOST: u64 = 0;
const ENDED: u64 = 1;
const PENDING: u64 = 2;

/// The state of a tenure right now. A hold shows less of it, as its `HoldState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenureState {
    Pending,
    Held,
    Suspect,
    Lost,
    Ended,
}

/// Why a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// Its lease ended: an explicit lease ran out, or no renewal was confirmed in time.
    Expired,
    /// It was held for longer than [`max_hold`](crate::ClientBuilder::max_hold), so it was not renewed any more.
    Overheld,
    /// The server no longer has it: force unlock, a deleted or evicted key, a server that lost its data.
    Removed,
    /// The background thread that renews it failed.
    Unwatched,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ended",
            Self::Overheld => "it was held for as long as max_hold allows",
            Self::Removed => "the server no longer has it",
            Self::Unwatched => "the thread that renews it failed",
        })
    }
}

#[derive(Debug)]
pub(crate) struct Tenure {
    key: Key,
    owner: OwnerId,
    clock: Clock,
    serial: u64,
    word: AtomicU64,
    /// The lease of the grant or renewal that its deadline is of, ms.
    granted_for: AtomicU64,
    suspect: AtomicBool,
    announced: AtomicBool,
    acquire_sent: AtomicU64,
    hold_began: AtomicU64,
    open_until: AtomicU64,
    lease_until: AtomicU64,
    watch: Watch,
    notes: Notes,
}

static SERIAL: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

impl Tenure {
    pub(crate) fn new(key: Key, owner: OwnerId, clock: Clock) -> Self {
        Self {
            key,
            owner,
            clock,
            serial: SERIAL.fetch_add(1, SeqCst),
            word: AtomicU64::new(PENDING),
            granted_for: AtomicU64::new(0),
            suspect: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            acquire_sent: AtomicU64::new(u64::MAX),
            hold_began: AtomicU64::new(u64::MAX),
            open_until: AtomicU64::new(0),
            lease_until: AtomicU64::new(0),
            watch: Watch::default(),
            notes: Notes::default(),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// The field on the wire, in parts.
    pub(crate) fn field(&self) -> [&str; 3] {
        [&self.owner, self.key.field_end(), ""]
    }

    /// Tells tenures apart, and orders those that are due at the same moment.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// It was acquired then, if not before. What a release gave was acquired when that was known: its deadline counts from the ask.
    pub(crate) fn note_acquired(&self, at: Moment) {
        for began in [&self.acquire_sent, &self.hold_began] {
            let _ = began.compare_exchange(u64::MAX, at.0, SeqCst, SeqCst);
        }
    }

    /// When the acquire that took the key was sent, or when it was known that a release gave it.
    pub(crate) fn acquire_sent(&self) -> Moment {
        Moment(self.acquire_sent.load(SeqCst))
    }

    /// When the hold that has it now began: another one than the first, once it was passed on.
    pub(crate) fn hold_began(&self) -> Moment {
        Moment(self.hold_began.load(SeqCst))
    }

    /// It was passed on: what its next hold may last counts from here.
    pub(crate) fn begin_hold(&self) {
        self.hold_began.store(self.now().0, SeqCst);
    }

    /// Books an answered acquire or renewal whose command was sent at `sent`; moves the deadline only forward.
    /// False when there is no hold to prolong: it ended, or its deadline had passed before the answer came.
    ///
    /// The clock is read here, after the reply: an answer that comes too late proves nothing about the time
    /// in between (docs/protocol.md, 4.2), so it writes `LOST` instead of a new deadline.
    pub(crate) fn confirm(&self, sent: Moment, lease: Lease) -> bool {
        self.lease_until.fetch_max(sent.plus(lease.span()).0, SeqCst);
        let until = sent.plus(lease.validity()).0;
        let mut old = self.word.load(SeqCst);
        loop {
            let new = match old {
                LOST | ENDED => return false,
                PENDING if until <= self.now().0 => return false,
                PENDING => until,
                deadline if deadline <= self.now().0 => LOST,
                deadline => deadline.max(until),
            };
            match self.word.compare_exchange(old, new, SeqCst, SeqCst) {
                Ok(_) if new == LOST => return false,
                Ok(_) if new == until => break self.granted_for.store(lease.millis(), SeqCst),
                Ok(_) => break,
                Err(changed) => old = changed,
            }
        }
        self.note_acquired(sent);
        self.suspect.store(false, SeqCst);
        true
    }

    /// How much longer than until its deadline the server has it, counted from when it was asked.
    pub(crate) fn margin(&self) -> Duration {
        let lease = Lease::clamped(self.granted_for());
        lease.span() - lease.validity()
    }

    /// The lease of the grant or renewal that its deadline is of.
    pub(crate) fn granted_for(&self) -> Duration {
        Duration::from_millis(self.granted_for.load(SeqCst))
    }

    /// Whether the lock is still surely held: one load and one look at the clock, no lock, no round trip.
    pub(crate) fn is_valid(&self) -> bool {
        let deadline = self.word.load(SeqCst);
        let unchecked = mutant::is(Mutant::NoDeadlineCheck);
        deadline > PENDING && (unchecked || deadline > self.now().0 || self.expire(deadline))
    }

    /// Writes `LOST` over a deadline that was seen passed. True when it was moved meanwhile, to a valid one.
    #[cold]
    fn expire(&self, mut deadline: u64) -> bool {
        while let Err(changed) = self.word.compare_exchange(deadline, LOST, SeqCst, SeqCst) {
            if changed <= PENDING || changed > self.now().0 {
                return changed > PENDING;
            }
            deadline = changed;
        }
        false
    }

    pub(crate) fn state(&self) -> TenureState {
        let valid = self.is_valid();
        match self.word.load(SeqCst) {
            LOST => TenureState::Lost,
            ENDED => TenureState::Ended,
            PENDING => TenureState::Pending,
            _ if valid && !self.suspect.load(SeqCst) => TenureState::Held,
            _ => TenureState::Suspect,
        }
    }

    /// Whether its owner id may be sent in another acquire: nothing of it was acquired or left unanswered.
    pub(crate) fn is_unused(&self) -> bool {
        self.state() == TenureState::Pending && self.open_until().is_none()
    }

    /// Until when it is held; `None` when it is not.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let word = self.word.load(SeqCst);
        (word > PENDING).then_some(Moment(word))
    }

    /// The last moment at which the key can still be on the server by what was asked so far.
    pub(crate) fn lease_until(&self) -> Moment {
        Moment(self.lease_until.load(SeqCst))
    }

    /// Ends the tenure before its final release is sent: from here on no renewal counts. Whether it was valid.
    pub(crate) fn end(&self) -> bool {
        let valid = self.is_valid();
        let mut old = self.word.load(SeqCst);
        while old != LOST && old != ENDED {
            match self.word.compare_exchange(old, ENDED, SeqCst, SeqCst) {
                Ok(_) => return valid && old != PENDING,
                Err(changed) => old = changed,
            }
        }
        false
    }

    /// The server said that the key is not ours. Nothing happens to a tenure that ended by itself.
    pub(crate) fn lose(&self) {
        let mut old = self.word.load(SeqCst);
        while old != ENDED && old != LOST {
            match self.word.compare_exchange(old, LOST, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(changed) => old = changed,
            }
        }
    }

    /// A renewal failed: the hold stays until its deadline, but its holder should know.
    pub(crate) fn suspect(&self) {
        self.suspect.store(true, SeqCst);
    }

    /// Whether its last renewal failed.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(SeqCst)
    }

    /// True for the first caller only: whoever tells the world of the loss.
    pub(crate) fn announce_once(&self) -> bool {
        !self.announced.swap(true, SeqCst)
    }

    /// An attempt was broken off; until `deadline` the server may still execute it.
    pub(crate) fn leave_open(&self, deadline: Moment, lease: Lease) {
        self.open_until.fetch_max(deadline.0, SeqCst);
        self.lease_until.fetch_max(deadline.plus(lease.span()).0, SeqCst);
    }

    /// Whether an attempt without an answer may still be executed.
    pub(crate) fn is_open(&self) -> bool {
        self.open_until().is_some_and(|open| open >= self.now())
    }

    /// What was asked for keeps the key on the server at most until then.
    pub(crate) fn may_last(&self, until: Moment) {
        self.lease_until.fetch_max(until.0, SeqCst);
    }

    /// When what unanswered attempts may have left can be swept for good; `None` when every attempt was answered.
    pub(crate) fn sweep_due(&self) -> Option<Moment> {
        // The server executes an attempt up to and within its last millisecond.
        self.open_until().map(|open| open.plus(Duration::from_millis(1)))
    }

    /// Until when an unanswered attempt may still be executed; `None` when every attempt was answered.
    pub(crate) fn open_until(&self) -> Option<Moment> {
        let open = self.open_until.load(SeqCst);
        (open != 0).then_some(Moment(open))
    }
}

/// What a background thread may do to the tenures of any kind of lock, and all it needs to know of a kind.
pub(crate) trait Keeper: Send + Sync {
    /// Asks the server to prolong all of them by the same lease, and books each answer at its tenure.
    fn renew(&self, batch: &[Arc<Tenure>]);

    /// Asks the server whether it still has all of them, and books each answer. None is prolonged by that.
    fn verify(&self, batch: &[Arc<Tenure>]);

    /// Makes one attempt to free the key of a tenure that is over.
    fn sweep(&self, tenure: &Arc<Tenure>) -> Result<()>;

    /// The lock of a tenure as the log names it: its full key, and where it is.
    fn whereabouts(&self, tenure: &Tenure) -> String {
        format!("{:?}", tenure.key().full())
    }

    /// Which of the servers has it: what one of them does not answer says nothing of the others.
    fn server_of(&self, _: &Tenure) -> usize {
        0
    }

    /// Makes one attempt to free the keys of several tenures, by as few commands as the store can. Done again it does no harm.
    fn sweep_all(&self, tenures: &[Arc<Tenure>]) -> Result<()> {
        tenures.iter().try_for_each(|tenure| self.sweep(tenure))
    }

    /// Tells the holder, the registry and the callbacks that this tenure is lost; does nothing the second time.
    fn lost(&self, tenure: &Arc<Tenure>, cause: LossCause);

    /// Prolongs one tenure by a lease of the caller's choice.
    fn extend(&self, tenure: &Arc<Tenure>, lease: Lease) -> Result<()>;
}
