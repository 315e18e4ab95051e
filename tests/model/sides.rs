//! A model of read-write locks (docs/protocol.md, 16): the lock, the time-outs of its readers, and what each side does to them.
//! What a client believes is the crate's own code, as in the model of the protocol: docs/model.md, 6.

mod client;
mod mutants;
mod search;
mod server;
mod state;
