//! The cores of this machine. A thread that may go anywhere does not see that another core was taken away; what waits
//! there stands still meanwhile.

/// Those that this process may use; one where the system does not say it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn cores() -> Vec<usize> {
    let Ok(may_use) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| may_use.is_set(*core)).collect()
}

/// Holds this thread on a core. Refused, it goes wherever it is put.
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
