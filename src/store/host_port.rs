//! The address of a server process.

use crate::base::config::AddressMap;
use crate::store::node::show;
use redis::ConnectionAddr;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct HostPort {
    pub(super) host: String,
    pub(super) port: u16,
}

impl HostPort {
    pub(super) fn addr(&self) -> ConnectionAddr {
        ConnectionAddr::Tcp(self.host.clone(), self.port)
    }

    /// As it is reached from here.
    pub(super) fn mapped(self, map: &AddressMap) -> Self {
        let (host, port) = map.apply(self.host, self.port);
        Self { host, port }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.host, self.port, f)
    }
}
