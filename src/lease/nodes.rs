//! At which nodes of a quorum the key of a tenure is, by their answers.

use crate::base::lives::Lives;
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// The nodes of a quorum are the bits of a word.
pub(crate) const MOST_NODES: usize = 64;

/// One bit for each node in each word. A kind that has one store uses none of them.
///
/// | word | a node is in it | and leaves it |
/// | --- | --- | --- |
/// | `holding` | when it is asked for the key | when it surely no longer has it |
/// | `confirming` | when it answered that it has it | with any other answer, or none |
/// | `confirmed` | the same | never |
/// | `lost` | when it no longer has it, though it had confirmed it | never |
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    count: AtomicUsize,
    holding: AtomicU64,
    confirming: AtomicU64,
    confirmed: AtomicU64,
    lost: AtomicU64,
    swept: AtomicBool,
    lives: OnceCell<Box<[Lives]>>,
}

impl Nodes {
    /// So many nodes are about to be asked for the key.
    pub(crate) fn ask(&self, count: usize) {
        self.count.store(count, SeqCst);
        self.lives.get_or_init(|| std::iter::repeat_with(Lives::default).take(count).collect());
        self.holding.store(u64::MAX >> (MOST_NODES - count), SeqCst);
    }

    /// The node said that it has the key.
    pub(crate) fn confirm(&self, node: usize) {
        self.holding.fetch_or(bit(node), SeqCst);
        self.confirmed.fetch_or(bit(node), SeqCst);
        self.confirming.fetch_or(bit(node), SeqCst);
    }

    /// The node did not answer. Returns whether it had confirmed before.
    pub(crate) fn doubt(&self, node: usize) -> bool {
        self.confirming.fetch_and(!bit(node), SeqCst) & bit(node) != 0
    }

    /// The node does not have the key. Returns whether it had confirmed before.
    pub(crate) fn miss(&self, node: usize) -> bool {
        self.holding.fetch_and(!bit(node), SeqCst);
        self.doubt(node)
    }

    /// The node does not have the key. If it ever confirmed it, it has lost it: it came back empty, or somebody took the key away. Returns
    /// whether it had confirmed when it was last asked.
    pub(crate) fn lose(&self, node: usize) -> bool {
        self.lost.fetch_or(self.confirmed.load(SeqCst) & bit(node), SeqCst);
        self.miss(node)
    }

    /// Whether any node that confirmed the key has lost it, by a renewal or by the release itself.
    pub(crate) fn has_lost(&self) -> bool {
        let confirmed = self.confirmed.load(SeqCst);
        let is_gone = |(node, lives): (usize, &Lives)| confirmed & bit(node) != 0 && lives.is_gone();
        self.lost.load(SeqCst) != 0 || self.lives.get().is_some_and(|all| all.iter().enumerate().any(is_gone))
    }

    pub(crate) fn may_have(&self, node: usize) -> bool {
        self.holding.load(SeqCst) & bit(node) != 0
    }

    pub(crate) fn is_anywhere(&self) -> bool {
        self.holding.load(SeqCst) != 0
    }

    pub(crate) fn is_confirmed_anywhere(&self) -> bool {
        self.confirming.load(SeqCst) != 0
    }

    pub(crate) fn note_release_under_way(&self) {
        self.lives.get().into_iter().flat_map(|lives| lives.iter()).for_each(Lives::leave_where_it_was);
    }

    /// Whether too many nodes for a majority had lost the key when it was released.
    pub(crate) fn is_gone(&self) -> bool {
        let lives = self.lives.get().map_or(&[][..], |lives| lives);
        let gone = lives
            .iter()
            .enumerate()
            .filter(|(node, lives)| lives.is_gone() || self.lost.load(SeqCst) & bit(*node) != 0);
        2 * gone.count() >= lives.len().max(1)
    }

    /// The lives of a node.
    pub(crate) fn lives(&self, node: usize) -> Option<&Lives> {
        self.lives.get()?.get(node)
    }

    /// How many nodes confirmed when they were last asked, and how many nodes there are. `None` if the tenure is not of a quorum.
    pub(crate) fn confirmed(&self) -> Option<(usize, usize)> {
        let count = self.count.load(SeqCst);
        (count != 0).then(|| (self.confirming.load(SeqCst).count_ones() as usize, count))
    }

    /// True for the first caller only, which has the tenure swept.
    pub(crate) fn sweep_once(&self) -> bool {
        !self.swept.swap(true, SeqCst)
    }
}

fn bit(node: usize) -> u64 {
    1 << node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::lives::Life;

    #[test]
    fn other_kinds_have_none() {
        let nodes = Nodes::default();
        assert_eq!((nodes.confirmed(), nodes.is_anywhere()), (None, false));
    }

    /// While an acquire is open, what a release finds at a node is not booked there: it may still come.
    #[test]
    fn a_node_that_confirmed_and_that_a_release_found_empty_has_lost_the_key() {
        let nodes = Nodes::default();
        nodes.ask(3);
        nodes.lives(1).unwrap().explain(Life(7), false);
        assert!(!nodes.has_lost(), "it never had the key");
        nodes.confirm(1);
        assert!(nodes.has_lost());
    }

    #[test]
    fn what_was_asked_may_have_the_key_until_it_says_no() {
        let nodes = Nodes::default();
        nodes.ask(MOST_NODES);
        assert!(nodes.may_have(0) && nodes.may_have(63));
        nodes.confirm(63);
        assert_eq!(nodes.confirmed(), Some((1, 64)));
        assert!(nodes.doubt(63) && !nodes.doubt(63));
        assert_eq!((nodes.confirmed(), nodes.may_have(63)), (Some((0, 64)), true));
        (0..MOST_NODES).for_each(|node| assert!(!nodes.miss(node)));
        assert!(!nodes.is_anywhere());
    }
}
