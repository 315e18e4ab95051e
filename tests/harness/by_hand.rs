//! The harness's groups without sentinels: who replaces the master does it by hand.

use crate::sentinel::{Group, Member, Shape};
use redlatch::{Client, ClientBuilder};

impl Group {
    pub fn without_sentinels() -> Self {
        Self::of(Shape { sentinels: 0, ..Shape::USUAL })
    }

    /// A client that is given the addresses of all nodes, this one first.
    pub fn by_address(&self, first: usize) -> ClientBuilder {
        let others = self.nodes.iter().enumerate().filter(|(number, _)| *number != first);
        Client::builder(&self.nodes[first].url()).replicas(others.map(|(_, node)| node.url()))
    }
}

impl Member {
    pub fn promote(&self) {
        self.ask::<String>(&["REPLICAOF", "NO", "ONE"]);
    }

    pub fn demote(&self, master: &Member) {
        self.ask::<String>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    }
}
