//! What the test binaries share: servers, a fault proxy, processes, threads.
//!
//! A binary takes it as
//!
//! ```text
//! #[macro_use]
//! #[allow(dead_code, reason = "each binary uses a part")]
//! #[path = "../harness/mod.rs"]
//! mod harness;
//! use harness::{process, proxy, server, threads};
//! ```

/// Asserts that a result is the error variant of this name.
macro_rules! assert_err {
    ($result:expr, $variant:ident) => {{
        let result = $result;
        let expected = stringify!($variant);
        assert!(matches!(result, Err(redlatch::Error::$variant { .. })), "expected {expected}, got {result:?}");
    }};
}

pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod quorum;
pub(crate) mod server;
pub(crate) mod threads;
