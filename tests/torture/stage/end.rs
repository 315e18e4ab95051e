//! How a round ends, and what came of it.

use super::ground::Ground;
use super::witness::Witness;
use super::{Stage, Worker, end_by_force};
use crate::history::events::{Event, LISTENS, explain};
use crate::history::operations::Histories;
use crate::history::permits::{self, COUNTED, LEASED, Out, TOTAL};
use crate::history::record::Trail;
use crate::history::{Finding, Verdict};
use crate::permits::{leases, semaphore};
use crate::reaper;
use crate::work::resource;
use crate::worker::{client_path, leaks_path};
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How soon a worker has ended once it is told to, and what is left on the server is gone.
const SOON: Duration = Duration::from_secs(20);

/// How many permits of a semaphore are in, if they are set.
const COUNT: &str = "local left = redis.call('GET', KEYS[1]) return left and { left } or {}";

/// What came of it.
pub(crate) struct End {
    pub(crate) verdict: Verdict,
    /// What a checker from outside is given.
    pub(crate) histories: Histories,
    /// What the servers say became of the locks' keys.
    pub(crate) events: Vec<Event>,
    /// What is left of the clients, on the server and in the workers, and how workers failed.
    pub(crate) leaks: Vec<String>,
    /// Why nothing of it counts.
    pub(crate) broken: Option<String>,
    enough: usize,
    /// All replicas confirm each grant.
    pub(crate) replicated: bool,
    /// By how many ms the clocks of servers differ.
    pub(crate) skew: i64,
}

impl End {
    /// Why the round shows nothing.
    pub(crate) fn void(&self) -> Option<String> {
        let scarce = self.verdict.after.iter().filter_map(|after| after.grants).find(|grants| *grants < self.enough);
        let scarce = scarce.map(|grants| format!("{grants} grants after a failover"));
        let is_silent = self.events.iter().all(|event| event.words == LISTENS);
        let unseen = (self.verdict.pairs > 0 && is_silent).then(|| "no server said what it did".to_owned());
        self.broken.clone().or(scarce).or(unseen)
    }
}

/// What the servers say became of a finding's lock, of those of which that is known.
pub(crate) fn explained(finding: &Finding, events: &[Event]) -> Option<String> {
    let Finding { at, of, .. } = finding;
    of.map(|(name, lasted)| explain(events, &resource(name), (*at, at + lasted)))
}

impl Stage {
    /// Lets the workers finish, and looks at what they left.
    pub(crate) fn finish(mut self) -> End {
        let mut leaks = Vec::new();
        for worker in &mut self.crew {
            drop(worker.child.stdin.take());
        }
        let broken = self.broken();
        let end = Instant::now() + SOON;
        for worker in std::mem::take(&mut self.crew) {
            leaks.extend(self.see_off(worker, end));
        }
        self.foreigner = None;
        // Now: a call of the foreigner counts as going on for as long as its trail.
        let trails = self.trails(false);
        // Its connections are not to be taken for those of workers.
        let events = self.witness.take().map_or_else(Vec::new, Witness::end);
        if broken.is_none() {
            leaks.extend(self.left_queues());
            leaks.extend(self.left_permits(&trails, &events));
            leaks.extend(self.left_on_server());
        }
        let (verdict, histories) = (self.judge(&trails, &events), self.histories(&trails));
        let skew = self.leave_group();
        self.proxies.clear();
        self.ground.take().into_iter().for_each(Ground::close);
        let (enough, replicated) = (self.setting.enough, self.bounds().replicated);
        End { verdict, histories, events, leaks, broken, enough, replicated, skew }
    }

    fn see_off(&mut self, mut worker: Worker, end: Instant) -> Vec<String> {
        let number = worker.number;
        match wait_until(&mut worker.child, end) {
            None => {
                end_by_force(&mut worker.child);
                vec![format!("worker {number} does not end")]
            }
            Some(status) => {
                reaper::forget(worker.child.id());
                let said = std::fs::read_to_string(leaks_path(&self.setting.dir, number));
                let failed = (!status.success()).then(|| format!("worker {number} failed: {status}"));
                failed.into_iter().chain(said.iter().flat_map(|text| text.lines()).map(str::to_owned)).collect()
            }
        }
    }

    /// When all is quiet, each permit is in, or out with a worker that was killed. Those with a lease count as in when that is over.
    fn left_permits(&self, trails: &[Trail], events: &[Event]) -> Option<String> {
        let (out, end) = (self.permits_out(trails, events), Instant::now() + SOON);
        while self.miscounted(out).is_some() && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        self.miscounted(out)
    }

    /// How many permits of the plain semaphore killed workers have, by the logs and by the servers.
    fn permits_out(&self, trails: &[Trail], events: &[Event]) -> Out {
        let Out { surely, perhaps } = permits::out(trails);
        let killed = (0..).zip(&self.fates).filter(|(_, fate)| fate.killed.is_some());
        let said =
            killed.filter_map(|(number, _)| std::fs::read_to_string(client_path(&self.setting.dir, number)).ok());
        let taken = permits::taken(events, semaphore(COUNTED), &said.collect::<Vec<_>>());
        let more = u64::try_from(taken).unwrap_or(0).saturating_sub(surely);
        Out { surely, perhaps: perhaps.max(more) + permits::unseen(trails, events) }
    }

    fn miscounted(&self, Out { surely, perhaps }: Out) -> Option<String> {
        let left = |name| {
            let found = self.ground().list(&["EVAL", COUNT, "1", semaphore(name)]);
            found.first().and_then(|left| left.parse::<i64>().ok())
        };
        let total = TOTAL as i64;
        let of_leased = left(LEASED).and_then(|left| {
            let out = self.ground().list(&["ZRANGE", &leases(LEASED), "0", "-1"]).len() as i64;
            (left + out != total).then(|| format!("leased permits: {left} are in and {out} out, of {total}"))
        });
        // A failover may forget that permits came back.
        let is_forgotten = self.setting.servers.have_failovers();
        let least = if is_forgotten { i64::MIN } else { total - (surely + perhaps) as i64 };
        let may_be = least..=total - surely as i64;
        let is_told = !self.bounds().forgets_permits(COUNTED);
        let of_counted = left(COUNTED).filter(|left| is_told && !may_be.contains(left));
        of_leased.or_else(|| of_counted.map(|left| format!("permits: {left} are in, and {may_be:?} should be")))
    }

    /// Keys of workers that were killed stay until their leases end; nothing else may, and those not for long.
    fn left_on_server(&self) -> Option<String> {
        let ground = self.ground();
        let end = Instant::now() + SOON;
        while ground.left().is_some() && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        ground.left()
    }
}

fn wait_until(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait().expect("a child's state") {
            Some(status) => return Some(status),
            None if Instant::now() > end => return None,
            None => sleep(Duration::from_millis(5)),
        }
    }
}
