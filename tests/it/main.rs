//! The integration tests of redlatch, one file per subject, on Redis servers that each test starts for itself.

/// Asserts that a result is the error variant of this name.
macro_rules! assert_err {
    ($result:expr, $variant:ident) => {{
        let result = $result;
        let expected = stringify!($variant);
        assert!(matches!(result, Err(redlatch::Error::$variant { .. })), "expected {expected}, got {result:?}");
    }};
}

mod bad_input;
mod bytes;
mod conformance;
mod endings;
mod faults;
mod fork;
mod lifecycle;
mod many;
mod outage;
mod process;
mod proxy;
mod regressions;
mod scripts;
mod server;
mod threads;
mod tidy;
mod waiting;
mod wire;
