//! Random sequences of calls of three threads on three names: the locks on Redis, those in memory and the model give
//! the same answers and show the same after each.

use super::check;
use super::model::{Answer, Call, Found, LEASES, Model, NAMES, Seen, State, THREADS, Verb};
use crate::server::Server;
use crate::threads::{LONG, ms};
use proptest::collection::vec;
use proptest::prelude::*;
use redlatch::{CancelToken, Error, Hold, HoldState, LocalRedLock, LockGuard, RedLock, RedLockExt};
use redlatch::{ReentrantLock, Reentry};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;
use std::time::Duration;

type Any = dyn RedLock;
type Guards<'l> = Vec<LockGuard<'l, Any>>;

/// What a thread is asked to do, with the hold that the call is about.
struct Task {
    call: Call,
    hold: Option<Hold>,
    /// How long a wait may take: what is busy is so without the wire, and what is free has the time it takes.
    wait: Duration,
}

/// A thread that makes calls one by one, and keeps its guards.
struct Worker {
    id: ThreadId,
    tasks: Sender<Task>,
    answers: Receiver<Answer>,
    handle: std::thread::JoinHandle<()>,
}

impl Worker {
    fn start(locks: &Arc<Any>) -> Self {
        let ((tasks, todo), (tell, answers)) = (channel(), channel());
        let locks = Arc::clone(locks);
        let handle = std::thread::spawn(move || work(&*locks, &todo, &tell));
        Self { id: handle.thread().id(), tasks, answers, handle }
    }

    fn answer(&self) -> Answer {
        self.answers.recv_timeout(LONG).unwrap_or_else(|_| panic!("the call hangs or panicked"))
    }

    /// Ends it; it gives back what it holds.
    fn finish(self) {
        drop(self.tasks);
        self.handle.join().unwrap();
    }
}

fn work(locks: &Any, todo: &Receiver<Task>, tell: &Sender<Answer>) {
    let mut guards = Vec::new();
    for task in todo {
        let _ = tell.send(run(locks, task, &mut guards));
    }
    drop(guards);
    for name in NAMES {
        while locks.hold_count(name) > 0 {
            let _ = locks.unlock(name);
        }
    }
}

fn run<'l>(locks: &'l Any, task: Task, guards: &mut Guards<'l>) -> Answer {
    let (name, hold) = (NAMES[task.call.name], task.hold.as_ref());
    let lease = |lease: usize| Duration::from_secs(LEASES[lease]);
    match task.call.verb {
        Verb::Lock | Verb::TakeOver => done(locks.lock(name)),
        Verb::TryLock => bool(locks.try_lock(name)),
        Verb::TryLockFor => bool(locks.try_lock_for(name, task.wait)),
        Verb::TryLockWithLease(seconds) => bool(locks.try_lock_for_with_lease(name, task.wait, lease(seconds))),
        Verb::LockCancelled => done(locks.lock_cancellable(name, &cancelled())),
        Verb::Guard => guard(locks.try_guard(name), guards),
        Verb::GuardWithLease(seconds) => {
            guard(locks.request(name).wait(task.wait).lease(lease(seconds)).guard(), guards)
        }
        Verb::Unlock => done(locks.unlock(name)),
        Verb::DropGuard(at) => {
            drop(take(guards, at));
            Answer::Done
        }
        Verb::UnlockGuard(at) => take(guards, at).map_or(Answer::Done, |guard| done(guard.unlock())),
        Verb::Release(_) => done(locks.release(hold.unwrap())),
        Verb::Extend(_, seconds) => done(hold.unwrap().extend(lease(seconds))),
        Verb::Verify(_) => bool(locks.verify(hold.unwrap())),
        Verb::ForceUnlock => bool(locks.force_unlock(name)),
        Verb::IsLocked => bool(locks.is_locked(name)),
        Verb::TimeToLive => match locks.remaining_time_to_live(name) {
            Ok(left) => Answer::Lasts(left.map(round)),
            Err(error) => failed(&error),
        },
    }
}

fn cancelled() -> CancelToken {
    let token = CancelToken::new();
    token.cancel();
    token
}

fn guard<'l>(guard: redlatch::Result<Option<LockGuard<'l, Any>>>, guards: &mut Guards<'l>) -> Answer {
    bool(guard.map(|guard| {
        let got = guard.is_some();
        guards.extend(guard);
        got
    }))
}

fn take<'l>(guards: &mut Guards<'l>, at: usize) -> Option<LockGuard<'l, dyn RedLock>> {
    (!guards.is_empty()).then(|| guards.remove(at % guards.len()))
}

