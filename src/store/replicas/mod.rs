//! A master and its replicas, given by their addresses: the master is who says alone that it is one (docs/protocol.md, 10).
//!
//! | file | has |
//! | --- | --- |
//! | `urls` | the nodes, and what is wrong with a list of them |
//! | `poll` | what all of them said, and who is to be followed by it |

mod poll;
mod urls;

use super::link::Link;
use super::moving::{FIRST_PAUSE, Guide, Moving, Watch};
use super::{Common, Store};
use crate::base::error;
use crate::base::say::say;
use crate::base::time::Clock;
use crate::store::node::{Bell, Failure, Purpose, Server, Target, says_master};
use poll::{Node, Poll, Role};
use redis::{RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// # Errors
/// `Config` for a URL that is not understood, and for some that do not go together.
pub(super) fn open(urls: &[&str], common: &Common) -> error::Result<Arc<dyn Store>> {
    let replicas = Replicas { targets: urls::parse(urls)? };
    let poll = Poll::new(replicas.identity());
    Ok(Arc::new(Moving::new(replicas, poll, common)))
}

/// All nodes, in the order of their URLs.
struct Replicas {
    targets: Vec<Target>,
}

/// A node that is asked.
struct Asked {
    index: usize,
    server: Server,
}

impl Guide for Replicas {
    type Council = Poll;
    type Asked = Asked;
    type Word = Role;

    const THREAD: &'static str = "redlatch-replicas";

    fn name(&self) -> String {
        self.address()
    }

    fn address(&self) -> String {
        self.identity().join(",")
    }

    fn identity(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.to_string()).collect()
    }

    /// All nodes have the same.
    fn database(&self) -> i64 {
        self.targets[0].login.db()
    }

    fn asked(&self, common: &Common) -> Vec<Asked> {
        let server = |target: &Target| {
            Server::new(target.used_as(Purpose::Candidate), &common.config, Arc::clone(&common.counters))
        };
        self.targets.iter().enumerate().map(|(index, target)| Asked { index, server: server(target) }).collect()
    }

    fn target(&self, node: &Node) -> Target {
        self.targets[node.index].used_as(Purpose::Master)
    }

    fn session(watch: &Arc<Watch<Self>>, asked: &Asked, bell: &Bell, pause: &mut Duration) -> Result<(), Failure> {
        let failed = |error| asked.server.unsent(&error);
        let asks = || watch.tell(|poll| poll.asks(asked.index, Clock::Boot.now()));
        asks();
        let (mut link, mut patience) = (Link::open(&asked.server).map_err(failed)?, FIRST_PAUSE);
        let question = redis::cmd("ROLE").get_packed_command();
        while !watch.is_closed() {
            asks();
            let role = link.exchange(&question, 1).and_then(role_in).map_err(failed)?;
            *pause = FIRST_PAUSE;
            watch.note(asked, Ok(role));
            let until = watch.tell(|poll| poll.until(Clock::Boot.now(), &mut patience));
            link.wait(bell, until).map_err(failed)?;
        }
        Ok(())
    }

    fn note(&self, poll: &mut Poll, asked: &Asked, said: Result<Role, Failure>, _: &Common) -> Vec<Asked> {
        if let Err(failure) = &said {
            say!(debug, "{} does not say whether it is the master: {failure:?}", asked.server.address());
        }
        poll.note(asked.index, said, Clock::Boot.now());
        Vec::new()
    }
}

fn role_in(said: Vec<Value>) -> Result<Role, RedisError> {
    let role = said.into_iter().next().unwrap_or(Value::Nil).extract_error()?;
    Ok(if says_master(&role)? { Role::Master } else { Role::Replica })
}
