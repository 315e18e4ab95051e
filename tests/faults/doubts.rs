//! Row 155: locks are lost and connections are cut, or answers are lost, just before the work ends; by every way in which it ends, for each
//! kind of lock and each deployment.
//!
//! `REDLATCH_ROUNDS=20` plays each scene so often.

use crate::MINUTE;
use crate::proxy::{Address, Flow, Proxy, Step, pass};
use crate::server::Server;
use crate::threads::{LONG, eventually, ms};
use harness::cluster::{self, Cluster};
use harness::quorum;
use harness::sentinel::Member;
use harness::sentinel::{self, Group};
use redlatch::{
    Client, ClientBuilder, Error, FairLock, FencedLock, Hold, LeasedSemaphore, LostHold, LostReceiver, MultiLock,
    Permits, QuorumLock, ReadWriteLock, RedLock, RedLockExt, ReentrantLock, Result, Stats, Terms,
};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// How often a scene is played.
pub(crate) fn rounds(usual: usize) -> usize {
    std::env::var("REDLATCH_ROUNDS").map_or(usual, |rounds| rounds.parse().unwrap())
}

/// How work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Unlock,
    Guard,
    Drop,
    Closure,
    Panic,
}

impl Way {
    pub(crate) const ALL: [Self; 5] = [Self::Unlock, Self::Guard, Self::Drop, Self::Closure, Self::Panic];

    /// Whether a call says how it went.
    pub(crate) fn has_result(self) -> bool {
        !matches!(self, Self::Drop | Self::Panic)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Fair,
    Fenced,
    Read,
    Write,
    Leased,
    Group,
    Quorum,
}

impl Kind {
    pub(crate) const OF_CLIENTS: [Self; 7] =
        [Self::Plain, Self::Fair, Self::Fenced, Self::Read, Self::Write, Self::Leased, Self::Group];
}

/// Locks of a client of their own.
enum Locks {
    One(Box<dyn RedLock>),
    Leased(LeasedSemaphore),
    Group(ReentrantLock),
}

/// A lock, a way in which work that it protects ends, and who is told of a loss.
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) way: Way,
    locks: Locks,
    stats: Box<dyn Fn() -> Stats>,
    names: Vec<String>,
    /// Renewed by the library.
    pub(crate) lease: Duration,
    called: Arc<AtomicUsize>,
}

fn panicking<T>(act: impl FnOnce() -> Result<Option<T>>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(act)).map_or(Ok(()), |done| done.map(drop))
}

impl Case {
    /// Of a server, a Sentinel group or a cluster.
    pub(crate) fn of(kind: Kind, way: Way, builder: ClientBuilder, names: Vec<String>) -> Self {
        let called = Arc::<AtomicUsize>::default();
        let client = builder.on_lost(count(&called)).build().unwrap();
        let locks = match kind {
            Kind::Plain => Locks::One(Box::new(ReentrantLock::new(&client))),
            Kind::Fair => Locks::One(Box::new(FairLock::new(&client))),
            Kind::Fenced => Locks::One(Box::new(FencedLock::new(&client))),
            Kind::Read => Locks::One(Box::new(ReadWriteLock::new(&client).read().clone())),
            Kind::Write => Locks::One(Box::new(ReadWriteLock::new(&client).write().clone())),
            Kind::Leased => Locks::Leased(LeasedSemaphore::new(&client)),
            Kind::Group => Locks::Group(ReentrantLock::new(&client)),
            Kind::Quorum => unreachable!("it has a builder of its own"),
        };
        Self { kind, way, locks, stats: Box::new(move || client.stats()), names, lease: MINUTE, called }
    }

    fn of_quorum(way: Way, builder: ClientBuilder<QuorumLock>, name: String) -> Self {
        let called = Arc::<AtomicUsize>::default();
        let locks = builder.on_lost(count(&called)).build().unwrap();
        let stats = locks.clone();
        let (names, locks) = (vec![name], Locks::One(Box::new(locks)));
        Self { kind: Kind::Quorum, way, locks, stats: Box::new(move || stats.stats()), names, lease: MINUTE, called }
    }

