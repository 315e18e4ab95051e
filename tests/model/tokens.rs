//! A model of tokens whose counter is not where the lock is (docs/protocol.md, 14.5): the lock is taken, then the tokens are counted on,
//! then the lock is looked at, and last the counter; until lock and counter are at one node, from when on one script does all of it. Each request is executed at
//! any time or never, each answer may be lost, and the key may go while its owner is not done.

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A rule that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// A token is believed without a last look at the lock.
    NeverLooks,
    /// A token is believed whatever the counter shows behind the last look at the lock.
    NeverReads,
    /// The tokens are counted on before the lock is taken.
    MintsFirst,
    /// Who finds its own field takes the token that is stored.
    KeepsWhatIsStored,
}

#[derive(Debug, Clone, Copy)]
struct Tokens {
    /// Each wants the lock once, by one owner id.
    clients: usize,
    /// How many answers do not come.
    breaks: u8,
    /// How often a key goes while its owner is not done: by its lease, or by force.
    expiries: u8,
    forces: u8,
    mutant: Option<Mutant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    lock: Option<usize>,
    counter: u8,
    /// How often the lock was taken.
    takes: u8,
    /// Lock and counter are at one node.
    arrived: bool,
    clients: Vec<Client>,
    /// Sorted: which was sent first says nothing.
    wire: Vec<Message>,
    /// What was believed: the number of the take that was seen, and the token. A key that an early copy put back after a force unlock
    /// is no later take of a hold that was granted before: only its own token can be refused.
    believed: Vec<(u8, u8)>,
    breaks: u8,
    expiries: u8,
    forces: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    at: At,
    token: u8,
    /// By which take it has or had the key.
    took: u8,
    /// By which take it had the key when it saw so last.
    saw: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    /// Nothing of it is under way.
    Idle,
    Asking,
    Holding,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    client: usize,
    asks: Asks,
    waited: bool,
    answer: Option<Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Asks {
    /// The plain acquire.
    Take,
    Mint,
    Look,
    /// What the counter is now.
    Read,
    /// All in one script.
    Together,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Answer {
    No,
    /// By which take.
    Held(u8),
    Token(u8),
    /// The token, and by which take.
    Granted(u8, u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Ask(usize),
    Execute(usize),
    Deliver(usize),
    BreakOff(usize),
    Release(usize),
    Arrive,
    Expire,
    Force,
}

impl Model for Tokens {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client { at: At::Idle, token: 0, took: 0, saw: 0 };
        let Self { clients, breaks, expiries, forces, .. } = *self;
        vec![State {
            lock: None,
            counter: 0,
            takes: 0,
            arrived: false,
            clients: vec![client; clients],
            wire: Vec::new(),
            believed: Vec::new(),
            breaks,
            expiries,
            forces,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, client) in state.clients.iter().enumerate() {
            match client.at {
                At::Idle => actions.push(Action::Ask(number)),
                At::Holding => actions.push(Action::Release(number)),
                At::Asking | At::Over => {}
            }
        }
        for (at, message) in state.wire.iter().enumerate() {
            actions.push(if message.answer.is_none() { Action::Execute(at) } else { Action::Deliver(at) });
            actions.extend((message.waited && state.breaks > 0).then_some(Action::BreakOff(at)));
        }
        let owner = state.lock.map(|owner| state.clients[owner].at);
        let expires = owner == Some(At::Over) || (owner.is_some_and(|at| at != At::Holding) && state.expiries > 0);
        actions.extend(expires.then_some(Action::Expire));
        actions.extend((owner.is_some() && state.forces > 0).then_some(Action::Force));
        actions.extend((!state.arrived).then_some(Action::Arrive));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask(client) => self.begin(&mut state, client),
            Action::Execute(at) => {
                let mut message = state.wire.remove(at);
                message.answer = Some(self.execute(&mut state, &message));
                state.wire.extend(Some(message).filter(|message| message.waited));
            }
            Action::Deliver(at) => {
                let message = state.wire.remove(at);
                self.deliver(&mut state, &message);
            }
            Action::BreakOff(at) => {
                state.breaks -= 1;
                let mut message = state.wire.remove(at);
                message.waited = false;
                state.clients[message.client].at = At::Idle;
                state.wire.extend(Some(message).filter(|message| message.answer.is_none()));
            }
            Action::Release(client) => state.end(client),
            Action::Arrive => state.arrived = true,
            Action::Expire => {
                let owner = state.lock.take()?;
                state.expiries -= u8::from(state.clients[owner].at != At::Over);
            }
            Action::Force => {
                state.forces -= 1;
                state.lock = None;
            }
        }
        state.wire.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(GROW, |_, state: &State| state.tokens_grow()),
            Property::sometimes("all had it", |model: &Self, state: &State| state.believed.len() == model.clients),
        ]
    }
}

const GROW: &str = "tokens grow in the order of holds";

impl State {
    fn tokens_grow(&self) -> bool {
        let pairs = self.believed.iter().flat_map(|one| self.believed.iter().map(move |other| (one, other)));
        pairs.filter(|(one, other)| one.0 < other.0).all(|(one, other)| one.1 < other.1)
    }

