//! A store whose master moves: what Sentinel groups and replicas have in common (docs/protocol.md, 9 and 10).
//!
//! A deployment is a [`Guide`]: it names those who are asked where the master is, and asks one of them. What their answers come
//! to is said by its [`Council`], which neither waits nor connects.
//!
//! | file | has |
//! | --- | --- |
//! | `watch` | the threads that ask, and the move from one generation to the next |

mod watch;

use super::{Answers, Common, Health, Store};
use crate::base::signal::{Ear, Listening};
use crate::base::time::{Clock, Moment};
use crate::store::node::{Answer, Backend, Bell, Failure, LEAST_TO_CONNECT, Lane, Limits, Request, Target};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

pub(super) use watch::{FIRST_PAUSE, LONGEST_PAUSE, URGE_EVERY, Watch};

/// Who knows where the master is: what differs between deployments.
pub(super) trait Guide: Send + Sync + Sized + 'static {
    /// What those who are asked said so far.
    type Council: Council;

    /// Who is asked, by a thread of its own.
    type Asked: Send + 'static;

    /// What one of them says.
    type Word;

    /// What its threads are called.
    const THREAD: &'static str;

    /// As the log names the group.
    fn name(&self) -> String;

    /// As the log names it with those who are asked.
    fn address(&self) -> String;

    /// As of [`Store::identity`].
    fn identity(&self) -> Vec<String>;

    /// Who is asked from the beginning.
    fn asked(&self, common: &Common) -> Vec<Self::Asked>;

    /// How a master is reached.
    fn target(&self, master: &Master<Self>) -> Target;

    /// Asks one of them until the watch is closed, and notes what it says. `pause` is how long it will be left alone after a
    /// failure; an answer makes it short again.
    ///
    /// # Errors
    /// What went wrong with it.
    fn session(watch: &Arc<Watch<Self>>, asked: &Self::Asked, bell: &Bell, pause: &mut Duration)
    -> Result<(), Failure>;

    /// Notes what came of asking one. Returns those that are to be asked because of that, too.
    fn note(
        &self,
        council: &mut Self::Council,
        asked: &Self::Asked,
        said: Result<Self::Word, Failure>,
        common: &Common,
    ) -> Vec<Self::Asked>;

    /// Whether one need not be asked any more. It is forgotten then.
    fn dismiss(_: &mut Self::Council, _: &Self::Asked) -> bool {
        false
    }
}

/// Who may be followed.
pub(super) type Master<G> = <<G as Guide>::Council as Council>::Master;

/// What was said of the master so far.
pub(super) trait Council: Send + 'static {
    /// Who may be followed. Two that are equal are one generation.
    type Master: Clone + PartialEq + Display + Send;

    /// What to do by it.
    fn course(&mut self, seen: Seen<'_, Self::Master>) -> Course<Self::Master>;

    /// Whether one that was looked at, and says that it is the master, is followed now in place of the one that is.
    fn accepts(&mut self, current: Option<&Self::Master>, next: &Self::Master) -> bool;

    /// One that was looked at cannot be followed, and why. Whether all are to be asked at once.
    fn note_unfit(&mut self, _: &Self::Master, _: &Failure, _: Moment) -> bool {
        false
    }

    /// Why there is no master, by answers since then: nothing as long as there may be others.
    fn failure(&self, since: Moment) -> Option<Failure>;

    /// The same by all that was said.
    fn last_failure(&self) -> Failure;

    /// All are being asked.
    fn begin(&mut self, _: Moment) {}
}

/// What a council cannot know by itself.
pub(super) struct Seen<'a, M> {
    pub(super) current: Option<&'a M>,
    /// Calls at the current master fail.
    pub(super) is_in_doubt: bool,
    /// Who is being asked whether it is the master.
    pub(super) looked_at: Option<&'a M>,
    pub(super) now: Moment,
}

/// What follows from what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Course<M> {
    Stay,
    /// Another one is the master, if it says so itself.
    Follow(M),
    /// Nobody is, not even the one that was, and why.
    Leave(String),
    /// Some answers are too old to tell.
    AskAll,
}

/// The master, wherever it is.
pub(super) struct Moving<G: Guide> {
    watch: Arc<Watch<G>>,
    clock: Clock,
    connect_timeout: Duration,
}

impl<G: Guide> Moving<G> {
    pub(super) fn new(guide: G, council: G::Council, common: &Common) -> Self {
        let connect_timeout = common.config.connect_timeout;
        Self { watch: Arc::new(Watch::new(guide, council, common)), clock: Clock::Boot, connect_timeout }
    }

    /// Does something at the master. If that is another one before anything was sent, it is done there, if there is time to connect:
    /// a call is not prolonged by that time once for each master that it meets.
    fn at_master<T>(&self, until: Moment, act: impl Fn(&Backend) -> Result<T, Failure>) -> Result<T, Failure> {
        let until = until.max(self.clock.now().plus(LEAST_TO_CONNECT));
        loop {
            let master = self.watch.master(until.min(self.clock.now().plus(self.connect_timeout)))?;
            match act(&master) {
                Err(Failure::Unreached(_)) if master.server().is_retired() && self.has_time(until) => {}
                Err(failure) => {
                    if failure.may_pass() {
                        self.watch.urge();
                    }
                    return Err(failure);
                }
                done => return done,
            }
        }
    }

    fn has_time(&self, until: Moment) -> bool {
        self.clock.now().plus(LEAST_TO_CONNECT) <= until
    }
}

impl<G: Guide> Health for Moving<G> {
    fn address(&self) -> String {
        self.watch.guide.address()
    }

    fn moves(&self) -> bool {
        true
    }

    fn outage(&self) -> Option<Duration> {
        self.watch.outage(|outage| outage.lasted())
    }

    fn outage_ends(&self, _: &str, now: Moment) -> Moment {
        self.watch.outage(|outage| outage.ends(now))
    }

    fn last_failure(&self, _: &str) -> Option<Failure> {
        self.watch.outage(|outage| outage.last_failure())
    }
}

impl<G: Guide> Store for Moving<G> {
    fn identity(&self) -> Vec<String> {
        self.watch.guide.identity()
    }

    fn attempt(&self, lane: Lane, request: &Request<'_>, limits: Limits<'_>) -> Result<Answer, Failure> {
        self.at_master(limits.answer_by, |master| master.attempt(lane, request, limits))
    }

    /// All keys are at the master, so one command is enough.
    fn attempt_all(&self, lane: Lane, request: &Request<'_>, _: usize, limits: Limits<'_>) -> Result<Answers, Failure> {
        self.attempt(lane, request, limits)?.one_each(request.keys.len())
    }

    fn listen(&self, channel: &str, ear: Arc<dyn Ear>) -> std::io::Result<Box<dyn Listening>> {
        self.watch.run()?;
        self.watch.pubsub.listen(channel, ear).map(|subscription| Box::new(subscription) as _)
    }

    fn hears(&self, channel: &str) -> bool {
        self.watch.pubsub.hears(channel)
    }

    fn counts_listeners(&self, _: &str) -> bool {
        true
    }

    fn ping(&self, until: Moment) -> Result<Duration, Failure> {
        self.at_master(until, |master| master.ping(until))
    }

    fn warm(&self, lane: Lane) -> Result<(), Failure> {
        self.at_master(self.clock.now().plus(self.connect_timeout), |master| master.warm(lane))
    }

    fn close(&self) {
        self.watch.close();
        self.watch.pubsub.close();
    }
}
