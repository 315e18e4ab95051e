//! What a kind of lock is to the parts that all kinds share.

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
}

impl Kind {
    /// Whether both are the very same kind.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
