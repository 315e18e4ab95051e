//! A node, which is one server: runs one script or command on a pooled connection, and says how it ended.

mod bell;
mod codes;
mod greeting;
mod outage;
mod pipeline;
mod pool;
mod resp;
mod rights;
#[cfg_attr(not(feature = "tls"), path = "no_seal.rs")]
mod seal;
mod server;
mod sockets;
mod stream;
mod url;
mod wire;

use crate::base::config::Config;
use crate::base::error::{Applied, Cause, Error, Result, is_login, may_pass};
use crate::base::lives::Life;
use crate::base::script::{Form, Script};
use crate::base::stats::Counters;
use crate::base::stop::Stop;
use crate::base::time::{Clock, Lease, Moment};
use crate::base::turns::Rank;
use crate::base::value::Value;
use pool::{Pool, PooledWire};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use bell::Bell;
pub(crate) use codes::code_in;
use codes::is_of_a_key_elsewhere;
pub(crate) use greeting::says_master;
pub(crate) use outage::Outage;
pub(crate) use pool::{Worker, pool_worker};
pub(crate) use server::{Purpose, Server, Target, UNCONFIRMED, show};
pub(crate) use stream::Stream;
pub(crate) use url::{host_and_port, refuse, unlike, wrong as wrong_url, wrong_scheme};
pub(crate) use wire::Wire;

/// A command once sent gets at least this long for its answer, so that a timed wait ends in a clear answer.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// A connection gets at least this long to be found or made, even if the call's time is up.
pub(crate) const LEAST_TO_CONNECT: Duration = Duration::from_millis(25);

/// Which connections a command may use, and who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Those of the pool, in order of arrival.
    Calls,
    /// The same, before all calls: behind them a release would keep its lock held for longer. Each caller that releases stood in the
    /// line of the calls before, so releases alone never fill the pool.
    Releases,
    /// Connections of their own: renewals must not starve behind lock traffic.
    Renewals,
}

/// One script or command with its keys and arguments.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) verb: Verb,
    pub(crate) form: Form,
    pub(crate) keys: &'a [&'a str],
    /// More keys, which are no locks. In a cluster they are in the slot of the first, or the server refuses all.
    pub(crate) beside: &'a [&'a [u8]],
    /// The arguments of the wrappers, which go behind the deadline.
    pub(crate) around: &'a [Arg<'a>],
    pub(crate) args: &'a [Arg<'a>],
    /// For a request that grants or prolongs: whether a reply does. The required replicas have to confirm such a reply.
    pub(crate) grants: Option<Grants>,
    /// In a cluster: its slot is on its way to this node.
    pub(crate) asking: bool,
    /// Keys that it does not name may be at another node: each [`Arg::Beside`] is empty.
    pub(crate) alone: bool,
    /// It may be sent to the node that its slot is on its way to: [`Request::without_what_is_beside`].
    pub(crate) may_ask: bool,
}

