//! What the workers' locks are on: one server, or a group whose master is replaced.

use super::party::Party;
use crate::reaper;
use crate::server::Server;
use harness::sentinel::Shape;
use redis::FromRedisValue;

pub(crate) const LOGIN: &str = "?user=torture&pass=torture";
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
}

impl Servers {
    pub(crate) fn are_a_group(self) -> bool {
        matches!(self, Self::Group | Self::Askew)
    }
}

pub(super) enum Ground {
    One(Server),
    Group(Box<Party>),
}

impl Ground {
    pub(super) fn open(servers: Servers) -> Self {
        let server = match servers {
            Servers::Group => return Self::Group(Box::new(Party::open(Shape::APART, false))),
            Servers::Askew => return Self::Group(Box::new(Party::open(Shape::ASKEW, true))),
            Servers::Lasting => Server::start_with_data(),
            Servers::Forgetful => Server::start(),
        };
        reaper::watch(server.pid());
        reaper::tidy(server.socket().parent().expect("a directory"));
        let _: String = server.ask(GRANT);
        Self::One(server)
    }

    /// The server, or the master.
    pub(super) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        match self {
            Self::One(server) => server.ask(words),
            Self::Group(party) => party.ask(words),
        }
    }

    /// What is left of the clients.
    pub(super) fn left(&self) -> Option<String> {
        let keys: i64 = self.ask(&["DBSIZE"]);
        let mut channels: Vec<String> = self.ask(&["PUBSUB", "CHANNELS"]);
        channels.retain(|channel| !channel.starts_with("__sentinel__"));
        let clients = match self {
            Self::One(server) => server.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1,
            Self::Group(party) => party.clients(),
        };
        (keys > 0 || !channels.is_empty() || clients > 0)
            .then(|| format!("on the server: {keys} keys, {clients} connections, channels {channels:?}"))
    }

    /// Killed, a server is not asked by the harness what is left on it: that was told.
    pub(super) fn close(self) {
        match self {
            Self::One(mut server) => {
                reaper::forget(server.pid());
                server.kill();
            }
            Self::Group(party) => party.close(),
        }
    }
}
