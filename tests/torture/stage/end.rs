//! How a round ends, and what came of it.

use super::ground::Ground;
use super::witness::Witness;
use super::{Stage, Worker, end_by_force};
use crate::history::events::{Event, LISTENS, explain};
use crate::history::operations::Histories;
use crate::history::{Finding, Verdict};
use crate::reaper;
use crate::work::resource;
use crate::worker::leaks_path;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How soon a worker has ended once it is told to, and what is left on the server is gone.
const SOON: Duration = Duration::from_secs(20);

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
        // Its connections are not to be taken for those of workers.
        let events = self.witness.take().map_or_else(Vec::new, Witness::end);
        if broken.is_none() {
            leaks.extend(self.left_queues());
            leaks.extend(self.left_on_server());
        }
        let trails = self.trails(false);
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
