//! How late the machine itself is: a test that measures time allows for that.
//!
//! A thread of each test program sleeps for a moment, again and again, and adds up how much later than asked for it was
//! woken. What waits for the server, a lease or another thread is woken no more punctually.

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::Sub;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(5);

/// What was added up, and when the sleep began that is under way; nothing while nobody has asked.
static TICKS: Mutex<Option<(Duration, Instant)>> = Mutex::new(None);

fn ticks() -> MutexGuard<'static, Option<(Duration, Instant)>> {
    TICKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tick() -> ! {
    loop {
        let (late, began) = (late_until(Instant::now()), Instant::now());
        *ticks() = Some((late, began));
        std::thread::sleep(TICK);
    }
}

/// It counts from here, and not from when its thread gets to a core: the machine may be late, or the process be stopped,
/// before that. A test may run where no thread can be started: then it allows for nothing.
fn start() {
    let began = Instant::now();
    if std::thread::Builder::new().name("ticker".to_owned()).spawn(|| tick()).is_ok() {
        ticks().get_or_insert((Duration::ZERO, began));
    }
}

/// How late the machine was in all, also with the tick that is overdue.
fn late_until(now: Instant) -> Duration {
    let overdue = |began: Instant| now.saturating_duration_since(began).saturating_sub(TICK);
    ticks().map_or(Duration::ZERO, |(late, began)| late + overdue(began))
}

/// A moment, and how late the machine had been until then.
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
        Self { at, late: late_until(at) }
    }

    pub fn elapsed(self) -> Took {
        Self::now() - self
    }
}

impl Sub for Mark {
    type Output = Took;

    /// Nothing, if the other one is later.
    fn sub(self, earlier: Self) -> Took {
        let real = self.at.saturating_duration_since(earlier.at);
        Took { real, late: self.late.saturating_sub(earlier.late).min(real) }
    }
}

/// Of several things, one after the other.
impl Sum for Took {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let nothing = Self { real: Duration::ZERO, late: Duration::ZERO };
        all.fold(nothing, |sum, took| Self { real: sum.real + took.real, late: sum.late + took.late })
    }
}

/// How long something took, and how much of that the machine may have added.
///
/// It is not compared with `<`: as long as the machine may have made the difference, it is neither shorter nor longer.
/// So `took <= bound` fails only for what took longer by itself, and `took >= bound` for what really was shorter.
#[derive(Clone, Copy)]
pub struct Took {
    real: Duration,
    late: Duration,
}

impl Took {
    /// With what the machine added.
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
