//! The subscriber: one thread and one connection for all waiters of a client.
//!
//! Only the thread writes and reads the connection: a TLS session cannot be shared, and a slow server must hold up no waiter.
//! A bell makes the thread look which channels are wanted. The thread never blocks on a listener: see [`Ear`].

use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::script::Dialect;
use crate::base::signal::Ear;
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use crate::store::node::{Backend, Bell};
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex};
use redis::RedisError;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

mod channel;
mod connection;

use channel::ChannelState;
use connection::{Connection, Told, is_elsewhere};

/// A quiet connection is pinged this often. Nothing else notices a half-open one.
const PING_EVERY: Duration = Duration::from_secs(3);

/// A refused channel is asked for again this often: the user may have got the permission meanwhile.
const ASK_AGAIN: Duration = PING_EVERY;

/// How long a channel stays subscribed without a waiter: the next one often comes soon.
const LINGER: Duration = Duration::from_secs(2);

/// The pause before connecting again, doubled with each failure up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// An unlock's message is one digit. After a message of more bytes than this the connection is dropped, and with it the memory of the
/// message, which has been read by then. The server's output limit for subscribers bounds it: 32 MB unless configured.
const LONGEST_PAYLOAD: usize = 64 * 1024;

/// The subscriber of a node, or of one node after the other if the master moves. Its thread starts with the first waiter.
pub(crate) struct PubSub {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    dialect: Dialect,
    /// Called if the connection breaks or cannot be made, and if the server says that a channel's slot is elsewhere.
    on_loss: Option<Box<dyn Fn() + Send + Sync>>,
    /// Made when the thread is started.
    bell: OnceCell<Bell>,
    state: Mutex<State>,
    /// The thread sleeps on it between two connections. A waiter, a move or the end wakes it.
    stirred: Condvar,
}

#[derive(Default)]
struct State {
    /// The node to subscribe at; `None`: not known yet.
    node: Option<Arc<Backend>>,
    channels: HashMap<String, ChannelState>,
    numbers: u64,
    running: bool,
    /// The bell was rung and the thread has not looked yet: one ring is enough for any number of waiters.
    rung: bool,
    /// The meanings of refusals that were logged and still last: one line in the log is enough for any number of channels.
    said: HashSet<&'static str>,
    closed: bool,
}

/// An ear's subscription to a channel, until it is dropped.
///
/// At each confirmation of the server, also after a reconnect, the ear is told that it may have missed something. So a waiter that looks
/// at the lock whenever its ear is told anything has looked after the confirmation.
pub(crate) struct Subscription {
    shared: Arc<Shared>,
    channel: String,
    ear: Arc<dyn Ear>,
    confirmed: Arc<AtomicBool>,
}

impl Subscription {
    /// Whether a message that is published from now on will arrive.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed.load(SeqCst)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Some(channel) = state.channels.get_mut(&self.channel) {
            channel.ears.retain(|ear| !Arc::ptr_eq(ear, &self.ear));
            if channel.ears.is_empty() {
                channel.idle_since = Some(self.shared.clock.now());
            }
        }
    }
}

impl PubSub {
    /// A subscriber without a node, until it is led to one.
    pub(crate) fn new() -> Self {
        Self::with(Dialect::Plain, None)
    }

    /// The same, which calls `on_loss` at each loss of its connection or of a slot.
    pub(crate) fn watched(on_loss: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with(Dialect::Plain, Some(Box::new(on_loss)))
    }

    /// The same, by sharded pub/sub.
    pub(crate) fn sharded(on_loss: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with(Dialect::Sharded, Some(Box::new(on_loss)))
    }

