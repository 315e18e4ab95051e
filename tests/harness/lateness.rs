//! How late the machine itself is: a test that measures time allows for that.
//!
//! On each core a thread of each test program sleeps for 5 ms, again and again, and sees how late it is woken. A thread that
//! waits for the server, a lease or another thread is woken no more punctually.
//!
//! The machine is late while at least one core is late: a chain of threads that wait for each other waits for one core at a
//! time. Time in which several cores are late counts once.

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::Sub;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::cores::{cores, stay_on};

const TICK: Duration = Duration::from_millis(5);

/// A sleep is this late on an idle machine. If that counted, the sleeps would add up to an excuse.
const GRAIN: Duration = Duration::from_millis(1);

struct Ticks {
    /// How long the machine has been late in all.
    late: Duration,
    /// That sum has all lateness until this moment.
    counted_to: Option<Instant>,
    /// When the present sleep of each core's thread began.
    began: Vec<Instant>,
}

/// Stays empty until a test asks for the time.
static TICKS: Mutex<Ticks> = Mutex::new(Ticks { late: Duration::ZERO, counted_to: None, began: Vec::new() });

fn ticks() -> MutexGuard<'static, Ticks> {
    TICKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ticks {
    /// How long the machine has been late in all, overdue ticks included.
    fn late_until(&self, now: Instant) -> Duration {
        self.late + self.overdue(now)
    }

    /// The lateness that is not counted yet. All overdue ticks are overdue until now, so the first one to begin covers all others.
    fn overdue(&self, now: Instant) -> Duration {
        let Some(due) = self.began.iter().min().map(|began| *began + TICK) else { return Duration::ZERO };
        if now.saturating_duration_since(due) < GRAIN {
            return Duration::ZERO;
        }
        now.saturating_duration_since(self.counted_to.map_or(due, |counted_to| counted_to.max(due)))
    }

    fn tick(&mut self, nth: usize, now: Instant) {
        let overdue = self.overdue(now);
        if overdue > Duration::ZERO {
            self.late += overdue;
            self.counted_to = Some(now);
        }
        self.began[nth] = now;
    }
}

fn tick(nth: usize, core: usize) -> ! {
    stay_on(core);
    loop {
        let mut ticks = ticks();
        ticks.tick(nth, Instant::now());
        drop(ticks);
        std::thread::sleep(TICK);
    }
}

/// Lateness counts from here, not from when the threads get to their cores: the machine may be late, or the process be
/// stopped, before that. If a thread cannot be started, tests allow for less lateness, or for none.
fn start() {
    let mut ticks = ticks();
    for (nth, core) in cores().into_iter().enumerate() {
        let ticker = std::thread::Builder::new().name(format!("ticker-{core}"));
        if ticker.spawn(move || tick(nth, core)).is_err() {
            break;
        }
        ticks.began.push(Instant::now());
    }
}

/// A moment, and how long the machine had been late until then.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    at: Instant,
    late: Duration,
}

impl Mark {
    pub fn now() -> Self {
        static TICKER: Once = Once::new();
        TICKER.call_once(start);
        let at = Instant::now();
        Self { at, late: ticks().late_until(at) }
    }

    pub fn elapsed(self) -> Took {
        Self::now() - self
    }
}

impl Sub for Mark {
    type Output = Took;

    /// Zero, if the other mark is later.
    fn sub(self, earlier: Self) -> Took {
        let real = self.at.saturating_duration_since(earlier.at);
        Took { real, late: self.late.saturating_sub(earlier.late).min(real) }
    }
}

/// The sum of several times, one after the other.
impl Sum for Took {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let nothing = Self { real: Duration::ZERO, late: Duration::ZERO };
        all.fold(nothing, |sum, took| Self { real: sum.real + took.real, late: sum.late + took.late })
    }
}

/// How long something took, and how much of that the machine may have added.
///
/// Do not compare it with `<`: if the machine may have made the difference, it counts as equal. So `took <= bound` fails only
/// if it took longer without the machine's part, and `took >= bound` only if it took less time even with that part.
#[derive(Clone, Copy)]
pub struct Took {
    real: Duration,
    late: Duration,
}

impl Took {
    /// The whole time, with the machine's part.
    pub fn real(self) -> Duration {
        self.real
    }
}

impl fmt::Debug for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on a machine that was {:?} late", self.real, self.late)
    }
}

impl PartialEq<Duration> for Took {
    fn eq(&self, other: &Duration) -> bool {
        self.partial_cmp(other).is_some_and(Ordering::is_eq)
    }
}

impl PartialOrd<Duration> for Took {
    fn partial_cmp(&self, other: &Duration) -> Option<Ordering> {
        let by_itself = self.real - self.late;
        Some(other.clamp(&by_itself, &self.real).cmp(other))
    }
}
