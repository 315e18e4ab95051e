//! What the servers say became of the keys of locks, so that a finding explains itself: what each of them was asked that may change
//! a key, as MONITOR shows it, and which keys ended with their leases.

use super::record::MS;
use std::collections::HashMap;
use std::fmt::Write;

/// What is told of a key of which no server said anything.
pub(crate) const NOTHING: &str = "nothing";

/// The words of an event: from here on no command is missing, until the next such event.
pub(crate) const LISTENS: &str = "listens";

/// So many of a key are shown with a finding.
const SHOWN: usize = 8;

/// A server shows a command within so long, as long as it is not stopped.
const SHOWS: u64 = 5 * MS;

/// Commands that change no key.
const READS: [&str; 28] = [
    "eval",
    "evalsha",
    "exists",
    "get",
    "hexists",
    "hget",
    "hgetall",
    "hkeys",
    "hlen",
    "info",
    "keys",
    "lindex",
    "llen",
    "lrange",
    "ping",
    "pttl",
    "publish",
    "pubsub",
    "scan",
    "spublish",
    "ssubscribe",
    "subscribe",
    "time",
    "ttl",
    "type",
    "zcard",
    "zrange",
    "zscore",
];

/// What became of one or more keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: u64,
    /// At which server.
    pub(crate) node: usize,
    /// A command and its arguments, or why a key ended, and the key.
    pub(crate) words: String,
}

impl Event {
    /// Such events have a listener of their own.
    fn ended_by_itself(&self) -> bool {
        self.words.starts_with("expired ") || self.words.starts_with("evicted ")
    }

    fn is_of(&self, key: &str) -> bool {
        let is_it = |word: &str| word == key || (word.starts_with(key) && word.contains(":rwlock_timeout:"));
        self.words.starts_with("flush") || self.words.split(' ').any(is_it)
    }
}

/// When commands of a server may be missing: from the last one before its listener began anew.
pub(crate) fn gaps(events: &[Event]) -> Vec<(u64, u64)> {
    let (mut last, mut found) = (HashMap::new(), Vec::new());
    for Event { at, node, words } in events.iter().filter(|event| !event.ended_by_itself()) {
        let before = last.insert(*node, *at);
        found.extend(before.filter(|_| words == LISTENS).map(|before| (before, at + SHOWS)));
    }
    found
}

/// A line of MONITOR: when the server was asked, in microseconds of its clock, and what. `None` for what changes no key of a lock.
pub(crate) fn of_line(line: &str) -> Option<(u64, String)> {
    let (time, asked) = line.strip_prefix('+')?.split_once(' ')?;
    let (_, command) = asked.split_once("] ")?;
    let words: Vec<_> = command.split('"').skip(1).step_by(2).collect();
    let name = words.first()?.to_lowercase();
    let is_about_locks = name.starts_with("flush") || command.contains("torture:");
    if READS.contains(&name.as_str()) || !is_about_locks {
        return None;
    }
    let (seconds, micros) = time.split_once('.')?;
    let at = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    Some((at, [&[name.as_str()], &words[1..]].concat().join(" ")))
}

/// The last events of a key before the end of a finding, each with how long before its beginning, in ms.
pub(crate) fn explain(events: &[Event], key: &str, (at, until): (u64, u64)) -> String {
    let of_key: Vec<_> = events.iter().filter(|event| event.at <= until + SHOWS && event.is_of(key)).collect();
    let mut text = format!("; the server on {key}:");
    for Event { at: then, node, words } in &of_key[of_key.len().saturating_sub(SHOWN)..] {
        let ms = (*then as f64 - at as f64) / MS as f64;
        write!(text, " [{ms:+.3} ms, node {node}] {words};").expect("a string takes it");
    }
    if of_key.is_empty() { text + " " + NOTHING } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_may_change_a_key_of_a_lock() {
        let line = r#"+1764000000.000012 [0 lua] "HSET" "torture:0" "a:1:2" "1""#;
        assert_eq!(of_line(line), Some((1_764_000_000_000_012, "hset torture:0 a:1:2 1".to_owned())));
        assert_eq!(of_line(r#"+1.000000 [0 unix:/a] "FLUSHALL""#), Some((1_000_000, "flushall".to_owned())));
        for other in
            [r#"+1.000000 [0 lua] "pttl" "torture:0""#, r#"+1.000000 [0 lua] "del" "other""#, "+OK", "", "-ERR"]
        {
            assert_eq!(of_line(other), None, "{other}");
        }
    }

    #[test]
    fn a_finding_is_told_with_the_last_events_of_its_key() {
        let event = |ms: u64, words: &str| Event { at: ms * MS, node: 0, words: words.to_owned() };
        let mut events: Vec<_> = (0..10).map(|ms| event(ms, &format!("pexpire torture:1 {ms}"))).collect();
        events.extend([event(20, "hset torture:0 a 1"), event(30, "expired torture:1"), event(80, "del torture:1")]);
        let told = explain(&events, "torture:1", (25 * MS, 35 * MS));
        assert!(!told.contains("pexpire torture:1 2;") && told.contains("pexpire torture:1 3;"), "{told}");
        assert!(told.ends_with("[+5.000 ms, node 0] expired torture:1;"), "{told}");
        assert!(explain(&events, "torture:5", (0, 0)).ends_with(" nothing"));
    }

    #[test]
    fn the_time_out_of_a_reader_is_of_its_lock_and_a_flush_of_all() {
        let is_of = |words: &str| Event { at: 0, node: 0, words: words.to_owned() }.is_of("{torture:0}:sides");
        assert!(is_of("set {torture:0}:sides:a:1:rwlock_timeout:1 1") && is_of("flushall"));
        assert!(!is_of("rpush {{torture:0}:sides}:written 1") && !is_of("del torture:0"));
        let timeout = Event { at: 0, node: 0, words: "set {torture:0}:sides:a:1:rwlock_timeout:1 1".to_owned() };
        assert!(!timeout.is_of("torture:0"));
    }
}
