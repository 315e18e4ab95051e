//! The loop of every waiting call: it does what its [`Wait`] says, with a clock, a semaphore and a store.

use super::wait::{Hearing, News, Outcome, Step, Wait};
use crate::base::config::Config;
use crate::base::error::{Cause, Error, Result};
use crate::base::signal::{Listening, Semaphore};
use crate::base::stats::Contention;
use crate::base::stop::Stop;
use crate::base::sync::{Mutex, thread};
use crate::base::time::Moment;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// What a call waits for at a store. The bid for a lock is `TenureBid` in `acquire.rs`.
///
/// It is a trait so that the tests of thread orders (tests/interleavings) run this very loop with a bid that has no server.
pub(crate) trait Bid {
    /// What the caller gets.
    type Won;

    /// Asks the store until it answers. Each ask writes or refreshes what the bid keeps at the store while it is busy: its place in a
    /// queue, a writer's mark.
    fn ask(&mut self) -> Result<Outcome<Self::Won>>;

    /// Subscribes: from now on each change releases the semaphore. `None`: there are no messages, so the loop polls.
    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>>;

    /// Whether the lock is likely to be busy and this process is subscribed already. Then the call subscribes before it asks.
    fn expects_a_wait(&self) -> bool {
        false
    }

    /// Its rank in a queue by the last answer, if it has a place.
    fn rank(&self) -> Option<u32> {
        None
    }

    /// Called before an ask, whose answer covers all earlier news: drops them. Until the answer, new news need not wake the call.
    fn forget_news(&self) {}

    /// Takes the news since then. A bid without news asks whenever it is woken.
    fn take_news(&self) -> Option<News> {
        None
    }

    /// Whether only threads of this process can win: they report each change without a subscription.
    fn is_of_this_process(&self) -> bool {
        false
    }

    /// Takes back what the bid left at the store. Called once if the bid was asked and ends without the lock: by a deadline, an error or a
    /// panic. It must neither panic nor wait for long: the caller's time may be up. The sweeper repeats what is not answered.
    fn withdraw(&mut self) {}
}

/// The news of a bid that its wait has not taken yet.
#[derive(Default)]
pub(crate) struct Told(Mutex<Mail>);

#[derive(Default)]
struct Mail {
    news: Option<News>,
    /// The call is asking, and takes the news after the answer. A wake would end the pauses between its attempts.
    asks: bool,
}

impl Told {
    /// Keeps one piece of news: [`News::ForIt`] replaces all others, else the first stays. Returns whether to wake the call.
    #[must_use]
    pub(crate) fn put(&self, news: News) -> bool {
        let mut mail = self.0.lock();
        mail.news = mail.news.filter(|_| news != News::ForIt).or(Some(news));
        !mail.asks
    }

    /// The call is about to ask: news from now on wait for the answer.
    pub(crate) fn forget(&self) {
        *self.0.lock() = Mail { news: None, asks: true };
    }

    pub(crate) fn take(&self) -> Option<News> {
        std::mem::take(&mut *self.0.lock()).news
    }
}

/// One call that waits.
pub(crate) struct Call<'a> {
    pub(crate) config: &'a Config,
    pub(crate) stop: &'a Stop<'a>,
    pub(crate) contention: &'a Contention<'a>,
    /// Released when the call should ask again, for whatever reason.
    pub(crate) semaphore: &'a Arc<Semaphore>,
}

impl Call<'_> {
    /// The call found its lock busy, and waits.
    pub(crate) fn found_busy(&self) {
        if self.contention.found() {
            self.stop.begins_to_wait();
        }
    }

    /// Asks until the bid has won; `None` if the caller's deadline came first.
    pub(crate) fn contend<B: Bid>(&self, bid: &mut B) -> Result<Option<B::Won>> {
        let wait = Wait::new(self.config.poll_cap, self.stop.deadline, bid.expects_a_wait());
        Contender { call: self, bid, is_open: false, listening: None, wait }.run()
    }
}

/// A call that asks. Its drop withdraws the bid if the store was asked and the bid has not won.
struct Contender<'a, B: Bid> {
    call: &'a Call<'a>,
    bid: &'a mut B,
    is_open: bool,
    /// `Some` once the call has subscribed; the subscription, if the bid has one.
    listening: Option<Option<Box<dyn Listening>>>,
    wait: Wait,
}

