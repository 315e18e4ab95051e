//! The loop by which every call waits, whatever for: it does what its [`Wait`] says, by a clock, a semaphore and a store.

use super::wait::{Hearing, News, Outcome, Step, Wait};
use crate::base::config::Config;
use crate::base::error::{Cause, Error, Result};
use crate::base::signal::{Listening, Semaphore};
use crate::base::stats::Contention;
use crate::base::stop::Stop;
use crate::base::sync::{Mutex, thread};
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// What a call waits for at a store. `TenureBid` in `acquire.rs` is that of locks.
///
/// It is a trait so that the tests of thread orders (tests/interleavings) run this very loop with a bid that has no server.
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

    /// How many were before it in a queue of processes when it was last answered, if it has a place in one.
    fn rank(&self) -> Option<u32> {
        None
    }

    /// It is about to be asked: what it was told before is about what the answer will show. Until that is there nobody need wake it.
    fn forget_news(&self) {}

    /// Takes what it was told since then. A bid that has none looks whenever it is woken.
    fn take_news(&self) -> Option<News> {
        None
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

/// What a bid was told and has not looked at.
#[derive(Default)]
pub(crate) struct Told(Mutex<Mail>);

#[derive(Default)]
struct Mail {
    news: Option<News>,
    /// Its call asks, and looks for news after the answer. If it were woken, the pauses between its attempts would end.
    asks: bool,
}

impl Told {
    /// A reason of its own to look is more than one that all have, and the first that all have comes first. Whether the call has to be
    /// woken.
    #[must_use]
    pub(crate) fn put(&self, news: News) -> bool {
        let mut mail = self.0.lock();
        mail.news = mail.news.filter(|_| news != News::ForIt).or(Some(news));
        !mail.asks
    }

    /// It looks: what is told from now on waits for the answer.
    pub(crate) fn forget(&self) {
        *self.0.lock() = Mail { news: None, asks: true };
    }

    pub(crate) fn take(&self) -> Option<News> {
        std::mem::take(&mut *self.0.lock()).news
    }
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
        let wait = Wait::new(self.config.poll_cap, self.stop.deadline, bid.expects_a_wait());
        Contender { call: self, bid, is_open: false, listening: None, wait }.run()
    }
}

/// A call that asks. When it is dropped it withdraws its bid, if that was asked and has not won.
struct Contender<'a, B: Bid> {
    call: &'a Call<'a>,
    bid: &'a mut B,
    is_open: bool,
    /// Once it listens; what it listens to, if somebody tells.
    listening: Option<Option<Box<dyn Listening>>>,
    wait: Wait,
}

impl<B: Bid> Contender<'_, B> {
    fn run(mut self) -> Result<Option<B::Won>> {
        let Call { config, stop, semaphore, .. } = *self.call;
        let give_up = stop.clock.now().plus(config.outage_budget);
        let mut again = false;
        loop {
            let now = stop.clock.now();
            match self.wait.next(now) {
                Step::Ask if again && now >= give_up => return Err(too_slow(stop)),
                Step::Ask => match self.ask()? {
                    Outcome::Won(won) => return Ok(Some(won)),
                    outcome => again = matches!(outcome, Outcome::Again),
                },
                Step::Listen => {
                    self.listening = Some(self.bid.listen(semaphore));
                    self.wait.listens(now, self.hearing());
                    self.hear();
                }
                Step::Sleep(until) => {
                    // A cancel or a shutdown is noted before its wake. So it is seen here, or its permit ends this sleep.
                    stop.check()?;
                    if semaphore.acquire(until.since(now)) {
                        self.hear();
                        self.wait.woken();
                    }
                }
                Step::Rest(until) => thread::sleep(stop.at_most(until.since(now))),
                Step::Leave => return Ok(None),
            }
        }
    }

    /// What came before an ask is forgotten first: the ask covers whatever it was about. What comes later is kept.
    fn ask(&mut self) -> Result<Outcome<B::Won>> {
        let Call { stop, contention, semaphore, .. } = *self.call;
        semaphore.acquire(Duration::ZERO);
        self.bid.forget_news();
        stop.check()?;
        let asked = stop.clock.now();
        self.is_open = true;
        let outcome = self.bid.ask()?;
        self.is_open = !matches!(outcome, Outcome::Won(_));
        if let Outcome::Busy(_) = outcome {
            contention.found();
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

    /// What it was told is told to its machine.
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

/// A lease that is over before the server's answer arrives is never held: not asked for without end.
fn too_slow(stop: &Stop<'_>) -> Error {
    let cause = Cause::new("the lease is shorter than the server's answers take: ask for a longer one");
    Error::Unavailable { resource: stop.resource.to_owned(), cause }
}
