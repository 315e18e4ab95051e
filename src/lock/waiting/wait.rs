//! One wait at a store as a state machine without a clock, a thread or a server.
//!
//! Its inputs: the store [answered](Wait::answered), the call [listens](Wait::listens), the call was [told](Wait::told) news or
//! [woken](Wait::woken), and the time. Its output is the [next](Wait::next) [`Step`] of the call.
//!
//! ask -> busy -> listen -> (confirmed) -> ask -> sleep until news, the holder's TTL, the caller's deadline or the poll cap -> ask -> ...
//! News are a hint to ask, never a proof. To ask without a hint is to poll. The bid keeps news that come between an ask and its
//! answer, and passes them on after the answer: the answer may be older than the news, and the answer's rank is the newer one.
//!
//! `bid.rs` runs it. So do tests/interleavings, on a scheduler that tries orders of threads, and tests/model.

use super::policy::{FEW, HINT_EVERY, HINTS_AT_ONCE, OFFER, POLLED, ROUNDING, SHARES, SPREAD, STEP, UNTOLD};
use crate::base::mutant::{self, Mutant};
use crate::base::time::Moment;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The answer to an ask.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome<T> {
    Won(T),
    /// Won, but the answer cannot be believed: the call asks again at once, for the outage budget at most.
    Again,
    /// Taken, for this long at most by the store's TTL. `None`: without an end.
    Busy(Option<Duration>),
    /// Free, but reserved for others for this long.
    Reserved(Duration),
    /// The caller's time ended before the store could answer.
    Late,
}

/// What the call does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Ask,
    /// Subscribes to changes, if the bid can.
    Listen,
    /// Sleeps until this moment, or until a wake.
    Sleep(Moment),
    /// Sleeps until this moment; a wake does not end it.
    Rest(Moment),
    /// The wait is over without the lock.
    Leave,
}

/// Whether news reach this wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// The call has not subscribed yet.
    NotYet,
    /// The call has subscribed. The server has not confirmed that, or refuses it.
    Deaf,
    Open,
    /// Only threads of this process can change the lock, and they report each change without a subscription.
    Within,
}

/// A message to a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The message is for this wait alone.
    ForIt,
    /// The lock became free at `at`. The waits that hear this spread their looks: each has its own share of that time, one of [`SHARES`].
    ForAll { at: Moment, share: u32 },
}

/// One wait of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wait {
    poll_cap: Duration,
    /// The caller's deadline.
    deadline: Moment,
    state: State,
    /// Its rank in a queue, by the last answer.
    rank: Option<u32>,
    /// The wait was put off once because the lock was reserved.
    gave_way: bool,
    hints: Hints,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Asks,
    /// With the time that the last answer said is left; `None`: not asked yet.
    Listens(Option<Duration>),
    Sleeps(Sleep),
    Leaves,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sleep {
    /// When the wait asks without a hint.
    until: Moment,
    /// When the wait asks because of a hint.
    due: Moment,
    /// News came since this sleep began.
    has_news: bool,
}

impl Sleep {
    fn until(until: Moment) -> State {
        State::Sleeps(Self { until, due: Moment::MAX, has_news: false })
    }
}

/// What comes in.
impl Wait {
    /// Without a deadline it waits for ever. `listens_first`: the call expects to wait, so it subscribes before its first ask.
    pub(crate) fn new(poll_cap: Duration, deadline: Option<Moment>, listens_first: bool) -> Self {
        let state = if listens_first { State::Listens(None) } else { State::Asks };
        let deadline = deadline.unwrap_or(Moment::MAX);
        Self { poll_cap, deadline, state, rank: None, gave_way: false, hints: Hints::default() }
    }

    /// The store was asked at `asked` and answered at `now`. `rank` is the call's rank in the queue, if it has a place.
    pub(crate) fn answered<T>(
        &mut self,
        [asked, now]: [Moment; 2],
        outcome: &Outcome<T>,
        rank: Option<u32>,
        hearing: Hearing,
    ) {
        self.rank = rank;
        self.state = match outcome {
            Outcome::Won(_) | Outcome::Late => State::Leaves,
            // The answer itself may have taken longer than the caller waits.
            _ if now >= self.deadline => State::Leaves,
            Outcome::Again => State::Asks,
            // The others may never come: so sleep once before subscribing.
            Outcome::Reserved(left) if hearing == Hearing::NotYet && !std::mem::replace(&mut self.gave_way, true) => {
                Sleep::until(now.plus(*left))
            }
            Outcome::Reserved(left) => self.awaits_news(now, *left, hearing),
            Outcome::Busy(left) => {
                self.hints.note_end(asked, now, *left);
                self.awaits_news(now, left.map_or(Duration::MAX, |left| left.saturating_add(spread(now))), hearing)
            }
        };
    }

