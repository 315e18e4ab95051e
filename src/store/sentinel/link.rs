//! A connection to one sentinel: it is asked on it where the master is, and tells on it when that changes.

use crate::base::config::AddressMap;
use crate::base::error::{Applied, Cause};
use crate::base::say::say;
use crate::base::time::{Clock, Moment};
use crate::store::host_port::HostPort;
use crate::store::link;
use crate::store::node::{Bell, Failure, Server};
use redis::{Cmd, RedisError, Value};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

/// What sentinels publish on when they replace a master. The leader says it on the last one when it is done, a second after
/// the promotion; the others as soon as they hear of the promotion, of which the leader tells its own subscribers on the first.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// So often a sentinel is asked again that changes its mind in the middle of its answer.
const ASKS: usize = 3;

/// The master, and the epoch since which it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) epoch: u64,
    pub(super) master: HostPort,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.master.fmt(f)
    }
}

/// What a sentinel says of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// When it was asked.
    pub(super) asked: Moment,
    pub(super) named: Named,
    /// The sentinels that it knows besides itself.
    pub(super) others: Vec<HostPort>,
}

impl Word {
    /// The same, as the addresses are reached from here.
    pub(super) fn mapped(self, map: &AddressMap) -> Self {
        let others = self.others.into_iter().map(|other| other.mapped(map)).collect();
        let named = Named { epoch: self.named.epoch, master: self.named.master.mapped(map) };
        Self { asked: self.asked, named, others }
    }
}

pub(super) struct Link<'a> {
    server: &'a Server,
    link: link::Link,
}

impl<'a> Link<'a> {
    /// Connects and subscribes. A sentinel that does not let us listen is asked from time to time.
    pub(super) fn open(server: &'a Server, refused: &Cell<bool>) -> Result<Self, Failure> {
        let failed = |error: RedisError| failure(server, &error);
        let mut link = link::Link::open(server).map_err(failed)?;
        let mut subscribe = redis::cmd("SUBSCRIBE");
        // It is confirmed by what a sentinel tells unasked, so the answer to a second command shows that there was no error. That is
        // one which is refused to nobody: its own refusal would be taken for the answer to the first.
        let packed =
            [subscribe.arg(&CHANNELS).get_packed_command(), redis::cmd("HELLO").arg(3).get_packed_command()].concat();
        let said = link.exchange(&packed, 1).map_err(failed)?;
        if let Some(Value::ServerError(error)) = said.first() {
            link.exchange(&[], 1).map_err(failed)?;
            if !refused.replace(true) {
                say!(warn, "sentinel {} does not let this client listen, so it is polled: {error}", server.address());
            }
        }
        Ok(Self { server, link })
    }

    /// Asks where the master is.
    pub(super) fn ask(&mut self, name: &str) -> Result<Word, Failure> {
        for _ in 0..ASKS {
            let asked = Clock::Boot.now();
            let said = self.link.exchange(&question(name), QUESTIONS).map_err(|error| failure(self.server, &error))?;
            if let Some(word) = understood(said, asked).map_err(|error| failure(self.server, &error))? {
                return Ok(word);
            }
        }
        Err(refused(self.server, "ERR", "it does not say twice where the master is"))
    }

    /// Waits until it tells something, the bell rings, or it is time.
    pub(super) fn wait(&mut self, bell: &Bell, until: Moment) -> Result<(), Failure> {
        self.link.wait(bell, until).map_err(|error| failure(self.server, &error))
    }
}

