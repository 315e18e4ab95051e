//! What the proxies do to the wire.

use crate::guarded::LIST;
use crate::nemesis::{Act, Step};
use crate::proxy::{self, Flow, Proxy, cut_after, pass, pass_after};
use fastrand::Rng;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Some of the data meets the fault, the rest passes.
pub(crate) fn set(proxy: &Proxy, step: Step) {
    let mut rng = Rng::with_seed(step.seed);
    proxy.set(move |_, flow, data| {
        let (hit, span) = (rng.u32(..3) == 0, Duration::from_millis(rng.u64(5..400)));
        match (step.act, flow) {
            _ if !hit => pass(data),
            (Act::Delay, Flow::Reply) | (Act::Linger, Flow::Request) => pass_after(span, data),
            (Act::Swallow, Flow::Reply) => Vec::new(),
            (Act::Cut, _) => cut_after(rng.usize(..=data.len()), data),
            _ => pass(data),
        }
    });
}

/// Of the requests that fit every n-th is not answered: its connection ends first.
pub(crate) fn cut_answers(proxy: &Proxy, every: usize, fits: fn(&[u8]) -> bool) {
    let (mut seen, mut asked) = (0, None);
    proxy.set(move |connection, flow, data| {
        if flow == Flow::Request && fits(data) {
            seen += 1;
            asked = (seen % every == 0).then_some(connection);
        }
        let is_answer = flow == Flow::Reply && asked == Some(connection);
        if is_answer {
            asked = None;
        }
        if is_answer { vec![proxy::Step::Cut] } else { pass(data) }
    });
}

/// The next request that fits is kept, and its connection ends.
pub(crate) fn keep_back(proxy: &Proxy, fits: fn(&[u8]) -> bool) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let keep = Arc::clone(&kept);
    proxy.set(move |_, flow, data| {
        let mut kept = keep.lock().unwrap();
        if flow == Flow::Reply || !fits(data) || !kept.is_empty() {
            return pass(data);
        }
        kept.extend(data);
        vec![proxy::Step::Cut]
    });
    kept
}

/// The requests that fit arrive later by so much; of these only every n-th.
pub(crate) fn hold_up(proxy: &Proxy, span: Duration, every: usize, fits: fn(&[u8]) -> bool) {
    let mut seen = 0;
    proxy.set(move |_, flow, data| {
        let hit = flow == Flow::Request && fits(data);
        seen += usize::from(hit);
        if hit && seen % every == 0 { pass_after(span, data) } else { pass(data) }
    });
}

/// The replies that fit arrive later by so much, and what comes after them on their connection.
pub(crate) fn hold_up_replies(proxy: &Proxy, span: Duration, fits: fn(&[u8]) -> bool) {
    proxy.set(move |_, flow, data| if flow == Flow::Reply && fits(data) { pass_after(span, data) } else { pass(data) });
}

/// The question of a census, on its way to a client.
pub(crate) fn is_question(data: &[u8]) -> bool {
    contains(data, "census 1 ")
}

fn contains(data: &[u8], word: &str) -> bool {
    data.windows(word.len()).any(|window| window == word.as_bytes())
}

/// By their shape, because a mutant's scripts have hashes of their own: only a release names the channel.
pub(crate) fn is_release(data: &[u8]) -> bool {
    contains(data, "EVALSHA") && contains(data, "redisson_lock__channel")
}

/// Acquire, re-enter and leave have 8 parts, and an acquire in turn names the queue; a renewal of n locks has 5 + 2n.
pub(crate) fn is_renewal(data: &[u8]) -> bool {
    let of_others = ["redisson_lock__channel", "redlatch_queue"];
    contains(data, "EVALSHA") && !of_others.iter().any(|word| contains(data, word)) && !data.starts_with(b"*8\r\n")
}

/// To the channel of a lock, not to those that come with it.
pub(crate) fn is_subscribe(data: &[u8]) -> bool {
    contains(data, "\r\nSUBSCRIBE\r\n") && contains(data, "redisson_lock__channel")
}

/// What names the queue of a fair lock: asks and releases.
pub(crate) fn is_of_fair_lock(data: &[u8]) -> bool {
    contains(data, "EVALSHA") && contains(data, "redlatch_tickets")
}

/// What changes a semaphore without leases.
pub(crate) fn is_of_semaphore(data: &[u8]) -> bool {
    contains(data, "EVALSHA") && contains(data, "redlatch_op:")
}

/// Commands that are run while a lock is held.
pub(crate) fn is_while_held(data: &[u8]) -> bool {
    contains(data, LIST)
}
