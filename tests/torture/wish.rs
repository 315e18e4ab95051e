//! How a lock is asked for, and what is made of the answer.

use crate::history::record::{MS, Op, Outcome, now};
use crate::work::Hand;
use redlatch::{CancelToken, Error, RedLock, RedLockExt, Result};
use std::time::Duration;

/// How a lock is asked for.
pub(crate) struct Wish {
    pub(crate) op: Op,
    /// As in [`Kind::Call`].
    pub(crate) budget: u64,
    pub(crate) wait: Duration,
    pub(crate) lease: Option<Duration>,
    /// That lease is renewed.
    pub(crate) renewed: bool,
    pub(crate) token: Option<CancelToken>,
}

impl Wish {
    /// Waits for as long as it takes.
    pub(crate) const PLAIN: Self =
        Self { op: Op::Lock, budget: 0, wait: Duration::MAX, lease: None, renewed: false, token: None };

    /// A lease that ends by itself.
    pub(crate) fn fixed_lease(&self) -> Option<Duration> {
        self.lease.filter(|_| !self.renewed)
    }
}

impl Hand<'_> {
    /// Any way to ask for a lock.
    pub(crate) fn wish(&mut self) -> Wish {
        let ms = Duration::from_millis;
        let (wait, lease) = (self.rng.u64(5..300), self.rng.u64(30..300));
        let plain = Wish::PLAIN;
        match self.rng.u32(..100) {
            0..30 => plain,
            30..45 => Wish { op: Op::Try, budget: self.plan.response, wait: Duration::ZERO, ..plain },
            45..75 => Wish { op: Op::TryFor, budget: wait, wait: ms(wait), ..plain },
            75..85 => Wish { op: Op::Leased, lease: Some(ms(lease)), ..plain },
            85..90 => Wish { lease: Some(ms(lease.max(100))), renewed: true, ..plain },
            _ => {
                let token = CancelToken::new();
                self.cancels.lock().unwrap().push((now() + wait * MS, token.clone()));
                Wish { op: Op::Cancellable, budget: wait + self.plan.response, token: Some(token), ..plain }
            }
        }
    }
}

pub(crate) fn request<'l, 'r>(
    locks: &'l dyn RedLock,
    resource: &'r str,
    wish: &'r Wish,
) -> redlatch::Request<'l, 'r, dyn RedLock + 'l> {
    let request = locks.request(resource).wait(wish.wait);
    let with_lease = if wish.renewed { redlatch::Request::renewed_lease } else { redlatch::Request::lease };
    let request = wish.lease.into_iter().fold(request, with_lease);
    wish.token.iter().fold(request, redlatch::Request::cancelled_by)
}

/// The same of a closure. An answer that does not say whether it ran is none.
pub(crate) fn executed<T>(result: &Result<Option<T>>, ran: bool) -> Outcome {
    let told = result.as_ref().map_or_else(Error::work_ran, Option::is_some);
    if told == ran { outcome(result, Option::is_some) } else { Outcome::None }
}

pub(crate) fn outcome<T>(result: &Result<T>, yes: impl FnOnce(&T) -> bool) -> Outcome {
    match result {
        Ok(value) if yes(value) => Outcome::Yes,
        Ok(_) => Outcome::No,
        Err(Error::Config { .. }) => Outcome::Config,
        Err(Error::NotHeld { .. }) => Outcome::NotHeld,
        Err(Error::Lost { .. } | Error::Unprotected { .. }) => Outcome::Lost,
        Err(Error::Unavailable { .. }) => Outcome::Unavailable,
        Err(Error::OutcomeUnknown { .. } | Error::CommandsUnknown { .. }) => Outcome::Unknown,
        Err(Error::Refused { code, .. }) if code == "OOM" => Outcome::RefusedOom,
        Err(Error::Refused { .. }) => Outcome::Refused,
        Err(Error::Cancelled { .. }) => Outcome::Cancelled,
        Err(Error::Closed { .. }) => Outcome::Closed,
        Err(_) => Outcome::None,
    }
}
