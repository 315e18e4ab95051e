//! The threads that go on in the background. Each has a name, by which a debugger or `top` tells whose it is.

use crate::base::sync::thread;

/// Starts a thread that nobody joins: what it runs ends by itself when its owner is closed.
///
/// # Errors
/// When the system has no more threads to give.
pub(crate) fn spawn(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run).map(drop)
}
