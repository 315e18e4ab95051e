//! Names on the wire: the key and the channel of a lock, as Redisson or the Jedis version name them.

use crate::base::error::{Error, Result};
use crate::base::slot::has_tag;
use smol_str::{SmolStr, SmolStrBuilder, format_smolstr};
use std::ops::Deref;

/// Whose names are used on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Naming {
    /// Redisson's: channel `redisson_lock__channel:{name}`. The lock and its channel share a cluster slot.
    #[default]
    Redisson,
    /// The small Jedis re-implementation's: channel `__red__lock:` + name.
    Jedis,
}

impl Naming {
    /// The parts before and after a key in the name of its channel.
    ///
    /// A key that already has a `{` is not wrapped again, as in Redisson's `prefixName`. So `x` and `{x}` share a channel: that costs a
    /// spurious wake-up and nothing else.
    fn around(self, has_brace: bool) -> (&'static str, &'static str) {
        match self {
            Self::Jedis => ("__red__lock:", ""),
            Self::Redisson if has_brace => ("redisson_lock__channel:", ""),
            Self::Redisson => ("redisson_lock__channel:{", "}"),
        }
    }
}

/// The longest name of a resource, in bytes.
pub(crate) const LONGEST_NAME: usize = 1_024;

/// The key of a lock on the server, prefix and resource, before a look into this process's own state.
pub(crate) enum FullKey<'r> {
    /// The caller's name, without a prefix.
    Given(&'r str),
    Joined(SmolStrBuilder),
}

impl<'r> FullKey<'r> {
    pub(crate) fn new(prefix: &str, resource: &'r str) -> Self {
        if prefix.is_empty() {
            return Self::Given(resource);
        }
        let mut full = SmolStrBuilder::with_capacity(prefix.len() + resource.len());
        full.push_str(prefix);
        full.push_str(resource);
        Self::Joined(full)
    }

    fn keep(self) -> SmolStr {
        match self {
            Self::Given(full) => full.into(),
            Self::Joined(full) => full.finish(),
        }
    }
}

impl Deref for FullKey<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Given(full) => full,
            Self::Joined(full) => full.as_str(),
        }
    }
}

/// The part of a lock that the holds of a kind have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The whole lock.
    Whole,
    /// One of the readers of a read-write lock, or its writer.
    Read,
    Write,
    /// So many permits of a semaphore.
    Permits(u32),
    /// A latch, of which nobody holds a part.
    Latch,
}

/// The names of one lock. A key of up to 23 bytes is stored inline; all clones share a longer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    full: SmolStr,
    prefix: usize,
    naming: Naming,
    side: Side,
    /// Whether the key has a `{`: all names beside it depend on that.
    has_brace: bool,
}

impl Key {
    pub(crate) fn new(naming: Naming, prefix: &str, resource: &str) -> Self {
        Self::of(naming, prefix, FullKey::new(prefix, resource))
    }

    /// The same for a key that is joined already.
    pub(crate) fn of(naming: Naming, prefix: &str, full: FullKey<'_>) -> Self {
        let has_brace = full.contains('{');
        Self { full: full.keep(), prefix: prefix.len(), naming, side: Side::Whole, has_brace }
    }

    /// The same for one side of a read-write lock.
    pub(crate) fn of_side(self, side: Side) -> Self {
        Self { side, ..self }
    }

