//! What comes to a group when it has clients already, and what moves.

use super::{Group, Member};
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

    /// Whether it does what it is told to write, as a master does also if nobody follows it.
    pub fn takes_writes(&self) -> bool {
        self.try_ask::<String>(&["SET", "written", "by hand", "PX", "1"]).is_ok()
    }

    /// The counts in a lock's hash, one for each owner.
    pub fn counts(&self, key: &str) -> Vec<i64> {
        self.ask(&["HVALS", key])
    }
}
