//! What the scripts of a leased semaphore do, in memory. Within one process calls wait in line, so nobody has a place.

use crate::base::time::Moment;
use crate::store::memory::{Command, Said};
use crate::store::node::Reply;
use std::collections::HashMap;
use std::time::Duration;

/// The semaphores, by their keys.
pub(super) type Semaphores = HashMap<String, Leases>;

/// How many permits are left, if somebody has set them, and who has the others until when.
#[derive(Default)]
pub(super) struct Leases {
    left: Option<i64>,
    out: HashMap<String, (i64, Moment)>,
}

impl Leases {
    /// Permits whose leases are over are left again.
    fn reclaim(&mut self, now: Moment) {
        let over: i64 = self.out.values().filter(|(_, till)| *till <= now).map(|(permits, _)| permits).sum();
        self.out.retain(|_, (_, till)| *till > now);
        self.left = self.left.map(|left| left + over);
    }

    fn is_out(&self) -> i64 {
        self.out.values().map(|(permits, _)| permits).sum()
    }

    /// In how many ms the next permit comes back; -1: none is out.
    fn next_return(&self, now: Moment) -> i64 {
        let next = self.out.values().map(|(_, till)| till.since(now)).min();
        next.map_or(-1, |next| i64::try_from(next.as_millis()).unwrap_or(i64::MAX).max(1))
    }

    fn acquire(&mut self, command: &Command<'_>) -> Said {
        let (permits, left) = (command.number(3), self.left.unwrap_or(0));
        if left < permits {
            let said = [self.next_return(command.now), 0, i64::from(self.left.is_none())];
            return (Reply::Array(said.map(Reply::Number).into()), None);
        }
        self.left = Some(left - permits);
        self.out.insert(command.args[2].clone(), (permits, command.now.plus(lease_of(command))));
        (Reply::Nil, None)
    }

    fn renew(&mut self, command: &Command<'_>) -> Said {
        let until = command.now.plus(lease_of(command));
        let renewed = self.out.get_mut(&command.args[2]).map(|(_, till)| *till = until.max(*till));
        (Reply::Number(i64::from(renewed.is_some())), None)
    }

    fn release(&mut self, owner: &str) -> Said {
        let Some((permits, _)) = self.out.remove(owner) else { return (Reply::Number(0), None) };
        self.left = Some(self.left.unwrap_or(0) + permits);
        (Reply::Number(1), self.left.map(|left| left.to_string()))
    }

    fn force(&mut self) -> Said {
        let out = self.is_out();
        if out == 0 {
            return (Reply::Number(0), None);
        }
        self.out.clear();
        self.left = Some(self.left.unwrap_or(0) + out);
        (Reply::Number(1), self.left.map(|left| left.to_string()))
    }

    fn set(&mut self, command: &Command<'_>) -> Said {
        if self.left.is_some() && command.number(4) == 0 {
            return (Reply::Number(0), None);
        }
        self.left = Some(command.number(3) - self.is_out());
        (Reply::Number(1), self.left.map(|left| left.to_string()))
    }

    fn look(&self, now: Moment) -> Reply {
        let found = self.left.map(|left| [left, self.is_out(), self.next_return(now)]);
        found.map_or(Reply::Nil, |found| Reply::Array(found.map(Reply::Number).into()))
    }
}

fn lease_of(command: &Command<'_>) -> Duration {
    Duration::from_millis(u64::try_from(command.number(1)).unwrap_or(0))
}

pub(super) fn run(semaphores: &mut Semaphores, command: &Command<'_>) -> Said {
    // A renewal names the leases and not the semaphore.
    let is_meant = |leases: &&mut Leases| leases.out.contains_key(&command.args[2]);
    if command.name == "RENEW_LEASED" {
        return semaphores.values_mut().find(is_meant).map_or((Reply::Number(0), None), |leases| leases.renew(command));
    }
    if command.name == "DELETE_LEASED" {
        let was_set = semaphores.remove(command.key).is_some_and(|leases| leases.left.is_some());
        return (Reply::Number(i64::from(was_set)), None);
    }
    let leases = semaphores.entry(command.key.to_owned()).or_default();
    leases.reclaim(command.now);
    match command.name {
        "ACQUIRE_LEASED" => leases.acquire(command),
        "RELEASE_LEASED" => leases.release(&command.args[0]),
        "FORCE_LEASED" => leases.force(),
        "SET_LEASED" => leases.set(command),
        "LOOK_LEASED" => (leases.look(command.now), None),
        _ => (Reply::Number(0), None),
    }
}
