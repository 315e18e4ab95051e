//! What the nodes said of themselves so far, and which master to follow by it. Nothing here waits or connects.
//!
//! All are asked in *rounds*, and what counts is what each said in the last one: else the word of a master that has given way
//! since would stand beside that of the new one. Who does not answer for a while counts as silent, so that one that is frozen
//! keeps nobody waiting.

use crate::base::error::Cause;
use crate::base::time::Moment;
use crate::store::moving::{Council, Course, FIRST_PAUSE, LONGEST_PAUSE, Seen};
use crate::store::node::{Broken, Failure};
use std::fmt;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// So often each node is asked while all is well. Nobody tells of a switch, and one by hand breaks no connection: so this bounds
/// for how long a client that asks for nothing meanwhile believes in a hold that did not make it, and does not see a second
/// master. A thousand clients cost each node a thousand short commands a second, about a hundredth of a core.
const EVERY: Duration = Duration::from_secs(1);

/// So long a node that was asked is waited for before another one is followed.
const GRACE: Duration = Duration::from_millis(200);

/// What a node says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Master,
    Replica,
}

/// One that may be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) index: usize,
    address: String,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

struct Candidate {
    address: String,
    /// Since when it is being asked.
    asked: Option<Moment>,
    /// What came of the last time, and when.
    said: Option<(Moment, Result<Role, Failure>)>,
}

impl Candidate {
    fn last(&self) -> Option<&Result<Role, Failure>> {
        self.said.as_ref().map(|(_, said)| said)
    }

    fn says(&self, role: Role) -> bool {
        matches!(self.last(), Some(Ok(said)) if *said == role)
    }

    fn has_said_since(&self, when: Moment) -> bool {
        self.said.as_ref().is_some_and(|(said, _)| *said >= when)
    }

    /// Whether it may still answer in this round.
    fn is_awaited(&self, round: Moment, now: Moment) -> bool {
        !self.has_said_since(round) && now.since(self.asked.unwrap_or(round)) < GRACE
    }

    fn why_not(&self) -> String {
        match self.last() {
            Some(Err(Failure::Unreached(broken) | Failure::Unknown { broken, .. })) => broken.cause.to_string(),
            Some(Err(Failure::Refused { cause, .. })) => cause.to_string(),
            Some(Ok(Role::Replica)) => format!("{} is a replica", self.address),
            _ => format!("{}: no answer yet", self.address),
        }
    }
}

pub(super) struct Poll {
    candidates: Vec<Candidate>,
    /// When the last one began.
    round: Moment,
    /// A node that was none has said that it is the master.
    is_news: bool,
    /// Several said that they are the master, and only one that says otherwise or fails is none any more.
    is_split: bool,
    /// There is one master, and nothing to look for.
    is_settled: bool,
}

impl Poll {
    pub(super) fn new(addresses: Vec<String>) -> Self {
        let candidates = addresses.into_iter().map(|address| Candidate { address, asked: None, said: None }).collect();
        Self { candidates, round: Moment(0), is_news: false, is_split: false, is_settled: false }
    }

    /// A node is being asked from now on. Who comes first after the time begins the next round.
    pub(super) fn asks(&mut self, index: usize, now: Moment) {
        if now.since(self.round) >= EVERY {
            self.round = now;
        }
        self.candidates[index].asked = Some(now);
    }

    /// What came of it.
    pub(super) fn note(&mut self, index: usize, said: Result<Role, Failure>, now: Moment) {
        let candidate = &mut self.candidates[index];
        let was_other = candidate.said.is_some() && !candidate.says(Role::Master);
        (candidate.asked, candidate.said) = (None, Some((now, said)));
        self.is_news |= was_other && candidate.says(Role::Master);
    }

    /// When a node is asked again that has answered.
    pub(super) fn until(&self, now: Moment, patience: &mut Duration) -> Moment {
        if self.is_settled {
            *patience = FIRST_PAUSE;
            return self.round.plus(EVERY);
        }
        let until = now.plus(*patience);
        *patience = (*patience * 2).min(LONGEST_PAUSE);
        until
    }

