//! What the workers' locks are on: one server, a group whose master is replaced, or a cluster.

use super::Setting;
use super::party::Party;
use super::shards::Shards;
use crate::classes::Only;
use crate::guarded::{self, LIST};
use crate::history::commands::Lists;
use crate::permits::is_of_permits;
use crate::plan::Plan;
use crate::proxy::{Address, Proxy};
use crate::queue::OF_THREADS;
use crate::reaper;
use crate::server::Server;
use harness::papers::{self, Flaw, papers};
use harness::sentinel::Shape;
use redis::Value;
use std::path::PathBuf;

const LOGIN: &str = "?user=torture&pass=torture";
pub(super) const GRANT: &[&str] = &["ACL", "SETUSER", "torture", "on", ">torture", "~*", "&*", "+@all"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Servers {
    /// One that keeps its data when it is killed.
    Lasting,
    /// One that forgets all then.
    Forgetful,
    /// A master, its replicas and sentinels.
    Group,
    /// The same with clocks that differ, and with the workers of one place, who hear of a new master by one sentinel alone.
    Askew,
    /// Masters with slots, and a replica of each.
    Cluster,
}

impl Servers {
    pub(crate) fn kind(self) -> Only {
        match self {
            Self::Lasting | Self::Forgetful => Only::Servers,
            Self::Group | Self::Askew => Only::Groups,
            Self::Cluster => Only::Clusters,
        }
    }

    pub(crate) fn have_failovers(self) -> bool {
        self.kind() != Only::Servers
    }

    /// Whether permits that are out may be given out again: those of the leased semaphore, and those of the other. A quarantine outlasts
    /// leases, and nothing outlasts permits without one.
    pub(super) fn forget_permits(self, plan: &Plan) -> [bool; 2] {
        match self {
            Self::Lasting => [false, false],
            Self::Forgetful => [!plan.strict, true],
            Self::Group | Self::Askew | Self::Cluster => [plan.replicas == 0; 2],
        }
    }
}

/// One whose port is for TLS alone: what comes unsealed is not answered, but for the orchestrator's, which comes by the socket. Every
/// second seed has a server that speaks TLS 1.2, and the others settle on 1.3. What workers show it is left where their logs go.
fn start_sealed(servers: Servers, setting: &Setting) -> Server {
    papers::leave_in(&setting.dir);
    let mut more = Vec::new();
    if servers == Servers::Lasting {
        more.extend(["--appendonly", "yes"]);
    }
    if setting.seed % 2 == 1 {
        more.extend(["--tls-protocols", "TLSv1.2"]);
    }
    Server::start_with_tls_and(&papers(Flaw::None), true, &more)
}

/// What a worker is given that goes through a proxy.
pub(super) fn url(proxy: &Proxy, sealed: bool) -> String {
    if sealed { format!("rediss://torture:torture@127.0.0.1:{}/", proxy.port()) } else { proxy.url() + LOGIN }
}

pub(super) enum Ground {
    One(Box<Server>),
    Group(Box<Party>),
    Cluster(Box<Shards>),
}

impl Ground {
    pub(super) fn open(setting: &Setting) -> Self {
        let server = match (setting.servers, setting.sealed) {
            (Servers::Group, _) => return Self::Group(Box::new(Party::open(Shape::APART, false))),
            (Servers::Askew, _) => return Self::Group(Box::new(Party::open(Shape::ASKEW, true))),
            (Servers::Cluster, _) => return Self::Cluster(Box::new(Shards::open(&setting.plan, setting.seed))),
            (Servers::Lasting, false) => Server::start_with_data_and_clock(),
            (Servers::Forgetful, false) => Server::start(),
            (servers, true) => start_sealed(servers, setting),
        };
        reaper::watch(server.pid());
        reaper::tidy(server.socket().parent().expect("a directory"));
        let _: String = server.ask(GRANT);
        Self::One(Box::new(server))
    }

    /// A new one in front of the one server.
    pub(super) fn proxy(&self, sealed: bool) -> Option<Proxy> {
        match self {
            Self::One(server) if sealed => Some(Proxy::on_tcp_before(Address::Port(server.port()))),
            Self::One(server) => Some(Proxy::new(server.socket())),
            Self::Group(_) | Self::Cluster(_) => None,
        }
    }

    /// Of every server.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        match self {
            Self::One(server) => vec![server.socket()],
            Self::Group(party) => party.sockets(),
            Self::Cluster(shards) => shards.sockets(),
        }
    }

    /// Has every server that grants locks do something.
    pub(super) fn tell(&self, words: &[&str]) {
        match self {
            Self::One(server) => drop(server.ask::<Value>(words)),
            Self::Group(party) => drop(party.ask::<Value>(words)),
            Self::Cluster(shards) => shards.tell(words),
        }
    }

    /// What the server or the master has, or each of them.
    pub(super) fn list(&self, words: &[&str]) -> Vec<String> {
        match self {
            Self::One(server) => server.ask(words),
            Self::Group(party) => party.ask(words),
            Self::Cluster(shards) => shards.list(words),
        }
    }

    /// What was written while each of the locks was held.
    pub(super) fn written(&self, names: u8) -> Lists {
        let ask = |name| self.list(&["LRANGE", &guarded::list(name), "0", "-1"]);
        let numbers = |list: Vec<String>| list.iter().filter_map(|number| number.parse().ok()).collect();
        (0..names).map(|name| numbers(ask(name))).collect()
    }

    /// What is left of the clients. The epochs of strict ones stay, the counters of tokens, and what was written. Of the queues of fair locks
    /// `left_queues` tells.
    pub(super) fn left(&self) -> Option<String> {
        let mut keys = self.list(&["KEYS", "*"]);
        let stays = ["redlatch:epoch", "redisson_lock_token:"].into_iter();
        let stays: Vec<_> = stays.chain(OF_THREADS.map(|keys| keys.trim_end_matches('*'))).collect();
        keys.retain(|key| {
            !stays.iter().any(|start| key.starts_with(start)) && !key.ends_with(LIST) && !is_of_permits(key)
        });
        let mut channels = self.channels();
        channels.retain(|channel| !channel.starts_with("__sentinel__"));
        let clients = self.clients();
        (!keys.is_empty() || !channels.is_empty() || clients > 0)
            .then(|| format!("on the server: keys {keys:?}, {clients} connections, channels {channels:?}"))
    }

    fn channels(&self) -> Vec<String> {
        let channels = self.list(&["PUBSUB", "CHANNELS"]);
        match self {
            Self::Cluster(shards) => [channels, shards.list(&["PUBSUB", "SHARDCHANNELS"])].concat(),
            _ => channels,
        }
    }

    fn clients(&self) -> usize {
        match self {
            Self::One(server) => server.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1,
            Self::Group(party) => party.clients(),
            Self::Cluster(shards) => shards.clients(),
        }
    }

    /// Killed, a server is not asked by the harness what is left on it: that was told.
    pub(super) fn close(self) {
        match self {
            Self::One(mut server) => {
                reaper::forget(server.pid());
                server.kill();
            }
            Self::Group(party) => party.close(),
            Self::Cluster(shards) => shards.close(),
        }
    }
}
