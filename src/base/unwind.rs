//! All public types may be used inside and after a `catch_unwind`. Each type for which the compiler does not see that says so beside its
//! definition, by [`survives_a_panic`].
//!
//! Threads change the shared state behind these types under mutexes, and no foreign code runs in the middle of a change: `on_lost` has a
//! thread of its own, work and hooks run while no mutex is held, and the logger is called before or after a change. So a panic there leaves
//! nothing half changed, and the acquire or guard that it unwinds through gives back what it took. Instead of poison,
//! [`Hold::is_valid`](crate::Hold::is_valid) and the next call's error tell what became of a hold.
//!
//! Guards, requests and terms follow from these: a guard is as safe as the wrapper whose lock it has. So is a kind of lock that has only
//! its client and its engine.

/// Marks a type as safe, with the bound of its parameter if it has one.
macro_rules! survives_a_panic {
    ($type:ty $(, of $parameter:ident)?) => {
        impl$(<$parameter>)? std::panic::UnwindSafe for $type {}
        impl$(<$parameter>)? std::panic::RefUnwindSafe for $type {}
    };
}
pub(crate) use survives_a_panic;
