//! One connection to a server. It is dropped as soon as its state is in doubt.

use super::resp::{self, Known};
use super::server::{Greeted, Server};
use super::stream::{Stream, stray};
use super::{Answer, Confirmed, Failure, GRACE, Limits, Reply, Request, Verb};
use crate::base::config::SyncReplicas;
use crate::base::lives::Life;
use crate::base::mutant::{self, Mutant};
use crate::base::script::{Dialect, Form, Script};
use crate::base::time::{Clock, Moment};
use redis::{RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// A slot for one connection. The connection is made at its first use, and dropped when its state is in doubt.
pub(crate) struct Wire {
    /// Shared, because the pool moves its slots about.
    pub(super) server: Arc<Server>,
    /// Boxed, because each exchange takes it out of the slot: a connection is some hundred bytes.
    live: Option<Box<Live>>,
    was_live: bool,
}

pub(super) struct Live {
    stream: Stream,
    /// The server's clock minus ours, in microseconds, taken when the server's time is *received*. It is too small by the time that
    /// the reply was on its way. So the server's deadline is never later than ours.
    offset: i128,
    run_id: String,
    pub(super) life: Life,
    dialect: Dialect,
    /// The buffer of the commands, kept so that sending allocates nothing.
    packed: Vec<u8>,
    /// Replies to WAIT that no call needed. They are read before the next command is sent.
    owed: usize,
    /// Whether the last request was written as a whole. A server runs whole commands, so it has not run one that was not.
    is_sent: bool,
    /// The scripts that this connection has sent whole: see [`is_new`](Self::is_new).
    told: Vec<(&'static Script, Form)>,
}

/// A buffer of more bytes is freed after its command: only a caller's own words make one that long.
const MOST_KEPT: usize = 64 << 10;

/// One attempt's points in time.
pub(super) struct Schedule {
    pub(super) sent: Moment,
    patience: Duration,
    pub(super) deadline: Moment,
}

impl Schedule {
    /// When the wait for the answer ends.
    fn ends(&self) -> Moment {
        self.sent.plus(self.patience)
    }
}

/// How sending a request once ended.
enum Once {
    Answered(Answer),
    /// Refused as too old, by an offset that is corrected now. The wait for its answer would have ended at `ends`.
    Stale {
        ends: Moment,
    },
}

impl Wire {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self { server, live: None, was_live: false }
    }

    /// Sends the request, and once more if the server found it too old although it was in time by our clock.
    /// Connecting ends at `connect_by`.
    pub(crate) fn attempt(
        &mut self,
        request: &Request<'_>,
        limits: Limits<'_>,
        connect_by: Moment,
    ) -> Result<Answer, Failure> {
        match self.once(request, limits, connect_by, None)? {
            Once::Answered(answer) => Ok(answer),
            Once::Stale { ends } => match self.once(request, limits, connect_by, Some(ends))? {
                Once::Answered(answer) => Ok(answer),
                Once::Stale { .. } => Err(Failure::Stale),
            },
        }
    }

    /// Puts a connection back that can be used again.
    pub(super) fn keep(&mut self, live: Box<Live>) {
        self.live = Some(live);
    }

    /// Connects, if it is not connected.
    pub(crate) fn warm(&mut self, connect_by: Moment) -> Result<(), Failure> {
        let live = self.take_live(connect_by)?;
        self.live = Some(live);
        Ok(())
    }

    /// The connection is out of its slot meanwhile, so a panic or an early return drops it. After a time-out its reply may still
    /// come, and the next request must never take that reply for its own.
    fn once(
        &mut self,
        request: &Request<'_>,
        limits: Limits<'_>,
        connect_by: Moment,
        ends: Option<Moment>,
    ) -> Result<Once, Failure> {
        let mut live = self.take_live(connect_by)?;
        let schedule = self.schedule(limits, ends);
        let said = live.send(request, &schedule, self.server.replicas);
        self.check_not_retired(live.life, &schedule)?;
        match said {
            Ok(reply) => {
                let (confirmed, life) = (self.confirm(&mut live, request, &reply, &schedule), live.life);
                self.live = Some(live).filter(|_| confirmed.as_ref().err().is_none_or(leaves_wire_clean));
                let confirmed = confirmed?;
                let late = mutant::is(Mutant::DeadlineFromReply);
                let sent = if late { self.server.clock.now() } else { schedule.sent };
                Ok(Once::Answered(Answer { reply, sent, confirmed, on_its_way: request.asking, life }))
            }
            Err(error) if error.code() == Some("STALE") => self.correct(live, &error, &schedule),
            Err(error) => {
                let failure = self.server.classify(&error, live.life, schedule.deadline);
                // A TLS session that breaks is no answer. Nor may be what no script of ours is refused with: the answer is still to come.
                let is_strange = !request.is_callers() && self.server.distrusts(&failure);
                let failure = match live.is_sent {
                    false => failure.never_sent(),
                    true if is_strange || error.code() == Some("TLS") => {
                        self.server.unanswered(&error, live.life, schedule.deadline)
                    }
                    true => failure,
                };
                self.live = Some(live).filter(|_| leaves_wire_clean(&failure));
                Err(failure)
            }
        }
    }

    /// Called after each answer was read: if the server was retired meanwhile, the answer is not believed.
    pub(super) fn check_not_retired(&self, life: Life, schedule: &Schedule) -> Result<(), Failure> {
        match self.server.is_retired() {
            true => Err(Failure::Unknown { open_until: schedule.deadline, life, broken: self.server.retired() }),
            false => Ok(()),
        }
    }

    /// If the reply grants something, waits for the replicas that have to confirm it. A reply that grants nothing is not kept waiting.
    fn confirm(
        &self,
        live: &mut Live,
        request: &Request<'_>,
        reply: &Reply,
        schedule: &Schedule,
    ) -> Result<Option<Confirmed>, Failure> {
        let required = self.server.replicas.filter(|_| request.grants.is_some_and(|grants| grants(reply)));
        let Some(required) = required.map(|required| required.count) else { return Ok(None) };
        let confirmed =
            live.confirmed().map_err(|error| self.server.unanswered(&error, live.life, schedule.deadline))?;
        self.check_not_retired(live.life, schedule)?;
        let is_enough = matches!(request.verb, Verb::Script(script) if mutant::needs_no_replicas(script.name()));
        match usize::try_from(confirmed) {
            Ok(confirmed) if confirmed >= required || is_enough => Ok(Some((confirmed, required))),
            _ => Err(self.server.unconfirmed(confirmed, required)),
        }
    }

    /// Corrects the offset by the server's time. The attempt may be repeated if it was in time by our clock.
    fn correct(&mut self, mut live: Box<Live>, error: &RedisError, schedule: &Schedule) -> Result<Once, Failure> {
        let received = self.server.clock.now();
        live.offset = offset(stale_micros(error), received);
        self.live = Some(live);
        let ends = schedule.ends();
        if received < schedule.deadline { Ok(Once::Stale { ends }) } else { Err(Failure::Stale) }
    }

    /// For a second attempt, `ends` is when the wait for the first would have ended: both share the time of one.
    pub(super) fn schedule(&self, limits: Limits<'_>, ends: Option<Moment>) -> Schedule {
        let sent = self.server.clock.now();
        let patience = match ends {
            None => limits.answer_by.since(sent).max(GRACE).min(self.server.response_timeout()),
            Some(ends) => ends.since(sent).max(Duration::from_millis(1)),
        };
        let deadline = sent.plus(patience.min(limits.execute_within)).min(limits.latest);
        Schedule { sent, patience, deadline }
    }

    pub(super) fn take_live(&mut self, connect_by: Moment) -> Result<Box<Live>, Failure> {
        let idle = self.live.take();
        if self.server.is_retired() {
            return Err(Failure::Unreached(self.server.retired()));
        }
        if let Some(live) =
            idle.and_then(|live| live.settled(connect_by, self.server.response_timeout(), &self.server.clock))
        {
            return Ok(live);
        }
        // A fresh connection is not looked at: a server that says something of itself would never be asked anything.
        let live = self.connect(connect_by)?;
        if std::mem::replace(&mut self.was_live, true) {
            self.server.count_reconnect();
        }
        Ok(live)
    }

    /// Connects, and takes the offset from the server's time.
    fn connect(&self, connect_by: Moment) -> Result<Box<Live>, Failure> {
        let open = || -> Result<Box<Live>, RedisError> {
            let greeted = self.server.connect(connect_by)?;
            let offset = offset(greeted.time, self.server.clock.now());
            Ok(Box::new(Live::new(greeted, offset, self.server.dialect())))
        };
        open().map_err(|error| self.server.unsent(&error))
    }
}

fn offset(server_micros: u64, local: Moment) -> i128 {
    i128::from(server_micros) - i128::from(local.micros())
}

impl Live {
    fn new(greeted: Greeted, offset: i128, dialect: Dialect) -> Self {
        let Greeted { stream, run_id, life, .. } = greeted;
        Self { stream, offset, run_id, life, dialect, packed: Vec::new(), owed: 0, is_sent: false, told: Vec::new() }
    }

    /// The connection, if nothing that will come on it, or has come, can be taken for the answer to the next request. Replies to WAIT that are
    /// owed are read first.
    fn settled(mut self: Box<Self>, until: Moment, patience: Duration, clock: &Clock) -> Option<Box<Self>> {
        if self.owed > 0 {
            let now = clock.now();
            self.stream.ends_by(until.min(now.plus(patience)).max(now.plus(GRACE)), now);
        }
        self.read_owed().ok()?;
        self.stream.is_quiet().then_some(self)
    }

    pub(super) fn owes_nothing(&self) -> bool {
        self.owed == 0
    }

    fn read_owed(&mut self) -> Result<(), RedisError> {
        while self.owed > 0 {
            if !matches!(self.stream.answer()?, Value::Int(_) | Value::ServerError(_)) {
                return Err(stray());
            }
            self.owed -= 1;
        }
        Ok(())
    }

    /// If the server does not know the script, a second exchange sends it whole, in the time that is left.
    fn send(
        &mut self,
        request: &Request<'_>,
        schedule: &Schedule,
        replicas: Option<SyncReplicas>,
    ) -> Result<Reply, RedisError> {
        self.stream.ends_by(schedule.ends(), schedule.sent);
        let deadline = self.deadline(schedule);
        let wait = replicas.filter(|_| request.grants.is_some());
        let wait = wait.map(|wait| (wait.count, wait.timeout.min(schedule.patience / 2)));
        let whole = wait.is_some() && self.is_new(request);
        let reply = self.exchange(request, whole, deadline, wait);
        let value = match (&request.verb, reply) {
            (Verb::Script(_), Err(error)) if error.code() == Some("NOSCRIPT") => {
                self.read_owed()?;
                // If more has come, the server may have run the script, and this was no answer.
                self.look()?;
                self.is_sent = false;
                self.exchange(request, true, deadline, wait)
            }
            (_, reply) => reply,
        };
        own_reply(request, deadline, value?)
    }

    /// The deadline of an attempt, on the server's clock.
    pub(super) fn deadline(&self, schedule: &Schedule) -> i128 {
        i128::from(schedule.deadline.micros()) + self.offset
    }

    /// Whether this connection sends the script for the first time: then it goes whole. After NOSCRIPT the server runs an EVAL only
    /// when the WAIT in between is over. After a failover replicas are missing, and that WAIT lasts for its whole time-out.
    fn is_new(&mut self, request: &Request<'_>) -> bool {
        let Verb::Script(script) = request.verb else { return false };
        let is_new = !self.told.iter().any(|(told, form)| std::ptr::eq(*told, script) && *form == request.form);
        self.told.extend(is_new.then_some((script, request.form)));
        is_new
    }

    /// If replicas have to confirm, a WAIT follows in the same write: both cost one round trip.
    fn exchange(
        &mut self,
        request: &Request<'_>,
        whole: bool,
        deadline: i128,
        wait: Option<(usize, Duration)>,
    ) -> Result<Value, RedisError> {
        let asking = if request.asking { self.ask_for_what_comes()? } else { Ok(()) };
        resp::pack(&mut self.packed, request, whole, Known { deadline, run_id: &self.run_id, dialect: self.dialect });
        if let Some((count, timeout)) = wait {
            resp::pack_wait(&mut self.packed, count, timeout);
        }
        self.read_owed()?;
        // With a WAIT behind it, the command may be whole though the write is not.
        self.is_sent = wait.is_some();
        self.stream.send(&self.packed)?;
        self.is_sent = true;
        if self.packed.capacity() > MOST_KEPT {
            self.packed = Vec::new();
        }
        self.owed = usize::from(wait.is_some());
        let answer = self.stream.answer()?;
        if self.owed == 0 && self.stream.has_more() && !self.stream.has_come_twice(&answer)? {
            return Err(stray());
        }
        // The refusal of ASKING is the reason why the node refused the request.
        refused(answer).map_err(|error| asking.err().unwrap_or(error))
    }

    /// Sends ASKING, which the next command needs, and returns whether it was refused. The slot may have come by now. It goes alone: its answer
    /// must not be taken for that to the command.
    fn ask_for_what_comes(&mut self) -> Result<Result<(), RedisError>, RedisError> {
        self.read_owed()?;
        self.is_sent = false;
        resp::pack_asking(&mut self.packed);
        self.stream.send(&self.packed)?;
        let asking = refused(self.stream.answer()?).map(drop);
        self.look()?;
        Ok(asking)
    }

    /// # Errors
    /// If something has come that is no answer, or the connection is closed: nothing more may be sent on it.
    pub(super) fn look(&mut self) -> Result<(), RedisError> {
        if self.stream.is_quiet() {
            return Ok(());
        }
        Err(stray())
    }

    /// Sends all in one write and reads the answer to each. Each has a deadline of its own, 1 us before that of the one before it. After an error
    /// of the connection, the rest get that error.
    pub(super) fn exchange_each(
        &mut self,
        requests: &[Request<'_>],
        schedule: &Schedule,
        replicas: Option<SyncReplicas>,
    ) -> Vec<Result<Value, RedisError>> {
        self.stream.ends_by(schedule.ends(), schedule.sent);
        let deadline = self.deadline(schedule);
        let wait = replicas.filter(|_| requests.iter().any(|request| request.grants.is_some()));
        let wait = wait.map(|wait| (wait.count, wait.timeout.min(schedule.patience / 2)));
        let sent = self.send_each(requests, deadline, wait);
        self.owed = usize::from(wait.is_some());
        let mut broken = sent.err();
        let mut answer = |_: &Request<'_>| match &broken {
            Some(error) => Err(error.clone()),
            None => self.stream.answer().inspect_err(|error| broken = Some(error.clone())),
        };
        requests.iter().map(&mut answer).collect()
    }

    fn send_each(
        &mut self,
        requests: &[Request<'_>],
        deadline: i128,
        wait: Option<(usize, Duration)>,
    ) -> Result<(), RedisError> {
        self.packed.clear();
        for (request, before) in requests.iter().zip(0..) {
            let whole = self.is_new(request);
            let deadline = deadline - before;
            let known = Known { deadline, run_id: &self.run_id, dialect: self.dialect };
            resp::pack_more(&mut self.packed, request, whole, known);
        }
        wait.into_iter().for_each(|(count, timeout)| resp::pack_wait(&mut self.packed, count, timeout));
        self.stream.send(&self.packed)
    }

    /// Reads the reply to WAIT: how many replicas have the last write.
    pub(super) fn confirmed(&mut self) -> Result<i64, RedisError> {
        let said = self.stream.answer()?;
        self.owed -= 1;
        self.look()?;
        Ok(redis::from_redis_value(said.extract_error()?)?)
    }
}

/// An error if the whole answer is one. redis-rs would also take an error inside of an array for a refusal of the whole.
fn refused(value: Value) -> Result<Value, RedisError> {
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// The answer to a request with this deadline. A script that grants or prolongs ends what it says with the deadline of its attempt: any other
/// grant was meant for another call.
pub(super) fn own_reply(request: &Request<'_>, deadline: i128, value: Value) -> Result<Reply, RedisError> {
    // No lease is as long as a time of these years, in whatever unit.
    const NEAR: i128 = 3_600_000_000;
    let reply = reply_of(value);
    let (Some(grants), Verb::Script(_)) = (request.grants, &request.verb) else { return Ok(reply) };
    let is_own = |said: &Reply| matches!(said, Reply::Number(said) if i128::from(*said) == deadline);
    let is_anothers = |said: &Reply| matches!(said, Reply::Number(said) if (i128::from(*said) - deadline).abs() < NEAR);
    match reply {
        reply if is_own(&reply) => Ok(Reply::Nil),
        Reply::Array(mut said) if said.last().is_some_and(is_own) => {
            said.pop();
            // A token is all that is granted.
            let token = said.pop_if(|first| matches!(first, Reply::Text(_)));
            Ok(token.unwrap_or(Reply::Array(said)))
        }
        Reply::Array(said) if said.last().is_some_and(is_anothers) => Err(stray()),
        reply if is_anothers(&reply) || grants(&reply) => Err(stray()),
        reply => Ok(reply),
    }
}

fn reply_of(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Number(number),
        Value::BulkString(bytes) => Reply::Text(bytes),
        Value::SimpleString(text) => Reply::Text(text.into_bytes()),
        Value::Okay => Reply::Text(b"OK".to_vec()),
        Value::ServerError(error) => {
            Reply::Error([error.code(), error.details().unwrap_or_default()].join(" ").trim_end().to_owned())
        }
        Value::Array(items) => Reply::Array(items.into_iter().map(reply_of).collect()),
        _ => Reply::Other,
    }
}

/// The server's time in a STALE error, in microseconds.
fn stale_micros(error: &RedisError) -> u64 {
    error.detail().unwrap_or_default().split_whitespace().next().and_then(|micros| micros.parse().ok()).unwrap_or(0)
}

/// Whether the connection can be used again: its answer was complete, and is no error that a new connection may cure.
fn leaves_wire_clean(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { code, .. } if code != "READONLY" && code != "NOAUTH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_a_tree_of_values() {
        let said =
            redis::parse_redis_value(b"*5\r\n$2\r\n\xff\0\r\n*2\r\n:7\r\n$-1\r\n+PONG\r\n*0\r\n+OK\r\n").unwrap();
        let text = |bytes: &[u8]| Reply::Text(bytes.to_vec());
        let inner = Reply::Array(vec![Reply::Number(7), Reply::Nil]);
        assert_eq!(
            reply_of(said),
            Reply::Array(vec![text(b"\xff\0"), inner, text(b"PONG"), Reply::Array(vec![]), text(b"OK")])
        );
    }
}
