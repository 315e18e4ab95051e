//! What a kind of lock is to the parts that all kinds share.

use crate::base::key::{Key, Side};

/// A kind of lock. Nobody chooses by which one it is: what differs is said here, or done by the kind itself.
///
/// Locks of two kinds on one client may have the same name: then they are the same key, which one kind's commands would
/// misread or spoil. So each engine, hold and waiter knows its kind.
#[derive(Debug)]
pub(crate) struct Kind {
    /// As messages name it.
    pub(crate) name: &'static str,
    /// Whether a tenure may go from thread to thread in memory. Not if a hold gets something of its own from the store.
    pub(crate) passed_on: bool,
    /// Whether several threads of one process may have one tenure at the same time.
    pub(crate) shared: bool,
    /// Whether each hold has a token, which the store minted with it.
    pub(crate) has_tokens: bool,
    /// Which side of a lock it is, by whose names its keys go.
    pub(crate) side: Side,
    /// A thread may have a hold of this kind under a name that it holds by that one.
    pub(crate) goes_with: Option<&'static Self>,
    /// Whether a call that waits leaves something at the store, which its release takes away.
    pub(crate) leaves_marks: bool,
    /// Whether every holder is of this process: then the registry tells of each unlock.
    pub(crate) is_of_this_process: bool,
    /// What its scripts do to keys, besides what those of each lock do.
    pub(crate) touches: &'static [Touched],
}

/// A key that the scripts of a kind touch, and how: each command with words behind the key that change nothing.
#[derive(Debug)]
pub(crate) struct Touched {
    pub(crate) key: fn(&Key) -> String,
    pub(crate) by: &'static [&'static [&'static str]],
}

impl Kind {
    /// One that is passed on, and has nothing else of all this.
    pub(crate) const fn new(name: &'static str) -> Self {
        let (side, goes_with, touches) = (Side::Whole, None, &[]);
        let (has_tokens, leaves_marks, is_of_this_process) = (false, false, false);
        Self {
            name,
            passed_on: true,
            shared: false,
            has_tokens,
            side,
            goes_with,
            leaves_marks,
            is_of_this_process,
            touches,
        }
    }

    /// Whether both are the very same kind.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
