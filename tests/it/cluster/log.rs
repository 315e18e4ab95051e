//! What an outage of one master looks like in the log, as `docs/on-call.md` says it.

use super::locks_of;
use crate::harness::cluster::{Cluster, Keys, Shape, slot_of};
use crate::process::alone;
use crate::sentinel::log::{keep_lines, lines};
use crate::threads::{LONG, answered, eventually};
use redlatch::{RedLock, RedLockExt};
use std::time::Duration;

/// Renewed every 5 s, and once more at once when that fails.
const LEASE: Duration = Duration::from_secs(15);
/// A master that works answers within it, also on a machine with much else to do; and two renewals that wait for it in
/// vain are over well before the leases end.
const ANSWER: Duration = Duration::from_secs(1);

const FAILED: &str = "renewing ";
const OVER: &str = "renewals are confirmed again at";

/// How many lines begin so and name a master. Of others nothing is asked: on a busy machine their answers may be late, too.
fn told(start: &str, at: &str) -> usize {
    lines().iter().filter(|line| line.starts_with(start) && line.contains(at)).count()
}

/// However often a strict client asks for a lock whose slot is on its way.
#[test]
fn a_slot_on_its_way_is_told_once_while_it_lasts() {
    alone(|| {
        keep_lines();
        let cluster = Cluster::of(Shape::STEADY);
        let strict = locks_of(cluster.builder().strict(true).watchdog_timeout(Duration::from_secs(1)));
        let name = cluster.name_at(0, 0);
        eventually(LONG, "its quarantine is over", || answered(|| strict.try_lock(&name)).0);
        strict.unlock(&name).unwrap();
        let moved = cluster.half_move(slot_of(&name), 1, Keys::None);
        (0..3).for_each(|_| assert!(!answered(|| strict.try_lock(&name)).0));
        let told = lines().iter().filter(|line| line.contains("is moving a slot elsewhere")).count();
        assert_eq!(told, 1, "{:#?}", lines());
        cluster.finish_move(moved);
    });
}

/// Holds at the other masters are renewed meanwhile, which does not end it.
#[test]
fn renewals_that_fail_at_one_master_are_told_once_and_told_to_be_over_when_they_are() {
    alone(|| {
        keep_lines();
        let cluster = Cluster::of(Shape::STEADY);
        let locks = locks_of(cluster.builder().watchdog_timeout(LEASE).response_timeout(ANSWER));
        let names = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(node, number)| cluster.name_at(node, number));
        let guards = names.each_ref().map(|name| locks.guard(name).unwrap());
        let often = cluster.name_at(2, 0);
        let often = locks.request(&often).renewed_lease(LEASE / 3).guard().unwrap();
        let frozen = cluster.nodes[0].address();
        cluster.nodes[0].freeze();
        let failed = || locks.client().stats().failed_renewals;
        eventually(LONG, "renewals fail", || told(FAILED, &frozen) == 1);
        let so_far = failed();
        eventually(LONG, "renewals fail again and again", || failed() >= so_far + 2);
        assert_eq!((told(FAILED, &frozen), told(OVER, &frozen)), (1, 0), "{:#?}", lines());
        cluster.nodes[0].thaw();
        // A renewal that was sent before may still fail when another one was confirmed: that is told, and told to be over, like any other.
        let is_over = || told(OVER, &frozen) >= 1 && told(OVER, &frozen) == told(FAILED, &frozen);
        eventually(LONG, "it is over", is_over);
        guards.into_iter().chain(often).for_each(|guard| guard.unlock().unwrap());
    });
}
