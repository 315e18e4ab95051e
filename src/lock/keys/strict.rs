//! What strict mode adds: the epoch, which tells whether a server lost its data, and the quarantine that follows.

use super::BEGIN_QUARANTINE;
use crate::base::config::Config;
use crate::base::key::{EPOCH, Key};
use crate::base::slot::{slot_of, tag_of};
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use crate::store::Store;
use crate::store::node::{Arg, Lane, Limits, Request};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long it may take to begin the quarantine in all slots of a server. Other slots begin it at their first use.
const WORTH: Duration = Duration::from_secs(10);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// How many slots go in one write.
const BATCH: usize = 500;

pub(super) struct Strict {
    /// The key of the epoch; in a cluster, what the epochs of all slots begin with.
    epoch: String,
    in_cluster: bool,
    /// How long nothing is granted, ms.
    pub(super) quarantine: u64,
    /// A quarantine is going on, and the log says so.
    pub(super) is_said: AtomicBool,
}

impl Strict {
    pub(super) fn new(config: &Config) -> Self {
        let (epoch, quarantine) = ([&config.key_prefix, EPOCH].concat(), config.watchdog_lease.millis());
        Self { epoch, in_cluster: config.in_cluster, quarantine, is_said: AtomicBool::new(false) }
    }

    /// The arguments by which a wrapper finds and writes the epoch.
    pub(super) fn args(&self) -> [Arg<'_>; 3] {
        let key = if self.in_cluster { Arg::InSlot(&self.epoch) } else { Arg::Text(&self.epoch) };
        [key, Arg::RunId, Arg::Number(self.quarantine)]
    }

    /// Begins the quarantine in the other slots of a server, in the background, after it began in the slot of a lock. A server that lost
    /// its data lost it in all of its slots. Else each slot would begin its own quarantine at its first use, hours later.
    pub(super) fn spread(&self, store: &Arc<dyn Store>, key: &Key) {
        let slots = store.slots_beside(key.full());
        if slots.is_empty() {
            return;
        }
        let (store, epoch, length) = (Arc::clone(store), self.epoch.clone(), self.quarantine);
        let until = Clock::Boot.now().plus(WORTH);
        let spread = move || slots.chunks(BATCH).for_each(|slots| begin_all(&*store, &epoch, length, slots, until));
        // Without a thread each slot begins it at its first use.
        let _ = spawn("redlatch-quarantine", spread);
    }
}

fn name(epoch: &str, slot: u16) -> String {
    format!("{epoch}:{{{}}}", tag_of(slot))
}

/// A busy server may begin only some of a batch before its answer is due, or none: it is asked again for the others.
fn begin_all(store: &dyn Store, epoch: &str, length: u64, slots: &[u16], until: Moment) {
    // If the prefix has a tag, all locks are in one slot, whose epoch is the only one.
    let has_one = |slot: &u16| slot_of(name(epoch, *slot)) == *slot;
    let mut left: Vec<_> = slots.iter().copied().filter(has_one).collect();
    while !left.is_empty() && Clock::Boot.now() < until {
        left = begin(store, epoch, length, &left, until);
        std::thread::sleep(if left.is_empty() { Duration::ZERO } else { PAUSE });
    }
}

/// Returns the slots in which the quarantine may not have begun.
fn begin(store: &dyn Store, epoch: &str, length: u64, slots: &[u16], until: Moment) -> Vec<u16> {
    let names: Vec<_> = slots.iter().map(|slot| name(epoch, *slot)).collect();
    let keys: Vec<_> = names.iter().map(String::as_str).collect();
    let args = [Arg::Deadline, Arg::RunId, Arg::Number(length)];
    let request = Request { may_ask: false, ..Request::of(&BEGIN_QUARANTINE, &keys, &args) };
    let answers = store.attempt_all(Lane::Calls, &request, args.len(), Limits::any_time(until));
    let Ok(answers) = answers else { return slots.to_vec() };
    slots.iter().zip(answers).filter(|(_, answer)| answer.is_err()).map(|(slot, _)| *slot).collect()
}
