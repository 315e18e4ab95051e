//! What the feature `metrics` records, and what that costs. A process has one recorder, so each test has a process of its own.

#[macro_use]
extern crate harness;
use harness::{counting, process, proxy, server, threads};

mod counts;
mod holds;
mod recorded;
mod servers;
mod waits;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
