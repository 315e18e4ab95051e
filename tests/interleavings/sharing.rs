//! Threads that share a tenure: they have it together; the last one ends it, who cannot share has its own, and nobody waits.

use crate::base::config::HandOff;
use crate::base::kind::Kind;
use crate::base::meters::Meters;
use crate::base::time::Moment;
use crate::beliefs::{held, lease};
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::queue::Nobody;
use crate::registry::{Entered, LeftBehind, Lent, Registry};
use crate::sync::thread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use uuid::Uuid;

static READ: Kind = Kind { passed_on: false, shared: true, ..Kind::new("read lock") };

/// One lock of one process, for readers that share what they can.
struct Process {
    map: Registry,
    /// How many threads have each tenure. Locked outside of the scheduler, so that it orders nothing.
    having: Mutex<BTreeMap<u64, usize>>,
    /// The tenures of which the watchdog was told that they are not to be renewed. As above.
    unwatched: Mutex<BTreeSet<u64>>,
    shared: Mutex<usize>,
}

impl Process {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            map: Registry::new(),
            having: Mutex::default(),
            unwatched: Mutex::default(),
            shared: Mutex::default(),
        })
    }

    fn begins(&self, tenure: &Tenure) {
        assert!(tenure.is_valid(), "it has ended");
        let mut having = self.having.lock().unwrap();
        let count = having.entry(tenure.serial()).or_default();
        *count += 1;
        *self.shared.lock().unwrap() += usize::from(*count > 1);
    }

    fn ends(&self, tenure: &Tenure) {
        *self.having.lock().unwrap().get_mut(&tenure.serial()).unwrap() -= 1;
    }

    fn lock(&self, takes: Option<&'static Kind>) -> Hold {
        let hold = self.wait(takes);
        self.begins(hold.tenure());
        hold
    }

    fn wait(&self, takes: Option<&'static Kind>) -> Hold {
        match self.map.glance(Uuid::nil(), "n", takes) {
            Some(Entered::Granted(hold)) => return hold,
            Some(Entered::Sibling) => panic!("others read, which is no reason not to ask"),
            _ => {}
        }
        let waiter = Lent::new(takes);
        let mut entered = self.map.enter(Uuid::nil(), "n", &waiter);
        loop {
            match entered {
                Entered::Granted(hold) => {
                    assert!(matches!(self.map.leave(Uuid::nil(), "n", &waiter), LeftBehind::Nothing));
                    return hold;
                }
                Entered::Head => return self.acquire(takes, &waiter),
                _ => {}
            }
            waiter.semaphore.acquire(Duration::MAX);
            entered = self.map.turn(Uuid::nil(), "n", &waiter);
        }
    }

    fn acquire(&self, takes: Option<&'static Kind>, waiter: &Lent) -> Hold {
        let hold = Hold::new(
            Uuid::nil(),
            &READ,
            held(),
            Weak::<Nobody>::new(),
            Some(lease()),
            &Meters::default().of_kind("lock"),
        );
        self.map.settle(Uuid::nil(), "n", &hold);
        if takes.is_some() {
            self.map.open(Uuid::nil(), &hold, Moment::MAX);
        }
        assert!(matches!(self.map.leave(Uuid::nil(), "n", waiter), LeftBehind::Nothing));
        hold
    }

    fn unlock(&self, hold: &Hold) {
        self.ends(hold.tenure());
        let few = HandOff { passes: 2, ..HandOff::default() };
        if self.map.pass_on(Uuid::nil(), hold, &few, Duration::from_secs(3)) {
            return;
        }
        assert!(hold.tenure().end(), "nobody lost it");
        assert_eq!(self.having.lock().unwrap()[&hold.tenure().serial()], 0, "somebody has it");
        hold.close(true);
        self.map.clear(Uuid::nil(), hold);
    }
}

fn reads(process: &Process) {
    let hold = process.lock(Some(&READ));
    assert!(hold.is_valid() && hold.tenure().is_watched());
    process.unlock(&hold);
}

/// For a lease of its own, which it shares with nobody.
fn reads_alone(process: &Process) {
    let hold = process.lock(None);
    assert_eq!(process.having.lock().unwrap()[&hold.tenure().serial()], 1);
    process.unlock(&hold);
}

/// A writer comes: who comes after it shares nothing that was there.
fn shuts(process: &Process) {
    process.map.shut(Uuid::nil(), "n");
}

/// The level that is renewed ends before one that is not, as guards may.
fn reads_on_without_renewals(process: &Process) {
    let hold = process.lock(Some(&READ));
    let leased = hold.deepen(2, None);
    hold.ascend();
    process.map.follow(Uuid::nil(), &hold);
    if !hold.tenure().is_watched() {
        process.unwatched.lock().unwrap().insert(hold.tenure().serial());
    }
    process.unlock(&leased);
}

/// Whoever comes to share what is watched stays among what the watchdog renews.
fn reads_what_is_renewed(process: &Process) {
    let hold = process.lock(Some(&READ));
    thread::yield_now();
    assert!(!process.unwatched.lock().unwrap().contains(&hold.tenure().serial()), "it is renewed no longer");
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

pub(crate) fn no_reader_waits_for_another() {
    all([reads, reads_alone, reads_twice, shuts, reads_alone, reads]);
}

pub(crate) fn who_shares_a_tenure_is_renewed() {
    all([reads_on_without_renewals, reads_what_is_renewed, reads_on_without_renewals, reads_what_is_renewed]);
}

/// It has the lock all the time.
pub(crate) fn who_stays_keeps_nobody_waiting() {
    let process = Process::new();
    let staying = process.lock(None);
    let others = [reads, reads_twice, reads_alone].map(|role| {
        let process = Arc::clone(&process);
        thread::spawn(move || role(&process))
    });
    others.into_iter().for_each(|other| other.join().unwrap());
    process.unlock(&staying);
    assert!(process.map.is_idle(Uuid::nil(), "n"));
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
    let first = process.lock(Some(&READ));
    let others = [0; 2].map(|_| {
        let process = Arc::clone(&process);
        thread::spawn(move || {
            let hold = process.lock(Some(&READ));
            process.ends(hold.tenure());
            let is_shared = !hold.tenure().is_valid() || hold.is_valid();
            assert!(is_shared);
            hold
        })
    });
    let others = others.map(|other| other.join().unwrap());
    process.ends(first.tenure());
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
