//! Who holds a lock and who waits for it, which locks a server has, and what it says of itself: for tools, and for people on call.
//!
//! ```no_run
//! use redlatch::Client;
//! use redlatch::inspect::Inspector;
//!
//! let client = Client::connect("redis://127.0.0.1/")?;
//! let inspector = Inspector::new(&client);
//! let mut sight = inspector.look("order:42")?;
//! sight.name_processes(&inspector.processes()?);
//! println!("{sight}");    // order:42 is held by shop@web-1 (pid 4711), thread 1, ..
//! for page in inspector.scan("order:*")? {
//!     page?.locks.iter().for_each(|sight| println!("{sight}"));
//! }
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! Nothing here writes to a server, except [`Inspector::free`]. Each call makes one attempt, and a second one if the connection was closed; no call
//! repeats its attempts during an outage.

mod asking;
mod scan;
mod sight;

use crate::base::error::{Applied, Error, Result};
use crate::base::key::Side;
use crate::base::script::Count::{AtLeast, Exactly};
use crate::base::script::scripts;
use crate::base::value::Value;
use crate::client::Client;
use crate::lock::Command;
use crate::store::node::{Answer, Arg, Failure, Lane, Limits, Request, Verb, code_in};
use crate::{FairLock, FencedLock, ReadLock, ReentrantLock, WriteLock};
use std::collections::{HashMap, HashSet};

pub use crate::base::process::Process;
pub use crate::census::{Access, Account, Claim};
pub use asking::Census;
pub use scan::{Page, Scan};
pub use sight::{Holder, Sight, What};

scripts! {
    /// Reply: for [`Sight::read`].
    LOOK = "inspect/look.lua", Exactly(1), Exactly(5);
    /// Reply: that of `Freed::of`.
    FREE = "inspect/free.lua", Exactly(1), AtLeast(6);
}

/// The most holders of a lock that are read: a hash of more fields is hardly a lock, and the server does nothing else while it reads.
const MOST_HOLDERS: u64 = 10_000;

/// Looks at the locks of a client's servers.
#[derive(Debug, Clone)]
pub struct Inspector {
    client: Client,
}

/// What a server answered to [`Inspector::ask`], with its address.
pub type Said = (String, Result<Vec<Value>>);

impl Inspector {
    /// For the servers of a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    /// Looks at a name: what is there, who holds it, until when, and how many wait. One round trip.
    ///
    /// # Errors
    /// [`Error::Config`] for a bad name; otherwise as of [`Client::ping`], naming the lock.
    pub fn look(&self, name: &str) -> Result<Sight> {
        let key = self.client.space().key(name)?;
        let ([list, ..], leases) = (key.order_parts(), key.leases());
        let beside = [key.queue_parts(), list, key.places_parts(), ["", &leases, ""]].map(Arg::Beside);
        let args: Vec<_> = beside.into_iter().chain([Arg::Number(MOST_HOLDERS)]).collect();
        let answer = self.attempt(&Request::of(&LOOK, &[key.full()], &args));
        answer.and_then(|answer| Sight::read(name, answer.reply)).map_err(|failure| failure.into_error(name))
    }

