//! A store whose master moves: what Sentinel groups and replicas have in common (docs/protocol.md, 9 and 10).
//!
//! A deployment is a [`Guide`]: it names the servers that are asked where the master is, and asks one of them. Its [`Council`]
//! says what follows from their answers; a council neither waits nor connects.
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

pub(super) use watch::{FIRST_PAUSE, LONGEST_PAUSE, Watch};

/// What knows where the master is: what differs between deployments.
pub(super) trait Guide: Send + Sync + Sized + 'static {
    /// The answers so far of the servers that are asked.
    type Council: Council;

    /// A server that is asked, by a thread of its own.
    type Asked: Send + 'static;

    /// The answer of one of them.
    type Word;

    /// The name of its threads.
    const THREAD: &'static str;

    /// The group's name in the log.
    fn name(&self) -> String;

    /// The group's name in the log, with the servers that are asked.
    fn address(&self) -> String;

    /// As of [`Store::identity`].
    fn identity(&self) -> Vec<String>;

    /// As of [`Store::database`].
    fn database(&self) -> i64;

    /// The servers that are asked from the beginning.
    fn asked(&self, common: &Common) -> Vec<Self::Asked>;

    /// How a master is reached.
    fn target(&self, master: &Master<Self>) -> Target;

    /// Asks one server until the watch is closed, and hands each answer to [`Watch::note`]. Between two answers it sleeps on the
    /// bell, for [`Watch::patience`]. `pause` is how long the watch will leave that server alone after a failure; an answer sets it to
    /// [`FIRST_PAUSE`].
    ///
    /// # Errors
    /// What went wrong with it. The watch notes that, sleeps, and calls this again.
    fn session(watch: &Arc<Watch<Self>>, asked: &Self::Asked, bell: &Bell, pause: &mut Duration)
    -> Result<(), Failure>;

    /// Notes the result of asking one server. Returns servers that are to be asked because of it, too.
    fn note(
        &self,
        council: &mut Self::Council,
        asked: &Self::Asked,
        said: Result<Self::Word, Failure>,
        common: &Common,
    ) -> Vec<Self::Asked>;

    /// Whether a server need not be asked any more. It is forgotten then.
    fn dismiss(_: &mut Self::Council, _: &Self::Asked) -> bool {
        false
    }
}

/// A master that may be followed.
pub(super) type Master<G> = <<G as Guide>::Council as Council>::Master;

/// What was said of the master so far.
pub(super) trait Council: Send + 'static {
    /// A master that may be followed. Two that are equal are one generation.
    type Master: Clone + PartialEq + Display + Send;

    /// What follows from the answers so far.
    fn course(&mut self, seen: Seen<'_, Self::Master>) -> Course<Self::Master>;

    /// Whether a server that says that it is the master is followed now in place of the current one.
    fn accepts(&mut self, current: Option<&Self::Master>, next: &Self::Master) -> bool;

    /// A server that was looked at cannot be followed, for this reason. Returns whether all are to be asked at once.
    fn note_unfit(&mut self, _: &Self::Master, _: &Failure, _: Moment) -> bool {
        false
    }

    /// Why there is no master, by the answers since then; `None` as long as there may be others.
    fn failure(&self, since: Moment) -> Option<Failure>;

    /// Why there is no master, by all answers.
    fn last_failure(&self) -> Failure;

    /// All are being asked.
    fn begin(&mut self, _: Moment) {}
}

/// What a council cannot know by itself.
pub(super) struct Seen<'a, M> {
    pub(super) current: Option<&'a M>,
    /// Calls at the current master fail.
    pub(super) is_in_doubt: bool,
    /// The server that is being asked whether it is the master.
    pub(super) looked_at: Option<&'a M>,
    pub(super) now: Moment,
}

/// What follows from what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Course<M> {
    Stay,
    /// This server is the master, if it says so itself.
    Follow(M),
    /// No server is the master, not even the last one, for this reason. It may follow again and again, and also without a master:
    /// then the watch forgets that another server could not be followed.
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

    /// Runs `act` at the master. If another server became the master before anything was sent, it runs there, if there is time to
    /// connect: a call does not get that time once more for each master that it meets.
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

    fn database(&self) -> i64 {
        self.watch.guide.database()
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

    fn servers(&self, until: Moment) -> Result<Vec<String>, Failure> {
        self.at_master(until, |master| Ok(vec![master.server().address()]))
    }

    /// There is one at a time: if it is another one by now, that is asked.
    fn attempt_at(&self, _: &str, requests: &[Request<'_>], limits: Limits<'_>) -> Result<Answers, Failure> {
        self.at_master(limits.answer_by, |master| master.attempt_each(Lane::Calls, requests, limits))
    }

    fn warm(&self, lane: Lane) -> Result<(), Failure> {
        self.at_master(self.clock.now().plus(self.connect_timeout), |master| master.warm(lane))
    }

    fn close(&self) {
        self.watch.close();
        self.watch.pubsub.close();
    }
}
