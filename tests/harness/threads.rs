//! The harness's threads: waiting for events, and threads that are known to sleep, to hold or to be gone.

pub use super::lateness::{Mark, Took};
use redlatch::{Error, Hold, LossCause, RedLock, Result};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Long enough for anything that must happen, however busy the machine is. A passing test never waits it out.
pub const LONG: Duration = Duration::from_secs(20);

/// How much later than its wait a call may return.
pub const LATE: Duration = Duration::from_millis(250);

/// How soon a message or a wake-up must have had its effect.
pub const SOON: Duration = Duration::from_secs(1);

/// A watchdog's lease that a test can outlive. A busy machine leaves the watchdog or the server without a core for less
/// than two thirds of it. A process that gets no core for longer may lose what it holds.
pub const WATCHED: Duration = Duration::from_millis(2_000);

/// By then a hold that was never renewed is over for sure.
pub const OUTLIVED: Duration = Duration::from_millis(2_600);

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits for a condition that no event tells of.
#[track_caller]
pub fn eventually(bound: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let start = Mark::now();
    while !holds() {
        assert!(start.elapsed() <= bound, "not within {bound:?}: {what}");
        std::thread::sleep(ms(1));
    }
}

/// Repeats a call that prepares a test until it succeeds: on a busy machine a client that gives up soon may not connect in time.
pub fn patiently<T>(mut call: impl FnMut() -> Result<T>) -> T {
    let mut done = None;
    eventually(LONG, "it is prepared", || {
        done = call().ok();
        done.is_some()
    });
    done.unwrap()
}

/// The least time that the library gives a call to connect, even if the call's time is up.
const LEAST: Duration = Duration::from_millis(25);

/// How many calls in a row a machine that is late may leave without an answer.
const TRIES: usize = 10;

/// The result of a call with a short time, and how long it took; `None` if no server answered in time. That happens if the
/// server gets no core for longer than the margins of 25 ms and 200 ms. An earlier error is the library's fault.
pub fn if_answered<T>(call: impl FnOnce() -> Result<T>) -> Option<(T, Took)> {
    match timed(call) {
        (Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }), took) if took.real() >= LEAST => None,
        (result, took) => Some((result.unwrap(), took)),
    }
}

/// The same, for the first of `TRIES` calls that is answered.
#[track_caller]
pub fn answered<T>(mut call: impl FnMut() -> Result<T>) -> (T, Took) {
    (0..TRIES).find_map(|_| if_answered(&mut call)).expect("one of some calls is answered")
}

/// The error of the first of `TRIES` calls that is answered. The others are unknown: the server got no core in time.
#[track_caller]
pub fn refusal<T>(mut call: impl FnMut() -> Result<T>) -> Error {
    let mut errors = (0..TRIES).map(|_| call().err().expect("it is refused"));
    errors.find(|error| !matches!(error, Error::OutcomeUnknown { .. })).expect("one of some calls is answered")
}

/// Why a hold was lost. The loss must be told within `bound`.
#[track_caller]
pub fn lost_within(bound: Duration, hold: &Hold) -> LossCause {
    let (lost, took) = timed(|| hold.lost().recv_timeout(LONG).expect("the loss is told"));
    assert!(took <= bound, "told after {took:?}");
    lost.cause()
}

/// Runs `act` on a thread of its own, and passes its panic on.
pub fn elsewhere<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| finish(scope.spawn(act)))
}

/// The result of a thread, or its panic.
pub fn finish<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The result of `act`, and how long it took.
pub fn timed<T>(act: impl FnOnce() -> T) -> (T, Took) {
    let start = Mark::now();
    (act(), start.elapsed())
}

/// Starts a thread and returns when that thread sleeps, as a waiter does, or is done. Joining it gives the result of `act`
/// and when `act` ended.
pub fn spawn_asleep<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    act: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, (T, Mark)> {
    let (tell, told) = channel();
    let handle = scope.spawn(move || {
        tell.send(this_task()).unwrap();
        (act(), Mark::now())
    });
    let task = told.recv().unwrap();
    eventually(LONG, "the thread sleeps", || handle.is_finished() || sleeps(&task));
    handle
}

/// Runs `act`, and `then` on another thread as soon as the current one sleeps in it.
pub fn once_asleep<T>(act: impl FnOnce() -> T, then: impl FnOnce() + Send) -> T {
    let task = this_task();
    std::thread::scope(|scope| {
        let looking = scope.spawn(move || {
            eventually(LONG, "the thread sleeps", || sleeps(&task));
            then();
        });
        let done = act();
        finish(looking);
        done
    })
}

/// The folder in which the system shows the current thread.
fn this_task() -> PathBuf {
    Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap())
}

/// Whether a thread sleeps for longer than a command takes: three looks in a row.
fn sleeps(task: &Path) -> bool {
    (0..3).all(|_| {
        std::thread::sleep(ms(2));
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
    })
}

/// Runs `act` while another thread holds the lock. That thread must still hold it in the end.
pub fn while_held_elsewhere<L: RedLock + ?Sized>(lock: &L, name: &str, act: impl FnOnce(&Hold)) {
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let (done, wait) = channel::<()>();
        let holder = scope.spawn(move || {
            assert!(lock.try_lock_for(name, LONG).unwrap());
            let hold = lock.hold(name).unwrap();
            tell.send(hold.clone()).unwrap();
            let _ = wait.recv();
            assert!(lock.verify(&hold).unwrap(), "the lock was taken away");
            lock.unlock(name).unwrap();
        });
        act(&told.recv().expect("the other thread holds it"));
        drop(done);
        finish(holder);
    });
}

/// Waits until a hold's lease has run out.
#[track_caller]
pub fn run_out(hold: &Hold) {
    assert_eq!(hold.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
}

/// The names of the library's threads in this process, as far as the system shows them: 15 characters.
/// While other threads end, the list may lack one that runs: ask [`eventually`].
pub fn of_redlatch() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    let mut names: Vec<_> =
        names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("redlatch")).collect();
    names.sort();
    names
}
