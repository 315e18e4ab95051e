//! What a thread of ours does: src/lock/acquire.rs, src/lock/waiting/bid.rs and the sweeper behind them. When it looks is said by
//! src/lock/waiting/wait.rs itself.

use super::state::{
    Answer, Ask, Client, Doing, End, Hears, Held, Limits, Manner, Message, Names, Owner, Request, State, Ticket,
};
use crate::base::time::Moment;
use crate::lock::waiting::wait::{Hearing, News, Outcome, Step, Wait};
use crate::state::Tick;
use std::collections::BTreeMap;
use std::time::Duration;

/// The bounds of a search. Within them everything that can happen is tried, in every order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    /// The first has the lock at the beginning.
    pub(super) clients: &'static [Comer],
    pub(super) lease: Tick,
    pub(super) offer: Tick,
    /// How long an ask may be executed.
    pub(super) response: Tick,
    pub(super) spans: Spans,
    /// The last tick.
    pub(super) end: Tick,
    pub(super) pace: Option<Pace>,
    pub(super) limits: Limits,
}

/// For how long places and keys last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spans {
    /// From a look of ours on: three poll caps.
    pub(super) wait: End,
    /// The wait of one of Redisson's, which adds it to its own end and takes it off those behind; and what ours count for it: 5 minutes.
    pub(super) java: End,
    pub(super) counted: End,
    /// How long the keys last after the last end, and how much of that a look leaves.
    pub(super) after: End,
    pub(super) half: End,
}

impl Spans {
    /// How long a place of ours counts at least after each look.
    pub(super) fn kept(&self) -> End {
        self.wait - self.wait / 3
    }
}

/// A thread, how often it may wait, and how often one of ours may ask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comer {
    pub(super) waits: u8,
    pub(super) asks: u8,
    /// Whether a message that gives may be more than a hint.
    pub(super) believes: bool,
    pub(super) hears: Hears,
    /// How much the clock of a thread of Redisson's is ahead. Else it is one of ours.
    pub(super) ahead: Option<End>,
}

/// No tick passes while something is under way that takes no longer than a message. Timers ring in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Whoever has the lock releases it after so long.
    pub(super) hold: Tick,
    /// A queue in which nobody waits is gone after so long.
    pub(super) queue: Tick,
    /// Whoever waits has the lock after so long.
    pub(super) wait: Tick,
}

/// A rule of docs/protocol.md, 17, that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// What was given is believed from the arrival of the message on.
    BelievesWhenTold,
    /// A message of an earlier ask counts as one of the last.
    BelievesAnyName,
    /// Who goes takes its place out and does not release its owner id.
    LeavesOnly,
    /// Who goes releases its owner id first, and then takes its place out.
    ReleasesFirst,
    /// A thread that was given the lock keeps its place.
    KeepsThePlaceOfTheServed,
    /// Who asks for the last time and does not get the lock keeps its place.
    LastStays,
    /// What is given has the TTL of a lease.
    GivesALease,
    /// The message that gives is published before the owner is written.
    TellsFirst,
    GivesToTheDead,
    /// Who polls is given the lock only while it listens, as all others are.
    PollsUnheard,
    /// The second of the queue is served.
    SkipsTheHead,
    TakesPastTheFirst,
    TryOvertakes,
    /// An ask leaves the ticket of the one before where it is.
    KeepsTheTicket,
    /// An ask by another owner id queues anew.
    KeepsThePlace,
    /// An ask by another owner id moves its place to the end.
    RenamesToTheEnd,
    /// An ask that has a place by its owner id and one by an earlier one has two by its owner id.
    RenamesTwice,
    /// An ask by another owner id leaves the lock that was given to an earlier one.
    TakesNothingOver,
    /// Such a lock is served to the first of the queue.
    ServesWhatItTakesOver,
    /// The end is that of the first look.
    NeverMovesItsEnd,
    /// The end does not count the threads of Redisson's that are before.
    CountsNoRedisson,
    /// The end may be before that of a thread of Redisson's that is before.
    EndsBeforeRedisson,
    /// An end that counts waits of Redisson's is moved only when it is near.
    LooksSeldomBehindRedisson,
    /// A thread of ours that is given the lock takes time off the ends of the others, as one of Redisson's does.
    TakesTimeOff,
    PurgesNobody,
    /// A thread of Redisson's whose end is past is taken out, and not told.
    TellsNoneOfThePast,
    /// A place of ours whose ticket is lost is taken out, and nobody is told.
    DropsInSilence,
    /// Such a place is taken for one of Redisson's.
    KeepsItForTheTicketless,
    /// A thread with one of Redisson's before it does not listen on its own channel.
    HearsNoRedisson,
    ReleaseGivesNothing,
    LeaveGivesNothing,
    /// What frees the lock while nobody has a place tells nobody.
    TellsNobody,
    /// Who waits looks when the TTL ends that it was told, and not before.
    LooksAtTheEnd,
    QueueNeverEnds,
    /// The keys end before a thread of Redisson's that joined behind one of ours.
    KeysEndTooSoon,
    /// The tickets get a TTL only if that of the other keys is short.
    LooksAtOneTtl,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) setup: Setup,
    pub(super) mutant: Option<Mutant>,
}

