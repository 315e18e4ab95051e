//! The Redlock algorithm: what one round of asking all nodes does, and what it means.

use super::ballots::{ask_holder, free_all_at, free_at, held_by, note_holder, renew_at, take_at};
use super::broom::{Broom, LATE_RELEASE};
use super::ears::{AllEars, Ears};
use super::node::{At, Job, Node, Turn, hash};
use super::tally::{Tally, left, majority};
use crate::base::key::Key;
use crate::base::lives::Life;
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Clock, Lease, Moment};
use crate::lease::tenure::Tenure;
use crate::lock::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::queue::{Manner, Queue};
use crate::store::Health;
use crate::store::node::{Failure, GRACE, Lane, Limits};
use crossbeam_channel::{Receiver, bounded};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a job that nobody waits for may wait for its turn.
const WHENEVER: Duration = Duration::from_secs(60);

/// The longest rest before a round, after one in which several clients had a part of the lock.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// What the nodes of a quorum are asked, and what is made of their answers.
pub(super) struct Quorum {
    pub(super) nodes: Vec<Node>,
    pub(super) node_timeout: Duration,
    pub(super) clock: Clock,
    pub(super) ears: Arc<AllEars>,
    pub(super) broom: Arc<Broom>,
}

/// The answers of nodes as they come, until the round ends.
struct Answers<T> {
    answers: Receiver<(usize, Result<T, Failure>)>,
    ends: Moment,
    clock: Clock,
}

impl<T> Iterator for Answers<T> {
    type Item = (usize, Result<T, Failure>);

    fn next(&mut self) -> Option<Self::Item> {
        self.answers.recv_timeout(self.ends.since(self.clock.now())).ok()
    }
}

/// One round: when it began, when it stops waiting for answers, and how long its jobs may wait for a turn.
#[derive(Clone, Copy)]
struct Round {
    sent: Moment,
    ends: Moment,
    begin_by: Moment,
    whenever: bool,
}

impl Round {
    fn patient(self) -> Self {
        Self { begin_by: self.sent.plus(LATE_RELEASE).max(self.ends), ..self }
    }

    /// The latest time at which a node may execute a command that it did not answer.
    fn open_until(self) -> Moment {
        self.begin_by.plus(GRACE)
    }
}

impl Quorum {
    /// A round does not wait for a node beyond the node time-out, unless there was no majority a moment ago. Then the
    /// nodes that are down are the only hope, and connecting to one that is back may take a while.
    fn round(&self, answer_by: Moment) -> Round {
        let sent = self.clock.now();
        let down = self.nodes.iter().filter(|node| node.store().outage().is_some()).count();
        let whenever = down > self.nodes.len() - majority(self.nodes.len());
        let longest = answer_by.max(sent.plus(GRACE));
        let ends = if whenever { longest } else { longest.min(sent.plus(self.node_timeout)) };
        Round { sent, ends, begin_by: ends, whenever }
    }