    /// Acquires, works and ends.
    pub(crate) fn turn(&self, way: Way, mut work: impl FnMut(&[Hold])) -> Result<()> {
        let (name, terms) = (self.names[0].as_str(), Terms::new().wait(LONG).renewed_lease(self.lease));
        match (&self.locks, way) {
            (Locks::One(locks), Way::Unlock) => {
                work(&[locks.acquire(name, &terms)?.unwrap()]);
                locks.unlock(name)
            }
            (Locks::One(locks), Way::Guard | Way::Drop) => {
                let guard = locks.request(name).wait(LONG).renewed_lease(self.lease).guard()?.unwrap();
                work(&[guard.hold().clone()]);
                if way == Way::Guard { guard.unlock() } else { Ok(()) }
            }
            (Locks::One(locks), Way::Closure) => locks
                .request(name)
                .wait(LONG)
                .renewed_lease(self.lease)
                .execute(|guard| work(&[guard.hold().clone()]))
                .map(drop),
            (Locks::One(locks), Way::Panic) => panicking(|| {
                locks.request(name).wait(LONG).renewed_lease(self.lease).execute(|guard| {
                    work(&[guard.hold().clone()]);
                    resume_unwind(Box::new(()))
                })
            }),
            (Locks::Leased(semaphore), _) => {
                let held = |permits: &Permits| [permits.hold().unwrap().clone()];
                let permits = semaphore.acquire(name, 1, &terms)?.unwrap();
                match way {
                    Way::Panic => panicking(|| -> Result<Option<()>> {
                        let permits = permits;
                        work(&held(&permits));
                        resume_unwind(Box::new(()))
                    }),
                    _ => {
                        work(&held(&permits));
                        if way == Way::Drop { Ok(()) } else { permits.release() }
                    }
                }
            }
            (Locks::Group(locks), _) => {
                let group = MultiLock::of(self.names.iter().map(|name| (locks, name.as_str())));
                match way {
                    Way::Unlock => {
                        work(group.acquire(&terms)?.unwrap().holds());
                        group.unlock()
                    }
                    Way::Guard | Way::Drop => {
                        let guard = group.request().wait(LONG).renewed_lease(self.lease).guard()?.unwrap();
                        work(guard.holds());
                        if way == Way::Guard { guard.unlock() } else { Ok(()) }
                    }
                    Way::Closure => group
                        .request()
                        .wait(LONG)
                        .renewed_lease(self.lease)
                        .execute(|guard| work(guard.holds()))
                        .map(drop),
                    Way::Panic => panicking(|| {
                        group.request().wait(LONG).renewed_lease(self.lease).execute(|guard| {
                            work(guard.holds());
                            resume_unwind(Box::new(()))
                        })
                    }),
                }
            }
        }
    }

    /// Permits for a semaphore, and scripts and a connection that are known.
    pub(crate) fn prepare(&self) {
        if let Locks::Leased(semaphore) = &self.locks {
            semaphore.set_permits(&self.names[0], 1).unwrap();
        }
        self.turn(Way::Unlock, |_| ()).unwrap();
    }

    /// By count and by callback.
    pub(crate) fn told(&self) -> (u64, usize) {
        ((self.stats)().lost, self.called.load(SeqCst))
    }
}

fn count(called: &Arc<AtomicUsize>) -> impl Fn(LostHold) + Send + Sync + 'static {
    let called = Arc::clone(called);
    move |_| _ = called.fetch_add(1, SeqCst)
}

/// How a turn ended, and the channels of its holds.
pub(crate) type Ended = (Result<()>, Vec<LostReceiver>);

/// Holds the locks of all cases, has `act` do something, and ends the work of all of them.
pub(crate) fn hold_all(cases: &[Case], act: &dyn Fn(), ended: &mut Vec<Ended>) {
    let Some((case, rest)) = cases.split_first() else { return act() };
    let mut channels = Vec::new();
    let result = case.turn(case.way, |holds| {
        channels = holds.iter().map(Hold::lost).collect();
        hold_all(rest, act, ended);
    });
    ended.push((result, channels));
}

/// What the work is lost by, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// An administrator deletes all and closes all connections.
    DeletedAndKilled,
    /// An administrator deletes all, and a proxy closes what is idle.
    DeletedAndCut,
    /// All servers are killed, and start empty.
    Restarted,
    /// The same, and then the connection is closed before the answer to the release.
    RestartedAndUnanswered,
    /// Each release is executed, and the connection is closed before its answer.
    Unanswered,
}

impl Fault {
    const ALL: [Self; 5] =
        [Self::DeletedAndKilled, Self::DeletedAndCut, Self::Restarted, Self::RestartedAndUnanswered, Self::Unanswered];

    fn loses(self) -> bool {
        self != Self::Unanswered
    }
}

/// A deployment behind proxies.
trait Site {
    fn ask_all(&self, words: &[&str]);
    fn restart(&mut self);
    fn proxies(&self) -> &[Proxy];
    fn cases(&self) -> Vec<Case>;
}

