//! [`ReentrantLock`]: Redisson's `RLock` on one Redis server.

use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::client::Client;
use crate::lock::RedLock;
use crate::lock::engine::Engine;
use crate::lock::forward::answered_by;
use crate::lock::keys::Keys;
use std::sync::Arc;

static REENTRANT: Kind = Kind { name: "re-entrant lock", passed_on: true, shared: false };

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
}

impl std::fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReentrantLock").field("client", &self.client).finish_non_exhaustive()
    }
}

impl RedLock for ReentrantLock {
    answered_by!(self => self.engine);
}
