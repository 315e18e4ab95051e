//! Real servers with users of their own.

use crate::rows::{At, Row};
use harness::cluster::{Cluster, Keys, Shape, names};
use harness::member::Member;
use harness::sentinel::{Group, Shape as Size};
use harness::server::{Server, version};
use redis::Value;
use std::collections::HashMap;
use std::sync::Mutex;

/// The processes that a row's clients log in to, with whatever has to run beside them.
pub(crate) enum Place {
    Servers(Vec<Server>),
    Nodes(Group),
    Sentinels(Group),
    /// With names of locks in its slot 0.
    Cluster(Cluster, Mutex<Box<dyn Iterator<Item = String> + Send>>),
}

impl Place {
    /// One slot of a cluster is half moved for good.
    pub(crate) fn start(row: &Row) -> Self {
        let place = match row.at {
            At::Server => Self::Servers(vec![Server::start()]),
            At::Servers => Self::Servers(vec![Server::start(), Server::start(), Server::start()]),
            At::Replicas => Self::Nodes(Group::without_sentinels()),
            At::Sentinel => Self::Nodes(Group::of(Size::STEADY)),
            At::Sentinels => Self::Sentinels(Group::of(Size::STEADY)),
            At::Cluster => {
                let cluster = Cluster::of(Shape::STEADY);
                cluster.half_move(0, 1, Keys::None);
                Self::Cluster(cluster, Mutex::new(Box::new(names("shop:", |slot| slot == 0))))
            }
        };
        place.ask(&["CONFIG", "SET", "acllog-max-len", "10000"]);
        place
    }

    /// Whether servers of this version and kind know a rule. Those of 6.2 give a new user all channels, and then no other.
    pub(crate) fn knows(&self, rule: &str) -> bool {
        let before = if rule.starts_with('&') { "resetchannels" } else { "resetkeys" };
        self.try_ask(&["ACL", "SETUSER", "nobody", before, rule]).is_ok()
    }

    fn ask(&self, words: &[&str]) -> Vec<Value> {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn try_ask(&self, words: &[&str]) -> redis::RedisResult<Vec<Value>> {
        let at = |members: &[Member]| members.iter().map(|member| member.try_ask(words)).collect();
        match self {
            Self::Servers(servers) => servers.iter().map(|server| server.try_ask(words)).collect(),
            Self::Nodes(group) => at(&group.nodes),
            // They have no such settings.
            Self::Sentinels(_) if words[0] == "CONFIG" => Ok(Vec::new()),
            Self::Sentinels(group) => at(&group.sentinels),
            Self::Cluster(cluster, _) => at(&cluster.nodes),
        }
    }

    /// Makes a user with these rules and no others; where he logs in.
    pub(crate) fn let_in(&self, row: &Row, user: &str, rules: &[&str]) -> Vec<String> {
        let words = line(version(), user, ">secret", rules);
        self.ask(&words.split(' ').collect::<Vec<_>>());
        let as_user = |url: &str| url.replace("://", &format!("://{user}:secret@"));
        match self {
            Self::Servers(servers) => {
                servers.iter().map(|server| server.url_as(user, "secret") + row.database()).collect()
            }
            Self::Nodes(group) if row.at == At::Replicas => {
                group.nodes.iter().map(|node| as_user(&node.url())).collect()
            }
            Self::Nodes(group) => vec![as_user(&group.url())],
            Self::Sentinels(group) => {
                vec![format!("{}?sentinel_username={user}&sentinel_password=secret", group.url())]
            }
            Self::Cluster(cluster, _) => vec![as_user(&cluster.url())],
        }
    }

    /// The name of a lock in the slot that is half moved, another one each time; empty where there is none.
    pub(crate) fn moving(&self) -> String {
        match self {
            Self::Cluster(_, names) => names.lock().unwrap().next().unwrap(),
            _ => String::new(),
        }
    }

    /// What was refused to a user, but for a name that no rule of older servers can allow, and for the channels of a census: without them
    /// nobody is told who waits, and all calls work. The page has their rule beside the lines.
    pub(crate) fn refused(&self, user: &str) -> Vec<String> {
        let logs = self.ask(&["ACL", "LOG", "10000"]);
        let entries =
            logs.into_iter().flat_map(|log| redis::from_redis_value::<Vec<HashMap<String, String>>>(log).unwrap());
        let of_user = entries.filter(|entry| entry["username"] == user);
        let objects = of_user.map(|entry| format!("{} {}", entry["reason"], entry["object"]));
        let objects = objects.filter(|object| !object.contains("redlatch_census:"));
        objects.filter(|object| version() >= (7, 2) || !object.starts_with("command client")).collect()
    }

    /// Sentinels have none.
    pub(crate) fn forget_scripts(&self) {
        if !matches!(self, Self::Sentinels(_)) {
            let _ = self.try_ask(&["SCRIPT", "FLUSH"]);
        }
    }

    /// What those leave who could not take back what they began.
    pub(crate) fn clear(&self) {
        if let Self::Servers(servers) = self {
            servers.iter().for_each(Server::clear);
        }
    }
}

/// What is pasted at servers of a version: keys, then channels, then commands.
pub(crate) fn line(version: (u32, u32), user: &str, password: &str, rules: &[&str]) -> String {
    let reset = if version < (6, 2) { "resetkeys" } else { "resetkeys resetchannels" };
    let of = |sign: char| rules.iter().copied().filter(move |rule| rule.starts_with(sign));
    let first = ["ACL SETUSER", user, "on", password, reset, "-@all"];
    first.into_iter().chain(of('~')).chain(of('&')).chain(of('+')).collect::<Vec<_>>().join(" ")
}
