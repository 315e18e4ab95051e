//! What a process does: src/lock/acquire.rs, src/lock/waiting/bid.rs and the sweeper behind them. When it looks is said by
//! src/lock/waiting/wait.rs itself.

use super::state::{Answer, Ask, Client, Doing, Held, Limits, Manner, Message, Names, Owner, Request, State, Ticket};
use crate::base::time::Moment;
use crate::lock::waiting::wait::{Hearing, News, Outcome, Step, Wait};
use crate::state::Tick;
use std::time::Duration;

/// The bounds of a search. Within them everything that can happen is tried, in every order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    /// The first has the lock at the beginning.
    pub(super) clients: &'static [Comer],
    pub(super) lease: Tick,
    pub(super) offer: Tick,
    /// For how long a lock is left to the foreigner.
    pub(super) left: Tick,
    /// How long an ask may be executed.
    pub(super) response: Tick,
    /// The last tick.
    pub(super) end: Tick,
    pub(super) pace: Option<Pace>,
    pub(super) limits: Limits,
}

/// Of a process how often it may wait, and how often it may ask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comer {
    pub(super) waits: u8,
    pub(super) asks: u8,
    /// Whether a message that gives may be more than a hint.
    pub(super) believes: bool,
    /// It hears nothing and looks in each tick.
    pub(super) polls: bool,
}

/// No tick passes while something is under way that takes no longer than a message. Timers ring in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Whoever has the lock releases it after so long.
    pub(super) hold: Tick,
    /// The TTL of a queue.
    pub(super) queue: Tick,
    /// Whoever waits has the lock after so long.
    pub(super) wait: Tick,
}

