//! [`ReentrantLock`]: Redisson's `RLock` on one Redis server.

use super::RedLock;
use super::batch::Batch;
use super::engine::Engine;
use super::keys::Keys;
use super::patience::Terms;
use super::wait;
use crate::client::Client;
use crate::error::Result;
use crate::hold::Hold;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

/// A re-entrant lock on one Redis server, shared on the wire with Redisson's `RLock`. The default kind.
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
        let (backend, pubsub) = (Arc::clone(client.backend()), Arc::clone(client.pubsub()));
        let keys = Keys::new(backend, pubsub, &client.space().config);
        let engine = Engine::new(Arc::clone(client.space()), Arc::new(keys));
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
    fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
        wait::acquire(&self.engine, resource, terms)
    }

    fn release(&self, hold: &Hold) -> Result<()> {
        self.engine.release(hold)
    }

    fn verify(&self, hold: &Hold) -> Result<bool> {
        self.engine.verify(hold)
    }

    fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
        self.engine.hold_of(resource, thread)
    }

    fn force_unlock(&self, resource: &str) -> Result<bool> {
        self.engine.force_unlock(resource)
    }

    fn is_locked(&self, resource: &str) -> Result<bool> {
        self.engine.is_locked(resource)
    }

    fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
        self.engine.remaining_time_to_live(resource)
    }

    fn unlock(&self, resource: &str) -> Result<()> {
        self.engine.unlock(resource)
    }

    fn batch(&self) -> Option<Batch<'_>> {
        Some(Batch::new(&self.engine))
    }
}
