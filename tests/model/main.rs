//! A model of the protocol, searched exhaustively within bounds: docs/model.md says what is in it and what is not.
//!
//! What a client believes is not modelled but is the crate's own code: `belief.rs` drives [`lease::tenure::Tenure`] with a
//! clock set by hand. When a call that waits looks is the crate's own code, too: `queue/client.rs` drives [`lock::waiting::wait::Wait`].
//! The server and the order in which things happen are the model.

#![forbid(unsafe_code)]
// What is public in the crate cannot be reached from outside of this program.
#![allow(unreachable_pub)]

// The files of the crate come whole, and no model needs all of one.
#[allow(dead_code, unused_imports)]
#[path = "../../src"]
mod source {
    pub(crate) mod base {
        pub(crate) mod error;
        pub(crate) mod key;
        pub(crate) mod lives;
        pub(crate) mod mutant;
        pub(crate) mod owner;
        pub(crate) mod slot;
        pub(crate) mod sync;
        pub(crate) mod time;
        pub(crate) mod value;
    }
    pub(crate) mod lease {
        pub(crate) mod nodes;
        pub(crate) mod tenure;
    }
    pub(crate) mod lock {
        pub(crate) mod waiting {
            mod policy;
            pub(crate) mod wait;
        }
    }
}
use source::{base, lease, lock};

mod belief;
mod fair;
mod mutants;
mod operations;
mod protocol;
mod queue;
mod redlock;
mod search;
mod server;
mod sides;
mod state;
mod tokens;
mod waiting;
