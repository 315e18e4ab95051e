//! Each rule of read-write locks, broken once: the search must find what it was there to prevent.

use super::client::{Mutant, Setup, Sides};
use super::search::{ALONE, BASE, CARED, ENDS, GROUNDED, LASTS, MODE, SPANNED, STRANGER, search};
use stateright::HasDiscoveries;

/// Two readers.
const READERS: &[(u8, u8, u8)] = &[(0, 1, 0), (1, 1, 0)];

/// One that writes and reads.
const BOTH: &[(u8, u8, u8)] = &[(0, 1, 1)];

/// A mutant, the bounds within which it is found, and what it breaks.
const REFUTED: [(Mutant, Setup, &str); 19] = [
    (Mutant::RenewsWithoutTimeOut, Setup { threads: &[(0, 1, 0)], evictions: 1, renewals: 1, ..BASE }, GROUNDED),
    (Mutant::RenewsTheTimeOutAlone, Setup { threads: &[(0, 1, 0)], renewals: 1, ..BASE }, LASTS),
    (Mutant::ReadsWithoutTimeOut, BASE, GROUNDED),
    (Mutant::TtlWithoutMax, Setup { threads: BOTH, leases: [1, 2], ..BASE }, LASTS),
    (Mutant::FreesBesideReaders, Setup { threads: READERS, ..BASE }, STRANGER),
    (Mutant::CutsTheWriter, Setup { threads: &[(0, 2, 1)], leases: [1, 3], breaks: 1, end: 1, ..BASE }, LASTS),
    (Mutant::CutsToTheShortest, Setup { threads: &[(0, 1, 0), (1, 1, 0), (2, 1, 0)], end: 2, ..BASE }, LASTS),
    (Mutant::KeepsTheDead, Setup { threads: READERS, end: 2, ..BASE }, ENDS),
    (Mutant::RenewsForTheDead, Setup { threads: READERS, renewals: 1, ..BASE }, ENDS),
    (Mutant::LeavesTheMode, Setup { threads: BOTH, ..BASE }, MODE),
    (Mutant::ForceLeavesTheMode, Setup { threads: BOTH, forces: 1, ..BASE }, MODE),
    (Mutant::TrustsTheProof, Setup { threads: &[(0, 1, 1), (1, 0, 1)], forces: 1, ..BASE }, ALONE),
    (Mutant::WritesBesideReaders, BASE, ALONE),
    (Mutant::SharesUnderAWriter, Setup { threads: &[(0, 1, 1), (0, 1, 0)], shares: true, ..BASE }, ALONE),
    (Mutant::LeavesWhatIsLost, Setup { threads: BOTH, leases: [3, 1], ..BASE }, CARED),
    (Mutant::SweepsForALease, Setup { threads: BOTH, leases: [3, 1], breaks: 3, end: 2, ..BASE }, CARED),
    (Mutant::NoAttemptDeadline, Setup { threads: &[(0, 1, 0)], breaks: 1, ..BASE }, CARED),
    (Mutant::SweepsTooEarly, Setup { threads: &[(0, 1, 0)], breaks: 1, ..BASE }, CARED),
    (Mutant::NeverSweeps, Setup { threads: &[(0, 1, 0)], breaks: 1, ..BASE }, CARED),
];

/// An attempt that outlives the lease, which the crate cuts short as well: docs/model.md, 1.
const OUTLIVING: Setup = Setup {
    threads: &[(0, 1, 0), (1, 0, 1)],
    response: 2,
    leases: [1, 1],
    breaks: 1,
    renewals: 1,
    tries: 2,
    end: 1,
    ..BASE
};

fn assert_holds(setup: Setup, mutant: Option<Mutant>) {
    let (_, found) = search(Sides { setup, mutant }, 1, HasDiscoveries::AnyFailures);
    assert!(found.is_empty(), "{mutant:?}: {}", found.join("\n"));
}

fn assert_refuted(mutant: Mutant, setup: Setup, broken: &'static str) {
    let property = HasDiscoveries::AllOf([broken].into());
    let (states, found) = search(Sides { setup, mutant: Some(mutant) }, 1, property);
    let breaks = found.iter().filter_map(|found| found.split(':').next()).collect::<Vec<_>>();
    assert!(breaks.contains(&broken), "{mutant:?} was not refuted by {broken:?}, but {breaks:?}");
    println!("{mutant:?}: {broken:?} is broken, found in {states} states");
}

#[test]
fn every_broken_rule_of_read_write_locks_is_found() {
    for (mutant, setup, broken) in REFUTED {
        assert_refuted(mutant, setup, broken);
        assert_holds(setup, None);
    }
}

#[test]
fn beliefs_count_from_the_request_and_not_after_their_end() {
    assert_refuted(Mutant::ValidFromReply, BASE, ALONE);
    assert_refuted(Mutant::RenewalAfterDeadline, OUTLIVING, SPANNED);
}

/// An id is never used again, so a time-out without a field is nothing, and ends by itself.
#[test]
fn a_time_out_that_is_left_does_no_harm() {
    assert_holds(Setup { threads: READERS, breaks: 1, tries: 2, end: 2, ..BASE }, Some(Mutant::LeavesItsTimeOut));
}
