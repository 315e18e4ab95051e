//! One trial: what it consists of, and how it is played.

use crate::faults::{Fault, Phase, one_of};
use crate::ground::{Deployment, Ground};
use crate::site::{Reply, Sent, Site, Target, ms};
use crate::truth::{Micros, now};
use fastrand::Rng;
use harness::threads::LONG;
use redlatch::{
    Client, Error, FairLock, FencedLock, Hold, LeasedSemaphore, MultiLock, QuorumLock, ReadWriteLock, RedLock,
    RedLockExt, ReentrantLock, Terms,
};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

const BUDGET: Duration = Duration::from_millis(1_500);
const RESPONSE: Duration = Duration::from_millis(250);

/// Of a client that waits longer for an answer than many a lease lasts.
const SLOW_BUDGET: Duration = Duration::from_millis(4_000);
const SLOW_RESPONSE: Duration = Duration::from_millis(2_000);

/// A lease below that is asked for, and nobody renews it. One that is even shorter is asked for and renewed. Others are the watchdog's.
const FIXED: u64 = 1_000;
const SHORT: u64 = 200;

one_of! {
    Kind { Plain, Fair, Fenced, Read, Write, Leased, Group, Quorum, }
}

one_of! {
    /// How work ends.
    Way { Unlock, Guard, Drop, Closure, Panic, Inner, }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trial {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    pub(crate) way: Way,
    pub(crate) faults: Vec<(Phase, Fault)>,
    /// Another client waits for the lock from the beginning.
    pub(crate) has_rival: bool,
    /// Another client has the lock when the holder asks.
    pub(crate) is_contended: bool,
    /// Clients wait for answers for 2 s.
    pub(crate) is_slow: bool,
    pub(crate) work: u64,
    pub(crate) lease: u64,
    pub(crate) deployment: Deployment,
}

impl Trial {
    /// Half of the trials lose the lock and the answer to its release, a quarter lose an answer before an outage, and a quarter are of any kind.
    /// Of any deployment every second one is on servers alone.
    pub(crate) fn of(seed: u64, deployment: Option<Deployment>) -> Self {
        use Phase::{AtRelease, BeforeRelease, Granted, Waiting, Work};
        fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
            of[rng.usize(..of.len())]
        }
        let rng = &mut Rng::with_seed(seed);
        let (kind, way) = (Kind::any(rng), Way::any(rng));
        let mut faults = match rng.u8(..4) {
            0 | 1 => vec![
                (pick(rng, &[Granted, Work, Work, BeforeRelease]), pick(rng, &Fault::LOSSES)),
                (pick(rng, &[Work, BeforeRelease, AtRelease, AtRelease]), pick(rng, &Fault::DOUBTS)),
            ],
            2 => vec![
                (pick(rng, &[Waiting, Granted]), pick(rng, &Fault::LOST_ANSWERS)),
                (pick(rng, &[BeforeRelease, AtRelease]), pick(rng, &Fault::OUTAGES)),
            ],
            _ => (0..2).map(|_| (Phase::any(rng), Fault::any(rng))).collect(),
        };
        faults.sort();
        let is_contended = faults.iter().any(|(phase, _)| *phase == Waiting) || rng.u8(..4) == 0;
        let has_rival = rng.bool();
        let (work, lease) =
            (pick(rng, &[2, 60, 250, 700]), pick(rng, &[150, 350, 1_200, 1_200, 3_000, 3_000, 30_000, 30_000]));
        let way = match (kind, way) {
            (Kind::Group | Kind::Leased, Way::Inner) => Way::Unlock,
            (Kind::Leased, Way::Closure) => Way::Guard,
            (Kind::Leased, Way::Panic) => Way::Drop,
            (_, way) => way,
        };
        let is_slow = rng.u8(..8) == 0;
        let deployment = deployment.unwrap_or(pick(rng, &Deployment::OFTEN));
        Self { seed, kind, way, faults, has_rival, is_contended, is_slow, work, lease, deployment }.suited(rng)
    }

    /// How long the holder waits for an answer.
    pub(crate) fn response(&self) -> Duration {
        if self.is_slow { SLOW_RESPONSE } else { RESPONSE }
    }

    pub(crate) fn budget(&self) -> Duration {
        if self.is_slow { SLOW_BUDGET } else { BUDGET }
    }

    /// The lease of the client's watchdog, and the one that calls ask for and whether that is renewed.
    fn leases(&self) -> (Duration, Option<(Duration, bool)>) {
        let (lease, usual) = (ms(self.lease), ms(30_000));
        match self.lease {
            ..SHORT => (usual, Some((lease, true))),
            SHORT..FIXED => (usual, Some((lease, false))),
            // A client may wait for an answer for half of its usual lease.
            _ if self.is_slow => (usual, Some((lease, true))),
            _ => (lease, None),
        }
    }

    /// How many permits a hold of a semaphore has: all of them.
    pub(crate) fn permits(&self) -> u64 {
        1 + self.seed % 2
    }
}

