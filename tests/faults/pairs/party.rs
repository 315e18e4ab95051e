//! One client of a trial: how it takes and gives back the lock, and what it says of that.

use crate::apart::Reach;
use crate::faults::{Fault, Phase};
use crate::site::ms;
use crate::trial::{Kind, RESPONSE, Trial, Way};
use crate::truth::{Micros, now};
use harness::threads::LONG;
use redlatch::{
    Error, FairLock, FencedLock, Hold, LeasedSemaphore, MultiLock, QuorumLock, ReadWriteLock, RedLock, RedLockExt,
    ReentrantLock, Terms,
};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::sleep;
use std::time::Duration;

/// An error, as far as it matters here.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    is_loss: bool,
    /// Of a refusal.
    pub(crate) code: String,
    pub(crate) text: String,
}

impl Told {
    fn of(error: &Error) -> Self {
        let code = if let Error::Refused { code, .. } = error { code.to_string() } else { String::new() };
        let is_loss = matches!(error, Error::Lost { .. } | Error::Unprotected { .. });
        Self { is_loss, code, text: error.to_string().replace(['\t', '\n'], " ") }
    }
}

/// What a holder believed, did and was told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    pub(crate) asked: Micros,
    /// When its call returned with the lock.
    pub(crate) granted: Option<Micros>,
    /// The last moment at which it knew that it held.
    pub(crate) believed: Micros,
    /// Its release began then, and it was valid.
    pub(crate) ending: Micros,
    pub(crate) was_valid: bool,
    /// The deadline that it knew of then.
    pub(crate) believed_until: Micros,
    pub(crate) ended: Micros,
    /// Its owner fields, each with its key.
    pub(crate) owners: Vec<(String, String)>,
    /// What ended the call, whichever part of it failed.
    pub(crate) result: Option<Result<(), Told>>,
    /// The channel of a hold told of a loss.
    pub(crate) heard: bool,
    /// The callback did.
    pub(crate) called: usize,
    /// How many losses its client has counted.
    pub(crate) counted: usize,
    /// The fault by which its process may be stopped.
    pub(crate) stops_by: Option<Fault>,
    /// Its process was killed. What it was told, and what it held, nobody knows.
    pub(crate) died: bool,
}

impl Account {
    /// The callback has a thread of its own.
    pub(crate) fn count(&mut self, counted: &Count, called: &AtomicUsize) {
        let until = now() + NEWS;
        loop {
            (self.counted, self.called) = (counted() as usize, called.load(SeqCst));
            if self.counted == self.called || now() > until {
                return;
            }
            sleep(ms(5));
        }
    }

    pub(crate) fn was_told(&self) -> bool {
        self.was_told_by_result() || self.heard || self.called > 0
    }

    pub(crate) fn was_told_by_result(&self) -> bool {
        matches!(&self.result, Some(Err(Told { is_loss: true, .. })))
    }
}

/// As a process says it: without a name, in this order.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owners: Vec<_> = self.owners.iter().map(|(name, owner)| format!("{name} {owner}")).collect();
        let times =
            [self.asked, self.granted.unwrap_or(0), self.believed, self.ending, self.believed_until, self.ended];
        times.iter().try_for_each(|time| write!(f, "{time}\t"))?;
        write!(f, "{}\t{}\t{}\t{}\t", self.was_valid, self.heard, self.called, self.counted)?;
        write!(f, "{}\t", owners.join(" "))?;
        match &self.result {
            Some(Err(Told { is_loss, code, text })) => write!(f, "{is_loss}\t{code}\t{text}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for Account {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        fn parse<T: FromStr>(part: Option<&str>) -> Result<T, ()> {
            part.ok_or(())?.parse().map_err(drop)
        }
        let parts = &mut text.split('\t');
        let mut times = [0; 6];
        times.iter_mut().try_for_each(|time| parse(parts.next()).map(|parsed| *time = parsed))?;
        let [asked, granted, believed, ending, believed_until, ended] = times;
        let (was_valid, heard) = (parse(parts.next())?, parse(parts.next())?);
        let (called, counted) = (parse(parts.next())?, parse(parts.next())?);
        let owners: Vec<_> = parts.next().ok_or(())?.split(' ').collect();
        let owners = owners.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
        let result = match (parts.next().ok_or(())?, parts.next(), parts.next()) {
            (is_loss, Some(code), Some(text)) => {
                Err(Told { is_loss: is_loss == "true", code: code.to_owned(), text: text.to_owned() })
            }
            _ => Ok(()),
        };
        let (granted, result) = ((granted > 0).then_some(granted), Some(result));
        Ok(Self {
            asked,
            granted,
            believed,
            ending,
            believed_until,
            ended,
            was_valid,
            heard,
            called,
            counted,
            owners,
            result,
            ..Self::default()
        })
    }
}