    fn with(dialect: Dialect, on_loss: Option<Box<dyn Fn() + Send + Sync>>) -> Self {
        let (bell, state, stirred) = (OnceCell::new(), Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { clock: Clock::Boot, dialect, on_loss, bell, state, stirred }) }
    }

    /// From now on the subscriber listens at this node. It misses what is published elsewhere: ears are told so now, and again at
    /// each confirmation. Channels are subscribed there in the order in which they were first wanted.
    pub(crate) fn lead_to(&self, node: Arc<Backend>) {
        self.shared.state.lock().lead_to(node);
        self.shared.stirred.notify_all();
        self.shared.ring();
    }

    /// Tells each ear on one of these channels that it may have missed something.
    pub(crate) fn tell_missed(&self, is_one: impl Fn(&str) -> bool) {
        let state = self.shared.state.lock();
        let concerned = state.channels.iter().filter(|(name, _)| is_one(name));
        concerned.for_each(|(_, channel)| channel.missed());
    }

    /// Puts an ear on a channel.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn listen(&self, name: &str, ear: Arc<dyn Ear>) -> std::io::Result<Subscription> {
        let confirmed = self.register(name, &ear)?;
        Ok(Subscription { shared: Arc::clone(&self.shared), channel: name.to_owned(), ear, confirmed })
    }

    /// Adds the ear to the channel. Returns the flag that says whether the channel is confirmed.
    fn register(&self, name: &str, ear: &Arc<dyn Ear>) -> std::io::Result<Arc<AtomicBool>> {
        let mut state = self.shared.state.lock();
        if !state.running && !state.closed {
            self.shared.bell()?;
            let shared = Arc::clone(&self.shared);
            spawn("redlatch-subscriber", move || shared.run())?;
            state.running = true;
        }
        state.numbers += 1;
        let number = state.numbers;
        let channel = state.channels.entry(name.to_owned()).or_insert_with(|| ChannelState::new(number));
        channel.ears.push(Arc::clone(ear));
        channel.idle_since = None;
        channel.asked &= !std::mem::take(&mut channel.elsewhere);
        let (confirmed, asked) = (Arc::clone(&channel.confirmed), channel.asked);
        if !asked && !std::mem::replace(&mut state.rung, true) {
            self.shared.ring();
        }
        self.shared.stirred.notify_all();
        Ok(confirmed)
    }

    /// Whether this subscriber's subscription to a channel is confirmed.
    pub(crate) fn hears(&self, name: &str) -> bool {
        self.shared.state.lock().channels.get(name).is_some_and(|channel| channel.confirmed.load(SeqCst))
    }

    #[cfg(test)]
    pub(crate) fn runs(&self) -> bool {
        self.shared.state.lock().running
    }

    /// Ends the thread, at the latest when a reply that it waits for is overdue.
    pub(crate) fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.stirred.notify_all();
        self.shared.ring();
    }
}

impl State {
    fn lead_to(&mut self, node: Arc<Backend>) {
        self.node = Some(node);
        self.forget_confirmations();
    }

    fn is_led_to(&self, node: &Arc<Backend>) -> bool {
        self.node.as_ref().is_some_and(|known| Arc::ptr_eq(known, node))
    }

    /// A channel, if the subscriber still listens at this node.
    fn channel_at(&mut self, node: &Arc<Backend>, name: &str) -> Option<&mut ChannelState> {
        if self.is_led_to(node) { self.channels.get_mut(name) } else { None }
    }

    /// After a lost connection nothing is subscribed. Waiters that relied on a channel poll faster until it is subscribed again.
    fn forget_confirmations(&mut self) {
        for channel in self.channels.values_mut() {
            channel.asked = false;
            if channel.confirmed.swap(false, SeqCst) {
                channel.missed();
            }
        }
    }
}

impl Shared {
    /// Whether a session with this node has to end.
    fn is_over(&self, node: &Arc<Backend>) -> bool {
        let state = self.state.lock();
        state.closed || !state.is_led_to(node)
    }

    /// Waits until the node to connect to is known; `None`: closed.
    fn next_node(&self) -> Option<Arc<Backend>> {
        let mut state = self.state.lock();
        while !state.closed && state.node.is_none() {
            self.stirred.wait(&mut state);
        }
        if state.closed { None } else { state.node.clone() }
    }

    fn tell_lost(&self) {
        self.on_loss.iter().for_each(|told| told());
    }

    fn bell(&self) -> std::io::Result<&Bell> {
        self.bell.get_or_try_init(Bell::new)
    }

