//! A server of a trial: its own, or a node of a cluster that serves many trials.

use harness::cluster::Cluster;
use harness::reaper;
use harness::server::{Server, stays};
use redis::{FromRedisValue, RedisResult};
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

pub(crate) struct Machine {
    body: Body,
    is_up: bool,
}

enum Body {
    Own(Box<Server>),
    /// The number of a node, and what the trial's keys begin with.
    Node(Arc<RwLock<Cluster>>, usize, String),
}

impl Machine {
    pub(crate) fn own(server: Server) -> Self {
        reaper::watch(server.pid());
        reaper::tidy(server.socket().parent().expect("its folder"));
        Self { body: Body::Own(Box::new(server)), is_up: true }
    }

    pub(crate) fn node(cluster: &Arc<RwLock<Cluster>>, number: usize, prefix: &str) -> Self {
        Self { body: Body::Node(Arc::clone(cluster), number, prefix.to_owned()), is_up: true }
    }

    /// A server that was killed answers nothing.
    pub(crate) fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        if !self.is_up {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
        }
        match &self.body {
            Body::Own(server) => server.try_ask(words),
            Body::Node(cluster, number, _) => {
                let node = &cluster.read().unwrap().nodes[*number];
                // A node is asked for a second. One that stands still may do later what it was asked.
                while node.try_ask::<String>(&["PING"]).is_err_and(|error| error.is_timeout()) {}
                node.try_ask(words)
            }
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        match &self.body {
            Body::Own(server) => server.socket(),
            Body::Node(cluster, number, _) => cluster.read().unwrap().nodes[*number].socket(),
        }
    }

    /// The port at which other servers find it.
    pub(crate) fn port(&self) -> u16 {
        match &self.body {
            Body::Own(server) => server.port(),
            Body::Node(cluster, number, _) => cluster.read().unwrap().nodes[*number].known_as(),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        let pid = || match &self.body {
            Body::Own(server) => server.pid(),
            Body::Node(cluster, number, _) => cluster.read().unwrap().nodes[*number].pid(),
        };
        self.is_up.then(pid)
    }

    pub(crate) fn freeze(&self) {
        match &self.body {
            _ if !self.is_up => {}
            Body::Own(server) => server.freeze(),
            Body::Node(cluster, number, _) => cluster.read().unwrap().nodes[*number].freeze(),
        }
    }

    pub(crate) fn thaw(&self) {
        match &self.body {
            _ if !self.is_up => {}
            Body::Own(server) => server.thaw(),
            Body::Node(cluster, number, _) => cluster.read().unwrap().nodes[*number].thaw(),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.pid().into_iter().for_each(reaper::forget);
        match &mut self.body {
            _ if !self.is_up => {}
            Body::Own(server) => server.kill(),
            Body::Node(cluster, number, _) => cluster.write().unwrap().nodes[*number].kill(),
        }
        self.is_up = false;
    }

    pub(crate) fn restart(&mut self) {
        match &mut self.body {
            _ if self.is_up => {}
            Body::Own(server) => server.restart(),
            Body::Node(cluster, number, _) => cluster.write().unwrap().nodes[*number].restart(),
        }
        self.is_up = true;
        self.pid().into_iter().for_each(reaper::watch);
    }

    /// A server of this trial alone ends with it.
    pub(crate) fn end(&mut self) {
        if self.is_up && matches!(self.body, Body::Own(_)) {
            self.kill();
        }
    }

    /// What is left of the trial, but for what stays by design. Keys are told without their beginning.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        match &self.body {
            Body::Own(server) => server.leftovers(),
            Body::Node(_, _, prefix) => {
                let keys: Vec<String> = self.try_ask(&["KEYS", &format!("*{prefix}*")]).unwrap_or_default();
                let keys = keys.into_iter().filter(|key| !stays(key));
                keys.map(|key| key.replace(prefix, "")).collect()
            }
        }
    }
}