/// Cases of all kinds and ways; `names` gives the names of a case by its own.
pub(crate) fn of_all_kinds(
    builder: impl Fn() -> ClientBuilder,
    names: impl Fn(Kind, String) -> Vec<String>,
) -> Vec<Case> {
    let ways = |kind| Way::ALL.into_iter().map(move |way| (kind, way));
    let all = Kind::OF_CLIENTS.into_iter().flat_map(ways);
    let case = |(kind, way)| Case::of(kind, way, builder(), names(kind, format!("{kind:?}{way:?}")));
    all.map(case).collect()
}

pub(crate) fn pair_if_group(kind: Kind, name: String) -> Vec<String> {
    if kind == Kind::Group { vec![format!("{name}1"), format!("{name}2")] } else { vec![name] }
}

/// One server, or the nodes of a quorum. By TCP: one who writes to a closed Unix socket is told at once.
struct Servers(Vec<Server>, Vec<Proxy>);

impl Servers {
    fn start(count: usize) -> Self {
        let servers = quorum::start(count);
        let proxies = servers.iter().map(|server| Proxy::on_tcp(server.socket())).collect();
        Self(servers, proxies)
    }
}

impl Site for Servers {
    fn ask_all(&self, words: &[&str]) {
        self.0.iter().for_each(|server| drop(server.ask::<redis::Value>(words)));
    }

    fn restart(&mut self) {
        self.0.iter_mut().for_each(Server::kill);
        self.0.iter_mut().for_each(Server::restart);
    }

    fn proxies(&self) -> &[Proxy] {
        &self.1
    }

    fn cases(&self) -> Vec<Case> {
        if let [proxy] = &self.1[..] {
            return of_all_kinds(|| Client::builder(&proxy.url()), pair_if_group);
        }
        let case = |way| {
            let builder = QuorumLock::builder(self.1.iter().map(Proxy::url)).node_timeout(quorum::SLOW);
            Case::of_quorum(way, builder, format!("{way:?}"))
        };
        Way::ALL.map(case).into()
    }
}

/// What several nodes have in common.
macro_rules! site_of_nodes {
    ($site:ty, $names:expr) => {
        impl Site for $site {
            fn ask_all(&self, words: &[&str]) {
                let masters = self.0.nodes.iter().filter(|node| node.role() == "master");
                masters.for_each(|node| drop(node.ask::<redis::Value>(words)));
            }

            fn restart(&mut self) {
                let masters: Vec<_> = self.0.nodes.iter_mut().filter(|node| node.role() == "master").collect();
                for node in masters {
                    node.kill();
                    node.restart();
                }
            }

            fn proxies(&self) -> &[Proxy] {
                &self.1
            }

            fn cases(&self) -> Vec<Case> {
                let builder = || by_proxies(self.0.builder(), &self.0.nodes, &self.1);
                of_all_kinds(builder, |kind, name| $names(&self.0, kind, name))
            }
        }
    };
}

struct Masters(Group, Vec<Proxy>);
site_of_nodes!(Masters, |_: &Group, kind, name| pair_if_group(kind, name));

struct Slots(Cluster, Vec<Proxy>);
site_of_nodes!(Slots, |cluster: &Cluster, kind, name: String| match kind {
    // One lock at each of two nodes.
    Kind::Group =>
        [0, 1].map(|node| cluster.names_at(node, &name).next().map(|end| name.clone() + &end).unwrap()).into(),
    _ => vec![name],
});

/// A client that reaches each node by its proxy.
pub(crate) fn by_proxies(builder: ClientBuilder, nodes: &[Member], proxies: &[Proxy]) -> ClientBuilder {
    let ways: Vec<_> = nodes.iter().zip(proxies).map(|(node, proxy)| (node.port(), proxy.port())).collect();
    let way = move |port| ways.iter().find(|(own, _)| *own == port).map_or(port, |(_, proxy)| *proxy);
    builder.map_address(move |host, port| (host.to_owned(), way(port)))
}

/// A proxy in front of each node.
pub(crate) fn before(nodes: &[Member]) -> Vec<Proxy> {
    nodes.iter().map(|node| Proxy::on_tcp_before(Address::Port(node.port()))).collect()
}

/// Has each proxy close the connection on which the first release of each lock is answered: while work ends there are no other scripts.
/// Returns how often that was.
fn lose_answers(proxies: &[Proxy], cases: &[Case]) -> Arc<AtomicUsize> {
    let lost = Arc::<AtomicUsize>::default();
    for proxy in proxies {
        let lost = Arc::clone(&lost);
        let mut names: HashSet<String> = cases.iter().flat_map(|case| case.names.clone()).collect();
        let mut open = HashSet::new();
        proxy.set(move |connection, flow, data| {
            let text = String::from_utf8_lossy(data);
            if flow == Flow::Request && text.contains("EVAL") {
                let met: Vec<_> = names.iter().filter(|name| text.contains(*name)).cloned().collect();
                met.iter().for_each(|name| _ = names.remove(name));
                open.extend((!met.is_empty()).then_some(connection));
            } else if !text.starts_with("-NOSCRIPT") && open.remove(&connection) {
                lost.fetch_add(1, SeqCst);
                return vec![Step::Cut];
            }
            pass(data)
        });
    }
    lost
}

