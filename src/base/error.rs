//! The errors, sorted by what the caller does next.

use crate::base::value::Value;
use std::fmt;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a lock operation failed. Contention is never an error: it is `Ok(false)` or `Ok(None)`.
///
/// Each variant calls for a different next step of the caller. The text is one line: it names the resource and the server, if the call had
/// them, says what to do, and never holds a password.
///
/// ```
/// use redlatch::{Applied, Error, LocalRedLock, RedLock};
///
/// let locks = LocalRedLock::new();
/// let error = locks.unlock("order:42").unwrap_err();
/// assert!(matches!(error, Error::NotHeld { .. }));
/// assert!(!error.is_retryable());
/// assert_eq!(error.applied(), Applied::No);
/// assert!(error.to_string().contains("order:42"));
/// ```
///
/// `Debug` prints the same text: if `main` returns the error, the program prints its `Debug`.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// The call itself is wrong (a name, a lease, a URL, a setting): fix it.
    #[non_exhaustive]
    Config {
        /// What is wrong and what would be right.
        what: String,
    },
    /// The current thread does not hold this resource (Java's `IllegalMonitorStateException`).
    #[non_exhaustive]
    NotHeld {
        /// The resource, as the caller named it.
        resource: String,
    },
    /// The hold ended before its holder released it: another holder may have worked at the same time.
    #[non_exhaustive]
    Lost {
        /// The resource, as the caller named it.
        resource: String,
    },
    /// The work of a closure or an action ran, but not under the lock until its end: the hold was lost, or the client was shut down
    /// meanwhile. Every other error of such a call means that the work did not run.
    #[non_exhaustive]
    Unprotected {
        /// The resource, as the caller named it.
        resource: String,
        /// How the hold ended under the work.
        cause: Cause,
    },
    /// No server answered within the outage budget, or the call's own time: nothing was applied. Some waits end without an error instead:
    /// [`Terms`](crate::Terms#when-the-time-is-over).
    #[non_exhaustive]
    Unavailable {
        /// The resource, as the caller named it.
        resource: String,
        /// The last thing that went wrong on the way to the server.
        cause: Cause,
    },
    /// A command was sent and never answered: the caller holds nothing that it may rely on.
    #[non_exhaustive]
    OutcomeUnknown {
        /// The resource, as the caller named it.
        resource: String,
        /// What ended the wait for the answer.
        cause: Cause,
    },
    /// The server said no: authentication, permissions, memory, a read-only replica, a wrong type.
    #[non_exhaustive]
    Refused {
        /// The resource, as the caller named it.
        resource: String,
        /// The code of the server's error: `NOAUTH`, `NOPERM`, `OOM`, `WRONGTYPE` and so on, the same for all server versions.
        code: String,
        /// Whether the command may have changed something all the same.
        applied: Applied,
        /// The server's words.
        cause: Cause,
    },
    /// One of the [commands](crate::Command) of `while_held` failed: the commands before it were run, those behind it were not.
    #[non_exhaustive]
    CommandFailed {
        /// The resource, as the caller named it.
        resource: String,
        /// Which command failed: 1 is the first.
        at: usize,
        /// The code of the server's error, as of [`Error::Refused`].
        code: String,
        /// The server's words.
        cause: Cause,
        /// The answers to the commands before it.
        answers: Vec<Value>,
    },
    /// The [commands](crate::Command) of `while_held` were sent and never answered: all were run, or none, or some until one failed. The
    /// client does not send them again. The server runs them within one response time-out after the call, or not at all.
    #[non_exhaustive]
    CommandsUnknown {
        /// The resource, as the caller named it.
        resource: String,
        /// What ended the wait for the answer.
        cause: Cause,
    },
    /// The call's [`CancelToken`](crate::CancelToken) was cancelled before the lock was acquired.
    #[non_exhaustive]
    Cancelled {
        /// The resource, as the caller named it.
        resource: String,
    },
    /// The time of a [latch](crate::CountDownLatch) was over before all parties had counted it down.
    #[non_exhaustive]
    Expired {
        /// The resource, as the caller named it.
        resource: String,
    },
    /// Threads wait for each other in a circle, and this call began to wait last. It ended for the others to go on:
    /// [`ClientBuilder::fail_deadlocks`](crate::ClientBuilder::fail_deadlocks). Release what this thread holds, and begin again.
    #[non_exhaustive]
    Deadlock {
        /// The resource, as the caller named it.
        resource: String,
        /// Who waits for whom.
        cause: Cause,
    },
    /// The client was shut down, or this process is a fork of the one that made the client.
    #[non_exhaustive]
    Closed {
        /// The resource, as the caller named it.
        resource: String,
    },
}