fn done(result: redlatch::Result<()>) -> Answer {
    result.map_or_else(|error| failed(&error), |()| Answer::Done)
}

fn bool(result: redlatch::Result<bool>) -> Answer {
    result.map_or_else(|error| failed(&error), Answer::Bool)
}

fn failed(error: &Error) -> Answer {
    match error {
        Error::NotHeld { .. } => Answer::NotHeld,
        Error::Lost { .. } => Answer::Lost,
        Error::Cancelled { .. } => Answer::Cancelled,
        _ => Answer::Other,
    }
}

/// Up to the next lease, of which a sequence of calls uses up a little only.
fn round(left: Duration) -> u64 {
    let left = u64::try_from(left.as_nanos()).unwrap();
    left.div_ceil(LEASES[0] * 1_000_000_000) * LEASES[0]
}

/// So long after its acquire a lock goes back to its store before another thread gets it.
const NO_LONGER_PASSED_ON: Duration = Duration::from_millis(6);

/// One kind of lock, its threads, and every hold that there was.
struct World {
    locks: Arc<Any>,
    workers: Vec<Worker>,
    holds: Vec<Hold>,
}

impl World {
    fn new(locks: Arc<Any>) -> Self {
        let workers = (0..THREADS).map(|_| Worker::start(&locks)).collect();
        Self { locks, workers, holds: Vec::new() }
    }

    fn ask(&self, call: Call, waits: bool) {
        let hold = match call.verb {
            Verb::Release(hold) | Verb::Extend(hold, _) | Verb::Verify(hold) => Some(self.holds[hold].clone()),
            _ => None,
        };
        self.workers[call.thread].tasks.send(Task { call, hold, wait: if waits { ms(2) } else { LONG } }).unwrap();
    }

    /// Makes a call on a lock that is held by this thread so many times over; it gives it back to who takes over.
    fn answer(&self, call: Call, holder: Option<(usize, usize)>) -> Answer {
        self.ask(call, holder.is_some());
        if let (Verb::TakeOver, Some((holder, count))) = (call.verb, holder) {
            // Passed on in memory it would have what is left of the last lease: the model knows new leases only.
            std::thread::sleep(NO_LONGER_PASSED_ON);
            for _ in 0..count {
                let unlock = Call { thread: holder, verb: Verb::Unlock, ..call };
                self.ask(unlock, false);
                assert_eq!(self.workers[holder].answer(), Answer::Done, "{unlock:?}");
            }
        }
        self.workers[call.thread].answer()
    }

    /// Keeps a hold that has just begun.
    fn keep(&mut self, hold: Seen) {
        let hold = self.locks.hold_of(NAMES[hold.name], self.workers[hold.thread].id);
        self.holds.push(hold.expect("a hold has begun"));
    }

    fn found(&self, thread: usize, name: usize) -> Found {
        let hold = self.locks.hold_of(NAMES[name], self.workers[thread].id);
        let valid = self.locks.is_held_by_thread(NAMES[name], self.workers[thread].id);
        (hold.map_or(0, |hold| hold.count()), valid)
    }

    fn seen(&self) -> Vec<Seen> {
        self.holds.iter().map(|hold| self.see(hold)).collect()
    }

    fn see(&self, hold: &Hold) -> Seen {
        let state = match hold.state() {
            HoldState::Held => State::Held,
            HoldState::Lost => State::Lost,
            HoldState::Released => State::Released,
            HoldState::Suspect => panic!("no renewal failed"),
        };
        assert_eq!(hold.is_valid(), state == State::Held);
        let thread = self.workers.iter().position(|worker| worker.id == hold.thread()).unwrap();
        let name = NAMES.iter().position(|name| *name == hold.resource()).unwrap();
        Seen { thread, name, count: hold.count(), state, lasts: round(hold.remaining()) }
    }

    /// Ends the threads, after which nothing is locked.
    fn finish(self) {
        self.workers.into_iter().for_each(Worker::finish);
        for name in NAMES {
            assert!(!self.locks.is_locked(name).unwrap(), "{name} is still locked");
        }
    }
}

/// A call that can be made as things are: nobody waits in vain, and holds are those that there are.
fn fitted(call: Call, model: &Model) -> Option<Call> {
    let holds = model.holds.len();
    let verb = match call.verb {
        Verb::Lock if model.waits(call.thread, call.name) => Verb::TryLock,
        Verb::Release(_) | Verb::Extend(..) | Verb::Verify(_) if holds == 0 => return None,
        Verb::Release(hold) => Verb::Release(hold % holds),
        Verb::Extend(hold, lease) => Verb::Extend(hold % holds, lease),
        Verb::Verify(hold) => Verb::Verify(hold % holds),
        verb => verb,
    };
    Some(Call { verb, ..call })
}

