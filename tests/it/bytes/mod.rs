//! Connections that fail in the middle of a request or a reply, at each of its bytes.
//!
//! A run takes each eighth of the bytes; with `REDLATCH_SWEEP=all` it takes all of them, as `scripts/test --night` does.
//!
//! Whatever became of the bytes, the call has its effect once or is known to have failed, nobody believes in a
//! lock that is not theirs, the next call works, and no key is left.

mod calls;
mod fair;
mod random;
mod sample;
mod subscriptions;

use crate::proxy::{Flow, Proxy, Step, pass};
use crate::server::Server;
use crate::threads::{LONG, eventually, finish};
use redlatch::{Client, ClientBuilder, FairLock, Hold, RedLock, ReentrantLock};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// What becomes of a connection after so many bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is closed.
    Cut,
    /// It stays open, and nothing comes through any more.
    Held,
    /// It is reset, which takes TCP.
    Reset,
}

pub(crate) const FAULTS: [Fault; 3] = [Fault::Cut, Fault::Held, Fault::Reset];

/// How long a client waits for bytes that are held. The others wait for the default time: they never have to.
const PATIENCE: Duration = Duration::from_millis(150);

/// So many cases run at once: most of the time they wait.
const LANES: usize = 8;

/// Owner ids and leases may be longer in a later case than in the one that was measured.
const LONGER: usize = 4;

/// One way to fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) fault: Fault,
    pub(crate) flow: Flow,
    pub(crate) at: usize,
}

/// Finds the data in which a request is made, by the name of its lock.
pub(crate) type Finds = Box<dyn Fn(&[u8]) -> bool + Send>;

/// A kind of lock whose messages fail.
trait Locks: RedLock {
    fn new(client: &Client) -> Self;
    fn client(&self) -> &Client;
}

macro_rules! locks {
    ($($kind:ident)*) => {
        $(impl Locks for $kind {
            fn new(client: &Client) -> Self {
                Self::new(client)
            }

            fn client(&self) -> &Client {
                self.client()
            }
        })*
    };
}

locks!(ReentrantLock FairLock);

/// Lets the request that `find` finds fail, or the reply to it; `length` becomes that of the message.
pub(crate) fn fails(
    case: Case,
    length: Arc<OnceLock<usize>>,
    find: Finds,
) -> impl FnMut(usize, Flow, &[u8]) -> Vec<Step> + Send {
    let mut asked = None;
    move |connection, flow, data| {
        // Asked anew when the client gave up before the proxy saw an answer.
        if length.get().is_none() && flow == Flow::Request && find(data) {
            asked = Some(connection);
        }
        if asked != Some(connection) || flow != case.flow {
            return pass(data);
        }
        if length.set(data.len()).is_err() {
            return Vec::new();
        }
        let start = Step::Send(data[..case.at.min(data.len())].to_vec());
        match case.fault {
            Fault::Cut => vec![start, Step::Cut],
            Fault::Held => vec![start],
            Fault::Reset => vec![start, Step::Reset],
        }
    }
}

/// A lock whose holder is behind the proxy, and somebody else who is not.
struct Scene<'a, L> {
    server: &'a Server,
    proxy: &'a Proxy,
    locks: &'a L,
    direct: &'a L,
    name: String,
    case: Case,
    find: fn(&str) -> Finds,
    /// How long the message was in which it failed.
    length: Arc<OnceLock<usize>>,
}