/// Whether a failed operation took effect on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It took effect.
    Yes,
    /// It took no effect, for certain.
    No,
    /// It may have taken effect, or may within one response time-out.
    Unknown,
}

/// The text of a lower layer, kept as the [`source`](std::error::Error::source) of an [`Error`].
#[derive(Debug, Clone)]
pub struct Cause(String);

impl Cause {
    /// Makes one line of any text of a server or the system.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().split(char::is_control).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}

/// Constructors, also for wrappers of a [`RedLock`](crate::RedLock) and for tests. The locks of this crate use them, too.
///
/// ```
/// use redlatch::{Applied, Error};
///
/// let error = Error::unavailable("order:42", "the breaker is open");
/// assert!(error.is_retryable());
/// assert!(error.to_string().ends_with("try later: the breaker is open"));
///
/// let error = Error::refused("order:42", "OOM", Applied::No, "command not allowed");
/// assert!(error.to_string().contains("free memory"));
/// ```
impl Error {
    /// [`Error::Config`]: what is wrong, and what would be right.
    #[must_use]
    pub fn config(what: impl Into<String>) -> Self {
        Self::Config { what: what.into() }
    }

    /// [`Error::NotHeld`].
    #[must_use]
    pub fn not_held(resource: impl Into<String>) -> Self {
        Self::NotHeld { resource: resource.into() }
    }

    /// [`Error::Lost`].
    #[must_use]
    pub fn lost(resource: impl Into<String>) -> Self {
        Self::Lost { resource: resource.into() }
    }

    /// [`Error::Unprotected`], because of how the hold ended under the work: a text, or another error.
    #[must_use]
    pub fn unprotected(resource: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::Unprotected { resource: resource.into(), cause: Cause::new(cause.to_string()) }
    }

    /// [`Error::Unavailable`], because of what went wrong on the way to the server: a text, or another error.
    #[must_use]
    pub fn unavailable(resource: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::Unavailable { resource: resource.into(), cause: Cause::new(cause.to_string()) }
    }

    /// [`Error::OutcomeUnknown`], because of what ended the wait for the answer: a text, or another error.
    #[must_use]
    pub fn outcome_unknown(resource: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::OutcomeUnknown { resource: resource.into(), cause: Cause::new(cause.to_string()) }
    }

    /// [`Error::Refused`], with the first word of the server's error, and the words behind it.
    #[must_use]
    pub fn refused(
        resource: impl Into<String>,
        code: impl Into<String>,
        applied: Applied,
        cause: impl fmt::Display,
    ) -> Self {
        Self::Refused { resource: resource.into(), code: code.into(), applied, cause: Cause::new(cause.to_string()) }
    }

    /// [`Error::CommandFailed`]: which command failed, 1 is the first, the server's error as in [`Error::refused`], and the answers to the
    /// commands before it.
    #[must_use]
    pub fn command_failed(
        resource: impl Into<String>,
        at: usize,
        code: impl Into<String>,
        cause: impl fmt::Display,
        answers: Vec<Value>,
    ) -> Self {
        let cause = Cause::new(cause.to_string());
        Self::CommandFailed { resource: resource.into(), at, code: code.into(), cause, answers }
    }

    /// [`Error::CommandsUnknown`], because of what ended the wait for the answer: a text, or another error.
    #[must_use]
    pub fn commands_unknown(resource: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::CommandsUnknown { resource: resource.into(), cause: Cause::new(cause.to_string()) }
    }

    /// [`Error::Cancelled`].
    #[must_use]
    pub fn cancelled(resource: impl Into<String>) -> Self {
        Self::Cancelled { resource: resource.into() }
    }

    /// [`Error::Expired`].
    #[must_use]
    pub fn expired(resource: impl Into<String>) -> Self {
        Self::Expired { resource: resource.into() }
    }

    /// [`Error::Deadlock`], with the threads that wait for each other.
    #[must_use]
    pub fn deadlock(resource: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::Deadlock { resource: resource.into(), cause: Cause::new(cause.to_string()) }
    }