    /// Asks all nodes at the same time. `act` runs on the thread of each.
    fn ask<T: Send + 'static>(
        &self,
        turn: Turn<'_>,
        round: Round,
        act: impl Fn(&At, Result<(), Failure>) -> Result<T, Failure> + Send + Sync + 'static,
    ) -> Answers<T> {
        let (sender, answers) = bounded(self.nodes.len());
        let act = Arc::new(act);
        for (number, node) in self.nodes.iter().enumerate() {
            let (act, sender) = (Arc::clone(&act), sender.clone());
            let run = move |at: &At, ready: Result<(), Failure>| {
                let answer = act(at, ready);
                let answered = !matches!(answer, Err(Failure::Unreached(_) | Failure::Unknown { .. }));
                let _ = sender.send((number, answer));
                answered
            };
            node.submit(turn, Job { begin_by: round.begin_by, whenever: round.whenever, run: Box::new(run) });
        }
        Answers { answers, ends: round.ends, clock: self.clock.clone() }
    }

    fn tally(&self) -> Tally {
        Tally::new(self.nodes.len())
    }

    /// Counts until the round is decided, or over.
    fn count(&self, answers: Answers<bool>) -> Tally {
        let mut tally = self.tally();
        for (_, answer) in answers {
            tally.count(answer);
            if tally.is_decided() {
                break;
            }
        }
        tally
    }

    /// Asks all nodes for a sign of life, and waits for each until `answer_by`: how many gave one, if a majority did.
    pub(super) fn ping(&self, answer_by: Moment) -> Result<usize, Failure> {
        let round = Round { ends: answer_by, begin_by: answer_by, ..self.round(answer_by) };
        let ping = move |at: &At, ready: Result<(), Failure>| ready.and_then(|()| at.store.ping(answer_by));
        let mut tally = self.tally();
        self.ask(Turn::Of(""), round, ping).for_each(|(_, answer)| tally.count(answer.map(|_| true)));
        if tally.is_won() { Ok(tally.yes()) } else { Err(tally.failure(answer_by).never_sent()) }
    }

    /// Ends a round that failed: its owner id is dead, and what it got is given back everywhere. Nobody waits for that:
    /// at each node the next round's command has its turn after the release.
    fn retreat(&self, tenure: &Arc<Tenure>, lease: Lease, round: Round, ears: Option<Arc<Ears>>) {
        tenure.end();
        tenure.may_last(round.open_until().plus(lease.at_most()));
        if let Some(ears) = ears {
            ears.ignore(|node| tenure.nodes().may_have(node));
            if tenure.nodes().is_confirmed_anywhere() {
                ears.rest_until(self.clock.now().plus(self.rest(tenure, round)));
            }
        }
        drop(self.free(tenure, round));
    }

    /// A random time of several rounds' length, so that of several clients with a part of the lock one comes first.
    fn rest(&self, tenure: &Tenure, round: Round) -> Duration {
        let took = self.clock.now().since(round.sent);
        let most = (took * 4 + Duration::from_millis(2)).min(LONGEST_REST);
        // No two owner ids are the same, in any process.
        Duration::from_nanos(hash(tenure.owner()) % u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1))
    }

    /// Sends the final release to every node that may have the key.
    fn free(&self, tenure: &Arc<Tenure>, round: Round) -> Answers<bool> {
        let (round, share, broom) = (round.patient(), Arc::clone(tenure), Arc::clone(&self.broom));
        // Kept until all nodes had their turn: the client may be dropped meanwhile.
        let keeper = self.broom.keeper();
        self.ask(Turn::Of(tenure.key().full()), round, move |at, ready| {
            let (freed, done) = free_at(at, ready, &share, round.ends);
            if !done {
                broom.sweep_later(&share, keeper.as_ref());
            }
            freed
        })
    }

    /// Frees tenures whose keys have their turn on the same thread of each node. It is done when a majority answered; the
    /// others go on.
    fn free_turn(&self, tenures: Vec<Arc<Tenure>>, answer_by: Moment) -> Result<(), Failure> {
        let Some(first) = tenures.first().map(Arc::clone) else { return Ok(()) };
        let (round, broom, keeper) = (self.round(answer_by).patient(), Arc::clone(&self.broom), self.broom.keeper());
        let answers = self.ask(Turn::Of(first.key().full()), round, move |at, ready| {
            let (freed, done) = free_all_at(at, ready, &tenures, round.ends);
            let left = tenures.iter().zip(done).filter(|(_, done)| !done);
            left.for_each(|(tenure, _)| broom.sweep_later(tenure, keeper.as_ref()));
            freed
        });
        let tally = self.count(answers);
        if tally.is_won() { Ok(()) } else { Err(tally.failure(round.open_until())) }
    }

    fn release_last(&self, tenure: &Arc<Tenure>, answer_by: Moment) -> Result<bool, Failure> {
        let round = self.round(answer_by);
        let tally = self.count(self.free(tenure, round));
        // A majority is free, and no node that had confirmed the hold has lost it: nothing says that the lock was not ours until now.
        if !tally.is_decided() && tally.is_answered() && !tenure.nodes().has_lost() {
            return Ok(true);
        }
        tally.result(round.patient().open_until())
    }

    fn release_level(&self, tenure: &Arc<Tenure>, left: usize, answer_by: Moment) -> Result<bool, Failure> {
        let (round, share) = (self.round(answer_by), Arc::clone(tenure));
        let answers = self.ask(Turn::Of(tenure.key().full()), round, move |at, ready| {
            ask_holder(at, &share, || ready.and_then(|()| at.keys.release(&share, left, round.ends)))
        });
        self.count(answers).result(round.open_until())
    }
}