impl<'a> Request<'a> {
    /// A request that grants nothing.
    pub(crate) fn new(verb: Verb, keys: &'a [&'a str], args: &'a [Arg<'a>]) -> Self {
        let (form, beside, around, grants) = (Form::default(), &[], &[], None);
        let (asking, alone, may_ask) = (false, false, true);
        Self { verb, form, keys, beside, around, args, grants, asking, alone, may_ask }
    }

    pub(crate) fn of(script: &'static Script, keys: &'a [&'a str], args: &'a [Arg<'a>]) -> Self {
        Self::new(Verb::Script(script), keys, args)
    }

    /// A request that grants or prolongs if its reply says so.
    pub(crate) fn granting(self, grants: Grants) -> Self {
        Self { grants: Some(grants), ..self }
    }

    /// Whether its commands are those of a caller, who may be told of any error.
    pub(crate) fn is_callers(&self) -> bool {
        match self.verb {
            Verb::Script(script) => script.name() == "WHILE_HELD",
            Verb::Command(_) => false,
            Verb::Words => true,
        }
    }

    /// Whether it touches keys that it does not name: those of its wrappers, or of an argument.
    pub(crate) fn sees_beside(&self) -> bool {
        let names = |arg: &Arg<'_>| matches!(arg, Arg::Beside(_));
        self.form != Form::default() || (!self.alone && self.args.iter().any(names))
    }

    /// The request for the node that its slot is on its way to. A script must make no key there that the request does not name: that key
    /// would be in the way of the one that is still to come, and the move would end with an error.
    pub(crate) fn without_what_is_beside(self) -> Self {
        Self { form: Form::default(), around: &[], alone: true, ..self }
    }
}

/// Whether a reply grants or prolongs anything.
pub(crate) type Grants = fn(&Reply) -> bool;

#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Script(&'static Script),
    Command(&'static str),
    /// A command whose name is the first argument.
    Words,
}

#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Number(u64),
    /// One text in parts.
    Parts([&'a str; 3]),
    /// The same of what a script needs for keys that the call does not name; empty where these may be at another node.
    Beside([&'a str; 3]),
    /// A key that begins so, in the slot of the first key.
    InSlot(&'a str),
    /// The attempt's deadline on the server's clock, known only once a connection is at hand.
    Deadline,
    /// The run id of the server's process, by the handshake. A strict client has it in any case.
    RunId,
}

/// How long one attempt may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// When the call gives up; connecting gets [`LEAST_TO_CONNECT`] all the same, and a command once sent [`GRACE`] beyond it.
    pub(crate) answer_by: Moment,
    /// How long after it was sent the server may execute it: the validity of the lease that it asks for.
    pub(crate) execute_within: Duration,
    /// When the server may execute it at the latest, whenever it is sent: a process may be stopped before it sends.
    pub(crate) latest: Moment,
    /// What ends the call while it waits for its turn at the pool.
    pub(crate) stop: Option<&'a Stop<'a>>,
}

impl Limits<'_> {
    /// The limits of a request that takes or prolongs a lease: after its validity nobody could believe in that.
    pub(crate) fn of_lease(lease: Lease, answer_by: Moment) -> Self {
        Self { answer_by, execute_within: lease.validity(), latest: Moment::MAX, stop: None }
    }

    /// The limits of a command that does no harm however late it is executed.
    pub(crate) fn any_time(answer_by: Moment) -> Self {
        Self { answer_by, execute_within: Duration::MAX, latest: Moment::MAX, stop: None }
    }
}

/// What the server said: a value, or several, which may be of different kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Number(i64),
    /// Any bytes, also a word such as `OK`.
    Text(Vec<u8>),
    Array(Vec<Reply>),
    /// One of several, in a caller's own answer.
    Error(String),
    /// What no command here is answered with.
    Other,
}

impl Reply {
    /// The number that was asked for.
    pub(crate) fn number(&self) -> Result<i64, Failure> {
        if let Self::Number(number) = self { Ok(*number) } else { Err(Failure::not_understood()) }
    }

    /// The number that a counter holds; `None` if there is none.
    pub(crate) fn counted(&self) -> Result<Option<i64>, Failure> {
        match self {
            Self::Nil => Ok(None),
            Self::Text(digits) => {
                let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
                number.map(Some).ok_or_else(Failure::no_number)
            }
            _ => Err(Failure::not_understood()),
        }
    }

    /// The same for a caller.
    pub(crate) fn into_value(self) -> Result<Value, Failure> {
        Ok(match self {
            Self::Nil => Value::Nil,
            Self::Number(number) => Value::Integer(number),
            Self::Text(bytes) => Value::Bytes(bytes),
            Self::Array(parts) => Value::Array(parts.into_iter().map(Self::into_value).collect::<Result<_, _>>()?),
            Self::Error(said) => Value::Error(said),
            Self::Other => return Err(Failure::not_understood()),
        })
    }

    /// The values that were asked for, one for each of so many.
    pub(crate) fn one_each(self, count: usize) -> Result<Vec<Self>, Failure> {
        match self {
            Self::Array(replies) if replies.len() == count => Ok(replies),
            _ => Err(Failure::not_understood()),
        }
    }
}

/// A reply, and when the command that it answers was sent.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) sent: Moment,
    /// How many replicas confirmed the grant, if some have to.
    pub(crate) confirmed: Option<Confirmed>,
    /// In a cluster: by a node that the slot is on its way to, where nobody listens yet.
    pub(crate) on_its_way: bool,
    pub(crate) life: Life,
}

/// So many replicas confirmed it, and so many had to.
pub(crate) type Confirmed = (usize, usize);

impl Answer {
    /// What a removal says: whether something was there, and which life found that.
    pub(crate) fn was_there(self) -> Result<(bool, Life), Failure> {
        Ok((self.reply.number()? == 1, self.life))
    }

    /// The same as one for each of so many keys that it is about.
    pub(crate) fn one_each(self, count: usize) -> Result<Vec<Result<Self, Failure>>, Failure> {
        let Self { reply, sent, confirmed, on_its_way, life } = self;
        let replies = reply.one_each(count)?.into_iter();
        Ok(replies.map(|reply| Ok(Self { reply, sent, confirmed, on_its_way, life })).collect())
    }
}

/// Why there was no answer.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub(crate) cause: Cause,
    /// The time was up; else the connection was refused or broke.
    pub(crate) timed_out: bool,
}