/// A trial as text: it is repeated by that, also when the generator has changed.
impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, kind, way, faults, has_rival, is_contended, is_slow, work, lease, deployment } = self;
        write!(f, "{kind:?} {way:?}")?;
        faults.iter().try_for_each(|(phase, fault)| write!(f, " {phase:?}:{fault:?}"))?;
        write!(f, " {seed} {work} {lease}")?;
        let marks = [(has_rival, " rival"), (is_contended, " contended"), (is_slow, " slow")];
        marks.into_iter().filter(|(is, _)| **is).try_for_each(|(_, mark)| f.write_str(mark))?;
        f.write_str(deployment.mark())
    }
}

impl FromStr for Trial {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split_whitespace().peekable();
        let mut word = || words.next().ok_or(());
        let (kind, way) = (Kind::named(word()?).ok_or(())?, Way::named(word()?).ok_or(())?);
        let mut faults = Vec::new();
        let mut number = word()?;
        while let Some((phase, fault)) = number.split_once(':') {
            faults.push((Phase::named(phase).ok_or(())?, Fault::named(fault).ok_or(())?));
            number = word()?;
        }
        let parse = |word: &str| word.parse().map_err(drop);
        let (seed, work, lease) = (parse(number)?, parse(word()?)?, parse(word()?)?);
        let marks: Vec<_> = words.collect();
        let [has_rival, is_contended, is_slow] = ["rival", "contended", "slow"].map(|mark| marks.contains(&mark));
        let deployment = marks.iter().find_map(|mark| Deployment::named(mark)).unwrap_or(Deployment::Server);
        Ok(Self { seed, kind, way, faults, has_rival, is_contended, is_slow, work, lease, deployment })
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
    pub(crate) result: Option<Result<(), Error>>,
    /// The channel of a hold told of a loss.
    pub(crate) heard: bool,
    /// The callback did.
    pub(crate) called: usize,
    /// How many losses its client has counted.
    pub(crate) counted: usize,
}

impl Account {
    pub(crate) fn was_told(&self) -> bool {
        self.was_told_by_result() || self.heard || self.called > 0
    }

    pub(crate) fn was_told_by_result(&self) -> bool {
        matches!(&self.result, Some(Err(Error::Lost { .. } | Error::Unprotected { .. })))
    }
}

/// What a trial was like.
pub(crate) struct Played {
    pub(crate) sites: Vec<Arc<Site>>,
    /// If they are not servers alone.
    pub(crate) ground: Option<Arc<Ground>>,
    pub(crate) holder: Account,
    /// Who had the lock when the holder asked.
    pub(crate) first: Option<Account>,
    pub(crate) rival: Option<Account>,
    /// What happened from when to when.
    pub(crate) hits: Vec<(Fault, Micros, Micros)>,
    pub(crate) left: Vec<String>,
    /// Permits that are neither left nor out, or both.
    pub(crate) has_all_permits: bool,
}

impl Played {
    /// When the last fault was over.
    pub(crate) fn calm(&self) -> Micros {
        self.hits.iter().map(|(.., to)| *to).max().unwrap_or(0)
    }
}

struct Stage {
    trial: Trial,
    sites: Vec<Arc<Site>>,
    ground: Option<Arc<Ground>>,
    targets: Vec<Target>,
    hits: Mutex<Vec<(Fault, Micros, Micros)>>,
    /// Whoever forces locks open.
    forcer: Option<Locks>,
}

