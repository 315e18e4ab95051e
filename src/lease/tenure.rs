//! A tenure: one owner id on the server, from the acquire that took the key to the release that freed it.
//!
//! All belief rests on one atomic word:
//!
//! | word | means | leads to |
//! | --- | --- | --- |
//! | `PENDING` | no acquire was answered yet | a deadline, or `ENDED` |
//! | a deadline | held until then, in nanoseconds since boot | a later deadline, `LOST`, `ENDED` |
//! | `ENDED` | the final release is about to be sent, or was sent | nothing |
//! | `LOST` | the tenure ended under its holder | nothing |
//!
//! Every change is a compare-exchange from the value that was read. So a renewal, an expiry and a release that
//! race each other have one winner, and `LOST` and `ENDED` stay for good.

use crate::base::error::Result;
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::owner::OwnerId;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::base::time::{Clock, Lease, Moment};
use notes::Notes;
use smol_str::{SmolStr, format_smolstr};
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
    /// The lease of the grant or renewal that made the deadline, ms.
    granted_for: AtomicU64,
    /// Until when it was believed, once it has ended. Zero if it was not.
    believed_until: AtomicU64,
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
            believed_until: AtomicU64::new(0),
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

    /// Its name in the map of threads: that of its lock, or one of its own if the hold is no thread's.
    pub(crate) fn place(&self) -> SmolStr {
        match self.key.permits() {
            0 => self.key.shared(),
            _ => format_smolstr!("{}\u{1}", self.serial),
        }
    }

    /// The field on the wire, in parts.
    pub(crate) fn field(&self) -> [&str; 3] {
        [&self.owner, self.key.field_end(), ""]
    }

    /// Tells tenures apart.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The tenure was acquired at this moment, unless it was before. A tenure that a release gave was acquired when this client
    /// learned it, though its deadline counts from the ask.
    pub(crate) fn note_acquired(&self, at: Moment) {
        for began in [&self.acquire_sent, &self.hold_began] {
            let _ = began.compare_exchange(u64::MAX, at.0, SeqCst, SeqCst);
        }
    }

    /// When the acquire that took the key was sent, or when this client learned that a release gave the key.
    pub(crate) fn acquire_sent(&self) -> Moment {
        Moment(self.acquire_sent.load(SeqCst))
    }

    /// When the hold that has the tenure now began. Once the tenure was passed on, that is not the first hold.
    pub(crate) fn hold_began(&self) -> Moment {
        Moment(self.hold_began.load(SeqCst))
    }

    /// The tenure was passed on: the cap of its next hold counts from now.
    pub(crate) fn begin_hold(&self) {
        self.hold_began.store(self.now().0, SeqCst);
    }

    /// Books an answered acquire or renewal whose command was sent at `sent`. Moves the deadline only forward.
    /// False if there is no hold to prolong: it ended, or its deadline had passed before the answer came.
    ///
    /// The clock is read here, after the reply. An answer that comes too late proves nothing about the time
    /// in between (docs/protocol.md, 4.2). So it writes `LOST` instead of a new deadline.
    pub(crate) fn confirm(&self, sent: Moment, lease: Lease) -> bool {
        // The server may have run the command as late as it answered.
        self.may_last(self.now().plus(lease.at_most()));
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

    /// For how long the server has the key after the deadline, counted from the ask.
    pub(crate) fn margin(&self) -> Duration {
        let lease = Lease::clamped(self.granted_for());
        lease.span() - lease.validity()
    }

    /// The lease of the grant or renewal that made the deadline.
    pub(crate) fn granted_for(&self) -> Duration {
        Duration::from_millis(self.granted_for.load(SeqCst))
    }

    /// Whether the lock is still surely held: one load and one look at the clock, no lock, no round trip.
    pub(crate) fn is_valid(&self) -> bool {
        let deadline = self.word.load(SeqCst);
        let unchecked = mutant::is(Mutant::NoDeadlineCheck);
        deadline > PENDING && (unchecked || deadline > self.now().0 || self.expire(deadline))
    }

    /// Writes `LOST` over a deadline that has passed. True if a renewal has moved it meanwhile, to a valid one.
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

    /// Whether the owner id may be sent in another acquire: no acquire with it took the key or was left without an answer.
    pub(crate) fn is_unused(&self) -> bool {
        self.state() == TenureState::Pending && self.open_until().is_none()
    }

    /// Until when the tenure is held; `None` if it is not held.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let word = self.word.load(SeqCst);
        (word > PENDING).then_some(Moment(word))
    }

    /// Until when the key can be on the server, by the commands that were sent so far, and however different the clocks' speeds are. From then on
    /// the lock is surely over.
    pub(crate) fn lease_until(&self) -> Moment {
        Moment(self.lease_until.load(SeqCst))
    }

    /// Ends the tenure before its final release is sent: from here on no renewal counts. Returns whether it was valid.
    pub(crate) fn end(&self) -> bool {
        let valid = self.is_valid();
        let mut old = self.word.load(SeqCst);
        while old != LOST && old != ENDED {
            // Before the word says it: a release may be answered at once.
            self.believed_until.store(if valid && old > PENDING { old } else { 0 }, SeqCst);
            match self.word.compare_exchange(old, ENDED, SeqCst, SeqCst) {
                Ok(_) => return valid && old != PENDING,
                Err(changed) => old = changed,
            }
        }
        false
    }

    /// Until when it was believed, if it has ended.
    pub(crate) fn believed_until(&self) -> Moment {
        Moment(self.believed_until.load(SeqCst))
    }

    /// Whether nobody would believe in it any more, had it not ended: that its key is gone is then no loss.
    pub(crate) fn is_over(&self) -> bool {
        self.now() >= self.believed_until() && !mutant::is(Mutant::GoneAfterTheEndIsLost)
    }

    /// The server said that it does not have the key. A tenure that has ended stays as it is.
    pub(crate) fn lose(&self) {
        let mut old = self.word.load(SeqCst);
        while old != ENDED && old != LOST {
            match self.word.compare_exchange(old, LOST, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(changed) => old = changed,
            }
        }
    }

    /// A renewal failed. The hold stays until its deadline, but its holder should know.
    pub(crate) fn suspect(&self) {
        self.suspect.store(true, SeqCst);
    }

    /// Whether the last renewal failed.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(SeqCst)
    }

    /// True for the first caller only, which announces the loss.
    pub(crate) fn announce_once(&self) -> bool {
        !self.announced.swap(true, SeqCst)
    }

    /// An attempt was broken off. The server may execute it until `deadline`.
    pub(crate) fn leave_open(&self, deadline: Moment, lease: Lease) {
        self.open_until.fetch_max(deadline.0, SeqCst);
        self.may_last(deadline.plus(lease.at_most()));
    }

    /// Whether the server may still execute an unanswered attempt.
    pub(crate) fn is_open(&self) -> bool {
        self.open_until().is_some_and(|open| open >= self.now())
    }

    /// A command was sent that keeps the key on the server until then at most.
    pub(crate) fn may_last(&self, until: Moment) {
        self.lease_until.fetch_max(until.0, SeqCst);
    }

    /// From when on a sweep takes away for good what unanswered attempts left; `None` if every attempt was answered.
    pub(crate) fn sweep_due(&self) -> Option<Moment> {
        // The server executes an attempt up to and within its last millisecond.
        self.open_until().map(|open| open.plus(Duration::from_millis(1)))
    }

    /// Until when the server may execute an unanswered attempt; `None` if every attempt was answered.
    pub(crate) fn open_until(&self) -> Option<Moment> {
        let open = self.open_until.load(SeqCst);
        (open != 0).then_some(Moment(open))
    }
}

