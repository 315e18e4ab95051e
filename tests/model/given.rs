//! A model of a lock that a release gives to the head of its queue (docs/protocol.md, 8.13 to 8.16): what a message proves, and who
//! frees what was given to one who does not want it any more. Time is in ticks: docs/model.md, 8.

mod client;
mod mutants;
mod search;
mod server;
mod state;