/// A lock is given for three of them where a pace is kept. Delays of some ms fall within one.
const TICK: Duration = Duration::from_millis(500);

/// Longer than a search lasts.
const POLL_CAP: Duration = Duration::from_secs(1_000);

fn span(ticks: Tick) -> Duration {
    TICK * u32::from(ticks)
}

fn moment(tick: Tick) -> Moment {
    Moment(0).plus(span(tick))
}

fn end_of(tick: Tick) -> Moment {
    Moment(moment(tick).plus(TICK).0 - 1)
}

impl Client {
    /// Whether it looks in this tick without news. Where no pace is kept it may look whenever it likes.
    pub(super) fn looks(&self, tick: Tick) -> bool {
        match &self.wait {
            _ if self.is_java() => self.wakes <= tick,
            None => true,
            Some(_) if self.listens && self.hearing() == Hearing::Deaf => self.sent < tick,
            Some(wait) => !matches!(wait.clone().next(end_of(tick)), Step::Sleep(_)),
        }
    }
}

/// Clocks may differ by so much within a lease.
const MARGIN: Tick = 1;

impl Crowd {
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn start(&self) -> State {
        let Setup { clients, lease, limits, .. } = self.setup;
        let client = |&Comer { waits, asks, believes, hears, ahead }: &Comer| Client {
            ahead,
            doing: Doing::Idle,
            believes,
            hears,
            listens: false,
            ear: hears == Hears::AtOnce,
            own: [None; 2],
            life: 0,
            waits,
            asks,
            ask: 0,
            manner: Manner::Queued,
            sent: 0,
            looked: 0,
            first: 0,
            wait: None,
            wakes: 0,
            waited: 0,
            stopped: false,
            dead: false,
        };
        let mut clients: Vec<_> = clients.iter().map(client).collect();
        clients[0].doing = self.holding(0, lease - MARGIN);
        State {
            now: 0,
            lock: Some(Held { owner: Owner { client: 0, life: 0 }, until: lease, given: None }),
            is_timed: false,
            list: Vec::new(),
            ends: BTreeMap::new(),
            tickets: BTreeMap::new(),
            ttl: None,
            ttl_of_tickets: None,
            arrivals: Vec::new(),
            deserted: 0,
            wire: Vec::new(),
            messages: Vec::new(),
            clients,
            fault: None,
            limits,
        }
    }

    /// It believes until then; where a pace is kept it releases the lock before.
    fn holding(&self, now: Tick, until: Tick) -> Doing {
        Doing::Holding(self.setup.pace.map_or(until, |pace| until.min(now + pace.hold)))
    }

    /// The first ask of a wait, or a try.
    pub(super) fn come(&self, state: &mut State, number: usize, manner: Manner) {
        state.arrivals.retain(|arrived| *arrived != number);
        let client = &mut state.clients[number];
        client.waits -= 1;
        client.first = client.life;
        client.listens = client.hears == Hears::AtOnce;
        self.ask(state, number, manner);
    }

    pub(super) fn ask(&self, state: &mut State, number: usize, manner: Manner) {
        let now = state.now;
        let client = &mut state.clients[number];
        client.asks -= 1;
        client.ask += 1;
        (client.doing, client.sent, client.manner) = (Doing::Asking(None), now, manner);
        // From now on it waits for the answer.
        client.wait.as_mut().map(|wait| wait.next(end_of(now)));
        let (names, deadline) = (state.names(number), now + self.setup.response);
        state.wire.push(Request::Ask(Ask { names, manner, deadline, awaited: true }));
    }

    /// It asks as another owner, or goes.
    fn ask_again(&self, state: &mut State, number: usize) {
        state.clients[number].life += 1;
        let client = &state.clients[number];
        if client.asks > 0 && client.manner != Manner::Try {
            self.ask(state, number, Manner::Queued);
        } else {
            Self::rest(state, number, Doing::Idle);
        }
    }

    /// Its wait is over, so what is told to it is heard by nobody.
    pub(super) fn rest(state: &mut State, number: usize, doing: Doing) {
        let client = &mut state.clients[number];
        (client.doing, client.manner, client.wait, client.waited) = (doing, Manner::Queued, None, 0);
        (client.listens, client.own, client.looked, client.wakes) = (false, [None; 2], 0, 0);
        client.ear = client.hears == Hears::AtOnce && !client.dead;
        state.messages.retain(|message| message.client() != number);
    }

    /// The ask may still be executed until its deadline. After that its places are taken out and its owner id is released.
    pub(super) fn unanswered(&self, state: &mut State, number: usize) {
        Self::await_nothing(state, number);
        self.quit(state, number, state.clients[number].sent + self.setup.response);
        self.ask_again(state, number);
    }

    fn await_nothing(state: &mut State, number: usize) {
        for request in &mut state.wire {
            if let Request::Ask(ask) = request {
                ask.awaited &= ask.names.last.owner.client != number;
            }
        }
    }

