//! What a server says of itself.

use super::{Finding, ms};
use crate::out::Failed;
use redlatch::inspect::Inspector;
use redlatch::{Command, Value};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// What a server said. What it does not let us ask is missing.
pub(super) struct Facts {
    /// The lines of INFO.
    info: HashMap<String, String>,
    /// Some settings, by CONFIG GET.
    config: Option<HashMap<String, String>>,
    /// By how much its clock is ahead of ours, and how exactly that is known.
    ahead: Option<(Duration, bool)>,
    /// The slowest commands of late.
    slow: Option<Vec<Duration>>,
}

/// By how much clocks may differ before somebody should look.
const CLOCKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// A command of so long keeps all locks waiting.
const SLOW: Duration = Duration::from_millis(50);

/// What is known of each server, or why nothing is.
type Each = Vec<(String, Result<Facts, String>)>;

impl Facts {
    pub(super) fn of_all(inspector: &Inspector) -> Result<Each, Failed> {
        let commands = [
            Command::new("TIME"),
            Command::new("INFO").arg("everything"),
            Command::new("CONFIG").arg("GET").arg("save"),
            Command::new("CONFIG").arg("GET").arg("append*"),
            Command::new("CONFIG").arg("GET").arg("maxmemory*"),
            Command::new("SLOWLOG").arg("GET").arg("20"),
        ];
        // The connections are made before the clocks are compared.
        inspector.ask(&commands[..1])?;
        let each = inspector.servers()?.into_iter().map(|server| {
            let began = SystemTime::now();
            let said = inspector.ask_at(&server, &commands);
            let between = began + began.elapsed().unwrap_or_default() / 2;
            (server, said.map(|values| Self::of(&values, between)).map_err(|error| error.to_string()))
        });
        Ok(each.collect())
    }

    fn of(values: &[Value], now: SystemTime) -> Self {
        let [time, info, settings @ .., slow] = values else { unreachable!("six commands were asked") };
        let each: Vec<_> = settings.iter().map(pairs).collect();
        let config = each.iter().all(Option::is_some).then(|| each.into_iter().flatten().flatten().collect());
        Self { info: lines(info.text().unwrap_or_default()), config, ahead: ahead(time, now), slow: slowest(slow) }
    }

