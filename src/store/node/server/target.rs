//! Which server is meant, as whom to log in, and what it is to its clients.

use crate::base::error::Result;
use crate::base::script::Dialect;
use crate::store::node::url;
use redis::{ConnectionAddr, RedisConnectionInfo};
use std::fmt;

/// What a server is to its clients, which is looked at in each handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Whatever it is, it is the one.
    Any,
    /// A node of a cluster that tells those who listen by commands of its shard.
    Shard,
    /// The master of a group: one that says that it is none is refused.
    Master,
    /// It may be the master or a replica, and is asked which.
    Candidate,
    /// It keeps no locks, and tells where they are.
    Sentinel,
}

impl Part {
    pub(super) fn dialect(self) -> Dialect {
        if self == Self::Shard { Dialect::Sharded } else { Dialect::Plain }
    }

    /// Whether it keeps locks.
    pub(super) fn has_locks(self) -> bool {
        matches!(self, Self::Any | Self::Shard | Self::Master)
    }
}

/// Where a server is, how to log in, and what it is.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) addr: ConnectionAddr,
    pub(crate) login: RedisConnectionInfo,
    pub(crate) part: Part,
}

impl Target {
    /// The server of a URL.
    ///
    /// # Errors
    /// `Config` for a URL that is not understood.
    pub(crate) fn of(url: &str) -> Result<Self> {
        let info = url::parse(url)?;
        Ok(Self { addr: info.addr().clone(), login: info.redis_settings().clone(), part: Part::Any })
    }

    /// The same server as something else.
    pub(crate) fn playing(&self, part: Part) -> Self {
        Self { part, ..self.clone() }
    }
}

impl fmt::Display for Target {
    /// Its address as it is written in a URL, and no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.addr {
            ConnectionAddr::Tcp(host, port) => show(host, *port, f),
            other => other.fmt(f),
        }
    }
}

/// As it is written in a URL: without brackets nobody could tell where a host of IPv6 ends.
pub(crate) fn show(host: &str, port: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
}