impl<L: Locks> Scene<'_, L> {
    /// Lets the next such request fail, or the reply to it.
    fn arm(&self) {
        self.proxy.set(fails(self.case, Arc::clone(&self.length), (self.find)(&self.name)));
    }

    /// Whether the whole message came through.
    fn is_whole(&self) -> bool {
        self.length.get().is_some_and(|length| self.case.at >= *length)
    }

    /// That a call which has time for one answer got one, unless it cannot have come.
    fn assert_answered<T: std::fmt::Debug>(&self, result: &redlatch::Result<T>) {
        let (held, silent) = (self.case.fault == Fault::Held, !self.is_whole());
        match result {
            Ok(_) => assert!(!held || !silent, "{result:?} {:?}", self.case),
            // On a busy machine the whole message may come too late as well.
            Err(_) => assert!(held, "{result:?} {:?}", self.case),
        }
    }

    /// Whether the message was sent. One that waits for [`PATIENCE`] only may have had no time to connect.
    fn is_sent(&self) -> bool {
        self.length.get().is_some()
    }

    fn lock(&self) -> Hold {
        self.locks.lock(&self.name).unwrap();
        self.locks.hold(&self.name).unwrap()
    }

    fn unlock(&self) {
        self.locks.unlock(&self.name).unwrap();
    }

    /// The holder believes in its lock, and the server knows of it.
    fn assert_held(&self, count: i64) {
        self.assert_held_as(count, &[count]);
    }

    /// The same where the server may show another depth.
    fn assert_held_as(&self, count: i64, shown: &[i64]) {
        let hold = self.locks.hold(&self.name).unwrap();
        assert!(hold.is_valid(), "{hold:?} {:?}", self.case);
        let (owner, depth) = self.server.owner(&self.name);
        assert_eq!(owner, hold.owner().to_string(), "{:?}", self.case);
        assert!(shown.contains(&depth), "{depth} for {shown:?}: {:?}", self.case);
        assert_eq!(self.locks.hold_count(&self.name), count as usize, "{:?}", self.case);
        assert!(!self.direct.try_lock(&self.name).unwrap(), "{:?}", self.case);
    }

    fn assert_free(&self) {
        assert!(self.locks.hold(&self.name).is_none_or(|hold| !hold.is_valid()), "{:?}", self.case);
        assert!(self.direct.try_lock_for(&self.name, LONG).unwrap(), "{:?}", self.case);
        self.direct.unlock(&self.name).unwrap();
    }
}

/// A proxy and its client for each fault.
struct Lane<L> {
    seats: [(Fault, Proxy, L); 3],
    next: String,
}

impl<L: Locks> Lane<L> {
    fn new(server: &Server, number: usize, watched: Option<Duration>) -> Self {
        let seat = |fault| {
            let proxy = proxy_for(server, fault);
            let builder = builder(&proxy, fault);
            let builder = match watched {
                Some(lease) => builder.watchdog_timeout(lease).response_timeout(lease / 6),
                None => builder,
            };
            let locks = L::new(&builder.build().unwrap());
            load_scripts(&locks, &format!("warm{number}"));
            (fault, proxy, locks)
        };
        Self { seats: FAULTS.map(seat), next: format!("next{number}") }
    }
}

/// A proxy that can fail so.
fn proxy_for(server: &Server, fault: Fault) -> Proxy {
    if fault == Fault::Reset { Proxy::on_tcp(server.socket()) } else { Proxy::new(server.socket()) }
}

/// A proxy and a client behind it that meets this fault.
pub(crate) fn client_with(server: &Server, fault: Fault) -> (Proxy, Client) {
    let proxy = proxy_for(server, fault);
    let client = builder(&proxy, fault).build().unwrap();
    (proxy, client)
}

/// A client that meets this fault.
fn builder(proxy: &Proxy, fault: Fault) -> ClientBuilder {
    let builder = Client::builder(&proxy.url());
    if fault == Fault::Held { builder.response_timeout(PATIENCE) } else { builder }
}

/// What is run at every byte.
struct EveryByte {
    find: fn(&str) -> Finds,
    watched: Option<Duration>,
    lanes: usize,
}

impl EveryByte {
    /// Of the request that `find` finds by the lock's name, and of its reply.
    fn of(find: fn(&str) -> Finds) -> Self {
        Self { find, watched: None, lanes: LANES }
    }

