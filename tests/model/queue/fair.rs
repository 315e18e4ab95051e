//! Liveness: whether a run that is fair can stay for ever where it must not.
//!
//! stateright's `eventually` takes a cycle, and a state that is reached twice, for the end of a path. So this builds the
//! whole graph and looks for a part of it, each state of which can be reached from each other within it, that a fair run
//! can stay in. A class of actions is treated unfairly by a run that takes none of them though one can be taken all
//! the time (weak fairness), or again and again (strong fairness). With as many states as there are, that is exact.

use stateright::Model;
use std::collections::HashMap;
use std::hash::Hash;

/// A model whose actions are of classes: bits of a number.
pub(crate) trait Fair: Model {
    /// `None`: it need never happen.
    fn class(&self, state: &Self::State, action: &Self::Action) -> Option<u32>;

    /// The classes to which a run is strongly fair.
    fn strong(&self) -> u64;
}

pub(crate) struct Graph<M: Fair> {
    pub(crate) states: Vec<M::State>,
    strong: u64,
    /// What can be taken in each state.
    enabled: Vec<u64>,
    /// Where to, and as what.
    edges: Vec<Vec<(usize, u64)>>,
    /// How each was reached first.
    from: Vec<Option<(usize, M::Action)>>,
}

impl<M: Fair> Graph<M>
where
    M::State: Clone + Eq + Hash,
    M::Action: Clone,
{
    /// Nothing can be said of a part of a graph: this ends with the last state.
    pub(crate) fn explore(model: &M) -> Self {
        let (strong, states) = (model.strong(), model.init_states());
        let mut known: HashMap<_, _> = states.iter().cloned().enumerate().map(|(at, state)| (state, at)).collect();
        let from = states.iter().map(|_| None).collect();
        let mut graph = Self { states, strong, enabled: Vec::new(), edges: Vec::new(), from };
        while graph.edges.len() < graph.states.len() {
            graph.expand(model, &mut known);
        }
        graph
    }

    fn expand(&mut self, model: &M, known: &mut HashMap<M::State, usize>) {
        let at = self.edges.len();
        let state = self.states[at].clone();
        let (mut actions, mut edges, mut enabled) = (Vec::new(), Vec::new(), 0);
        model.actions(&state, &mut actions);
        for action in actions {
            let class = model.class(&state, &action).map_or(0, |class| 1 << class);
            enabled |= class;
            let Some(next) = model.next_state(&state, action.clone()) else { continue };
            let to = *known.entry(next.clone()).or_insert(self.states.len());
            if to == self.states.len() {
                self.states.push(next);
                self.from.push(Some((at, action)));
            }
            edges.push((to, class));
        }
        self.enabled.push(enabled);
        self.edges.push(edges);
    }

    /// A part in which a fair run can stay for ever, all of it within what is asked for.
    pub(crate) fn trap(&self, within: impl Fn(&M::State) -> bool) -> Option<Vec<usize>> {
        let mut inside: Vec<_> = self.states.iter().map(within).collect();
        let all = (0..self.states.len()).filter(|at| inside[*at]).collect();
        self.trap_among(&mut inside, all, &mut Tarjan::of(self.states.len()))
    }

    /// Afterwards none of `among` is inside.
    fn trap_among(&self, inside: &mut [bool], among: Vec<usize>, search: &mut Tarjan) -> Option<Vec<usize>> {
        let parts = self.parts(inside, &among, search);
        among.iter().for_each(|at| inside[*at] = false);
        for part in parts {
            part.iter().for_each(|at| inside[*at] = true);
            let taken = self.taken(inside, &part);
            let always = part.iter().fold(u64::MAX, |all, at| all & self.enabled[*at]);
            let again = part.iter().fold(0, |all, at| all | self.enabled[*at]) & self.strong & !taken;
            if always & !taken == 0 && again == 0 {
                return Some(part);
            }
            // A strongly fair run that takes none of these leaves the states where it could.
            let rest = part.iter().copied().filter(|at| always & !taken == 0 && self.enabled[*at] & again == 0);
            let rest: Vec<_> = rest.collect();
            part.iter().for_each(|at| inside[*at] = false);
            rest.iter().for_each(|at| inside[*at] = true);
            if let Some(trap) = self.trap_among(inside, rest, search) {
                return Some(trap);
            }
        }
        None
    }

    fn taken(&self, inside: &[bool], part: &[usize]) -> u64 {
        let edges = part.iter().flat_map(|at| &self.edges[*at]);
        // Between two parts no edge leads back, and only one part at a time is inside.
        edges.filter(|(to, _)| inside[*to]).fold(0, |all, (_, class)| all | class)
    }

    /// The strongly connected parts, by Tarjan's algorithm, without recursion: paths are long.
    fn parts(&self, inside: &[bool], among: &[usize], search: &mut Tarjan) -> Vec<Vec<usize>> {
        for start in among {
            if search.order[*start] == NEW {
                self.visit(inside, search, *start);
            }
        }
        among.iter().for_each(|at| search.order[*at] = NEW);
        search.count = 0;
        std::mem::take(&mut search.parts)
    }

    fn visit(&self, inside: &[bool], search: &mut Tarjan, start: usize) {
        let mut path = vec![(start, 0)];
        search.enter(start);
        while let Some((at, edge)) = path.pop() {
            let Some((to, _)) = self.edges[at].get(edge) else {
                search.leave(at, path.last().map(|(parent, _)| *parent));
                continue;
            };
            path.push((at, edge + 1));
            if inside[*to] && search.order[*to] == NEW {
                search.enter(*to);
                path.push((*to, 0));
            } else if inside[*to] && search.low[*to] != NEW {
                search.lower(at, search.low[*to]);
            }
        }
    }

    /// What led to a state.
    pub(crate) fn path(&self, mut at: usize) -> Vec<M::Action> {
        let mut actions = Vec::new();
        while let Some((before, action)) = &self.from[at] {
            actions.push(action.clone());
            at = *before;
        }
        actions.reverse();
        actions
    }
}