impl Stage {
    /// The faults of this phase.
    fn reach(self: &Arc<Self>, phase: Phase) {
        let faults = self.trial.faults.iter().enumerate().filter(|(_, (at, _))| *at == phase);
        for (place, (_, fault)) in faults {
            if *fault == Fault::ForceUnlock {
                self.force(*fault);
                continue;
            }
            self.nodes(place).iter().for_each(|site| self.hit(*fault, site));
        }
    }

    /// Of a quorum most faults are at two nodes of three, so that they count. The two faults may be at different ones.
    fn nodes(&self, place: usize) -> Vec<&Arc<Site>> {
        let (seed, place) = (self.trial.seed, place as u64);
        let many = self.trial.kind == Kind::Quorum && !(seed + place).is_multiple_of(4);
        // All sites of a ground have one wire.
        let first = if self.ground.is_some() { 0 } else { (seed / 7 + place * (seed / 21 % 3)) as usize };
        (0..if many { 2 } else { 1 }).map(|node| &self.sites[(first + node) % self.sites.len()]).collect()
    }

    fn hit(&self, fault: Fault, site: &Arc<Site>) {
        let at = now();
        let lasts = match &self.ground {
            Some(ground) => ground.hit(fault, self.trial.seed),
            None => {
                site.hit(fault, &self.targets);
                fault.lasts()
            }
        };
        self.hits.lock().unwrap().push((fault, at, now() + lasts));
    }

    fn force(&self, fault: Fault) {
        let at = now();
        match self.forcer.as_ref().expect("it is there") {
            Locks::One(locks) => _ = locks.force_unlock(NAME),
            Locks::Group(locks) => _ = locks.force_unlock(NAME),
            Locks::Leased(semaphore) => _ = semaphore.force_release(NAME),
        }
        self.hits.lock().unwrap().push((fault, at, now()));
    }

    /// What happens when the release comes by.
    fn lie_in_wait(self: &Arc<Self>) {
        let faults = self.trial.faults.iter().enumerate().filter(|(_, (at, _))| *at == Phase::AtRelease);
        for (place, (_, fault)) in faults {
            for site in self.nodes(place) {
                let (stage, at, fault) = (Arc::clone(self), Arc::clone(site), *fault);
                let is_first = Arc::ptr_eq(site, self.nodes(place)[0]);
                site.wire.lock().unwrap().at_release.push(Box::new(move || match fault {
                    Fault::ForceUnlock if is_first => stage.force(fault),
                    Fault::ForceUnlock => {}
                    _ => stage.hit(fault, &at),
                }));
            }
        }
    }

