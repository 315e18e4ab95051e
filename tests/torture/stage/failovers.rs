//! Masters that are replaced beside workers, and the peace after it.

use super::{Ground, Stage};
use crate::history::belief;
use crate::history::failovers::Failover;
use crate::history::record::{MS, now};
use crate::nemesis::Step;
use crate::work;
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

/// A busy machine is waited for so long after a quarantine.
const PEACE: u64 = 15_000 * MS;

impl Stage {
    /// A nemesis that has masters replaced. It is rough for the workers until locks are granted again; making the group whole is
    /// not, unless all replicas have to confirm what is granted. Then they are left in peace for a while.
    pub(super) fn replace(&mut self, step: Step) {
        let Some(Ground::Group(party)) = &mut self.ground else { panic!("no group") };
        let (found, quarantine) = (party.act(step), self.bounds().quarantine());
        for failover in &found {
            self.note(failover);
            self.events.rough.push((failover.began, failover.grants_from(quarantine)));
        }
        if let Some(last) = found.last().filter(|_| quarantine.is_some()) {
            self.leave_in_peace(last, quarantine);
        }
        self.events.failovers.extend(found);
    }

    fn note(&mut self, failover: &Failover) {
        let Failover { began, promoted, named, .. } = *failover;
        let [began, promoted, named] = [began, promoted, named].map(|at| at.saturating_sub(self.started) / MS);
        writeln!(self.notes, "a master replaced: from {began}, promoted at {promoted}, named at {named} ms")
            .expect("room for the log");
    }

    /// Until enough was granted, but not for ever.
    fn leave_in_peace(&mut self, failover: &Failover, quarantine: Option<u64>) {
        let from = failover.grants_from(quarantine);
        while self.granted_since(from) < self.setting.enough && now() < from + PEACE && self.broken().is_none() {
            sleep(Duration::from_millis(100));
        }
    }

    fn granted_since(&self, from: u64) -> usize {
        if now() < from {
            0
        } else {
            belief::beliefs(&self.trails(true)).iter().filter(|belief| belief.from >= from).count()
        }
    }

    /// From now on the replicas learn nothing, and do not know that the first lock is held, until one of them is the master.
    pub(crate) fn have_replicas_lose_the_lock(&self) {
        let Ground::Group(party) = self.ground() else { panic!("no group") };
        party.have_replicas_lose(&work::resource(0));
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
        let Ground::Group(party) = self.ground() else { return 0 };
        party.keep_logs(&self.setting.dir);
        party.skew
    }
}
