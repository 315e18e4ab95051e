//! The map of this process and its line: each waiter's turn comes, one at a time, whoever leaves and however.

use crate::base::config::{Config, HandOff, Settings};
use crate::base::error::{Error, Result};
use crate::base::kind::Kind;
use crate::base::meters::Meters;
use crate::base::signal::{CancelToken, Listening, Semaphore, Shutdown};
use crate::base::stats::{Contention, Counters};
use crate::base::stop::Stop;
use crate::base::time::{Clock, Lease};
use crate::beliefs::{held, key, lease};
use crate::lease::hold::Hold;
use crate::lease::tenure::{Keeper, LossCause, Tenure};
use crate::registry::{LeftBehind, Lent, Registry};
use crate::store::Store;
use crate::sync::{advance, thread};
use crate::waiting::bid::{Bid, Call};
use crate::waiting::line::{Backing, Line};
use crate::waiting::wait::Outcome;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;

/// No poll ends a sleep: whoever is not told sleeps for ever.
const NEVER: Duration = Duration::from_secs(1_000_000);

static KIND: Kind = Kind::new("lock");

pub(crate) struct Nobody;

impl Keeper for Nobody {
    fn renew(&self, _: &[Arc<Tenure>]) {}
    fn verify(&self, _: &[Arc<Tenure>]) {}

    fn sweep(&self, _: &Arc<Tenure>) -> crate::base::error::Result<()> {
        Ok(())
    }
    fn lost(&self, _: &Arc<Tenure>, _: LossCause) {}
    fn extend(&self, _: &Arc<Tenure>, _: Lease) -> crate::base::error::Result<()> {
        Ok(())
    }
}

/// One lock of one process.
struct Process {
    map: Registry,
    space: Uuid,
    store: Arc<Store>,
    /// Threads that contend or hold: never two. Counted outside of the scheduler, so that it orders nothing.
    alone: AtomicUsize,
    turns: AtomicUsize,
    bounds: Duration,
    config: Config,
    counters: Counters,
    shutdown: Shutdown,
}

/// What a thread bids at the head of the line: it takes the lock, or gives up though it could.
struct Turn<'a> {
    process: &'a Process,
    takes: bool,
}

impl Bid for Turn<'_> {
    type Won = Hold;

    fn ask(&mut self) -> Result<Outcome<Hold>> {
        if !self.takes {
            return Err(Error::cancelled("n"));
        }
        Ok(if self.process.store.take() { Outcome::Won(self.process.settle()) } else { Outcome::Busy(None) })
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        Some(self.process.store.listen(semaphore))
    }

    fn withdraw(&mut self) {
        self.process.store.withdraw();
    }
}

impl Backing for Process {
    fn accept(&self, _: &Hold) -> Result<bool> {
        self.begin();
        Ok(true)
    }

    /// What a waiter was granted when it had given up, or what nobody came for, is released.
    fn take_back(&self, left: LeftBehind) {
        match left {
            LeftBehind::Nothing => {}
            LeftBehind::Granted(hold) => {
                self.begin();
                self.unlock(&hold);
            }
            LeftBehind::Unclaimed(hold) => {
                self.store.free();
                self.map.clear(self.space, &hold);
            }
        }
    }

    fn check_outage(&self) -> Result<()> {
        Ok(())
    }
}

impl Process {
    fn new() -> Arc<Self> {
        Self::at(&Arc::default())
    }

