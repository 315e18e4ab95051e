//! A connection on which a server is asked where masters are.

use crate::base::time::{Clock, Moment};
use crate::store::node::{Bell, Server, Stream};
use redis::{PushKind, RedisError, Value};
use std::time::Duration;

pub(super) struct Link {
    stream: Stream,
    response_timeout: Duration,
}

impl Link {
    /// Connects, within the connect time-out.
    pub(super) fn open(server: &Server) -> Result<Self, RedisError> {
        let stream = server.connect(Moment::MAX)?.stream;
        Ok(Self { stream, response_timeout: server.response_timeout() })
    }

    /// Sends commands and reads this number of answers, all in one response time-out.
    pub(super) fn exchange(&mut self, packed: &[u8], answers: usize) -> Result<Vec<Value>, RedisError> {
        let now = Clock::Boot.now();
        self.stream.ends_by(now.plus(self.response_timeout), now);
        self.stream.send(packed)?;
        (0..answers).map(|_| self.stream.answer()).collect()
    }

    /// Waits until the server sends a message, the bell rings, or the time is up.
    pub(super) fn wait(&mut self, bell: &Bell, until: Moment) -> Result<(), RedisError> {
        self.stream.ends_by(until, Clock::Boot.now());
        loop {
            match self.stream.next_unless_rung(bell)? {
                Some(Value::Push { kind, .. }) if kind != PushKind::Message => {}
                _ => return Ok(()),
            }
        }
    }
}