impl Broken {
    pub(crate) fn new(cause: impl AsRef<str>) -> Self {
        Self { cause: Cause::new(cause), timed_out: false }
    }
}

const NOT_UNDERSTOOD: &str = "the reply is not one of the lock's scripts: is this a Redis server?";

/// How an attempt failed, by what is known of its effect.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// No connection: nothing was sent.
    Unreached(Broken),
    /// Something was sent and not answered; until `open_until` the server may still execute it. It went to this life.
    Unknown { open_until: Moment, life: Life, broken: Broken },
    /// The server's error.
    Refused { code: String, applied: Applied, cause: Cause },
    /// The server found the attempt too old and did nothing.
    Stale,
}

impl Failure {
    /// An answer came that no script of ours gives.
    pub(crate) fn not_understood() -> Self {
        Self::Refused { code: "ERR".to_owned(), applied: Applied::Unknown, cause: Cause::new(NOT_UNDERSTOOD) }
    }

    pub(crate) fn is_not_understood(&self) -> bool {
        matches!(self, Self::Refused { cause, .. } if cause.to_string() == NOT_UNDERSTOOD)
    }

    /// The same where what came cannot have been the answer.
    pub(crate) fn unanswered(self) -> Self {
        let broken = Broken::new(NOT_UNDERSTOOD);
        Self::Unknown { open_until: Clock::Boot.now(), life: Life::ONLY, broken }
    }

    /// A key that is to hold a number holds something else. Scripts say the same.
    pub(crate) fn no_number() -> Self {
        let cause = Cause::new("the key holds no number");
        Self::Refused { code: "WRONGTYPE".to_owned(), applied: Applied::No, cause }
    }