impl Primitive for Quorum {
    fn take(&self, tenure: &Arc<Tenure>, lease: Lease, _: Manner<'_>, limits: Limits<'_>) -> Result<Take, Failure> {
        let answer_by = limits.answer_by;
        let ears = self.ears.of(tenure.key());
        if let Some(ears) = &ears {
            // Not on the waiter's semaphore: hints from the clients that this one has to avoid would end the wait.
            std::thread::sleep(ears.rest(self.clock.now(), answer_by));
            ears.hear_all();
        }
        let (round, share) = (self.round(answer_by), Arc::clone(tenure));
        tenure.nodes().ask(self.nodes.len());
        let key = Turn::Of(tenure.key().full());
        let answers = self.ask(key, round, move |at, ready| take_at(at, ready, &share, lease, round.ends));
        let (mut tally, mut locked, mut granted) = (self.tally(), Vec::new(), 0);
        for (_, answer) in answers {
            tally.count(answer.map(|take| match take {
                Take::Acquired(_) => {
                    granted += 1;
                    true
                }
                Take::Busy(left) => {
                    locked.push(left);
                    false
                }
                Take::Reserved(left) => {
                    locked.push(Some(left));
                    false
                }
            }));
            if tally.is_decided() {
                break;
            }
        }
        if tally.is_won() {
            return Ok(Take::Acquired(round.sent));
        }
        self.retreat(tenure, lease, round, ears);
        if tally.is_busy() {
            return Ok(Take::Busy(left(self.nodes.len(), granted, locked)));
        }
        Err(tally.failure(round.open_until()))
    }

    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        count: usize,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Option<Moment>, Failure> {
        let (round, share) = (self.round(limits.answer_by), Arc::clone(tenure));
        let answers = self.ask(Turn::Of(tenure.key().full()), round, move |at, ready| {
            let limits = Limits::of_lease(lease, round.ends);
            let reenter = || at.keys.reenter(&share, count, lease, limits).map(|sent| sent.is_some());
            ask_holder(at, &share, || ready.and_then(|()| reenter()))
        });
        self.count(answers).result(round.open_until()).map(|held| held.then_some(round.sent))
    }