    /// [`Error::Closed`].
    #[must_use]
    pub fn closed(resource: impl Into<String>) -> Self {
        Self::Closed { resource: resource.into() }
    }

    pub(crate) fn unwatched(resource: &str, error: &std::io::Error) -> Self {
        Self::unavailable(resource, format_args!("no thread to watch over the lock: {error}"))
    }

    /// Whether the same call may succeed later without a change of the program or the server's set-up. A call that counts, as
    /// [`count_down`](crate::CountDownLatch::count_down) or [`add_permits`](crate::Semaphore::add_permits), may count twice then, if the error is
    /// [`OutcomeUnknown`](Self::OutcomeUnknown).
    ///
    /// A refused login (`WRONGPASS`, `NOAUTH`) is retryable if a [callback](crate::ClientBuilder::credentials) gives the credentials, for
    /// it may learn the right ones later. With a fixed password it is not.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::OutcomeUnknown { .. } => true,
            Self::Refused { code, cause, .. } => may_pass(code, cause),
            _ => false,
        }
    }

    /// Whether the work of a closure or an action ran though its call failed. Then check or undo the work, and do not repeat it blindly.
    ///
    /// ```
    /// use redlatch::{Error, LocalRedLock, RedLock, RedLockExt};
    ///
    /// let locks = LocalRedLock::new();
    /// let paid = locks.execute_in_lock("order:42", || locks.force_unlock("order:42"));
    /// assert!(paid.is_err_and(|error| error.work_ran()));
    /// assert!(!Error::lost("order:42").work_ran());
    /// ```
    #[must_use]
    pub fn work_ran(&self) -> bool {
        matches!(self, Self::Unprotected { .. })
    }

    /// Whether the failed operation took effect on the server.
    ///
    /// `Unprotected`, `Lost` and `NotHeld` answer [`Applied::No`]: no lock was changed. `CommandFailed` answers [`Applied::Yes`] unless the
    /// first command failed.
    #[must_use]
    pub fn applied(&self) -> Applied {
        match self {
            Self::OutcomeUnknown { .. } | Self::CommandsUnknown { .. } => Applied::Unknown,
            Self::CommandFailed { at, .. } if *at > 1 => Applied::Yes,
            Self::Refused { applied, .. } => *applied,
            _ => Applied::No,
        }
    }

    /// The resource that the failed call named. `None` for [`Error::Config`], and for calls that name none, such as
    /// [`Client::ping`](crate::Client::ping): their field is empty, which no lock's name is.
    #[must_use]
    pub fn resource(&self) -> Option<&str> {
        match self {
            Self::Config { .. } => None,
            Self::NotHeld { resource }
            | Self::Lost { resource }
            | Self::Unprotected { resource, .. }
            | Self::Unavailable { resource, .. }
            | Self::OutcomeUnknown { resource, .. }
            | Self::Refused { resource, .. }
            | Self::CommandFailed { resource, .. }
            | Self::CommandsUnknown { resource, .. }
            | Self::Cancelled { resource }
            | Self::Expired { resource }
            | Self::Deadlock { resource, .. }
            | Self::Closed { resource } => Some(&**resource).filter(|resource| !resource.is_empty()),
        }
    }
}

