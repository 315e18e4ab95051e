//! What the nodes of a cluster say of it, and which names lie where.

use super::{Cluster, number_of};
use crate::member::Member;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// How many there are.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: of what is between its first brace and the next closing one, if there is anything.
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key)) % SLOTS
}

fn crc16(text: &str) -> u16 {
    let shift = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    text.bytes().fold(0, |crc, byte| (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| shift(crc)))
}

/// Short names that come, behind a prefix, into slots of this kind.
pub fn names<F: Fn(u16) -> bool>(prefix: &str, is_wanted: F) -> impl Iterator<Item = String> + use<F> {
    let prefix = prefix.to_owned();
    (0..).map(|number: usize| format!("n{number}")).filter(move |name| is_wanted(slot_of(&format!("{prefix}{name}"))))
}

/// Short names that share a slot.
pub fn names_in_slot(slot: u16) -> impl Iterator<Item = String> {
    names("", move |other| other == slot)
}

/// What one node knows of another, or of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub node: usize,
    flags: Vec<String>,
    pub master: Option<usize>,
    slots: Vec<RangeInclusive<u16>>,
    epoch: u64,
    is_linked: bool,
}

impl Known {
    /// A line of `CLUSTER NODES`. A slot that is being moved is a word in brackets at its end.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [id, _, flags, master, _, _, epoch, link, slots @ ..] = &words[..] else { return None };
        let flags = flags.split(',').map(str::to_owned).collect();
        let slots = slots.iter().filter_map(|word| range(word)).collect();
        let (epoch, is_linked) = (epoch.parse().ok()?, *link == "connected");
        Some(Self { node: number_of(id)?, flags, master: number_of(master), slots, epoch, is_linked })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    pub fn is_master(&self) -> bool {
        self.is("master")
    }

    pub fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    pub fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether nothing keeps them from talking to each other.
    fn is_well(&self) -> bool {
        self.is_linked && !["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| self.is(flag))
    }

    /// What all have to agree on.
    fn part(&self) -> (usize, Option<usize>, &[RangeInclusive<u16>]) {
        (self.node, self.master, &self.slots)
    }
}

/// Whether no two masters have the same config epoch, as those may who took over at once. One of them takes a higher one when they hear
/// of each other; if it was replaced meanwhile it gets its slots back by that.
fn differ(view: &[Known]) -> bool {
    let masters = || view.iter().filter(|known| known.is_master() && !known.slots.is_empty());
    masters().map(|known| known.epoch).collect::<BTreeSet<_>>().len() == masters().count()
}

fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

impl Member {
    /// What a node knows of all nodes, in their order; nothing while it does not answer.
    pub fn knows(&self) -> Vec<Known> {
        let said = self.try_ask::<String>(&["CLUSTER", "NODES"]).unwrap_or_default();
        let mut known: Vec<_> = said.lines().filter_map(Known::parse).collect();
        known.sort_by_key(|known| known.node);
        known
    }

    /// A field of `CLUSTER INFO`, like `cluster_stats_messages_publish_sent`, which is missing while it is 0; nothing while the
    /// node does not answer, too.
    pub fn cluster_info(&self, field: &str) -> Option<String> {
        let said = self.try_ask::<String>(&["CLUSTER", "INFO"]).ok()?;
        said.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_owned()))
    }

    /// How many messages of a kind a node has sent to others, like `publish`, or `publishshard` of those to one shard.
    pub fn bus_messages(&self, kind: &str) -> u64 {
        self.cluster_info(&format!("cluster_stats_messages_{kind}_sent")).map_or(0, |count| count.parse().unwrap())
    }

    /// Whether it answers commands for slots.
    pub fn serves(&self) -> bool {
        self.cluster_info("cluster_state").is_some_and(|state| state == "ok")
    }

    /// How many connections are subscribed to a sharded channel of this node, since Redis 7.0.
    pub fn sharded_subscribers(&self, channel: &str) -> i64 {
        self.try_ask::<(String, i64)>(&["PUBSUB", "SHARDNUMSUB", channel]).map_or(0, |(_, number)| number)
    }

    /// The sharded channels that somebody is subscribed to; older servers have none.
    pub fn sharded_channels(&self) -> Vec<String> {
        self.try_ask(&["PUBSUB", "SHARDCHANNELS"]).unwrap_or_default()
    }
}

impl Cluster {
    /// What the first node that answers knows; frozen ones cost a second each.
    fn known(&self) -> Vec<Known> {
        let running = self.nodes.iter().filter(|node| node.is_running());
        running.map(Member::knows).find(|known| !known.is_empty()).expect("a node answers")
    }

    /// The master of a slot, as far as a node knows that answers.
    pub fn owner(&self, slot: u16) -> usize {
        self.known().into_iter().find(|known| known.has(slot)).expect("it has a master").node
    }

    pub fn master_of(&self, key: &str) -> usize {
        self.owner(slot_of(key))
    }

    /// The masters that have slots.
    pub fn masters(&self) -> Vec<usize> {
        self.known().into_iter().filter(Known::has_slots).map(|known| known.node).collect()
    }

    pub fn replicas_of(&self, master: usize) -> Vec<usize> {
        self.known().into_iter().filter(|known| known.master == Some(master)).map(|known| known.node).collect()
    }

    /// Short names whose slots a node has now, behind a prefix. Of a node without slots the search for one would not end.
    pub fn names_at(&self, node: usize, prefix: &str) -> impl Iterator<Item = String> + use<> {
        let known =
            self.known().into_iter().find(|known| known.node == node && known.has_slots()).expect("it has slots");
        names(prefix, move |slot| known.has(slot))
    }

    /// One of them, without a prefix.
    pub fn name_at(&self, node: usize, number: usize) -> String {
        self.names_at(node, "").nth(number).expect("it has slots")
    }

    /// Whether all that run know all others, agree on their parts and serve their slots, the replicas linked.
    pub fn is_whole(&self) -> bool {
        let running: Vec<_> = self.nodes.iter().filter(|node| node.is_running()).collect();
        let views: Vec<_> = running.iter().map(|node| self.seen_by(node)).collect();
        let parts = |view: &[Known]| view.iter().map(Known::part).eq(views[0].iter().map(Known::part));
        let agrees = |view: &Vec<Known>| {
            view.len() == running.len() && view.iter().all(Known::is_well) && parts(view) && differ(view)
        };
        let works = |node: &&Member| node.serves() && (node.says_master() || node.follows());
        views.iter().all(agrees) && running.iter().all(works)
    }

    /// What a node knows of those that run.
    fn seen_by(&self, node: &Member) -> Vec<Known> {
        let known = node.knows().into_iter();
        known.filter(|known| self.nodes[known.node].is_running()).collect()
    }
}
