//! A model of Redlock with a master that restarts without its data (docs/protocol.md, 7.6), and of a fenced lock on one server
//! that does so (14.1). What a client believes is the crate's own code, as in the model of the protocol: docs/model.md, 7.

mod client;
mod mutants;
mod search;
mod server;
mod state;
