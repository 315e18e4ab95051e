//! The queue of processes beside a lock, through the public interface: who is served when, and what becomes of the queue
//! whatever becomes of those who wait in it. Each client is a contender of its own, as a process is.
//!
//! Where it is the queue that must do it, lease and poll cap are a minute: nothing else could wake a waiter in time.

mod alone;
mod ends;
mod faults;
mod foreign;
mod forged;
mod given;
mod names;
mod order;
mod processes;

use crate::harness::queue::*;