    fn at(store: &Arc<Store>) -> Arc<Self> {
        let (alone, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // Half of the orders keep the tenure for whoever comes next, half grant it to the first in the queue.
        let bounds =
            if shuttle::rand::Rng::r#gen(&mut shuttle::rand::thread_rng()) { Duration::MAX } else { Duration::ZERO };
        Arc::new(Self {
            map: Registry::new(),
            space: Uuid::nil(),
            store: Arc::clone(store),
            alone,
            turns,
            bounds,
            config: Settings { poll_cap: Some(NEVER), ..Settings::default() }.derive().expect("it fits together"),
            counters: Counters::default(),
            shutdown: Shutdown::default(),
        })
    }

    /// Comes to the lock and waits in line, by the code that every lock waits by.
    fn wait(&self, limit: Duration, token: Option<&CancelToken>, takes: bool) -> Result<Option<Hold>> {
        let (waiter, key) = (&Lent::new(Some(&KIND)), &key());
        let deadline = (limit != Duration::MAX).then(|| Clock::Boot.now().plus(limit));
        let stop = Stop::new(&Clock::Boot, &self.shutdown, "n").at(deadline).cancelled_by(token);
        let stop = &stop.woken_by(&waiter.semaphore);
        let contention = &Contention::new(&self.counters);
        let call = &Call { config: &self.config, stop, contention, semaphore: &waiter.semaphore };
        let line = Line { registry: &self.map, space: self.space, name: key.shared(), waiter, call, backing: self };
        let contend = || {
            self.begin();
            let won = call.contend(&mut Turn { process: self, takes });
            if !matches!(won, Ok(Some(_))) {
                self.alone.fetch_sub(1, SeqCst);
            }
            won
        };
        line.wait(contend, Some)
    }

    fn lock(&self) -> Hold {
        self.wait(Duration::MAX, None, true).ok().flatten().expect("it waits for ever")
    }

    /// A call that goes without the lock when its turn comes: cancelled, failed. What it was granted it releases.
    fn give_up(&self, limit: Duration) {
        if let Ok(Some(hold)) = self.wait(limit, None, false) {
            self.unlock(&hold);
        }
    }

    fn begin(&self) {
        assert_eq!(self.alone.fetch_add(1, SeqCst), 0, "someone else contends or holds");
        self.turns.fetch_add(1, SeqCst);
    }

    /// The thread acquired the lock.
    fn settle(&self) -> Hold {
        let hold = Hold::new(
            self.space,
            &KIND,
            held(),
            Weak::<Nobody>::new(),
            Some(lease()),
            &Meters::default().of_kind("lock"),
        );
        self.map.settle(self.space, "n", &hold);
        hold
    }

    fn unlock(&self, hold: &Hold) {
        self.alone.fetch_sub(1, SeqCst);
        let few = HandOff { passes: 2, turn: self.bounds, ..HandOff::default() };
        let bounds = few.within(Duration::MAX).give_way(Duration::ZERO);
        if self.map.pass_on(self.space, hold, &bounds, Duration::from_secs(3)) {
            return;
        }
        assert!(hold.tenure().end(), "nobody lost it");
        self.store.free();
        hold.close(true);
        self.map.clear(self.space, hold);
    }

    /// The hold's end is noticed elsewhere, by the watchdog for example. The store has forgotten it.
    fn lose(&self, hold: &Hold) -> bool {
        hold.tenure().lose();
        !self.map.lose(self.space, hold.tenure()).is_empty()
    }

    fn assert_empty(&self) {
        assert_eq!(self.map.census(self.space), (0, 0));
        assert!(self.map.holds(self.space).is_empty());
        self.store.assert_untouched();
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
    let hold = process.lock();
    assert!(process.map.believed(process.space, "n").pop().is_some_and(|current| current.is(&hold)));
    process.unlock(&hold);
}

/// It waits with the same waiter as before, which whoever woke it then must not have any more.
fn locks_twice(process: &Process) {
    locks_and_unlocks(process);
    locks_and_unlocks(process);
}

fn gives_up_as_head(process: &Process) {
    process.give_up(Duration::MAX);
}

/// Time may have passed before it came: then its turn alone ends its waiting.
fn has_little_time(process: &Process) {
    process.give_up(Duration::from_secs(1));
}

/// Its hold is lost under it; it unlocks after the next one may have come.
fn loses(process: &Process) {
    let hold = process.lock();
    process.alone.fetch_sub(1, SeqCst);
    process.store.free();
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
    let hold = process.lock();
    let others = [locks_and_unlocks, gives_up_as_head].map(|role| {
        let process = Arc::clone(&process);
        thread::spawn(move || role(&process))
    });
    process.alone.fetch_sub(1, SeqCst);
    process.store.free();
    assert!(process.lose(&hold));
    others.into_iter().for_each(|thread| thread.join().unwrap());
    hold.close(false);
    process.map.clear(process.space, &hold);
    process.assert_empty();
}

/// Parked behind a holder that does not unlock before they are gone.
pub(crate) fn a_cancel_ends_the_wait_of_whoever_is_parked() {
    let (process, token) = (Process::new(), CancelToken::new());
    let hold = process.lock();
    let waiting = [(); 2].map(|()| {
        let (process, token) = (Arc::clone(&process), token.clone());
        thread::spawn(move || process.wait(Duration::MAX, Some(&token), true).map(drop))
    });
    token.cancel();
    assert!(waiting.into_iter().all(|call| matches!(call.join().unwrap(), Err(Error::Cancelled { .. }))));
    process.unlock(&hold);
    process.assert_empty();
}

/// What one of them unlocks the other hears of by a message only, and asks because of it.
pub(crate) fn two_processes_have_their_turns_by_messages_alone() {
    let store = Arc::default();
    let processes = [Process::at(&store), Process::at(&store)];
    let roles: [fn(&Process); 4] = [locks_twice, locks_and_unlocks, locks_twice, gives_up_as_head];
    let threads = [0, 0, 1, 1].map(|number| Arc::clone(&processes[number])).into_iter().zip(roles);
    let threads: Vec<_> = threads.map(|(process, role)| thread::spawn(move || role(&process))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    processes.iter().for_each(|process| process.assert_empty());
    assert_eq!(processes.map(|process| process.turns.load(SeqCst)), [3, 3]);
}
