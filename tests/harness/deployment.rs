//! The harness's deployments: what a client can be connected to, started for a test.

use crate::cluster::{self, Cluster};
use crate::member::Member;
use crate::papers::{Flaw, Papers, papers, trusting};
use crate::sentinel::{self, Group};
use crate::server::{GONE, Server};
use crate::threads::eventually;
use redlatch::{Client, ClientBuilder};
use std::ops::Deref;
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

/// One server, by TLS.
pub struct Sealed(Server);

impl Deployment for Sealed {
    fn start() -> Self {
        Self(Server::start_with_tls(&papers(Flaw::None), true))
    }

    fn url(&self) -> String {
        self.0.tls_url()
    }

    fn builder(&self) -> ClientBuilder {
        let Papers { chain, key } = papers(Flaw::None);
        Client::builder(&self.url()).tls(trusting().client_certificate(chain, key))
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

/// A master that sentinels keep. One group serves all tests of a program, each by a prefix that its connections are named by, too.
pub struct Sentinel {
    group: Used<Group>,
    tag: String,
}

/// What several tests share, or one has alone.
pub enum Used<T: 'static> {
    Shared(&'static T),
    Alone(Box<T>),
}

impl<T> Used<T> {
    fn own(&mut self) -> &mut T {
        match self {
            Self::Shared(_) => panic!("others use it: start it alone"),
            Self::Alone(own) => own,
        }
    }
}

impl<T> Deref for Used<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Shared(shared) => shared,
            Self::Alone(own) => own,
        }
    }
}

/// The prefix of one test, by which its connections are named, too.
fn next_tag() -> String {
    format!("t{}:", TESTS.fetch_add(1, SeqCst))
}

fn tagged(builder: ClientBuilder, tag: &str) -> ClientBuilder {
    builder.key_prefix(tag).app_name(tag)
}

/// What one test must have left when it is over: no connection of its clients to these processes, no key and no channel.
fn assert_nothing_left(tag: &str, members: &[&Member], leftovers: impl Fn() -> Vec<String>) {
    let clients = || members.iter().map(|member| member.clients_named(tag)).sum::<usize>();
    eventually(GONE, "every client's connection is closed", || clients() == 0);
    eventually(GONE, "every mark has ended", || !leftovers().iter().any(|key| key.starts_with("redlatch_turn:")));
    assert_eq!(leftovers(), [""; 0], "keys or subscriptions are left");
}

static TESTS: AtomicUsize = AtomicUsize::new(0);

impl Sentinel {
    fn of(group: Used<Group>) -> Self {
        Self { group, tag: next_tag() }
    }

    fn named(&self, builder: ClientBuilder) -> ClientBuilder {
        tagged(builder, &self.tag)
    }
}

impl Deployment for Sentinel {
    fn start() -> Self {
        Self::of(Used::Shared(sentinel::shared()))
    }

    fn start_alone() -> Self {
        Self::of(Used::Alone(Box::new(Group::start())))
    }

    fn url(&self) -> String {
        self.group.url()
    }

    fn builder(&self) -> ClientBuilder {
        self.named(Client::builder(&self.url()))
    }

    /// Nobody is left to replace the master, too.
    fn kill(&mut self) {
        self.group.own().nodes.iter_mut().for_each(Member::kill);
    }

    fn restart(&mut self) {
        self.group.own().nodes.iter_mut().for_each(Member::restart);
    }

    fn leftovers(&self) -> Vec<String> {
        let group = &self.group;
        // Without sentinels nobody replaces the first.
        let master = &group.nodes[if group.sentinels.is_empty() { 0 } else { group.master() }];
        [master.keys(), master.channels()].concat().into_iter().filter(|left| left.contains(&self.tag)).collect()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let members: Vec<_> = self.group.nodes.iter().chain(&self.group.sentinels).collect();
            assert_nothing_left(&self.tag, &members, || self.leftovers());
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
        self.0.group.nodes[1].url()
    }

    fn builder(&self) -> ClientBuilder {
        self.0.named(self.0.group.by_address(1))
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

/// Masters that share the slots. One cluster serves all tests of a program, as a [`Sentinel`]'s group does.
pub struct Clustered {
    cluster: Used<Cluster>,
    tag: String,
}

impl Clustered {
    fn of(cluster: Used<Cluster>) -> Self {
        Self { cluster, tag: next_tag() }
    }
}

impl Deployment for Clustered {
    fn start() -> Self {
        Self::of(Used::Shared(cluster::shared()))
    }

    fn start_alone() -> Self {
        Self::of(Used::Alone(Box::new(Cluster::start())))
    }

    fn url(&self) -> String {
        self.cluster.url()
    }

    fn builder(&self) -> ClientBuilder {
        tagged(self.cluster.builder(), &self.tag)
    }

    fn kill(&mut self) {
        self.cluster.own().kill();
    }

    fn restart(&mut self) {
        self.cluster.own().restart();
    }

    /// Somebody may listen at any node, also at a replica.
    fn leftovers(&self) -> Vec<String> {
        let kept = self.cluster.masters().into_iter().flat_map(|master| self.cluster.nodes[master].keys());
        let channels = self.cluster.nodes.iter().flat_map(|node| [node.channels(), node.sharded_channels()].concat());
        kept.chain(channels).filter(|left| left.contains(&self.tag)).collect()
    }
}

impl Drop for Clustered {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_nothing_left(&self.tag, &self.cluster.nodes.iter().collect::<Vec<_>>(), || self.leftovers());
        }
    }
}
