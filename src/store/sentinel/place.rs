//! Where a process is.

use redis::ConnectionAddr;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Place {
    pub(super) fn addr(&self) -> ConnectionAddr {
        ConnectionAddr::Tcp(self.host.clone(), self.port)
    }
}

impl fmt::Display for Place {
    /// As it is written in a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