/// A rule of docs/protocol.md, 8, that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// What was given is believed from the arrival of the message on.
    BelievesWhenTold,
    /// A message of an earlier ask counts as one of the last.
    BelievesAnyName,
    /// Who goes takes its ticket out and does not release its owner id.
    LeavesOnly,
    /// Who goes releases its owner id first, and then takes its ticket out.
    ReleasesFirst,
    KeepsTheTicket,
    /// An ask leaves the ticket of the one before where it is.
    KeepsThePlace,
    /// What frees the lock and gives it to nobody tells nobody of all.
    TellsNobody,
    GivesToTheDead,
    /// What is given has the TTL of a lease.
    GivesALease,
    /// The message that gives is published before the owner is written.
    TellsFirst,
    /// An ask takes a free lock though another is the first of the queue.
    TakesPastTheFirst,
    /// An ask that finds the lock free beside the queue of another queues and gives it to nobody.
    AskGivesNothing,
    LeaveGivesNothing,
    /// An ask behind the dead alone is given the lock itself, and queues all the same.
    JoinsWhenGiven,
    /// An ask takes, or gives, a lock that is left to the foreigner.
    IgnoresTheMark,
    MarkNeverEnds,
    /// Who asks for the last time and does not get the lock keeps its place.
    LastStays,
    /// Who polls is given the lock only while it listens, as all others are.
    PollsUnheard,
    /// Who waits looks when the TTL ends that it was told, and not before.
    LooksAtTheEnd,
    QueueNeverEnds,
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
            None => true,
            Some(_) if self.polls => self.sent < tick,
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
        let client = |&Comer { waits, asks, believes, polls }: &Comer| Client {
            doing: Doing::Idle,
            believes,
            polls,
            life: 0,
            waits,
            asks,
            ask: 0,
            manner: Manner::Queued,
            sent: 0,
            first: 0,
            wait: None,
            waited: 0,
            stopped: false,
            dead: false,
        };
        let mut clients: Vec<_> = clients.iter().map(client).collect();
        clients[0].doing = self.holding(0, lease - MARGIN);
        let lock = Some(Held { owner: Owner { client: 0, life: 0 }, until: lease, given: None });
        State {
            now: 0,
            lock,
            is_timed: false,
            queue: Vec::new(),
            queue_ends: 0,
            mark: None,
            deserted: 0,
            wire: Vec::new(),
            messages: Vec::new(),
            clients,
            foreigner_waits: false,
            fault: None,
            limits,
        }
    }

    /// It believes until then; where a pace is kept it releases the lock before.
    fn holding(&self, now: Tick, until: Tick) -> Doing {
        Doing::Holding(self.setup.pace.map_or(until, |pace| until.min(now + pace.hold)), None)
    }

    /// The first ask of a wait.
    pub(super) fn come(&self, state: &mut State, number: usize, manner: Manner) {
        let client = &mut state.clients[number];
        client.waits -= 1;
        client.first = client.ask + 1;
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
        self.ask_on(state, number);
    }

    fn ask_on(&self, state: &mut State, number: usize) {
        if state.clients[number].asks > 0 {
            self.ask(state, number, Manner::Queued);
        } else {
            Self::rest(state, number, Doing::Idle);
        }
    }

    /// Its wait is over, so what is told to it is heard by nobody.
    pub(super) fn rest(state: &mut State, number: usize, doing: Doing) {
        let client = &mut state.clients[number];
        (client.doing, client.manner, client.wait, client.waited) = (doing, Manner::Queued, None, 0);
        state.messages.retain(|message| message.client() != number);
    }

    /// The ask may still be executed until its deadline. After that its tickets are taken out and its owner id is released.
    pub(super) fn unanswered(&self, state: &mut State, number: usize) {
        Self::await_nothing(state, number);
        self.quit(state, number, state.clients[number].sent + self.setup.response);
        self.ask_again(state, number);
    }

    pub(super) fn await_nothing(state: &mut State, number: usize) {
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
        state.clients[number].life += 1;
        Self::rest(state, number, Doing::Idle);
    }

    /// An answer arrives, to an ask or to a renewal.
    pub(super) fn hear_answer(&self, state: &mut State, number: usize) {
        let (now, &Client { sent, .. }) = (state.now, &state.clients[number]);
        let validity = self.setup.lease - MARGIN;
        match state.clients[number].doing {
            Doing::Asking(Some(Answer::Granted)) if now < sent + validity => {
                Self::rest(state, number, self.holding(now, sent + validity));
            }
            Doing::Asking(Some(Answer::Granted)) => {
                state.wire.push(Request::Release(state.owner(number)));
                self.ask_again(state, number);
            }
            Doing::Asking(Some(Answer::Busy(..) | Answer::Left(..)))
                if state.clients[number].manner == Manner::Last =>
            {
                state.clients[number].life += 1;
                Self::rest(state, number, Doing::Idle);
            }
            Doing::Asking(Some(Answer::Busy(left, rank))) => {
                self.waits_on(state, number, Outcome::Busy(left.map(span)), rank);
            }
            Doing::Asking(Some(Answer::Left(left, rank))) => {
                self.waits_on(state, number, Outcome::Reserved(span(left)), rank);
            }
            Doing::Holding(until, Some((sent, Some(true)))) => {
                state.clients[number].doing = Doing::Holding(until.max(sent + validity), None);
            }
            Doing::Holding(_, Some((_, Some(false)))) => Self::end(state, number),
            _ => {}
        }
    }

    /// What its wait makes of an answer. One that did not queue does not listen yet.
    fn waits_on(&self, state: &mut State, number: usize, outcome: Outcome<()>, rank: u8) {
        let (now, client) = (state.now, &mut state.clients[number]);
        let mut wait = client.wait.take().unwrap_or_else(|| Wait::new(POLL_CAP, None, false));
        let hears = if client.polls { Hearing::Deaf } else { Hearing::Open };
        let hearing = if client.manner == Manner::Queued { hears } else { Hearing::NotYet };
        wait.answered([moment(client.sent), moment(now)], &outcome, Some(u32::from(rank)), hearing);
        if wait.next(moment(now)) == Step::Listen {
            wait.listens(moment(now), hears);
        }
        client.doing = Doing::Waiting;
        client.wait = Some(wait);
        if client.looks(now) {
            self.ask_on(state, number);
        }
        let client = &mut state.clients[number];
        client.wait.take_if(|_| self.setup.pace.is_none());
    }

    /// A message is a proof to the last ask alone, of one who believes, and while less than half of the offer is over. Else it is a hint.
    pub(super) fn hear(&self, state: &mut State, message: Message) {
        let number = message.client();
        if self.is_proof(state, message) {
            let client = &state.clients[number];
            let sent = if self.has(Mutant::BelievesWhenTold) { state.now } else { client.sent };
            Self::rest(state, number, self.holding(state.now, sent + self.setup.offer - MARGIN));
            return;
        }
        let (now, client) = (state.now, &mut state.clients[number]);
        let news = match message {
            Message::Given(_) => News::ForIt,
            // By name or with all: its share of the time is less than a tick.
            Message::Free(_) => News::ForAll { at: moment(now), share: 1 },
        };
        client.wait.iter_mut().for_each(|wait| wait.told(news));
        if client.looks(now) {
            self.ask(state, number, Manner::Queued);
        }
    }

    pub(super) fn is_proof(&self, state: &State, message: Message) -> bool {
        let client = &state.clients[message.client()];
        let last: Ticket = state.names(message.client()).last;
        let is_last = message == Message::Given(last) || self.has(Mutant::BelievesAnyName);
        let sent = if self.has(Mutant::BelievesWhenTold) { state.now } else { client.sent };
        let is_early = 2 * (state.now - sent) < self.setup.offer;
        matches!(message, Message::Given(_)) && client.believes && is_last && is_early
    }

    pub(super) fn renew(&self, state: &mut State, number: usize) {
        let (owner, now) = (state.owner(number), state.now);
        if let Doing::Holding(_, renewal) = &mut state.clients[number].doing {
            *renewal = Some((now, None));
        }
        state.wire.push(Request::Renew { owner, deadline: now + self.setup.response });
    }

    /// An unlock. A hold that is over is released, too.
    pub(super) fn end(state: &mut State, number: usize) {
        state.wire.push(Request::Release(state.owner(number)));
        state.clients[number].life += 1;
        Self::rest(state, number, Doing::Idle);
    }

    /// What it has sent may still be executed. Of what it would have sent nothing will be.
    pub(super) fn die(state: &mut State, number: usize) {
        Self::await_nothing(state, number);
        Self::rest(state, number, Doing::Idle);
        state.clients[number].dead = true;
        let would = |names: &Names| names.last.owner.client == number;
        state.wire.retain(|request| !matches!(request, Request::Quit { names, .. } if would(names)));
    }
}
