//! The threads that ask nodes of the cluster for its slots: when a call finds something wrong, and every second.
//!
//! One thread decides, and each node is asked by a short-lived one: a node that is frozen keeps nobody from asking the next.

use super::routes::Routes;
use super::said::{ANSWERS, Said, question};
use super::subscribers::Subscribers;
use crate::base::say::say;
use crate::base::threads::spawn;
use crate::store::host_port::HostPort;
use crate::store::link::Link;
use crate::store::node::{Bell, Broken, Failure, Purpose, Server, Target};
use crossbeam_channel::{Receiver, Sender, unbounded};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use redis::{RedisError, Value};
use std::collections::HashSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// Slots are asked for this often while the client is in use: nobody tells of a master that was replaced, and a hold is believed
/// until its next renewal. On a connection that is kept, of one node for as long as that serves and nothing goes wrong.
const EVERY: Duration = Duration::from_secs(1);

/// However many calls fail, one node is asked this often.
const URGED_EVERY: Duration = Duration::from_millis(100);

/// The next node is asked when one has not answered for so long.
const HEDGE: Duration = Duration::from_millis(100);

/// So many nodes are asked before it is said that nobody answers.
const ASKED: usize = 16;

pub(super) struct Scouts {
    routes: Arc<Routes>,
    subscribers: Arc<Subscribers>,
    alarm: Arc<Alarm>,
    state: Mutex<State>,
    /// A node keeps something to itself, and that was said.
    refused: AtomicBool,
    /// What became of asking one, whichever round it was asked in.
    tell: Sender<Result<Serves, Failure>>,
    told: Receiver<Result<Serves, Failure>>,
}

/// Wakes the thread that decides.
#[derive(Default)]
pub(super) struct Alarm {
    /// Made with the thread.
    bell: OnceCell<Bell>,
    /// A subscriber has lost its node since the thread last looked.
    is_node_lost: AtomicBool,
}

impl Alarm {
    /// A subscriber has lost its node, which may be no master any more.
    pub(super) fn node_lost(&self) {
        self.is_node_lost.store(true, SeqCst);
        self.ring();
    }

    fn ring(&self) {
        self.bell.get().into_iter().for_each(Bell::ring);
    }
}

/// Whether the node that answered serves slots.
struct Serves(bool);

#[derive(Default)]
struct State {
    running: bool,
    /// The nodes that have not answered yet. They are not asked again until they do.
    asked: HashSet<HostPort>,
    /// Where the next round begins. It changes, because a node that is cut off from the others names old masters.
    turn: usize,
    /// To the node that answered last.
    kept: Option<(HostPort, Link)>,
}

