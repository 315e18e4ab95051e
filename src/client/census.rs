//! How a client answers a census, and asks for one (docs/protocol.md, 21).

use super::Space;
use crate::base::error::{Applied, Error, Result};
use crate::base::process::Process;
use crate::base::say::say;
use crate::base::signal::{Deaf, Ear, Listening};
use crate::base::threads::spawn;
use crate::base::time::Moment;
use crate::census::{Access, Account, Claim, Deadlock, LONGEST};
use crate::lease::hold::{Hold, HoldState};
use crate::registry::{Waiter, known, registry};
use crate::store::Store;
use crate::store::node::{Arg, Failure, Lane, Limits, Request, Verb};
use crossbeam_channel::{Receiver, Sender, bounded};
use once_cell::sync::{Lazy, OnceCell};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

/// For so long an asker waits for accounts.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// The most messages that wait to be looked at. More come only if somebody floods the channel.
const MOST_MAIL: usize = 64;

/// Tells this process from all others. Names of machines and process ids do not: two containers may have both in common.
static PROCESS: Lazy<Uuid> = Lazy::new(Uuid::new_v4);

/// The same of a forked child, which has the random number of its parent and a process id of its own.
fn this_process() -> Uuid {
    Uuid::from_u128(PROCESS.as_u128() ^ u128::from(std::process::id()))
}

/// What a client needs for a census.
#[derive(Default)]
pub(super) struct Desk {
    /// The client's store; none for locks in memory and for a quorum, which have no census.
    store: OnceCell<Weak<dyn Store>>,
    /// Listens for questions, from the first wait on.
    listening: OnceCell<Box<dyn Listening>>,
}

/// Messages that nobody has read yet.
#[derive(Default)]
struct Mail {
    unread: Vec<Vec<u8>>,
    /// A thread reads what comes.
    is_read: bool,
}

/// The first word of a question, and the version of its form. The channel for the answers stands behind it.
const QUESTION: &str = "census 1 ";

/// Hears questions, and circles that others found.
struct CensusEar {
    space: Weak<Space>,
    mail: Arc<Mutex<Mail>>,
}

impl Ear for CensusEar {
    /// One thread of its own answers: that of the subscriber may not wait for a server. Nor may it have the namespace, whose end gives up this
    /// very subscription. With a thread for each message a crowd that asks would keep the connections from the calls.
    fn hear(&self, payload: &[u8]) {
        let mut mail = self.mail.lock();
        if mail.unread.len() < MOST_MAIL {
            mail.unread.push(payload.to_vec());
        }
        if std::mem::replace(&mut mail.is_read, true) {
            return;
        }
        let (space, all) = (Weak::clone(&self.space), Arc::clone(&self.mail));
        if spawn("redlatch-census", move || read_all(&space, &all)).is_err() {
            // Whoever asked counts this client as silent. The next message tries again.
            *mail = Mail::default();
        }
    }

    fn missed(&self) {}

    /// Without this channel locks work as well. Who asks is told that the client is silent.
    fn refused(&self) -> Option<&'static str> {
        None
    }

    fn is_standing(&self) -> bool {
        true
    }
}

/// Reads the mail until there is none, or the client is gone. If the server takes no answer, the rest is dropped: it would be late.
fn read_all(space: &Weak<Space>, mail: &Mutex<Mail>) {
    while let Some(space) = space.upgrade() {
        let messages = mail.lock().next();
        if messages.is_empty() {
            return;
        }
        let read = || messages.iter().try_for_each(|message| space.read(message));
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => say!(debug, "a census was not answered: {}", failure.into_error("")),
            Err(_) => say!(error, "the answer to a census panicked: the next one is given as ever"),
        }
    }
}

impl Mail {
    /// All that came. If that is nothing, the next message starts a thread.
    fn next(&mut self) -> Vec<Vec<u8>> {
        self.is_read = !self.unread.is_empty();
        std::mem::take(&mut self.unread)
    }
}

/// How a client answers.
impl Space {
    /// The store whose channels it is asked by.
    pub(super) fn is_asked_at(&self, store: &Arc<dyn Store>) {
        let _ = self.desk.store.set(Arc::downgrade(store));
    }

    /// Listens for questions from now on, for as long as the client lives. To be called when a call has subscribed to its lock: no call waits
    /// for this subscription.
    pub(crate) fn answers(self: &Arc<Self>) {
        let Some(store) = self.desk.store() else { return };
        let ear = || Arc::new(CensusEar { space: Arc::downgrade(self), mail: Arc::default() });
        // Without a thread for the subscriber calls poll, and say so. The next wait tries again.
        let _ = self.desk.listening.get_or_try_init(|| store.listen(&self.census_channel(&*store), ear()));
    }

