//! The subscriber: one thread and one connection a client, whoever waits for whatever.
//!
//! The connection's owner blocks in a read, so nobody else can subscribe on it; a message on a private control
//! channel makes it look at what is wanted. It never blocks on a waiter: a message only releases semaphores.

use crate::backend::{Arg, Backend, GRACE, Lane, Limits, Request, Verb};
use crate::mutant::{self, Mutant};
use crate::signal::Semaphore;
use crate::time::{Clock, Moment};
use parking_lot::{Condvar, Mutex};
use redis::{Msg, RedisError, Value};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// A quiet connection is asked for a sign of life this often; a half-open one is noticed no other way.
const PING_EVERY: Duration = Duration::from_secs(3);

/// How often to look at what is wanted when the control channel was refused.
const WITHOUT_CONTROL: Duration = Duration::from_millis(100);

/// How long a channel stays subscribed without a waiter: the next one often comes soon.
const LINGER: Duration = Duration::from_secs(2);

/// The pause before connecting again, doubled with each failure up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// An unlock's message is one digit. After a longer one than this the connection is dropped, and the memory that the
/// message took with it. It has been read by then: what bounds it is the server, by its limit for the output of
/// subscribers, 32 MB unless configured.
const LONGEST_PAYLOAD: usize = 64 * 1024;

/// The subscriber of one client. Its thread starts with the first waiter.
pub(crate) struct PubSub {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Arc<Backend>,
    control: String,
    clock: Clock,
    state: Mutex<State>,
    /// The thread sleeps on it between two connections, and is woken by a waiter or the end.
    stirred: Condvar,
}

#[derive(Default)]
struct State {
    channels: HashMap<String, Channel>,
    running: bool,
    /// The thread was called and has not looked yet: one call is enough for any number of waiters.
    called: bool,
    closed: bool,
}

struct Channel {
    waiters: Vec<Arc<Semaphore>>,
    confirmed: Arc<AtomicBool>,
    /// Asked for on this connection, whatever the answer was.
    asked: bool,
    idle_since: Option<Moment>,
}

/// A waiter's place on a channel; given back when dropped.
///
/// Its semaphore is released when the server confirms the subscription, and then by each message, and again
/// by each confirmation after a reconnect, because a message may have been lost meanwhile. So a waiter that
/// looks at the lock after every release has looked after the confirmation.
pub(crate) struct Subscription {
    shared: Arc<Shared>,
    channel: String,
    semaphore: Arc<Semaphore>,
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
            channel.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.semaphore));
            if channel.waiters.is_empty() {
                channel.idle_since = Some(self.shared.clock.now());
            }
        }
    }
}

impl PubSub {
    /// `control` is the name of the private channel.
    pub(crate) fn new(backend: Arc<Backend>, control: String) -> Self {
        let (state, stirred) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { backend, control, clock: Clock::Boot, state, stirred }) }
    }

    /// Puts a waiter on a channel.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn listen(&self, name: &str, semaphore: &Arc<Semaphore>) -> std::io::Result<Subscription> {
        let (confirmed, call) = self.register(name, semaphore)?;
        if call {
            self.shared.call();
        }
        let (channel, semaphore) = (name.to_owned(), Arc::clone(semaphore));
        Ok(Subscription { shared: Arc::clone(&self.shared), channel, semaphore, confirmed })
    }

    /// Whether it is confirmed already, and whether the thread has to be called.
    fn register(&self, name: &str, semaphore: &Arc<Semaphore>) -> std::io::Result<(Arc<AtomicBool>, bool)> {
        let mut state = self.shared.state.lock();
        if !state.running && !state.closed {
            spawn(&self.shared)?;
            state.running = true;
            state.called = true;
        }
        let channel = state.channels.entry(name.to_owned()).or_insert_with(Channel::new);
        channel.waiters.push(Arc::clone(semaphore));
        channel.idle_since = None;
        let (confirmed, asked) = (Arc::clone(&channel.confirmed), channel.asked);
        let call = !asked && !state.called;
        state.called |= call;
        self.shared.stirred.notify_all();
        Ok((confirmed, call))
    }

    /// Whether this client is told itself of what is published on a channel.
    pub(crate) fn hears(&self, name: &str) -> bool {
        self.shared.state.lock().channels.get(name).is_some_and(|channel| channel.confirmed.load(SeqCst))
    }

    /// Ends the thread, at the latest when its read times out.
    pub(crate) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let running = state.running;
        drop(state);
        self.shared.stirred.notify_all();
        if running {
            self.shared.call();
        }
    }
}

