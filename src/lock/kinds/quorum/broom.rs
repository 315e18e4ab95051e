//! Releases that nodes are owed after a call has ended, because the releases did not reach them.

use super::node::Node;
use crate::base::time::Moment;
use crate::client::Space;
use crate::lease::tenure::{Keeper, Tenure};
use crate::store::node::GRACE;
use crossbeam_channel::bounded;
use once_cell::sync::OnceCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a release may wait for its turn: longer than an acquire before it may take.
pub(super) const LATE_RELEASE: Duration = Duration::from_secs(1);

/// How soon the nodes that did not answer a sweep are asked again.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// The same while a shutdown waits for them.
const SWEEP_LAST: Duration = Duration::from_millis(50);

/// How often a shutdown looks whether the sweeps are done.
const LOOK: Duration = Duration::from_millis(2);

/// Has a tenure swept at the nodes that its release did not reach.
pub(super) struct Broom {
    pub(super) space: Arc<Space>,
    pub(super) keeper: OnceCell<Weak<dyn Keeper>>,
    /// When a shutdown stops waiting for nodes.
    pub(super) settles_by: OnceCell<Moment>,
}

impl Broom {
    pub(super) fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        self.keeper.get().and_then(Weak::upgrade)
    }

    /// Sweeps a tenure once: the sweeper goes on by itself.
    pub(super) fn sweep_later(&self, tenure: &Arc<Tenure>, keeper: Option<&Arc<dyn Keeper>>) {
        if let Some(keeper) = keeper.filter(|_| tenure.nodes().sweep_once()) {
            let due = tenure.sweep_due().unwrap_or(Moment(0));
            self.space.sweeper.sweep(tenure, Arc::clone(keeper), due.max(tenure.now()));
        }
    }

    /// Sweeps again while a node may have the key, and the client is open or its shutdown waits.
    pub(super) fn sweep_again(&self, tenure: &Arc<Tenure>) {
        let pause = if self.space.check_not_shut("").is_ok() { SWEEP_AGAIN } else { SWEEP_LAST };
        let due = tenure.now().plus(pause);
        let until = self.settles_by.get().map_or(tenure.lease_until(), |by| tenure.lease_until().min(*by));
        let wanted = tenure.nodes().is_anywhere() && due < until;
        if let Some(keeper) = self.keeper().filter(|_| wanted) {
            self.space.sweeper.sweep(tenure, keeper, due);
        }
    }

    /// The end of a shutdown: waits until each node has done what is owed to it, for as long as a release may be late.
    ///
    /// An unlock returns when a majority has answered, so a node that lags may have hundreds of releases before it. If
    /// the program ended after its shutdown, those keys would stay there until their leases end.
    pub(super) fn settle(&self, nodes: &[Node]) {
        let clock = &self.space.clock;
        let by = *self.settles_by.get_or_init(|| clock.now().plus(LATE_RELEASE + GRACE));
        while clock.now() < by {
            let done = self.space.sweeper.all_done();
            self.await_turns(nodes, by);
            // A job that failed leaves a sweep, and a sweep makes jobs: so no sweep may have come or gone meanwhile.
            if done.is_some() && done == self.space.sweeper.all_done() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until all jobs that the nodes have now had their turn.
    fn await_turns(&self, nodes: &[Node], by: Moment) {
        let clock = &self.space.clock;
        let (turn, turns) = bounded::<()>(0);
        nodes.iter().for_each(|node| node.after_calls(&turn, || by.since(clock.now())));
        drop(turn);
        // Nobody sends: this ends when each thread has dropped its clone.
        let _ = turns.recv_timeout(by.since(clock.now()));
    }
}
