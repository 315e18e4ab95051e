//! A group of servers: its master is replaced for one reason or another, and the group is made whole again.

use super::failovers::Happened;
use super::patience::Broken;
use crate::history::failovers::{Failover, TOLD};
use crate::history::names::Names;
use crate::history::record::now;
use crate::nemesis::{Act, Step};
use crate::reaper;
use harness::proxy::Gate;
use harness::sentinel::{Cut, Group, Member, Shape};
use redis::FromRedisValue;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A sentinel that gave a failover up is told again after so long.
const AGAIN: Duration = Duration::from_secs(4);

/// The sentinel that one place of workers knows, without any other.
const ALONE: usize = 0;

/// A port where nobody listens.
const NOWHERE: u16 = 1;

/// For so long workers hear of nothing though locks are granted elsewhere.
const UNHEARD: Duration = Duration::from_millis(700);

/// Longer than it takes to move a master by hand, in ms.
const STANDSTILL: &str = "60000";

pub(super) struct Party {
    group: Group,
    has_one_alone: bool,
    /// By how many ms the clocks of its nodes were seen to differ.
    pub(super) skew: i64,
    /// As all knew it when the group was whole.
    master: usize,
    /// Opened when a node is no longer cut off.
    gate: Gate,
    /// A replica that is never to be promoted.
    spared: Option<usize>,
    /// One that is stopped: whoever asked it would wait.
    deaf: Option<usize>,
    broken: Broken,
}

impl Party {
    pub(super) fn open(shape: Shape, has_one_alone: bool) -> Self {
        let group = Group::of(shape);
        reaper::tidy(group.dir());
        group.nodes.iter().chain(&group.sentinels).for_each(|member| reaper::watch(member.pid()));
        let mut party = Self {
            group,
            has_one_alone,
            skew: 0,
            master: 0,
            gate: Gate::default(),
            spared: None,
            deaf: None,
            broken: Broken::default(),
        };
        party.skew = party.skew();
        party.settle();
        party
    }

    /// How a worker finds the master. That of one place in a group with such a place knows one sentinel, and does not reach the
    /// others.
    pub(super) fn way_of(&self, place: usize) -> (String, Vec<(u16, u16)>) {
        if !self.has_one_alone || place != 0 {
            return (self.group.url(), self.group.ways());
        }
        let others = self.group.sentinels.iter().enumerate().filter(|(number, _)| *number != ALONE);
        let nowhere = others.map(|(_, sentinel)| (sentinel.port(), NOWHERE));
        (self.group.url_of(ALONE), self.group.ways().into_iter().chain(nowhere).collect())
    }

    /// By how many ms the clocks of its nodes differ.
    fn skew(&self) -> i64 {
        let ahead: Vec<_> = self.group.nodes.iter().map(Member::clock_ahead).collect();
        ahead.iter().max().zip(ahead.iter().min()).map_or(0, |(most, least)| most - least)
    }

