//! Without the feature `tls` no client has any.

/// There is none.
#[derive(Debug, Clone)]
pub(crate) enum Connector {}
