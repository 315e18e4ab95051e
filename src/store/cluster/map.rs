//! Which master has which slot, by all that was said so far.

use super::said::{Owner, Said};
use crate::base::slot::SLOTS;
use crate::store::host_port::HostPort;

/// The master of each slot.
#[derive(Debug, Clone)]
pub(super) struct Map {
    /// For each slot a master's number, or [`NOBODY`].
    slots: Vec<u16>,
    masters: Vec<Owner>,
}

const NOBODY: u16 = u16::MAX;

/// The slots of which more has to be asked than where they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changed(Vec<u16>);

impl Changed {
    pub(super) fn of(slot: u16) -> Self {
        Self(vec![slot])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.0.binary_search(&slot).is_ok()
    }
}

impl Default for Map {
    fn default() -> Self {
        Self { slots: vec![NOBODY; usize::from(SLOTS)], masters: Vec::new() }
    }
}

impl Map {
    /// Whether nothing was ever said.
    pub(super) fn is_empty(&self) -> bool {
        self.masters.is_empty()
    }

    /// In the order of their numbers.
    pub(super) fn masters(&self) -> impl Iterator<Item = &HostPort> {
        self.masters.iter().map(|master| &master.address)
    }

    /// The number of a slot's master.
    pub(super) fn master_of(&self, slot: u16) -> Option<usize> {
        Some(self.slots[usize::from(slot)]).filter(|at| *at != NOBODY).map(usize::from)
    }

    /// All slots that the master of one has.
    pub(super) fn slots_beside(&self, slot: u16) -> Vec<u16> {
        let master = self.slots[usize::from(slot)];
        (0..SLOTS).filter(|other| master != NOBODY && self.slots[usize::from(*other)] == master).collect()
    }

    fn owner_of(&self, slot: u16) -> Option<&Owner> {
        self.master_of(slot).map(|at| &self.masters[at])
    }

    /// The map after this was said too, and the slots whose master is another one or has been none meanwhile: its epoch rose.
    ///
    /// A node that was away names masters that were replaced since then, and they may still answer as such: a slot never goes back to one
    /// of a lower epoch. A slot of which nothing is said keeps its master.
    pub(super) fn told(&self, said: &Said) -> (Self, Changed) {
        let mut owners: Vec<Option<&Owner>> = (0..SLOTS).map(|slot| self.owner_of(slot)).collect();
        for range in &said.ranges {
            for owner in &mut owners[usize::from(range.first)..=usize::from(range.last)] {
                if owner.is_none_or(|known| range.master.epoch >= known.epoch) {
                    *owner = Some(&range.master);
                }
            }
        }
        let differs = |slot: &u16| owners[usize::from(*slot)] != self.owner_of(*slot);
        let changed = Changed((0..SLOTS).filter(differs).collect());
        (Self::of(&owners), changed)
    }

    /// The map after the master of a slot itself has named another one, of which no more is known. It knows better than any
    /// epoch.
    pub(super) fn moved(&self, slot: u16, to: HostPort) -> Self {
        let epoch = self.owner_of(slot).map_or(0, |owner| owner.epoch);
        let known = self.masters.iter().find(|master| master.address == to && master.epoch >= epoch).cloned();
        let next = known.unwrap_or(Owner { address: to, epoch });
        let owner = |at| if at == slot { Some(&next) } else { self.owner_of(at) };
        Self::of(&(0..SLOTS).map(owner).collect::<Vec<_>>())
    }

    /// Of one that is named with several epochs the highest counts for all of its slots.
    fn of(owners: &[Option<&Owner>]) -> Self {
        let mut map = Self::default();
        for (slot, owner) in owners.iter().enumerate() {
            if let Some(owner) = owner {
                map.slots[slot] = map.number(owner);
            }
        }
        map
    }

    fn number(&mut self, owner: &Owner) -> u16 {
        let known = self.masters.iter().position(|master| master.address == owner.address);
        let at = known.unwrap_or_else(|| {
            self.masters.push(owner.clone());
            self.masters.len() - 1
        });
        self.masters[at].epoch = self.masters[at].epoch.max(owner.epoch);
        at as u16
    }
}

#[cfg(test)]
mod tests {
    use super::super::said::Range;
    use super::*;

    fn address(port: u16) -> HostPort {
        HostPort { host: "h".to_owned(), port }
    }

    fn said(ranges: &[(u16, u16, u16, u64)]) -> Said {
        let range = |&(first, last, port, epoch): &(u16, u16, u16, u64)| Range {
            first,
            last,
            master: Owner { address: address(port), epoch },
            replicas: Vec::new(),
        };
        Said { ranges: ranges.iter().map(range).collect(), sharded: false, is_down: false }
    }

    fn map(ranges: &[(u16, u16, u16, u64)]) -> Map {
        Map::default().told(&said(ranges)).0
    }

    fn port_of(map: &Map, slot: u16) -> Option<u16> {
        map.owner_of(slot).map(|owner| owner.address.port)
    }

    #[test]
    fn slots_go_to_a_higher_epoch_and_never_back() {
        let old = map(&[(0, 99, 1, 3), (100, 16_383, 2, 4)]);
        let (new, changed) = old.told(&said(&[(0, 49, 3, 7), (50, 99, 1, 3), (100, 16_383, 2, 4)]));
        assert_eq!([0, 50, 100].map(|slot| port_of(&new, slot)), [Some(3), Some(1), Some(2)]);
        assert!(changed.has(0) && changed.has(49) && !changed.has(50) && !changed.is_empty());
        let (same, changed) = new.told(&said(&[(0, 99, 1, 3), (100, 16_383, 2, 4)]));
        assert!(changed.is_empty() && port_of(&same, 0) == Some(3));
    }

    #[test]
    fn a_master_of_a_higher_epoch_may_have_been_none_meanwhile() {
        let old = map(&[(0, 9, 1, 3), (10, 19, 2, 4)]);
        let (new, changed) = old.told(&said(&[(0, 9, 1, 8), (10, 19, 2, 4)]));
        assert!(changed.has(9) && !changed.has(10) && port_of(&new, 9) == Some(1));
    }

    #[test]
    fn what_is_not_said_stays_as_it_was() {
        let (map, changed) = map(&[(0, 9, 1, 3)]).told(&said(&[]));
        assert!(changed.is_empty());
        assert_eq!([0, 10].map(|slot| port_of(&map, slot)), [Some(1), None]);
        assert!(!map.is_empty() && Map::default().is_empty());
    }

    #[test]
    fn without_epochs_the_latest_counts() {
        let (map, _) = map(&[(0, 9, 1, 0)]).told(&said(&[(0, 9, 2, 0)]));
        assert_eq!(port_of(&map, 0), Some(2));
        assert_eq!(map.masters().count(), 1, "who has no slot is no master");
    }

    #[test]
    fn the_master_itself_says_where_a_slot_went() {
        let map = map(&[(0, 9, 1, 3), (10, 19, 2, 4)]).moved(5, address(7)).moved(6, address(2));
        assert_eq!([4, 5, 6].map(|slot| port_of(&map, slot)), [Some(1), Some(7), Some(2)]);
        let (map, _) = map.told(&said(&[(0, 4, 1, 3), (5, 5, 7, 9), (6, 19, 2, 4)]));
        assert_eq!([4, 5, 6].map(|slot| port_of(&map, slot)), [Some(1), Some(7), Some(2)]);
    }
}
