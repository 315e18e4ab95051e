//! One wait at a store, whatever for, as a machine without a clock, a thread or a server.
//!
//! It is told what was [answered](Wait::answered), whether it [hears](Wait::listens), what it was [told](Wait::told), that it was
//! [woken](Wait::woken), and what time it is. It says what to do [next](Wait::next): a [`Step`].
//!
//! ask -> busy -> listen -> (confirmed) -> ask -> sleep until news, the holder's TTL, the caller's deadline or the poll cap -> ask -> ...
//! News are a hint to look, never a proof. What is told between an ask and its answer is told to the machine after the answer: the
//! answer may be older than the news, and its rank is newer.
//!
//! `bid.rs` runs it. So do tests/interleavings, on a scheduler that tries orders of threads, and tests/model.

use super::policy::{FEW, HINT_EVERY, HINTS_AT_ONCE, OFFER, POLLED, ROUNDING, SHARES, SPREAD, STEP, UNTOLD};
use crate::base::mutant::{self, Mutant};
use crate::base::time::Moment;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// What asking found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome<T> {
    Won(T),
    /// Won, but not to be believed: it is asked again at once, for the outage budget.
    Again,
    /// Not to be had for so long, by what the store knows; `None`: without an end.
    Busy(Option<Duration>),
    /// Free, but reserved for others for so long.
    Reserved(Duration),
    /// The caller's time ended before the store could answer.
    Late,
}

/// What a wait does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Ask,
    /// Has itself told of changes, as far as somebody tells.
    Listen,
    /// Until then, or until it is woken.
    Sleep(Moment),
    /// Until then, whoever wakes it.
    Rest(Moment),
    /// It goes without what it waited for.
    Leave,
}

/// Whether news reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// It has not listened yet.
    NotYet,
    /// It listens. The server has not confirmed that, or refuses it.
    Deaf,
    Open,
    /// Everyone who could change something is of this process, which tells of each change without being listened to.
    Within,
}

/// What a wait is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// There is a reason for it to look.
    ForIt,
    /// The lock became free then. Of all who are told so each has another share of the time in which they look, one of [`SHARES`].
    ForAll { at: Moment, share: u32 },
}

/// One wait of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wait {
    poll_cap: Duration,
    /// The caller's.
    deadline: Moment,
    state: State,
    /// So many were before it in a queue of processes when it was last answered.
    rank: Option<u32>,
    /// It was put off once because the lock was left to others.
    gave_way: bool,
    hints: Hints,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Asks,
    /// And then sleeps for so long, if it was answered already.
    Listens(Option<Duration>),
    Sleeps(Sleep),
    Leaves,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sleep {
    /// When it looks without a hint.
    until: Moment,
    /// When it looks because of one.
    due: Moment,
    /// It was told something since it fell asleep.
    has_news: bool,
}

impl Sleep {
    fn until(until: Moment) -> State {
        State::Sleeps(Self { until, due: Moment::MAX, has_news: false })
    }
}

/// What comes in.
impl Wait {
    /// `None`: it waits for ever. One that expects to wait `listens_first`.
    pub(crate) fn new(poll_cap: Duration, deadline: Option<Moment>, listens_first: bool) -> Self {
        let state = if listens_first { State::Listens(None) } else { State::Asks };
        let deadline = deadline.unwrap_or(Moment::MAX);
        Self { poll_cap, deadline, state, rank: None, gave_way: false, hints: Hints::default() }
    }

    /// The store answered at `now` what it was asked at `asked`; there it has this rank in a queue, if it has one.
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
            // Nobody may come: it is not worth listening before that is known.
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

    /// It listens from now on.
    pub(crate) fn listens(&mut self, now: Moment, hearing: Hearing) {
        let State::Listens(left) = self.state else { return };
        // What was told before that was not heard.
        let looks = hearing == Hearing::Open && !mutant::is(Mutant::NoTryAfterConfirm);
        self.state = match left {
            Some(left) if !looks => self.awaits_news(now, left, hearing),
            _ => State::Asks,
        };
    }

    /// While it sleeps. While it asks, what is told is kept for it.
    pub(crate) fn told(&mut self, news: News) {
        let due = match news {
            News::ForIt => Moment(0),
            News::ForAll { at, share } => at.plus(self.share(share)),
        };
        if let State::Sleeps(sleep) = &mut self.state {
            (sleep.due, sleep.has_news) = (sleep.due.min(due), true);
        }
    }

    /// Woken. If it was told something during this sleep, that was the reason, and its time counts. Else somebody has another reason (a cancel,
    /// the unlock of a lock without a queue), and it looks now.
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
        // If the time ends while it sleeps, it asks one more time.
        let wakes = sleep.until.min(sleep.due).min(self.deadline);
        if now < wakes {
            return Step::Sleep(wakes);
        }
        self.state = State::Asks;
        let ahead = if now < sleep.until { self.hints.pay(now) } else { Duration::ZERO };
        // A few milliseconds, and not to be woken from: the next hint, which this puts off, would end it.
        if ahead.is_zero() { Step::Ask } else { Step::Rest(now.plus(ahead + spread(now) / 4)) }
    }

    /// Sleeps until there is a reason to look, at most for what is `left`. With others before it in a queue it looks as often as an offer
    /// ends: whoever is given the lock and is stopped keeps the others waiting for no longer than that.
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

    /// How much later it looks than others who are told that the lock is free.
    fn share(&self, share: u32) -> Duration {
        let all = self.rank.filter(|rank| *rank > 0).map_or(0, |rank| rank.saturating_add(1));
        STEP.saturating_mul(all).saturating_mul(all.div_ceil(FEW)) / SHARES * share
    }
}

/// Another time for each.
fn spread(now: Moment) -> Duration {
    let [least, most] = SPREAD;
    least + Duration::from_micros(now.micros() % (most - least).as_micros() as u64)
}

/// Which hints are followed at once.
///
/// Those that came with a change of the lock are not counted: else who waits long for a lock in demand would look at fewer of its unlocks
/// than who has just come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Hints {
    /// Runs ahead of the clock by [`HINT_EVERY`] for each hint that was followed.
    paid: Moment,
    /// Between which points in time the lease ends that was there at the looks so far, by what the store said.
    ends: (Moment, Moment),
}

impl Default for Hints {
    fn default() -> Self {
        Self { paid: Moment(0), ends: (Moment(0), Moment::MAX) }
    }
}

impl Hints {
    /// Finds whether the lock was taken anew, or prolonged, since the looks before: then hints were worth following. The
    /// lease that was told ends so long after some moment between question and answer, however late the answer came;
    /// an end that all looks agree on is of one lease.
    fn note_end(&mut self, asked: Moment, answered: Moment, left: Option<Duration>) {
        let left = left.unwrap_or(Duration::MAX);
        let ends = (asked.plus(left), answered.plus(left).plus(ROUNDING));
        let agreed = (self.ends.0.max(ends.0), self.ends.1.min(ends.1));
        *self = if agreed.0 > agreed.1 { Self { paid: Moment(0), ends } } else { Self { ends: agreed, ..*self } };
    }

    /// One more hint is followed; how long the look has to be put off.
    fn pay(&mut self, now: Moment) -> Duration {
        self.paid = self.paid.max(now).plus(HINT_EVERY);
        self.paid.since(now).saturating_sub(HINT_EVERY * HINTS_AT_ONCE)
    }
}