    /// `of_cluster`: the URL is that of a cluster.
    pub(super) fn findings(&self, of_cluster: bool) -> Vec<Finding> {
        let all = [
            self.version(),
            self.role(),
            self.cluster(of_cluster),
            self.replicas(),
            self.persistence(),
            self.memory(),
            self.clock(),
            self.slow_log(),
            self.clients(),
        ];
        all.into_iter().flatten().collect()
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.info.get(key).map(String::as_str)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    fn version(&self) -> Option<Finding> {
        let (kind, version) = match self.get("valkey_version") {
            Some(version) => ("Valkey", version),
            None => ("Redis", self.get("redis_version").unwrap_or("?")),
        };
        let (found, major) =
            (format!("{kind} {version}"), version.split('.').next().and_then(|major| major.parse::<u32>().ok()));
        Some(match major {
            Some(7..) => Finding::good("version", found),
            Some(6) => Finding::mind(
                "version",
                found,
                "it works; in a cluster 7.0 or newer tells waiters by one node instead of all",
            ),
            Some(0..6) => Finding::bad("version", found, "locks need Redis 6.0 or newer, or Valkey"),
            None => Finding::unknown("version", "the server does not say"),
        })
    }

    fn role(&self) -> Option<Finding> {
        Some(match self.get("role") {
            Some("master") => Finding::good("role", "master"),
            Some("slave") => Finding::bad(
                "role",
                "a replica, which takes no writes",
                "give the master's URL, or redis+sentinel:// with the sentinels, which name it",
            ),
            _ => Finding::unknown("role", "the server does not say"),
        })
    }

    /// A URL of one server that is a node of a cluster reaches the locks of that node alone.
    fn cluster(&self, of_cluster: bool) -> Option<Finding> {
        let is_node = self.get("cluster_enabled") == Some("1");
        (is_node && !of_cluster).then(|| {
            Finding::bad(
                "cluster",
                "a node of a cluster, by the URL of a single server",
                "begin the URL with redis+cluster://",
            )
        })
    }

    fn replicas(&self) -> Option<Finding> {
        let count = self.number("connected_slaves")?;
        Some(match count {
            0 => Finding::mind(
                "replicas",
                "none",
                "if this machine is gone, so are its locks until it is back: add a replica and sentinels",
            ),
            _ => Finding::good("replicas", format!("{count} connected")),
        })
    }

    fn persistence(&self) -> Option<Finding> {
        let strict = "or use strict mode in all programs";
        let has_aof = self.get("aof_enabled") == Some("1");
        let config = self.config.as_ref();
        let saves = config.and_then(|config| config.get("save")).map(|save| !save.is_empty());
        let fsync = config.and_then(|config| config.get("appendfsync")).map(String::as_str);
        Some(match (has_aof, fsync, saves) {
            (true, Some("always"), _) => Finding::good("persistence", "each write is on disk before it is answered"),
            (true, fsync, _) => Finding::mind(
                "persistence",
                format!("append-only file, appendfsync {}", fsync.unwrap_or("unknown")),
                format!("a crash of the machine forgets the locks of the last second: appendfsync always, {strict}"),
            ),
            (false, _, Some(true)) => Finding::bad(
                "persistence",
                "snapshots alone",
                format!("a restart forgets the locks since the last snapshot: appendonly yes, {strict}"),
            ),
            (false, _, Some(false)) => {
                Finding::bad("persistence", "none", format!("a restart forgets all locks: appendonly yes, {strict}"))
            }
            (false, _, None) => Finding::unknown(
                "persistence",
                "no append-only file; the server does not say whether it takes snapshots",
            ),
        })
    }

    fn memory(&self) -> Option<Finding> {
        let (policy, most, used) =
            (self.get("maxmemory_policy")?, self.number("maxmemory")?, self.number("used_memory")?);
        let keeps = "set maxmemory-policy noeviction";
        Some(match (policy, most) {
            ("noeviction", 0) => Finding::good("memory", "no limit, and nothing is evicted"),
            ("noeviction", most) if used > most / 10 * 9 => Finding::mind(
                "memory",
                format!("{} % of maxmemory is used", used * 100 / most),
                "when it is full, no lock can be taken: free memory or raise maxmemory",
            ),
            ("noeviction", most) => {
                Finding::good("memory", format!("{} % of maxmemory is used, and nothing is evicted", used * 100 / most))
            }
            (policy, 0) => Finding::mind(
                "memory",
                format!("maxmemory-policy {policy}, no maxmemory yet"),
                format!("once there is a limit, locks are evicted: {keeps}"),
            ),
            (policy, _) => Finding::bad(
                "memory",
                format!("maxmemory-policy {policy}"),
                format!("a full server evicts locks while they are held: {keeps}"),
            ),
        })
    }

    fn clock(&self) -> Option<Finding> {
        let Some((by, is_ahead)) = self.ahead else {
            return Some(Finding::unknown("clock", "the server does not say"));
        };
        let found = format!("{} {} ours", ms(by), if is_ahead { "ahead of" } else { "behind" });
        let advice = "let ntpd or chronyd set both: times since when locks are held are wrong by that, and so are tokens after a failover";
        Some(match CLOCKS.iter().filter(|most| by > **most).count() {
            0 => Finding::good("clock", found),
            1 => Finding::mind("clock", found, advice),
            _ => Finding::bad("clock", found, advice),
        })
    }

    fn slow_log(&self) -> Option<Finding> {
        let Some(slow) = &self.slow else { return Some(Finding::unknown("slow log", "the server does not say")) };
        let worst = slow.iter().max().copied().unwrap_or_default();
        Some(if worst >= SLOW {
            let found = format!("{} slow commands in its log, the slowest took {}", slow.len(), ms(worst));
            Finding::mind(
                "slow log",
                found,
                "all locks waited for it: see SLOWLOG GET, and give locks a server of their own",
            )
        } else {
            Finding::good("slow log", "no command of late took 50 ms")
        })
    }

    fn clients(&self) -> Option<Finding> {
        let (now, most) = (self.number("connected_clients")?, self.number("maxclients")?);
        let found = format!("{now} of {most} connections");
        Some(match now * 10 > most * 8 {
            true => Finding::mind("clients", found, "when none is left, no program can connect: raise maxclients"),
            false => Finding::good("clients", found),
        })
    }
}

fn lines(info: &str) -> HashMap<String, String> {
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}

/// The settings in an answer of CONFIG GET; `None` if it was refused.
fn pairs(value: &Value) -> Option<Vec<(String, String)>> {
    let Value::Array(words) = value else { return None };
    let words: Vec<_> = words.iter().filter_map(Value::text).map(str::to_owned).collect();
    Some(words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

fn ahead(time: &Value, now: SystemTime) -> Option<(Duration, bool)> {
    let Value::Array(parts) = time else { return None };
    let number = |at: usize| parts.get(at).and_then(Value::text).and_then(|text| text.parse::<u64>().ok());
    let theirs = SystemTime::UNIX_EPOCH + Duration::from_secs(number(0)?) + Duration::from_micros(number(1)?);
    Some(theirs.duration_since(now).map_or_else(|behind| (behind.duration(), false), |ahead| (ahead, true)))
}

fn slowest(slow: &Value) -> Option<Vec<Duration>> {
    let Value::Array(entries) = slow else { return None };
    let took = |entry: &Value| match entry {
        Value::Array(parts) => parts.get(2).and_then(Value::integer).and_then(|micros| u64::try_from(micros).ok()),
        _ => None,
    };
    Some(entries.iter().filter_map(took).map(Duration::from_micros).collect())
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn facts(info: &[(&str, &str)], config: Option<&[(&str, &str)]>) -> Facts {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        Facts { info: map(info), config: config.map(map), ahead: None, slow: None }
    }

    #[test]
    fn persistence_is_judged_by_what_a_restart_forgets() {
        let verdict = |info: &[(&str, &str)], config| facts(info, config).persistence().unwrap().verdict;
        let (aof, none) = (&[("aof_enabled", "1")][..], &[("aof_enabled", "0")][..]);
        assert_eq!(verdict(aof, Some(&[("appendfsync", "always")])), Verdict::Good);
        assert_eq!(verdict(aof, None), Verdict::Mind);
        assert_eq!(verdict(none, Some(&[("save", "")])), Verdict::Bad);
        assert_eq!(verdict(none, Some(&[("save", "60 1")])), Verdict::Bad);
        assert_eq!(verdict(none, None), Verdict::Unknown);
    }

    #[test]
    fn memory_that_evicts_is_bad() {
        let verdict = |policy: &str, most: &str, used: &str| {
            facts(&[("maxmemory_policy", policy), ("maxmemory", most), ("used_memory", used)], None)
                .memory()
                .unwrap()
                .verdict
        };
        assert_eq!(verdict("noeviction", "0", "5"), Verdict::Good);
        assert_eq!(verdict("noeviction", "100", "95"), Verdict::Mind);
        assert_eq!(verdict("allkeys-lru", "100", "5"), Verdict::Bad);
        assert_eq!(verdict("allkeys-lru", "0", "5"), Verdict::Mind);
    }

    #[test]
    fn clocks_are_compared_both_ways() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let said = |seconds: &str| Value::Array(vec![Value::Bytes(seconds.into()), Value::Bytes(b"0".to_vec())]);
        assert_eq!(ahead(&said("103"), now), Some((Duration::from_secs(3), true)));
        assert_eq!(ahead(&said("99"), now), Some((Duration::from_secs(1), false)));
        assert_eq!(ahead(&Value::Error("NOPERM".to_owned()), now), None);
    }
}