    /// Whether the same attempt may succeed a moment later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Refused { code, cause, .. } => may_pass(code, cause),
            _ => true,
        }
    }

    /// Whether the server refused the login, and so heard nothing of the attempt.
    pub(crate) fn is_of_login(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if is_login(code))
    }

    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::Unreached(broken) | Self::Unknown { broken, .. } if broken.timed_out)
    }

    /// Whether a node of a cluster says that the slot is on its way elsewhere, and without a key that the script wanted to see.
    pub(crate) fn is_on_its_way(&self) -> bool {
        matches!(self, Self::Refused { code, cause, .. } if code == "ASK" || is_of_a_key_elsewhere(&cause.to_string()))
    }

    /// Whether no node of a cluster has all of its keys now: they are in several slots, or in one that has sent some of them elsewhere.
    pub(crate) fn is_apart(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "TRYAGAIN" || code == "CROSSSLOT")
    }

    /// Whether the attempt may have taken effect.
    pub(crate) fn applied(&self) -> Applied {
        match self {
            Self::Unreached(_) | Self::Stale => Applied::No,
            Self::Unknown { .. } => Applied::Unknown,
            Self::Refused { applied, .. } => *applied,
        }
    }

    /// The same at the end of a call in which an earlier attempt may have taken effect.
    pub(crate) fn after(self, doubt: Option<Self>) -> Self {
        match (self, doubt) {
            (failure, None) => failure,
            (Self::Refused { code, cause, .. }, Some(_)) => Self::Refused { code, applied: Applied::Unknown, cause },
            (_, Some(doubt)) => doubt,
        }
    }

    /// The same of another life.
    pub(crate) fn of(self, life: Life) -> Self {
        match self {
            Self::Unknown { open_until, broken, .. } => Self::Unknown { open_until, life, broken },
            failure => failure,
        }
    }

    /// The same for a call that sent nothing itself.
    pub(crate) fn never_sent(self) -> Self {
        match self {
            Self::Unknown { broken, .. } => Self::Unreached(broken),
            Self::Refused { code, cause, .. } => Self::Refused { code, applied: Applied::No, cause },
            failure => failure,
        }
    }

    /// What went wrong, if that has words of its own.
    fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Unreached(broken) | Self::Unknown { broken, .. } => Some(&broken.cause),
            Self::Refused { cause, .. } => Some(cause),
            Self::Stale => None,
        }
    }

    /// What the caller is told about it.
    pub(crate) fn into_error(self, resource: &str) -> Error {
        let resource = resource.to_owned();
        match self {
            Self::Unreached(broken) => Error::Unavailable { resource, cause: broken.cause },
            Self::Unknown { broken, .. } => Error::OutcomeUnknown { resource, cause: broken.cause },
            Self::Refused { code, applied, cause } => Error::Refused { resource, code, applied, cause },
            Self::Stale => Error::Unavailable { resource, cause: Cause::new("the server took too long to execute it") },
        }
    }
}

/// The pools of one server, and how long it has been out of reach.
pub(crate) struct Backend {
    calls: Pool,
    renewals: Pool,
    server: Arc<Server>,
    clock: Clock,
    outage_budget: Duration,
    outage: Outage,
}

/// As many as there are renewal threads.
const RENEWAL_CONNECTIONS: u32 = 3;

impl Backend {
    pub(crate) fn new(target: Target, config: &Config, counters: &Arc<Counters>, worker: &Worker) -> Self {
        let server = Arc::new(Server::new(target, config, Arc::clone(counters)));
        Self {
            calls: Pool::new(&server, config.pool_size, worker),
            renewals: Pool::new(&server, RENEWAL_CONNECTIONS, worker),
            server,
            clock: Clock::Boot,
            outage_budget: config.outage_budget,
            outage: Outage::new(config, counters),
        }
    }

    /// What a subscriber connects to.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Makes one attempt. An answer of the server ends an outage; no answer, or an error that says "not now", begins
    /// one. A pool that is in use says nothing about the server.
    pub(crate) fn attempt(&self, lane: Lane, request: &Request<'_>, limits: Limits<'_>) -> Result<Answer, Failure> {
        let start = self.clock.now();
        let connect_by = limits.answer_by.max(start.plus(LEAST_TO_CONNECT));
        let mut wire = self.wire(lane, connect_by, limits)?;
        let result = wire.attempt(request, limits, connect_by);
        match &result {
            Err(failure) if failure.may_pass() => self.note_failure(start, failure),
            _ => self.outage.end(),
        }
        result
    }