impl Channel {
    fn new() -> Self {
        Self { waiters: Vec::new(), confirmed: Arc::default(), asked: false, idle_since: None }
    }

    fn wake(&self) {
        self.waiters.iter().for_each(|waiter| waiter.release());
    }
}

fn spawn(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::clone(shared);
    let run = move || shared.run();
    std::thread::Builder::new().name("redlatch-subscriber".to_owned()).spawn(run).map(drop)
}

impl Shared {
    fn is_called(&self) -> bool {
        self.state.lock().called
    }

    fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Makes the thread look at what is wanted. If it cannot be called it looks after its read time-out.
    fn call(&self) {
        let request =
            Request { verb: Verb::Command("PUBLISH"), keys: &[], args: &[Arg::Text(&self.control), Arg::Text("0")] };
        let limits = Limits { until: self.clock.now(), window: GRACE };
        if let Err(failure) = self.backend.attempt(Lane::Calls, &request, limits) {
            log::debug!("the subscriber could not be called: {}", failure.into_error(&self.control));
            self.state.lock().called = false;
        }
    }

    /// One connection after the other, as long as somebody waits.
    fn run(&self) {
        let mut pause = FIRST_PAUSE;
        let mut lost = false;
        while !self.is_closed() {
            let session = AssertUnwindSafe(|| self.session(&mut pause, lost));
            let session = catch_unwind(session);
            match session {
                Ok(Ok(())) => return,
                Ok(Err(error)) => self.log_loss(&error, pause),
                Err(_) => log::error!("the subscriber thread panicked and starts again"),
            }
            self.forget_confirmations();
            self.rest(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            lost = true;
        }
    }

    /// Once an outage: a server that is away for an hour need not fill the log.
    fn log_loss(&self, error: &RedisError, pause: Duration) {
        let server = self.backend.server().address();
        if pause == FIRST_PAUSE {
            log::warn!("the subscriber has no connection to {server}, waiters poll until it has one: {error}");
        } else {
            log::debug!("the subscriber cannot connect to {server}: {error}");
        }
    }

    /// Pauses, and then sleeps on while nobody waits for anything.
    fn rest(&self, pause: Duration) {
        let mut state = self.state.lock();
        let until = std::time::Instant::now() + pause;
        while !state.closed && !self.stirred.wait_until(&mut state, until).timed_out() {}
        while !state.closed && state.channels.values().all(|channel| channel.waiters.is_empty()) {
            state.channels.clear();
            self.stirred.wait(&mut state);
        }
    }

    /// After a lost connection nothing is subscribed. Waiters who relied on it poll faster until it is again.
    fn forget_confirmations(&self) {
        let mut state = self.state.lock();
        for channel in state.channels.values_mut() {
            channel.asked = false;
            if channel.confirmed.swap(false, SeqCst) {
                channel.wake();
            }
        }
    }

    /// Lives as long as one connection does. `Ok`: closed.
    fn session(&self, pause: &mut Duration, lost: bool) -> Result<(), RedisError> {
        let mut line = Line::open(self)?;
        let controlled = line.subscribe(&self.control)?;
        if lost {
            self.backend.server().count_reconnect();
            log::info!("the subscriber is connected to {} again", self.backend.server().address());
        }
        *pause = FIRST_PAUSE;
        let patience = if controlled { PING_EVERY } else { WITHOUT_CONTROL };
        let mut heard = self.clock.now();
        loop {
            if self.is_closed() {
                return Ok(());
            }
            self.update(&mut line)?;
            if self.is_called() {
                // The call itself may have been read among the replies.
                continue;
            }
            if line.next(patience)? {
                heard = self.clock.now();
            } else if self.clock.now().since(heard) >= PING_EVERY {
                line.command("PING", None)?;
                heard = self.clock.now();
            }
        }
    }

    /// Subscribes what is wanted and unsubscribes what nobody wanted for a while.
    fn update(&self, line: &mut Line<'_>) -> Result<(), RedisError> {
        let (wanted, unwanted) = self.changes();
        for name in unwanted {
            line.command("UNSUBSCRIBE", Some(&name))?;
        }
        for name in wanted {
            if line.subscribe(&name)? {
                self.confirm(&name);
            }
        }
        Ok(())
    }

    /// An unwanted channel leaves the map before it is unsubscribed: whoever comes next starts a new one, which
    /// is subscribed after that, in this thread's order.
    fn changes(&self) -> (Vec<String>, Vec<String>) {
        let mut state = self.state.lock();
        state.called = false;
        let now = self.clock.now();
        let stale = |channel: &Channel| channel.idle_since.is_some_and(|since| now.since(since) >= LINGER);
        let unwanted = state.channels.extract_if(|_, channel| stale(channel)).map(|(name, _)| name).collect();
        let mut wanted = Vec::new();
        for (name, channel) in state.channels.iter_mut().filter(|(_, channel)| !channel.asked) {
            channel.asked = true;
            wanted.push(name.clone());
        }
        (wanted, unwanted)
    }

    fn confirm(&self, name: &str) {
        if let Some(channel) = self.state.lock().channels.get(name) {
            channel.confirmed.store(true, SeqCst);
            if !mutant::is(Mutant::NoTryAfterConfirm) {
                channel.wake();
            }
        }
    }

    fn deliver(&self, message: &Msg) -> Result<(), RedisError> {
        if message.get_payload_bytes().len() > LONGEST_PAYLOAD {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "a message of more than 64 KiB").into());
        }
        if let Some(channel) = self.state.lock().channels.get(message.get_channel_name()) {
            channel.wake();
        }
        Ok(())
    }
}

