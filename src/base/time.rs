//! Time: a clock that counts suspended time, its moments, and the only type that turns a `Duration` into a lease.

use crate::base::error::{Error, Result};
use crate::base::mutant::{self, Mutant};
use crate::base::sync::boot_nanos;
use std::time::Duration;

/// A point in time, in nanoseconds since boot. All arithmetic saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) const MAX: Self = Self(u64::MAX);

    pub(crate) fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// The time from `earlier` to this point; zero when it is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn micros(self) -> u64 {
        self.0 / 1_000
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The source of time. Tests set it by hand, so that lease arithmetic needs no sleep.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// `CLOCK_BOOTTIME`: monotonic, and it goes on while the machine is suspended, as the server's clock does.
    Boot,
    #[cfg(test)]
    Manual(std::sync::Arc<std::sync::atomic::AtomicU64>),
}

impl Clock {
    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::Boot => Moment(boot_nanos()),
            #[cfg(test)]
            Self::Manual(nanos) => Moment(nanos.load(std::sync::atomic::Ordering::SeqCst)),
        }
    }
}

/// How long the server keeps a lock without news of its holder, in whole milliseconds.
///
/// The bounds are checked before anything is sent. `PEXPIRE 0` would delete the key while the script still answers "acquired". A lease that
/// the server cannot parse would leave a lock without TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease(u64);

impl Lease {
    pub(crate) const MIN: Duration = Duration::from_millis(10);
    pub(crate) const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// Rounds down to whole milliseconds.
    pub(crate) fn new(span: Duration) -> Result<Self> {
        if (span < Self::MIN || span > Self::MAX) && !mutant::is(Mutant::LeaseZero) {
            return Err(Error::config(format!("a lease of {span:?} is out of range: 10 ms to 365 days")));
        }
        Ok(Self(whole_millis(span)))
    }

    /// The nearest lease inside the bounds, for spans that this crate computed itself.
    pub(crate) fn clamped(span: Duration) -> Self {
        Self(whole_millis(span.clamp(Self::MIN, Self::MAX)))
    }

    /// For constants inside the bounds.
    pub(crate) const fn of_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub(crate) fn span(self) -> Duration {
        Duration::from_millis(self.millis())
    }

    pub(crate) fn millis(self) -> u64 {
        self.0
    }

    /// How long a holder may believe in this lease, from before its command was sent: lease - 1 % - 2 ms, for the drift of two clocks and
    /// the server's rounding.
    pub(crate) fn validity(self) -> Duration {
        if self.0 == 0 && mutant::is(Mutant::LeaseZero) {
            return Self::MIN;
        }
        let lease = Duration::from_millis(self.0);
        lease.saturating_sub(lease / 100 + Duration::from_millis(2))
    }

    /// How long the server may keep it, from after its command was executed: as much more.
    pub(crate) fn at_most(self) -> Duration {
        let lease = self.span();
        lease + lease / 100 + Duration::from_millis(2)
    }
}

pub(crate) fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_saturate() {
        assert_eq!(Moment::MAX.plus(Duration::MAX), Moment::MAX);
        assert_eq!(Moment(1).since(Moment(5)), Duration::ZERO);
    }

    #[test]
    fn a_lease_has_bounds_and_whole_milliseconds() {
        for bad in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(9_999), Duration::MAX] {
            assert!(matches!(Lease::new(bad), Err(Error::Config { .. })), "{bad:?}");
        }
        assert_eq!(Lease::new(Duration::from_micros(10_999)).unwrap().millis(), 10);
        assert_eq!(Lease::new(Lease::MAX).unwrap().millis(), 31_536_000_000);
    }

    #[test]
    fn validity_leaves_a_margin() {
        assert_eq!(Lease(30_000).validity(), Duration::from_millis(29_698));
        assert_eq!(Lease(10).validity(), Duration::from_micros(7_900));
    }

    #[test]
    fn the_clock_goes_on() {
        let earlier = Clock::Boot.now();
        assert!(Clock::Boot.now() >= earlier);
    }
}