/// Each round of each fault: all hold, all lose it or not, and all end. A loss is told by the call, if there is one, and by callback,
/// channel and count; else nothing is told.
fn assert_told_of_losses(site: &mut impl Site) {
    for fault in Fault::ALL {
        let (mut told, mut of, mut lost_answers) = (0, 0, 0);
        for round in 0..rounds(1) {
            let cases = site.cases();
            cases.iter().for_each(Case::prepare);
            let answers = Cell::new(None);
            let (ended, shared) = (RefCell::new(Vec::new()), RefCell::new(&mut *site));
            hold_all(&cases, &|| play(fault, *shared.borrow_mut(), &cases, &answers), &mut ended.borrow_mut());
            site.proxies().iter().for_each(Proxy::clear);
            if !fault.loses() {
                // What the background finds in the end it would tell by then.
                std::thread::sleep(ms(100));
            }
            lost_answers += answers.take().map_or(0, |count: Arc<AtomicUsize>| count.load(SeqCst));
            for (case, (result, channels)) in cases.iter().zip(ended.into_inner().into_iter().rev()) {
                let what = format!("{fault:?}, {:?} by {:?}, round {round}: {result:?}", case.kind, case.way);
                let is_told = || case.told().0 >= 1 && case.told().1 >= 1;
                if fault.loses() {
                    let says = matches!(result, Err(Error::Lost { .. } | Error::Unprotected { .. }));
                    assert_eq!(says, case.way.has_result(), "{what}");
                    let mut channels = channels.iter();
                    assert!(channels.any(|channel| channel.recv_timeout(LONG).is_ok()), "no channel: {what}");
                    eventually(LONG, &what, is_told);
                } else {
                    assert!(result.is_ok() && case.told() == (0, 0), "{what}");
                    assert!(channels.iter().all(|channel| channel.try_recv().is_err()), "told by a channel: {what}");
                }
                (told, of) = (told + usize::from(is_told()), of + 1);
            }
        }
        println!("{fault:?}: {told} of {of} told, {lost_answers} answers lost");
        assert!(fault.loses() || lost_answers >= of, "answers were to be lost");
    }
}

fn play(fault: Fault, site: &mut impl Site, cases: &[Case], answers: &Cell<Option<Arc<AtomicUsize>>>) {
    match fault {
        Fault::DeletedAndKilled => {
            site.ask_all(&["FLUSHALL"]);
            // A proxy that has not heard of it yet would take a release, and nobody could tell that it was lost.
            let ends: Vec<_> = site.proxies().iter().map(Proxy::ends).collect();
            let kill = |kind| site.ask_all(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
            ["normal", "pubsub"].into_iter().for_each(kill);
            eventually(LONG, "the connections are closed", || ends.iter().all(|have_ended| have_ended()));
        }
        Fault::DeletedAndCut => {
            site.ask_all(&["FLUSHALL"]);
            site.proxies().iter().for_each(Proxy::cut);
        }
        Fault::Restarted => site.restart(),
        Fault::RestartedAndUnanswered => {
            site.restart();
            answers.set(Some(lose_answers(site.proxies(), cases)));
        }
        Fault::Unanswered => answers.set(Some(lose_answers(site.proxies(), cases))),
    }
}

#[test]
fn fault_155_a_loss_is_told_though_the_connection_is_cut() {
    assert_told_of_losses(&mut Servers::start(1));
}

#[test]
fn fault_155_a_loss_is_told_in_a_quorum_though_the_connections_are_cut() {
    assert_told_of_losses(&mut Servers::start(3));
}

#[test]
fn fault_155_a_loss_is_told_in_a_sentinel_group_though_the_connection_is_cut() {
    let group = Group::of(sentinel::Shape::STEADY);
    let proxies = before(&group.nodes);
    assert_told_of_losses(&mut Masters(group, proxies));
}

#[test]
fn fault_155_a_loss_is_told_in_a_cluster_though_the_connections_are_cut() {
    let cluster = Cluster::of(cluster::Shape::STEADY);
    let proxies = before(&cluster.nodes);
    assert_told_of_losses(&mut Slots(cluster, proxies));
}
