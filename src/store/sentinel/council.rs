//! What the sentinels of a group said so far, and which master to follow by it. Nothing here waits or connects.
//!
//! The highest epoch that any of them ever named counts: a sentinel that was away names the old master by a lower one, and that may
//! still call itself the master. Of two addresses of one epoch the first is kept, unless it is in doubt.
//!
//! Epochs begin anew when sentinels are told to monitor the group anew, or lose their files. So a lower one counts if a majority of the
//! sentinels that are known name the same master by it, and the one of the highest epoch is no rival: it is the same node, or it says
//! that it is a replica, and the majority was asked after that. Why no client goes back to an old master by that: docs/protocol.md, 9.2.

use super::link::{NO_MASTER, Named, Word};
use crate::base::error::Cause;
use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::time::Moment;
use crate::store::host_port::HostPort;
use crate::store::moving::{self, Course, Seen};
use crate::store::node::{Broken, Failure};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// While fewer than a majority of the sentinels have answered a new client, it waits for so long for the others: the first may
/// be one that was away.
const GRACE: Duration = Duration::from_millis(100);

/// At most so many are asked, however many others they name.
const MOST: usize = 32;

/// A sentinel, as far as it is known.
struct Sentinel {
    address: HostPort,
    /// By the URL, and not by another sentinel.
    given: bool,
    /// What came of the last attempt to ask it.
    said: Option<(Moment, Result<Word, Failure>)>,
}

pub(super) struct Sentinels {
    sentinels: Vec<Sentinel>,
    /// The highest that was ever named, since epochs began anew.
    best: Option<Named>,
    /// When it was first. A sentinel that was asked before that may have learned of it, too.
    best_since: Moment,
    /// The highest before they did. By none up to it is one sentinel believed alone: it may be one that still counts as before.
    before: Option<u64>,
    /// The node that was looked at and said that it is a replica, and when that was heard.
    disowned: Option<(Moment, Named)>,
    /// Whom a majority names in vain, which was logged.
    in_vain: Option<Named>,
    first_heard: Option<Moment>,
}

impl Sentinels {
    pub(super) fn new(given: &[HostPort]) -> Self {
        let sentinel = |address: &HostPort| Sentinel { address: address.clone(), given: true, said: None };
        let sentinels = given.iter().map(sentinel).collect();
        Self {
            sentinels,
            best: None,
            best_since: Moment(0),
            before: None,
            disowned: None,
            in_vain: None,
            first_heard: None,
        }
    }

    /// What came of asking a sentinel. Those that are new by it.
    pub(super) fn note(&mut self, address: &HostPort, said: Result<Word, Failure>, now: Moment) -> Vec<HostPort> {
        let word = said.as_ref().ok().cloned();
        if let Some(sentinel) = self.sentinels.iter_mut().find(|sentinel| sentinel.address == *address) {
            sentinel.said = Some((now, said));
        }
        let Some(word) = word else { return Vec::new() };
        self.first_heard.get_or_insert(now);
        if self.is_believed_alone(word.named.epoch) && self.outranks_best(&word.named) {
            (self.best, self.best_since) = (Some(word.named), now);
        }
        self.add(word.others)
    }

    /// By a higher epoch, or by the same if nobody names the best one any more.
    fn outranks_best(&self, named: &Named) -> bool {
        let is_named = |best: &Named| self.words().any(|word| word.named == *best);
        let best = self.best.as_ref();
        best.is_none_or(|best| named.epoch > best.epoch || (named.epoch == best.epoch && !is_named(best)))
    }

    fn is_believed_alone(&self, epoch: u64) -> bool {
        self.before.is_none_or(|before| epoch > before)
    }

    fn words(&self) -> impl Iterator<Item = &Word> {
        self.sentinels.iter().filter_map(|sentinel| sentinel.said.as_ref()?.1.as_ref().ok())
    }

    fn add(&mut self, others: Vec<HostPort>) -> Vec<HostPort> {
        let is_new = |address: &HostPort| !self.sentinels.iter().any(|sentinel| sentinel.address == *address);
        let mut new: Vec<_> = others.into_iter().filter(is_new).collect();
        new.truncate(MOST.saturating_sub(self.sentinels.len()));
        self.sentinels.extend(new.iter().map(|address| Sentinel {
            address: address.clone(),
            given: false,
            said: None,
        }));
        new
    }

    /// Whether a sentinel need not be asked any more: it does not answer, and nobody names it. It is forgotten then.
    pub(super) fn dismiss(&mut self, address: &HostPort) -> bool {
        let is_named = self.words().any(|word| word.others.contains(address));
        let is_over =
            |sentinel: &Sentinel| sentinel.address == *address && !sentinel.given && !is_named && is_failure(sentinel);
        let at = self.sentinels.iter().position(is_over);
        at.map(|at| self.sentinels.swap_remove(at)).is_some()
    }

    /// The master to follow in place of the current one, which may be in doubt. The current one itself: it is to be asked what it is.
    pub(super) fn next(&self, current: Option<&Named>, is_in_doubt: bool, now: Moment) -> Option<Named> {
        let highest = self.highest(current)?;
        if let Some(rival) = self.rival_of(highest).filter(|rival| current != Some(rival)) {
            return Some(if self.gives_way(highest, rival) { rival.clone() } else { highest.clone() });
        }
        match current {
            None => self.has_heard_enough(now).then(|| highest.clone()),
            Some(current) if highest.epoch > current.epoch => Some(highest.clone()),
            Some(current) => self.renamed(current).filter(|_| is_in_doubt),
        }
    }

