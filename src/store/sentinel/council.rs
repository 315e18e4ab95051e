//! What the sentinels of a group said so far, and whom to follow by it. Nothing here waits or connects.
//!
//! The highest epoch that any of them ever named counts, and no lower one after it: a sentinel that was away names the old
//! master, which may still call itself one. Of two addresses of one epoch the first is kept, unless it is in doubt.

use super::link::{NO_MASTER, Word};
use crate::base::error::Cause;
use crate::base::time::Moment;
use crate::store::moving::{self, Course, Seen};
use crate::store::node::{Broken, Failure};
use crate::store::place::Place;
use std::fmt;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// While fewer than a majority of the sentinels have answered a new client, it waits for so long for the others: the first may
/// be one that was away.
const GRACE: Duration = Duration::from_millis(100);

/// At most so many are asked, however many others they name.
const MOST: usize = 32;

/// Who is the master, and since which epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) epoch: u64,
    pub(super) master: Place,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.master.fmt(f)
    }
}

/// A sentinel, as far as it is known.
struct Seat {
    place: Place,
    /// By the URL, and not by another sentinel.
    given: bool,
    /// What came of the last attempt to ask it.
    said: Option<(Moment, Result<Word, Failure>)>,
}

pub(super) struct Council {
    seats: Vec<Seat>,
    /// The highest that was ever named.
    best: Option<Named>,
    first_heard: Option<Moment>,
}

impl Council {
    pub(super) fn new(given: &[Place]) -> Self {
        let seat = |place: &Place| Seat { place: place.clone(), given: true, said: None };
        Self { seats: given.iter().map(seat).collect(), best: None, first_heard: None }
    }

    /// What came of asking a sentinel. Those that are new by it.
    pub(super) fn note(&mut self, place: &Place, said: Result<Word, Failure>, now: Moment) -> Vec<Place> {
        let word = said.as_ref().ok().cloned();
        if let Some(seat) = self.seats.iter_mut().find(|seat| seat.place == *place) {
            seat.said = Some((now, said));
        }
        let Some(word) = word else { return Vec::new() };
        self.first_heard.get_or_insert(now);
        if self.best.as_ref().is_none_or(|best| word.epoch > best.epoch) {
            self.best = Some(Named { epoch: word.epoch, master: word.master });
        }
        self.seat(word.others)
    }

    fn seat(&mut self, others: Vec<Place>) -> Vec<Place> {
        let is_new = |place: &Place| !self.seats.iter().any(|seat| seat.place == *place);
        let mut new: Vec<_> = others.into_iter().filter(is_new).collect();
        new.truncate(MOST.saturating_sub(self.seats.len()));
        self.seats.extend(new.iter().map(|place| Seat { place: place.clone(), given: false, said: None }));
        new
    }

    /// Whether a sentinel need not be asked any more: it does not answer, and nobody names it. It is forgotten then.
    pub(super) fn dismiss(&mut self, place: &Place) -> bool {
        let words = || self.seats.iter().filter_map(|seat| seat.said.as_ref()?.1.as_ref().ok());
        let is_named = words().any(|word| word.others.contains(place));
        let is_over = |seat: &Seat| seat.place == *place && !seat.given && !is_named && is_failure(seat);
        let at = self.seats.iter().position(is_over);
        at.map(|at| self.seats.swap_remove(at)).is_some()
    }

    /// Who is to be followed in place of the one that is, which may be in doubt.
    pub(super) fn next(&self, current: Option<&Named>, is_in_doubt: bool, now: Moment) -> Option<Named> {
        let best = self.best.clone()?;
        let follows = match current {
            None => self.has_majority() || self.first_heard.is_some_and(|heard| now.since(heard) >= GRACE),
            Some(current) => best.epoch > current.epoch || (is_in_doubt && self.renamed(current).is_some()),
        };
        let renamed =
            || current.filter(|current| current.epoch == best.epoch).and_then(|current| self.renamed(current));
        follows.then(|| renamed().unwrap_or(best.clone()))
    }

    /// Another address that a sentinel names now for the same epoch: of a node that moved, or a group that was set up anew.
    fn renamed(&self, current: &Named) -> Option<Named> {
        let words = self.seats.iter().filter_map(|seat| seat.said.as_ref()?.1.as_ref().ok());
        let mut others = words.filter(|word| word.epoch == current.epoch && word.master != current.master);
        others.next().map(|word| Named { epoch: word.epoch, master: word.master.clone() })
    }

    fn has_majority(&self) -> bool {
        let answered = self.seats.iter().filter(|seat| matches!(seat.said, Some((_, Ok(_))))).count();
        2 * answered > self.seats.len()
    }

    fn silence(&self, first: Option<&Failure>) -> Failure {
        let cause = match first {
            Some(Failure::Unreached(broken) | Failure::Unknown { broken, .. }) => broken.cause.clone(),
            _ => Cause::new("no answer yet"),
        };
        Failure::Unreached(Broken::new(format!("none of {} sentinels names the master: {cause}", self.seats.len())))
    }
}

impl moving::Council for Council {
    type Master = Named;

    fn course(&mut self, seen: Seen<'_, Named>) -> Course<Named> {
        self.next(seen.current, seen.is_in_doubt, seen.now).map_or(Course::Stay, Course::Follow)
    }

    fn is_over(current: &Named, next: &Named) -> bool {
        next.epoch < current.epoch || next == current
    }

    /// Once each was asked since then and none gave an answer.
    fn failure(&self, since: Moment) -> Option<Failure> {
        let failed = |seat: &Seat| matches!(seat.said, Some((when, Err(_))) if when >= since);
        self.seats.iter().all(failed).then(|| self.last_failure())
    }

    /// A refusal says more than a silence, and that they do not know the master's name more than any other.
    fn last_failure(&self) -> Failure {
        let failures = || self.seats.iter().filter_map(|seat| seat.said.as_ref()?.1.as_ref().err());
        let is_refusal = |failure: &&Failure| matches!(failure, Failure::Refused { .. });
        let of_name = |failure: &&Failure| matches!(failure, Failure::Refused { code, .. } if code == NO_MASTER);
        let refusal = failures().find(of_name).or_else(|| failures().find(is_refusal));
        refusal.cloned().unwrap_or_else(|| self.silence(failures().next()))
    }
}

fn is_failure(seat: &Seat) -> bool {
    matches!(seat.said, Some((_, Err(_))))
}
