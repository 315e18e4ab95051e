//! A model of the queue of processes beside a lock (docs/protocol.md, 8): who is given the lock and when, what a message proves, and who
//! frees what was given to one who does not want it any more. Time is in ticks: docs/model.md, 3.

mod bounds;
mod client;
mod mutants;
mod search;
mod server;
mod state;
