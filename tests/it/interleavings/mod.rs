//! Messages that cross each other: the orders that docs/protocol.md names, each forced by a proxy.
//!
//! A test holds a message, does what must come in between, and lets the message go.

mod acquires;
mod losses;
mod releases;

use crate::bytes::load_scripts;
use crate::proxy::{Flow, Gate, Proxy, Step, deliver, pass, runs};
use crate::server::Server;
use crate::threads::{LONG, elsewhere, eventually};
use redlatch::{Client, Hold, RedLock, ReentrantLock};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Renewed every second, so that a renewal can be held for long enough without being given up.
const WATCHED: Duration = Duration::from_secs(3);

const ANSWER: Duration = Duration::from_millis(1_500);

const MINUTE: Duration = Duration::from_secs(60);

/// How long something may take of which nothing tells that it was done.
const SETTLES: Duration = Duration::from_millis(50);

/// The locks of a client behind the proxy, whose server knows every script, and those of somebody else.
struct Scene {
    locks: ReentrantLock,
    other: ReentrantLock,
    proxy: Proxy,
    server: Server,
}

impl Scene {
    fn new() -> Self {
        Self::answering_in(ANSWER)
    }

    fn answering_in(answer: Duration) -> Self {
        Self::with(MINUTE, answer)
    }

    /// In this one the watchdog has something to do.
    fn renewing() -> Self {
        Self::with(WATCHED, ANSWER)
    }

    fn with(lease: Duration, answer: Duration) -> Self {
        let server = Server::start();
        let proxy = Proxy::new(server.socket());
        let builder = Client::builder(&proxy.url()).watchdog_timeout(lease).response_timeout(answer);
        let locks = ReentrantLock::new(&builder.build().unwrap());
        load_scripts(&locks, "warm");
        Self { locks, other: server.locks(), proxy, server }
    }

    /// Takes the lock and gives the hold.
    fn lock(&self) -> Hold {
        self.locks.lock("n").unwrap();
        self.locks.hold("n").unwrap()
    }

    /// Holds the first message of each kind from now on: a request that runs a script, or the reply to it.
    fn hold<const N: usize>(&self, kinds: [(&'static str, Flow); N]) -> [Message; N] {
        let messages = kinds.map(|_| Message::default());
        let mut watched = kinds.map(|(script, flow)| (runs(script), flow, None));
        let held = messages.clone();
        self.proxy.set(move |connection, flow, data| {
            let mut steps = Vec::new();
            for ((runs, kind, asked), message) in watched.iter_mut().zip(&held) {
                if asked.is_none() && runs(flow, data) {
                    *asked = Some(connection);
                }
                if *asked == Some(connection) && *kind == flow && !message.came.swap(true, SeqCst) {
                    steps.push(Step::Hold(message.gate.clone()));
                }
            }
            steps.push(Step::Send(data.to_vec()));
            steps
        });
        messages
    }

    /// Keeps the next so many requests that run a script: their connections are cut.
    fn cut_off(&self, script: &'static str, number: usize) -> Kept {
        self.keep(script, number, || vec![Step::Cut])
    }

    /// The same, but their connections say nothing more.
    fn swallow(&self, script: &'static str, number: usize) -> Kept {
        self.keep(script, number, Vec::new)
    }

    fn keep(&self, script: &'static str, number: usize, then: fn() -> Vec<Step>) -> Kept {
        let kept = Kept { requests: Arc::default(), server: self.server.socket() };
        let (runs, mut left, requests) = (runs(script), number, Arc::clone(&kept.requests));
        self.proxy.set(move |_, flow, data| {
            if left == 0 || !runs(flow, data) {
                return pass(data);
            }
            left -= 1;
            requests.lock().unwrap().push_back(data.to_vec());
            then()
        });
        kept
    }

    fn has_key(&self) -> bool {
        self.server.pttl("n") != -2
    }

    /// The key that nobody holds goes away long before its lease.
    #[track_caller]
    fn assert_swept(&self) {
        eventually(LONG, "what nobody holds is swept", || !self.has_key());
        assert!(elsewhere(|| self.other.try_lock("n").unwrap() && self.other.unlock("n").is_ok()));
    }

    /// This hold is believed in, and the server has it.
    #[track_caller]
    fn assert_has(&self, locks: &ReentrantLock, hold: &Hold) {
        assert!(hold.is_valid(), "{hold:?}");
        assert_eq!(self.server.owner("n").0, hold.owner());
        assert!(locks.verify(hold).unwrap());
    }
}

/// A message that the proxy holds until it is let go.
#[derive(Clone, Default)]
struct Message {
    came: Arc<AtomicBool>,
    gate: Gate,
}

impl Message {
    /// Waits until it is sent. A reply that came means that the request was executed.
    #[track_caller]
    fn comes(&self) {
        eventually(LONG, "the message comes", || self.came.load(SeqCst));
    }

    fn go(&self) {
        self.gate.open();
    }
}

/// Requests that the server did not get yet.
struct Kept {
    requests: Arc<Mutex<VecDeque<Vec<u8>>>>,
    server: PathBuf,
}

impl Kept {
    /// The next of them.
    fn next(&self) -> Vec<u8> {
        self.requests.lock().unwrap().pop_front().expect("a request was kept")
    }

    /// Has the server execute it now, on a connection of its own.
    fn execute(&self, request: &[u8]) -> String {
        deliver(&self.server, request).unwrap()
    }

    /// The same with the next of them.
    fn execute_next(&self) -> String {
        self.execute(&self.next())
    }
}

/// Gives a message the time to have its effect, if it had one.
fn settle() {
    std::thread::sleep(SETTLES);
}