    /// The master that is followed, unless a higher epoch was named.
    fn highest<'a>(&'a self, current: Option<&'a Named>) -> Option<&'a Named> {
        let best = self.best.as_ref()?;
        Some(current.filter(|current| current.epoch >= best.epoch).unwrap_or(best))
    }

    /// The master that a majority names by another epoch, which does not count by itself.
    fn rival_of(&self, highest: &Named) -> Option<&Named> {
        let mut named = self.words().map(|word| &word.named).filter(|named| named.epoch != highest.epoch);
        named.find(|named| self.is_agreed_on(named, self.best_since) && !mutant::is(Mutant::KeepsTheHighestEpoch))
    }

    /// By sentinels that were asked since then.
    fn is_agreed_on(&self, named: &Named, since: Moment) -> bool {
        let needed = if mutant::is(Mutant::BelievesOneSentinel) { 0 } else { self.sentinels.len() };
        2 * self.words().filter(|word| word.named == *named && word.asked >= since).count() > needed
    }

    /// Whether one that a majority names may be followed in place of the one of the highest epoch. A higher epoch than that is one of the
    /// count that began anew.
    fn gives_way(&self, highest: &Named, rival: &Named) -> bool {
        let has_disowned = |(since, who): &(Moment, Named)| who == highest && self.is_agreed_on(rival, *since);
        let is_no_rival = rival.epoch > highest.epoch || rival.master == highest.master;
        is_no_rival || mutant::is(Mutant::BelievesOneSentinel) || self.disowned.as_ref().is_some_and(has_disowned)
    }

    /// Another address that a sentinel names now for the same epoch: of a node that moved, or a group that was set up anew.
    fn renamed(&self, current: &Named) -> Option<Named> {
        let is_other = |named: &&Named| named.epoch == current.epoch && named.master != current.master;
        self.words().map(|word| &word.named).find(is_other).cloned()
    }

    /// Said once for each that is named so. A sentinel that has not heard of a failover yet names the old master for a second or two.
    fn say_in_vain(&mut self, highest: &Named) {
        let Some(rival) = self.rival_of(highest).filter(|rival| !self.gives_way(highest, rival)).cloned() else {
            return;
        };
        if self.in_vain.as_ref() != Some(&rival) {
            say!(
                warn,
                "{highest} is out of reach, and most sentinels name {rival} by a lower epoch: docs/on-call.md says what to run"
            );
        }
        self.in_vain = Some(rival);
    }

    /// To follow the first master.
    fn has_heard_enough(&self, now: Moment) -> bool {
        let has_majority = 2 * self.words().count() > self.sentinels.len();
        has_majority || self.first_heard.is_some_and(|heard| now.since(heard) >= GRACE)
    }

    fn silence(&self, first: Option<&Failure>) -> Failure {
        let cause = match first {
            Some(Failure::Unreached(broken) | Failure::Unknown { broken, .. }) => broken.cause.clone(),
            _ => Cause::new("no answer yet"),
        };
        Failure::Unreached(Broken::new(format!("none of {} sentinels names the master: {cause}", self.sentinels.len())))
    }
}

impl moving::Council for Sentinels {
    type Master = Named;

    fn course(&mut self, seen: Seen<'_, Named>) -> Course<Named> {
        self.next(seen.current, seen.is_in_doubt, seen.now).map_or(Course::Stay, Course::Follow)
    }

    /// A majority that was enough when the look began may be none any more.
    fn accepts(&mut self, current: Option<&Named>, next: &Named) -> bool {
        self.disowned.take_if(|(_, who)| who == next);
        let Some(highest) = self.highest(current).filter(|_| current != Some(next)) else { return false };
        let highest = highest.clone();
        if self.rival_of(&highest) == Some(next) && self.gives_way(&highest, next) {
            self.before = self.before.max(Some(highest.epoch));
            self.best = Some(next.clone());
            return true;
        }
        let is_higher = |current: &Named| next.epoch > current.epoch && self.is_believed_alone(next.epoch);
        current.is_none_or(|current| next.epoch == current.epoch || is_higher(current))
    }

    /// A replica is not left at once: the sentinels that name another node may not have heard of it yet, so they are asked again.
    fn note_unfit(&mut self, master: &Named, failure: &Failure, now: Moment) -> bool {
        if !matches!(failure, Failure::Refused { code, .. } if code == "READONLY") {
            self.say_in_vain(master);
            return false;
        }
        let is_news = self.disowned.as_ref().is_none_or(|(_, who)| who != master);
        if is_news {
            self.disowned = Some((now, master.clone()));
        }
        is_news && self.rival_of(master).is_some()
    }

    /// Once each was asked since then and none gave an answer.
    fn failure(&self, since: Moment) -> Option<Failure> {
        let failed = |sentinel: &Sentinel| matches!(sentinel.said, Some((when, Err(_))) if when >= since);
        self.sentinels.iter().all(failed).then(|| self.last_failure())
    }

    /// A refusal says more than a silence, and that they do not know the master's name more than any other.
    fn last_failure(&self) -> Failure {
        let failures = || self.sentinels.iter().filter_map(|sentinel| sentinel.said.as_ref()?.1.as_ref().err());
        let is_refusal = |failure: &&Failure| matches!(failure, Failure::Refused { .. });
        let of_name = |failure: &&Failure| matches!(failure, Failure::Refused { code, .. } if code == NO_MASTER);
        let refusal = failures().find(of_name).or_else(|| failures().find(is_refusal));
        refusal.cloned().unwrap_or_else(|| self.silence(failures().next()))
    }
}

fn is_failure(sentinel: &Sentinel) -> bool {
    matches!(sentinel.said, Some((_, Err(_))))
}