    /// Lets `act` run once for each fault at each byte.
    fn run<L: Locks>(self, act: impl Fn(&Scene<'_, L>) + Sync) {
        let server = Server::start();
        let direct = L::new(&server.builder().build().unwrap());
        let lanes: Vec<_> = (0..self.lanes).map(|number| Lane::new(&server, number, self.watched)).collect();
        let one = |lane: &Lane<L>, case: Case| self.one(&server, &direct, lane, case, &act);
        let cases = cases(|flow| one(&lanes[0], Case { fault: Fault::Cut, flow, at: usize::MAX }));
        println!("{} cases", cases.len());
        let cases = Mutex::new(cases);
        let next = || cases.lock().unwrap().pop_front();
        let work = |lane| std::iter::from_fn(next).for_each(|case| _ = one(lane, case));
        std::thread::scope(|scope| {
            let working: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| work(lane))).collect();
            working.into_iter().for_each(finish);
        });
        assert_nothing_left(&server, lanes.iter().flat_map(|lane| &lane.seats).map(|(.., locks)| locks));
    }

    /// Runs one case, and the next call after it; gives the length of the message that failed.
    fn one<L: Locks>(
        &self,
        server: &Server,
        direct: &L,
        lane: &Lane<L>,
        case: Case,
        act: &impl Fn(&Scene<'_, L>),
    ) -> usize {
        let (_, proxy, locks) = lane.seats.iter().find(|(fault, ..)| *fault == case.fault).unwrap();
        let scene = |round: usize| {
            // A request of an earlier round may come to the proxy now: it is not of this name.
            let name = format!("{:?}{:?}{:05}{}", case.fault, case.flow, case.at.min(99_999), round % 10);
            Scene { server, proxy, locks, direct, name, case, find: self.find, length: Arc::default() }
        };
        let mut scenes = (0..).map(scene).inspect(act);
        let scene = scenes.find(|scene| scene.is_sent() || case.fault != Fault::Held).unwrap();
        proxy.clear();
        locks.lock(&lane.next).unwrap();
        locks.unlock(&lane.next).unwrap();
        *scene.length.get().expect("it failed")
    }
}

/// The bytes that this run takes of the messages whose lengths are measured, and always the first, the last and the end.
/// Replies come first: they are short.
pub(crate) fn cases(length: impl Fn(Flow) -> usize) -> VecDeque<Case> {
    let lengths = [Flow::Reply, Flow::Request].map(|flow| (flow, length(flow)));
    let mut sample = sample::of_this_run();
    let at_each = lengths.into_iter().flat_map(|(flow, length)| {
        let edges = [0, length - 1, length];
        (0..=length + LONGER).flat_map(move |at| FAULTS.map(|fault| (edges.contains(&at), Case { fault, flow, at })))
    });
    at_each.filter(|(edge, _)| sample() || *edge).map(|(_, case)| case).collect()
}

/// The server knows every script afterwards, so that requests have their hashes.
pub(crate) fn load_scripts(locks: &impl RedLock, name: &str) {
    locks.lock(name).unwrap();
    locks.lock(name).unwrap();
    locks.hold(name).unwrap().extend(Duration::from_secs(60)).unwrap();
    locks.unlock(name).unwrap();
    locks.unlock(name).unwrap();
    locks.force_unlock(name).unwrap();
}

fn assert_nothing_left<'a>(server: &Server, clients: impl Iterator<Item = &'a (impl Locks + 'a)>) {
    eventually(LONG, "no key is left", || server.ask::<Vec<String>>(&["KEYS", "*"]).is_empty());
    for locks in clients {
        let stats = locks.client().stats();
        assert_eq!((stats.holds, stats.waiters), (0, 0));
    }
}

/// Whether data names this lock, alone or inside of another name.
pub(crate) fn names(name: &str) -> impl Fn(&[u8]) -> bool + Send + use<> {
    let name = name.as_bytes().to_vec();
    move |data| data.windows(name.len()).any(|window| window == name)
}
