//! Masters that are replaced beside workers, and the peace after it.

use super::{Ground, Stage};
use crate::history::belief;
use crate::history::failovers::Failover;
use crate::history::moves::Move;
use crate::history::names::{During, Names};
use crate::history::record::{MS, now};
use crate::nemesis::Step;
use crate::work;
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

/// A busy machine is waited for so long after a quarantine.
const PEACE: u64 = 15_000 * MS;

/// What a nemesis did to a group or a cluster.
#[derive(Default)]
pub(super) struct Happened {
    pub(super) failovers: Vec<Failover>,
    pub(super) moves: Vec<Move>,
    /// For other locks than those of the masters that were replaced.
    pub(super) rough: Vec<During>,
}

impl Stage {
    /// A nemesis that has masters replaced, or gives slots to others. It is rough for the workers until locks are granted again; making the group whole is
    /// not, unless all replicas have to confirm what is granted. Then they are left in peace for a while.
    pub(super) fn replace(&mut self, step: Step) {
        let Happened { failovers, moves, rough } = match &mut self.ground {
            Some(Ground::Group(party)) => party.act(step),
            Some(Ground::Cluster(shards)) => shards.act(step),
            _ => panic!("no group"),
        };
        let quarantine = self.bounds().quarantine();
        for failover in &failovers {
            self.note(failover);
            let span = (failover.began, failover.grants_from(quarantine));
            self.events.rough.push(During { names: failover.names, span });
        }
        // To plain clients a slot that moves is nothing.
        let quiet = moves.iter().filter_map(|moved| Some((moved, quarantine?)));
        let quiet = quiet.map(|(moved, lease)| During { names: moved.names, span: (moved.began, moved.ended + lease) });
        self.events.rough.extend(quiet.chain(rough));
        if let Some(last) = failovers.last().filter(|_| quarantine.is_some()) {
            self.leave_in_peace(last, quarantine);
        }
        self.events.failovers.extend(failovers);
        self.events.moves.extend(moves);
    }

    fn note(&mut self, failover: &Failover) {
        let Failover { began, promoted, named, .. } = *failover;
        let [began, promoted, named] = [began, promoted, named].map(|at| at.saturating_sub(self.started) / MS);
        writeln!(self.notes, "a master replaced: from {began}, promoted at {promoted}, named at {named} ms")
            .expect("room for the log");
    }

    /// The end of a round comes at any time. If a master was replaced just before, the workers go on until enough was granted after it:
    /// else the round would show nothing.
    pub(crate) fn rest(&mut self) {
        if let Some(last) = self.events.failovers.last().copied() {
            self.leave_in_peace(&last, self.bounds().quarantine());
        }
    }

    /// Until enough was granted, but not for ever.
    fn leave_in_peace(&mut self, failover: &Failover, quarantine: Option<u64>) {
        let from = failover.grants_from(quarantine);
        while self.granted_since(failover.names, from) < self.setting.enough
            && now() < from + PEACE
            && self.broken().is_none()
        {
            sleep(Duration::from_millis(100));
        }
    }

    fn granted_since(&self, names: Names, from: u64) -> usize {
        if now() < from {
            0
        } else {
            belief::beliefs(&self.trails(true))
                .iter()
                .filter(|belief| names.has(belief.name) && belief.from >= from)
                .count()
        }
    }

    /// The replicas do not know that the first lock is held, until one of them is the master. Those of a group learn nothing more.
    pub(crate) fn have_replicas_lose_the_lock(&self) {
        match self.ground() {
            Ground::Group(party) => party.have_replicas_lose(&work::resource(0)),
            Ground::Cluster(shards) => shards.have_replica_lose_all(0),
            Ground::One(_) => panic!("no replicas"),
        }
    }

    /// Stops who has the first lock for so long, and does something meanwhile.
    pub(crate) fn while_holder_is_stopped(&mut self, span: Duration, act: fn(&mut Self)) {
        let Some(holder) = self.stop_holder() else { return };
        let from = now();
        act(self);
        let rest = span.saturating_sub(Duration::from_nanos(now() - from));
        self.thaw_client(holder, rest);
    }

    /// What is left of a group is what its processes said. By how many ms their clocks differ.
    pub(super) fn leave_group(&self) -> i64 {
        match self.ground() {
            Ground::One(server) => server.clock_ahead().abs(),
            Ground::Cluster(shards) => {
                shards.keep_logs(&self.setting.dir);
                0
            }
            Ground::Group(party) => {
                party.keep_logs(&self.setting.dir);
                party.skew
            }
        }
    }
}
