//! The locks, condition variables and clock of threads, named in one place.
//!
//! tests/interleavings compiles the files that use this module over a `sync` of its own: a scheduler that tries thread orders. Counters
//! that only hand out numbers use `std`.

pub(crate) use crossbeam_channel::{Receiver, Sender, unbounded};
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic;
pub(crate) use std::thread;
pub(crate) use std::thread_local;

/// The time since boot. It counts suspended time too, if the system has such a clock.
pub(crate) fn boot_nanos() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(CLOCK);
    time.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs())
}
