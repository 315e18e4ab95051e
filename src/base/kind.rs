//! The properties of a kind of lock that all kinds' shared parts need.

use crate::base::key::{Key, Side};

/// A kind of lock. No code branches on the kind itself: the differences are these fields, or code of the kind's own.
///
/// Locks of two kinds on one client may have the same name, and so the same key. One kind's commands would misread or spoil the other's. So
/// each engine, hold and waiter knows its kind.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// Whether a tenure may go from thread to thread in memory. Not if each hold gets something of its own from the store.
    pub(crate) passed_on: bool,
    /// Whether the threads of a process wait one behind the other in memory. If not, each of them waits at the server.
    pub(crate) in_line: bool,
    /// Whether several threads of one process may share a tenure.
    pub(crate) shared: bool,
    /// Whether each hold has a token, which the store minted with it.
    pub(crate) has_tokens: bool,
    /// The side of a lock, which decides the names of its keys.
    pub(crate) side: Side,
    /// A thread that has a hold of that kind may have one of this kind under the same name.
    pub(crate) goes_with: Option<&'static Self>,
    /// Whether a waiting call leaves something at the store that its release takes away.
    pub(crate) leaves_marks: bool,
    /// Whether a hold is its thread's: only that thread gives it up, and with that thread it ends. If not, any thread may, and each hold has
    /// a place of its own in the map of threads.
    pub(crate) of_thread: bool,
    /// Whether every holder is a thread of this process: then the registry reports each unlock.
    pub(crate) is_of_this_process: bool,
    /// What its scripts do to keys, beyond what each lock's scripts do.
    pub(crate) touches: &'static [Touched],
}

/// A key that the scripts and commands of a kind touch, and how: each command, with arguments that change nothing.
#[derive(Debug)]
pub(crate) struct Touched {
    pub(crate) key: fn(&Key) -> String,
    pub(crate) by: &'static [&'static [&'static str]],
}

impl Kind {
    /// A kind that is passed on, and has no other of these properties.
    pub(crate) const fn new(name: &'static str) -> Self {
        let (side, goes_with, touches) = (Side::Whole, None, &[]);
        let (has_tokens, leaves_marks, is_of_this_process) = (false, false, false);
        Self {
            name,
            passed_on: true,
            in_line: true,
            shared: false,
            has_tokens,
            side,
            goes_with,
            leaves_marks,
            of_thread: true,
            is_of_this_process,
            touches,
        }
    }

    /// Whether both are the very same kind.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
