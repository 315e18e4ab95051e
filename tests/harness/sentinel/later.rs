//! What comes to a group when it has clients already, and what moves.

use super::{FAILOVER_TIMEOUT, Group, Member, NAME};
use crate::threads::{LONG, eventually};
use redlatch::{Client, ClientBuilder};

impl Group {
    /// Starts another replica of a master, of which nobody was told; its number.
    pub fn add_replica(&mut self, master: usize) -> usize {
        let number = self.nodes.len();
        let mut node = Member::new(&self.dir, format!("node-{number}"), &[]);
        node.configure(&node.file_of(Some(self.nodes[master].known_as())));
        node.restart();
        eventually(LONG, "the replica is linked", || node.is_linked());
        self.nodes.push(node);
        number
    }

    /// Starts another sentinel, which was told of the first node alone and of which nobody was told; its number.
    pub fn add_sentinel(&mut self) -> usize {
        let number = self.sentinels.len();
        let mut sentinel = Member::new(&self.dir, format!("sentinel-{number}"), &["--sentinel"]);
        sentinel.configure(&self.first_file_of(number));
        sentinel.restart();
        self.sentinels.push(sentinel);
        number
    }

    /// Moves the master by hand: all sentinels forget the group, the other nodes that run follow this one, and the sentinels are told of it
    /// as of a new group. Their config-epoch of it is 0 then.
    pub fn set_anew(&self, master: usize) {
        let port = self.nodes[master].known_as().to_string();
        self.sentinels.iter().for_each(|sentinel| drop(sentinel.ask::<String>(&["SENTINEL", "REMOVE", NAME])));
        let _: String = self.nodes[master].ask(&["REPLICAOF", "NO", "ONE"]);
        let others = self.nodes.iter().enumerate().filter(|(at, node)| *at != master && node.child.is_some());
        others.for_each(|(_, node)| drop(node.ask::<String>(&["REPLICAOF", "127.0.0.1", &port])));
        self.sentinels.iter().for_each(|sentinel| self.have_monitored(sentinel, &port));
    }

    fn have_monitored(&self, sentinel: &Member, port: &str) {
        let (quorum, down) = (self.shape.majority().to_string(), self.shape.down_after.as_millis().to_string());
        let _: String = sentinel.ask(&["SENTINEL", "MONITOR", NAME, "127.0.0.1", port, &quorum]);
        let failover = FAILOVER_TIMEOUT.as_millis().to_string();
        let settings = ["down-after-milliseconds", &down, "failover-timeout", &failover];
        let _: String = sentinel.ask(&[&["SENTINEL", "SET", NAME], &settings[..]].concat());
    }

    /// Waits until all replicas of a master confirm what it has. One that has just been linked has all of it, and may not hear
    /// of more yet: so they do it twice.
    #[track_caller]
    pub fn confirmed(&self, master: usize) {
        let replicas = self.nodes.len() - 1;
        let confirm = || {
            let node = &self.nodes[master];
            node.takes_writes() && node.ask::<usize>(&["WAIT", &replicas.to_string(), "100"]) == replicas
        };
        (0..2).for_each(|_| eventually(LONG, "all confirm it", confirm));
    }

    /// A client that reaches each node by its own port, whatever sentinels name.
    pub fn builder_past_proxies(&self) -> ClientBuilder {
        let ways = self.ways();
        let own = move |port| ways.iter().find(|(named, _)| *named == port).map_or(port, |&(_, own)| own);
        Client::builder(&self.url()).map_address(move |host, port| (host.to_owned(), own(port)))
    }
}

impl Member {
    /// It ends, and starts again with the same port of another host.
    pub fn move_to(&mut self, host: &'static str) {
        self.kill();
        let text = std::fs::read_to_string(self.file()).unwrap();
        let moved =
            text.lines().map(|line| if line.starts_with("bind ") { format!("bind {host}") } else { line.to_owned() });
        std::fs::write(self.file(), moved.collect::<Vec<_>>().join("\n")).unwrap();
        self.host = host;
        self.restart();
    }

    /// It starts again as a replica of the node that others know by this port.
    pub fn come_back(&mut self, master: u16) {
        self.configure(&self.file_of(Some(master)));
        self.restart();
    }

    /// Whether it does what it is told to write, as a master does also if nobody follows it.
    pub fn takes_writes(&self) -> bool {
        self.try_ask::<String>(&["SET", "written", "by hand", "PX", "1"]).is_ok()
    }

    /// The counts in a lock's hash, one for each owner.
    pub fn counts(&self, key: &str) -> Vec<i64> {
        self.ask(&["HVALS", key])
    }
}
