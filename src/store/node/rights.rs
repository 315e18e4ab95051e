//! The self-test. At the first connection to a server one script finds the permissions that its user lacks. Without it the first call
//! that needs such a permission would fail, perhaps the call that takes a lock over months later.
//!
//! A server checks permissions before it looks at what a command is to do. So each command is sent with words that are wrong, or for
//! a key that does not exist, and nothing is written. Commands that no script may run are sent beside the script, in the same round
//! trip.

use crate::base::config::Config;
use crate::base::key::{EPOCH, Key, Naming, Side};
use crate::base::kind::Kind;
use crate::base::script::Dialect;
use parking_lot::Mutex;
use redis::{Arg, Cmd, RedisError, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

const SCRIPT: &str = include_str!("rights/probe.lua");

/// The beginning of the name of the lock that the self-test uses. A random UUID follows it, so that no real lock has that name:
/// some of the commands would end it.
const PROBE: &str = "redlatch_probe";

/// The words of EVAL before the script's first argument, `ARGV[1]`: the command, the script and the number of keys.
const BEFORE_ARGV: usize = 3;

/// The name of a lock. The self-test subscribes its channels for a moment; nobody publishes there.
const HEARD: &str = "redlatch_heard";

/// The words of a command, and the ACL rule that a user needs for its key or channel.
#[derive(Clone)]
struct Probe {
    words: Vec<String>,
    place: String,
}

/// All probes of one client.
pub(super) struct Rights {
    probes: Vec<Probe>,
    /// What a queue of threads needs besides if processes do not queue.
    ears: Vec<Probe>,
    /// The kinds of locks that the client has made so far. Some need more permissions.
    kinds: Arc<Mutex<Vec<&'static Kind>>>,
    key: Key,
    dialect: Dialect,
    /// The probes that no script may run.
    outside: Vec<Probe>,
}

impl Rights {
    pub(super) fn of(config: &Config, dialect: Dialect) -> Self {
        let key = Key::new(config.naming, &config.key_prefix, &format!("{PROBE}:{}", Uuid::new_v4()));
        let (mut probes, mut ears) = (locking(&key, config, dialect), hearing(&key, config, dialect));
        if queues(config, dialect) {
            probes.extend(queueing(&key, config));
            probes.append(&mut ears);
        }
        if config.strict {
            let epoch = format!("{}{EPOCH}", config.key_prefix);
            let rule = rule_for_all(&config.key_prefix);
            probes.extend([probe(&["GET", &epoch], &rule), probe(&["SET", &epoch, "0", "NEITHER"], &rule)]);
        }
        Self { probes, ears, kinds: Arc::clone(&config.kinds), key, dialect, outside: outside(config, dialect) }
    }

    /// The commands of the self-test: the script, and the probes that no script may run.
    pub(super) fn commands(&self) -> impl Iterator<Item = Cmd> {
        let mut script = redis::cmd("EVAL").arg(SCRIPT).arg(0).take();
        for probe in self.probes.iter().chain(&self.of_kinds()) {
            script.arg(probe.words.len()).arg(&probe.words);
        }
        let outside = self.outside.iter().map(|probe| redis::cmd(&probe.words[0]).arg(&probe.words[1..]).take());
        std::iter::once(script).chain(outside)
    }

    /// The probes of those kinds of locks that need more.
    fn of_kinds(&self) -> Vec<Probe> {
        let probes = |kind: &&'static Kind| {
            let ears = if kind.in_line { Vec::new() } else { self.ears.clone() };
            of_kind(kind, &self.key, self.dialect).into_iter().chain(ears)
        };
        let mut all: Vec<_> = self.kinds.lock().iter().flat_map(probes).collect();
        // The sides of a read-write lock touch the same keys.
        let mut seen = BTreeSet::new();
        all.retain(|probe| seen.insert(probe.words.clone()));
        all
    }

    /// The missing rules, in words for `ACL SETUSER`. `command` is the call of the script and `reply` its reply.
    pub(super) fn missing(&self, command: &Cmd, reply: &Value) -> Vec<String> {
        let Value::Array(errors) = reply else { return Vec::new() };
        let words = words_of(command);
        errors.iter().filter_map(|error| self.rule_for(&words, error)).collect()
    }

    /// The missing rule, if the server refuses a command with NOPERM.
    pub(super) fn lack(&self, command: &Cmd, error: &RedisError) -> Option<String> {
        let is_place = !error.to_string().contains("permissions to run");
        let words = words_of(command);
        let probe = self.outside.iter().find(|probe| probe.words == words);
        let name = words.first()?.to_ascii_lowercase();
        match (error.code()?, probe, name.as_str()) {
            ("NOPERM", Some(probe), _) if is_place => Some(probe.place.clone()),
            ("NOPERM", None, "client") => (words.get(1)? == "SETNAME").then(|| "+client|setname".to_owned()),
            ("NOPERM", _, name) => Some(format!("+{name}")),
            _ => None,
        }
    }

    fn rule_for(&self, words: &[String], error: &Value) -> Option<String> {
        let (at, text): (usize, String) = redis::from_redis_value_ref(error).ok()?;
        // `at` is the place of the number of words in ARGV, counted from 1: the words stand behind it.
        let asked = words.get(at + BEFORE_ARGV..)?;
        let of_kinds = self.of_kinds();
        let probe = self.probes.iter().chain(&of_kinds).find(|probe| asked.starts_with(&probe.words))?;
        match Lack::of(&text)? {
            Lack::Command => Some(format!("+{}", probe.words[0].to_ascii_lowercase())),
            Lack::Place => Some(probe.place.clone()),
        }
    }
}

