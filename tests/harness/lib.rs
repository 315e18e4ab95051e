//! What tests and benches share: servers, a fault proxy, processes, threads, counts.
//!
//! A test binary takes it as
//!
//! ```text
//! #[macro_use]
//! extern crate harness;
//! use harness::{process, proxy, server, threads};
//! ```
//!
//! so that all its files have the macro and the modules.

/// The folder of the whole project.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Asserts that a result is the error variant of this name.
#[macro_export]
macro_rules! assert_err {
    ($result:expr, $variant:ident) => {{
        let result = $result;
        let expected = stringify!($variant);
        assert!(matches!(result, Err(redlatch::Error::$variant { .. })), "expected {expected}, got {result:?}");
    }};
}

pub mod by_hand;
pub mod clock;
pub mod cluster;
pub mod cores;
pub mod counting;
pub mod deployment;
pub mod lateness;
pub mod lua;
pub mod member;
pub mod oracle;
pub mod papers;
pub mod permissions;
pub mod process;
mod program;
pub mod proxy;
pub mod queue;
pub mod quorum;
pub mod reaper;
pub mod sentinel;
pub mod server;
pub mod terminator;
pub mod threads;
