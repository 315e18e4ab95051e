//! The harness's groups without sentinels: a test replaces the master by hand.

use crate::papers::sealed_if;
use crate::sentinel::{Group, Member, Shape};
use redlatch::{Client, ClientBuilder};

/// Only a test replaces its master, by hand.
pub const WITHOUT_SENTINELS: Shape = Shape { sentinels: 0, ..Shape::USUAL };

impl Group {
    pub fn without_sentinels() -> Self {
        Self::of(WITHOUT_SENTINELS)
    }

    /// A client that is given the addresses of all nodes, this one first.
    pub fn by_address(&self, first: usize) -> ClientBuilder {
        let others = self.nodes.iter().enumerate().filter(|(number, _)| *number != first);
        let builder = Client::builder(&self.nodes[first].url()).replicas(others.map(|(_, node)| node.url()));
        sealed_if(self.shape.is_sealed(), builder)
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
