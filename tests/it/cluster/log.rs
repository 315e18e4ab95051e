//! What an outage of one master looks like in the log, as `docs/on-call.md` says it.

use super::locks_of;
use crate::harness::cluster::{Cluster, Shape};
use crate::process::alone;
use crate::sentinel::log::{keep_lines, lines_from};
use crate::threads::{LONG, eventually, ms};
use redlatch::RedLockExt;
use std::time::Duration;

/// Renewed every 4 s, and each second once that fails, three times before it ends.
const LEASE: Duration = Duration::from_secs(12);

const FAILED: &str = "renewing ";
const OVER: &str = "renewals are confirmed again at";

/// Holds at the other masters are renewed meanwhile, which does not end it.
#[test]
fn renewals_that_fail_at_one_master_are_told_once_and_told_to_be_over_when_they_are() {
    alone(|| {
        keep_lines();
        let cluster = Cluster::of(Shape::STEADY);
        let locks = locks_of(cluster.builder().watchdog_timeout(LEASE).response_timeout(ms(200)));
        let names = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(node, number)| cluster.name_at(node, number));
        let guards = names.each_ref().map(|name| locks.guard(name).unwrap());
        let often = cluster.name_at(2, 0);
        let often = locks.request(&often).renewed_lease(LEASE / 8).guard().unwrap();
        cluster.nodes[0].freeze();
        let failed = || locks.client().stats().failed_renewals;
        eventually(LONG, "renewals fail again and again", || failed() >= 6);
        assert_eq!((lines_from(FAILED), lines_from(OVER)), (1, 0));
        cluster.nodes[0].thaw();
        eventually(LONG, "it is over", || lines_from(OVER) == 1);
        guards.into_iter().chain(often).for_each(|guard| guard.unlock().unwrap());
        assert_eq!(lines_from(FAILED), 1);
    });
}
