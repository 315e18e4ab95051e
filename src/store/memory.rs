//! A store in this process, for tests of programs: it has no server, and what scripts do there is written in Rust by the kind that has them.

use super::{Answers, Health, Store};
use crate::base::lives::Life;
use crate::base::signal::{Ear, Listening};
use crate::base::time::{Clock, Moment};
use crate::store::node::{Answer, Arg, Failure, Lane, Limits, Reply, Request, Verb};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A command as a kind sees it: the name of its script or of the command, its keys, and its arguments as texts.
pub(crate) struct Command<'a> {
    pub(crate) name: &'a str,
    pub(crate) key: &'a str,
    pub(crate) args: Vec<String>,
    pub(crate) now: Moment,
}

impl Command<'_> {
    /// An argument that is a number.
    pub(crate) fn number(&self, at: usize) -> i64 {
        self.args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(0)
    }
}

/// What a kind says to a command: the reply, and the message for those that listen to the key's channel.
pub(crate) type Said = (Reply, Option<String>);

/// What a kind's commands do to its data.
pub(crate) type Runs<D> = fn(&mut D, &Command<'_>) -> Said;

/// The data of one kind, and those that listen.
pub(crate) struct InMemory<D> {
    data: Mutex<D>,
    runs: Runs<D>,
    /// The channel of a key.
    channel_of: fn(&str) -> String,
    ears: Arc<Mutex<Vec<Listener>>>,
    next: AtomicU64,
}

struct Listener {
    number: u64,
    channel: String,
    ear: Arc<dyn Ear>,
}

impl<D: Default> InMemory<D> {
    pub(crate) fn new(runs: Runs<D>, channel_of: fn(&str) -> String) -> Self {
        Self { data: Mutex::default(), runs, channel_of, ears: Arc::default(), next: AtomicU64::new(0) }
    }
}

impl<D> InMemory<D> {
    fn run(&self, verb: Verb, key: &str, args: Vec<String>) -> Answer {
        let now = Clock::Boot.now();
        let name = match verb {
            Verb::Script(script) => script.name(),
            Verb::Command(name) => name,
            Verb::Words => "",
        };
        let (reply, message) = (self.runs)(&mut self.data.lock(), &Command { name, key, args, now });
        if let Some(message) = message {
            self.tell(&(self.channel_of)(key), message.as_bytes());
        }
        Answer { reply, sent: now, confirmed: None, on_its_way: false, life: Life::ONLY }
    }

    /// Outside of the lock: an ear wakes a thread, which may listen no more.
    fn tell(&self, channel: &str, message: &[u8]) {
        let listeners = self.ears.lock();
        let told: Vec<_> =
            listeners.iter().filter(|one| one.channel == channel).map(|one| Arc::clone(&one.ear)).collect();
        drop(listeners);
        told.iter().for_each(|ear| ear.hear(message));
    }
}

fn text(arg: &Arg<'_>) -> String {
    match arg {
        Arg::Text(text) | Arg::InSlot(text) => (*text).to_owned(),
        Arg::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Arg::Number(number) => number.to_string(),
        Arg::Parts(parts) | Arg::Beside(parts) => parts.concat(),
        // Nothing is late here, and there is no process but this one.
        Arg::Deadline | Arg::RunId => String::new(),
    }
}

impl<D> Health for InMemory<D>
where
    D: Send,
{
    fn address(&self) -> String {
        "memory".to_owned()
    }

    fn outage(&self) -> Option<Duration> {
        None
    }

    fn outage_ends(&self, _: &str, _: Moment) -> Moment {
        Moment::MAX
    }

    fn last_failure(&self, _: &str) -> Option<Failure> {
        None
    }
}

impl<D: Send> Store for InMemory<D> {
    fn identity(&self) -> Vec<String> {
        Vec::new()
    }

    fn attempt(&self, _: Lane, request: &Request<'_>, _: Limits<'_>) -> Result<Answer, Failure> {
        let args = request.args.iter().map(text).collect();
        Ok(self.run(request.verb, request.keys.first().unwrap_or(&""), args))
    }

    fn attempt_all(&self, _: Lane, request: &Request<'_>, shared: usize, _: Limits<'_>) -> Result<Answers, Failure> {
        let (of_all, own) = request.args.split_at(shared.min(request.args.len()));
        let each = own.len() / request.keys.len().max(1);
        let answers = request.keys.iter().enumerate().map(|(at, key)| {
            let args = of_all.iter().chain(&own[at * each..(at + 1) * each]).map(text).collect();
            Ok(self.run(request.verb, key, args))
        });
        Ok(answers.collect())
    }

    fn listen(&self, channel: &str, ear: Arc<dyn Ear>) -> io::Result<Box<dyn Listening>> {
        let number = self.next.fetch_add(1, Relaxed);
        self.ears.lock().push(Listener { number, channel: channel.to_owned(), ear });
        Ok(Box::new(Listens { number, ears: Arc::clone(&self.ears) }))
    }

    fn hears(&self, channel: &str) -> bool {
        self.ears.lock().iter().any(|one| one.channel == channel)
    }

    fn counts_listeners(&self, _: &str) -> bool {
        false
    }

    fn ping(&self, _: Moment) -> Result<Duration, Failure> {
        Ok(Duration::ZERO)
    }

    fn warm(&self, _: Lane) -> Result<(), Failure> {
        Ok(())
    }

    fn close(&self) {
        let left = std::mem::take(&mut *self.ears.lock());
        drop(left);
    }
}

/// A place among those that listen.
struct Listens {
    number: u64,
    ears: Arc<Mutex<Vec<Listener>>>,
}

impl Listening for Listens {
    fn is_confirmed(&self) -> bool {
        true
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        let mut ears = self.ears.lock();
        let gone = ears.iter().position(|one| one.number == self.number).map(|at| ears.swap_remove(at));
        drop(ears);
        drop(gone);
    }
}
