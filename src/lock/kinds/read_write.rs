//! [`ReadWriteLock`]: Redisson's `RReadWriteLock` on one store, readers together or a writer alone (docs/protocol.md, 16).

mod reads;
mod sides;
mod writes;

use crate::base::error::Result;
use crate::base::key::Side;
use crate::base::kind::{Kind, Touched};
use crate::base::value::Value;
use crate::client::Client;
use crate::lease::hold::Hold;
use crate::lock::engine::Engine;
use crate::lock::forward::answered_by;
use crate::lock::primitive::Primitive;
use crate::lock::{Command, RedLock};
use reads::Reads;
use sides::Sides;
use std::sync::Arc;
use writes::Writes;

/// Threads of a process share a read tenure.
static READ: Kind = Kind {
    passed_on: false,
    shared: true,
    side: Side::Read,
    goes_with: Some(&WRITE),
    touches: TOUCHES,
    ..Kind::new("read lock")
};

/// The writing thread may read, too. Its tenure is not passed on: the next thread would write beside those reads.
static WRITE: Kind =
    Kind { passed_on: false, side: Side::Write, leaves_marks: true, touches: TOUCHES, ..Kind::new("write lock") };

/// The keys of both sides: the lock, a time-out, the turn of readers, the mark of writers.
const TOUCHES: &[Touched] = &[
    Touched { key: |key| key.full().to_owned(), by: &[&["HGET", "x"], &["HDEL", "x"], &["HGETALL"], &["HKEYS"]] },
    Touched { key: |key| key.timeout("x"), by: &[&["SET", "0", "NEITHER"]] },
    Touched { key: |key| key.readers_parts().concat(), by: &[&["GET"], &["SET", "0", "NEITHER"]] },
    Touched {
        key: |key| key.writers_parts().concat(),
        by: &[&["ZADD", "none", "x"], &["ZREVRANGE", "0", "0"], &["ZSCORE", "x"], &["ZREM", "x"]],
    },
];

/// Locks with two sides, shared on the wire with Redisson's `RReadWriteLock`: any number of threads may [`read`](Self::read) at the
/// same time, or one may [`write`](Self::write) alone. Each side is a [`RedLock`].
///
/// ```no_run
/// use redlatch::{Client, ReadWriteLock, RedLock, RedLockExt};
///
/// let prices = ReadWriteLock::new(&Client::connect("redis://127.0.0.1/")?);
///
/// let guard = prices.read().guard("prices")?;      // beside other readers, of this process and others
/// guard.unlock()?;
///
/// prices.write().lock("prices")?;                  // alone
/// prices.read().lock("prices")?;                   // the thread that writes may read, too
/// prices.write().unlock("prices")?;                // and then others may read beside it
/// prices.read().unlock("prices")?;
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// * A thread that reads and asks to write would wait for itself: any such call is an [`Error::Config`](crate::Error::Config) at once.
/// * A try to read fails while a writer waits, even if only readers hold the lock. A try to write takes whatever is free.
/// * A thread whose read hold was lost cannot read until it unlocks that ([`Error::Lost`](crate::Error::Lost)). It may write meanwhile.
/// * Readers of one process share a hold at the server, as far as [`HandOff::within`](crate::HandOff::within) goes, but not with
///   [`HandOff::off`](crate::HandOff::off). If one of them extends it, it is extended for all.
/// * Among programs on this library a waiting writer keeps new readers out. Readers that waited for a writer come before the next one.
///   Writers of several processes come in their order of arrival. Programs on Redisson have no order. So a reader must not wait for a
///   thread that has yet to begin to read: that thread may wait for the writer, and the writer for the reader.
/// * A reader is lost if its time-out is lost, a key of its own beside the lock: run locks on a server that evicts nothing.
/// * Only the side of the writer can run commands [while it is held](WriteLock::while_held).
/// * Do not use the name of a lock of another kind, which excludes both sides.
#[derive(Clone)]
pub struct ReadWriteLock {
    client: Client,
    read: ReadLock,
    write: WriteLock,
}

/// The side of a [`ReadWriteLock`] that any number may have at the same time.
#[derive(Clone)]
pub struct ReadLock {
    client: Client,
    engine: Arc<Engine>,
}

/// The side of a [`ReadWriteLock`] that one thread has alone.
#[derive(Clone)]
pub struct WriteLock {
    client: Client,
    engine: Arc<Engine>,
}

impl ReadWriteLock {
    /// The locks of a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let read = engine_of(client, &READ, Reads::new);
        let write = engine_of(client, &WRITE, Writes::new);
        Self {
            client: client.clone(),
            read: ReadLock { client: client.clone(), engine: read },
            write: WriteLock { client: client.clone(), engine: write },
        }
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

    /// The side of readers.
    #[must_use]
    pub fn read(&self) -> &ReadLock {
        &self.read
    }

    /// The side of the writer.
    #[must_use]
    pub fn write(&self) -> &WriteLock {
        &self.write
    }
}

impl ReadLock {
    /// The client that these locks were made on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl WriteLock {
    /// The client that these locks were made on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs commands at the server if this very hold is still there, as [`ReentrantLock::while_held`](crate::ReentrantLock::while_held)
    /// does. After the thread unlocked it, its read hold does not count: others may read beside that.
    ///
    /// # Errors
    /// As there.
    pub fn while_held(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.engine.while_held(&**self.client.store(), hold, commands)
    }
}

fn engine_of<P: Primitive + 'static>(client: &Client, kind: &'static Kind, of: fn(Sides) -> P) -> Arc<Engine> {
    client.of_kind(kind, || {
        let store = Arc::clone(client.store());
        let primitive = Arc::new(of(Sides::new(Arc::clone(&store), client.space())));
        Engine::new(Arc::clone(client.space()), kind, primitive, store)
    })
}

impl std::fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadWriteLock").field("client", &self.client).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ReadLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadLock").field("client", &self.client).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for WriteLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteLock").field("client", &self.client).finish_non_exhaustive()
    }
}

impl RedLock for ReadLock {
    answered_by!(self => self.engine);
}

impl RedLock for WriteLock {
    answered_by!(self => self.engine);
}
