//! The integration tests of redlatch, one file per subject, on Redis servers that each test starts for itself.

#[macro_use]
#[allow(dead_code, reason = "each binary uses a part")]
#[path = "../harness/mod.rs"]
mod harness;
use harness::{process, proxy, server, threads};

/// The torture test's checkers, which are tried here on logs made by hand.
#[allow(dead_code, reason = "the torture test uses the rest")]
#[path = "../torture/history/mod.rs"]
mod history;

mod bad_input;
mod bounded;
mod bytes;
mod conformance;
mod endings;
mod interleavings;
mod lifecycle;
mod many;
mod max_hold;
mod multi;
mod passing;
mod properties;
mod quorum;
mod regressions;
mod scripts;
mod strict;
mod tidy;
mod waiting;
mod wire;
