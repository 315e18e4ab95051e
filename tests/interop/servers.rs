//! Where the locks of a case are: one server, or a cluster.

use crate::cluster::{self, Cluster, Shape};
use crate::deployment::Used;
use crate::server::{self, GONE, Server, stays};
use crate::setting::Family;
use crate::threads::eventually;
use redis::FromRedisValue;

/// A server, and a cluster beside it for the families that need one: then only the news of processes are on the server.
pub(crate) struct Servers {
    pub(crate) news: Used<Server>,
    pub(crate) cluster: Option<Used<Cluster>>,
}

/// The file beside the server's socket that tells other processes where the locks are.
const WHERE: &str = "where";

impl Servers {
    /// Those of all cases, which leave them as they are.
    pub(crate) fn start(family: Family) -> Self {
        Self::with(family.is_in_cluster().then(|| Used::Shared(cluster::shared())))
    }

    /// With a cluster of its own, whose masters may be replaced.
    pub(crate) fn start_alone() -> Self {
        Self::with(Some(Used::Alone(Box::new(Cluster::of(Shape::STEADY)))))
    }

    fn with(cluster: Option<Used<Cluster>>) -> Self {
        let servers = Self { news: Used::Shared(server::shared()), cluster };
        // What a case before it left by design.
        servers.news.clear();
        std::fs::write(servers.news.socket().with_file_name(WHERE), servers.url()).unwrap();
        servers
    }

    /// What a Rust program is given to find the locks.
    pub(crate) fn url(&self) -> String {
        self.cluster.as_ref().map_or_else(|| self.news.url(), |cluster| cluster.url())
    }

    /// The same for a process that knows the server of the news alone.
    pub(crate) fn url_beside(news: &str) -> String {
        std::fs::read_to_string(std::path::Path::new(news.trim_start_matches("unix://")).with_file_name(WHERE)).unwrap()
    }

    /// What the Java program is given: host and port, of all nodes of a cluster.
    pub(crate) fn addresses(&self) -> String {
        let url = self.cluster.as_ref().map_or_else(|| self.news.tcp_url(), |cluster| cluster.url());
        url.split_once("://").expect("a URL").1.trim_end_matches('/').to_owned()
    }

    /// Runs a command where a key is.
    pub(crate) fn ask<T: FromRedisValue>(&self, key: &str, words: &[&str]) -> T {
        match &self.cluster {
            None => self.news.ask(words),
            Some(cluster) => cluster.nodes[cluster.master_of(key)].ask(words),
        }
    }

    /// What is left of a key's time, in ms; -1: no end; -2: no key.
    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.ask(key, &["PTTL", key])
    }

    /// The count of the one owner of a lock.
    pub(crate) fn owner(&self, key: &str) -> (String, i64) {
        let mut fields: Vec<(String, String)> = self.ask(key, &["HGETALL", key]);
        fields.retain(|(field, _)| field != "mode");
        let [(owner, count)] = <[_; 1]>::try_from(fields).expect("one owner");
        (owner, count.parse().unwrap())
    }

    /// How many connections are subscribed to a channel, in either way.
    pub(crate) fn subscribers(&self, channel: &str) -> i64 {
        let Some(cluster) = &self.cluster else { return self.news.subscribers(channel) };
        (0..cluster.nodes.len()).map(|node| self.subscribers_at(node, channel)).sum()
    }

    /// The same at one node of the cluster.
    pub(crate) fn subscribers_at(&self, node: usize, channel: &str) -> i64 {
        let node = &self.cluster.as_ref().expect("there is one").nodes[node];
        node.subscribers(channel) + node.sharded_subscribers(channel)
    }

    /// Whether a waiter listens to a lock's channel, or to that of a thread which a fair lock has besides.
    pub(crate) fn is_heard(&self, channel: &str) -> bool {
        let of_threads = [channel, ":"].concat();
        self.subscribers(channel) == 1 || self.channels().iter().any(|heard| heard.starts_with(&of_threads))
    }

    /// The channels that somebody listens to.
    fn channels(&self) -> Vec<String> {
        let nodes = self.cluster.iter().flat_map(|cluster| &cluster.nodes);
        let of_cluster = nodes.flat_map(|node| [node.channels(), node.sharded_channels()].concat());
        of_cluster.chain(self.news.ask::<Vec<_>>(&["PUBSUB", "CHANNELS"])).collect()
    }

    /// How many scripts were run, by all clients.
    pub(crate) fn scripts_run(&self) -> u64 {
        let stats = ["INFO", "commandstats"];
        match &self.cluster {
            None => scripts_in(&self.news.ask::<String>(&stats)),
            Some(cluster) => cluster.nodes.iter().map(|node| scripts_in(&node.ask::<String>(&stats))).sum(),
        }
    }

    fn leftovers(&self) -> Vec<String> {
        let of_node = |node: &crate::member::Member| [node.keys(), node.channels(), node.sharded_channels()].concat();
        let nodes = self.cluster.iter().flat_map(|cluster| &cluster.nodes);
        // Redisson's own: its unlock script makes it with a TTL, and deletes it once it is answered. An unlock that is sent again in a
        // failover leaves it until that TTL.
        let is_latch = |left: &String| left.starts_with("redisson_unlock_latch:");
        let left = nodes.flat_map(of_node).filter(|left| !stays(left) && !is_latch(left));
        left.chain(self.news.leftovers()).collect()
    }
}

fn scripts_in(stats: &str) -> u64 {
    let of_scripts = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    of_scripts.map(|line| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

impl Drop for Servers {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            eventually(GONE, "no key and no subscription is left", || self.leftovers().is_empty());
        }
    }
}
