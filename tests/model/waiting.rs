//! A model of waiting: one process whose threads wait for a lock that someone else holds and frees, with the
//! subscriber's connection breaking at any time. Nobody polls and no TTL ends a sleep, so that a hint which is lost
//! shows as a thread that sleeps beside a free lock.

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A rule of waiting that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// It sleeps after subscribing without another look.
    TriesOnlyBefore,
    /// After a reconnect it is woken when the subscription is asked for, not when it is confirmed.
    WakesUnconfirmed,
    /// A new head sleeps without a try of its own.
    HeadSleepsUntried,
    /// The semaphore is emptied after the try.
    EmptiesAfterTry,
    /// Whoever leaves the queue wakes nobody.
    LeavesSilently,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    waiters: u8,
    /// How many times the others take the lock.
    takes: u8,
    breaks: u8,
    mutant: Option<Mutant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    lock: Lock,
    takes: u8,
    breaks: u8,
    link: Link,
    /// Messages on their way to the subscriber: hints, one is as good as many.
    hint: bool,
    /// In the order of the queue: the first contends. Who is done has left.
    queue: Vec<Waiter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lock {
    Free,
    Others,
    /// A waiter got it: that is the end of its waiting, and it will free the lock.
    Ours,
}

/// The subscription of the lock's channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Link {
    /// Nobody asked for it, or the connection was lost (then it is asked for again).
    Down,
    Asked,
    /// The server has it, and its confirmation is on the way.
    Subscribed,
    Confirmed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Waiter {
    at: At,
    permit: bool,
    /// Its semaphore is on the channel.
    listens: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Parked,
    Emptying,
    Trying,
    /// Its try found the lock busy.
    Busy,
    Asleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The head takes its next step.
    Step,
    /// A waiter that sleeps or is parked gives up.
    Leave(usize),
    OthersTake,
    Free,
    Subscribe,
    Execute,
    Confirm,
    Break,
    Hear,
}

impl Model for Waiting {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let waiter = |at| Waiter { at, permit: false, listens: false };
        let mut queue = vec![waiter(At::Parked); usize::from(self.waiters)];
        queue[0].at = At::Emptying;
        let (takes, breaks) = (self.takes, self.breaks);
        vec![State { lock: Lock::Others, takes, breaks, link: Link::Down, hint: false, queue }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let listened = state.queue.iter().any(|waiter| waiter.listens);
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        may(Action::Step, state.queue.first().is_some_and(Waiter::can_step) && state.lock != Lock::Ours);
        may(Action::OthersTake, state.lock == Lock::Free && state.takes > 0);
        may(Action::Free, state.lock != Lock::Free);
        may(Action::Subscribe, state.link == Link::Down && listened);
        may(Action::Execute, state.link == Link::Asked);
        may(Action::Confirm, state.link == Link::Subscribed);
        may(Action::Break, state.link != Link::Down && state.breaks > 0);
        may(Action::Hear, state.hint);
        for (place, waiter) in state.queue.iter().enumerate() {
            may(Action::Leave(place), matches!(waiter.at, At::Parked | At::Asleep));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step => self.step(&mut state),
            Action::Leave(place) => self.leave(&mut state, place),
            Action::OthersTake => (state.lock, state.takes) = (Lock::Others, state.takes - 1),
            Action::Free => self.free(&mut state),
            Action::Subscribe => {
                state.link = Link::Asked;
                state.wake_listeners(self.mutant == Some(Mutant::WakesUnconfirmed));
            }
            Action::Execute => state.link = Link::Subscribed,
            Action::Confirm => {
                state.link = Link::Confirmed;
                let silent = [Some(Mutant::WakesUnconfirmed), Some(Mutant::TriesOnlyBefore)].contains(&self.mutant);
                state.wake_listeners(!silent);
            }
            Action::Break => {
                (state.link, state.hint, state.breaks) = (Link::Down, false, state.breaks - 1);
                state.wake_listeners(true);
            }
            Action::Hear => {
                state.hint = false;
                state.wake_listeners(true);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nobody sleeps beside a free lock", |_, state: &State| !state.is_stuck()),
            Property::sometimes("someone sleeps, subscribed", |_, state: &State| {
                state.link == Link::Confirmed && state.queue.iter().any(|waiter| waiter.at == At::Asleep)
            }),
            Property::sometimes("all were served or left", |_, state: &State| state.queue.is_empty()),
        ]
    }
}

impl Waiter {
    fn can_step(&self) -> bool {
        match self.at {
            At::Parked => false,
            At::Asleep => self.permit,
            At::Emptying | At::Trying | At::Busy => true,
        }
    }
}

impl State {
    /// Nothing is on the way that could wake the head, and the lock is there to be taken.
    fn is_stuck(&self) -> bool {
        let asleep = |waiter: &Waiter| !waiter.can_step();
        let on_its_way = self.hint || self.link == Link::Asked || self.link == Link::Subscribed;
        let reconnects = self.link == Link::Down && self.queue.iter().any(|waiter| waiter.listens);
        self.lock == Lock::Free && self.queue.first().is_some_and(asleep) && !on_its_way && !reconnects
    }