/// Of a state that was not visited, or (as to what it leads back to) belongs to a part that is complete.
const NEW: usize = usize::MAX;

struct Tarjan {
    count: usize,
    order: Vec<usize>,
    /// The earliest that it leads back to.
    low: Vec<usize>,
    open: Vec<usize>,
    parts: Vec<Vec<usize>>,
}

impl Tarjan {
    fn of(states: usize) -> Self {
        Self { count: 0, order: vec![NEW; states], low: vec![NEW; states], open: Vec::new(), parts: Vec::new() }
    }

    fn enter(&mut self, at: usize) {
        (self.order[at], self.low[at]) = (self.count, self.count);
        self.count += 1;
        self.open.push(at);
    }

    fn lower(&mut self, at: usize, to: usize) {
        self.low[at] = to.min(self.low[at]);
    }

    fn leave(&mut self, at: usize, parent: Option<usize>) {
        let low = self.low[at];
        if low == self.order[at] {
            let first = self.open.iter().rposition(|open| *open == at).expect("it is open");
            let part = self.open.split_off(first);
            part.iter().for_each(|closed| self.low[*closed] = NEW);
            self.parts.push(part);
        } else if let Some(parent) = parent {
            self.lower(parent, low);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fair, Graph};
    use stateright::Model;

    /// Edges between numbers, each of a class or of none; it starts at 0.
    struct Drawn(&'static [(u8, u8, Option<u32>)]);

    impl Model for Drawn {
        type State = u8;
        type Action = (u8, u8, Option<u32>);

        fn init_states(&self) -> Vec<u8> {
            vec![0]
        }

        fn actions(&self, state: &u8, actions: &mut Vec<Self::Action>) {
            actions.extend(self.0.iter().filter(|(from, ..)| from == state));
        }

        fn next_state(&self, _: &u8, (_, to, _): Self::Action) -> Option<u8> {
            Some(to)
        }
    }

    impl Fair for Drawn {
        fn class(&self, _: &u8, (.., class): &Self::Action) -> Option<u32> {
            *class
        }

        /// Class 1 and no other.
        fn strong(&self) -> u64 {
            0b10
        }
    }

    /// Whether a fair run can miss the state 9.
    fn misses(edges: &'static [(u8, u8, Option<u32>)]) -> bool {
        Graph::explore(&Drawn(edges)).trap(|state| *state != 9).is_some()
    }

    #[test]
    fn an_end_is_a_trap_unless_something_must_happen() {
        assert!(misses(&[]));
        assert!(misses(&[(0, 9, None)]));
        assert!(!misses(&[(0, 9, Some(0))]));
    }

    #[test]
    fn what_is_possible_all_the_time_must_happen() {
        assert!(!misses(&[(0, 1, None), (1, 0, None), (0, 9, Some(0)), (1, 9, Some(0))]));
        assert!(misses(&[(0, 1, None), (1, 0, Some(0)), (0, 9, Some(0)), (1, 9, Some(0))]));
    }

    #[test]
    fn what_is_possible_now_and_then_must_happen_where_that_is_asked() {
        assert!(misses(&[(0, 1, None), (1, 0, None), (0, 9, Some(0))]));
        assert!(!misses(&[(0, 1, None), (1, 0, Some(0)), (0, 9, Some(1))]));
        assert!(misses(&[(0, 1, None), (1, 2, None), (2, 1, None), (1, 0, None), (0, 9, Some(1))]));
    }

    #[test]
    fn a_join_is_no_cycle() {
        assert!(!misses(&[(0, 1, Some(0)), (0, 2, Some(0)), (1, 3, Some(0)), (2, 3, Some(0)), (3, 9, Some(0))]));
    }
}