/// The rule for a refused command, from the words of the refusal. Those of Redis 6 name no subcommand.
pub(super) fn rule_in(refusal: &str) -> Option<String> {
    let (_, rest) = refusal.rsplit_once("permissions to run the '")?;
    rest.split_once('\'').map(|(command, _)| format!("+{command}"))
}

fn words_of(command: &Cmd) -> Vec<String> {
    let word = |arg| match arg {
        Arg::Simple(word) => Some(String::from_utf8_lossy(word).into_owned()),
        _ => None,
    };
    command.args_iter().filter_map(word).collect()
}

/// What the user may not use: the command itself, or what it works on.
enum Lack {
    Command,
    /// Its key or its channel.
    Place,
}

impl Lack {
    /// Reads a refusal, in the words of any server; `None` if the error has another reason.
    ///
    /// | server | command | key | channel |
    /// | --- | --- | --- | --- |
    /// | Redis 6.0 to 7.0 | `The user executing the script can't run this command or subcommand` | .. `can't access at least one of the keys` | .. `can't publish to the channel` |
    /// | later ones, Valkey | `ACL failure in script: User .. has no permissions to run the '..' command` | .. `No permissions to access a key` | .. `a channel` |
    fn of(text: &str) -> Option<Self> {
        if !text.contains("The user executing the script can't") && !text.contains("ACL failure in script") {
            return None;
        }
        let is_command = text.contains("can't run") || text.contains("permissions to run");
        Some(if is_command { Self::Command } else { Self::Place })
    }
}

/// The rule for all keys with this beginning, as one word to paste. Characters of patterns are escaped. Quotes, white space and
/// control characters become `?`: they would begin a quoted word in redis-cli, or divide the word.
fn rule_for_all(beginning: &str) -> String {
    let mut rule = "~".to_owned();
    for character in beginning.chars() {
        match character {
            '*' | '?' | '[' | '\\' => rule.extend(['\\', character]),
            '"' | '\'' => rule.push('?'),
            _ if character.is_ascii_whitespace() || character.is_ascii_control() => rule.push('?'),
            _ => rule.push(character),
        }
    }
    rule + "*"
}

fn probe(words: &[&str], place: &str) -> Probe {
    Probe { words: words.iter().map(|word| (*word).to_owned()).collect(), place: place.to_owned() }
}

/// The rule for the channels of locks.
fn listened(naming: Naming) -> &'static str {
    match naming {
        Naming::Redisson => "&redisson_lock__channel:*",
        Naming::Jedis => "&__red__lock:*",
    }
}

