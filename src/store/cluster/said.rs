//! What a node says of its cluster: who has which slots, and by which epoch.

use super::redirect::NO_NAME;
use crate::base::config::AddressMap;
use crate::base::slot::SLOTS;
use crate::store::host_port::HostPort;
use redis::{ErrorKind, FromRedisValue, RedisError, Value};
use std::collections::HashMap;

/// Slots that follow each other, and their master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: Owner,
    pub(super) replicas: Vec<HostPort>,
}

/// A master, and the epoch in which it got its slots. The master with the highest epoch has a slot, whichever node names another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) address: HostPort,
    /// Zero where a node, or a proxy, does not tell.
    pub(super) epoch: u64,
}

/// All of it, as clients reach it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Said {
    pub(super) ranges: Vec<Range>,
    /// Whether the node knows sharded pub/sub.
    pub(super) sharded: bool,
    /// It serves no slot: it may be cut off from the others, and not know what came after that.
    pub(super) is_down: bool,
}

/// What a node is asked, in one write.
pub(super) fn question() -> Vec<u8> {
    let commands: [&[&str]; ANSWERS] =
        [&["CLUSTER", "SLOTS"], &["CLUSTER", "NODES"], &["PUBSUB", "SHARDNUMSUB"], &["CLUSTER", "INFO"]];
    commands.iter().flat_map(|words| redis::cmd(words[0]).arg(&words[1..]).get_packed_command()).collect()
}

/// So many answers come to it.
pub(super) const ANSWERS: usize = 4;

impl Said {
    /// What the answers of the node at an address come to. Where it says no host it means its own.
    ///
    /// # Errors
    /// That of the server, and when an answer is none.
    pub(super) fn of(answers: Vec<Value>, asked: &HostPort, map: &AddressMap) -> Result<Self, RedisError> {
        let mut answers = answers.into_iter().map(Value::extract_error);
        let mut next = || answers.next().unwrap_or_else(|| Err(not_understood()));
        let (slots, nodes, sharded, info) = (next()?, next(), next(), next());
        // A proxy may know CLUSTER SLOTS alone.
        let epochs = nodes.ok().map(epochs_in).unwrap_or_default();
        let Value::Array(rows) = slots else { return Err(not_understood()) };
        let address = |node: &Value| Named::of(node).map(|named| named.address(asked, map));
        let range = |row: &Value| range_in(row, &epochs, address);
        let ranges = rows.iter().map(range).collect::<Option<Vec<_>>>().ok_or_else(not_understood)?;
        let is_down = info.is_ok_and(|info| text_of(info).contains("cluster_state:fail"));
        Ok(Self { ranges: ranges.into_iter().flatten().collect(), sharded: knows_shards(&sharded), is_down })
    }
}

/// Whether a node knows sharded pub/sub. If it does and refuses the subcommand to this user, its error names the subcommand; the user
/// listens as all others do.
fn knows_shards(said: &Result<Value, RedisError>) -> bool {
    let is_refused = |error: &RedisError| error.code() == Some("NOPERM") && error.to_string().contains("shardnumsub");
    said.as_ref().err().is_none_or(is_refused)
}

fn not_understood() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "CLUSTER SLOTS gives no slots: is this a node of a cluster?").into()
}

/// One row of CLUSTER SLOTS: first, last, the master, replicas. `Some(None)`: its master is not known to the node.
fn range_in(
    row: &Value,
    epochs: &HashMap<String, u64>,
    address: impl Fn(&Value) -> Option<Option<HostPort>>,
) -> Option<Option<Range>> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), master, replicas @ ..] = row.as_slice() else { return None };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    if first > last || last >= SLOTS {
        return None;
    }
    let epoch = Named::of(master)?.id.and_then(|id| epochs.get(&id).copied()).unwrap_or(0);
    let replicas = replicas.iter().filter_map(|node| address(node).flatten()).collect();
    let owned = |address| Range { first, last, master: Owner { address, epoch }, replicas };
    Some(address(master)?.map(owned))
}

/// A node as CLUSTER SLOTS names it: host, port, and since Redis 4 its id.
struct Named {
    /// `None`: the host that was asked.
    host: Option<String>,
    port: u16,
    id: Option<String>,
}

impl Named {
    fn of(node: &Value) -> Option<Self> {
        let Value::Array(words) = node else { return None };
        let [host, Value::Int(port), rest @ ..] = words.as_slice() else { return None };
        let host: Option<String> = FromRedisValue::from_redis_value(host.clone()).ok()?;
        let id = rest.first().and_then(|id| FromRedisValue::from_redis_value(id.clone()).ok());
        Some(Self { host: host.filter(|host| !host.is_empty()), port: u16::try_from(*port).ok()?, id })
    }

