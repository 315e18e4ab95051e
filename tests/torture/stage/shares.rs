//! What happens to those who have a share of a read-write lock.

use super::Stage;
use crate::history::evictions::Evicted;
use crate::history::record::{hash, now};
use crate::history::sides::read;
use crate::work::resource;

impl Stage {
    /// Takes a reader's time-out away, if one is in, as a server does that is short of memory.
    pub(super) fn evict(&mut self, seed: u64) {
        let mut timeouts: Vec<String> = self.server().ask(&["KEYS", "*:rwlock_timeout:1"]);
        timeouts.sort_unstable();
        let Some(timeout) = timeouts.get(seed as usize % timeouts.len().max(1)) else { return };
        let names = (0..self.setting.plan.sides).map(|lock| read(lock as u8));
        let of_one = |name| Some((name, owner_of(timeout, name)?.to_owned()));
        let Some((name, owner)) = names.into_iter().find_map(of_one) else { return };
        let from = now();
        let is_gone = self.server().ask::<u64>(&["DEL", timeout]) == 1;
        let evicted = Evicted { name, owner: hash(&owner), span: (from, now()) };
        self.events.evicted.extend(is_gone.then_some(evicted));
    }
}

/// Whose time-out of this name it is.
fn owner_of(timeout: &str, name: u8) -> Option<&str> {
    timeout.strip_prefix(&resource(name))?.strip_prefix(':')?.strip_suffix(":rwlock_timeout:1")
}
