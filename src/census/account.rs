//! What a client tells of its threads, and the text in which it does so.

use crate::base::mutant::{self, Mutant};
use crate::base::process::Process;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// What a client tells of its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// Its process.
    pub process: Process,
    /// The locks that its threads hold. Permits are no thread's: they are not told.
    pub holds: Vec<Claim>,
    /// What its threads wait for.
    pub waits: Vec<Claim>,
    /// When it was made, by the clock of its machine.
    pub at: SystemTime,
    /// The same for all clients of a process, and never that of another one.
    pub(crate) of: Uuid,
}

/// A thread that holds a lock, or waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The name of the lock, without the key prefix.
    pub name: String,
    /// With whom the thread shares it, or would.
    pub access: Access,
    /// The number of the thread, as its process counts those that use locks.
    pub thread: u64,
    /// The name of the thread, if it has one.
    pub thread_name: Option<String>,
    /// Since when it holds the lock, or has waited for it, by the clock of its machine.
    pub since: SystemTime,
    /// Of a hold: for how long it is surely valid if nobody renews it. Of a wait: how much of its time is left; `None`: it has no end.
    pub left: Option<Duration>,
}

/// How a lock is held or waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// Alone: a lock, or the write side of a read-write lock.
    Alone,
    /// With others: the read side of a read-write lock.
    Shared,
    /// As one of those who wait for permits of a semaphore, or for a latch.
    Counted,
}

/// The longest message of a census, in bytes, but for its head. A client drops its connection at a message of more than 64 KiB.
pub(crate) const LONGEST: usize = 32 * 1024;

/// The first word of a piece, and the version of the form. What begins otherwise is not read.
const START: &str = "account 1 ";

impl Account {
    /// Whether a claim was older than this when the account was made.
    pub(crate) fn is_older(&self, claim: &Claim, than: Duration) -> bool {
        mutant::is(Mutant::BelievesYoungClaims) || self.at.duration_since(claim.since).is_ok_and(|age| age >= than)
    }

    /// Each piece has a head, `account 1 <at> <process> <connection>`, how many pieces there are, and a line for each claim.
    pub(crate) fn pieces(&self) -> Vec<String> {
        let lines = self.holds.iter().map(|claim| line('h', claim));
        let lines = lines.chain(self.waits.iter().map(|claim| line('w', claim)));
        let mut bodies = vec![String::new()];
        for line in lines {
            if bodies[bodies.len() - 1].len() + line.len() > LONGEST {
                bodies.push(String::new());
            }
            bodies.last_mut().into_iter().for_each(|body| body.push_str(&line));
        }
        let head = format!("{START}{} {} {}", micros(self.at), self.of, self.process.connection());
        bodies.iter().map(|body| format!("{head} {}\n{body}", bodies.len())).collect()
    }

    /// A piece, and how many there are; `None` for a text that is none. A line that is not understood is left out.
    pub(crate) fn read(piece: &[u8]) -> Option<(Self, usize)> {
        let (head, body) = std::str::from_utf8(piece).ok()?.strip_prefix(START)?.split_once('\n')?;
        let [at, of, connection, pieces] = words(head)?;
        let (at, of, process) = (time(at)?, Uuid::parse_str(of).ok()?, Process::named(connection)?);
        let claims = |sign: char| body.lines().filter_map(|line| claim(line.strip_prefix(sign)?)).collect();
        let account = Self { process, holds: claims('h'), waits: claims('w'), at, of };
        Some((account, pieces.parse().ok()?))
    }
}

fn line(sign: char, claim: &Claim) -> String {
    let access = match claim.access {
        Access::Alone => 'a',
        Access::Shared => 's',
        Access::Counted => 'c',
    };
    let (since, thread, name) = (micros(claim.since), claim.thread, escaped(&claim.name));
    let mut line = format!("{sign} {access} {thread} {since} {name} ");
    // A time without an end, and a thread without a name, are empty words.
    let _ = write!(line, "{} ", claim.left.map_or_else(String::new, |left| left.as_micros().to_string()));
    let _ = writeln!(line, "{}", escaped(claim.thread_name.as_deref().unwrap_or_default()));
    line
}

fn claim(line: &str) -> Option<Claim> {
    let [access, thread, since, name, left, thread_name] = words(line.strip_prefix(' ')?)?;
    let access = match access {
        "a" => Access::Alone,
        "s" => Access::Shared,
        "c" => Access::Counted,
        _ => return None,
    };
    let left = if left.is_empty() { None } else { Some(Duration::from_micros(left.parse().ok()?)) };
    let thread_name = Some(unescaped(thread_name)?).filter(|name| !name.is_empty());
    Some(Claim { name: unescaped(name)?, access, thread: thread.parse().ok()?, thread_name, since: time(since)?, left })
}

/// A text as one word: bytes other than letters and digits are percent-escaped.
pub(super) fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

pub(super) fn unescaped(word: &str) -> Option<String> {
    percent_decode_str(word).decode_utf8().ok().map(Into::into)
}

/// The words of a line, if they are so many.
pub(super) fn words<const N: usize>(line: &str) -> Option<[&str; N]> {
    line.split(' ').collect::<Vec<_>>().try_into().ok()
}

pub(super) fn micros(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros()
}

pub(super) fn time(micros: &str) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(claims: usize) -> Account {
        let at = time("1700000000123456").unwrap();
        let claim = |number: usize| Claim {
            name: format!("order {number}\nwith\0 all: sorts%20of {{signs}} é"),
            access: [Access::Alone, Access::Shared, Access::Counted][number % 3],
            thread: number as u64,
            thread_name: number.is_multiple_of(2).then(|| "worker 7".to_owned()),
            since: at - Duration::from_micros(number as u64),
            left: (!number.is_multiple_of(5)).then(|| Duration::from_micros(number as u64)),
        };
        let process = Process::here(Some("shop"), Uuid::max());
        let (holds, waits) = ((0..claims).map(claim).collect(), (claims..2 * claims).map(claim).collect());
        Account { process, holds, waits, at, of: Uuid::nil() }
    }

    #[test]
    fn an_account_is_read_as_it_was_written_in_pieces_that_are_not_too_long() {
        for claims in [0, 1, 3, 1_000] {
            let account = account(claims);
            let pieces = account.pieces();
            assert!(pieces.iter().all(|piece| piece.len() < LONGEST + 1_000));
            let mut read = Vec::new();
            for piece in &pieces {
                let (piece, of) = Account::read(piece.as_bytes()).unwrap();
                assert_eq!(of, pieces.len());
                read.push(piece);
            }
            let claims = |of: fn(&Account) -> &[Claim]| read.iter().flat_map(of).cloned().collect::<Vec<_>>();
            let (holds, waits) = (claims(|piece| &piece.holds), claims(|piece| &piece.waits));
            assert_eq!(Account { holds, waits, ..read[0].clone() }, account);
        }
        assert!(account(1_000).pieces().len() > 5);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let piece = account(2).pieces().remove(0);
        let read =
            |text: &str| Account::read(text.as_bytes()).map(|(account, _)| (account.holds.len(), account.waits.len()));
        assert_eq!(read(&piece), Some((2, 2)));
        assert_eq!(read(&piece.replace("h a", "h x")), Some((1, 2)));
        assert_eq!(read(&piece.replace("h a 0", "h a zero")), Some((1, 2)));
        assert_eq!(read(&format!("{piece}a line of a later version\n")), Some((2, 2)));
        for text in ["", "account 2 x", &piece.replace("account 1", "account"), &piece.replace("redlatch:", "other:")] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Account::read(b"account 1 \xff\n"), None);
    }
}