    /// As it is reached from here; nothing for one that is known by no name.
    fn address(self, asked: &HostPort, map: &AddressMap) -> Option<HostPort> {
        let host = match self.host.as_deref() {
            None => &asked.host,
            Some(NO_NAME) => return None,
            Some(host) => host,
        };
        (self.port != 0).then(|| HostPort { host: host.to_owned(), port: self.port }.mapped(map))
    }
}

fn text_of(value: Value) -> String {
    redis::from_redis_value(value).unwrap_or_default()
}

/// The lines of CLUSTER NODES: the id first, the epoch seventh.
fn epochs_in(nodes: Value) -> HashMap<String, u64> {
    let text = text_of(nodes);
    let line = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.nth(5)?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &str) -> Value {
        Value::BulkString(words.as_bytes().to_vec())
    }

    fn node(host: Value, port: i64, id: &str) -> Value {
        Value::Array(vec![host, Value::Int(port), text(id)])
    }

    fn row(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    fn address(host: &str, port: u16) -> HostPort {
        HostPort { host: host.to_owned(), port }
    }

    fn said(rows: Vec<Value>, nodes: &str) -> Result<Said, RedisError> {
        let answers = vec![Value::Array(rows), text(nodes), Value::Array(Vec::new()), text("cluster_state:ok\r\n")];
        Said::of(answers, &address("asked", 1), &AddressMap::default())
    }

    const NODES: &str = "a :1@2 myself,master - 0 0 7 connected 0-9\nb h:2@3,name slave a 0 0 7 connected\n";

    #[test]
    fn slots_have_masters_with_epochs() {
        let rows = vec![
            row(0, 9, vec![node(text(""), 1, "a"), node(text("h"), 2, "b")]),
            row(10, 11, vec![node(Value::Nil, 3, "c")]),
            row(12, 12, vec![node(text("?"), 3, "d")]),
        ];
        let ranges = said(rows, NODES).unwrap().ranges;
        let owner = |host, port, epoch| Owner { address: address(host, port), epoch };
        let first = Range { first: 0, last: 9, master: owner("asked", 1, 7), replicas: vec![address("h", 2)] };
        let second = Range { first: 10, last: 11, master: owner("asked", 3, 0), replicas: Vec::new() };
        assert_eq!(ranges, [first, second]);
    }

    #[test]
    fn who_is_cut_off_says_so() {
        let is_down = |info: &str| {
            let answers = vec![Value::Array(Vec::new()), text(NODES), Value::Array(Vec::new()), text(info)];
            Said::of(answers, &address("asked", 1), &AddressMap::default()).unwrap().is_down
        };
        assert!(is_down("cluster_enabled:1\r\ncluster_state:fail\r\n") && !is_down("cluster_state:ok\r\n"));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for rows in [
            vec![Value::Int(1)],
            vec![row(5, 4, vec![node(text("h"), 1, "a")])],
            vec![row(0, 16_384, vec![node(text("h"), 1, "a")])],
            vec![row(0, 1, vec![])],
            vec![row(0, 1, vec![node(text("h"), 70_000, "a")])],
        ] {
            assert!(said(rows.clone(), NODES).is_err(), "{rows:?}");
        }
        assert!(said(Vec::new(), "").unwrap().ranges.is_empty());
    }

    /// In the words of Redis 7.0, 6.2 and 7.2, and of Valkey.
    #[test]
    fn who_may_not_count_listeners_is_told_of_unlocks_as_the_others_are() {
        for (words, knows) in [
            ("NOPERM this user has no permissions to run the 'pubsub|shardnumsub' command", true),
            ("NOPERM User app has no permissions to run the 'pubsub|shardnumsub' command", true),
            ("NOPERM this user has no permissions to run the 'pubsub' command or its subcommand", false),
            ("ERR Unknown subcommand or wrong number of arguments for 'SHARDNUMSUB'. Try PUBSUB HELP.", false),
        ] {
            let refused = redis::parse_redis_value(format!("-{words}\r\n").as_bytes()).unwrap();
            let answers = vec![Value::Array(Vec::new()), text(NODES), refused, text("")];
            let said = Said::of(answers, &address("asked", 1), &AddressMap::default()).unwrap();
            assert_eq!(said.sharded, knows, "{words}");
        }
    }

    #[test]
    fn a_proxy_may_know_slots_alone() {
        let refused = || redis::parse_redis_value(b"-ERR unknown subcommand\r\n").unwrap();
        let slots = Value::Array(vec![row(0, 1, vec![node(text("h"), 1, "a")])]);
        let answers = vec![slots, refused(), refused(), refused()];
        let said = Said::of(answers, &address("asked", 1), &AddressMap::default()).unwrap();
        assert!(said.ranges[0].master.epoch == 0 && !said.sharded && !said.is_down);
        let answers = vec![refused(), refused(), refused(), refused()];
        assert!(Said::of(answers, &address("h", 1), &AddressMap::default()).is_err());
    }
}
