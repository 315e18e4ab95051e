//! The settings of a client: one function derives every default and checks all of them together.

use crate::error::{Error, Result};
use crate::key::{LONGEST_NAME, Naming};
use crate::time::Lease;
use std::time::Duration;

/// Whether an inner level of a lock is told to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reentry {
    /// Each level is one round trip: the hash on the server shows the depth, and a lost hold is noticed at once.
    #[default]
    Mirrored,
    /// An inner level that asks for nothing new is counted in memory alone.
    Local,
}

/// What the caller set; `None` takes the default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) watchdog_timeout: Option<Duration>,
    pub(crate) naming: Naming,
    pub(crate) key_prefix: String,
    pub(crate) pool_size: Option<u32>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) response_timeout: Option<Duration>,
    pub(crate) outage_budget: Option<Duration>,
    pub(crate) poll_cap: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) reentry: Reentry,
    pub(crate) strict: bool,
}

/// Every setting, derived and checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) watchdog_lease: Lease,
    pub(crate) naming: Naming,
    pub(crate) key_prefix: String,
    pub(crate) pool_size: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) outage_budget: Duration,
    pub(crate) poll_cap: Duration,
    pub(crate) max_hold: Duration,
    pub(crate) reentry: Reentry,
    pub(crate) strict: bool,
}

impl Settings {
    /// Defaults: watchdog 30 s; response time-out 2 s, or a third of a shorter watchdog; connect time-out 2 s;
    /// outage budget 10 s; poll cap 5 s; 8 connections; no cap on holding.
    pub(crate) fn derive(self) -> Result<Config> {
        let watchdog = self.watchdog_timeout.unwrap_or(Duration::from_secs(30));
        let config = Config {
            watchdog_lease: Lease::clamped(watchdog),
            naming: self.naming,
            key_prefix: self.key_prefix,
            pool_size: self.pool_size.unwrap_or(8),
            connect_timeout: self.connect_timeout.unwrap_or(Duration::from_secs(2)),
            response_timeout: self.response_timeout.unwrap_or_else(|| (watchdog / 3).min(Duration::from_secs(2))),
            outage_budget: self.outage_budget.unwrap_or(Duration::from_secs(10)),
            poll_cap: self.poll_cap.unwrap_or(Duration::from_secs(5)),
            max_hold: self.max_hold.unwrap_or(Duration::MAX),
            reentry: self.reentry,
            strict: self.strict,
        };
        config.check(watchdog)?;
        Ok(config)
    }
}

impl Config {
    /// The lease that a caller asked for.
    ///
    /// # Errors
    /// `Config` out of bounds; in strict mode also above the watchdog's lease, for which a server that lost its
    /// data grants nothing.
    pub(crate) fn lease(&self, span: Duration) -> Result<Lease> {
        let lease = Lease::new(span)?;
        if self.strict && lease > self.watchdog_lease {
            let longest = self.watchdog_lease.millis();
            return Err(Error::config(format!(
                "in strict mode a lease is at most watchdog_timeout, {longest} ms: raise that, for every client"
            )));
        }
        Ok(lease)
    }

    fn check(&self, watchdog: Duration) -> Result<()> {
        let ten = Duration::from_millis(10);
        let rules = [
            (watchdog >= 10 * ten && watchdog <= Lease::MAX, "watchdog_timeout must be 100 ms to 365 days"),
            (self.response_timeout <= watchdog / 2, "response_timeout must be at most half of watchdog_timeout"),
            (self.response_timeout >= ten, "response_timeout must be at least 10 ms"),
            (self.connect_timeout >= ten, "connect_timeout must be at least 10 ms"),
            (self.poll_cap >= ten, "poll_cap must be at least 10 ms"),
            (self.max_hold >= watchdog, "max_hold must be at least watchdog_timeout"),
            ((1..=10_000).contains(&self.pool_size), "pool_size must be 1 to 10,000"),
            (self.key_prefix.len() <= LONGEST_NAME, "key_prefix must be at most 1,024 bytes"),
        ];
        rules.iter().find(|(kept, _)| !kept).map_or(Ok(()), |(_, rule)| Err(Error::config(*rule)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_derive_from_each_other() {
        let config = Settings::default().derive().unwrap();
        assert_eq!(config.watchdog_lease.millis(), 30_000);
        assert_eq!(config.response_timeout, Duration::from_secs(2));
        let short = Settings { watchdog_timeout: Some(Duration::from_secs(3)), ..Settings::default() };
        assert_eq!(short.derive().unwrap().response_timeout, Duration::from_secs(1));
    }

    #[test]
    fn what_does_not_fit_together_is_rejected_by_name() {
        let ms = |n| Some(Duration::from_millis(n));
        let cases = [
            (Settings { watchdog_timeout: ms(5), ..Settings::default() }, "watchdog_timeout"),
            (Settings { watchdog_timeout: ms(99), ..Settings::default() }, "watchdog_timeout"),
            (Settings { watchdog_timeout: Some(Duration::MAX), ..Settings::default() }, "watchdog_timeout"),
            (Settings { response_timeout: ms(16_000), ..Settings::default() }, "response_timeout"),
            (Settings { response_timeout: ms(0), ..Settings::default() }, "response_timeout"),
            (Settings { connect_timeout: ms(0), ..Settings::default() }, "connect_timeout"),
            (Settings { poll_cap: ms(0), ..Settings::default() }, "poll_cap"),
            (Settings { max_hold: ms(29_999), ..Settings::default() }, "max_hold"),
            (Settings { pool_size: Some(0), ..Settings::default() }, "pool_size"),
            (Settings { key_prefix: "x".repeat(1_025), ..Settings::default() }, "key_prefix"),
        ];
        for (settings, name) in cases {
            assert!(settings.derive().unwrap_err().to_string().contains(name));
        }
    }
}
