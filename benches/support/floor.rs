//! The floor: the scripts of a pair with the same arguments, by EVALSHA on a private connection.

use super::{Outcome, connect};
use harness::lua;
use redis::{Cmd, Connection, ConnectionLike};
use std::time::Duration;

/// What a lock is called on the wire.
pub(crate) struct Name {
    pub(crate) key: String,
    pub(crate) channel: String,
}

impl Name {
    pub(crate) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), channel: format!("redisson_lock__channel:{{{key}}}") }
    }
}

const OWNER: &str = "01234567-89ab-cdef-0123-456789abcdef:1:12345";
const LEASE: Duration = Duration::from_secs(30);

/// The two scripts and nothing else.
pub(crate) struct Floor<C = Connection> {
    connection: C,
    acquire: String,
    release: String,
    owner: String,
    lease: Duration,
    deadline: u64,
}

impl Floor<Connection> {
    pub(crate) fn new(url: &str) -> Outcome<Self> {
        Self::on(connect(url)?)
    }

    /// At a master of a cluster, where unlocks are told to one shard.
    pub(crate) fn sharded(url: &str) -> Outcome<Self> {
        let translated = |name: &str| lua::script(name).replace("'PUBLISH'", "'SPUBLISH'");
        Self::of(connect(url)?, OWNER.to_owned(), LEASE, translated)
    }

    /// One of several that contend, so with an owner of its own.
    pub(crate) fn owned(url: &str, owner: String, lease: Duration) -> Outcome<Self> {
        Self::of(connect(url)?, owner, lease, lua::script)
    }
}

impl<C: ConnectionLike> Floor<C> {
    /// On whichever connection.
    pub(crate) fn on(connection: C) -> Outcome<Self> {
        Self::of(connection, OWNER.to_owned(), LEASE, lua::script)
    }

    fn of(mut connection: C, owner: String, lease: Duration, text: impl Fn(&str) -> String) -> Outcome<Self> {
        let mut load = |name: &str| redis::cmd("SCRIPT").arg("LOAD").arg(text(name)).query(&mut connection);
        let (acquire, release) = (load("acquire")?, load("release")?);
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection)?;
        Ok(Self { connection, acquire, release, owner, lease, deadline: (seconds + 3_600) * 1_000_000 })
    }

    fn acquire(&self, name: &Name) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.acquire).arg(1).arg(&name.key).arg(self.deadline);
        command.arg(self.lease.as_millis() as u64).arg(&self.owner).arg(1);
        command
    }

    /// Whether it was free.
    pub(crate) fn try_take(&mut self, name: &Name) -> Outcome<bool> {
        let said: u64 = self.acquire(name).query(&mut self.connection)?;
        Ok(said == self.deadline)
    }

    /// The same, confirmed by so many replicas: both commands in one write.
    fn take_confirmed(&mut self, name: &Name, replicas: i64, timeout: Duration) -> Outcome<()> {
        let mut both = redis::pipe();
        both.add_command(self.acquire(name)).cmd("WAIT").arg(replicas).arg(timeout.as_millis() as u64);
        match both.query::<(u64, i64)>(&mut self.connection)? {
            (said, confirmed) if said == self.deadline && confirmed == replicas => Ok(()),
            other => Err(format!("the floor's lock was not free or not confirmed: {other:?}").into()),
        }
    }

    pub(crate) fn take(&mut self, name: &Name) -> Outcome<()> {
        if self.try_take(name)? { Ok(()) } else { Err("the floor's lock was not free".into()) }
    }

    pub(crate) fn free(&mut self, name: &Name) -> Outcome<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(&name.key).arg(&self.owner).arg(0).arg(&name.channel);
        let released: i64 = command.query(&mut self.connection)?;
        if released > 0 { Ok(()) } else { Err("the floor's lock was not held".into()) }
    }

    pub(crate) fn pair(&mut self, name: &Name) -> Outcome<()> {
        self.take(name)?;
        self.free(name)
    }

    pub(crate) fn confirmed_pair(&mut self, name: &Name, replicas: i64, timeout: Duration) -> Outcome<()> {
        self.take_confirmed(name, replicas, timeout)?;
        self.free(name)
    }
}
