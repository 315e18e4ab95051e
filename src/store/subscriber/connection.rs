//! The subscriber's connection: what it sends, and what the server answers or says unasked.

use super::Shared;
use crate::base::script::Dialect;
use crate::base::time::Moment;
use crate::store::node::{Backend, Bell, Stream};
use redis::{RedisError, ServerError, Value};
use std::sync::Arc;

/// The connection in subscribed mode.
pub(super) struct Connection<'a> {
    shared: &'a Shared,
    pub(super) node: &'a Arc<Backend>,
    stream: Stream,
    bell: &'a Bell,
}

impl<'a> Connection<'a> {
    pub(super) fn open(shared: &'a Shared, node: &'a Arc<Backend>) -> Result<Self, RedisError> {
        let stream = node.server().connect(Moment::MAX)?.stream;
        Ok(Self { shared, node, stream, bell: shared.bell()? })
    }

    /// Subscribes a channel. Returns the server's refusal, if it refuses.
    pub(super) fn subscribe(&mut self, channel: &str) -> Result<Option<ServerError>, RedisError> {
        let command = if self.shared.dialect == Dialect::Sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        match self.command(command, Some(channel))? {
            Value::ServerError(error) => Ok(Some(error)),
            _ => Ok(None),
        }
    }

    pub(super) fn unsubscribe(&mut self, channel: &str) -> Result<(), RedisError> {
        let command = if self.shared.dialect == Dialect::Sharded { LEAVE_SHARD } else { "UNSUBSCRIBE" };
        self.command(command, Some(channel)).map(drop)
    }

    /// Sends a command and delivers the messages that come before its reply.
    pub(super) fn command(&mut self, name: &str, arg: Option<&str>) -> Result<Value, RedisError> {
        let now = self.shared.clock.now();
        self.stream.ends_by(now.plus(self.node.server().response_timeout()), now);
        self.stream.send(&redis::cmd(name).arg(arg).get_packed_command())?;
        loop {
            let reply = self.stream.next()?;
            match Told::of(&reply) {
                Some(Told::Left(left)) if name == LEAVE_SHARD && arg == Some(left) => return Ok(reply),
                Some(told) => self.shared.deliver(self.node, told)?,
                None => return Ok(reply),
            }
        }
    }

    /// Delivers the next message; false if none came by `until`, or the bell rang.
    pub(super) fn next(&mut self, until: Moment) -> Result<bool, RedisError> {
        self.stream.ends_by(until, self.shared.clock.now());
        let next = self.stream.next_unless_rung(self.bell)?;
        if let Some(told) = next.as_ref().and_then(Told::of) {
            self.shared.deliver(self.node, told)?;
        }
        Ok(next.is_some())
    }
}

const LEAVE_SHARD: &str = "SUNSUBSCRIBE";

/// What a server says unasked.
pub(super) enum Told<'a> {
    /// The channel and the payload of a message.
    Message(&'a str, &'a [u8]),
    /// The channel's slot has left the node. The answer to an unsubscription reads the same.
    Left(&'a str),
}

impl<'a> Told<'a> {
    fn of(said: &'a Value) -> Option<Self> {
        let Value::Array(words) = said else { return None };
        let [Value::BulkString(kind), Value::BulkString(channel), rest] = words.as_slice() else { return None };
        let channel = std::str::from_utf8(channel).ok()?;
        match (kind.as_slice(), rest) {
            (b"message" | b"smessage", Value::BulkString(payload)) => Some(Self::Message(channel, payload)),
            (b"sunsubscribe", _) => Some(Self::Left(channel)),
            _ => None,
        }
    }
}

/// Whether the server says that the channel's slot is at another node, or at none for the moment.
pub(super) fn is_elsewhere(error: &ServerError) -> bool {
    matches!(error.code(), "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN")
}
