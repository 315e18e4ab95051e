//! What may be used inside and after a `catch_unwind`: everything that is public. Each type that would not be says so
//! beside its definition, by [`survives_a_panic`].
//!
//! What is shared behind these types is changed under mutexes, and no foreign code runs in the middle of a change:
//! `on_lost` has a thread of its own, work and hooks run while no mutex is held, and the logger is called before or after
//! a change. So a panic there leaves nothing half changed, and the acquire or guard that it unwinds through gives back
//! what it took. What became of a hold is told by [`Hold::is_valid`](crate::Hold::is_valid) and the next call's error, not
//! by poison.
//!
//! The guards, requests and terms follow from these: a guard of a wrapper's locks is as safe as the wrapper. So does a
//! kind of lock that has no more than its client and its engine.

/// Says so of a type, and what its parameter is if it has one.
macro_rules! survives_a_panic {
    ($type:ty $(, of $parameter:ident)?) => {
        impl$(<$parameter>)? std::panic::UnwindSafe for $type {}
        impl$(<$parameter>)? std::panic::RefUnwindSafe for $type {}
    };
}
pub(crate) use survives_a_panic;