/// Nothing that was asked of a sentinel changes anything.
fn failure(server: &Server, error: &RedisError) -> Failure {
    let detail = error.detail().unwrap_or_default();
    match error.code() {
        Some("ERR") if detail.starts_with("No such master") => refused(server, NO_MASTER, detail),
        Some("ERR") if detail.starts_with("unknown command") => refused(server, "ERR", "it is not a sentinel"),
        Some(code @ ("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
            let own = "its own are sentinel_username and sentinel_password in the URL";
            refused(server, code, &format!("{detail} ({own}){}", server.advice_on(error)))
        }
        Some(code) => refused(server, code, detail),
        None => server.unsent(error),
    }
}

fn refused(server: &Server, code: &str, what: &str) -> Failure {
    let cause = Cause::new(format!("sentinel {}: {what}", server.address()));
    Failure::Refused { code: code.to_owned(), applied: Applied::No, cause }
}

/// The code of the refusal of a sentinel that does not know the master's name. It has none of its own.
pub(super) const NO_MASTER: &str = "NOMASTER";

const QUESTIONS: usize = 4;

/// During a failover its leader tells in `SENTINEL MASTER` the new epoch beside the *old* address, for a second or two: it is
/// where it goes on from. Where the master is says the other command. So the epoch is asked for before and after it: if both
/// are the same, the address belongs to it.
fn question(name: &str) -> Vec<u8> {
    let about = |what: &str| redis::cmd("SENTINEL").arg(what).arg(name).take();
    let commands = [about("MASTER"), about("GET-MASTER-ADDR-BY-NAME"), about("MASTER"), about("SENTINELS")];
    commands.iter().flat_map(Cmd::get_packed_command).collect()
}

/// `None`: it changed its mind meanwhile.
fn understood(said: Vec<Value>, asked: Moment) -> Result<Option<Word>, RedisError> {
    let [before, master, after, others] = <[Value; QUESTIONS]>::try_from(said)
        .map_err(|_| RedisError::from((redis::ErrorKind::UnexpectedReturnType, "too few answers")))?;
    let (before, after) = (epoch_in(before)?, epoch_in(after)?);
    let (host, port): (String, u16) = redis::from_redis_value(master.extract_error()?)?;
    let named = Named { epoch: after, master: HostPort { host, port } };
    let word = || Word { asked, named, others: addresses_in(others) };
    Ok((before == after).then(word))
}

fn epoch_in(master: Value) -> Result<u64, RedisError> {
    let fields: HashMap<String, String> = redis::from_redis_value(master.extract_error()?)?;
    let missing =
        || RedisError::from((redis::ErrorKind::UnexpectedReturnType, "SENTINEL MASTER gives no config-epoch"));
    fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).ok_or_else(missing)
}

/// None, if this user may not ask for them.
fn addresses_in(others: Value) -> Vec<HostPort> {
    let others: Vec<HashMap<String, String>> = redis::from_redis_value(others).unwrap_or_default();
    let address = |fields: HashMap<String, String>| {
        let port = fields.get("port")?.parse().ok().filter(|port| *port != 0)?;
        Some(HostPort { host: fields.get("ip").filter(|host| !host.is_empty())?.clone(), port })
    };
    others.into_iter().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(epoch: u64) -> Value {
        let pairs = [("name", "m".to_owned()), ("config-epoch", epoch.to_string())];
        Value::Map(pairs.into_iter().map(|(key, value)| (text(key), text(&value))).collect())
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn address(host: &str, port: &str) -> Value {
        Value::Array(vec![text(host), text(port)])
    }

    #[test]
    fn every_address_of_a_word_is_mapped() {
        let address = |host: &str| HostPort { host: host.to_owned(), port: 1 };
        let named = Named { epoch: 3, master: address("a") };
        let word = Word { asked: Moment(0), named, others: vec![address("b")] };
        let map = AddressMap::new(|host, port| (format!("{host}.outside"), port + 1));
        let mapped = word.clone().mapped(&map);
        assert_eq!((mapped.named.epoch, mapped.named.to_string().as_str()), (3, "a.outside:2"));
        assert_eq!(mapped.others[0].to_string(), "b.outside:2");
        assert_eq!(word.clone().mapped(&AddressMap::default()), word);
    }

    #[test]
    fn an_address_belongs_to_an_epoch_that_is_the_same_before_and_after() {
        let others = Value::Array(vec![
            Value::Map(vec![(text("ip"), text("::1")), (text("port"), text("7"))]),
            Value::Map(vec![(text("ip"), text("")), (text("port"), text("7"))]),
            Value::Map(vec![(text("ip"), text("h")), (text("port"), text("0"))]),
        ]);
        let said = |before, after| vec![master(before), address("h", "1"), master(after), others.clone()];
        let word = understood(said(3, 3), Moment(0)).unwrap().unwrap();
        assert_eq!((word.named.epoch, word.named.to_string().as_str()), (3, "h:1"));
        assert_eq!(word.others.iter().map(HostPort::to_string).collect::<Vec<_>>(), ["[::1]:7"]);
        assert_eq!(understood(said(3, 4), Moment(0)).unwrap(), None);
        assert!(understood(vec![master(3)], Moment(0)).is_err());
        assert!(understood(vec![text(""), address("h", "1"), master(3), others.clone()], Moment(0)).is_err());
    }
}