    fn send(&mut self, client: usize, asks: Asks) {
        self.clients[client].at = At::Asking;
        self.wire.push(Message { client, asks, waited: true, answer: None });
    }

    fn mint(&mut self) -> u8 {
        self.counter += 1;
        self.counter
    }

    /// The outermost unlock, or what is given back because it cannot be believed.
    fn end(&mut self, client: usize) {
        self.clients[client].at = At::Over;
        self.lock = self.lock.filter(|owner| *owner != client);
    }
}

impl Client {
    fn believe_in(&mut self, believed: &mut Vec<(u8, u8)>) {
        self.at = At::Holding;
        believed.push((self.saw, self.token));
    }

    fn note(&mut self, answer: Answer, asks: Asks) {
        match answer {
            Answer::Held(take) => self.saw = take,
            Answer::Granted(token, take) => (self.token, self.saw) = (token, take),
            Answer::Token(token) if asks == Asks::Mint => self.token = token,
            Answer::Token(_) | Answer::No => {}
        }
    }
}

impl Tokens {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// An attempt from its beginning, by the same owner id.
    fn begin(&self, state: &mut State, client: usize) {
        let apart = if self.has(Mutant::MintsFirst) { Asks::Mint } else { Asks::Take };
        state.send(client, if state.arrived { Asks::Together } else { apart });
    }

    fn execute(&self, state: &mut State, message: &Message) -> Answer {
        let is_own = state.lock == Some(message.client);
        let took = state.clients[message.client].took;
        match message.asks {
            Asks::Mint => Answer::Token(state.mint()),
            Asks::Read => Answer::Token(state.counter),
            Asks::Look => {
                if is_own {
                    Answer::Held(took)
                } else {
                    Answer::No
                }
            }
            _ if state.lock.is_some() && !is_own => Answer::No,
            asks => {
                if !is_own {
                    state.takes += 1;
                    state.lock = Some(message.client);
                    state.clients[message.client].took = state.takes;
                }
                let took = state.clients[message.client].took;
                match asks {
                    Asks::Take => Answer::Held(took),
                    _ => Answer::Granted(self.token_for(state, is_own), took),
                }
            }
        }
    }

    fn token_for(&self, state: &mut State, is_own: bool) -> u8 {
        if is_own && self.has(Mutant::KeepsWhatIsStored) { state.counter } else { state.mint() }
    }

    fn deliver(&self, state: &mut State, message: &Message) {
        let (number, answer) = (message.client, message.answer.expect("only answers are delivered"));
        let client = &mut state.clients[number];
        let is_another = matches!(answer, Answer::Token(token) if token != client.token);
        client.note(answer, message.asks);
        match (message.asks, answer, self.mutant) {
            (_, Answer::No, _) => client.at = At::Idle,
            (Asks::Read, ..) if is_another => client.at = At::Idle,
            (Asks::Mint, _, Some(Mutant::MintsFirst)) => state.send(number, Asks::Take),
            (Asks::Take, _, Some(Mutant::MintsFirst))
            | (Asks::Mint, _, Some(Mutant::NeverLooks))
            | (Asks::Look, _, Some(Mutant::NeverReads))
            | (Asks::Read | Asks::Together, ..) => client.believe_in(&mut state.believed),
            (Asks::Take, ..) => state.send(number, Asks::Mint),
            (Asks::Mint, ..) => state.send(number, Asks::Look),
            (Asks::Look, ..) => state.send(number, Asks::Read),
        }
    }
}

const SETUPS: [(&str, Tokens); 4] = [
    ("lost answers", Tokens { clients: 2, breaks: 2, expiries: 1, forces: 0, mutant: None }),
    ("force unlock", Tokens { clients: 3, breaks: 0, expiries: 0, forces: 2, mutant: None }),
    ("force unlock beside an early copy", Tokens { clients: 2, breaks: 1, expiries: 0, forces: 2, mutant: None }),
    ("three clients", Tokens { clients: 3, breaks: 1, expiries: 1, forces: 0, mutant: None }),
];

#[test]
fn tokens_grow_though_their_counter_is_elsewhere() {
    for (name, tokens) in SETUPS {
        let found = tokens.checker().spawn_bfs().join();
        found.assert_properties();
        println!("tokens, {name}: {} states", found.unique_state_count());
    }
}

#[test]
fn every_broken_rule_of_tokens_is_found() {
    use Mutant::{KeepsWhatIsStored, MintsFirst, NeverLooks, NeverReads};
    let base = Tokens { clients: 2, breaks: 0, expiries: 0, forces: 0, mutant: None };
    let refuted = [
        (NeverLooks, Tokens { forces: 1, ..base }),
        (NeverReads, Tokens { forces: 2, breaks: 1, ..base }),
        (MintsFirst, base),
        (KeepsWhatIsStored, Tokens { breaks: 1, ..base }),
    ];
    for (mutant, tokens) in refuted {
        tokens.checker().spawn_bfs().join().assert_no_discovery(GROW);
        let tokens = Tokens { mutant: Some(mutant), ..tokens };
        let found = tokens.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let path = found.discovery(GROW).unwrap_or_else(|| panic!("{mutant:?} was not refuted"));
        println!("{mutant:?}: {:?}", path.into_actions());
    }
}