    /// Whether each server answered a release of this owner since then.
    fn is_answered(&self, owners: &Owners, since: Micros) -> bool {
        // At a new master other sweeps may come before the attempt that tells, which is made each second.
        let before = now() - if self.ground.is_some() { 1_200_000 } else { 0 };
        let is_answer = |sent: &Sent, owner: &str| {
            let is_one = matches!(sent.reply, Reply::At(_) | Reply::Perhaps);
            (since..before).contains(&sent.at) && sent.is_of(owner) && is_one
        };
        self.sites.iter().all(|site| {
            let wire = site.wire.lock().unwrap();
            owners.iter().all(|(_, owner)| wire.sent.iter().any(|sent| is_answer(sent, owner)))
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

type Count = Box<dyn Fn() -> u64 + Send + Sync>;

/// The locks of one client.
enum Locks {
    One(Box<dyn RedLock>),
    Group(ReentrantLock),
    Leased(LeasedSemaphore),
}

const NAME: &str = "n";
const SECOND: &str = "m";

/// A call that lasts for so long hangs.
const HANG: Micros = 20_000_000;

impl Locks {
    /// And how many losses the client has counted.
    fn of(
        trial: &Trial,
        urls: &[String],
        ground: Option<&Arc<Ground>>,
        is_rival: bool,
        called: &Arc<AtomicUsize>,
    ) -> (Self, Count) {
        let called = Arc::clone(called);
        let count = move |_| _ = called.fetch_add(1, SeqCst);
        let (watched, _) = trial.leases();
        if trial.kind == Kind::Quorum {
            let builder = QuorumLock::builder(urls).node_timeout(trial.response()).outage_budget(trial.budget());
            let builder =
                builder.connect_timeout(RESPONSE).watchdog_timeout(watched).poll_cap(ms(1_000)).on_lost(count);
            let locks = builder.build().expect("the servers run");
            let counts = locks.clone();
            return (Self::One(Box::new(locks)), Box::new(move || counts.stats().lost));
        }
        let builder = ground.map_or_else(|| Client::builder(&urls[0]), |ground| ground.builder(is_rival));
        let builder = builder.response_timeout(trial.response()).outage_budget(trial.budget());
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
type Owners = [(String, String)];

/// What one turn is like.
struct Turn<'a> {
    trial: &'a Trial,
    way: Way,
    wait: Duration,
    work: u64,
    /// Whether servers have said what became of a release since then.
    is_answered: &'a dyn Fn(&Owners, Micros) -> bool,
}

/// Takes and gives back the lock once, and says what became of that.
fn account(locks: &Locks, turn: &Turn<'_>, at: &mut dyn FnMut(Phase)) -> Account {
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
        Ok(false) => Err(Error::unavailable(NAME, "the wait ended")),
        Err(error) => Err(error),
    });
    at(Phase::AfterRelease);
    // What a call does not say is told in the background.
    if account.granted.is_some() {
        let may_be_told = matches!(turn.way, Way::Drop | Way::Panic | Way::Closure)
            || account.result.as_ref().is_some_and(Result::is_err);
        let is_told_later = may_be_told && !account.was_told_by_result();
        let until = now() + if is_told_later { NEWS } else { 0 };
        loop {
            let is_last = now() > until || (turn.is_answered)(&account.owners, account.ending);
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

/// Closes servers also if a trial panics.
struct Close(Vec<Arc<Site>>);

impl Drop for Close {
    fn drop(&mut self) {
        self.0.iter().for_each(|site| site.close());
    }
}

/// Plays a trial on servers of its own.
pub(crate) fn play(trial: &Trial) -> Played {
    let count = if trial.kind == Kind::Quorum { 3 } else { 1 };
    let ground = Ground::open(trial, if trial.kind == Kind::Group { &[NAME, SECOND] } else { &[NAME] });
    let alone = || (0..count).map(|_| Arc::new(Site::open(trial.seed % 2 == 1))).collect();
    let sites: Vec<_> = ground.as_ref().map_or_else(alone, |ground| ground.sites.clone());
    let close = Close(sites.clone());
    let leases = (trial.kind == Kind::Leased).then(|| format!("{{{NAME}}}:timeout"));
    let mut targets = vec![Target { key: NAME.to_owned(), leases, permits: trial.permits() }];
    if trial.kind == Kind::Group {
        targets.push(Target { key: SECOND.to_owned(), leases: None, permits: 0 });
    }
    let (called, ignored) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let [urls, others]: [Vec<_>; 2] =
        [0, 1].map(|client| sites.iter().map(|site| site.urls()[client].clone()).collect());
    let is_forced = trial.faults.iter().any(|(_, fault)| *fault == Fault::ForceUnlock);
    let forcer = is_forced.then(|| Locks::of(trial, &others, ground.as_ref(), true, &ignored).0);
    let stage = Arc::new(Stage { trial: trial.clone(), sites, ground, targets, hits: Mutex::default(), forcer });
    let ground = stage.ground.as_ref();
    let (holder, counted) = Locks::of(trial, &urls, ground, false, &called);
    let rival = (trial.has_rival || trial.is_contended).then(|| Locks::of(trial, &others, ground, true, &ignored).0);
    if let Locks::Leased(semaphore) = &holder {
        while semaphore.set_permits(NAME, trial.permits() as u32).is_err() {}
    }
    // Scripts are known, connections are made.
    // A short lease could be lost, which would be told.
    let calm = Trial { lease: 30_000, ..trial.clone() };
    let warm = |locks: &Locks| while locks.turn(Way::Unlock, LONG, &calm, &mut |_| ()).is_err() {};
    warm(&holder);
    rival.iter().for_each(warm);

    let (mut told, mut of_first) = (Vec::new(), None);
    thread::scope(|scope| {
        let rival = rival.as_ref();
        let before = trial.is_contended.then(|| {
            let (done, wait) = std::sync::mpsc::channel();
            let rival = rival.expect("it is there");
            let first = scope.spawn(move || {
                let turn = Turn { trial, way: Way::Unlock, wait: LONG, work: 120, is_answered: &|_, _| true };
                account(rival, &turn, &mut |phase| {
                    if phase == Phase::Granted {
                        let _ = done.send(());
                    }
                })
            });
            let _ = wait.recv_timeout(LONG);
            first
        });
        stage.reach(Phase::BeforeAsk);
        let waits = trial.faults.iter().any(|(phase, _)| *phase == Phase::Waiting).then(|| {
            let stage = Arc::clone(&stage);
            scope.spawn(move || {
                sleep(ms(60));
                stage.reach(Phase::Waiting);
            })
        });
        let (mine, of_holder) = (Arc::clone(&stage), &holder);
        let holder = scope.spawn(move || {
            let mut at = |phase: Phase| {
                if phase == Phase::BeforeRelease {
                    mine.lie_in_wait();
                }
                mine.reach(phase);
            };
            let is_answered = |owners: &[_], since: Micros| mine.is_answered(owners, since);
            let way = trial.way;
            let turn = Turn { trial, way, wait: Duration::MAX, work: trial.work, is_answered: &is_answered };
            account(of_holder, &turn, &mut at)
        });
        let second = trial.has_rival.then(|| {
            scope.spawn(move || {
                sleep(ms(20));
                let wait = ms(12_000);
                let turn = Turn { trial, way: Way::Unlock, wait, work: 5, is_answered: &|_, _| true };
                account(rival.expect("it is there"), &turn, &mut |_| ())
            })
        });
        let since = now();
        let all = || {
            let are_over = [&before, &second].map(|call| call.as_ref().is_none_or(|call| call.is_finished()));
            holder.is_finished() && are_over == [true; 2]
        };
        while !all() {
            if now() > since + HANG {
                // No scope can end before its calls do. The reaper ends the servers.
                println!("error: a call hangs: {trial}");
                std::process::exit(1);
            }
            sleep(ms(5));
        }
        let _ = waits.map(thread::ScopedJoinHandle::join);
        told.push(holder.join().expect("no call panics"));
        told.extend(second.map(|second| second.join().expect("no call panics")));
        of_first = before.map(|first| first.join().expect("no call panics"));
    });
    let mut told = told.into_iter();
    let mut account = told.next().expect("it was played");
    // The callback has a thread of its own.
    let until = now() + NEWS;
    loop {
        (account.counted, account.called) = (counted() as usize, called.load(SeqCst));
        if account.counted == account.called || now() > until {
            break;
        }
        sleep(ms(5));
    }
    ground.iter().for_each(|ground| ground.calm(trial));
    drop((holder, rival, counted));
    stage.sites.iter().for_each(|site| site.settle());
    let mut left: Vec<String>;
    // Somebody took it for 3 s, or the lease ends by itself.
    let is_taken = trial.faults.iter().any(|(_, fault)| *fault == Fault::Take);
    let until = now() + if is_taken { 3_000 } else { trial.lease.min(3_000) } * 1_000 + 2_000_000;
    loop {
        let keys = |site: &Arc<Site>| site.server.lock().unwrap().leftovers();
        left = ground.map_or_else(|| stage.sites.iter().flat_map(keys).collect(), |ground| ground.left(trial));
        left.retain(|key| !key.contains("stranger"));
        left.retain(|key| key != NAME || trial.kind != Kind::Leased);
        // What Redisson leaves of leases, too: whoever looks at the semaphore next takes it away.
        left.retain(|key| !key.ends_with(":timeout"));
        // The keys of a lease of 30 s stay for so long.
        if left.is_empty() || now() > until || trial.lease > 3_000 {
            break;
        }
        sleep(ms(50));
    }
    let alone = || stage.sites.iter().all(|site| site.has_all_permits(&stage.targets[0]));
    let has_all_permits = ground.map_or_else(alone, |ground| ground.has_all_permits());
    ground.iter().for_each(|ground| ground.close());
    let ground = ground.cloned();
    let (sites, hits) = (stage.sites.clone(), stage.hits.lock().unwrap().clone());
    drop(close);
    Played { sites, ground, holder: account, first: of_first, rival: told.next(), hits, left, has_all_permits }
}