    /// Keeps the connection for questions for as long as a call waits: it may be one of its own, in a cluster.
    pub(super) fn stays_awake(&self) -> Option<Box<dyn Listening>> {
        let store = self.desk.store()?;
        store.listen(&self.census_channel(&*store), Arc::new(Deaf(None))).ok()
    }

    /// The channel of questions. Locks of two databases of a server have nothing to do with each other, nor have those with two prefixes.
    /// The braces keep all channels of a census in one slot of a cluster.
    fn census_channel(&self, store: &dyn Store) -> String {
        format!("redlatch_census:{{{}:{}}}", store.database(), self.config.key_prefix)
    }

    fn read(self: &Arc<Self>, message: &[u8]) -> Result<(), Failure> {
        let Some(store) = self.desk.store() else { return Ok(()) };
        let asker = std::str::from_utf8(message).ok().and_then(|text| text.strip_prefix(QUESTION));
        if let Some(asker) = asker {
            let channel = format!("{}:{asker}", self.census_channel(&*store));
            return self
                .account()
                .pieces()
                .iter()
                .try_for_each(|piece| self.publish(&*store, &channel, piece).map(drop));
        }
        if let Some(circle) = Deadlock::read(message) {
            self.learns_of(&circle);
        }
        Ok(())
    }

    /// Tells all clients of a circle: those with a wait in it log it, too.
    pub(super) fn tell(&self, circle: &Deadlock) {
        let (Some(store), text) = (self.desk.store(), circle.text()) else { return };
        // Who is not told finds the circle itself, later. A message that is too long would cost all clients their connections.
        if text.len() <= LONGEST {
            let _ = self.publish(&*store, &self.census_channel(&*store), &text);
        }
    }

    /// How many were told, as far as the server knows.
    fn publish(&self, store: &dyn Store, channel: &str, text: &str) -> Result<usize, Failure> {
        let verb = Verb::Command(if store.is_sharded() { "SPUBLISH" } else { "PUBLISH" });
        let (keys, args) = ([channel], [Arg::Text(text)]);
        let limits = Limits::any_time(self.one_answer());
        let told = store.attempt(Lane::Calls, &Request::new(verb, &keys, &args), limits)?.reply.number()?;
        Ok(usize::try_from(told).unwrap_or(0))
    }

    /// What this client's threads hold and wait for.
    pub(crate) fn account(&self) -> Account {
        let process = Process::here(self.config.app_name.as_deref(), self.id);
        // Before the look: a claim that is found there is at least as old as it says.
        let now = self.clock.now();
        let mut account =
            Account { process, holds: Vec::new(), waits: Vec::new(), at: self.owners.time(now), of: this_process() };
        for ground in self.grounds() {
            let Account { holds, waits, .. } = &mut account;
            let hold = |hold: &Hold| holds.extend(self.claim_of(hold));
            let wait = |name: &str, waiter: &Waiter| waits.extend(self.wish_of(ground, name, waiter));
            registry().tell(ground, hold, wait);
        }
        account
    }

    /// A hold whose release is on its way, or that was lost, keeps nobody from its lock.
    fn claim_of(&self, hold: &Hold) -> Option<Claim> {
        let is_meant = hold.kind().of_thread && matches!(hold.state(), HoldState::Held | HoldState::Suspect);
        let (thread, thread_name) = known(hold.thread()).filter(|_| is_meant)?;
        // First its age: after a pause in between it looks younger than it is, and counts for less.
        let age = hold.acquired_at().elapsed();
        let since = self.owners.time(self.clock.now()).checked_sub(age)?;
        let access = if hold.kind().shared { Access::Shared } else { Access::Alone };
        let name = hold.resource().to_owned();
        Some(Claim { name, access, thread, thread_name, since, left: Some(hold.remaining()) })
    }

    fn wish_of(&self, ground: Uuid, name: &str, waiter: &Waiter) -> Option<Claim> {
        let (since, deadline) = waiter.report.of()?;
        let (thread, thread_name) = known(waiter.thread)?;
        let name = name.strip_prefix(self.config.key_prefix.as_str())?;
        let (access, name) = match ground {
            // Those who wait for permits have a name of their own in the map of threads.
            _ if ground == self.unbound => (Access::Counted, name.strip_suffix('\0').unwrap_or(name)),
            _ if ground == self.shared => (Access::Shared, name),
            _ => (Access::Alone, name),
        };
        let left = deadline.map(|deadline| deadline.since(self.clock.now()));
        let name = name.to_owned();
        Some(Claim { name, access, thread, thread_name, since: self.owners.time(since), left })
    }
}