/// Makes the calls on all, and compares after each.
fn run_all(calls: &[Call], server: &Server, reentry: Reentry) {
    // What a sequence that failed leaves behind is not found by the next, shorter one.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let prefix = format!("{}:", NUMBER.fetch_add(1, Relaxed));
    let redis = ReentrantLock::new(&server.builder().reentry(reentry).key_prefix(&*prefix).build().unwrap());
    let mut worlds = [("Redis", World::new(Arc::new(redis))), ("memory", World::new(Arc::new(LocalRedLock::new())))];
    let (mut model, mut made) = (Model::default(), Vec::new());
    for call in calls {
        let Some(call) = fitted(*call, &model) else { continue };
        let holder = model.holder(call.name).filter(|_| model.waits(call.thread, call.name));
        let holder = holder.map(|hold| (model.holds[hold].thread, model.holds[hold].count));
        let before = model.holds.len();
        let right = model.answer(call);
        made.push(format!("{call:?} -> {right:?}"));
        for (kind, world) in &mut worlds {
            let story = || format!("{kind} after\n  {}", made.join("\n  "));
            assert_eq!(world.answer(call, holder), right, "the answer of {}", story());
            model.holds[before..].iter().for_each(|hold| world.keep(*hold));
            assert_eq!(world.seen(), model.holds, "the holds of {}", story());
            for (thread, name) in (0..THREADS * NAMES.len()).map(|at| (at % THREADS, at / THREADS)) {
                let found = (world.found(thread, name), model.found(thread, name));
                assert_eq!(found.0, found.1, "what thread {thread} finds under {} in {}", NAMES[name], story());
            }
        }
        assert_mirrored(&NAMES.map(|name| server.ask(&["HVALS", &[&*prefix, name].concat()])), &model, reentry, &made);
    }
    worlds.into_iter().for_each(|(_, world)| world.finish());
}

/// That the server has the locks that are held, and no others, with their depths where it is told of them.
fn assert_mirrored(depths: &[Vec<usize>], model: &Model, reentry: Reentry, made: &[String]) {
    let right = |name: usize| model.holder(name).map(|hold| model.holds[hold].count);
    for (name, depth) in depths.iter().enumerate() {
        let alike = match reentry {
            Reentry::Mirrored => *depth == Vec::from_iter(right(name)),
            _ => depth.len() == right(name).iter().len(),
        };
        assert!(alike, "{} on the server: {depth:?} after\n  {}", NAMES[name], made.join("\n  "));
    }
}

fn verb() -> impl Strategy<Value = Verb> {
    let (number, lease) = (0..6_usize, 0..LEASES.len());
    prop_oneof![
        3 => Just(Verb::Lock),
        3 => Just(Verb::TryLock),
        1 => Just(Verb::TryLockFor),
        2 => lease.clone().prop_map(Verb::TryLockWithLease),
        1 => Just(Verb::LockCancelled),
        3 => Just(Verb::Guard),
        2 => lease.clone().prop_map(Verb::GuardWithLease),
        5 => Just(Verb::Unlock),
        3 => number.clone().prop_map(Verb::DropGuard),
        2 => number.clone().prop_map(Verb::UnlockGuard),
        3 => number.clone().prop_map(Verb::Release),
        2 => (number.clone(), lease).prop_map(|(hold, lease)| Verb::Extend(hold, lease)),
        2 => number.prop_map(Verb::Verify),
        2 => Just(Verb::ForceUnlock),
        1 => Just(Verb::IsLocked),
        2 => Just(Verb::TimeToLive),
        2 => Just(Verb::TakeOver),
    ]
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = (0..THREADS, 0..NAMES.len(), verb()).prop_map(|(thread, name, verb)| Call { thread, name, verb });
    vec(call, 1..40)
}

#[test]
fn redis_memory_and_model_agree() {
    let server = Server::start();
    check(150, calls(), |calls| run_all(&calls, &server, Reentry::Mirrored));
    server.clear();
}

#[test]
fn redis_memory_and_model_agree_without_mirrored_levels() {
    let server = Server::start();
    check(60, calls(), |calls| run_all(&calls, &server, Reentry::Local));
    server.clear();
}
