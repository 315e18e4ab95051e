//! What scripts say of locks.

use crate::store::node::Reply;

/// What a script that frees a lock says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    NotHeld,
    /// Done, but the server refuses to publish.
    Untold,
    /// Done, and so many connections were told.
    Told(i64),
}

impl Freed {
    pub(super) fn of(number: i64) -> Self {
        match number {
            0 => Self::NotHeld,
            1 => Self::Told(0),
            2 => Self::Untold,
            more => Self::Told(more - 2),
        }
    }

    pub(super) fn is_done(self) -> bool {
        self != Self::NotHeld
    }
}

/// Whether an acquire got the lock, with whatever a kind gets with it.
pub(in crate::lock) fn takes(reply: &Reply) -> bool {
    matches!(reply, Reply::Nil | Reply::Text(_))
}

/// Whether a lock was found, of one or of several.
pub(super) fn prolongs(reply: &Reply) -> bool {
    match reply {
        Reply::Array(each) => each.iter().any(prolongs),
        one => *one == Reply::Number(1),
    }
}
