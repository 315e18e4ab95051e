//! The waiting loop, one for every kind, whatever is waited for.
//!
//! ask -> busy -> listen -> (confirmed) -> ask -> sleep until a hint, the holder's TTL, the caller's deadline or
//! the poll cap -> ask -> ... A message is a hint, never a proof. A hint that comes between asking and the sleep
//! is kept by the semaphore; so it is emptied *before* asking, which covers whatever the hint was about.
//!
//! It knows no lock: tests/interleavings runs this file on a scheduler that tries orders of threads.

use crate::base::config::Config;
use crate::base::error::{Cause, Error, Result};
use crate::base::mutant::{self, Mutant};
use crate::base::signal::{Listening, Semaphore};
use crate::base::stats::Contention;
use crate::base::stop::Stop;
use crate::base::sync::thread;
use crate::base::time::Moment;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// What a call waits for at a store: a lock bids a tenure, a semaphore a count, a latch no more than a look.
pub(crate) trait Bid {
    /// What its caller gets.
    type Won;

    /// Asks the store until it answers. What a bid leaves there while it is busy (its place in a queue, a writer's
    /// mark) it leaves anew, or keeps alive, each time.
    fn ask(&mut self) -> Result<Outcome<Self::Won>>;

    /// Has the semaphore released whenever asking again may be worth it. `None`: nobody tells, so it is polled.
    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>>;

    /// Whether it is likely to be busy, and is listened for by this process already: then it listens before it asks.
    fn expects_a_wait(&self) -> bool {
        false
    }

    /// Until when a call sleeps, at most; it asks if that is past. It may be asked again while it sleeps, and has just been
    /// `woken`, for whatever reason.
    fn sleeps_until(&self, woken: bool) -> Moment {
        looks_when_woken(woken)
    }

    /// Whether everyone who could win is of this process, which tells of each change without being listened to.
    fn is_of_this_process(&self) -> bool {
        false
    }

    /// Takes back what it left at the store: it was asked and goes without having won, in time, too late, by an error or
    /// by a panic. It must neither panic nor wait for long: the caller's time may be up, and the sweeper is there for
    /// what is not answered.
    fn withdraw(&mut self) {}
}

/// At once when woken, and otherwise when the loop says so.
pub(crate) fn looks_when_woken(woken: bool) -> Moment {
    if woken { Moment(0) } else { Moment::MAX }
}

/// What asking found.
pub(crate) enum Outcome<T> {
    Won(T),
    /// Won, but not to be believed: it is asked again at once, for the outage budget.
    Again,
    /// Not to be had for so long, by what the store knows; `None`: without an end.
    Busy(Option<Duration>),
    /// Free, but for so long left to others.
    Left(Duration),
    /// The caller's time ended before the store could answer.
    Late,
}

/// One call that waits, whatever for.
pub(crate) struct Call<'a> {
    pub(crate) config: &'a Config,
    pub(crate) stop: &'a Stop<'a>,
    pub(crate) contention: &'a Contention<'a>,
    /// Released when it should look again, for whatever reason.
    pub(crate) semaphore: &'a Arc<Semaphore>,
}

impl Call<'_> {
    /// Asks until the bid has won; `None` when the caller's time ended first.
    pub(crate) fn contend<B: Bid>(&self, bid: &mut B) -> Result<Option<B::Won>> {
        Contender {
            call: self,
            open: Open { bid, asked: false },
            news: News::NotAsked,
            hints: Hints::default(),
            gave_way: false,
        }
        .run()
    }
}

/// A bid that is withdrawn when it is dropped, once it was asked and until it has won.
struct Open<'a, B: Bid> {
    bid: &'a mut B,
    asked: bool,
}

impl<B: Bid> Open<'_, B> {
    fn ask(&mut self) -> Result<Outcome<B::Won>> {
        self.asked = true;
        let outcome = self.bid.ask()?;
        self.asked = !matches!(outcome, Outcome::Won(_));
        Ok(outcome)
    }
}

impl<B: Bid> Drop for Open<'_, B> {
    fn drop(&mut self) {
        if self.asked {
            self.bid.withdraw();
        }
    }
}

/// A call that asks.
struct Contender<'a, B: Bid> {
    call: &'a Call<'a>,
    open: Open<'a, B>,
    news: News,
    hints: Hints,
    /// It was put off once because the lock was left to others.
    gave_way: bool,
}

/// Whether a subscription tells the contender when to look.
enum News {
    NotAsked,
    Asked(Option<Box<dyn Listening>>),
}

impl News {
    fn is_confirmed(&self) -> bool {
        matches!(self, Self::Asked(Some(listening)) if listening.is_confirmed())
    }
}

