//! The two sides of a case, with the same verbs: a thread of a JVM, and the current thread of this process.

use crate::java::{Jvm, Span};
use crate::setting::Ours;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// What a case asks of either program. A wait of zero tries once.
pub(crate) trait Side: Sync {
    fn lock(&self, name: &str) -> Span;
    /// With a lease that nobody renews.
    fn lock_for(&self, name: &str, lease: Duration) -> Span;
    fn try_lock(&self, name: &str, wait: Duration) -> (bool, Span);
    fn force_unlock(&self, name: &str) -> (bool, Span);
    fn is_locked(&self, name: &str) -> bool;
    /// The error says that the lock was not held any more; others panic.
    fn try_unlock(&self, name: &str) -> Result<Span, String>;

    #[track_caller]
    fn unlock(&self, name: &str) -> Span {
        self.try_unlock(name).unwrap()
    }
}

/// A thread of a JVM, by its name, and what its verbs begin with: `fenced.`, `read.`, `write.` or nothing, for the kind of lock.
pub(crate) struct Java<'j>(pub(crate) &'j Jvm, pub(crate) &'j str, pub(crate) &'static str);

impl Java<'_> {
    #[track_caller]
    fn ask(&self, verb: &str, words: &[&str]) -> (String, Span) {
        let (answer, span) = self.try_ask(verb, words);
        (answer.unwrap(), span)
    }

    fn try_ask(&self, verb: &str, words: &[&str]) -> (Result<String, String>, Span) {
        self.0.ask(self.1, &[&[[self.2, verb].concat().as_str()], words].concat())
    }
}

impl Java<'_> {
    /// Takes a fenced lock: its token.
    pub(crate) fn lock_and_get_token(&self, name: &str) -> u64 {
        self.ask("lockAndGetToken", &[name]).0.parse().unwrap()
    }
}

impl Side for Java<'_> {
    fn lock(&self, name: &str) -> Span {
        self.ask("lock", &[name]).1
    }

    fn lock_for(&self, name: &str, lease: Duration) -> Span {
        self.ask("lockFor", &[name, &lease.as_millis().to_string()]).1
    }

    fn try_lock(&self, name: &str, wait: Duration) -> (bool, Span) {
        let (acquired, span) = self.ask("tryLock", &[name, &wait.as_millis().to_string()]);
        (acquired.parse().unwrap(), span)
    }

    fn force_unlock(&self, name: &str) -> (bool, Span) {
        let (was_locked, span) = self.ask("forceUnlock", &[name]);
        (was_locked.parse().unwrap(), span)
    }

    fn is_locked(&self, name: &str) -> bool {
        self.ask("isLocked", &[name]).0.parse().unwrap()
    }

    fn try_unlock(&self, name: &str) -> Result<Span, String> {
        let (answer, span) = self.try_ask("unlock", &[name]);
        answer.map(|_| span).inspect_err(|error| assert!(error.contains("IllegalMonitorStateException"), "{error}"))
    }
}

/// The current thread of this process.
pub(crate) struct Rust(pub(crate) Ours);

impl Side for Rust {
    fn lock(&self, name: &str) -> Span {
        spanned(|| self.0.lock(name).unwrap()).1
    }

    fn lock_for(&self, name: &str, lease: Duration) -> Span {
        spanned(|| self.0.lock_with_lease(name, lease).unwrap()).1
    }

    fn try_lock(&self, name: &str, wait: Duration) -> (bool, Span) {
        spanned(|| self.0.try_lock_for(name, wait).unwrap())
    }

    fn force_unlock(&self, name: &str) -> (bool, Span) {
        spanned(|| self.0.force_unlock(name).unwrap())
    }

    fn is_locked(&self, name: &str) -> bool {
        self.0.is_locked(name).unwrap()
    }

    fn try_unlock(&self, name: &str) -> Result<Span, String> {
        let (answer, span) = spanned(|| self.0.unlock(name));
        answer.map(|()| span).map_err(|error| {
            assert!(matches!(error, redlatch::Error::Lost { .. }), "{error}");
            error.to_string()
        })
    }
}

pub(crate) fn spanned<T>(act: impl FnOnce() -> T) -> (T, Span) {
    let began = now();
    let value = act();
    (value, Span { began, ended: now() })
}

/// The clock of `System.nanoTime`.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}
