//! Strict mode in a cluster: a server that lost its data has lost it in all of its slots.

use super::{BEGIN_QUARANTINE, Keys};
use crate::base::key::Key;
use crate::base::slot::{slot_of, tag_of};
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use crate::store::Store;
use crate::store::node::{Arg, Lane, Limits, Request, Verb};
use std::sync::Arc;
use std::time::Duration;

/// How long it may take to tell all slots of a server. What is not told is found by its first use.
const WORTH: Duration = Duration::from_secs(10);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// So many slots go in one write.
const BATCH: usize = 500;

impl Keys {
    /// A quarantine was begun in the slot of a lock. It begins in the other slots of that server, too: else each would have its own at
    /// its first use, hours later. In the background; who did not begin it is not who does this.
    pub(super) fn spread_quarantine(&self, key: &Key) {
        let Some((epoch, length)) = self.epoch.clone().filter(|_| self.in_cluster) else { return };
        let (store, slots) = (Arc::clone(&self.store), self.store.slots_beside(key.full()));
        let until = Clock::Boot.now().plus(WORTH);
        let spread = move || slots.chunks(BATCH).for_each(|slots| begin_all(&*store, &epoch, length, slots, until));
        // Without a thread each slot has it at its first use.
        let _ = spawn("redlatch-quarantine", spread);
    }
}

fn name(epoch: &str, slot: u16) -> String {
    format!("{epoch}:{{{}}}", tag_of(slot))
}

/// A busy server may come to some of a batch alone in the time that an answer has, or to none: the others are asked for again.
fn begin_all(store: &dyn Store, epoch: &str, length: u64, slots: &[u16], until: Moment) {
    // A prefix with a tag of its own has all locks in one slot, whose epoch is the only one.
    let has_one = |slot: &u16| slot_of(name(epoch, *slot)) == *slot;
    let mut left: Vec<_> = slots.iter().copied().filter(has_one).collect();
    while !left.is_empty() && Clock::Boot.now() < until {
        left = begin(store, epoch, length, &left, until);
        std::thread::sleep(if left.is_empty() { Duration::ZERO } else { PAUSE });
    }
}

/// Those in which it has not begun, as far as is known.
fn begin(store: &dyn Store, epoch: &str, length: u64, slots: &[u16], until: Moment) -> Vec<u16> {
    let names: Vec<_> = slots.iter().map(|slot| name(epoch, *slot)).collect();
    let keys: Vec<_> = names.iter().map(String::as_str).collect();
    let args = [Arg::Deadline, Arg::RunId, Arg::Number(length)];
    let request = Request { may_ask: false, ..Request::new(Verb::Script(&BEGIN_QUARANTINE), &keys, &args) };
    let answers = store.attempt_all(Lane::Calls, &request, args.len(), Limits::any_time(until));
    let Ok(answers) = answers else { return slots.to_vec() };
    slots.iter().zip(answers).filter(|(_, answer)| answer.is_err()).map(|(slot, _)| *slot).collect()
}
