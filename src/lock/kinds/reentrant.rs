//! [`ReentrantLock`]: Redisson's `RLock` on one Redis server.

use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::value::Value;
use crate::client::Client;
use crate::lease::hold::Hold;
use crate::lock::engine::Engine;
use crate::lock::forward::answered_by;
use crate::lock::keys::Keys;
use crate::lock::{Command, RedLock};
use std::sync::Arc;

static REENTRANT: Kind = Kind::new("re-entrant lock");

/// A re-entrant lock on one Redis server, shared on the wire with Redisson's `RLock`. The usual kind.
///
/// It holds nothing itself: one object serves any number of resources and threads. Locks made on the same
/// client are the same locks.
///
/// ```no_run
/// use redlatch::{RedLock, RedisRedLock};
///
/// let locks = RedisRedLock::connect("redis://127.0.0.1/")?;
/// locks.lock("order:42")?;
/// locks.unlock("order:42")?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone)]
pub struct ReentrantLock {
    client: Client,
    engine: Arc<Engine>,
}

/// The name of the class in the Jedis version.
pub type RedisRedLock = ReentrantLock;

impl ReentrantLock {
    /// The locks of a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let engine = client.of_kind(&REENTRANT, || {
            let store = Arc::clone(client.store());
            let keys = Keys::new(Arc::clone(&store), &client.space().config).in_turn(client.space());
            Engine::new(Arc::clone(client.space()), &REENTRANT, Arc::new(keys), store)
        });
        Self { client: client.clone(), engine }
    }

    /// The locks of a new client with default settings; see [`Client::connect`] for the URL.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a URL that is not understood. Nothing is connected yet.
    pub fn connect(url: &str) -> Result<Self> {
        Client::connect(url).map(|client| Self::new(&client))
    }

    /// The client that these locks were made on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs commands at the server if this very hold is still there: all in one script, one after the other; else runs none.
    ///
    /// A holder that was paused for longer than its lease goes on where it was, and may write after the next holder did. What it
    /// writes by this call cannot come so late. The call is for data in the same Redis as the lock, in a cluster in the same slot; for
    /// other data see [`FencedLock`](crate::FencedLock). The commands are sent again only while it is certain that none was run.
    ///
    /// ```no_run
    /// use redlatch::{Command, Error, RedLockExt, RedisRedLock};
    ///
    /// let locks = RedisRedLock::connect("redis://127.0.0.1/")?;
    /// let guard = locks.guard("order:{42}")?;
    /// let pay = [
    ///     Command::new("SET").key("order:{42}:state").arg("paid"),
    ///     Command::new("INCR").key("order:{42}:version"),
    /// ];
    /// match locks.while_held(guard.hold(), &pay) {
    ///     Ok(answers) => println!("version {:?}", answers[1].integer()),
    ///     Err(Error::Lost { .. }) => println!("somebody else may have the lock: nothing was written"),
    ///     Err(Error::CommandFailed { at, cause, .. }) => println!("command {at}: {cause}; those before it were run"),
    ///     Err(Error::CommandsUnknown { .. }) => println!("look at the order: both, one or none was run"),
    ///     Err(error) => return Err(error), // nothing was written, see Error::applied
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// A command may be any that the server lets a script run. Each has to name its keys. A script is not rolled back, so put
    /// first what can fail. All commands together have at most 100,000 words and 32 MiB, and one has at most 7,000 words.
    ///
    /// The call rides an outage out as long as the hold lasts. After [`Error::CommandsUnknown`](crate::Error::CommandsUnknown) the next
    /// call for the same hold waits until the server can no longer run the earlier commands, at most one response time-out. An unlock does
    /// not wait.
    ///
    /// # Errors
    /// [`Error::Lost`](crate::Error::Lost) when the hold is over, and then nothing was run; [`Error::NotHeld`](crate::Error::NotHeld)
    /// on another thread and after the unlock; [`Error::CommandFailed`](crate::Error::CommandFailed) and
    /// [`Error::CommandsUnknown`](crate::Error::CommandsUnknown); [`Error::Config`](crate::Error::Config) for too many words,
    /// a hold of other locks, and in a cluster a key that is not in the slot of the lock; otherwise as of [`RedLock`].
    pub fn while_held(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.engine.while_held(&**self.client.store(), hold, commands)
    }
}

impl std::fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReentrantLock").field("client", &self.client).finish_non_exhaustive()
    }
}

impl RedLock for ReentrantLock {
    answered_by!(self => self.engine);
}
