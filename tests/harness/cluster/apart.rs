//! Clusters whose nodes can be cut off from each other while clients still reach them.

use super::Cluster;
use crate::member::BUS;
use crate::proxy::{Address, Gate, Proxy, Step, pass};
use crate::sentinel::Cut;
use redlatch::{Client, ClientBuilder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Which nodes are cut off now, and how.
#[derive(Clone, Default)]
pub struct Links(Arc<Mutex<BTreeMap<usize, (Cut, Gate)>>>);

impl Links {
    /// What becomes of data on a connection between two nodes.
    fn steps(&self, ends: [usize; 2], data: &[u8]) -> Vec<Step> {
        let cuts = self.0.lock().unwrap();
        match ends.iter().find_map(|end| cuts.get(end)) {
            None => pass(data),
            Some((Cut::Hard, _)) => vec![Step::Cut],
            Some((Cut::Silent, gate)) => [vec![Step::Hold(gate.clone())], pass(data)].into_iter().flatten().collect(),
        }
    }
}

impl Cluster {
    /// From now on the other nodes know the last node by ports of proxies, which are theirs alone. Each node connects from an
    /// address of its own, by which the proxies know it.
    pub(super) fn stand_apart(&mut self) {
        let number = self.nodes.len() - 1;
        let node = &mut self.nodes[number];
        let bus = Proxy::on_tcp_by_client(Address::Port(node.port() + BUS));
        let data = Proxy::on_tcp_by_client(Address::Path(node.socket()));
        for proxy in [&bus, &data] {
            let links = self.links.clone();
            proxy.set(move |from, _, data| links.steps([from, number], data));
        }
        node.between = Some(data);
        self.buses.push(bus);
    }

    /// What is in a node's file of how others know it and it knows them. Servers before Redis 7.0 connect from the first
    /// address that they listen at.
    pub(super) fn announced(&self, node: usize) -> String {
        let Some(bus) = self.buses.get(node).map(Proxy::port) else { return String::new() };
        let (port, own) = (self.nodes[node].known_as(), format!("127.0.0.{}", node + 2));
        let source =
            if self.version() < (7, 0) { format!("bind {own} 127.0.0.1") } else { format!("bind-source-addr {own}") };
        format!("cluster-announce-port {port}\ncluster-announce-bus-port {bus}\n{source}\n")
    }

    /// No other node reaches it, and it reaches none, until the gate is opened and [`join`](Self::join) is called; clients
    /// do.
    pub fn cut_off(&self, node: usize, cut: Cut, gate: &Gate) {
        assert!(!self.buses.is_empty(), "a cluster of the shape APART");
        self.links.0.lock().unwrap().insert(node, (cut, gate.clone()));
    }

    /// Whoever sends from now on reaches it.
    pub fn join(&self, node: usize) {
        self.links.0.lock().unwrap().remove(&node);
    }

    /// How clients reach each node: the port that nodes name, and its own.
    pub fn ways(&self) -> Vec<(u16, u16)> {
        self.nodes.iter().map(|node| (node.known_as(), node.port())).collect()
    }

    /// A client that reaches each node by its own port, whatever nodes name.
    pub fn builder_past_proxies(&self) -> ClientBuilder {
        let ways = self.ways();
        let own = move |port| ways.iter().find(|(named, _)| *named == port).map_or(port, |&(_, own)| own);
        Client::builder(&self.url()).map_address(move |host, port| (host.to_owned(), own(port)))
    }
}
