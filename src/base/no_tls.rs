//! Without the feature `tls`: no client can use TLS.

use crate::base::error::{Error, Result};

/// No value of this type exists.
#[derive(Debug, Clone)]
pub(crate) enum Connector {}

/// What the URLs ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) is_sealed: bool,
}

impl Wanted {
    /// # Errors
    /// `Config` for URLs that ask for TLS.
    pub(crate) fn connector(&self) -> Result<Option<Connector>> {
        match self.is_sealed {
            true => Err(Error::config("the server's URL asks for TLS: enable the feature `tls` of redlatch")),
            false => Ok(None),
        }
    }
}
