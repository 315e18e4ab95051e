//! Which server process each node of a quorum is: a process that is two nodes would vote twice.

use crate::base::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The process that a node was at its last connection.
#[derive(Debug)]
struct Voter {
    run_id: String,
    address: String,
}

/// The nodes of one quorum, by their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Voters {
    known: Arc<Mutex<BTreeMap<usize, Voter>>>,
}

impl Voters {
    /// The vote of a node.
    pub(crate) fn vote(&self, node: usize) -> Vote {
        Vote { node, voters: self.clone() }
    }
}

/// One node's vote.
#[derive(Debug, Clone)]
pub(crate) struct Vote {
    node: usize,
    voters: Voters,
}

impl Vote {
    /// Enters the process that the node is. After a restart, a failover or a moved address it is another one, and the earlier one is
    /// forgotten.
    ///
    /// # Errors
    /// The address of the other node that is the same process. The refused node then has no process: if the addresses of two nodes were
    /// swapped, both are let in once both have connected anew.
    pub(crate) fn cast(&self, run_id: &str, address: &str) -> Result<(), String> {
        if !names_a_process(run_id) {
            return Ok(());
        }
        let mut known = self.voters.known.lock();
        known.remove(&self.node);
        if let Some(other) = known.values().find(|voter| voter.run_id == run_id) {
            return Err(other.address.clone());
        }
        known.insert(self.node, Voter { run_id: run_id.to_owned(), address: address.to_owned() });
        Ok(())
    }
}

/// Whether this can be a random id. A service that shows all clients the same id, such as zeros, names no process by it.
fn names_a_process(run_id: &str) -> bool {
    let first = run_id.chars().next();
    run_id.len() >= 16 && run_id.chars().any(|digit| Some(digit) != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "8f8c8ab2d1b6a6f7c2d1e4a1b2c3d4e5f6a7b8c9";
    const OTHER: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn a_process_votes_once() {
        let voters = Voters::default();
        let [a, b] = [0, 1].map(|node| voters.vote(node));
        assert_eq!(a.cast(ONE, "a"), Ok(()));
        assert_eq!(b.cast(ONE, "b"), Err("a".to_owned()));
        assert_eq!(a.cast(ONE, "a"), Ok(()), "another connection of the node");
        assert_eq!(b.cast(OTHER, "b"), Ok(()));
    }

    #[test]
    fn a_node_may_become_another_process_and_two_may_swap() {
        let voters = Voters::default();
        let [a, b] = [0, 1].map(|node| voters.vote(node));
        assert_eq!([a.cast(ONE, "a"), b.cast(OTHER, "b")], [Ok(()), Ok(())]);
        assert!(a.cast(OTHER, "a").is_err(), "b has not been connected to since");
        assert_eq!([b.cast(ONE, "b"), a.cast(OTHER, "a")], [Ok(()), Ok(())]);
    }

    #[test]
    fn what_names_no_process_proves_nothing() {
        let voters = Voters::default();
        for id in ["", "0000000000000000000000000000000000000000", "x1"] {
            assert_eq!([0, 1].map(|node| voters.vote(node).cast(id, "h")), [Ok(()), Ok(())], "{id}");
        }
    }
}