/// Terms and requests have the same setters.
macro_rules! on_terms {
    ($request:expr, $wait:expr, $lease:expr) => {
        match $lease {
            Some((lease, true)) => $request.wait($wait).renewed_lease(lease),
            Some((lease, false)) => $request.wait($wait).lease(lease),
            None => $request.wait($wait),
        }
    };
}

pub(crate) type Count = Box<dyn Fn() -> u64 + Send + Sync>;

/// The locks of one client.
pub(crate) enum Locks {
    One(Box<dyn RedLock>),
    Group(ReentrantLock),
    Leased(LeasedSemaphore),
}

pub(crate) const NAME: &str = "n";
pub(crate) const SECOND: &str = "m";

impl Locks {
    /// And how many losses the client has counted.
    pub(crate) fn of(trial: &Trial, reach: &Reach, is_rival: bool, called: &Arc<AtomicUsize>) -> (Self, Count) {
        let called = Arc::clone(called);
        let count = move |_| _ = called.fetch_add(1, SeqCst);
        let (watched, _) = trial.leases();
        if trial.kind == Kind::Quorum {
            let builder = QuorumLock::builder(&reach.urls).node_timeout(trial.response()).outage_budget(trial.budget());
            let builder =
                builder.connect_timeout(RESPONSE).watchdog_timeout(watched).poll_cap(ms(1_000)).on_lost(count);
            let locks = builder.build().expect("the servers run");
            let counts = locks.clone();
            return (Self::One(Box::new(locks)), Box::new(move || counts.stats().lost));
        }
        let builder = reach.builder().response_timeout(trial.response()).outage_budget(trial.budget());
        let builder = builder.connect_timeout(RESPONSE).watchdog_timeout(watched).poll_cap(ms(1_000)).on_lost(count);
        let client = builder.build().expect("the server runs");
        let locks = match trial.kind {
            Kind::Plain | Kind::Quorum => Self::One(Box::new(ReentrantLock::new(&client))),
            Kind::Fair => Self::One(Box::new(FairLock::new(&client))),
            Kind::Fenced => Self::One(Box::new(FencedLock::new(&client))),
            Kind::Read if !is_rival => Self::One(Box::new(ReadWriteLock::new(&client).read().clone())),
            Kind::Read | Kind::Write => Self::One(Box::new(ReadWriteLock::new(&client).write().clone())),
            Kind::Leased => Self::Leased(LeasedSemaphore::new(&client)),
            Kind::Group => Self::Group(ReentrantLock::new(&client)),
        };
        (locks, Box::new(move || client.stats().lost))
    }