/// What a background thread may do to the tenures of a kind of lock. It knows nothing else of the kind.
pub(crate) trait Keeper: Send + Sync {
    /// Asks the server to prolong all of the tenures by the same lease, and books each answer.
    fn renew(&self, batch: &[Arc<Tenure>]);

    /// Asks the server whether it still has the tenures, and books each answer. That prolongs none.
    fn verify(&self, batch: &[Arc<Tenure>]);

    /// Makes one attempt to free the key of a tenure that is over.
    fn sweep(&self, tenure: &Arc<Tenure>) -> Result<()>;

    /// The lock of a tenure as the log names it: its full key, and where it is.
    fn whereabouts(&self, tenure: &Tenure) -> String {
        format!("{:?}", tenure.key().full())
    }

    /// Which of the servers has the key. If one of them does not answer, that says nothing of the others.
    fn server_of(&self, _: &Tenure) -> usize {
        0
    }

    /// Makes one attempt to free the keys of several tenures, by as few commands as the store can. To repeat it does no harm.
    fn sweep_all(&self, tenures: &[Arc<Tenure>]) -> Result<()> {
        tenures.iter().try_for_each(|tenure| self.sweep(tenure))
    }

    /// The same at a master that replaced the one that freed them, and without the places of their waits, which that may have.
    fn free_again(&self, tenures: &[Arc<Tenure>]) -> Result<()> {
        self.sweep_all(tenures)
    }

    /// Tells the holder, the registry and the callbacks that a tenure is lost. Does nothing the second time.
    fn lost(&self, tenure: &Arc<Tenure>, cause: LossCause);

    /// Tells the holder, if a release of the ended tenure was answered that its key was gone, and none before it explains that.
    fn tell_if_gone(&self, _: &Arc<Tenure>) {}

    /// Prolongs one tenure by a lease of the caller's choice.
    fn extend(&self, tenure: &Arc<Tenure>, lease: Lease) -> Result<()>;
}
