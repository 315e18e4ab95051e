//! What the scripts of a latch do, in memory.

use crate::base::time::Moment;
use crate::store::memory::{Command, Said};
use crate::store::node::Reply;
use std::collections::HashMap;
use std::time::Duration;

/// The latches that are closed, or were not opened in time, by their keys.
pub(super) type Latches = HashMap<String, Latch>;

pub(super) struct Latch {
    count: i64,
    /// When its time is over, and when that is forgotten.
    ends: Option<[Moment; 2]>,
}

impl Latch {
    fn is_over(&self, now: Moment) -> bool {
        self.ends.is_some_and(|[till, _]| till <= now)
    }

    /// In how many ms its time is over; -1: it stays until it opens.
    fn left(&self, now: Moment) -> i64 {
        let left = self.ends.map(|[till, _]| till.since(now).as_millis());
        left.map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX).max(1))
    }
}

fn set(latches: &mut Latches, command: &Command<'_>) -> Said {
    if latches.get(command.key).is_some_and(|latch| !latch.is_over(command.now)) {
        return (Reply::Number(0), None);
    }
    let (count, ttl) = (command.number(3), Duration::from_millis(u64::try_from(command.number(4)).unwrap_or(0)));
    let ends = (!ttl.is_zero()).then(|| [command.now.plus(ttl), command.now.plus(ttl * 2)]);
    latches.insert(command.key.to_owned(), Latch { count, ends });
    (Reply::Number(1), Some("1".to_owned()))
}

fn count_down(latches: &mut Latches, command: &Command<'_>) -> Said {
    let latch = match latches.get_mut(command.key) {
        None => return (Reply::Number(0), None),
        Some(latch) if latch.is_over(command.now) => return (Reply::Number(-1), None),
        Some(latch) => latch,
    };
    latch.count -= 1;
    match latch.count {
        0 => open(latches, command),
        left => (Reply::Number(left), None),
    }
}

fn look(latches: &Latches, command: &Command<'_>) -> Reply {
    match latches.get(command.key) {
        None => Reply::Nil,
        Some(latch) if latch.is_over(command.now) => Reply::Text(b"over".into()),
        Some(latch) => Reply::Number(latch.left(command.now)),
    }
}

/// The answer of a latch that was open is that of a count of zero, too.
fn open(latches: &mut Latches, command: &Command<'_>) -> Said {
    let was_closed = latches.remove(command.key).is_some_and(|latch| !latch.is_over(command.now));
    let opened = was_closed && command.name == "OPEN";
    (Reply::Number(i64::from(opened)), was_closed.then(|| "0".to_owned()))
}

fn count(latches: &Latches, command: &Command<'_>) -> Reply {
    let closed = latches.get(command.key).filter(|latch| !latch.is_over(command.now));
    closed.map_or(Reply::Nil, |latch| Reply::Text(latch.count.to_string().into()))
}

pub(super) fn run(latches: &mut Latches, command: &Command<'_>) -> Said {
    latches.retain(|_, latch| latch.ends.is_none_or(|[_, forgotten]| forgotten > command.now));
    match command.name {
        "SET_COUNT" => set(latches, command),
        "COUNT_DOWN" => count_down(latches, command),
        "LOOK_AT_LATCH" => (look(latches, command), None),
        "OPEN" => open(latches, command),
        "GET" => (count(latches, command), None),
        _ => (Reply::Number(0), None),
    }
}
