//! The map of this process and its queue: each waiter's turn comes, one at a time, whoever leaves and however.

use crate::beliefs::held;
use crate::config::HandOff;
use crate::hold::Hold;
use crate::registry::{Entered, Left, Lent, Registry, Waiter};
use crate::sync::{advance, thread};
use crate::tenure::{Keeper, LossCause, Tenure};
use crate::time::Lease;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

struct Nobody;

impl Keeper for Nobody {
    fn renew(&self, _: &[Arc<Tenure>]) {}
    fn sweep(&self, _: &Arc<Tenure>) -> crate::error::Result<()> {
        Ok(())
    }
    fn lost(&self, _: &Arc<Tenure>, _: LossCause) {}
    fn extend(&self, _: &Arc<Tenure>, _: Lease) -> crate::error::Result<()> {
        Ok(())
    }
}

/// One lock of one process.
struct Process {
    map: Registry,
    space: Uuid,
    /// Threads that contend or hold: never two. Counted outside of the scheduler, so that it orders nothing.
    alone: AtomicUsize,
    turns: AtomicUsize,
    bounds: Duration,
}

/// How a thread's turn begins.
enum Turn {
    Contends(Lent),
    /// The tenure was passed on to it.
    Holds(Hold),
}

impl Process {
    fn new() -> Arc<Self> {
        let (alone, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // Half of the orders keep the tenure for whoever comes next, half grant it to the first in the queue.
        let bounds =
            if shuttle::rand::Rng::r#gen(&mut shuttle::rand::thread_rng()) { Duration::MAX } else { Duration::ZERO };
        Arc::new(Self { map: Registry::new(), space: Uuid::nil(), alone, turns, bounds })
    }

    /// Comes to the lock and waits for its turn, as src/lock/wait.rs does; `None`: its time was over first.
    fn turn(&self, limit: Duration) -> Option<Turn> {
        let waiter = Lent::new(true);
        let mut entered = self.map.enter(self.space, "n", &waiter);
        let mut woken = true;
        loop {
            match entered {
                Entered::Mine(_) => panic!("this thread holds nothing"),
                Entered::Head => return Some(self.begin(Turn::Contends(waiter))),
                Entered::Granted(hold) => {
                    let _ = self.map.leave(self.space, "n", &waiter);
                    return Some(self.begin(Turn::Holds(hold)));
                }
                _ if !woken => {
                    self.take_back(self.map.leave(self.space, "n", &waiter));
                    return None;
                }
                _ => {}
            }
            woken = waiter.semaphore.acquire(limit);
            entered = self.map.turn(self.space, "n", &waiter);
        }
    }

    fn begin(&self, turn: Turn) -> Turn {
        assert_eq!(self.alone.fetch_add(1, SeqCst), 0, "someone else contends or holds");
        self.turns.fetch_add(1, SeqCst);
        turn
    }

    /// What a waiter was granted when it had given up, or what nobody came for, is released.
    fn take_back(&self, left: Left) {
        match left {
            Left::Nothing => {}
            Left::Granted(hold) => {
                self.begin(Turn::Holds(hold.clone()));
                self.unlock(&hold);
            }
            Left::Unclaimed(hold) => self.map.clear(self.space, &hold),
        }
    }

    fn leave(&self, waiter: &Arc<Waiter>) {
        self.take_back(self.map.leave(self.space, "n", waiter));
    }

    /// The thread's turn ends without the lock: timed out, cancelled, failed.
    fn give_up(&self, turn: &Turn) {
        match turn {
            Turn::Holds(hold) => self.unlock(hold),
            Turn::Contends(waiter) => {
                self.alone.fetch_sub(1, SeqCst);
                self.leave(waiter);
            }
        }
    }

    /// The thread acquires the lock.
    fn settle(&self, turn: &Turn) -> Hold {
        let waiter = match turn {
            Turn::Holds(hold) => return hold.clone(),
            Turn::Contends(waiter) => waiter,
        };
        let hold = Hold::new(self.space, held(), Weak::<Nobody>::new(), true);
        self.map.settle(self.space, "n", &hold);
        self.leave(waiter);
        hold
    }

    fn unlock(&self, hold: &Hold) {
        self.alone.fetch_sub(1, SeqCst);
        let bounds = HandOff { passes: 2, within: Duration::MAX, turn: self.bounds, give_way: Duration::ZERO };
        if self.map.pass_on(self.space, hold, &bounds, Duration::from_secs(3)) {
            return;
        }
        assert!(hold.tenure().end(), "nobody lost it");
        hold.close(true);
        self.map.clear(self.space, hold);
    }

    /// The hold's end is noticed elsewhere, by the watchdog for example.
    fn lose(&self, hold: &Hold) -> bool {
        hold.tenure().lose();
        self.map.lose(self.space, hold.tenure()).is_some()
    }

    fn assert_empty(&self) {
        assert_eq!(self.map.census(self.space), (0, 0));
        assert!(self.map.holds(self.space).is_empty());
    }
}

fn all<const N: usize>(process: &Arc<Process>, roles: [fn(&Process); N]) {
    let threads = roles.map(|role| {
        let process = Arc::clone(process);
        thread::spawn(move || role(&process))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    process.assert_empty();
}

fn locks_and_unlocks(process: &Process) {
    let waiter = process.turn(Duration::MAX).unwrap();
    let hold = process.settle(&waiter);
    assert!(process.map.believed(process.space, "n").pop().is_some_and(|current| current.is(&hold)));
    process.unlock(&hold);
}

/// It waits with the same waiter as before, which whoever woke it then must not have any more.
fn locks_twice(process: &Process) {
    locks_and_unlocks(process);
    locks_and_unlocks(process);
}

fn gives_up_as_head(process: &Process) {
    let waiter = process.turn(Duration::MAX).unwrap();
    process.give_up(&waiter);
}

/// Time may have passed before it came: then its turn alone ends its waiting.
fn has_little_time(process: &Process) {
    if let Some(waiter) = process.turn(Duration::from_secs(1)) {
        process.give_up(&waiter);
    }
}

/// Its hold is lost under it; it unlocks after the next one may have come.
fn loses(process: &Process) {
    let waiter = process.turn(Duration::MAX).unwrap();
    let hold = process.settle(&waiter);
    process.alone.fetch_sub(1, SeqCst);
    let told = process.lose(&hold);
    assert_eq!((told, process.lose(&hold)), (true, false), "told to one");
    let found = process.map.find(process.space, "n", thread::current().id());
    assert!(found.is_some_and(|found| found.is(&hold)), "a lost hold stays until it is unlocked");
    hold.close(false);
    process.map.clear(process.space, &hold);
}

pub(crate) fn each_waiter_has_its_turn_alone() {
    let process = Process::new();
    all(&process, [locks_and_unlocks, locks_and_unlocks, locks_and_unlocks]);
    assert_eq!(process.turns.load(SeqCst), 3);
}

pub(crate) fn who_comes_again_has_its_turn_too() {
    let process = Process::new();
    all(&process, [locks_twice, locks_and_unlocks, locks_twice]);
    assert_eq!(process.turns.load(SeqCst), 5);
}

pub(crate) fn a_head_that_leaves_wakes_the_next() {
    let process = Process::new();
    all(&process, [gives_up_as_head, locks_and_unlocks, gives_up_as_head, locks_and_unlocks]);
    assert_eq!(process.turns.load(SeqCst), 4);
}

pub(crate) fn a_time_out_takes_nobodys_turn() {
    let process = Process::new();
    let passing = thread::spawn(|| advance(Duration::from_secs(2)));
    all(&process, [has_little_time, locks_and_unlocks, has_little_time, gives_up_as_head]);
    passing.join().unwrap();
    assert!(process.turns.load(SeqCst) >= 2);
}

pub(crate) fn a_loss_lets_the_next_one_through() {
    let process = Process::new();
    all(&process, [loses, locks_and_unlocks, gives_up_as_head]);
    assert_eq!(process.turns.load(SeqCst), 3);
}

pub(crate) fn nobody_waits_for_the_unlock_of_what_was_lost() {
    let process = Process::new();
    let waiter = process.turn(Duration::MAX).unwrap();
    let hold = process.settle(&waiter);
    let others = [locks_and_unlocks, gives_up_as_head].map(|role| {
        let process = Arc::clone(&process);
        thread::spawn(move || role(&process))
    });
    process.alone.fetch_sub(1, SeqCst);
    assert!(process.lose(&hold));
    others.into_iter().for_each(|thread| thread.join().unwrap());
    hold.close(false);
    process.map.clear(process.space, &hold);
    process.assert_empty();
}