    /// The same for several requests in one write.
    pub(crate) fn attempt_each(
        &self,
        lane: Lane,
        requests: &[Request<'_>],
        limits: Limits<'_>,
    ) -> Result<Vec<Result<Answer, Failure>>, Failure> {
        let start = self.clock.now();
        let connect_by = limits.answer_by.max(start.plus(LEAST_TO_CONNECT));
        let each = self.wire(lane, connect_by, limits)?.attempt_each(requests, limits, connect_by);
        let failed =
            |each: &Vec<Result<Answer, Failure>>| each.iter().find_map(|answer| answer.as_ref().err().cloned());
        match each.as_ref().map_or_else(|failure| Some(failure.clone()), failed) {
            Some(failure) if failure.may_pass() => self.note_failure(start, &failure),
            _ => self.outage.end(),
        }
        each
    }

    /// One round trip that asks for nothing, answered by then: how long its answer took. An idle connection that the server
    /// has closed is made anew once, while there is time.
    pub(crate) fn ping(&self, until: Moment) -> Result<Duration, Failure> {
        let request = Request::new(Verb::Command("PING"), &[], &[]);
        let limits = Limits::any_time(until);
        let once = || self.attempt(Lane::Calls, &request, limits);
        let again = |failure: Failure| match failure {
            Failure::Unknown { .. } if !failure.is_timeout() && self.clock.now() < until => once(),
            failure => Err(failure),
        };
        let answer = once().or_else(again).map_err(Failure::never_sent)?;
        Ok(self.clock.now().since(answer.sent))
    }

    /// Makes a connection ready for later attempts, within the connect time-out.
    pub(crate) fn warm(&self, lane: Lane) -> Result<(), Failure> {
        let start = self.clock.now();
        let connect_by = start.plus(self.server.connect_timeout());
        let result = self.wire(lane, connect_by, Limits::any_time(connect_by))?.warm(connect_by);
        match &result {
            Err(failure) => self.outage.note(start, failure),
            Ok(()) => self.outage.end(),
        }
        result
    }

    fn wire(&self, lane: Lane, connect_by: Moment, limits: Limits<'_>) -> Result<PooledWire<'_>, Failure> {
        let (pool, rank) = match lane {
            Lane::Releases => (&self.calls, Rank::First),
            Lane::Calls => (&self.calls, Rank::Second),
            Lane::Renewals => (&self.renewals, Rank::Second),
        };
        let patience = self.outage_budget.max(LEAST_TO_CONNECT);
        let until = connect_by.min(self.clock.now().plus(patience));
        pool.wire(rank, until, limits).ok_or_else(|| Failure::Unreached(Broken::new(self.all_in_use(pool.size()))))
    }

    /// What a call hears that got no turn at the pool. More connections do not help if all wait for a silent server.
    fn all_in_use(&self, size: u32) -> String {
        let address = self.server.address();
        match self.outage.lasted().and_then(|_| self.outage.last_failure()) {
            Some(failure) => {
                let last = failure.cause().map(|cause| format!(": {cause}")).unwrap_or_default();
                format!("{address}: all {size} connections of the pool wait for a server that does not answer{last}")
            }
            None => format!(
                "{address}: all {size} connections of the pool were in use all the time: let fewer threads call at once, or raise \
                 ClientBuilder::pool_size"
            ),
        }
    }

    /// An outage begins with the start of the first attempt that failed, not with its end. A caller that had less time
    /// than an answer may take learned nothing of the server.
    fn note_failure(&self, start: Moment, failure: &Failure) {
        let now = self.clock.now();
        let was_hurried = failure.is_timeout() && now.since(start) < self.server.response_timeout();
        if was_hurried || self.server.is_retired() {
            return;
        }
        self.outage.note(start, failure);
    }

    /// How long it has been out of reach, as far as anyone tried.
    pub(crate) fn outage(&self) -> &Outage {
        &self.outage
    }
}
