//! Background threads. Each has a name, which a debugger or `top` shows.

use crate::base::sync::thread;

/// Starts a thread that is never joined: it ends by itself when its owner is closed.
///
/// # Errors
/// When the system has no more threads to give.
pub(crate) fn spawn(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run).map(drop)
}