    /// The nodes that say now that they are the master.
    fn claims(&self, looked_at: Option<&Node>) -> Vec<usize> {
        let is_looked_at = |index| looked_at.is_some_and(|node| node.index == index);
        let counts =
            |index: usize| self.is_split || is_looked_at(index) || self.candidates[index].has_said_since(self.round);
        (0..self.candidates.len())
            .filter(|index| self.candidates[*index].says(Role::Master) && counts(*index))
            .collect()
    }

    fn judge(&mut self, claims: &[usize], seen: &Seen<'_, Node>) -> Course<Node> {
        let current = seen.current.map(|node| node.index);
        if current.is_some_and(|index| self.candidates[index].says(Role::Replica)) {
            return Course::Leave("it says that it is a replica".to_owned());
        }
        if claims.iter().any(|index| Some(*index) != current) && std::mem::take(&mut self.is_news) {
            return Course::AskAll;
        }
        self.is_split = claims.len() > 1;
        match *claims {
            [] => Course::Stay,
            [index] if Some(index) == current || self.is_any_awaited(seen.now) => Course::Stay,
            [index] => Course::Follow(Node { index, address: self.candidates[index].address.clone() }),
            _ => Course::Leave(self.split()),
        }
    }

    fn is_any_awaited(&self, now: Moment) -> bool {
        self.candidates.iter().any(|candidate| candidate.is_awaited(self.round, now))
    }

    fn split(&self) -> String {
        let masters = self
            .candidates
            .iter()
            .filter(|candidate| candidate.says(Role::Master))
            .map(|candidate| candidate.address.as_str());
        let masters: Vec<_> = masters.collect();
        format!("{} say that they are the master: none is used until one alone does", masters.join(" and "))
    }

    /// A refusal is told as such when there is no node that may be the master and only out of reach.
    fn refusal(&self) -> Option<Failure> {
        let is_silent = |candidate: &Candidate| !matches!(candidate.last(), Some(Ok(_) | Err(Failure::Refused { .. })));
        let mut failures = self.candidates.iter().filter_map(|candidate| candidate.last()?.as_ref().err());
        failures.next().filter(|_| !self.candidates.iter().any(is_silent)).cloned()
    }

    fn silence(&self) -> String {
        let why: Vec<_> = self.candidates.iter().map(Candidate::why_not).collect();
        format!("none of {} nodes says that it is the master: {}", self.candidates.len(), why.join("; "))
    }
}

impl Council for Poll {
    type Master = Node;

    fn course(&mut self, seen: Seen<'_, Node>) -> Course<Node> {
        let claims = self.claims(seen.looked_at);
        let course = self.judge(&claims, &seen);
        let alone = seen.current.map(|node| node.index);
        self.is_settled = course == Course::Stay && alone.is_some() && claims.iter().all(|index| Some(*index) == alone);
        course
    }

    fn accepts(&mut self, current: Option<&Node>, next: &Node) -> bool {
        current != Some(next)
    }

    /// Once all have answered otherwise.
    fn failure(&self, since: Moment) -> Option<Failure> {
        let is_none = |candidate: &Candidate| !candidate.says(Role::Master) && candidate.has_said_since(since);
        (self.is_split || self.candidates.iter().all(is_none)).then(|| self.last_failure())
    }

    fn last_failure(&self) -> Failure {
        let words = |words: String| Failure::Unreached(Broken { cause: Cause::new(words), timed_out: false });
        if self.is_split {
            return words(self.split());
        }
        self.refusal().unwrap_or_else(|| words(self.silence()))
    }

    /// One that has just begun goes on: else no answer would ever count where the network is slow.
    fn begin(&mut self, now: Moment) {
        if !self.is_any_awaited(now) {
            self.round = now;
        }
    }
}