    /// Acquires, works and ends. What the work is told: the holds.
    fn turn(&self, way: Way, wait: Duration, trial: &Trial, work: &mut dyn FnMut(&[Hold])) -> Result<bool, Error> {
        let (_, lease) = trial.leases();
        let terms = || on_terms!(Terms::new(), wait, lease);
        match self {
            Self::One(locks) => one(&**locks, way, (wait, lease), work),
            Self::Group(locks) => {
                let group = MultiLock::of([(locks, NAME), (locks, SECOND)]);
                let request = || on_terms!(group.request(), wait, lease);
                match way {
                    Way::Closure => Ok(request().execute(|guard| work(guard.holds()))?.is_some()),
                    Way::Panic => panicking(|| {
                        request().execute(|guard| {
                            work(guard.holds());
                            panic!("on purpose");
                        })
                    }),
                    Way::Unlock | Way::Inner => {
                        let Some(hold) = group.acquire(&terms())? else { return Ok(false) };
                        work(hold.holds());
                        group.unlock().map(|()| true)
                    }
                    Way::Guard | Way::Drop => {
                        let Some(guard) = request().guard()? else { return Ok(false) };
                        work(guard.holds());
                        if way == Way::Guard { guard.unlock().map(|()| true) } else { Ok(true) }
                    }
                }
            }
            Self::Leased(semaphore) => {
                let permits = trial.permits() as u32;
                let Some(permits) = semaphore.acquire(NAME, permits, &terms())? else { return Ok(false) };
                work(&[permits.hold().expect("they have a lease").clone()]);
                if way == Way::Drop { Ok(true) } else { permits.release().map(|()| true) }
            }
        }
    }
}

fn one(
    locks: &dyn RedLock,
    way: Way,
    (wait, lease): (Duration, Option<(Duration, bool)>),
    work: &mut dyn FnMut(&[Hold]),
) -> Result<bool, Error> {
    let terms = &on_terms!(Terms::new(), wait, lease);
    let request = || on_terms!(locks.request(NAME), wait, lease);
    match way {
        Way::Unlock => {
            let Some(hold) = locks.acquire(NAME, terms)? else { return Ok(false) };
            work(&[hold]);
            locks.unlock(NAME).map(|()| true)
        }
        Way::Inner => {
            let Some(hold) = locks.acquire(NAME, terms)? else { return Ok(false) };
            let inner = locks.acquire(NAME, terms);
            work(&[hold]);
            let of_inner = if inner.is_ok() { locks.unlock(NAME) } else { Ok(()) };
            locks.unlock(NAME).and(of_inner).map(|()| true)
        }
        Way::Guard | Way::Drop => {
            let Some(guard) = request().guard()? else { return Ok(false) };
            work(&[guard.hold().clone()]);
            if way == Way::Guard { guard.unlock().map(|()| true) } else { Ok(true) }
        }
        Way::Closure => Ok(request().execute(|guard| work(&[guard.hold().clone()]))?.is_some()),
        Way::Panic => panicking(|| {
            request().execute(|guard| {
                work(&[guard.hold().clone()]);
                panic!("on purpose");
            })
        }),
    }
}

fn panicking(act: impl FnOnce() -> Result<Option<()>, Error>) -> Result<bool, Error> {
    catch_unwind(AssertUnwindSafe(act)).map_or(Ok(true), |done| done.map(|done| done.is_some()))
}

/// How long what the background tells may take: attempts a second apart.
const NEWS: Micros = 3_000_000;

/// From the answer of a release to what it tells.
const TOLD: Duration = Duration::from_millis(300);

/// Owner fields, each with its key.
pub(crate) type Owners = [(String, String)];

/// What one turn is like.
pub(crate) struct Turn<'a> {
    trial: &'a Trial,
    way: Way,
    wait: Duration,
    work: u64,
    /// Whether servers have said what became of a release since then.
    is_answered: &'a dyn Fn(&Owners, Micros) -> bool,
}

impl<'a> Turn<'a> {
    pub(crate) fn of_holder(trial: &'a Trial, is_answered: &'a dyn Fn(&Owners, Micros) -> bool) -> Self {
        Self { trial, way: trial.way, wait: Duration::MAX, work: trial.work, is_answered }
    }

