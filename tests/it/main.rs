//! The integration tests of redlatch, one file per subject, on Redis servers that each test starts for itself.

#[macro_use]
extern crate harness;
use harness::{lua, process, proxy, server, threads};

/// The torture test's checkers, which are tried here on logs made by hand.
#[allow(dead_code, reason = "the torture test uses the rest")]
#[path = "../torture/history/mod.rs"]
mod history;

mod app_name;
mod bad_input;
mod bounded;
mod bytes;
mod census;
mod cluster;
mod clusters;
mod compiler;
mod conformance;
mod credentials;
mod endings;
mod errors;
mod everywhere;
mod examples;
mod fair;
mod fenced;
mod half_moved;
mod in_memory;
mod inspect;
mod interleavings;
mod latch;
mod late;
mod lateness;
mod lifecycle;
mod loggers;
mod many;
mod max_hold;
mod multi;
mod passing;
mod ping;
mod planned;
mod properties;
mod published;
mod quorum;
mod read_write;
mod regressions;
mod renewed_lease;
mod replicas;
mod retries;
mod rights;
mod scripts;
mod semaphores;
mod sentinel;
mod shutdowns;
mod stats;
mod strict;
mod sync_replicas;
mod tidy;
mod tls;
mod turns;
mod urls;
mod waiting;
mod while_held;
mod wire;