/// Whether a refusal can end by itself: the server is busy, full, short of memory or replicas, or changing roles. Or the credentials
/// callback does not know the new password yet.
pub(crate) fn may_pass(code: &str, cause: &Cause) -> bool {
    const PASSING: [&str; 9] =
        ["LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "OOM", "MISCONF", "NOREPLICAS"];
    PASSING.contains(&code) || says_full(&cause.0) || (is_login(code) && cause.0.contains(BY_CALLBACK))
}

/// Whether this code refuses the login, and not the command. A disabled or deleted user gets it, too.
pub(crate) fn is_login(code: &str) -> bool {
    matches!(code, "NOAUTH" | "WRONGPASS")
}

/// Stands behind the server's words, for the reader and for [`may_pass`]: a fixed password stays wrong.
pub(crate) const BY_CALLBACK: &str = " (the callback of ClientBuilder::credentials gave them)";

/// `ERR max number of clients reached`, which has no code of its own.
pub(crate) fn says_full(text: &str) -> bool {
    text.contains("max number of clients")
}

/// If `main` returns the error, this is the only text that a user sees.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { what } => f.write_str(what),
            Self::NotHeld { resource } => {
                write!(
                    f,
                    "lock {resource:?} is not held by this thread: use it where it was locked, and unlock it there once a lock"
                )
            }
            Self::Lost { resource } => {
                let advice = "the work may not have been alone, check or repeat it; a lock can be locked again once it is unlocked";
                write!(f, "{resource:?} was lost while held: {advice}")
            }
            Self::Unprotected { resource, cause } => {
                write!(f, "the work under lock {resource:?} ran, but may not have been alone, check it: {cause}")
            }
            Self::Unavailable { resource, cause } => {
                let of = About(" for ", resource, "");
                write!(f, "no server answered{of} in time, nothing was applied, try later: {cause}")
            }
            Self::OutcomeUnknown { resource, cause } => {
                let of = About(" for ", resource, "");
                write!(f, "no answer{of}: rely on nothing, what was taken ends with its lease, if it has one: {cause}")
            }
            Self::Refused { resource, code, cause, .. } => {
                let of = About(" ", resource, "");
                write!(f, "the server refused{of} ({code}), {}: {cause}", advice(code))
            }
            Self::CommandFailed { resource, at, code, cause, .. } => {
                let before = if *at > 1 { "those before it were run" } else { "none was run" };
                write!(f, "command {at} under lock {resource:?} failed ({code}), {before}: {cause}")
            }
            Self::CommandsUnknown { resource, cause } => {
                write!(
                    f,
                    "no answer to the commands under lock {resource:?}: look at what they did, they may have run: {cause}"
                )
            }
            Self::Cancelled { resource } => write!(f, "waiting for {resource:?} was cancelled"),
            Self::Expired { resource } => {
                write!(f, "latch {resource:?} did not open in its time: find out who did not count it down")
            }
            Self::Deadlock { resource, cause } => {
                let advice = "release what this thread holds, and begin again";
                write!(f, "waiting for {resource:?} ended, because threads wait for each other: {advice}: {cause}")
            }
            Self::Closed { resource } => {
                let of = About("", resource, ": ");
                write!(f, "{of}the client is shut down or was made before a fork, make a new one")
            }
        }
    }
}

/// The part of a sentence that names the resource; empty if the call named none.
struct About<'a>(&'a str, &'a str, &'a str);

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(before, resource, after) = self;
        if resource.is_empty() { Ok(()) } else { write!(f, "{before}{resource:?}{after}") }
    }
}

/// What the reader of a refusal can do about it.
fn advice(code: &str) -> &'static str {
    match code {
        "NOAUTH" | "WRONGPASS" => "check user and password",
        "NOPERM" => "grant the user what docs/permissions.md lists",
        "WRONGTYPE" => {
            "the key holds something that is not a lock of this library, as the string of another lock library: choose another name"
        }
        "OOM" => "free memory on the server",
        "LOADING" | "BUSY" => "it cannot serve now, try later",
        "NOMASTER" => "give the name that SENTINEL MASTERS lists",
        "TOKEN" => "find out what wrote the counter, and give it a number that no token of this lock was above",
        "TWICE" => "give each node of the quorum a server of its own",
        "MISMATCH" => "give all strict clients the same watchdog_timeout: ClientBuilder::strict says how to change it",
        "READONLY" => "connect to the master",
        "MISCONF" => "the server does not accept writes now, see its log",
        "NOREPLICAS" => "too few of the server's replicas are in reach, see INFO replication",
        "MOVED" | "ASK" => "this is a cluster: connect by redis+cluster:// in place of redis://",
        "CLUSTERDOWN" => "the cluster does not serve this slot now, see CLUSTER INFO",
        "CROSSSLOT" | "TRYAGAIN" => {
            "the cluster is moving the slot, or the keys are in several: try again, or one by one"
        }
        "TLS" => "check the certificates, the name of the host and the port",
        _ => "see the server's words",
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unprotected { cause, .. }
            | Self::Unavailable { cause, .. }
            | Self::OutcomeUnknown { cause, .. }
            | Self::Refused { cause, .. }
            | Self::CommandFailed { cause, .. }
            | Self::CommandsUnknown { cause, .. }
            | Self::Deadlock { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