/// The probes that no script may run: the commands that run scripts, and those of the subscriber.
fn outside(config: &Config, dialect: Dialect) -> Vec<Probe> {
    let key = Key::new(config.naming, &config.key_prefix, HEARD);
    let mut channels = vec![(key.channel(), listened(config.naming))];
    if queues(config, dialect) {
        channels.push((key.members(), "&redlatch_*"));
    }
    let (listen, leave) = match dialect {
        Dialect::Plain => ("SUBSCRIBE", "UNSUBSCRIBE"),
        Dialect::Sharded => ("SSUBSCRIBE", "SUNSUBSCRIBE"),
    };
    let each = |command| channels.iter().map(move |(channel, rule)| probe(&[command, channel], rule));
    let nothing = "0".repeat(40);
    // ASKING is needed once a slot moves. The next command here has no slot, so ASKING changes nothing for it.
    let asking = config.in_cluster.then(|| probe(&["ASKING"], ""));
    let before = [probe(&["EVALSHA", &nothing, "0"], ""), probe(&["PING"], "")];
    asking.into_iter().chain(before).chain(each(listen)).chain(each(leave)).collect()
}

/// Whether processes queue. In a cluster without sharded pub/sub they do not: no node can count all listeners.
fn queues(config: &Config, dialect: Dialect) -> bool {
    config.hand_off.queues && (!config.in_cluster || dialect == Dialect::Sharded)
}

/// What any lock needs.
fn locking(key: &Key, config: &Config, dialect: Dialect) -> Vec<Probe> {
    let (full, channel, rule) = (key.full(), key.channel(), rule_for_all(&config.key_prefix));
    let listened = listened(config.naming);
    vec![
        probe(&["TIME"], ""),
        probe(&["HLEN", full], &rule),
        probe(&["PTTL", full], &rule),
        probe(&["HEXISTS", full, "x"], &rule),
        probe(&["HSET", full, "x", "1", "y"], &rule),
        probe(&["PEXPIRE", full, "1"], &rule),
        probe(&["DEL", full], &rule),
        probe(&[dialect.publish(), &channel, "0"], listened),
    ]
}

/// The rule for all keys that begin as this one does before the lock's name.
fn rule_of(whole: &str) -> String {
    rule_for_all(whole.rsplit_once(PROBE).map_or("", |(before, _)| before))
}

/// What a kind of lock needs besides. If it is one side of a lock, it has a channel of its own.
fn of_kind(kind: &Kind, key: &Key, dialect: Dialect) -> Vec<Probe> {
    let key = key.clone().of_side(kind.side);
    let channel = key.channel();
    let rule = format!("&{}*", channel.split('{').next().unwrap_or_default());
    let publish = (kind.side != Side::Whole).then(|| probe(&[dialect.publish(), &channel, "0"], &rule));
    let touched = kind.touches.iter().flat_map(|touched| {
        let name = (touched.key)(&key);
        let rule = rule_of(&name);
        let words = |words: &[&'static str]| [&[words[0], name.as_str()], &words[1..]].concat();
        touched.by.iter().map(|by| probe(&words(by), &rule)).collect::<Vec<_>>()
    });
    touched.chain(publish).collect()
}

/// What is needed to tell one client alone. In a cluster without sharded pub/sub no script counts who listens.
fn hearing(key: &Key, config: &Config, dialect: Dialect) -> Vec<Probe> {
    let (members, is_sharded) = (key.members(), dialect == Dialect::Sharded);
    let count = if is_sharded { "SHARDNUMSUB" } else { "NUMSUB" };
    let counts = (is_sharded || !config.in_cluster).then(|| probe(&["PUBSUB", count, &members], ""));
    counts.into_iter().chain([probe(&[dialect.publish(), &members, "0"], "&redlatch_*")]).collect()
}

/// What processes need to queue.
fn queueing(key: &Key, config: &Config) -> Vec<Probe> {
    let (queue, mark) = (key.queue_parts().concat(), key.mark_parts().concat());
    let (of_queue, of_mark) = (rule_of(&queue), rule_of(&mark));
    vec![
        probe(&["HKEYS", key.full()], &rule_for_all(&config.key_prefix)),
        probe(&["PTTL", &mark], &of_mark),
        probe(&["SET", &mark, "0", "NEITHER"], &of_mark),
        probe(&["ZADD", &queue, "none", "x"], &of_queue),
        probe(&["ZRANK", &queue, "x"], &of_queue),
        probe(&["ZRANGE", &queue, "0", "0"], &of_queue),
        probe(&["ZREM", &queue, "x"], &of_queue),
        probe(&["ZPOPMIN", &queue, "none"], &of_queue),
    ]
}