    /// No caller waits for the watchdog. It waits for a majority as long as an answer may take, and for the others for
    /// the node time-out, so that the hold knows which nodes confirm it.
    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        let (brief, shares): (_, Arc<[_]>) = (self.round(answer_by), tenures.into());
        let round = match lane {
            Lane::Renewals => Round { ends: answer_by.max(brief.ends), begin_by: answer_by.max(brief.ends), ..brief },
            Lane::Calls | Lane::Releases => brief,
        };
        let turn = match lane {
            Lane::Renewals => Turn::Renewals,
            Lane::Calls | Lane::Releases => {
                tenures.first().map_or(Turn::Renewals, |tenure| Turn::Of(tenure.key().full()))
            }
        };
        let mut answers = self.ask(turn, round, move |at, ready| {
            let held = ready.and_then(|()| renew_at(at, lane, &shares, lease, round.ends));
            for (number, tenure) in shares.iter().enumerate() {
                note_holder(at, tenure, &held_by(&held, number));
            }
            held
        });
        let mut tallies: Vec<_> = tenures.iter().map(|_| self.tally()).collect();
        while let Some((_, held)) = answers.next() {
            for (number, tally) in tallies.iter_mut().enumerate() {
                tally.count(held_by(&held, number));
            }
            if tallies.iter().all(Tally::is_decided) {
                answers.ends = if lane == Lane::Renewals { brief.ends } else { brief.sent };
            }
        }
        let failure = tallies.first().filter(|_| !tallies.iter().any(Tally::is_decided));
        if let Some(failure) = failure.map(|tally| tally.failure(round.open_until())) {
            return Err(failure);
        }
        let held = tallies.into_iter().map(|tally| tally.result(round.open_until()));
        Ok(held.map(|held| held.map(|held| held.then_some(round.sent))).collect())
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, answer_by: Moment) -> Result<bool, Failure> {
        if left > 0 { self.release_level(tenure, left, answer_by) } else { self.release_last(tenure, answer_by) }
    }

    /// Done when a majority is free. The others are asked again later, and must not keep the sweeper from other locks.
    fn sweep(&self, tenure: &Arc<Tenure>, answer_by: Moment) -> Result<(), Failure> {
        if !tenure.nodes().is_anywhere() {
            return Ok(());
        }
        let round = self.round(answer_by);
        let mut tally = self.tally();
        for (_, freed) in self.free(tenure, round) {
            tally.count(freed);
            if tally.is_answered() {
                self.broom.sweep_again(tenure);
                return Ok(());
            }
        }
        Err(tally.failure(round.open_until()))
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        let mut turns: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for tenure in tenures {
            turns.entry(self.nodes[0].thread_of(tenure.key().full())).or_default().push(Arc::clone(tenure));
        }
        turns.into_values().try_for_each(|turn| self.free_turn(turn, answer_by))
    }

    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        let (round, share) = (self.round(answer_by).patient(), key.clone());
        let answers = self.ask(Turn::Of(key.full()), round, move |at, ready| {
            ready.and_then(|()| at.keys.force_unlock(&share, round.ends).map(|(was_there, _)| was_there))
        });
        let mut tally = self.tally();
        answers.for_each(|(_, existed)| tally.count(existed));
        if tally.is_answered() {
            Ok((tally.is_no_a_minority(), Life::ONLY))
        } else {
            Err(tally.failure(round.open_until()))
        }
    }

    /// Free when a majority is. Otherwise it waits for all: the first to answer need not be the first to be free.
    fn time_to_live(&self, key: &Key, answer_by: Moment) -> Result<Option<Option<Duration>>, Failure> {
        let (round, share) = (self.round(answer_by), key.clone());
        let answers = self.ask(Turn::Of(key.full()), round, move |at, ready| {
            ready.and_then(|()| at.keys.time_to_live(&share, round.ends))
        });
        let (mut tally, mut locked, mut free) = (self.tally(), Vec::new(), 0);
        for (_, answer) in answers {
            tally.count(answer.map(|left| {
                free += usize::from(left.is_none());
                locked.extend(left);
                left.is_none()
            }));
            if tally.is_won() {
                break;
            }
        }
        match (tally.is_won(), tally.is_busy()) {
            (true, _) => Ok(None),
            (_, true) => Ok(Some(left(self.nodes.len(), free, locked))),
            _ => Err(tally.failure(round.open_until())),
        }
    }

    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn queue(&self, _: &Key) -> Option<&Queue> {
        None
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        let ears = self.ears.open(key, semaphore, self.nodes.len());
        let (weak, share) = (Arc::downgrade(&ears), key.clone());
        let begin_by = self.clock.now().plus(WHENEVER);
        let round = Round { begin_by, whenever: true, ..self.round(Moment::MAX) };
        drop(self.ask(Turn::Of(key.full()), round, move |at, _| {
            let place =
                weak.upgrade().and_then(|ears| at.keys.listen(&share, ears.relay(at.node)).map(|place| (ears, place)));
            place.into_iter().for_each(|(ears, place)| ears.add(place));
            Ok(())
        }));
        Some(Box::new(ears))
    }
}

/// An outage is of a majority: it began when so many nodes were out of reach that no majority was left.
impl Health for Quorum {
    fn address(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|node| node.store().address()).collect();
        nodes.join(", ")
    }

    fn outage(&self) -> Option<Duration> {
        let mut outages: Vec<_> = self.nodes.iter().filter_map(|node| node.store().outage()).collect();
        outages.sort_unstable_by(|a, b| b.cmp(a));
        outages.get(self.nodes.len() - majority(self.nodes.len())).copied()
    }

    fn outage_ends(&self, resource: &str, now: Moment) -> Moment {
        let mut ends: Vec<_> = self.nodes.iter().map(|node| node.store().outage_ends(resource, now)).collect();
        ends.sort_unstable();
        ends[majority(ends.len()) - 1]
    }

    fn last_failure(&self, resource: &str) -> Option<Failure> {
        let failing = self.nodes.iter().filter(|node| node.store().outage().is_some());
        failing.filter_map(|node| node.store().last_failure(resource)).last()
    }
}