    /// The call has subscribed.
    pub(crate) fn listens(&mut self, now: Moment, hearing: Hearing) {
        let State::Listens(left) = self.state else { return };
        // Messages published before the subscription was confirmed are lost: so ask once more.
        let looks = hearing == Hearing::Open && !mutant::is(Mutant::NoTryAfterConfirm);
        self.state = match left {
            Some(left) if !looks => self.awaits_news(now, left, hearing),
            _ => State::Asks,
        };
    }

    /// Takes effect only during a sleep. While the call asks, its bid keeps the news.
    pub(crate) fn told(&mut self, news: News) {
        let due = match news {
            News::ForIt => Moment(0),
            News::ForAll { at, share } => at.plus(self.share(share)),
        };
        if let State::Sleeps(sleep) = &mut self.state {
            (sleep.due, sleep.has_news) = (sleep.due.min(due), true);
        }
    }

    /// The call was woken. If news came during this sleep, they were the reason, and their `due` counts. Else the reason is a cancel or the
    /// unlock of a lock without a queue, so the wait asks now.
    pub(crate) fn woken(&mut self) {
        if let State::Sleeps(sleep) = &mut self.state
            && !sleep.has_news
        {
            sleep.due = Moment(0);
        }
    }
}

/// What comes out.
impl Wait {
    pub(crate) fn next(&mut self, now: Moment) -> Step {
        let sleep = match self.state {
            State::Asks => return Step::Ask,
            State::Listens(_) => return Step::Listen,
            State::Leaves => return Step::Leave,
            State::Sleeps(sleep) => sleep,
        };
        // If the deadline ends this sleep, the wait asks one more time.
        let wakes = sleep.until.min(sleep.due).min(self.deadline);
        if now < wakes {
            return Step::Sleep(wakes);
        }
        self.state = State::Asks;
        let ahead = if now < sleep.until { self.hints.pay(now) } else { Duration::ZERO };
        // The call cannot be woken from these few milliseconds: the next hint, which they put off, would end them.
        if ahead.is_zero() { Step::Ask } else { Step::Rest(now.plus(ahead + spread(now) / 4)) }
    }

    /// Sleeps until news, and at most for `left`. A wait with others before it in the queue asks at least once an offer: if the process
    /// that was given the lock is stopped, the others lose one offer and no more.
    fn awaits_news(&self, now: Moment, left: Duration, hearing: Hearing) -> State {
        let is_told = match hearing {
            Hearing::NotYet => return State::Listens(Some(left)),
            Hearing::Deaf => false,
            Hearing::Open | Hearing::Within => true,
        };
        let untold = match self.rank {
            _ if is_told => Duration::MAX,
            Some(_) => POLLED,
            None => UNTOLD,
        };
        let behind = if self.rank > Some(0) { OFFER.span() } else { Duration::MAX };
        Sleep::until(now.plus(left.min(self.poll_cap).min(untold).min(behind)))
    }

    /// How much later than `at` this wait asks: `share / SHARES` of the time for its rank.
    fn share(&self, share: u32) -> Duration {
        let all = self.rank.filter(|rank| *rank > 0).map_or(0, |rank| rank.saturating_add(1));
        STEP.saturating_mul(all).saturating_mul(all.div_ceil(FEW)) / SHARES * share
    }
}

/// A pseudo-random time within [`SPREAD`], so that waits do not ask all at once.
fn spread(now: Moment) -> Duration {
    let [least, most] = SPREAD;
    least + Duration::from_micros(now.micros() % (most - least).as_micros() as u64)
}

/// Which hints are followed at once.
///
/// Hints that came with a change of the lock are not counted. Else a call that waits long for a lock in demand would look at fewer unlocks
/// than a newcomer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Hints {
    /// Each hint that was followed moves this on by [`HINT_EVERY`], ahead of the clock.
    paid: Moment,
    /// The earliest and the latest end of the current lease that all answers so far allow.
    ends: (Moment, Moment),
}

impl Default for Hints {
    fn default() -> Self {
        Self { paid: Moment(0), ends: (Moment(0), Moment::MAX) }
    }
}

impl Hints {
    /// Forgives all hints if the lock was taken anew or prolonged since the last answers. A lease with `left` to go ends within `[asked +
    /// left, answered + left + ROUNDING]`. While all these intervals overlap, the answers may be about one lease.
    fn note_end(&mut self, asked: Moment, answered: Moment, left: Option<Duration>) {
        let left = left.unwrap_or(Duration::MAX);
        let ends = (asked.plus(left), answered.plus(left).plus(ROUNDING));
        let agreed = (self.ends.0.max(ends.0), self.ends.1.min(ends.1));
        *self = if agreed.0 > agreed.1 { Self { paid: Moment(0), ends } } else { Self { ends: agreed, ..*self } };
    }

    /// Counts one more hint. Returns for how long the ask has to be put off.
    fn pay(&mut self, now: Moment) -> Duration {
        self.paid = self.paid.max(now).plus(HINT_EVERY);
        self.paid.since(now).saturating_sub(HINT_EVERY * HINTS_AT_ONCE)
    }
}
