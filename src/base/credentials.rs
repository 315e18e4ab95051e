//! Who a client logs in as, where that changes while it runs.

use crate::base::sync::Mutex;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// A user and a password, or a token in its place. Its `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Credentials {
    /// Those of a user.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// What a callback that gives credentials may fail with.
pub(crate) type Refusal = Box<dyn Error + Send + Sync>;

/// Asked for each connection.
#[derive(Clone)]
pub(crate) struct Source {
    callback: Arc<dyn Fn() -> Result<Credentials, Refusal> + Send + Sync>,
    /// Who asks it right now.
    asking: Arc<Mutex<Vec<ThreadId>>>,
}

impl Source {
    pub(crate) fn new<E: Into<Refusal>>(ask: impl Fn() -> Result<Credentials, E> + Send + Sync + 'static) -> Self {
        Self { callback: Arc::new(move || ask().map_err(Into::into)), asking: Arc::default() }
    }

    /// It runs on whichever thread connects, which a panic of it must not end. A call of it to the client that asks would wait for
    /// itself if it needed a connection, too.
    ///
    /// # Errors
    /// What the callback says.
    pub(crate) fn ask(&self) -> Result<Credentials, Refusal> {
        let me = thread::current().id();
        if self.asking.lock().contains(&me) {
            return Err("the callback uses the client that asks it".into());
        }
        self.asking.lock().push(me);
        let said = catch_unwind(AssertUnwindSafe(|| (self.callback)()));
        self.asking.lock().retain(|other| *other != me);
        said.unwrap_or_else(|_| Err("the callback panicked".into()))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(..)")
    }
}