impl Scouts {
    pub(super) fn new(routes: Arc<Routes>, subscribers: Arc<Subscribers>, alarm: Arc<Alarm>) -> Arc<Self> {
        let (tell, told) = unbounded();
        let (state, refused) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { routes, subscribers, alarm, state, refused, tell, told })
    }

    /// Something went wrong, or nothing is known: some slots may have other masters.
    pub(super) fn urge(self: &Arc<Self>) {
        if let Err(error) = self.start() {
            self.routes.note_unknown(Failure::Unreached(Broken::new(format!("no thread: {error}"))));
        }
        self.ring();
    }

    pub(super) fn ring(&self) {
        self.alarm.ring();
    }

    fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.running && !self.routes.is_closed() {
            self.alarm.bell.get_or_try_init(Bell::new)?;
            let scouts = Arc::clone(self);
            spawn("redlatch-cluster", move || scouts.run())?;
            state.running = true;
        }
        Ok(())
    }

    fn run(self: &Arc<Self>) {
        let Some(bell) = self.alarm.bell.get() else { return };
        while !self.routes.is_closed() {
            let is_well = self.round();
            self.subscribers.settle(&self.routes, self.alarm.is_node_lost.swap(false, SeqCst));
            let began = self.routes.clock.now();
            self.rest(bell, if is_well { EVERY } else { URGED_EVERY });
            // What rings meanwhile is heard after the pause.
            std::thread::sleep(URGED_EVERY.saturating_sub(self.routes.clock.now().since(began)));
        }
    }

    /// Until it is time, or something is wrong: then another node than before is asked. A client that is
    /// not in use sleeps until it is, another one for no longer than `most`.
    fn rest(&self, bell: &Bell, most: Duration) {
        let began = self.routes.clock.now();
        if self.routes.rests() {
            self.state.lock().kept = None;
            bell.sleep(Duration::MAX);
        } else {
            bell.sleep(most);
        }
        if self.routes.clock.now().since(began) < EVERY {
            self.turn();
        }
    }

    fn turn(&self) {
        let mut state = self.state.lock();
        state.turn = state.turn.wrapping_add(1);
    }

    /// Asks one node after the other until one answers that serves slots; whether one did.
    ///
    /// Between a master's failure and its replacement all say that their cluster is down. They are asked again after [`URGED_EVERY`], and
    /// no answer of the failed one is waited for: it may be frozen, and go on as the master soon after another is one.
    fn round(self: &Arc<Self>) -> bool {
        self.told.try_iter().for_each(drop);
        let (mut failure, mut is_down) = (None, false);
        for address in self.candidates() {
            if let Err(error) = self.send(&address) {
                failure = Some(Failure::Unreached(Broken::new(format!("no thread: {error}"))));
                break;
            }
            match self.told.recv_timeout(HEDGE) {
                Ok(Ok(Serves(true))) => return true,
                Ok(Ok(Serves(false))) => {
                    is_down = true;
                    self.turn();
                }
                Ok(Err(refused)) => failure = Some(refused),
                Err(_) => {}
            }
        }
        if !is_down {
            self.wait_for(failure);
        }
        false
    }

    /// All were asked: the first that answers is enough. One that is frozen keeps the others from being asked again for no
    /// longer than [`EVERY`], and nobody has failed to say anything before it has.
    fn wait_for(&self, mut failure: Option<Failure>) {
        let until = self.routes.clock.now().plus(EVERY);
        loop {
            let is_asking = !self.state.lock().asked.is_empty();
            let patience = if is_asking { until.since(self.routes.clock.now()) } else { Duration::ZERO };
            match self.told.recv_timeout(patience) {
                Ok(Ok(_)) => return,
                Ok(Err(refused)) => failure = Some(refused),
                Err(_) if is_asking => return,
                Err(_) => break,
            }
        }
        failure.into_iter().for_each(|failure| self.routes.note_unknown(failure));
    }

    fn candidates(&self) -> Vec<HostPort> {
        let addresses = self.routes.addresses();
        let state = self.state.lock();
        let from = state.turn % addresses.len().max(1);
        let all = addresses.iter().cycle().skip(from).take(addresses.len());
        all.filter(|address| !state.asked.contains(address)).take(ASKED).cloned().collect()
    }

    fn send(self: &Arc<Self>, address: &HostPort) -> io::Result<()> {
        self.state.lock().asked.insert(address.clone());
        let (scouts, asked) = (Arc::clone(self), address.clone());
        let sent = spawn("redlatch-cluster", move || {
            let ask = AssertUnwindSafe(|| scouts.ask(&asked).map(|said| scouts.note(said)));
            let noted = catch_unwind(ask).unwrap_or_else(|_| panicked(&asked));
            // Under the lock: when nobody is asked any more, all has been told.
            let mut state = scouts.state.lock();
            state.asked.remove(&asked);
            let _ = scouts.tell.send(noted);
        });
        if sent.is_err() {
            self.state.lock().asked.remove(address);
        }
        sent
    }

    fn note(&self, said: Said) -> Serves {
        let serves = Serves(!said.is_down);
        self.routes.note(said);
        serves
    }

    fn ask(&self, address: &HostPort) -> Result<Said, Failure> {
        let (seeds, common) = (&self.routes.seeds, &self.routes.common);
        let target = Target { addr: address.addr(), login: seeds.login.clone(), purpose: Purpose::Candidate };
        let server = Server::new(target, &common.config, Arc::clone(&common.counters));
        let exchange = self.exchange(address, &server).inspect(|answers| self.say_refused(&server, answers));
        let said = exchange.and_then(|answers| Said::of(answers, address, &common.config.address_map));
        said.map_err(|error| {
            let failure = server.unsent(&error);
            say!(debug, "{address} does not say who has which slots: {failure:?}");
            failure
        })
    }

    /// Logs a command that the user lacks. Without epochs, or without knowing which node is cut off, a client goes by the latest answer. A
    /// proxy has neither, so its errors are not logged.
    fn say_refused(&self, server: &Server, answers: &[Value]) {
        let error = answers.iter().skip(1).find_map(|answer| match answer {
            Value::ServerError(error) if error.code() == "NOPERM" => Some(RedisError::from(error.clone())),
            _ => None,
        });
        if let Some(error) = error.filter(|_| !self.refused.swap(true, Relaxed)) {
            let (address, advice) = (server.address(), server.advice_on(&error));
            say!(
                warn,
                "{address} does not tell all of the cluster, so an old master may be asked for longer: {error}{advice}"
            );
        }
    }

    /// On the connection that is kept, if it is to this node; or else on a new one, which is kept in its place.
    fn exchange(&self, address: &HostPort, server: &Server) -> Result<Vec<Value>, RedisError> {
        let kept = self.state.lock().kept.take_if(|(at, _)| at == address);
        let ask = |mut link: Link| link.exchange(&question(), ANSWERS).map(|answers| (answers, link));
        let known = kept.and_then(|(_, link)| ask(link).ok());
        let (answers, link) = known.map_or_else(|| Link::open(server).and_then(ask), Ok)?;
        self.state.lock().kept = Some((address.clone(), link));
        Ok(answers)
    }
}

/// The program's map of addresses may.
fn panicked<T>(asked: &HostPort) -> Result<T, Failure> {
    say!(error, "a thread that asks {asked} for the slots of the cluster panicked, it is asked again");
    Err(Failure::Unreached(Broken::new(format!("{asked}: asking for slots panicked, maybe in map_address"))))
}