impl Desk {
    fn store(&self) -> Option<Arc<dyn Store>> {
        self.store.get().and_then(Weak::upgrade)
    }
}

/// What came in until the asker's patience ended.
pub(crate) struct Gathered {
    /// The accounts that are whole, each with how long it took from the question until its last piece came.
    pub(crate) accounts: Vec<(Account, Duration)>,
    /// How many clients heard the question, if the server can count them.
    pub(crate) asked: Option<usize>,
}

/// Hands the pieces of accounts to the asker.
struct Inbox {
    pieces: Sender<Vec<u8>>,
    /// The server has answered the subscription: whether it refused it.
    answered: Sender<bool>,
}

impl Ear for Inbox {
    fn hear(&self, payload: &[u8]) {
        let _ = self.pieces.send(payload.to_vec());
    }

    fn missed(&self) {
        let _ = self.answered.try_send(false);
    }

    /// The asker is told by an error.
    fn refused(&self) -> Option<&'static str> {
        let _ = self.answered.try_send(true);
        None
    }
}

/// How a client asks.
impl Space {
    /// Asks all clients that listen for their accounts, itself among them.
    ///
    /// # Errors
    /// `Config` for locks in memory and a quorum; `Unavailable` and `Refused`, as of other calls.
    pub(crate) fn gather(self: &Arc<Self>) -> Result<Gathered> {
        let store = self.desk.store().ok_or_else(|| Error::config("only the locks of a Client have a census"))?;
        // A client that has not met its cluster does not know by which kind of channel that tells.
        store.servers(self.one_answer()).map_err(|failure| failure.into_error(""))?;
        let (channel, asker) = (self.census_channel(&*store), Uuid::new_v4().simple().to_string());
        let ((pieces, came), (answered, answers)) = (crossbeam_channel::unbounded(), bounded(MOST_MAIL));
        let ear = Arc::new(Inbox { pieces, answered });
        let listening =
            store.listen(&format!("{channel}:{asker}"), ear).map_err(|error| Error::unavailable("", error))?;
        // It has a connection that listens from now on: who asks next expects an answer.
        self.answers();
        self.confirmed(&*listening, &answers)?;
        let sent = self.clock.now();
        let told = self.publish(&*store, &channel, &format!("{QUESTION}{asker}"));
        let told = told.map_err(|failure| failure.into_error(""))?;
        let asked = store.counts_listeners(&channel).then_some(told);
        Ok(Gathered { accounts: self.collect(&came, sent, asked), asked })
    }

    /// Waits until answers are heard.
    fn confirmed(&self, listening: &dyn Listening, answers: &Receiver<bool>) -> Result<()> {
        let until = self.one_answer();
        while !listening.is_confirmed() {
            self.check_not_shut("")?;
            let left = until.since(self.clock.now());
            match answers.recv_timeout(left.min(POLL)) {
                Ok(true) => return Err(Error::refused("", "NOPERM", Applied::No, "SUBSCRIBE to redlatch_census:*")),
                Err(_) if left.is_zero() => return Err(Error::unavailable("", "SUBSCRIBE was not answered")),
                _ => {}
            }
        }
        Ok(())
    }

    fn collect(&self, came: &Receiver<Vec<u8>>, sent: Moment, asked: Option<usize>) -> Vec<(Account, Duration)> {
        let (until, mut parts) = (sent.plus(PATIENCE), Parts::default());
        while asked.is_none_or(|asked| parts.whole.len() < asked) {
            let Ok(piece) = came.recv_timeout(until.since(self.clock.now())) else { break };
            parts.add(&piece, self.clock.now().since(sent));
        }
        parts.whole
    }
}

/// How often an asker looks whether its subscription is confirmed, if nothing tells it so.
const POLL: Duration = Duration::from_millis(50);

/// The pieces of accounts that came so far.
#[derive(Default)]
struct Parts {
    whole: Vec<(Account, Duration)>,
    /// By client, with how many came.
    part: HashMap<String, (Account, usize)>,
}

impl Parts {
    fn add(&mut self, piece: &[u8], took: Duration) {
        let Some((piece, of)) = Account::read(piece) else { return };
        let client = piece.process.client.clone();
        let (account, came) = match self.part.remove(&client) {
            Some((mut account, came)) => {
                account.holds.extend(piece.holds);
                account.waits.extend(piece.waits);
                (account, came + 1)
            }
            None => (piece, 1),
        };
        if came < of {
            self.part.insert(client, (account, came));
        } else {
            self.whole.push((account, took));
        }
    }
}
