//! The harness's deployments: what a client can be connected to, started for a test.

use crate::sentinel::{Group, Member, shared};
use crate::server::{GONE, Server};
use crate::threads::eventually;
use redlatch::{Client, ClientBuilder};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Redis in one of the ways in which it is run. Whatever was started ends when it is dropped, after its clients.
pub trait Deployment: Sized + Send + Sync + 'static {
    fn start() -> Self;

    /// One that no other test uses, for those that kill it.
    fn start_alone() -> Self {
        Self::start()
    }

    /// What a client is given to find it.
    fn url(&self) -> String;

    /// A client of it. One that several tests share gives each of them a prefix.
    fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url())
    }

    /// Nobody answers any more.
    fn kill(&mut self);

    /// It answers again, with nothing of what it knew.
    fn restart(&mut self);

    /// The keys and channels that are on it, of this test.
    fn leftovers(&self) -> Vec<String>;
}

/// One server, by a Unix socket.
pub struct Single(Server);

/// One server, by a TCP port.
pub struct Tcp(Server);

macro_rules! one_server {
    ($deployment:ty, $start:ident, $url:ident) => {
        impl Deployment for $deployment {
            fn start() -> Self {
                Self(Server::$start())
            }

            fn url(&self) -> String {
                self.0.$url()
            }

            fn kill(&mut self) {
                self.0.kill();
            }

            fn restart(&mut self) {
                self.0.restart();
            }

            fn leftovers(&self) -> Vec<String> {
                self.0.leftovers()
            }
        }
    };
}

one_server!(Single, start, url);
one_server!(Tcp, start_on_tcp, tcp_url);

/// A master that sentinels keep. One group serves all tests of a program, each by a prefix that its connections are named by, too.
pub struct Sentinel {
    group: Used,
    tag: String,
}

enum Used {
    Shared(&'static Group),
    Alone(Box<Group>),
}

static TESTS: AtomicUsize = AtomicUsize::new(0);

impl Sentinel {
    fn of(group: Used) -> Self {
        Self { group, tag: format!("t{}:", TESTS.fetch_add(1, SeqCst)) }
    }

    fn group(&self) -> &Group {
        match &self.group {
            Used::Shared(group) => group,
            Used::Alone(group) => group,
        }
    }

    fn named(&self, builder: ClientBuilder) -> ClientBuilder {
        builder.key_prefix(self.tag.as_str()).app_name(self.tag.as_str())
    }

    fn own_nodes(&mut self) -> &mut [Member] {
        match &mut self.group {
            Used::Shared(_) => panic!("others use it: start it alone"),
            Used::Alone(group) => &mut group.nodes,
        }
    }

    fn assert_nothing_left(&self) {
        let Group { nodes, sentinels, .. } = self.group();
        let clients = || nodes.iter().chain(sentinels).map(|member| member.clients_named(&self.tag)).sum::<usize>();
        eventually(GONE, "every client's connection is closed", || clients() == 0);
        eventually(GONE, "every mark has ended", || {
            !self.leftovers().iter().any(|key| key.starts_with("redlatch_turn:"))
        });
        assert_eq!(self.leftovers(), [""; 0], "keys or subscriptions are left");
    }
}

impl Deployment for Sentinel {
    fn start() -> Self {
        Self::of(Used::Shared(shared()))
    }

    fn start_alone() -> Self {
        Self::of(Used::Alone(Box::new(Group::start())))
    }

    fn url(&self) -> String {
        self.group().url()
    }

    fn builder(&self) -> ClientBuilder {
        self.named(Client::builder(&self.url()))
    }

    /// Nobody is left to replace the master, too.
    fn kill(&mut self) {
        self.own_nodes().iter_mut().for_each(Member::kill);
    }

    fn restart(&mut self) {
        self.own_nodes().iter_mut().for_each(Member::restart);
    }

    fn leftovers(&self) -> Vec<String> {
        let group = self.group();
        // Without sentinels nobody replaces the first.
        let master = &group.nodes[if group.sentinels.is_empty() { 0 } else { group.master() }];
        let left: [Vec<String>; 2] = [master.ask(&["KEYS", "*"]), master.ask(&["PUBSUB", "CHANNELS"])];
        left.concat().into_iter().filter(|left| left.contains(&self.tag)).collect()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_nothing_left();
        }
    }
}

/// The same master and replicas by their addresses, the master not the first.
pub struct Replicas(Sentinel);

impl Deployment for Replicas {
    fn start() -> Self {
        Self(Sentinel::start())
    }

    fn start_alone() -> Self {
        Self(Sentinel::of(Used::Alone(Box::new(Group::without_sentinels()))))
    }

    fn url(&self) -> String {
        self.0.group().nodes[1].url()
    }

    fn builder(&self) -> ClientBuilder {
        self.0.named(self.0.group().by_address(1))
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn restart(&mut self) {
        self.0.restart();
    }

    fn leftovers(&self) -> Vec<String> {
        self.0.leftovers()
    }
}
