//! What the scripts of a semaphore do, in memory. Within one process calls wait in line, so nobody has a place, and no answer is lost.

use crate::store::memory::{Command, Said};
use crate::store::node::Reply;
use std::collections::HashMap;

/// How many permits each semaphore has left, by its key.
pub(super) type Semaphores = HashMap<String, i64>;

fn acquire(semaphores: &mut Semaphores, command: &Command<'_>) -> Said {
    let (left, permits) = (semaphores.get_mut(command.key), command.number(3));
    let is_unset = left.is_none();
    match left.filter(|left| **left >= permits) {
        Some(left) => {
            *left -= permits;
            (Reply::Nil, None)
        }
        None => (Reply::Array(vec![Reply::Number(0), Reply::Number(i64::from(is_unset))]), None),
    }
}

fn add(semaphores: &mut Semaphores, command: &Command<'_>) -> Said {
    if command.number(6) == 0 && !semaphores.contains_key(command.key) {
        return (Reply::Number(0), None);
    }
    let left = semaphores.entry(command.key.to_owned()).or_default();
    *left += command.number(3);
    (Reply::Number(*left), Some(left.to_string()))
}

fn set(semaphores: &mut Semaphores, command: &Command<'_>) -> Said {
    if semaphores.contains_key(command.key) {
        return (Reply::Number(0), None);
    }
    semaphores.insert(command.key.to_owned(), command.number(3));
    (Reply::Number(1), Some(command.number(3).to_string()))
}

fn drain(semaphores: &mut Semaphores, command: &Command<'_>) -> Reply {
    let left = semaphores.get_mut(command.key).filter(|left| **left > 0).map_or(0, std::mem::take);
    Reply::Number(left)
}

pub(super) fn run(semaphores: &mut Semaphores, command: &Command<'_>) -> Said {
    match command.name {
        "ACQUIRE_COUNTED" => acquire(semaphores, command),
        "ADD" => add(semaphores, command),
        "SET_COUNTED" => set(semaphores, command),
        "DELETE_COUNTED" => (Reply::Number(i64::from(semaphores.remove(command.key).is_some())), None),
        "DRAIN" => (drain(semaphores, command), None),
        "GET" => (semaphores.get(command.key).map_or(Reply::Nil, |left| Reply::Text(left.to_string().into())), None),
        _ => (Reply::Number(0), None),
    }
}