/// The connection in subscribed mode.
///
/// Commands are sent and answered by hand because `redis::PubSub::subscribe` returns `Ok` when the server
/// refuses; each has a reply due, so a time-out there is the end of the connection. Only idle waiting goes
/// through `PubSub::get_message`, which may time out without losing the next message.
struct Line<'a> {
    shared: &'a Shared,
    connection: redis::Connection,
    read_timeout: Duration,
}

impl<'a> Line<'a> {
    fn open(shared: &'a Shared) -> Result<Self, RedisError> {
        let connection = shared.backend.server().connect(Moment::MAX)?.connection;
        Ok(Self { shared, connection, read_timeout: Duration::ZERO })
    }

    fn set_read_timeout(&mut self, timeout: Duration) -> Result<(), RedisError> {
        if timeout != self.read_timeout {
            self.connection.set_read_timeout(Some(timeout))?;
            self.read_timeout = timeout;
        }
        Ok(())
    }

    /// False when the server refuses: its waiters then poll.
    fn subscribe(&mut self, channel: &str) -> Result<bool, RedisError> {
        match self.command("SUBSCRIBE", Some(channel))? {
            Value::ServerError(error) => {
                log::warn!("the server refuses channel {channel:?}, its waiters poll instead: {error}");
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// Sends a command and delivers the messages that come before its reply.
    fn command(&mut self, name: &str, arg: Option<&str>) -> Result<Value, RedisError> {
        self.set_read_timeout(self.shared.backend.server().response_timeout())?;
        let mut command = redis::cmd(name);
        command.arg(arg);
        self.connection.send_packed_command(&command.get_packed_command())?;
        loop {
            let reply = self.connection.recv_response()?;
            match Msg::from_value(&reply) {
                Some(message) => self.shared.deliver(&message)?,
                None => return Ok(reply),
            }
        }
    }

    /// Delivers the next message; false when none came in time.
    fn next(&mut self, patience: Duration) -> Result<bool, RedisError> {
        self.set_read_timeout(patience)?;
        let mut pubsub = self.connection.as_pubsub();
        let message = pubsub.get_message();
        // Dropping it would unsubscribe everything; it owns nothing but an empty queue.
        std::mem::forget(pubsub);
        match message {
            Ok(message) => self.shared.deliver(&message).map(|()| true),
            Err(error) if error.is_timeout() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
