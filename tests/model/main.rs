//! A model of the protocol, searched exhaustively within bounds: docs/model.md says what is in it and what is not.
//!
//! What a client believes is not modelled but is the crate's own code: `belief.rs` drives [`tenure::Tenure`] with a
//! clock set by hand. The server and the order in which things happen are the model.

#![forbid(unsafe_code)]
// The files of the crate come whole, and no model needs all of one.
#![allow(dead_code, unreachable_pub)]

#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/key.rs"]
mod key;
#[path = "../../src/tenure.rs"]
mod tenure;
#[path = "../../src/time.rs"]
mod time;

mod belief;
mod mutants;
mod protocol;
mod search;
mod server;
mod state;
mod waiting;
