//! Threads that share a tenure: they have it together, and with nobody else; the last one ends it, and nobody is forgotten.

use crate::base::config::HandOff;
use crate::base::kind::Kind;
use crate::base::time::Moment;
use crate::beliefs::held;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::queue::Nobody;
use crate::registry::{Entered, Left, Lent, Registry};
use crate::sync::thread;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use uuid::Uuid;

static READ: Kind = Kind { name: "read lock", passed_on: true, shared: true };
static WRITE: Kind = Kind { name: "write lock", passed_on: false, shared: false };

/// One lock of one process, for readers that share and writers that are alone.
struct Process {
    map: Registry,
    /// Which tenure threads have now, and how many. Locked outside of the scheduler, so that it orders nothing.
    having: Mutex<(u64, usize)>,
    shared: Mutex<usize>,
}

impl Process {
    fn new() -> Arc<Self> {
        Arc::new(Self { map: Registry::new(), having: Mutex::default(), shared: Mutex::default() })
    }

    fn begins(&self, tenure: &Tenure) {
        let mut having = self.having.lock().unwrap();
        assert!(having.1 == 0 || having.0 == tenure.serial(), "another tenure is not over");
        *having = (tenure.serial(), having.1 + 1);
        *self.shared.lock().unwrap() += usize::from(having.1 > 1);
    }

    fn ends(&self) {
        self.having.lock().unwrap().1 -= 1;
    }

    fn lock(&self, kind: &'static Kind) -> Hold {
        let hold = self.wait(kind);
        self.begins(hold.tenure());
        hold
    }

    fn wait(&self, kind: &'static Kind) -> Hold {
        let takes = kind.shared.then_some(kind);
        if let Some(Entered::Granted(hold)) = self.map.glance(Uuid::nil(), "n", takes) {
            return hold;
        }
        let waiter = Lent::new(takes);
        let mut entered = self.map.enter(Uuid::nil(), "n", &waiter);
        loop {
            match entered {
                Entered::Granted(hold) => {
                    assert!(matches!(self.map.leave(Uuid::nil(), "n", &waiter), Left::Nothing));
                    return hold;
                }
                Entered::Head => return self.acquire(kind, &waiter),
                _ => {}
            }
            waiter.semaphore.acquire(Duration::MAX);
            entered = self.map.turn(Uuid::nil(), "n", &waiter);
        }
    }

    fn acquire(&self, kind: &'static Kind, waiter: &Lent) -> Hold {
        let hold = Hold::new(Uuid::nil(), kind, held(), Weak::<Nobody>::new(), true);
        self.map.settle(Uuid::nil(), "n", &hold);
        if kind.shared {
            self.map.open(Uuid::nil(), &hold, Moment::MAX);
        }
        if let Left::Unclaimed(hold) = self.map.leave(Uuid::nil(), "n", waiter) {
            self.map.clear(Uuid::nil(), &hold);
        }
        hold
    }

    fn unlock(&self, hold: &Hold) {
        self.ends();
        if self.map.pass_on(Uuid::nil(), hold, &HandOff::default().passes(2), Duration::from_secs(3)) {
            return;
        }
        assert!(hold.tenure().end(), "nobody lost it");
        hold.close(true);
        self.map.clear(Uuid::nil(), hold);
    }
}

fn reads(process: &Process) {
    let hold = process.lock(&READ);
    assert!(hold.is_valid() && hold.tenure().is_watched());
    process.unlock(&hold);
}

fn writes(process: &Process) {
    let hold = process.lock(&WRITE);
    process.unlock(&hold);
}

fn reads_twice(process: &Process) {
    reads(process);
    reads(process);
}

fn all<const N: usize>(roles: [fn(&Process); N]) -> Arc<Process> {
    let process = Process::new();
    let threads = roles.map(|role| {
        let process = Arc::clone(&process);
        thread::spawn(move || role(&process))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(process.map.census(Uuid::nil()), (0, 0));
    assert!(process.map.holds(Uuid::nil()).is_empty());
    process
}

pub(crate) fn readers_have_one_tenure_and_writers_their_own() {
    all([reads, writes, reads_twice, writes, reads]);
}

pub(crate) fn readers_share_in_some_order() {
    static EVER: Mutex<usize> = Mutex::new(0);
    let process = all([reads_twice, reads_twice, reads]);
    let mut ever = EVER.lock().unwrap();
    *ever += *process.shared.lock().unwrap();
    println!("shared so far: {ever}");
}

pub(crate) fn a_loss_is_of_all_who_share() {
    let process = Process::new();
    let first = process.lock(&READ);
    let others = [0; 2].map(|_| {
        let process = Arc::clone(&process);
        thread::spawn(move || {
            let hold = process.lock(&READ);
            process.ends();
            let is_shared = !hold.tenure().is_valid() || hold.is_valid();
            assert!(is_shared);
            hold
        })
    });
    let others = others.map(|other| other.join().unwrap());
    process.ends();
    first.tenure().lose();
    let told = process.map.lose(Uuid::nil(), first.tenure());
    assert_eq!(told.len(), 3, "each of them");
    assert!(process.map.lose(Uuid::nil(), first.tenure()).is_empty(), "once");
    for hold in others.iter().chain([&first]) {
        hold.close(false);
        process.map.clear(Uuid::nil(), hold);
    }
    assert!(process.map.is_idle(Uuid::nil(), "n"));
}
