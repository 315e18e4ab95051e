//! What happens to those who queue, and what is left of their queues.

use super::{Stage, Worker};
use crate::queue;
use crate::server::{Signal, signal};
use crate::worker::client_path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a worker asked before it was stopped or killed is answered by then.
const ANSWERED: Duration = Duration::from_millis(5);

/// How long a scene waits for what comes about soon.
const WAIT: Duration = Duration::from_secs(2);

/// How much longer than its time a queue may stay, in ms.
const LATE: u64 = 1_000;

impl Stage {
    /// Kills workers that none replaces, and looks whether one of them had the first lock.
    fn dismiss(&mut self, whom: &[usize]) {
        let crew = std::mem::take(&mut self.crew).into_iter().enumerate();
        let (mut gone, stay): (Vec<_>, Vec<_>) = crew.partition(|(place, _)| whom.contains(place));
        self.crew = stay.into_iter().map(|(_, worker)| worker).collect();
        gone.iter_mut().for_each(|(_, worker)| self.end_by_force(worker));
        sleep(ANSWERED);
        let owner = self.owner().unwrap_or_default();
        for (_, worker) in gone {
            self.fates[worker.number as usize].empty_handed = !self.is_of(&owner, &worker);
        }
    }

    /// While the first worker has the lock that it waited for, and a foreigner waits, two more come to wait, and are killed.
    /// Not if that does not come about soon.
    pub(crate) fn lose_two_beside_a_foreigner(&mut self, soon: Duration) {
        if !self.comes_about(WAIT, |stage| stage.first_in_queue(0) == Some(0))
            || !self.comes_about(WAIT, |stage| stage.has(0))
        {
            return;
        }
        (0..2).for_each(|_| self.engage(0));
        self.comes_about(soon, |stage| {
            queue::tickets(stage.server(), 0).len() == 2 && queue::foreigners(stage.server(), 0) > 0
        });
        self.dismiss(&[1, 2]);
    }

    /// Puts tickets of so many that are gone before those of the workers that wait for the first lock, and waits until they
    /// are removed.
    pub(crate) fn leave_dead(&mut self, count: u64) {
        if self.comes_about(WAIT, |stage| !queue::tickets(stage.server(), 0).is_empty()) {
            queue::leave_dead(self.server(), 0, count);
            self.comes_about(WAIT, |stage| {
                !queue::tickets(stage.server(), 0).iter().any(|ticket| queue::is_dead(ticket))
            });
        }
    }

    /// Who has the first lock.
    fn owner(&self) -> Option<String> {
        queue::owner(|words| self.ground().list(words), 0)
    }

    /// Whether a worker gets the first lock within that time, or has it.
    pub(crate) fn gets_the_lock(&mut self, whom: usize, soon: Duration) -> bool {
        self.comes_about(soon, |stage| stage.has(whom))
    }

    /// Stops a worker that has the first lock; `None`: nobody is caught with it.
    pub(super) fn stop_holder(&mut self) -> Option<usize> {
        let end = Instant::now() + WAIT;
        while Instant::now() < end {
            let holder = (0..self.crew.len()).find(|&whom| self.has(whom));
            if let Some(holder) = holder {
                signal(Signal::STOP, self.crew[holder].child.id()).unwrap();
                sleep(ANSWERED);
                if self.has(holder) {
                    return Some(holder);
                }
                signal(Signal::CONT, self.crew[holder].child.id()).unwrap();
            }
        }
        None
    }

    /// Whether a worker has the first lock.
    fn has(&mut self, whom: usize) -> bool {
        let owner = self.owner();
        owner.is_some_and(|owner| self.is_of(&owner, &self.crew[whom]))
    }

    /// Stops the worker that is next to get the first lock, while another has it; `None`: it got it before.
    pub(crate) fn stop_next(&mut self) -> Option<usize> {
        let next = self.first_in_queue(0)?;
        let pid = self.crew[next].child.id();
        signal(Signal::STOP, pid).unwrap();
        sleep(ANSWERED);
        let is_next = self.first_in_queue(0) == Some(next) && self.owner().is_some() && !self.has(next);
        if !is_next {
            signal(Signal::CONT, pid).unwrap();
        }
        is_next.then_some(next)
    }

    /// It goes on after so long.
    pub(crate) fn thaw_client(&mut self, whom: usize, after: Duration) {
        sleep(after);
        signal(Signal::CONT, self.crew[whom].child.id()).unwrap();
    }

    fn comes_about(&mut self, soon: Duration, mut so: impl FnMut(&mut Self) -> bool) -> bool {
        let end = Instant::now() + soon;
        while Instant::now() < end {
            if so(self) {
                return true;
            }
            sleep(Duration::from_millis(1));
        }
        false
    }

    /// Which worker is the first of those in the queue of a lock that live, if any is.
    fn first_in_queue(&mut self, name: u64) -> Option<usize> {
        let tickets = queue::tickets(self.server(), name);
        tickets.iter().find_map(|ticket| self.place_of(ticket))
    }

    fn place_of(&self, ticket: &str) -> Option<usize> {
        self.crew.iter().position(|worker| self.is_of(ticket, worker))
    }

    /// Whether a ticket, or the owner field of a lock, is a worker's.
    fn is_of(&self, text: &str, worker: &Worker) -> bool {
        let said = std::fs::read_to_string(client_path(&self.setting.dir, worker.number));
        let client = text.split(':').next().filter(|client| !client.is_empty());
        client.is_some_and(|client| said.is_ok_and(|said| said.contains(client)))
    }

    fn keys(&self, kinds: &[&str]) -> Vec<String> {
        kinds.iter().flat_map(|keys| self.ground().list(&["KEYS", keys])).collect()
    }

    /// Whoever was killed has left a place in a queue, which goes with it: so long after the last of them came. Else none
    /// is left but words, which end as late.
    pub(super) fn left_queues(&self) -> Option<String> {
        let (at_once, in_time) = (LATE, 3 * self.setting.plan.poll + LATE);
        let killed = self.fates.iter().any(|fate| fate.killed.is_some());
        let began = Instant::now();
        let outlives = |kinds: &[&str], allowed| self.outlives(kinds, began + Duration::from_millis(allowed));
        let left = outlives(&queue::OF_WAITERS, if killed { in_time } else { at_once });
        let left = left.or_else(|| outlives(&queue::WORDS, in_time));
        let left = left.or_else(|| (!killed).then(|| outlives(&queue::OF_THREADS, at_once)).flatten());
        left.map(|left| format!("outlives its waiters: {left:?}")).or_else(|| self.left_to_end())
    }

    /// Nobody takes those out of the queue of a fair lock that were killed, if nobody comes any more. It ends by itself.
    fn left_to_end(&self) -> Option<String> {
        let longest = (3 * self.setting.plan.poll + queue::OUTLIVES_THREADS) as i64;
        let ttl = |key: &str| self.ground().list(&["EVAL", "return { redis.call('PTTL', KEYS[1]) }", "1", key]);
        let ends = |ttl: &String| ttl.parse().is_ok_and(|ttl: i64| ttl == -2 || (0..=longest).contains(&ttl));
        let mut keys = self.keys(&queue::OF_THREADS).into_iter().map(|key| (ttl(&key), key));
        keys.find(|(ttl, _)| !ttl.iter().all(ends)).map(|(ttl, key)| format!("does not end in time: {key}, {ttl:?} ms"))
    }

    /// What is left of such keys then.
    fn outlives(&self, kinds: &[&str], end: Instant) -> Option<Vec<String>> {
        while !self.keys(kinds).is_empty() && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        Some(self.keys(kinds)).filter(|left| !left.is_empty())
    }
}