    /// Whether a force unlock of this key frees the holds of that one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        !matches!(self.side, Side::Read | Side::Write) || self.side == other.side
    }

    /// The key on the server: prefix and resource.
    pub(crate) fn full(&self) -> &str {
        &self.full
    }

    /// The same as an owned value; a long key is shared.
    pub(crate) fn shared(&self) -> SmolStr {
        self.full.clone()
    }

    /// Whether its queue and its channel are in its slot of a cluster.
    pub(crate) fn is_in_one_slot(&self) -> bool {
        is_in_one_slot(&self.full) && !(self.side == Side::Latch && self.has_brace)
    }

    /// The name as the caller gave it.
    pub(crate) fn resource(&self) -> &str {
        &self.full[self.prefix..]
    }

    /// The channel of unlock messages, in parts: a sender that writes them one after the other need not join them.
    pub(crate) fn channel_parts(&self) -> [&str; 3] {
        match self.side {
            Side::Whole => {
                let (before, after) = self.naming.around(self.has_brace);
                [before, &self.full, after]
            }
            Side::Read | Side::Write => self.as_redisson("redisson_rwlock:{"),
            Side::Permits(_) => self.as_redisson("redisson_sc:{"),
            // Redisson adds braces to a name that has some, too.
            Side::Latch => ["redisson_countdownlatch__channel__{", &self.full, "}"],
        }
    }

    /// The channel of unlock messages.
    pub(crate) fn channel(&self) -> String {
        self.channel_parts().concat()
    }

    /// The queue of waiting processes (docs/protocol.md, 8).
    pub(crate) fn queue_parts(&self) -> [&str; 3] {
        self.ours("redlatch_queue:{")
    }

    /// The mark that leaves a free lock to foreigners.
    pub(crate) fn mark_parts(&self) -> [&str; 3] {
        self.ours("redlatch_turn:{")
    }

    /// The queue of a fair lock: the list of those that wait and until when each counts, by Redisson's names with any [`Naming`], and the
    /// tickets of our clients among them.
    pub(crate) fn order_parts(&self) -> [[&str; 3]; 3] {
        let [list, ends] = ["redisson_lock_queue:{", "redisson_lock_timeout:{"].map(|before| self.as_redisson(before));
        [list, ends, self.ours("redlatch_tickets:{")]
    }

    /// The counter of a fenced lock's tokens: Redisson's name, with any [`Naming`].
    pub(crate) fn token_parts(&self) -> [&str; 3] {
        self.as_redisson("redisson_lock_token:{")
    }

    /// The end of an owner's field, after the owner id.
    pub(crate) fn field_end(&self) -> &'static str {
        if self.side == Side::Write { ":write" } else { "" }
    }

    /// The mark of writers that wait (docs/protocol.md, 16).
    pub(crate) fn writers_parts(&self) -> [&str; 3] {
        self.ours("redlatch_writer:{")
    }

    /// The key that says whether readers wait, or have the turn.
    pub(crate) fn readers_parts(&self) -> [&str; 3] {
        self.ours("redlatch_readers:{")
    }

    /// The name under which calls wait for permits in the map of threads. No hold of permits has such a name there: it ends otherwise.
    pub(crate) fn line(&self) -> SmolStr {
        format_smolstr!("{}\0", self.full)
    }

    /// How many permits of a semaphore a hold has; zero for all else.
    pub(crate) fn permits(&self) -> u32 {
        if let Side::Permits(permits) = self.side { permits } else { 0 }
    }

    /// Until when the permits of a leased semaphore are out, by Redisson's name.
    pub(crate) fn leases(&self) -> String {
        let [before, name, after] = self.timeouts_parts();
        [before, name, after, "timeout"].concat()
    }

    /// The places of those that wait for permits (docs/protocol.md, 18).
    pub(crate) fn places_parts(&self) -> [&str; 3] {
        self.ours("redlatch_places:{")
    }

    /// The start of the names of operations on a counter: each has its result there (docs/protocol.md, 19).
    pub(crate) fn operations_parts(&self) -> [&str; 3] {
        self.ours("redlatch_op:{")
    }

    /// When the time of a latch is over (docs/protocol.md, 20).
    pub(crate) fn latch_end(&self) -> String {
        self.ours("redlatch_latch:{").concat()
    }

    /// The start of the names of its read holds' time-outs.
    pub(crate) fn timeouts_parts(&self) -> [&str; 3] {
        match self.has_brace {
            true => ["", &self.full, ":"],
            false => ["{", &self.full, "}:"],
        }
    }

    /// The time-out of the read hold with this owner id.
    pub(crate) fn timeout(&self, owner: &str) -> String {
        let [before, name, after] = self.timeouts_parts();
        [before, name, after, owner, ":rwlock_timeout:1"].concat()
    }

    /// The members channel: each of our clients listens to it beside the channel of unlock messages, so that foreigners can be counted.
    pub(crate) fn members_parts(&self) -> [&str; 3] {
        self.ours("redlatch_members:{")
    }

    /// The same as one text.
    pub(crate) fn members(&self) -> String {
        self.members_parts().concat()
    }

    /// The start of the ears' names in a cluster of shards, where each lock has its own ears in its slot.
    pub(crate) fn ears_parts(&self) -> [&str; 3] {
        self.as_redisson("redlatch_ear:{")
    }

    /// A tag at the end of a name: it says the lock, and its slot.
    pub(crate) fn tag_parts(&self) -> [&str; 3] {
        self.as_redisson("{")
    }

    /// The name of a key of ours, which no other library has. It is in the lock's slot wherever the brace rule puts it there, and of this
    /// lock alone: `}` follows a name without a brace, and `:` one with a brace, so no two names are equal. `x` and `{x}` are two locks: a
    /// reader of one must not wait for a writer of the other.
    fn ours(&self, before: &'static str) -> [&str; 3] {
        let [before, name, after] = self.as_redisson(before);
        [before, name, if self.has_brace { ":" } else { after }]
    }

    /// A name by Redisson's brace rule: it shares the lock's slot. As in Redisson, `x` and `{x}` share such names.
    fn as_redisson(&self, before: &'static str) -> [&str; 3] {
        match self.has_brace {
            true => [before.trim_end_matches('{'), &self.full, ""],
            false => [before, &self.full, "}"],
        }
    }
}

