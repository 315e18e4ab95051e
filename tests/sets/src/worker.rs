//! A worker process: its threads add elements to sets, each under the lock of its set, and say what became of each add.

use crate::checker::{Element, Outcome};
use crate::place::{self, Place};
use crate::way::{self, Way};
use fastrand::Rng;
use harness::threads::patiently;
use redlatch::{Client, FencedLock, RedLock, RedLockExt, ReentrantLock};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Threads of a worker.
const THREADS: u64 = 2;

/// No run has so many adds of one thread.
const ADDS: u64 = 1 << 20;

/// As Jepsen's lease.
const LEASE: Duration = Duration::from_secs(2);

/// How long one waits for a lock before it begins another add.
const WAIT: Duration = Duration::from_secs(5);

/// Between the read and the write, in ms: below 2 s, as Jepsen's latency.
const LATENCY: u64 = 2_000;

/// What a worker is told at its start.
pub(crate) struct Order {
    pub(crate) way: &'static Way,
    /// Unlike that of every other worker of the way, also of those it replaces.
    pub(crate) number: u64,
    pub(crate) seed: u64,
    pub(crate) sets: usize,
    pub(crate) is_renewed: bool,
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
}

impl Order {
    pub(crate) fn words(&self) -> [String; 7] {
        let folder = self.folder.display().to_string();
        let (way, renewed) = (self.way.name.to_owned(), self.is_renewed.to_string());
        let [number, seed, sets] = [self.number, self.seed, self.sets as u64].map(|number| number.to_string());
        [way, number, seed, sets, renewed, self.url.clone(), folder]
    }

    pub(crate) fn of(words: &[String]) -> Self {
        let [way, number, seed, sets, renewed, url, folder] = words else { panic!("seven words") };
        let number_of = |word: &String| word.parse::<u64>().expect("a number");
        Self {
            way: Way::named(way).expect("a way"),
            number: number_of(number),
            seed: number_of(seed),
            sets: number_of(sets) as usize,
            is_renewed: renewed == "true",
            url: url.clone(),
            folder: folder.into(),
        }
    }
}

/// What a worker says, one line each.
pub(crate) enum Says {
    /// An add begins, of an element to a set.
    Begins(usize, Element),
    /// It has its lock.
    Holds(Element),
    Ends(Element, Outcome),
}

impl Says {
    fn line(&self) -> String {
        match self {
            Self::Begins(set, element) => format!("begins {element} {set}"),
            Self::Holds(element) => format!("holds {element} -"),
            Self::Ends(element, outcome) => format!("ends {element} {}", outcome.word()),
        }
    }

    pub(crate) fn of(line: &str) -> Self {
        let [verb, element, word] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("three words: {line}") };
        let element = element.parse().expect("an element");
        match verb {
            "begins" => Self::Begins(word.parse().expect("a set"), element),
            "holds" => Self::Holds(element),
            _ => Self::Ends(element, Outcome::of(word)),
        }
    }
}

/// The number of the worker that adds an element.
pub(crate) fn worker_of(element: Element) -> u64 {
    element / ADDS / THREADS
}

/// An orchestrator that has died hears nothing: the end of standard input stops the worker then.
fn say(says: &Says) {
    let _ = writeln!(std::io::stdout(), "{}", says.line());
}

/// Works until its standard input ends, which it also does when the orchestrator dies.
pub(crate) fn run(order: &Order) {
    static STOP: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        STOP.store(true, SeqCst);
    });
    let client = patiently(|| Client::connect(&order.url));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &client;
            scope.spawn(move || Hand::new(order, client, thread).run(&STOP));
        }
    });
    client.shutdown();
}

/// A thread of a worker.
struct Hand<'o> {
    order: &'o Order,
    locks: Box<dyn RedLock>,
    place: Box<dyn Place>,
    rng: Rng,
    first: Element,
}

impl<'o> Hand<'o> {
    fn new(order: &'o Order, client: &Client, thread: u64) -> Self {
        let locks: Box<dyn RedLock> = match order.way.place {
            way::Place::Sqlite => Box::new(FencedLock::new(client)),
            way::Place::Memory | way::Place::Redis => Box::new(ReentrantLock::new(client)),
        };
        let number = order.number * THREADS + thread;
        let place = place::of(order.way, &order.folder, client, &order.url);
        Self { order, locks, place, rng: Rng::with_seed(order.seed ^ number << 32), first: number * ADDS }
    }

    fn run(&mut self, stop: &AtomicBool) {
        for element in self.first..self.first + ADDS {
            if stop.load(SeqCst) {
                return;
            }
            let set = self.rng.usize(..self.order.sets);
            say(&Says::Begins(set, element));
            self.add(set, element);
        }
    }

    /// The lock is given up after the outcome was said: a nemesis that looks for a holder finds one that has not written yet.
    fn add(&mut self, set: usize, element: Element) {
        let latency = Duration::from_millis(self.rng.u64(..LATENCY));
        let name = place::name(set);
        let request = self.locks.request(&name).wait(WAIT);
        let request = if self.order.is_renewed { request.renewed_lease(LEASE) } else { request.lease(LEASE) };
        let Ok(Some(guard)) = request.guard() else { return say(&Says::Ends(element, Outcome::Failed)) };
        say(&Says::Holds(element));
        let outcome = self.place.read(set, guard.hold()).map_or_else(
            |outcome| outcome,
            |mut elements| {
                std::thread::sleep(latency);
                elements.push(element);
                self.place.write(set, &elements, guard.hold())
            },
        );
        say(&Says::Ends(element, outcome));
    }
}
