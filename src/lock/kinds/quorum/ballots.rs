//! What one node is asked, and what its answer, the ballot, says of where a tenure's key is. The node's own thread books each
//! ballot, even if nobody waits for it any more.

use super::node::At;
use crate::base::error::Applied;
use crate::base::say::say;
use crate::base::time::{Lease, Moment};
use crate::lease::tenure::{Tenure, TenureState};
use crate::lock::primitive::{Primitive, Take};
use crate::lock::waiting::queue::Manner;
use crate::store::node::{Failure, Lane, Limits};
use std::sync::Arc;

/// The acquire at one node.
pub(super) fn take_at(
    at: &At,
    ready: Result<(), Failure>,
    tenure: &Arc<Tenure>,
    lease: Lease,
    answer_by: Moment,
) -> Result<Take, Failure> {
    let over = || matches!(tenure.state(), TenureState::Ended | TenureState::Lost);
    let taken = ready.and_then(|()| match over() {
        true => Err(at.unreached("the round is over")),
        false => at.keys.take(tenure, lease, Manner::Try, Limits::of_lease(lease, answer_by)),
    });
    let nodes = tenure.nodes();
    match &taken {
        Ok(Take::Acquired(_)) => nodes.confirm(at.node),
        Err(failure) if failure.applied() != Applied::No => {
            let open_until = if let Failure::Unknown { open_until, .. } = failure { *open_until } else { tenure.now() };
            tenure.leave_open(open_until, lease);
        }
        Ok(Take::Busy(_) | Take::Reserved(_)) | Err(_) => drop(nodes.miss(at.node)),
    }
    taken
}

/// Asks a node that may have the key, and books its answer. A node that surely has not is not asked.
pub(super) fn ask_holder(
    at: &At,
    tenure: &Tenure,
    ask: impl FnOnce() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    if !tenure.nodes().may_have(at.node) {
        return Ok(false);
    }
    let held = ask();
    note_holder(at, tenure, &held);
    held
}

/// The log says once per hold that a node lost the key: the node came back empty, or evicts what it should keep.
pub(super) fn note_holder(at: &At, tenure: &Tenure, held: &Result<bool, Failure>) {
    let nodes = tenure.nodes();
    match held {
        Ok(true) => nodes.confirm(at.node),
        // An acquire that was not answered may still be executed.
        Ok(false) if tenure.is_open() => drop(nodes.doubt(at.node)),
        // What a renewal finds behind the end of its tenure may be what the release did. That asks the node itself.
        Ok(false) if tenure.state() == TenureState::Ended => drop(nodes.doubt(at.node)),
        Ok(false) if nodes.lose(at.node) && tenure.is_valid() => {
            let (left, count) = nodes.confirmed().unwrap_or_default();
            let (lock, node) = (tenure.key().full(), at.store.address());
            say!(warn, "node {node} has lost lock {lock:?}, which {left} of {count} nodes confirm now");
        }
        Ok(false) => {}
        Err(_) => drop(nodes.doubt(at.node)),
    }
}

/// The final release at one node. Returns whether the key was there, or was until an earlier release; and whether it
/// surely is there no more.
pub(super) fn free_at(
    at: &At,
    ready: Result<(), Failure>,
    tenure: &Arc<Tenure>,
    answer_by: Moment,
) -> (Result<bool, Failure>, bool) {
    let nodes = tenure.nodes();
    if !nodes.may_have(at.node) {
        return (Ok(tenure.lives(Some(at.node)).may_have_freed()), true);
    }
    let freed = ready.and_then(|()| at.keys.release(tenure, 0, answer_by));
    let done = freed.is_ok() && !tenure.is_open();
    match freed {
        Ok(false) if done => _ = nodes.lose(at.node),
        _ if done => _ = nodes.miss(at.node),
        _ => {}
    }
    (freed, done)
}

/// The final releases of several tenures at one node, by one command; for each whether its key surely is there no more.
pub(super) fn free_all_at(
    at: &At,
    ready: Result<(), Failure>,
    tenures: &[Arc<Tenure>],
    answer_by: Moment,
) -> (Result<bool, Failure>, Vec<bool>) {
    let here: Vec<_> = tenures.iter().filter(|tenure| tenure.nodes().may_have(at.node)).cloned().collect();
    let freed = ready.and_then(|()| if here.is_empty() { Ok(()) } else { at.keys.sweep_all(&here, answer_by) });
    let done = |tenure: &Arc<Tenure>| freed.is_ok() && !tenure.is_open();
    here.iter().filter(|tenure| done(tenure)).for_each(|tenure| _ = tenure.nodes().miss(at.node));
    let done = tenures.iter().map(|tenure| !tenure.nodes().may_have(at.node)).collect();
    (freed.map(|()| true), done)
}

/// What a node said of several tenures: whether it has each.
type Held = Result<Vec<Result<bool, Failure>>, Failure>;

/// What a node said of one of several tenures.
pub(super) fn held_by(held: &Held, number: usize) -> Result<bool, Failure> {
    held.as_ref().map_err(Failure::clone).and_then(|held| held[number].clone())
}

/// The renewals at one node, of the tenures that it may have.
pub(super) fn renew_at(at: &At, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Held {
    let asked: Vec<_> = tenures.iter().filter(|tenure| tenure.nodes().may_have(at.node)).cloned().collect();
    let mut held =
        if asked.is_empty() { Vec::new() } else { renew_all(at, lane, &asked, lease, answer_by)? }.into_iter();
    let mut asked = asked.iter().peekable();
    let answers = tenures.iter().map(|tenure| match asked.next_if(|asked| Arc::ptr_eq(asked, tenure)) {
        Some(_) => held.next().unwrap_or(Ok(false)),
        None => Ok(false),
    });
    Ok(answers.collect())
}

/// The server may refuse one key to this user: the others must not be lost for that.
fn renew_all(at: &At, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Held {
    match at.keys.renew(lane, tenures, lease, answer_by) {
        Ok(renewed) => Ok(renewed.into_iter().map(|sent| sent.map(|sent| sent.is_some())).collect()),
        Err(failure) if tenures.len() > 1 && !failure.may_pass() => {
            Ok(tenures.chunks(1).map(|one| renew_all(at, lane, one, lease, answer_by)?.remove(0)).collect())
        }
        Err(failure) => Err(failure),
    }
}
