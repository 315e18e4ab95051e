//! A distributed lock for plain-threaded Rust programs, on Redis.

mod backend;
mod client;
mod config;
mod error;
mod hold;
mod key;
mod lock;
mod owner;
mod pubsub;
mod registry;
mod script;
mod signal;
mod tenure;
mod time;
mod watchdog;

pub use client::{Client, ClientBuilder};
pub use config::Reentry;
pub use error::{Applied, Cause, Error, Result};
pub use hold::{Hold, HoldState, LostHold};
pub use key::Naming;
pub use lock::{LocalRedLock, RedisRedLock, ReentrantLock};
pub use lock::{LockAction, LockGuard, OwnedGuard, RedLock, RedLockExt, Request, Terms};
pub use signal::CancelToken;
pub use tenure::LossCause;