impl<B: Bid> Contender<'_, B> {
    fn run(mut self) -> Result<Option<B::Won>> {
        let Call { config, stop, semaphore, .. } = *self.call;
        let (mut late, mut again) = (Late::default(), false);
        loop {
            let now = stop.clock.now();
            match self.wait.next(now) {
                Step::Ask if again && late.lasts(now, config.outage_budget) => return Err(too_slow(stop)),
                Step::Ask => match self.ask()? {
                    Outcome::Won(won) => return Ok(Some(won)),
                    outcome => {
                        again = matches!(outcome, Outcome::Again);
                        if again {
                            late.note(now, config.outage_budget);
                        }
                    }
                },
                Step::Listen => {
                    self.listening = Some(self.bid.listen(semaphore));
                    stop.has_subscribed();
                    self.wait.listens(now, self.hearing());
                    self.hear();
                }
                Step::Sleep(until) => {
                    // A cancel or shutdown sets its flag before it releases the semaphore: so this check sees the flag, or the permit ends
                    // the sleep.
                    stop.check()?;
                    // After the last ask: a circle that was found meanwhile has woken this call, and the ask has taken that permit.
                    stop.look_out()?;
                    if semaphore.acquire(stop.sleeps_until(until).since(now)) {
                        self.hear();
                        self.wait.woken();
                    }
                }
                Step::Rest(until) => thread::sleep(stop.at_most(until.since(now))),
                Step::Leave => return Ok(None),
            }
        }
    }

    /// Earlier permits and news are dropped first: the answer covers them. Later ones are kept.
    fn ask(&mut self) -> Result<Outcome<B::Won>> {
        let Call { stop, semaphore, .. } = *self.call;
        semaphore.acquire(Duration::ZERO);
        self.bid.forget_news();
        stop.check()?;
        let asked = stop.clock.now();
        self.is_open = true;
        let outcome = self.bid.ask()?;
        self.is_open = !matches!(outcome, Outcome::Won(_));
        if let Outcome::Busy(_) = outcome {
            self.call.found_busy();
        }
        if self.is_open {
            semaphore.woken.in_vain();
        }
        self.wait.answered([asked, stop.clock.now()], &outcome, self.bid.rank(), self.hearing());
        self.hear();
        Ok(outcome)
    }

    fn hearing(&self) -> Hearing {
        match &self.listening {
            None => Hearing::NotYet,
            Some(Some(listening)) if listening.is_confirmed() => Hearing::Open,
            Some(_) if self.bid.is_of_this_process() => Hearing::Within,
            Some(_) => Hearing::Deaf,
        }
    }

    /// Passes the news of the bid on to its machine.
    fn hear(&mut self) {
        self.bid.take_news().into_iter().for_each(|news| self.wait.told(news));
    }
}

impl<B: Bid> Drop for Contender<'_, B> {
    fn drop(&mut self) {
        if self.is_open {
            self.bid.withdraw();
        }
    }
}

/// Since when answers have come too late to be believed, and when the last one did. One in a long wait says nothing of the next. What a late answer
/// granted may be found busy by the next ask, so an answer in between that is no grant does not end such a time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Late(Option<[Moment; 2]>);

impl Late {
    pub(crate) fn note(&mut self, now: Moment, budget: Duration) {
        let goes_on = self.0.filter(|[_, last]| now.since(*last) < budget);
        self.0 = Some([goes_on.map_or(now, |[first, _]| first), now]);
    }

    /// Whether that has lasted for the budget.
    pub(crate) fn lasts(&self, now: Moment, budget: Duration) -> bool {
        self.0.is_some_and(|[first, _]| now >= first.plus(budget))
    }
}

/// If the lease ends before each answer arrives, the lock is never held: the call must not ask for ever.
fn too_slow(stop: &Stop<'_>) -> Error {
    let cause = Cause::new("the lease is shorter than the server's answers take: ask for a longer one");
    Error::Unavailable { resource: stop.resource.to_owned(), cause }
}