/// The starts of the names of a lock's other keys.
const BESIDE: [&str; 11] = [
    "redlatch_queue:",
    "redlatch_turn:",
    "redlatch_writer:",
    "redlatch_readers:",
    "redlatch_tickets:",
    "redlatch_places:",
    "redlatch_op:",
    "redlatch_latch:",
    "redisson_lock_token:",
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
];

/// The key of strict clients' epoch, after their prefix.
pub(crate) const EPOCH: &str = "redlatch:epoch";

/// A lock must not be named like an epoch of strict clients, with whatever prefix: it would keep all of them from locking. Nor may it be
/// named like the queue, a mark or the tokens of another lock.
pub(crate) fn check_key(full: &str) -> Result<()> {
    if let Some(taken) = BESIDE.iter().find(|taken| full.starts_with(*taken)) {
        return Err(Error::config(format!(
            "the key {full:?} is taken: {taken} is where locks have their queues, marks or tokens, choose another name"
        )));
    }
    let is_of_a_slot = || full.match_indices(EPOCH).any(|(at, _)| full[at + EPOCH.len()..].starts_with(":{"));
    // First the cheapest test: each call runs this.
    if !full.contains(EPOCH) || !(full.ends_with(EPOCH) || is_of_a_slot()) {
        return Ok(());
    }
    Err(Error::config(format!("the key {full:?} is taken: strict clients keep {EPOCH} there, choose another name")))
}

/// Whether all keys of a lock are in its slot of a cluster. By the brace rule they are, unless its name has braces that are no tag: the
/// parts around the name then make a tag, or hide it.
pub(crate) fn is_in_one_slot(full: &str) -> bool {
    !full.contains(['{', '}']) || has_tag(full)
}

