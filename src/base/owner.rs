//! Who holds a lock: one identity per acquire, never used again.

use crate::base::mutant::{self, Mutant};
use crate::base::time::Moment;
use arrayvec::ArrayString;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// The text of one owner id. The longest is a UUID and two numbers of 20 digits.
pub(crate) type OwnerId = ArrayString<78>;

/// Makes owner ids: `<client uuid>:<thread number>:<number>`.
///
/// The number is when the acquire began, in microseconds since 1970 by this machine's clock, or one more than the last number: so whoever
/// looks at a lock sees since when its holder asks.
///
/// Why not one id per thread, as in Redisson? A stopped server may execute a timed-out release or acquire later. With an id per thread that
/// frees a *later* hold of the same thread (docs/protocol.md, 2). With an id per acquire every script is idempotent, and late copies are
/// harmless.
#[derive(Debug)]
pub(crate) struct Owners {
    /// The start of all ids.
    client: OwnerId,
    /// The clock's moment zero, in microseconds since 1970.
    zero: u64,
    /// The number of the last id.
    last: AtomicU64,
}

impl Owners {
    /// `now` by the clock whose moments [`mint`](Self::mint) gets.
    pub(crate) fn new(client: Uuid, now: Moment) -> Self {
        let mut owner = OwnerId::new();
        owner.push_str(client.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        let zero = since_1970(SystemTime::now()).saturating_sub(now.micros());
        Self { client: owner, zero, last: AtomicU64::new(0) }
    }

    /// A new owner id for the thread with this number.
    pub(crate) fn mint(&self, thread: u64, now: Moment) -> OwnerId {
        let mut owner = self.client;
        append(&mut owner, thread);
        if !mutant::is(Mutant::OwnerPerThread) {
            append(&mut owner, self.number(self.zero.saturating_add(now.micros())));
        }
        owner
    }

    /// A moment by this machine's clock, as it was set when the client was made: always the same for one moment.
    pub(crate) fn time(&self, moment: Moment) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.zero.saturating_add(moment.micros()))
    }

    /// No number is given twice, even if the clock stands still.
    fn number(&self, now: u64) -> u64 {
        let next = |last: u64| now.max(last.saturating_add(1));
        next(self.last.fetch_update(Relaxed, Relaxed, |last| Some(next(last))).unwrap_or_else(|last| last))
    }
}

/// 2020-01-01. A smaller number is no time: clients of earlier versions count from 1.
const EARLIEST: u64 = 1_577_836_800_000_000;

/// The parts of a holder's field in a lock: client, thread, and when its acquire began. A field of Redisson's has no such time.
pub(crate) fn read(field: &str) -> Option<(Uuid, u64, Option<SystemTime>)> {
    let mut parts = field.split(':');
    let client = Uuid::parse_str(parts.next()?).ok()?;
    let thread = parts.next()?.parse().ok()?;
    let micros = parts.next().and_then(|number| number.parse().ok()).filter(|micros| *micros >= EARLIEST);
    Some((client, thread, micros.and_then(|micros| SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros)))))
}

fn since_1970(time: SystemTime) -> u64 {
    let span = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn append(owner: &mut OwnerId, number: u64) {
    owner.push(':');
    owner.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_acquire_has_its_own_id() {
        let owners = Owners { zero: 5, ..Owners::new(Uuid::nil(), Moment(0)) };
        let mint = |micros: u64| owners.mint(7, Moment(micros * 1_000)).rsplit(':').next().unwrap().to_owned();
        assert_eq!([10, 10, 9, 20].map(mint), ["15", "16", "17", "25"]);
        assert!(owners.mint(7, Moment(0)).starts_with("00000000-0000-0000-0000-000000000000:7:"));
    }

    #[test]
    fn an_id_says_when_its_acquire_began() {
        let now = Moment(77_000_000_000);
        let owner = Owners::new(Uuid::max(), now).mint(7, now.plus(Duration::from_secs(3)));
        let (client, thread, began) = read(&owner).unwrap();
        let ahead = began.unwrap().duration_since(SystemTime::now()).unwrap();
        assert_eq!((client, thread), (Uuid::max(), 7));
        assert!(ahead > Duration::from_secs(1) && ahead <= Duration::from_secs(3), "{ahead:?}");
        let redisson = format!("{}:42", Uuid::nil());
        assert_eq!(read(&redisson), Some((Uuid::nil(), 42, None)));
        assert_eq!(read(&format!("{redisson}:1")), Some((Uuid::nil(), 42, None)), "an earlier version's first acquire");
        assert_eq!(["mode", "", "7:1", &format!("{}:x", Uuid::nil())].map(read), [None; 4]);
    }

    #[test]
    fn the_longest_id_has_room() {
        let owners = Owners { zero: u64::MAX, ..Owners::new(Uuid::max(), Moment(0)) };
        let expected = "ffffffff-ffff-ffff-ffff-ffffffffffff:18446744073709551615:18446744073709551615";
        assert_eq!(&owners.mint(u64::MAX, Moment(0)), expected);
    }
}
