//! The harness's deployments: servers of each kind that a client can be connected to, started for a test.

use crate::by_hand::WITHOUT_SENTINELS;
use crate::cluster::{self, Cluster};
use crate::member::Member;
use crate::papers::{Flaw, known, papers};
use crate::sentinel::{self, Group};
use crate::server::{GONE, Server, stays};
use crate::threads::eventually;
use redlatch::{Client, ClientBuilder};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Redis in one of the ways in which it is run. Its processes end when it is dropped, after its clients.
pub trait Deployment: Sized + Send + Sync + 'static {
    fn start() -> Self;

    /// A deployment that no other test uses, for tests that kill it.
    fn start_alone() -> Self {
        Self::start()
    }

    /// The URL by which a client finds it.
    fn url(&self) -> String;

    /// A client of it. If several tests share the deployment, each has a prefix of its own.
    fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url())
    }

    /// Kills its servers: nobody answers any more.
    fn kill(&mut self);

    /// Starts its servers again, without data.
    fn restart(&mut self);

    /// The keys and channels of this test that are left on it.
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
        Client::builder(&self.url()).tls(known())
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

/// A master that sentinels keep, by TLS or without. One group serves all tests of a program. Each test has a prefix, which is also
/// the name of its connections.
pub struct Sentinel<const SEALED: bool = false> {
    group: Used<Group>,
    tag: String,
}

/// A deployment that several tests share, or that one test has alone.
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

/// The prefix of one test, which is also the name of its connections.
fn next_tag() -> String {
    format!("t{}:", TESTS.fetch_add(1, SeqCst))
}

fn tagged(builder: ClientBuilder, tag: &str) -> ClientBuilder {
    builder.key_prefix(tag).app_name(tag)
}

/// Checks that a test has left no connection of its clients to these processes, no key and no channel.
fn assert_nothing_left(tag: &str, members: &[&Member], leftovers: impl Fn() -> Vec<String>) {
    let clients = || members.iter().map(|member| member.clients_named(tag)).sum::<usize>();
    eventually(GONE, "every client's connection is closed", || clients() == 0);
    eventually(GONE, "every mark has ended", || !leftovers().iter().any(|key| key.starts_with("redlatch_turn:")));
    assert_eq!(leftovers(), [""; 0], "keys or subscriptions are left");
}

static TESTS: AtomicUsize = AtomicUsize::new(0);

impl<const SEALED: bool> Sentinel<SEALED> {
    fn of(group: Used<Group>) -> Self {
        Self { group, tag: next_tag() }
    }

    fn alone(shape: sentinel::Shape) -> Self {
        let shape = if SEALED { shape.sealed(Flaw::None) } else { shape };
        Self::of(Used::Alone(Box::new(Group::of(shape))))
    }

    fn named(&self, builder: ClientBuilder) -> ClientBuilder {
        tagged(builder, &self.tag)
    }
}

impl<const SEALED: bool> Deployment for Sentinel<SEALED> {
    fn start() -> Self {
        Self::of(Used::Shared(sentinel::shared_if(SEALED)))
    }

    fn start_alone() -> Self {
        Self::alone(sentinel::Shape::USUAL)
    }

    fn url(&self) -> String {
        self.group.url()
    }

    fn builder(&self) -> ClientBuilder {
        self.named(self.group.builder())
    }

    /// Kills the replicas, too, so that none can replace the master.
    fn kill(&mut self) {
        self.group.own().nodes.iter_mut().for_each(Member::kill);
    }

    fn restart(&mut self) {
        self.group.own().nodes.iter_mut().for_each(Member::restart);
    }

    fn leftovers(&self) -> Vec<String> {
        let group = &self.group;
        // Without sentinels nobody replaces the first node.
        let master = &group.nodes[if group.sentinels.is_empty() { 0 } else { group.master() }];
        [master.keys(), master.channels()]
            .concat()
            .into_iter()
            .filter(|left| left.contains(&self.tag) && !stays(left))
            .collect()
    }
}

impl<const SEALED: bool> Drop for Sentinel<SEALED> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let members: Vec<_> = self.group.nodes.iter().chain(&self.group.sentinels).collect();
            assert_nothing_left(&self.tag, &members, || self.leftovers());
        }
    }
}

/// The same master and replicas, by their addresses. The master's address is not the first.
pub struct Replicas<const SEALED: bool = false>(Sentinel<SEALED>);

impl<const SEALED: bool> Deployment for Replicas<SEALED> {
    fn start() -> Self {
        Self(Sentinel::start())
    }

    fn start_alone() -> Self {
        Self(Sentinel::alone(WITHOUT_SENTINELS))
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

/// Masters that share the slots, by TLS or without. One cluster serves all tests of a program, as a [`Sentinel`]'s group does.
pub struct Clustered<const SEALED: bool = false> {
    cluster: Used<Cluster>,
    tag: String,
}

impl<const SEALED: bool> Clustered<SEALED> {
    fn of(cluster: Used<Cluster>) -> Self {
        Self { cluster, tag: next_tag() }
    }
}

impl<const SEALED: bool> Deployment for Clustered<SEALED> {
    fn start() -> Self {
        Self::of(Used::Shared(cluster::shared_if(SEALED)))
    }

    fn start_alone() -> Self {
        let shape = if SEALED { cluster::Shape::USUAL.sealed(Flaw::None) } else { cluster::Shape::USUAL };
        Self::of(Used::Alone(Box::new(Cluster::of(shape))))
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

    /// Looks for channels at all nodes: a client may listen at any of them, also at a replica.
    fn leftovers(&self) -> Vec<String> {
        let kept = self.cluster.masters().into_iter().flat_map(|master| self.cluster.nodes[master].keys());
        let channels = self.cluster.nodes.iter().flat_map(|node| [node.channels(), node.sharded_channels()].concat());
        kept.chain(channels).filter(|left| left.contains(&self.tag) && !stays(left)).collect()
    }
}

impl<const SEALED: bool> Drop for Clustered<SEALED> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_nothing_left(&self.tag, &self.cluster.nodes.iter().collect::<Vec<_>>(), || self.leftovers());
        }
    }
}
