//! Who waits, as the clients tell it themselves.

use crate::show::{self, ShownProcess};
use redlatch::inspect::{Access, Census, Claim, Process};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// Who waits for each lock.
#[derive(Debug)]
pub(crate) struct Waits(HashMap<String, Vec<Wait>>);

/// A thread that waits.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) process: Process,
    pub(crate) claim: Claim,
}

/// The same as JSON.
#[derive(Serialize)]
pub(crate) struct ShownWait<'s> {
    process: ShownProcess<'s>,
    client: &'s str,
    thread: u64,
    thread_name: Option<&'s str>,
    /// `alone`; `shared`: to read; `counted`: for permits or a latch.
    access: &'static str,
    /// Since 1970.
    began_at_ms: u64,
    /// Null: it has no end.
    ends_in_ms: Option<u64>,
}

/// So many silent processes are named.
const NAMED: usize = 5;

/// Says which processes did not answer, and what follows from it.
pub(crate) fn warn_of_silent(census: &Census, so: &str) {
    let silent: BTreeSet<_> = census.silent.iter().map(show::process).collect();
    if silent.is_empty() {
        return;
    }
    let named: Vec<_> = silent.iter().take(NAMED).map(String::as_str).collect();
    let more = if silent.len() > NAMED { format!(" and {} more", silent.len() - NAMED) } else { String::new() };
    log::warn!("{so}: these have another prefix, or did not answer: {}{more}", named.join(", "));
}

impl Waits {
    pub(crate) fn of(census: Census) -> Self {
        let mut waits = HashMap::<_, Vec<_>>::new();
        for account in census.accounts {
            for claim in account.waits {
                let name = claim.name.clone();
                waits.entry(name).or_default().push(Wait { process: account.process.clone(), claim });
            }
        }
        waits.values_mut().for_each(|each| each.sort_by_key(|wait| wait.claim.since));
        Self(waits)
    }

    /// The threads that wait for a lock. The one that began first comes first.
    pub(crate) fn at(&self, name: &str) -> &[Wait] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

impl Wait {
    /// For people, in one line.
    pub(crate) fn told(&self) -> String {
        let Claim { access, thread, thread_name, since, left, .. } = &self.claim;
        let (process, thread) = (show::process(&self.process), show::thread(*thread, thread_name.as_deref()));
        let to_read = if *access == Access::Shared { ", to read" } else { "" };
        let end = left.map_or_else(|| "without an end".to_owned(), |left| format!("ends in {}", show::span(left)));
        format!("{process}, thread {thread}{to_read}, began {} ago, {end}", show::ago(Some(*since)))
    }

    pub(crate) fn shown(&self) -> ShownWait<'_> {
        let (Process { client, .. }, claim) = (&self.process, &self.claim);
        ShownWait {
            process: ShownProcess::of(&self.process),
            client,
            thread: claim.thread,
            thread_name: claim.thread_name.as_deref(),
            access: access(claim.access),
            began_at_ms: show::since_1970(claim.since),
            ends_in_ms: claim.left.map(show::millis),
        }
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Shared => "shared",
        Access::Counted => "counted",
        _ => "alone",
    }
}
