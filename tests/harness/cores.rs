//! The cores of this machine. A thread that may run on any core does not notice that another core was taken away, and that
//! the threads which wait for that core stand still.

/// The cores that this process may use; one, if the system does not say.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn cores() -> Vec<usize> {
    let Ok(may_use) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| may_use.is_set(*core)).collect()
}

/// Keeps this thread on a core. If the system refuses, the thread runs on any core.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn stay_on(core: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn cores() -> Vec<usize> {
    vec![0]
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn stay_on(_: usize) {}
