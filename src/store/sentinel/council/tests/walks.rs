//! Random walks of a group and one client of it: what is said is said late, and what is looked at changes meanwhile.
//!
//! Sentinels here do what those of Redis do: whoever is voted for by a majority that knows the same master promotes another node by a
//! new epoch; the others learn of it later, one by one; and a master is made a replica by a sentinel that knows of a newer one.

use super::super::*;
use crate::base::error::Applied;
use crate::store::moving::Council as _;

const SENTINELS: usize = 3;
const NODES: usize = 4;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

struct World {
    chance: Chance,
    now: Moment,
    /// What each sentinel knows.
    known: [(u64, usize); SENTINELS],
    /// By which epoch each node became the master that it says to be.
    masters: [Option<u64>; NODES],
    council: Sentinels,
    current: Option<Named>,
    /// What a sentinel said that the client has not heard yet.
    words: [Option<Word>; SENTINELS],
    /// Who is looked at, and what it said: nothing at all, or whether it is the master.
    look: Option<(Named, Option<bool>)>,
    moves: usize,
    /// A majority named another one than that of the highest epoch.
    temptations: usize,
}

fn sentinel(number: usize) -> HostPort {
    HostPort { host: "s".to_owned(), port: number as u16 }
}

fn node(number: usize) -> HostPort {
    HostPort { host: "n".to_owned(), port: number as u16 }
}

impl World {
    fn new(seed: u64) -> Self {
        let addresses: Vec<_> = (0..SENTINELS).map(sentinel).collect();
        Self {
            chance: Chance(seed),
            now: Moment(0),
            known: [(1, 0); SENTINELS],
            masters: [Some(1), None, None, None],
            council: Sentinels::new(&addresses),
            current: None,
            words: [const { None }; SENTINELS],
            look: None,
            moves: 0,
            temptations: 0,
        }
    }

    /// One thing happens.
    fn step(&mut self) {
        self.now = self.now.plus(Duration::from_millis(1));
        let (one, other) = (self.chance.below(SENTINELS), self.chance.below(SENTINELS));
        match self.chance.below(16) {
            0 => self.fail_over(one),
            1 | 2 => self.tell(one, other),
            3 => self.demote(one),
            4..=6 => self.ask(one),
            7..=9 => self.hear(one),
            _ => self.look(),
        }
    }

    fn fail_over(&mut self, leader: usize) {
        let (_, old) = self.known[leader];
        let (votes, new) = (self.known.iter().filter(|(_, master)| *master == old).count(), self.chance.below(NODES));
        if 2 * votes > SENTINELS && self.masters[new].is_none() {
            let epoch = self.known.iter().map(|(epoch, _)| epoch).max().unwrap() + 1;
            (self.known[leader], self.masters[new]) = ((epoch, new), Some(epoch));
        }
    }

    fn tell(&mut self, one: usize, other: usize) {
        self.known[other] = self.known[other].max(self.known[one]);
    }

    fn demote(&mut self, by: usize) {
        let (epoch, _) = self.known[by];
        let node = self.chance.below(NODES);
        self.masters[node].take_if(|promoted| *promoted < epoch);
    }

    fn ask(&mut self, one: usize) {
        let (epoch, master) = self.known[one];
        let word = || Word { asked: self.now, named: Named { epoch, master: node(master) }, others: Vec::new() };
        self.words[one].get_or_insert_with(word);
    }

    fn hear(&mut self, one: usize) {
        if let Some(word) = self.words[one].take() {
            self.council.note(&sentinel(one), Ok(word), self.now);
            let highest = self.council.highest(self.current.as_ref());
            self.temptations += usize::from(highest.is_some_and(|highest| self.council.rival_of(highest).is_some()));
        }
    }

    /// Looks at somebody, or hears what came of the last look.
    fn look(&mut self) {
        let Some((named, said)) = self.look.take() else {
            let is_in_doubt = self.chance.below(2) == 0;
            let next = self.council.next(self.current.as_ref(), is_in_doubt, self.now);
            let is_silent = self.chance.below(4) == 0;
            let says = |named: &Named| self.masters[usize::from(named.master.port)].is_some();
            self.look = next.map(|named| (named.clone(), (!is_silent).then(|| says(&named))));
            return;
        };
        let refused =
            |code: &str| Failure::Refused { code: code.to_owned(), applied: Applied::No, cause: Cause::new("") };
        match said {
            Some(true) if self.council.accepts(self.current.as_ref(), &named) => {
                self.moves += 1;
                self.current = Some(named);
            }
            Some(true) => {}
            Some(false) => drop(self.council.note_unfit(&named, &refused("READONLY"), self.now)),
            None => drop(self.council.note_unfit(&named, &Failure::Unreached(Broken::new("")), self.now)),
        }
    }

    /// All sentinels are told to monitor this node, which is the only master, and the client hears of that.
    fn set_anew(&mut self, master: usize) {
        let epoch = self.chance.below(3) as u64;
        (self.known, self.masters) = ([(epoch, master); SENTINELS], [None; NODES]);
        self.masters[master] = Some(epoch);
        for _ in 0..400 {
            self.now = self.now.plus(Duration::from_millis(1));
            let one = self.chance.below(SENTINELS);
            match self.chance.below(3) {
                0 => self.ask(one),
                1 => self.hear(one),
                _ => self.look(),
            }
        }
    }
}

/// As long as nobody sets a group anew, the sentinels that deposed a master knew it, and they are a majority.
#[test]
fn nobody_goes_back_to_a_lower_epoch_while_sentinels_do_what_they_do() {
    let (mut moves, mut temptations) = (0, 0);
    for seed in 0..5_000 {
        let mut world = World::new(seed);
        let mut highest = 0;
        for _ in 0..150 {
            world.step();
            let epoch = world.current.as_ref().map_or(0, |current| current.epoch);
            assert!(epoch >= highest, "seed {seed}: {epoch} after {highest}");
            highest = epoch;
        }
        (moves, temptations) = (moves + world.moves, temptations + world.temptations);
    }
    assert!(moves > 5_000 && temptations > 1_000, "{moves} moves, {temptations} temptations");
}

#[test]
fn a_group_that_is_set_anew_is_followed_whatever_was_before() {
    for seed in 0..2_000 {
        let mut world = World::new(seed);
        for round in 0..3 {
            (0..100).for_each(|_| world.step());
            let master = world.chance.below(NODES);
            world.set_anew(master);
            let followed = world.current.as_ref().map(|current| usize::from(current.master.port));
            assert_eq!(followed, Some(master), "seed {seed}, round {round}");
        }
    }
}