    fn quit(&self, state: &mut State, number: usize, due: Tick) {
        state.wire.push(Request::Quit { names: state.names(number), due, half: false });
    }

    pub(super) fn give_up(&self, state: &mut State, number: usize) {
        self.quit(state, number, state.now);
        Self::end_wait(state, number);
    }

    fn end_wait(state: &mut State, number: usize) {
        state.clients[number].life += 1;
        Self::rest(state, number, Doing::Idle);
    }

    /// An answer arrives.
    pub(super) fn hear_answer(&self, state: &mut State, number: usize) {
        let (now, &Client { sent, manner, .. }) = (state.now, &state.clients[number]);
        let validity = self.setup.lease - MARGIN;
        match state.clients[number].doing {
            Doing::Asking(Some(Answer::Granted)) if now < sent + validity => {
                Self::rest(state, number, self.holding(now, sent + validity));
            }
            Doing::Asking(Some(Answer::Granted)) => {
                state.wire.push(Request::Release(state.owner(number)));
                self.ask_again(state, number);
            }
            Doing::Asking(Some(_)) if manner != Manner::Queued => Self::end_wait(state, number),
            Doing::Asking(Some(Answer::Busy(left, rank, foreign))) => {
                let client = &mut state.clients[number];
                if foreign && !self.has(Mutant::HearsNoRedisson) {
                    client.own[0] = Some(client.life);
                    // One of both is confirmed, or none.
                    client.own[1] = client.own[1].filter(|life| *life == client.life);
                }
                self.waits_on(state, number, left, rank);
            }
            _ => {}
        }
    }

    /// What its wait makes of an answer.
    fn waits_on(&self, state: &mut State, number: usize, left: Option<Tick>, rank: u8) {
        let (now, client) = (state.now, &mut state.clients[number]);
        let mut wait = client.wait.take().unwrap_or_else(|| Wait::new(POLL_CAP, None, false));
        let (asked, outcome) = ([moment(client.sent), moment(now)], Outcome::<()>::Busy(left.map(span)));
        wait.answered(asked, &outcome, Some(u32::from(rank)), client.hearing());
        if wait.next(moment(now)) == Step::Listen {
            client.listens = true;
            wait.listens(moment(now), client.hearing());
        }
        client.doing = Doing::Waiting;
        client.wait = Some(wait);
        if client.looks(now) && client.asks > 0 {
            self.ask(state, number, Manner::Queued);
        }
        let client = &mut state.clients[number];
        client.wait.take_if(|_| self.setup.pace.is_none());
    }

    /// All its subscriptions are confirmed. What was told before is lost, so it looks.
    pub(super) fn confirmed(&self, state: &mut State, number: usize) {
        let client = &mut state.clients[number];
        (client.ear, client.own[1]) = (true, client.own[0]);
        client.wait.iter_mut().for_each(|wait| wait.told(News::ForIt));
        self.ask(state, number, Manner::Queued);
    }

    pub(super) fn cut(state: &mut State, number: usize) {
        let client = &mut state.clients[number];
        (client.ear, client.own[1]) = (false, None);
        state.messages.retain(|message| message.client() != number);
    }

    /// A message is a proof to the last ask alone, of one who believes, and while less than half of the offer is over. Else it is a hint.
    pub(super) fn hear(&self, state: &mut State, message: Message) {
        let number = message.client();
        if state.clients[number].is_java() {
            self.java_asks(state, number, true);
            return;
        }
        if self.is_proof(state, message) {
            let sent = if self.has(Mutant::BelievesWhenTold) { state.now } else { state.clients[number].sent };
            Self::rest(state, number, self.holding(state.now, sent + self.setup.offer - MARGIN));
            return;
        }
        let (now, client) = (state.now, &mut state.clients[number]);
        client.wait.iter_mut().for_each(|wait| wait.told(News::ForIt));
        if client.looks(now) {
            self.ask(state, number, Manner::Queued);
        }
    }

    pub(super) fn is_proof(&self, state: &State, message: Message) -> bool {
        let Message::Given(given) = message else { return false };
        let client = &state.clients[given.owner.client];
        let last: Ticket = state.names(given.owner.client).last;
        let is_last = given.ask == last.ask || self.has(Mutant::BelievesAnyName);
        let sent = if self.has(Mutant::BelievesWhenTold) { state.now } else { client.sent };
        client.believes && is_last && 2 * (state.now - sent) < self.setup.offer
    }

    /// An unlock. A hold that is over is released, too.
    pub(super) fn end(&self, state: &mut State, number: usize) {
        if state.clients[number].is_java() {
            self.java_releases(state, number);
            return;
        }
        state.wire.push(Request::Release(state.owner(number)));
        Self::end_wait(state, number);
    }

    /// What it has sent may still be executed. Of what it would have sent nothing will be.
    pub(super) fn die(state: &mut State, number: usize) {
        Self::await_nothing(state, number);
        state.clients[number].dead = true;
        Self::rest(state, number, Doing::Idle);
        let would = |names: &Names| names.last.owner.client == number;
        state.wire.retain(|request| !matches!(request, Request::Quit { names, .. } if would(names)));
    }
}