    /// The locks whose names match a pattern, page by page. The pattern is that of `KEYS`: `*` is any text, `?` any character, `[ab]` one of
    /// these, and a backslash goes before a character that means itself.
    ///
    /// A lock is known by its shape: a hash that holds owners and hold counts. Semaphores and latches look like any number, so they are not
    /// found. A lock that is acquired or released meanwhile may be found or not, and one of a cluster whose slot moves may be found twice.
    ///
    /// # Errors
    /// As of [`Client::ping`]. The pages have errors of their own.
    pub fn scan(&self, pattern: &str) -> Result<Scan<'_>> {
        Scan::begin(self, pattern)
    }

    /// The processes with connections of this library to the servers. `CLIENT LIST` of each server has them, so it takes some time where
    /// there are thousands of connections.
    ///
    /// # Errors
    /// As of [`Client::ping`]; [`Error::Refused`] if the user may not run `CLIENT LIST`.
    pub fn processes(&self) -> Result<Processes> {
        let (mut by_client, mut listening) = (HashMap::new(), HashSet::new());
        let (mut is_known, mut failed) = (false, None);
        for (_, said) in self.ask(&[Command::new("CLIENT").arg("LIST")])? {
            match said.and_then(list_in) {
                Ok(list) => {
                    is_known = true;
                    for (line, process) in list.lines().filter_map(|line| Some((line, Process::named(name_in(line)?)?)))
                    {
                        listening.extend(listens_in(line).then(|| process.client.clone()));
                        by_client.insert(process.client.clone(), process);
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        // A master of a cluster that is away knows some of them alone.
        let are_all = failed.is_none();
        failed.filter(|_| !is_known).map_or(Ok(Processes { by_client, listening, are_all }), Err)
    }

    /// The same with processes; `None` for a name that nobody holds.
    fn holder(&self, name: &str) -> Result<Option<Sight>> {
        let mut sight = self.look(name)?;
        if !sight.is_held() {
            return Ok(None);
        }
        match self.processes() {
            Ok(processes) => sight.name_processes(&processes),
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Some(sight))
    }

    /// Frees a lock if exactly those hold it that were seen, and wakes who waits; returns whether it did. For leases that are renewed by a
    /// process that hangs: the holder is not asked, and learns of it at its next renewal.
    ///
    /// A [`QuorumLock`](crate::QuorumLock) has to be freed at each of its servers.
    ///
    /// # Errors
    /// As of [`look`](Self::look).
    pub fn free(&self, sight: &Sight) -> Result<bool> {
        let key = self.client.space().key(&sight.name)?;
        let sides = key.clone().of_side(Side::Write);
        let channels = [Arg::Parts(key.channel_parts()), Arg::Parts(sides.channel_parts())];
        let owners = sight.holders().iter().map(|holder| Arg::Text(&holder.field));
        let args: Vec<_> = channels.into_iter().chain(key.order_parts().map(Arg::Beside)).chain(owners).collect();
        if sight.holders().is_empty() {
            return Ok(false);
        }
        let freed = self.attempt(&Request::of(&FREE, &[key.full()], &args));
        freed.and_then(|answer| Ok(answer.reply.number()? > 0)).map_err(|failure| failure.into_error(&sight.name))
    }

    /// Asks each server that has locks these commands, which may name no key. A command's refusal is a [`Value::Error`].
    ///
    /// # Errors
    /// As of [`Client::ping`] if no server is known. Each server has errors of its own.
    pub fn ask(&self, commands: &[Command]) -> Result<Vec<Said>> {
        let servers = self.servers()?;
        Ok(servers.into_iter().map(|server| (server.clone(), self.ask_at(&server, commands))).collect())
    }

    /// The addresses of the servers that have locks: one, or the masters of a cluster.
    ///
    /// # Errors
    /// As of [`Client::ping`].
    pub fn servers(&self) -> Result<Vec<String>> {
        self.client.space().check_open("")?;
        self.client.store().servers(self.client.space().one_answer()).map_err(|failure| failure.into_error(""))
    }

    /// The same at one of the [`servers`](Self::servers).
    ///
    /// # Errors
    /// As of [`Client::ping`].
    pub fn ask_at(&self, server: &str, commands: &[Command]) -> Result<Vec<Value>> {
        let args: Vec<Vec<_>> = commands.iter().map(|command| command.words().map(Arg::Bytes).collect()).collect();
        let requests: Vec<_> = args.iter().map(|args| Request::new(Verb::Words, &[], args)).collect();
        let answers = self.attempt_at(server, &requests).map_err(|failure| failure.into_error(""))?;
        answers.into_iter().map(|answer| value_of(answer).map_err(|failure| failure.into_error(""))).collect()
    }

    fn attempt_at(&self, server: &str, requests: &[Request<'_>]) -> Result<Vec<Result<Answer, Failure>>, Failure> {
        self.twice(|limits| self.client.store().attempt_at(server, requests, limits))
    }

    fn attempt(&self, request: &Request<'_>) -> Result<Answer, Failure> {
        self.twice(|limits| self.client.store().attempt(Lane::Calls, request, limits))
    }

    /// The server may have closed an idle connection of the pool.
    fn twice<T>(&self, attempt: impl Fn(Limits<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        let once = || attempt(Limits::any_time(self.client.space().one_answer()));
        match once() {
            Err(failure @ Failure::Unknown { .. }) if !failure.is_timeout() => once(),
            done => done,
        }
    }
}

/// Who holds a lock, for a kind whose locks are keys of one store.
macro_rules! tells_holders {
    ($($kind:ident)*) => {$(
        impl $kind {
            /// Who holds a lock, since when, and how many wait, as the server says: for the log line of a wait that ended in vain, and for health
            /// pages. `None`: it is free. Two round trips, of which `CLIENT LIST` takes some time where there are thousands of connections.
            /// A user who may not run `CLIENT LIST` sees holders without their processes.
            ///
            /// ```no_run
            #[doc = concat!("use redlatch::{", stringify!($kind), ", RedLock};")]
            /// use std::time::Duration;
            ///
            #[doc = concat!("# fn example(locks: &", stringify!($kind), ") -> redlatch::Result<()> {")]
            /// if !locks.try_lock_for("order:42", Duration::from_secs(2))? {
            ///     if let Some(seen) = locks.holder("order:42")? {
            ///         println!("{seen}");    // order:42 is held by shop@web-1 (pid 4711), thread 1, asked 12 s ago; ..
            ///     }
            /// }
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// As of [`Inspector::look`].
            pub fn holder(&self, resource: &str) -> Result<Option<Sight>> {
                Inspector::new(self.client()).holder(resource)
            }
        }
    )*};
}

tells_holders!(ReentrantLock FairLock FencedLock ReadLock WriteLock);

/// The processes that are connected to the servers of a client.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    by_client: HashMap<String, Process>,
    /// The clients that listen to messages.
    listening: HashSet<String>,
    /// Each server has listed its connections.
    are_all: bool,
}

impl Processes {
    /// The process of the client with this id. `None`: it is not connected, or has no name, as those of Redisson.
    #[must_use]
    pub fn of(&self, client: &str) -> Option<&Process> {
        self.by_client.get(client)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.by_client.values()
    }

    fn listens(&self, process: &Process) -> bool {
        self.listening.contains(&process.client)
    }
}

fn list_in(said: Vec<Value>) -> Result<String> {
    match said.into_iter().next() {
        Some(Value::Bytes(list)) => Ok(String::from_utf8_lossy(&list).into_owned()),
        Some(Value::Error(said)) => Err(Error::refused("", code_in(&said), Applied::No, said)),
        _ => Ok(String::new()),
    }
}

/// The name of a connection, in its line of `CLIENT LIST`.
fn name_in(line: &str) -> Option<&str> {
    line.split(' ').find_map(|word| word.strip_prefix("name="))
}

/// Whether a connection listens to a channel, by its line of `CLIENT LIST`.
fn listens_in(line: &str) -> bool {
    let counts = line.split(' ').filter_map(|word| word.strip_prefix("sub=").or_else(|| word.strip_prefix("ssub=")));
    counts.into_iter().any(|count| count != "0")
}

/// A refusal is an answer, too.
fn value_of(answer: Result<Answer, Failure>) -> Result<Value, Failure> {
    match answer {
        Ok(answer) => answer.reply.into_value(),
        Err(Failure::Refused { code, cause, .. }) => Ok(Value::Error(format!("{code} {cause}"))),
        Err(failure) => Err(failure),
    }
}
