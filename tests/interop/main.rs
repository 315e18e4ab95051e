//! Locks shared with Java: Redisson, and the small lock on Jedis. `scripts/interop` builds the Java side, which
//! `peer/` has, and runs these tests; they leave their figures for its table.
//!
//! A case is written once, for a side that holds and a side that comes to it, and runs with each family in both
//! directions.

#[macro_use]
extern crate harness;
use harness::{cluster, deployment, member, process, server, threads};

#[macro_use]
mod setting;
#[macro_use]
mod counters;
mod java;
mod servers;
mod sides;

mod clusters;
mod control;
mod counting;
mod endings;
mod fair;
mod holding;
mod latch;
mod names;
mod read_write;
mod semaphores;
mod tokens;
mod waking;
