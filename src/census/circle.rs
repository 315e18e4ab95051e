//! Circles of waiting, found in one census.
//!
//! Why one census is enough. Let the question be sent at a moment T. An account is made after T, and tells each claim's age by one clock. The
//! asker measures how long the account took from T until it arrived, which is longer than from T until it was made. So a claim that is older
//! than that time began before T, and it was still there when the account was made: it was there at T. All claims that are that old were
//! there together, at one moment, whichever order the accounts were made in. Younger claims are left out.
//!
//! A hold is what its client believes. A client learns at its next renewal that a lock was freed by force, so a name that one thread has alone
//! beside another makes no circle. If the new holder is not asked, the old one counts until then.
//!
//! A thread that waits cannot release what it holds. So a circle at T stays until the wait of one member ends in vain, or a hold is lost.
//! A thread waits for each thread that keeps it from its lock, so one circle through any of these is enough.

use super::account::{escaped, micros, time, unescaped, words};
use super::{Access, Account, Claim, Deadlock, Member};
use crate::base::process::Process;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use uuid::Uuid;

/// A thread: its process, and its number there.
type Thread = (Uuid, u64);

/// A wait, and whose it is.
struct Waiting<'a> {
    account: &'a Account,
    claim: &'a Claim,
}

impl Waiting<'_> {
    fn thread(&self) -> Thread {
        (self.account.of, self.claim.thread)
    }
}

/// The circles that existed when the census began. Each account comes with how long it took from the question until it arrived.
pub(crate) fn circles(accounts: &[(Account, Duration)]) -> Vec<Deadlock> {
    let waits = waits_of(accounts);
    let edges = edges(&waits, &holders_of(accounts));
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for at in 0..waits.len() {
        if let Some(circle) = circle_through(at, &edges)
            && seen.insert(sorted(&circle))
        {
            found.push(deadlock(&waits, circle));
        }
    }
    found
}

fn waits_of(accounts: &[(Account, Duration)]) -> Vec<Waiting<'_>> {
    let each =
        accounts.iter().flat_map(|(account, took)| account.waits.iter().map(move |claim| (account, claim, took)));
    let are_meant =
        each.filter(|(account, claim, took)| claim.access != Access::Counted && account.is_older(claim, **took));
    are_meant.map(|(account, claim, _)| Waiting { account, claim }).collect()
}

/// The threads that held each lock when the question was sent.
fn holders_of(accounts: &[(Account, Duration)]) -> HashMap<&str, Vec<(Thread, Access)>> {
    let mut told: HashMap<&str, Vec<(Thread, Access, bool)>> = HashMap::new();
    for (account, took) in accounts {
        for claim in &account.holds {
            let is_old = account.is_older(claim, *took);
            told.entry(&claim.name).or_default().push(((account.of, claim.thread), claim.access, is_old));
        }
    }
    // Who has a lock alone beside another has not learned yet that somebody freed it. The other one may have it since the question.
    let are_true = |holders: &Vec<(Thread, Access, bool)>| {
        let alone = holders.iter().find(|(_, access, _)| *access == Access::Alone);
        alone.is_none_or(|(one, ..)| holders.iter().all(|(thread, ..)| thread == one))
    };
    told.retain(|_, holders| are_true(holders));
    let old = |(thread, access, is_old): (Thread, Access, bool)| is_old.then_some((thread, access));
    told.into_iter().map(|(name, holders)| (name, holders.into_iter().filter_map(old).collect())).collect()
}

/// For each wait, the waits of those threads that keep it from its lock. What a thread holds itself does not keep it.
fn edges(waits: &[Waiting<'_>], holders: &HashMap<&str, Vec<(Thread, Access)>>) -> Vec<Vec<usize>> {
    let mut by_thread: HashMap<Thread, Vec<usize>> = HashMap::new();
    waits.iter().enumerate().for_each(|(at, wait)| by_thread.entry(wait.thread()).or_default().push(at));
    let keeps = |wait: &Waiting<'_>, (thread, access): &(Thread, Access)| {
        *thread != wait.thread() && (wait.claim.access == Access::Alone || *access == Access::Alone)
    };
    let of = |wait: &Waiting<'_>| -> Vec<usize> {
        let holders = holders.get(wait.claim.name.as_str()).into_iter().flatten();
        let keepers = holders.filter(|holder| keeps(wait, holder)).filter_map(|(thread, _)| by_thread.get(thread));
        keepers.flatten().copied().collect()
    };
    waits.iter().map(of).collect()
}

/// The shortest circle through a wait. A search in breadth looks at each edge once.
fn circle_through(start: usize, edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut from = HashMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for &to in &edges[at] {
            if to == start {
                return Some(path(start, at, &from));
            }
            if let Entry::Vacant(unseen) = from.entry(to) {
                unseen.insert(at);
                next.push_back(to);
            }
        }
    }
    None
}

fn path(start: usize, end: usize, from: &HashMap<usize, usize>) -> Vec<usize> {
    let mut path = vec![end];
    while path[path.len() - 1] != start {
        path.push(from[&path[path.len() - 1]]);
    }
    path.reverse();
    path
}