/// How often to look while no subscription is confirmed.
const UNTOLD: Duration = Duration::from_secs(1);

impl<B: Bid> Contender<'_, B> {
    fn run(mut self) -> Result<Option<B::Won>> {
        let Call { config, stop, contention, semaphore } = *self.call;
        let give_up = stop.clock.now().plus(config.outage_budget);
        if self.open.bid.expects_a_wait() {
            self.news = News::Asked(self.open.bid.listen(semaphore));
        }
        loop {
            // If the time ends while asleep, it is asked one more time.
            let last = stop.is_over();
            semaphore.acquire(Duration::ZERO);
            stop.check()?;
            let asked = stop.clock.now();
            let outcome = self.open.ask()?;
            if let Outcome::Busy(_) = outcome {
                contention.found();
            }
            match outcome {
                Outcome::Won(won) => return Ok(Some(won)),
                Outcome::Late => return Ok(None),
                // The answer itself may have taken longer than the caller waits.
                _ if last || stop.is_over() => return Ok(None),
                Outcome::Again => check_too_slow(stop, give_up)?,
                // Nobody may come: it is not worth listening before that is known.
                Outcome::Left(left) if matches!(self.news, News::NotAsked) && !self.gave_way => {
                    self.gave_way = true;
                    semaphore.acquire(stop.at_most(left));
                }
                Outcome::Left(left) => self.await_news(Some(left)),
                Outcome::Busy(left) => {
                    self.hints.note_end(asked, stop.clock.now(), left);
                    self.await_news(left.map(|left| left.saturating_add(self.jitter())));
                }
            }
        }
    }

    /// Sleeps until there is a reason to look again.
    fn await_news(&mut self, left: Option<Duration>) {
        let Call { config, stop, semaphore, .. } = *self.call;
        if let News::NotAsked = self.news {
            self.news = News::Asked(self.open.bid.listen(semaphore));
            if self.news.is_confirmed() && !mutant::is(Mutant::NoTryAfterConfirm) {
                return;
            }
        }
        let told = self.news.is_confirmed() || self.open.bid.is_of_this_process();
        let cap = if told { config.poll_cap } else { UNTOLD.min(config.poll_cap) };
        let left = left.unwrap_or(cap).min(cap);
        if self.sleep(stop.clock.now().plus(left)) {
            self.pace();
        }
    }

    /// All who wait look when a lease ends: not at once.
    fn jitter(&self) -> Duration {
        Duration::from_micros(1_000 + self.call.stop.clock.now().micros() % 4_000)
    }

    /// Sleeps until then, or until the bid wants to look. Whether it was early: because of a hint.
    fn sleep(&self, until: Moment) -> bool {
        let Call { stop, semaphore, .. } = *self.call;
        let mut woken = false;
        loop {
            let now = stop.clock.now();
            let rest = self.open.bid.sleeps_until(woken).min(until).since(now);
            if rest.is_zero() || stop.is_over() || stop.check().is_err() {
                return now < until;
            }
            woken = semaphore.acquire(stop.at_most(rest));
        }
    }

    /// Puts off the look that a hint asks for when there were too many; what comes meanwhile asks for the same look.
    fn pace(&mut self) {
        let stop = self.call.stop;
        let ahead = self.hints.pay(stop.clock.now());
        if !ahead.is_zero() {
            // A few milliseconds, and not on the semaphore: the next hint, which it puts off, would end it.
            thread::sleep(stop.at_most(ahead + self.jitter() / 4));
        }
    }
}

/// A lease that is over before the server's answer arrives is never held: not asked for without end.
fn check_too_slow(stop: &Stop<'_>, give_up: Moment) -> Result<()> {
    if stop.clock.now() >= give_up {
        let cause = Cause::new("the lease is shorter than the server's answers take: ask for a longer one");
        return Err(Error::Unavailable { resource: stop.resource.to_owned(), cause });
    }
    Ok(())
}

/// Which hints are followed at once.
///
/// Whoever may publish can wake a waiter as often as he likes, and each look is a command. So many hints in a row
/// are followed at once, more than a lock in demand gives in that time; in the long run one each 2 ms is.
///
/// Those that came with a change of the lock are not counted: else who waits long for a lock in demand would look at
/// fewer of its unlocks than who has just come.
struct Hints {
    /// Runs ahead of the clock by [`HINT_EVERY`] for each hint that was followed.
    paid: Moment,
    /// Between which points in time the lease ends that was there at the looks so far, by what the store said.
    ends: (Moment, Moment),
}

const HINTS_AT_ONCE: u32 = 32;
const HINT_EVERY: Duration = Duration::from_millis(2);

/// What is left of a lease is told in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

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