    /// Of one that has the lock when the holder asks.
    pub(crate) fn before(trial: &'a Trial) -> Self {
        Self { wait: LONG, work: 120, ..Self::behind(trial) }
    }

    /// Of one that waits behind the holder.
    pub(crate) fn behind(trial: &'a Trial) -> Self {
        Self { trial, way: Way::Unlock, wait: ms(12_000), work: 5, is_answered: &|_, _| true }
    }
}

/// Makes connections and scripts known, and who has permits sets them. Returns what its owner fields begin with.
pub(crate) fn prepare(locks: &Locks, trial: &Trial, is_holder: bool) -> String {
    if let (Locks::Leased(semaphore), true) = (locks, is_holder) {
        while semaphore.set_permits(NAME, trial.permits() as u32).is_err() {}
    }
    // A short lease could be lost, which would be told.
    let calm = Trial { lease: 30_000, ..trial.clone() };
    let mut client = String::new();
    let mut note = |holds: &[Hold]| client = holds[0].owner().split(':').next().unwrap_or_default().to_owned();
    while locks.turn(Way::Unlock, LONG, &calm, &mut note).is_err() {}
    client
}

/// Takes and gives back the lock once, and says what became of that.
pub(crate) fn account(locks: &Locks, turn: &Turn<'_>, at: &mut dyn FnMut(Phase)) -> Account {
    let mut account = Account { asked: now(), ..Account::default() };
    let mut channels = Vec::new();
    let result = locks.turn(turn.way, turn.wait, turn.trial, &mut |holds: &[Hold]| {
        account.granted = Some(now());
        let owners = holds.iter().map(|hold| (hold.resource().to_owned(), hold.owner().to_owned()));
        account.owners = owners.collect();
        channels = holds.iter().map(Hold::lost).collect();
        // The moment before the look: it was true then.
        let look = |believed: &mut Micros| {
            let (before, is_valid) = (now(), holds.iter().all(Hold::is_valid));
            if is_valid {
                *believed = before;
            }
            (before, is_valid)
        };
        at(Phase::Granted);
        let mut passed = false;
        let (begun, half) = (now(), turn.work / 2);
        while now() < begun + turn.work * 1_000 {
            if !passed && now() >= begun + half * 1_000 {
                passed = true;
                at(Phase::Work);
            }
            look(&mut account.believed);
            sleep(ms(1));
        }
        if !passed {
            at(Phase::Work);
        }
        at(Phase::BeforeRelease);
        (account.ending, account.was_valid) = look(&mut account.believed);
        let left = holds.iter().map(Hold::remaining).min().unwrap_or_default();
        account.believed_until = now() + left.as_micros() as Micros;
    });
    account.ended = now();
    account.result = Some(match result {
        Ok(true) => Ok(()),
        Ok(false) => Err(Told { is_loss: false, code: String::new(), text: "the wait ended".to_owned() }),
        Err(error) => Err(Told::of(&error)),
    });
    at(Phase::AfterRelease);
    // What a call does not say is told in the background.
    if account.granted.is_some() {
        let may_be_told = matches!(turn.way, Way::Drop | Way::Panic | Way::Closure)
            || account.result.as_ref().is_some_and(Result::is_err);
        let is_told_later = may_be_told && !account.was_told_by_result();
        // Another thread may have found the loss before the call did, and be about to tell it.
        let until = now()
            + if is_told_later {
                NEWS
            } else if account.was_told_by_result() {
                TOLD.as_micros() as Micros
            } else {
                0
            };
        loop {
            let is_last = now() > until || is_told_later && (turn.is_answered)(&account.owners, account.ending);
            if is_last && is_told_later {
                sleep(TOLD);
            }
            account.heard = channels.iter().any(|channel| channel.try_recv().is_ok());
            if is_last || account.heard {
                break;
            }
            sleep(ms(5));
        }
    }
    account
}