fn sorted(circle: &[usize]) -> Vec<usize> {
    let mut sorted = circle.to_vec();
    sorted.sort_unstable();
    sorted
}

/// The circle, from the member that began to wait last. Every asker finds the same one: all are told the same moments, and equal ones are
/// ordered by thread.
fn deadlock(waits: &[Waiting<'_>], mut circle: Vec<usize>) -> Deadlock {
    let began = |at: &usize| (waits[*at].claim.since, waits[*at].thread());
    let last = (0..circle.len()).max_by_key(|at| began(&circle[*at])).unwrap_or(0);
    circle.rotate_left(last);
    let before = |at: usize| circle[(at + circle.len() - 1) % circle.len()];
    let members = circle.iter().enumerate().map(|(at, wait)| member(&waits[*wait], &waits[before(at)]));
    Deadlock { members: members.collect() }
}

/// A thread of a circle. The one before it waits for what it holds.
fn member(wait: &Waiting<'_>, before: &Waiting<'_>) -> Member {
    let Claim { name, thread, thread_name, since, .. } = wait.claim;
    Member {
        process: wait.account.process.clone(),
        thread: *thread,
        thread_name: thread_name.clone(),
        holds: before.claim.name.clone(),
        waits_for: name.clone(),
        since: *since,
    }
}

/// The first word of a message that tells a circle, and the version of its form.
const START: &str = "circle 1\n";

impl Deadlock {
    /// As a message: a line for each member.
    pub(crate) fn text(&self) -> String {
        let lines = self.members.iter().map(|member| {
            let Member { process, thread, thread_name, holds, waits_for, since } = member;
            let [holds, waits_for, name] = [holds, waits_for, thread_name.as_deref().unwrap_or_default()].map(escaped);
            format!("{} {thread} {} {holds} {waits_for} {name}\n", process.connection(), micros(*since))
        });
        std::iter::once(START.to_owned()).chain(lines).collect()
    }

    /// `None` for a text that is no such message.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let lines = std::str::from_utf8(text).ok()?.strip_prefix(START)?.lines();
        let members: Vec<_> = lines.map(member_in).collect::<Option<_>>()?;
        (members.len() > 1).then_some(Self { members })
    }
}

