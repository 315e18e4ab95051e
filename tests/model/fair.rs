//! A model of the fair lock's queue (docs/protocol.md, 17): a place for each waiting thread, shared with Redisson. Who gives the lock to whom,
//! whose place is taken out and when, and what Redisson's scripts do to it. Time is in ticks: docs/model.md, 8.

mod bounds;
mod client;
mod mutants;
mod redisson;
mod search;
mod server;
mod state;
