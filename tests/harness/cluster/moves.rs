//! Slots that are moved from one master to another, also halfway, as `redis-cli` does it.

use super::{Cluster, id};
use crate::member::Member;

/// Which keys of a slot that is moved halfway are at the new place already.
#[derive(Debug, Clone, Copy)]
pub enum Keys<'a> {
    None,
    All,
    Named(&'a [&'a str]),
}

/// A slot on its way.
#[derive(Debug, Clone, Copy)]
pub struct Move {
    pub slot: u16,
    pub from: usize,
    pub to: usize,
}

/// How many keys go at a time.
const BATCH: &str = "100";

impl Member {
    fn set_slot(&self, slot: u16, words: &[&str]) -> redis::RedisResult<()> {
        let slot = slot.to_string();
        self.try_ask(&[&["CLUSTER", "SETSLOT", &slot], words].concat())
    }

    /// Some of the keys of a slot that are at this node.
    pub fn keys_in_slot(&self, slot: u16) -> Vec<String> {
        self.ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), BATCH])
    }

    /// Gives keys to another node. One that is gone meanwhile is none.
    fn migrate(&self, keys: &[&str], to: &Member) {
        let port = to.port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        self.ask::<String>(&[&words[..], keys].concat());
    }

    fn migrate_slot(&self, slot: u16, to: &Member) {
        loop {
            let keys = self.keys_in_slot(slot);
            if keys.is_empty() {
                return;
            }
            self.migrate(&keys.iter().map(String::as_str).collect::<Vec<_>>(), to);
        }
    }
}

fn says_replica(refused: &redis::RedisError) -> bool {
    refused.to_string().contains("only with masters")
}

impl Cluster {
    /// Moves a slot with all its keys, while clients go on.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.finish_move(self.half_move(slot, to, Keys::All));
    }

    /// Begins to move a slot, and leaves it halfway: keys that the old master does not have are asked for at the new one.
    #[track_caller]
    pub fn half_move(&self, slot: u16, to: usize, keys: Keys<'_>) -> Move {
        let moved = Move { slot, from: self.owner(slot), to };
        let (from, target) = self.ends(moved);
        target.set_slot(slot, &["IMPORTING", &id(moved.from)]).expect("a master imports");
        from.set_slot(slot, &["MIGRATING", &id(to)]).expect("a master migrates");
        match keys {
            Keys::None => {}
            Keys::All => from.migrate_slot(slot, target),
            Keys::Named(keys) => from.migrate(keys, target),
        }
        moved
    }

    /// The new master is told first, as since Redis 7.0: else nobody would have the slot for a while. Nobody makes a key at the
    /// old one meanwhile, also no script that did not name it: that is an error.
    #[track_caller]
    pub fn finish_move(&self, moved: Move) {
        let Move { slot, to, .. } = moved;
        let (from, target) = self.ends(moved);
        from.migrate_slot(slot, target);
        target.set_slot(slot, &["NODE", &id(to)]).expect("it takes the slot");
        // Whose last slot it was may have become a replica by itself meanwhile.
        let refused = from.set_slot(slot, &["NODE", &id(to)]).err();
        assert!(refused.as_ref().is_none_or(says_replica), "{refused:?}");
        for node in self.masters().into_iter().map(|node| &self.nodes[node]) {
            let _ = node.set_slot(slot, &["NODE", &id(to)]);
        }
    }

    /// All keys go back. The old master takes them only once it has forgotten the move, and answers then as if those that are
    /// still on their way back did not exist: this is for slots that nobody uses now, or of which no key was moved or made at
    /// the new place.
    #[track_caller]
    pub fn cancel_move(&self, moved: Move) {
        let (from, target) = self.ends(moved);
        from.set_slot(moved.slot, &["STABLE"]).expect("it keeps the slot");
        target.migrate_slot(moved.slot, from);
        target.set_slot(moved.slot, &["STABLE"]).expect("it forgets the move");
    }

    fn ends(&self, moved: Move) -> (&Member, &Member) {
        (&self.nodes[moved.from], &self.nodes[moved.to])
    }
}
