//! What a thread of a worker does with the permits of semaphores.

use crate::history::permits::{COUNTED, LEASED, TOTAL};
use crate::history::record::{Kind, MS, Record, now};
use crate::wish::Wish;
use crate::work::Hand;
use redlatch::{Client, LeasedSemaphore, Permits, Result, Semaphore, Terms};
use std::time::Duration;

/// The semaphores of a worker.
pub(crate) struct Semaphores {
    leased: LeasedSemaphore,
    counted: Semaphore,
}

/// What a semaphore is called.
pub(crate) fn semaphore(name: u8) -> &'static str {
    if name == LEASED { "torture:leased" } else { "torture:counted" }
}

/// Whether a key stays at the end: `left_permits` tells of the counters and of the leases of killed workers, and results end by themselves.
pub(crate) fn is_of_permits(key: &str) -> bool {
    key.starts_with("redlatch_op:") || [LEASED, COUNTED].iter().any(|name| key.contains(semaphore(*name)))
}

/// The leases of a semaphore.
pub(crate) fn leases(name: u8) -> String {
    format!("{{{}}}:timeout", semaphore(name))
}

impl Semaphores {
    pub(crate) fn new(client: &Client) -> Self {
        Self { leased: LeasedSemaphore::new(client), counted: Semaphore::new(client) }
    }

    /// Whoever comes first sets the permits, also after a server lost them.
    fn set(&self, name: u8) -> Result<bool> {
        match name {
            LEASED => self.leased.try_set_permits(semaphore(name), TOTAL as u32),
            _ => self.counted.try_set_permits(semaphore(name), TOTAL as u32),
        }
    }

    fn acquire(&self, name: u8, permits: u32, terms: &Terms<'_>) -> Result<Option<Permits>> {
        match name {
            LEASED => self.leased.acquire(semaphore(name), permits, terms),
            _ => self.counted.acquire(semaphore(name), permits, terms),
        }
    }
}

impl Hand<'_> {
    /// Acquires permits, holds them and gives them back. Nobody waits for ever: those of a killed worker stay out.
    pub(crate) fn permit_turn(&mut self) {
        let name = if self.one_in(2) { LEASED } else { COUNTED };
        if self.one_in(16) {
            let _ = self.locks.semaphores.set(name);
        }
        let permits = if self.one_in(4) { self.rng.u32(2..=TOTAL as u32) } else { 1 };
        let wish = self.permit_wish(name);
        self.note_permits(Kind::AsksForPermits, name, permits, None);
        let terms = wish.token.iter().fold(Terms::new().wait(wish.wait), Terms::cancelled_by);
        let with_lease = if wish.renewed { Terms::renewed_lease } else { Terms::lease };
        let terms = wish.lease.into_iter().fold(terms, with_lease);
        match self.locks.semaphores.acquire(name, permits, &terms) {
            Ok(Some(held)) => self.with_permits(name, held),
            _ => drop(self.note_permits(Kind::HasNoPermits, name, permits, None)),
        }
    }

    /// Permits without leases are asked for without one.
    fn permit_wish(&mut self, name: u8) -> Wish {
        let wish = self.wish();
        let wait = wish.wait.min(Duration::from_millis(self.plan.watchdog));
        let lease = wish.lease.filter(|_| name == LEASED);
        Wish { wait, lease, ..wish }
    }

    fn with_permits(&mut self, name: u8, held: Permits) {
        let permits = held.count();
        self.note_permits(Kind::HasPermits, name, permits, Some(&held));
        let until = now() + self.rng.u64(0..20) * MS;
        while now() < until {
            self.sleep((0, 4));
            if !self.note_permits(Kind::SeesPermits, name, permits, Some(&held)) {
                break;
            }
        }
        self.note_permits(Kind::GivesBack, name, permits, Some(&held));
        if self.one_in(2) {
            drop(held)
        } else {
            drop(held.release())
        }
        self.note_permits(Kind::HasNoPermits, name, permits, None);
    }

    /// Writes what is known of the permits; whether they are surely held. Those without a lease are.
    fn note_permits(&mut self, kind: Kind, name: u8, permits: u32, held: Option<&Permits>) -> bool {
        let before = now();
        let hold = held.and_then(Permits::hold);
        let (valid, left) = hold.map_or((true, 0), |hold| (hold.is_valid(), hold.remaining().as_nanos() as u64));
        let at = if valid && kind == Kind::SeesPermits { before } else { now() };
        let record = Record { at, kind, name, valid, value: permits.into(), ..Record::default() };
        self.log.write(Record { deadline: before + left, ..record });
        valid
    }
}