    pub(super) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.group.nodes[self.master].ask(words)
    }

    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        self.group.nodes.iter().map(Member::socket).collect()
    }

    /// Connections of workers to any node.
    pub(super) fn clients(&self) -> usize {
        self.group.nodes.iter().map(Member::clients).sum()
    }

    pub(super) fn broken(&mut self) -> Option<String> {
        self.find_undisturbed();
        self.broken.0.clone()
    }

    /// What every process of the group said goes beside the logs of the workers.
    pub(super) fn keep_logs(&self, dir: &Path) {
        for member in self.group.nodes.iter().chain(&self.group.sentinels) {
            std::fs::write(dir.join(format!("{}.txt", member.name())), member.log()).expect("room for the log");
        }
    }

    pub(super) fn close(self) {
        self.group.nodes.iter().chain(&self.group.sentinels).for_each(|member| {
            if member.is_running() {
                reaper::forget(member.pid());
            }
        });
    }

    /// What a nemesis does to the group, which is whole before and after. The masters that were replaced meanwhile.
    pub(super) fn act(&mut self, step: Step) -> Happened {
        self.find_undisturbed();
        if self.broken.is_so() {
            return Happened::default();
        }
        let mut found = match step.act {
            Act::FailOver => vec![self.fail_over(step)],
            Act::MonitorAnew => vec![self.monitor_anew(step)],
            Act::ThereAndBack => self.there_and_back(step),
            _ => vec![self.strike(step)],
        };
        if step.act == Act::LateSentinel {
            self.have_sentinel_come_back(self.sentinel_of(step));
        }
        sleep(Duration::from_millis(step.lasts));
        if step.act == Act::CutOffWorkers {
            self.take_back();
        }
        self.mend();
        // For so long they are left to what the sentinels do by themselves.
        sleep(Duration::from_millis(step.seed % 1_500));
        self.settle();
        if let Some(Some(last)) = found.last_mut() {
            last.whole = Some(now());
        }
        Happened { failovers: found.into_iter().flatten().collect(), ..Happened::default() }
    }

    /// A machine that stood still has a master replaced that is well: nothing is known of when.
    fn find_undisturbed(&mut self) {
        let is_other = self.group.named_by(0).is_some_and(|named| named != self.master);
        if is_other {
            self.broken.note("a master was replaced that was well");
        }
    }

    fn sentinel_of(&self, step: Step) -> usize {
        step.seed as usize % self.group.sentinels.len()
    }

    /// Something happens to the master that sentinels have to find out by themselves.
    fn strike(&mut self, step: Step) -> Option<Failover> {
        let (old, sentinel) = (self.master, self.sentinel_of(step));
        if step.act == Act::CutOffSide {
            self.take_aside()?;
        }
        let began = now();
        match step.act {
            Act::FreezeMaster => self.group.nodes[old].freeze(),
            Act::CutOffMaster | Act::CutOffSide => self.cut_off(step.seed),
            Act::CutOffWorkers => {
                self.cut_off(step.seed);
                self.silence(ALONE);
            }
            Act::LateSentinel => {
                self.cut_off(step.seed);
                kill(&mut self.group.sentinels[sentinel]);
            }
            Act::KillSentinel => kill(&mut self.group.sentinels[sentinel]),
            Act::FreezeSentinel => self.silence(sentinel),
            _ => {}
        }
        if matches!(step.act, Act::KillMaster | Act::KillSentinel | Act::FreezeSentinel) {
            kill(&mut self.group.nodes[old]);
        }
        self.replaced(began, None)
    }

    /// A replica that is not to be promoted reaches the master by a way of its own, which stays.
    fn take_aside(&mut self) -> Option<()> {
        let aside = (self.master + 1) % self.group.nodes.len();
        self.spare(aside);
        let (node, port) = (&self.group.nodes[aside], self.group.nodes[self.master].port().to_string());
        let _: String = node.ask(&["REPLICAOF", "127.0.0.1", &port]);
        self.wait("the replica is linked", |party| party.group.nodes[aside].follows().then_some(()))
    }

    /// Together with the replica that stays on its side, if there is one.
    fn cut_off(&self, seed: u64) {
        let cut = if seed & 1 == 0 { Cut::Silent } else { Cut::Hard };
        let side = self.spared.into_iter().chain([self.master]);
        side.for_each(|node| self.group.nodes[node].cut_off(cut, &self.gate));
    }

    fn silence(&mut self, sentinel: usize) {
        self.group.sentinels[sentinel].freeze();
        self.deaf = Some(sentinel);
    }

    /// It reads its file and names the old master, and those who know better are stopped: else they would tell it within .1 s. Every
    /// client has followed the new master before, so nothing excuses who goes back.
    fn have_sentinel_come_back(&mut self, sentinel: usize) {
        sleep(UNHEARD);
        let others = self.group.sentinels.iter().enumerate().filter(|(other, _)| *other != sentinel);
        others.for_each(|(_, other)| other.freeze());
        revive(&mut self.group.sentinels[sentinel]);
    }

    /// A sentinel is told to replace a master that is well.
    fn fail_over(&mut self, step: Step) -> Option<Failover> {
        self.replaced(now(), Some(self.sentinel_of(step)))
    }

    /// An operator moves the master without a loss: it takes no writes until the next one has all that it has.
    fn monitor_anew(&mut self, step: Step) -> Option<Failover> {
        let (old, began) = (self.master, now());
        let new = (old + 1 + step.seed as usize % (self.group.nodes.len() - 1)) % self.group.nodes.len();
        let _: String = self.ask(&["CLIENT", "PAUSE", STANDSTILL, "WRITE"]);
        let written = self.group.written_at(old);
        self.wait("the replicas have it all", |party| party.group.has_replicated(old, written).then_some(()))?;
        self.group.set_anew(new);
        let named = now();
        let _: String = self.ask(&["CLIENT", "UNPAUSE"]);
        self.master = new;
        Some(Failover { began, promoted: named, named, whole: None, names: Names::ALL, moved: None })
    }

    /// The old master has the lead again soon after: the third node is not to be promoted.
    fn there_and_back(&mut self, step: Step) -> Vec<Option<Failover>> {
        self.spare((self.master + 1) % self.group.nodes.len());
        self.settle();
        let there = self.fail_over(step);
        self.settle();
        let back = there.and_then(|_| self.fail_over(step));
        vec![there, back]
    }

    fn spare(&mut self, node: usize) {
        let _: String = self.group.nodes[node].ask(&["CONFIG", "SET", "replica-priority", "0"]);
        self.spared = Some(node);
    }

    /// Waits until another node is the master, and a sentinel tells so; the one that was told to replace it is told again if it
    /// gave up.
    fn replaced(&mut self, began: u64, told: Option<usize>) -> Option<Failover> {
        let mut last: Option<Instant> = None;
        let new = self.wait("a replica is promoted", |party| {
            if let Some(told) = told.filter(|_| last.is_none_or(|last| last.elapsed() > AGAIN)) {
                last = Some(Instant::now());
                let _ =
                    party.group.sentinels[told].try_ask::<String>(&["SENTINEL", "FAILOVER", harness::sentinel::NAME]);
            }
            let nodes = party.group.nodes.iter().enumerate();
            nodes
                .filter(|(number, _)| *number != party.master)
                .find(|(_, node)| node.says_master())
                .map(|(number, _)| number)
        })?;
        let promoted = now();
        self.wait("a sentinel names it", |party| {
            let asked = (0..party.group.sentinels.len()).filter(|sentinel| Some(*sentinel) != party.deaf);
            asked.filter_map(|sentinel| party.group.named_by(sentinel)).find(|named| *named == new)
        })?;
        self.master = new;
        Some(Failover { began, promoted, named: now(), whole: None, names: Names::ALL, moved: Some(TOLD) })
    }

    /// The replicas follow nobody from now on, and have not got this key.
    pub(super) fn have_replicas_lose(&self, key: &str) {
        self.group.sever(self.master);
        for (_, node) in self.group.nodes.iter().enumerate().filter(|(number, _)| *number != self.master) {
            let _: String = node.ask(&["CONFIG", "SET", "replica-read-only", "no"]);
            let _: i64 = node.ask(&["DEL", key]);
            let _: String = node.ask(&["CONFIG", "SET", "replica-read-only", "yes"]);
        }
    }

    /// The old master is a replica and locks are granted again, while its workers have not heard of it.
    fn take_back(&mut self) {
        std::mem::take(&mut self.gate).open();
        self.group.nodes.iter().for_each(Member::join);
        self.group.hurry(true);
        let follow = |party: &Self| {
            let others = party.group.nodes.iter().enumerate().filter(|(number, _)| *number != party.master);
            others.map(|(_, node)| node).all(Member::follows).then_some(())
        };
        self.wait("the old master gives way", follow);
        sleep(UNHEARD);
    }

    /// Brings back what was killed, stopped or cut off.
    fn mend(&mut self) {
        std::mem::take(&mut self.gate).open();
        self.group.nodes.iter().for_each(Member::join);
        self.group.nodes.iter_mut().chain(&mut self.group.sentinels).for_each(revive);
        self.deaf = None;
        if let Some(spared) = self.spared.take() {
            let (node, master) = (&self.group.nodes[spared], &self.group.nodes[self.master]);
            // It may have gone aside: else it is a replica of a replica until the sentinels see that, which takes them 10 s.
            let _: String = node.ask(&["REPLICAOF", "127.0.0.1", &master.known_as().to_string()]);
            let _: String = node.ask(&["CONFIG", "SET", "replica-priority", "100"]);
            let _: String = node.ask(&["CONFIG", "REWRITE"]);
        }
    }

    /// Waits until all are well and agree, with sentinels that hurry.
    fn settle(&mut self) {
        self.group.hurry(true);
        let whole = self.wait("the group is whole", |party| {
            let is_known = |sentinel: &Member| {
                (0..party.group.nodes.len())
                    .filter(|node| *node != party.master)
                    .all(|node| sentinel.passes_over(&party.group.nodes[node]) == (party.spared == Some(node)))
            };
            party.group.whole().filter(|_| party.group.sentinels.iter().all(is_known))
        });
        self.group.hurry(false);
        if whole.is_some_and(|master| master != self.master) {
            self.find_undisturbed();
        }
    }

    fn wait<T>(&mut self, what: &str, mut find: impl FnMut(&Self) -> Option<T>) -> Option<T> {
        let mut broken = self.broken.clone();
        let found = broken.wait(what, || find(self));
        self.broken = broken;
        found
    }
}

fn kill(member: &mut Member) {
    reaper::forget(member.pid());
    member.kill();
}

fn revive(member: &mut Member) {
    if member.is_running() {
        return member.thaw();
    }
    member.restart();
    reaper::watch(member.pid());
}
