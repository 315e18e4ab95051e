//! One trial: what it consists of, and how it is played.

use crate::apart::{Apart, HOLDER, Reach, WAITER};
use crate::faults::{Fault, Phase, one_of};
use crate::ground::{Deployment, Ground};
use crate::party::{Account, Locks, NAME, Owners, SECOND, Turn, account, prepare};
use crate::site::{Reply, Sent, Site, Target, ms};
use crate::truth::{Micros, now};
use fastrand::Rng;
use harness::threads::LONG;
use redlatch::RedLock;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

const BUDGET: Duration = Duration::from_millis(1_500);
pub(crate) const RESPONSE: Duration = Duration::from_millis(250);

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
    pub(crate) fn leases(&self) -> (Duration, Option<(Duration, bool)>) {
        let (lease, usual) = (ms(self.lease), ms(30_000));
        match self.lease {
            ..SHORT => (usual, Some((lease, true))),
            SHORT..FIXED => (usual, Some((lease, false))),
            // A client may wait for an answer for half of its usual lease.
            _ if self.is_slow => (usual, Some((lease, true))),
            _ => (lease, None),
        }
    }

    /// Whether it has a second lock.
    pub(crate) fn is_of_two(&self) -> bool {
        self.kind == Kind::Group
    }

    /// Whether this client has a process of its own.
    fn is_apart(&self, party: &str) -> bool {
        self.faults.iter().any(|(_, fault)| fault.party() == Some(party))
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

/// What a trial was like.
pub(crate) struct Played {
    pub(crate) sites: Vec<Arc<Site>>,
    /// If they are not servers alone.
    pub(crate) ground: Option<Arc<Ground>>,
    pub(crate) holder: Account,
    /// Who had the lock when the holder asked.
    pub(crate) first: Option<Account>,
    pub(crate) rival: Option<Account>,
    pub(crate) waiter: Option<Account>,
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
    /// Those that have a process of their own.
    apart: [(&'static str, Option<Apart>); 2],
}

impl Stage {
    /// The faults of this phase.
    fn reach(self: &Arc<Self>, phase: Phase) {
        let faults = self.trial.faults.iter().enumerate().filter(|(_, (at, _))| *at == phase);
        for (place, (_, fault)) in faults {
            if self.is_by_client(*fault) {
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

    /// What one client does, or what happens to one.
    fn is_by_client(&self, fault: Fault) -> bool {
        let at = now();
        match (fault, fault.party()) {
            (Fault::ForceUnlock, _) => match self.forcer.as_ref().expect("it is there") {
                Locks::One(locks) => _ = locks.force_unlock(NAME),
                Locks::Group(locks) => _ = locks.force_unlock(NAME),
                Locks::Leased(semaphore) => _ = semaphore.force_release(NAME),
            },
            (_, Some(party)) => {
                let apart = self.apart(party).expect("it is there");
                match fault {
                    Fault::KillHolder | Fault::KillWaiter => apart.kill(),
                    _ => apart.stop(Duration::from_micros(fault.lasts())),
                }
            }
            _ => return false,
        }
        let lasts = if fault == Fault::ForceUnlock { 0 } else { fault.lasts() };
        self.hits.lock().unwrap().push((fault, at, now() + lasts));
        true
    }

    fn apart(&self, party: &str) -> Option<&Apart> {
        self.apart.iter().find(|(name, _)| *name == party)?.1.as_ref()
    }

    /// What happens when the release comes by.
    fn lie_in_wait(self: &Arc<Self>) {
        let faults = self.trial.faults.iter().enumerate().filter(|(_, (at, _))| *at == Phase::AtRelease);
        for (place, (_, fault)) in faults {
            for site in self.nodes(place) {
                let (stage, at, fault) = (Arc::clone(self), Arc::clone(site), *fault);
                let is_first = Arc::ptr_eq(site, self.nodes(place)[0]);
                let is_clients = fault == Fault::ForceUnlock || fault.party().is_some();
                site.wire.lock().unwrap().at_release.push(Box::new(move || match is_clients {
                    true if is_first => _ = stage.is_by_client(fault),
                    true => {}
                    false => stage.hit(fault, &at),
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

/// A call that lasts for so long hangs.
const HANG: Micros = 20_000_000;

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
    let ground = Ground::open(trial, if trial.is_of_two() { &[NAME, SECOND] } else { &[NAME] });
    let alone = || (0..count).map(|_| Arc::new(Site::open(trial.seed % 2 == 1))).collect();
    let sites: Vec<_> = ground.as_ref().map_or_else(alone, |ground| ground.sites.clone());
    let close = Close(sites.clone());
    let leases = (trial.kind == Kind::Leased).then(|| format!("{{{NAME}}}:timeout"));
    let mut targets = vec![Target { key: NAME.to_owned(), leases, permits: trial.permits() }];
    if trial.is_of_two() {
        targets.push(Target { key: SECOND.to_owned(), leases: None, permits: 0 });
    }
    let (called, ignored) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let reach = |client: usize| match &ground {
        Some(ground) => ground.reach(client == 1),
        None => {
            let urls = sites.iter().map(|site| site.urls()[client].clone()).collect();
            Reach { urls, ..Reach::default() }
        }
    };
    let [mine, others] = [0, 1].map(reach);
    let is_forced = trial.faults.iter().any(|(_, fault)| *fault == Fault::ForceUnlock);
    let forcer = is_forced.then(|| Locks::of(trial, &others, true, &ignored).0);
    let start = |party, reach| (party, trial.is_apart(party).then(|| Apart::start(party, trial, reach)));
    let apart = start(HOLDER, &mine);
    let holder = apart.1.is_none().then(|| Locks::of(trial, &mine, false, &called));
    holder.iter().for_each(|(holder, _)| drop(prepare(holder, trial, true)));
    let apart = [apart, start(WAITER, &others)];
    let rival = (trial.has_rival || trial.is_contended).then(|| Locks::of(trial, &others, true, &ignored).0);
    let stage = Arc::new(Stage { trial: trial.clone(), sites, ground, targets, hits: Mutex::default(), forcer, apart });
    let ground = stage.ground.as_ref();
    rival.iter().for_each(|rival| drop(prepare(rival, trial, false)));

    let (mut of_holder, mut of_first, mut of_rival, mut of_waiter) = (None, None, None, None);
    thread::scope(|scope| {
        let rival = rival.as_ref();
        let before = trial.is_contended.then(|| {
            let (done, wait) = std::sync::mpsc::channel();
            let rival = rival.expect("it is there");
            let first = scope.spawn(move || {
                let turn = Turn::before(trial);
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
        let (mine, locks) = (Arc::clone(&stage), &holder);
        let holder = scope.spawn(move || {
            let mut at = |phase: Phase| {
                if phase == Phase::BeforeRelease {
                    mine.lie_in_wait();
                }
                mine.reach(phase);
            };
            let is_answered = |owners: &[_], since: Micros| mine.is_answered(owners, since);
            match locks {
                Some((locks, _)) => account(locks, &Turn::of_holder(trial, &is_answered), &mut at),
                None => mine.apart(HOLDER).expect("it is there").account(trial, &mut at, &is_answered),
            }
        });
        let stage = &stage;
        let waiter = stage.apart(WAITER).map(|waiter| {
            scope.spawn(move || {
                sleep(ms(10));
                waiter.account(trial, &mut |_| (), &|_, _| true)
            })
        });
        let second = trial.has_rival.then(|| {
            scope.spawn(move || {
                sleep(ms(20));
                account(rival.expect("it is there"), &Turn::behind(trial), &mut |_| ())
            })
        });
        let since = now();
        let all = || {
            let others = [&before, &second, &waiter];
            holder.is_finished() && others.iter().all(|call| call.as_ref().is_none_or(|call| call.is_finished()))
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
        let account =
            |call: Option<thread::ScopedJoinHandle<'_, Account>>| call.map(|call| call.join().expect("no call panics"));
        (of_holder, of_first) = (account(Some(holder)), account(before));
        (of_rival, of_waiter) = (account(second), account(waiter));
    });
    let mut account = of_holder.expect("it was played");
    holder.iter().for_each(|(_, counted)| account.count(counted, &called));
    ground.iter().for_each(|ground| ground.calm(trial));
    drop((holder, rival));
    stage.apart.iter().for_each(|(_, apart)| apart.iter().for_each(Apart::end));
    stage.sites.iter().for_each(|site| site.settle());
    let mut left: Vec<String>;
    let has = |faults: &[Fault]| trial.faults.iter().any(|(_, fault)| faults.contains(fault));
    let (is_killed, is_taken) = (has(&[Fault::KillHolder, Fault::KillWaiter]), has(&[Fault::Take]));
    // An attempt to free it may wait for an answer that does not come, until its client knows of a new master.
    let calm = stage.hits.lock().unwrap().iter().map(|(.., to)| *to).max().unwrap_or(0).max(now());
    // Somebody took it for 3 s, or the lease ends by itself.
    let lasts = if is_taken { 3_000 } else { trial.lease.min(3_000) } * 1_000;
    let until = calm + lasts + trial.response().as_micros() as Micros + 2_000_000;
    loop {
        let keys = |site: &Arc<Site>| site.server.lock().unwrap().leftovers();
        left = ground.map_or_else(|| stage.sites.iter().flat_map(keys).collect(), |ground| ground.left(trial));
        left.retain(|key| !key.contains("stranger"));
        left.retain(|key| key != NAME || trial.kind != Kind::Leased);
        // What Redisson leaves of leases, too: whoever looks at the semaphore next takes it away.
        left.retain(|key| !key.ends_with(":timeout"));
        // A place that may not be taken out, among those that wait for permits, counts for three poll caps (row 144).
        left.retain(|key| !has(&[Fault::NoRight]) || !key.contains("redlatch_places"));
        // Nobody takes out the place of a wait that was killed. Of a quorum a release before may not have come to all nodes.
        left.retain(|key| !is_killed || (key == NAME || key == SECOND) && trial.kind != Kind::Quorum);
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
    let (mut holder, first, rival, mut waiter) = (account, of_first, of_rival, of_waiter);
    holder.stops_by = Some(Fault::StopHolder);
    waiter.iter_mut().for_each(|waiter| waiter.stops_by = Some(Fault::StopWaiter));
    Played { sites, ground, holder, first, rival, waiter, hits, left, has_all_permits }
}