    /// Makes the thread, if it runs, look which channels are wanted.
    fn ring(&self) {
        self.bell.get().into_iter().for_each(Bell::ring);
    }

    /// The thread: makes one connection after the other until the subscriber is closed.
    fn run(&self) {
        let mut pause = FIRST_PAUSE;
        let mut lost = false;
        while let Some(node) = self.next_node() {
            let session = AssertUnwindSafe(|| self.session(&node, &mut pause, lost));
            let session = catch_unwind(session);
            lost = true;
            self.state.lock().forget_confirmations();
            if self.is_over(&node) {
                pause = FIRST_PAUSE;
                continue;
            }
            match session {
                Ok(Ok(())) => {}
                Ok(Err(error)) => log_loss(&node, &error, pause),
                Err(_) => say!(error, "the subscriber thread panicked and starts again"),
            }
            self.tell_lost();
            self.rest(&node, pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Pauses, and then sleeps on while there is no waiter. A move to another node ends both at once.
    fn rest(&self, node: &Arc<Backend>, pause: Duration) {
        let mut state = self.state.lock();
        let until = std::time::Instant::now() + pause;
        let goes_on = |state: &State| !state.closed && state.is_led_to(node);
        while goes_on(&state) && !self.stirred.wait_until(&mut state, until).timed_out() {}
        while goes_on(&state) && !state.channels.values().any(ChannelState::is_needed) {
            state.channels.retain(|_, channel| !channel.ears.is_empty());
            self.stirred.wait(&mut state);
        }
    }

    /// Serves one connection until it breaks. `Ok`: the subscriber was closed, or led elsewhere.
    fn session(&self, node: &Arc<Backend>, pause: &mut Duration, lost: bool) -> Result<(), RedisError> {
        let mut connection = Connection::open(self, node)?;
        if lost {
            node.server().count_reconnect();
            say!(info, "the subscriber is connected to {} again", node.server().address());
        }
        *pause = FIRST_PAUSE;
        let mut heard = self.clock.now();
        while !self.is_over(node) {
            self.update(&mut connection)?;
            if connection.next(heard.plus(PING_EVERY).min(self.asks_again_at()))? {
                heard = self.clock.now();
            } else if self.clock.now().since(heard) >= PING_EVERY {
                connection.command("PING", None)?;
                heard = self.clock.now();
            }
        }
        Ok(())
    }

    /// When the first of the refused channels is asked for again. The next ping may come sooner, and the one after it is too late.
    fn asks_again_at(&self) -> Moment {
        let state = self.state.lock();
        state.channels.values().filter_map(ChannelState::asks_again_at).min().unwrap_or(Moment::MAX)
    }

    /// Subscribes the wanted channels, and unsubscribes those that had no waiter for [`LINGER`].
    fn update(&self, connection: &mut Connection<'_>) -> Result<(), RedisError> {
        let (wanted, unwanted) = self.changes();
        for name in unwanted {
            connection.unsubscribe(&name)?;
        }
        for name in wanted {
            match connection.subscribe(&name)? {
                Some(error) if is_elsewhere(&error) => self.is_elsewhere(connection.node, &name),
                refused => {
                    self.answered(connection.node, &name, refused.is_none());
                    refused.into_iter().for_each(|why| self.refused(connection.node, &name, &why.to_string()));
                }
            }
        }
        Ok(())
    }

    /// The channels to subscribe, and those to unsubscribe. An unwanted channel leaves the map first: if a waiter comes meanwhile, it
    /// makes a new entry, which this thread subscribes after it has unsubscribed the old one.
    fn changes(&self) -> (Vec<String>, Vec<String>) {
        let mut state = self.state.lock();
        state.rung = false;
        let now = self.clock.now();
        let stale = |channel: &ChannelState| channel.idle_since.is_some_and(|since| now.since(since) >= LINGER);
        let mut unwanted: Vec<_> = state.channels.extract_if(|_, channel| stale(channel)).collect();
        unwanted.sort_by_key(|(_, channel)| Reverse(channel.number));
        let mut wanted: Vec<_> = state.channels.iter_mut().filter(|(_, channel)| channel.is_wanted(now)).collect();
        wanted.sort_by_key(|(_, channel)| channel.number);
        let ask = |(name, channel): (&String, &mut ChannelState)| {
            channel.asked = true;
            name.clone()
        };
        (wanted.into_iter().map(ask).collect(), unwanted.into_iter().map(|(name, _)| name).collect())
    }

    /// Notes the server's answer and tells the ears. After a refusal they are told too, since no message will come. If the subscriber was
    /// led away from the node meanwhile, the answer counts for nothing.
    fn answered(&self, node: &Arc<Backend>, name: &str, confirmed: bool) {
        let mut state = self.state.lock();
        if let Some(channel) = state.channel_at(node, name) {
            channel.confirmed.store(confirmed, SeqCst);
            let refused_before = channel.refused_at;
            channel.refused_at = refused_before.filter(|_| !confirmed);
            channel.elsewhere &= !confirmed;
            if !mutant::is(Mutant::NoTryAfterConfirm) {
                channel.missed();
            }
            if confirmed && refused_before.is_some() {
                state.said.clear();
            }
        }
    }

    /// The channel's slot is at another node, or on its way there. This node is asked again all the same: the slot may come back.
    fn is_elsewhere(&self, node: &Arc<Backend>, name: &str) {
        if let Some(channel) = self.state.lock().channel_at(node, name) {
            (channel.asked, channel.elsewhere) = (true, true);
            channel.refused_at = Some(self.clock.now());
            if channel.confirmed.swap(false, SeqCst) {
                channel.missed();
            }
        }
        self.tell_lost();
    }

    /// The server ended the subscription. Either the slot has left the node, or the node was told once more that it has the slot (seen:
    /// Valkey 8.1, 9.1). The answer to the next SSUBSCRIBE says which.
    fn sent_away(&self, node: &Arc<Backend>, name: &str) {
        if let Some(channel) = self.state.lock().channel_at(node, name) {
            channel.asked = false;
            if channel.confirmed.swap(false, SeqCst) {
                channel.missed();
            }
        }
        self.ring();
        self.tell_lost();
    }

    /// Logs a refusal once for all channels, until one of them is accepted. The state is not locked while ears are told: an ear may
    /// drop its subscription to another channel meanwhile.
    fn refused(&self, node: &Arc<Backend>, name: &str, why: &str) {
        let mut state = self.state.lock();
        let Some(channel) = state.channel_at(node, name) else { return };
        let is_known = channel.refused_at.replace(self.clock.now()).is_some();
        let ears = channel.ears.clone();
        drop(state);
        let meanings: Vec<_> = ears.iter().filter_map(|ear| ear.refused()).collect();
        let Some(meaning) = meanings.first().filter(|_| !is_known) else { return };
        if self.state.lock().said.insert(meaning) {
            say!(warn, "the server refuses channel {name:?}, {meaning}: {why}");
        }
    }

    fn deliver(&self, node: &Arc<Backend>, told: Told<'_>) -> Result<(), RedisError> {
        let (name, payload) = match told {
            Told::Message(name, payload) => (name, payload),
            Told::Left(name) => {
                self.sent_away(node, name);
                return Ok(());
            }
        };
        if payload.len() > LONGEST_PAYLOAD {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "a message of more than 64 KiB").into());
        }
        // A message may give a lock to a waiter, and a retired node does not decide that any more. The move itself wakes waiters.
        if node.server().is_retired() {
            return Ok(());
        }
        if let Some(channel) = self.state.lock().channels.get(name) {
            channel.ears.iter().for_each(|ear| ear.hear(payload));
        }
        Ok(())
    }
}

/// Warns once in each outage: a server that is away for an hour need not fill the log.
fn log_loss(node: &Backend, error: &RedisError, pause: Duration) {
    let server = node.server().address();
    // The system's words for a time-out speak of a lack of resources.
    let why = if error.is_timeout() { "no answer in time".to_owned() } else { error.to_string() };
    if pause == FIRST_PAUSE {
        say!(warn, "the subscriber has no connection to {server}, waiters poll until it has one: {why}");
    } else {
        say!(debug, "the subscriber cannot connect to {server}: {why}");
    }
}