/// Allows any characters, 1 to 1,024 bytes.
pub(crate) fn check_name(resource: &str) -> Result<()> {
    match resource.len() {
        0 => Err(Error::config("the name of a lock is empty: give it 1 to 1,024 bytes")),
        1..=LONGEST_NAME => Ok(()),
        long => Err(Error::config(format!("the name of a lock has {long} bytes: give it 1 to 1,024 bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::slot::slot_of;

    #[test]
    fn channels_follow_the_brace_rule() {
        let channel = |naming: Naming, name| Key::new(naming, "", name).channel();
        assert_eq!(channel(Naming::Redisson, "n"), "redisson_lock__channel:{n}");
        assert_eq!(channel(Naming::Redisson, "{a}b"), "redisson_lock__channel:{a}b");
        assert_eq!(channel(Naming::Jedis, "{a}b"), "__red__lock:{a}b");
        let read = |naming, name| Key::new(naming, "", name).of_side(Side::Read);
        assert_eq!(read(Naming::Jedis, "n").channel(), "redisson_rwlock:{n}");
        assert_eq!(read(Naming::Redisson, "{a}b").channel(), "redisson_rwlock:{a}b");
        assert_eq!(read(Naming::Redisson, "n").timeout("u:1:2"), "{n}:u:1:2:rwlock_timeout:1");
        assert_eq!(read(Naming::Redisson, "{a}b").timeout("u:1:2"), "{a}b:u:1:2:rwlock_timeout:1");
    }

    #[test]
    fn a_prefix_comes_before_the_rules() {
        let key = Key::new(Naming::Redisson, "shop:", "order");
        assert_eq!((key.full(), key.resource()), ("shop:order", "order"));
        assert_eq!(key.channel(), "redisson_lock__channel:{shop:order}");
        assert_eq!(Key::new(Naming::Redisson, "{shop}:", "order").channel(), "redisson_lock__channel:{shop}:order");
    }

    #[test]
    fn a_long_key_is_shared() {
        let key = Key::new(Naming::Redisson, "shop:", &"x".repeat(LONGEST_NAME));
        assert_eq!(key.resource().len(), LONGEST_NAME);
        assert!(std::ptr::eq(key.full(), key.clone().full()));
    }

    #[test]
    fn names_have_1_to_1024_bytes() {
        assert!(check_name("").is_err());
        assert!(check_name(&"x".repeat(1_024)).is_ok());
        assert!(check_name(&"x".repeat(1_025)).is_err());
        assert!(check_name("{}\r\n\0").is_ok());
        assert!(check_key("shop:redlatch:epoch").is_err() && check_key("redlatch:epoch:1").is_ok());
        assert!(check_key("shop:redlatch:epoch:{1f}").is_err());
    }

    /// Each name of up to six of the characters that the rules for names treat.
    fn odd_names() -> Vec<String> {
        let longer = |names: &Vec<String>| {
            let with_each = |name: &String| ["a", ":", "{", "}"].map(|more| name.clone() + more);
            Some(names.iter().flat_map(with_each).collect())
        };
        std::iter::successors(Some(vec![String::new()]), longer).skip(1).take(6).flatten().collect()
    }

    /// For two kinds of key, too: a queue of one lock is no mark of another.
    #[test]
    fn no_two_locks_share_what_is_of_ours_alone() {
        let mut owners = std::collections::HashMap::new();
        for name in odd_names() {
            for naming in [Naming::Redisson, Naming::Jedis] {
                let key = Key::new(naming, "", &name);
                let parts = [
                    key.queue_parts(),
                    key.mark_parts(),
                    key.writers_parts(),
                    key.readers_parts(),
                    key.members_parts(),
                    key.order_parts()[2],
                    key.places_parts(),
                    key.operations_parts(),
                    [&key.latch_end(), "", ""],
                ];
                for (part, parts) in parts.into_iter().enumerate() {
                    let owner = owners.entry(parts.concat()).or_insert_with(|| (part, name.clone()));
                    assert_eq!(*owner, (part, name.clone()), "they share {:?}", parts.concat());
                }
            }
        }
        assert!(owners.len() > 9 * 4_096);
    }

    fn is_together(key: &Key) -> bool {
        let parts = [key.channel_parts(), key.queue_parts(), key.mark_parts(), key.members_parts(), key.tag_parts()];
        let (of_sides, timeout) = (key.clone().of_side(Side::Read), key.timeout("a:1:1"));
        let of_permits = key.clone().of_side(Side::Permits(1));
        let sides = [of_sides.channel_parts(), key.writers_parts(), key.readers_parts(), [&timeout, "", ""]];
        let (leases, end) = (key.leases(), key.latch_end());
        let counters = [of_permits.channel_parts(), key.places_parts(), key.operations_parts()];
        let counters = counters.into_iter().chain([[leases.as_str(), "", ""], [end.as_str(), "", ""]]);
        let (order, tokens) = (key.order_parts(), [key.token_parts()]);
        let mut parts = parts
            .iter()
            .chain(&sides)
            .chain(&order)
            .chain(&tokens)
            .copied()
            .chain(counters)
            .collect::<Vec<_>>()
            .into_iter();
        parts.all(|parts| slot_of(parts.concat()) == slot_of(key.full()))
    }

    /// Or `is_in_one_slot` says that they are not. Some odd names are in one slot by chance.
    #[test]
    fn all_of_a_lock_is_in_one_slot_of_a_cluster() {
        let keys = |names: Vec<String>| names.into_iter().map(|name| Key::new(Naming::Redisson, "", &name));
        assert!(keys(odd_names()).all(|key| is_together(&key) || !key.is_in_one_slot()));
        let names = ["n", "{n}", "a{n}b", "a}{n}", "{n}{m}", "{n", "n}", "{}n", "a}b{", "{}{n}", "}"];
        for key in keys(names.map(str::to_owned).into()) {
            assert_eq!(key.is_in_one_slot(), is_together(&key), "{}", key.full());
        }
    }
}