    fn wake_listeners(&mut self, really: bool) {
        self.queue.iter_mut().filter(|waiter| really && waiter.listens).for_each(|waiter| waiter.permit = true);
    }
}

impl Waiting {
    /// src/lock/waiting/bid.rs: empty the semaphore, ask, listen, sleep.
    fn step(&self, state: &mut State) {
        let late = self.mutant == Some(Mutant::EmptiesAfterTry);
        let head = &mut state.queue[0];
        match head.at {
            At::Emptying | At::Asleep => {
                head.permit &= late && head.at == At::Emptying;
                head.at = At::Trying;
            }
            At::Trying if state.lock == Lock::Free => {
                state.lock = Lock::Ours;
                self.leave(state, 0);
            }
            At::Trying => head.at = At::Busy,
            At::Busy => {
                head.permit &= !late;
                let told =
                    head.listens || state.link != Link::Confirmed || self.mutant == Some(Mutant::TriesOnlyBefore);
                head.listens = true;
                head.at = if told { At::Asleep } else { At::Emptying };
            }
            At::Parked => unreachable!("a parked waiter takes no steps"),
        }
    }

    /// Someone leaves the queue, with the lock or without it; the next one contends, unless the process holds it.
    fn leave(&self, state: &mut State, place: usize) {
        state.queue.remove(place);
        let contends = place == 0 && state.lock != Lock::Ours && self.mutant != Some(Mutant::LeavesSilently);
        self.promote(state, contends);
    }

    fn promote(&self, state: &mut State, contends: bool) {
        if let Some(head) = state.queue.first_mut().filter(|head| contends && head.at == At::Parked) {
            if self.mutant == Some(Mutant::HeadSleepsUntried) {
                (head.at, head.listens) = (At::Asleep, true);
            } else {
                head.at = At::Emptying;
            }
        }
    }

    /// The lock is freed, and whoever is subscribed is told. What this process frees it tells its own queue.
    fn free(&self, state: &mut State) {
        let ours = state.lock == Lock::Ours;
        state.lock = Lock::Free;
        state.hint |= matches!(state.link, Link::Subscribed | Link::Confirmed);
        self.promote(state, ours);
    }
}

const SMALL: Waiting = Waiting { waiters: 2, takes: 2, breaks: 1, mutant: None };

#[test]
fn no_waiter_sleeps_beside_a_free_lock() {
    let waiters = Waiting { waiters: 3, breaks: 2, ..SMALL };
    let found = waiters.checker().spawn_bfs().join();
    found.assert_properties();
    println!("waiting: {} states", found.unique_state_count());
}

#[test]
fn every_broken_rule_of_waiting_lets_one_sleep() {
    use Mutant::{EmptiesAfterTry, HeadSleepsUntried, LeavesSilently, TriesOnlyBefore, WakesUnconfirmed};
    for mutant in [TriesOnlyBefore, WakesUnconfirmed, HeadSleepsUntried, EmptiesAfterTry, LeavesSilently] {
        let waiting = Waiting { mutant: Some(mutant), ..SMALL };
        let found = waiting.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let path = found.discovery("nobody sleeps beside a free lock");
        let path = path.unwrap_or_else(|| panic!("{mutant:?} was not refuted"));
        println!("{mutant:?}: {:?}", path.into_actions());
    }
}