fn member_in(line: &str) -> Option<Member> {
    let [connection, thread, since, holds, waits_for, name] = words(line)?;
    Some(Member {
        process: Process::named(connection)?,
        thread: thread.parse().ok()?,
        thread_name: Some(unescaped(name)?).filter(|name| !name.is_empty()),
        holds: unescaped(holds)?,
        waits_for: unescaped(waits_for)?,
        since: time(since)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const AT: Duration = Duration::from_secs(1_000_000);

    fn account(process: u128) -> Account {
        let at = SystemTime::UNIX_EPOCH + AT;
        let process = (Process::here(Some("test"), Uuid::from_u128(process)), Uuid::from_u128(process));
        Account { process: process.0, holds: Vec::new(), waits: Vec::new(), at, of: process.1 }
    }

    fn claim(name: &str, access: Access, thread: u64, age_ms: u64) -> Claim {
        let since = SystemTime::UNIX_EPOCH + AT - Duration::from_millis(age_ms);
        Claim { name: name.to_owned(), access, thread, thread_name: None, since, left: None }
    }

    /// Thread 1 of each process holds one lock and waits for the next. The first of `ages` is that of the last to begin.
    fn ring(ages: &[u64]) -> Vec<(Account, Duration)> {
        let of = |(at, age): (usize, &u64)| {
            let mut account = account(at as u128);
            account.holds.push(claim(&format!("lock {at}"), Access::Alone, 1, age + 100));
            account.waits.push(claim(&format!("lock {}", (at + 1) % ages.len()), Access::Alone, 1, *age));
            (account, Duration::from_millis(5))
        };
        ages.iter().enumerate().map(of).collect()
    }

    fn threads(circle: &Deadlock) -> Vec<&str> {
        circle.members.iter().map(|member| member.waits_for.as_str()).collect()
    }

    #[test]
    fn a_circle_begins_with_the_member_that_began_to_wait_last() {
        for size in [2, 3, 5] {
            let mut ages = vec![900; size];
            ages[size - 1] = 50;
            let found = circles(&ring(&ages));
            assert_eq!((found.len(), found[0].members.len()), (1, size));
            assert_eq!(found[0].last().waits_for, "lock 0", "{:?}", found[0]);
            assert_eq!(found[0].last().holds, format!("lock {}", size - 1));
            assert_eq!(Deadlock::read(found[0].text().as_bytes()), Some(found[0].clone()));
        }
    }

    #[test]
    fn a_circle_is_one_line_of_a_log() {
        let mut accounts = ring(&[90, 80]);
        accounts[0].0.waits[0].thread_name = Some("worker\nERROR all is lost".to_owned());
        assert_eq!(circles(&accounts)[0].to_string().lines().count(), 1);
    }

    #[test]
    fn all_accounts_in_any_order_give_the_same_circle() {
        let mut accounts = ring(&[700, 700, 700]);
        let found = circles(&accounts);
        accounts.reverse();
        assert_eq!(circles(&accounts), found);
        assert_eq!(threads(&found[0]), ["lock 0", "lock 1", "lock 2"], "equal ages: by thread");
    }

    /// Of each claim in turn: younger than the question, and so perhaps never there with the others.
    #[test]
    fn a_claim_that_is_younger_than_the_question_makes_no_circle() {
        assert_eq!(circles(&ring(&[5, 5])).len(), 1, "just old enough");
        for at in 0..4 {
            let mut accounts = ring(&[50, 50]);
            let account = &mut accounts[at / 2].0;
            let claims = if at % 2 == 0 { &mut account.holds } else { &mut account.waits };
            claims[0].since = account.at - Duration::from_millis(4);
            assert!(circles(&accounts).is_empty(), "{at}");
        }
    }

    #[test]
    fn readers_keep_a_writer_and_not_each_other() {
        for (held, awaited, is_circle) in [
            (Access::Shared, Access::Shared, false),
            (Access::Shared, Access::Alone, true),
            (Access::Alone, Access::Shared, true),
        ] {
            let mut accounts = ring(&[90, 80]);
            accounts[0].0.holds[0].access = held;
            accounts[1].0.waits[0].access = awaited;
            // Another reader of the lock, which waits for nothing, is in no circle.
            if held == Access::Shared {
                accounts[1].0.holds.push(claim("lock 0", held, 2, 900));
            }
            assert_eq!(circles(&accounts).len(), usize::from(is_circle), "{held:?} {awaited:?}");
        }
    }

    #[test]
    fn two_threads_of_one_process_are_two() {
        let mut account = account(7);
        for (thread, holds, waits) in [(1, "a", "b"), (2, "b", "a")] {
            account.holds.push(claim(holds, Access::Alone, thread, 90));
            account.waits.push(claim(waits, Access::Alone, thread, 80));
        }
        assert_eq!(circles(&[(account.clone(), Duration::ZERO)]).len(), 1);
        account.holds.iter_mut().for_each(|hold| hold.thread = 3);
        assert!(circles(&[(account, Duration::ZERO)]).is_empty(), "thread 3 waits for nothing");
    }

    /// A thread that waits for what it holds itself, as one that reads and comes to write, is kept by others alone.
    #[test]
    fn nobody_waits_for_himself_or_for_permits() {
        let mut own = account(7);
        own.holds.push(claim("a", Access::Shared, 1, 90));
        own.waits.push(claim("a", Access::Alone, 1, 80));
        assert!(circles(&[(own, Duration::ZERO)]).is_empty());
        let mut accounts = ring(&[90, 80]);
        accounts[0].0.waits[0].access = Access::Counted;
        assert!(circles(&accounts).is_empty());
    }

    /// Two clients of one process are one process: a thread may hold by one of them and wait by the other.
    #[test]
    fn a_thread_with_two_clients_is_one_thread() {
        let mut accounts = ring(&[90, 80]);
        let mut other = account(9);
        other.of = accounts[0].0.of;
        other.holds = std::mem::take(&mut accounts[0].0.holds);
        accounts.push((other, Duration::ZERO));
        let found = circles(&accounts);
        assert_eq!((found.len(), found[0].members.len()), (1, 2));
    }

    /// One of them was freed by force, and has not learned it yet. The other one may have it since the question.
    #[test]
    fn a_lock_with_two_holders_makes_no_circle() {
        for (access, age) in [(Access::Alone, 900), (Access::Shared, 900), (Access::Alone, 1)] {
            let mut accounts = ring(&[90, 80]);
            accounts[1].0.holds.push(claim("lock 0", access, 2, age));
            assert!(circles(&accounts).is_empty(), "{access:?} {age}");
        }
    }

    #[test]
    fn several_circles_are_found_and_each_once() {
        let mut accounts = ring(&[90, 80]);
        accounts.extend(ring(&[70, 60, 50]).into_iter().map(|(mut account, took)| {
            account.of = Uuid::from_u128(account.of.as_u128() + 100);
            let renamed = |claim: &mut Claim| claim.name.push_str(" of others");
            account.holds.iter_mut().chain(&mut account.waits).for_each(renamed);
            (account, took)
        }));
        let sizes: Vec<_> = circles(&accounts).iter().map(|circle| circle.members.len()).collect();
        assert_eq!(sizes, [2, 3]);
    }

    #[test]
    fn other_texts_are_no_circle() {
        let text = circles(&ring(&[90, 80]))[0].text();
        let lines: Vec<_> = text.lines().collect();
        let others = ["".to_owned(), text.replacen('1', "2", 1), lines[..2].join("\n"), format!("{text}x\n")];
        assert!(others.iter().all(|text| Deadlock::read(text.as_bytes()).is_none()));
        assert_eq!(Deadlock::read(b"circle 1\n\xff"), None);
    }
}
