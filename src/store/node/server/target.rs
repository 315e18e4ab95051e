//! Which server is meant, as whom to log in, and what it is used for.

use crate::base::error::Result;
use crate::base::script::Dialect;
use crate::store::node::url;
use redis::{ConnectionAddr, RedisConnectionInfo};
use std::fmt;

/// What a server is used for. The handshake checks whether the server fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It keeps locks, and its role is not asked for.
    Any,
    /// It keeps locks as a node of a cluster, and scripts publish by sharded pub/sub.
    Shard,
    /// It keeps locks as the master of a group. A server whose ROLE is not `master` is refused.
    Master,
    /// It may be the master or a replica, and is asked which.
    Candidate,
    /// It keeps no locks, and says which server does.
    Sentinel,
}

impl Purpose {
    pub(super) fn dialect(self) -> Dialect {
        if self == Self::Shard { Dialect::Sharded } else { Dialect::Plain }
    }

    /// Whether it keeps locks.
    pub(super) fn has_locks(self) -> bool {
        matches!(self, Self::Any | Self::Shard | Self::Master)
    }
}

/// Where a server is, how to log in, and what it is used for.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) addr: ConnectionAddr,
    pub(crate) login: RedisConnectionInfo,
    pub(crate) purpose: Purpose,
}

impl Target {
    /// The server of a URL.
    ///
    /// # Errors
    /// `Config` for a URL that is not understood.
    pub(crate) fn of(url: &str) -> Result<Self> {
        let info = url::parse(url)?;
        Ok(Self { addr: info.addr().clone(), login: info.redis_settings().clone(), purpose: Purpose::Any })
    }

    /// The same server for another purpose.
    pub(crate) fn used_as(&self, purpose: Purpose) -> Self {
        Self { purpose, ..self.clone() }
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

/// Writes a host and its port as a URL has them. Without brackets nobody could tell where an IPv6 address ends.
pub(crate) fn show(host: &str, port: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
}
