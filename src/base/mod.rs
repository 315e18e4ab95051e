//! The parts that all layers above use: words, time, names, settings, threads, scripts. This layer knows none of those above.

pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod error;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod lives;
#[cfg_attr(not(feature = "metrics"), path = "no_meters.rs")]
pub(crate) mod meters;
pub(crate) mod mutant;
pub(crate) mod owner;
pub(crate) mod process;
pub(crate) mod say;
pub(crate) mod script;
pub(crate) mod signal;
pub(crate) mod slot;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod sync;
pub(crate) mod threads;
pub(crate) mod time;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub(crate) mod tls;
pub(crate) mod turns;
pub(crate) mod unwind;
pub(crate) mod value;
pub(crate) mod voters;
