//! One socket, TCP or Unix, with TLS or without. Each exchange on it ends by one point in time, in however many pieces it comes.
//!
//! The socket is ours, and redis-rs gives only the parser. Its own connection hides the socket, and has time-outs for each system
//! call alone. Nothing but a message ends its read early. `docs/stream.md` has the measurements.

use super::LEAST_TO_CONNECT;
use super::bell::Bell;
use super::seal::{Seal, explained};
use super::sockets::{Sockets, above_standard};
use crate::base::mutant::{self, Mutant};
use crate::base::time::{Clock, Moment};
use crate::base::tls::Connector;
use redis::io::tcp::socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use redis::{ConnectionAddr, ErrorKind, Parser, RedisError, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An answer is looked for at least this long: it may be there already when the time is up.
const LOOK: Duration = Duration::from_millis(1);

/// The first byte of a TLS alert, with which a server ends a connection without TLS. No answer of Redis begins with it.
const TLS_ALERT: u8 = 21;

/// A connection, and what was read of the next answer.
pub(crate) struct Stream {
    socket: Bounded,
    seal: Option<Seal>,
    parser: Parser,
    /// How many bytes were read beyond the last answer. `None`: the parser has to be asked.
    beyond: Option<usize>,
}

impl Stream {
    /// Connects, and agrees on TLS, by `until`. The look-up of a host name is not bounded: the system offers no way.
    ///
    /// `user_timeout` is how long sent data may stay unacknowledged. The socket is added to `open` before the first byte is sent:
    /// closing those ends a handshake that is under way, too.
    pub(super) fn connect(
        address: &ConnectionAddr,
        tls: Option<&Connector>,
        open: &Sockets,
        user_timeout: Duration,
        clock: &Clock,
        until: Moment,
    ) -> Result<Self, RedisError> {
        let socket = match address {
            ConnectionAddr::Tcp(host, port) => {
                let addresses = look_up(host, *port)?;
                // Connecting gets its least time whatever the look-up took. Else a program whose calls are all short would
                // never connect through a slow resolver.
                let until = until.max(clock.now().plus(LEAST_TO_CONNECT));
                let socket = dial(&addresses, || until.since(clock.now()))?;
                keep_alive(&socket, user_timeout)?;
                socket
            }
            ConnectionAddr::Unix(path) => dial_unix(path, || until.since(clock.now()).max(LOOK))?,
            _ => return Err((ErrorKind::InvalidClientConfig, "this version knows no such address").into()),
        };
        let socket = above_standard(socket)?.into();
        let mut socket = Bounded::new(socket, clock.clone(), until.max(clock.now().plus(LOOK)));
        open.add(&socket.socket);
        let seal = match (tls, address) {
            (Some(tls), ConnectionAddr::Tcp(host, _)) => Some(Seal::on(tls, host, &mut socket)?),
            _ => None,
        };
        Ok(Self { socket, seal, parser: Parser::new(), beyond: Some(0) })
    }

    /// Sets when all that follows has to be over. `now` spares the first call a look at the clock.
    pub(crate) fn ends_by(&mut self, until: Moment, now: Moment) {
        self.socket.until = until.max(now.plus(LOOK));
        self.socket.seen = Some(now);
        self.socket.looked = false;
    }

    pub(crate) fn send(&mut self, packed: &[u8]) -> Result<(), RedisError> {
        let sent = match &mut self.seal {
            None => self.socket.write_all(packed),
            Some(seal) => seal.write_all(packed, &mut self.socket),
        };
        sent.map_err(explained)
    }

    /// The error of a failed handshake. If the server's port may be one for TLS, the error says so: proxies end a connection without
    /// TLS with an alert, Redis ends it without an answer.
    pub(super) fn why_not_plain(&self, error: RedisError) -> RedisError {
        match self.socket.first {
            Some(TLS_ALERT) if self.seal.is_none() => {
                redis::make_extension_error("TLS".to_owned(), Some("its port is for TLS: write rediss://".to_owned()))
            }
            None if self.seal.is_none() && error.is_connection_dropped() => {
                let words = "it closed the connection without an answer: if its port is for TLS, write rediss://";
                io::Error::new(io::ErrorKind::ConnectionReset, words).into()
            }
            _ => error,
        }
    }

    /// Whether the next answer can only be that of the next request: the server has not closed the connection, and nothing is left of what came,
    /// as far as this machine knows. An idle connection may have been closed long ago. And what a proxy doubled, or a stray write of this
    /// program caused, would be taken for the answer to the next request.
    pub(super) fn is_quiet(&mut self) -> bool {
        if mutant::is(Mutant::SendsWithoutALook) {
            return true;
        }
        let mut socket = [PollFd::new(&self.socket.socket, PollFlags::IN | CLOSED)];
        let ready = loop {
            match poll(&mut socket, Some(&Timespec::default())) {
                Err(Errno::INTR) => {}
                ready => break ready,
            }
        };
        ready == Ok(0) && self.has_read_all()
    }

    /// Whether more than the last answer has come with it: then one of both is that of another call.
    pub(super) fn has_more(&mut self) -> bool {
        !mutant::is(Mutant::LeavesBytesUnread) && !self.has_parsed_all()
    }

    /// Whether what has come with this answer is the same once more, and nothing else: then it does not matter which of both is that to the
    /// request. It is read.
    pub(super) fn has_come_twice(&mut self, answer: &Value) -> Result<bool, RedisError> {
        let is_as_long = length_of(answer).is_some_and(|length| self.beyond == Some(length));
        Ok(is_as_long && self.next()? == *answer && self.beyond == Some(0))
    }

    /// Whether no byte is left in the parser or in the session.
    fn has_read_all(&mut self) -> bool {
        !self.has_more() && self.seal.as_ref().is_none_or(Seal::has_read_all)
    }

    /// The parser does not say whether it has more. If the lengths of the answers are not known, it is given a value, which comes out as it is
    /// if nothing was left.
    fn has_parsed_all(&mut self) -> bool {
        if self.beyond.is_none() {
            let is_empty = matches!(self.parser.parse_value(&b":7\r\n"[..]), Ok(Value::Int(7)));
            self.beyond = Some(usize::from(!is_empty));
        }
        self.beyond == Some(0)
    }

    /// The answer to what was sent. Messages that the server sends unasked are skipped.
    pub(crate) fn answer(&mut self) -> Result<Value, RedisError> {
        loop {
            match self.next()? {
                Value::Push { .. } => {}
                answer => return Ok(answer),
            }
        }
    }

    /// The next value from the server, an answer or a message.
    pub(crate) fn next(&mut self) -> Result<Value, RedisError> {
        let mut read = 0;
        let next = match &mut self.seal {
            None => self.parser.parse_value(Counted(&mut self.socket, &mut read)),
            Some(seal) => {
                let next = self.parser.parse_value(Counted(Opened { seal, socket: &mut self.socket }, &mut read));
                next.map_err(|error| seal.why(error))
            }
        };
        let length = next.as_ref().ok().and_then(length_of);
        self.beyond = self.beyond.zip(length).and_then(|(beyond, length)| (beyond + read).checked_sub(length));
        next
    }

    /// The same, or `None` if the time is up or the bell rings first. A part that was read is kept for the next call.
    pub(crate) fn next_unless_rung(&mut self, bell: &Bell) -> Result<Option<Value>, RedisError> {
        self.beyond = None;
        let mut attentive = Attentive { socket: &mut self.socket, bell, is_over: false };
        let next = match &mut self.seal {
            None => self.parser.parse_value(&mut attentive),
            Some(seal) => {
                let next = self.parser.parse_value(Opened { seal, socket: &mut attentive });
                next.map_err(|error| seal.why(error))
            }
        };
        match next {
            Err(_) if attentive.is_over => Ok(None),
            next => next.map(Some),
        }
    }
}

/// The error of a connection on which something came that nobody had asked for, or which is closed.
pub(super) fn stray() -> RedisError {
    io::Error::new(io::ErrorKind::ConnectionReset, "it was closed, or what came last was no answer").into()
}

/// Counts the bytes that are read.
struct Counted<'a, R>(R, &'a mut usize);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(bytes)?;
        *self.1 += count;
        Ok(count)
    }
}

/// How many bytes a value took as a server writes it, if that is known. It is never more than it took.
fn length_of(value: &Value) -> Option<usize> {
    let digits = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 1;
    match value {
        Value::Nil | Value::Okay => Some(5),
        Value::Int(number) => Some(itoa::Buffer::new().format(*number).len() + 3),
        Value::BulkString(bytes) => Some(1 + digits(bytes.len()) + 2 + bytes.len() + 2),
        Value::SimpleString(text) => Some(text.len() + 3),
        Value::Array(items) => {
            items.iter().map(length_of).sum::<Option<usize>>().map(|all| all + 3 + digits(items.len()))
        }
        _ => None,
    }
}

/// The poll flag of a connection that the other side has closed, besides those that poll reports unasked.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOSED: PollFlags = PollFlags::RDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOSED: PollFlags = PollFlags::empty();

fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, RedisError> {
    if ["0.0.0.0", "::"].contains(&host) {
        return Err((ErrorKind::InvalidClientConfig, "Cannot connect to a wildcard address (0.0.0.0 or ::)").into());
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

/// The addresses of a host share the time, so a silent one leaves some for the others. Each that is tried gets at least
/// [`LEAST_TO_CONNECT`], so the first can connect even if the time is short.
fn dial(addresses: &[SocketAddr], left: impl Fn() -> Duration) -> Result<Socket, RedisError> {
    let mut last: RedisError = (ErrorKind::InvalidClientConfig, "could not resolve to any addresses").into();
    for (tried, address) in addresses.iter().enumerate() {
        let others = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        if tried > 0 && left().is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, (left() / others).max(LEAST_TO_CONNECT)) {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// While the server accepts nobody, connecting blocks as long as the write time-out allows. A signal ends that wait, even if its
/// handler asks for a restart. Nothing was begun then, so the loop tries again.
fn dial_unix(path: &Path, left: impl Fn() -> Duration) -> io::Result<Socket> {
    let (socket, address) = (Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?);
    loop {
        socket.set_write_timeout(Some(left()))?;
        match socket.connect(&address) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(|()| socket),
        }
    }
}

/// The system takes an `int` of milliseconds, and refuses a larger number.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LONGEST_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// The user time-out notices a dead peer while data is on its way, keepalive notices one without traffic.
fn keep_alive(socket: &Socket, user_timeout: Duration) -> io::Result<()> {
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new().with_time(5 * second).with_interval(second).with_retries(3);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(user_timeout.min(LONGEST_USER_TIMEOUT)))?;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = user_timeout;
    Ok(())
}

/// A socket whose system calls all end by one point in time.
struct Bounded {
    /// std's type, also for a Unix socket: its writes ask for no SIGPIPE. That signal would end a program that does not
    /// ignore it, and C programs and many command-line tools do not.
    socket: Arc<TcpStream>,
    clock: Clock,
    until: Moment,
    /// When `until` was set: the first call takes this and needs no look at the clock.
    seen: Option<Moment>,
    /// Whether the one look after the end of the time was made.
    looked: bool,
    /// The first byte that the server ever sent.
    first: Option<u8>,
    reading: Timeout,
    writing: Timeout,
}

/// The time-out that a socket has for one direction, in ms.
struct Timeout {
    set: u64,
    set_on: fn(&TcpStream, Option<Duration>) -> io::Result<()>,
}

impl Bounded {
    fn new(socket: Socket, clock: Clock, until: Moment) -> Self {
        let timeout = |set_on| Timeout { set: u64::MAX, set_on };
        let (reading, writing) = (timeout(TcpStream::set_read_timeout), timeout(TcpStream::set_write_timeout));
        Self { socket: Arc::new(socket.into()), clock, until, seen: None, looked: false, first: None, reading, writing }
    }

    /// The time for one look after the end, in ms: an answer may have come while this thread had no core, or was stopped.
    fn last_look(&mut self) -> u64 {
        if std::mem::replace(&mut self.looked, true) { 0 } else { whole_millis(LOOK) }
    }

    fn left(&mut self) -> Duration {
        let now = self.seen.take().unwrap_or_else(|| self.clock.now());
        self.until.since(now)
    }

    /// Makes one call that ends in time. Setting a time-out costs a system call. So a time-out that is shorter than the time
    /// left stays until a call runs into it: most answers come long before.
    fn bound(
        &mut self,
        way: fn(&mut Self) -> &mut Timeout,
        least: fn(&mut Self) -> u64,
        mut call: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut met = false;
        loop {
            let left = match whole_millis(self.left()) {
                0 => least(self),
                left => left,
            };
            if left == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let timeout = way(self);
            if met || timeout.set > left {
                timeout.set = left;
                (timeout.set_on)(&self.socket, Some(Duration::from_millis(left)))?;
            }
            match call(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => met = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

/// Milliseconds, rounded up.
fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).div_ceil(1_000_000)
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bound(|own| &mut own.reading, Self::last_look, |mut socket| socket.read(buffer))?;
        self.first = self.first.or(buffer[..read].first().copied());
        Ok(read)
    }
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.bound(|own| &mut own.writing, |_| 0, |mut socket| socket.write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that is read until a bell rings.
struct Attentive<'a> {
    socket: &'a mut Bounded,
    bell: &'a Bell,
    is_over: bool,
}

impl Read for Attentive<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.socket.left();
        if self.bell.is_quiet_until(&self.socket.socket, left)? {
            // The data is there: no time-out is needed, and none may say that the data came too late.
            return (&*self.socket.socket).read(buffer);
        }
        self.is_over = true;
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Attentive<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.socket.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The decrypted bytes of a TLS session.
struct Opened<'a, S> {
    seal: &'a mut Seal,
    socket: &'a mut S,
}

impl<S: Read + Write> Read for Opened<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.seal.read(buffer, self.socket)
    }
}

/// Whether a socket's error has words of its own. The system's words for a time-out speak of a lack of resources.
pub(super) fn says_more(error: &RedisError) -> bool {
    let inner = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>());
    let io = inner.and_then(|inner| inner.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.get_ref().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// A stream, and the server's end of it.
    fn stream() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = Bounded::new(ours.into(), Clock::Boot, Moment(0));
        (Stream { socket, seal: None, parser: Parser::new(), beyond: Some(0) }, theirs)
    }

    fn soon() -> Moment {
        Clock::Boot.now().plus(Duration::from_millis(20))
    }

    #[test]
    fn what_was_read_when_the_time_was_up_is_kept() {
        let ((mut stream, mut server), bell) = (stream(), Bell::new().unwrap());
        stream.ends_by(soon(), Clock::Boot.now());
        server.write_all(b":12").unwrap();
        assert_eq!(stream.next_unless_rung(&bell), Ok(None));
        server.write_all(b"34\r\n:5\r\n").unwrap();
        stream.ends_by(Moment::MAX, Moment(0));
        assert_eq!(stream.next_unless_rung(&bell), Ok(Some(Value::Int(1234))));
        assert_eq!(stream.next(), Ok(Value::Int(5)));
    }

    #[test]
    fn a_bell_ends_a_wait_once_and_what_was_read_comes_before_it() {
        let ((mut stream, mut server), bell) = (stream(), Bell::new().unwrap());
        stream.ends_by(Moment::MAX, Moment(0));
        server.write_all(b":1\r\n:2\r\n").unwrap();
        assert_eq!(stream.next_unless_rung(&bell), Ok(Some(Value::Int(1))));
        (0..3).for_each(|_| bell.ring());
        assert_eq!(stream.next_unless_rung(&bell), Ok(Some(Value::Int(2))));
        assert_eq!(stream.next_unless_rung(&bell), Ok(None));
        server.write_all(b":3\r\n").unwrap();
        assert_eq!(stream.next_unless_rung(&bell), Ok(Some(Value::Int(3))));
    }

    /// A thread that got no core, or was stopped, looks at the clock when the time is up.
    #[test]
    fn what_came_in_time_is_read_though_the_reader_is_late() {
        let ((mut stream, mut server), bell) = (stream(), Bell::new().unwrap());
        let late = |stream: &mut Stream| {
            stream.ends_by(soon(), Clock::Boot.now());
            std::thread::sleep(Duration::from_millis(40));
            stream.socket.seen = None;
        };
        server.write_all(b":1\r\n").unwrap();
        late(&mut stream);
        assert_eq!(stream.answer(), Ok(Value::Int(1)));
        server.write_all(b":2\r\n").unwrap();
        late(&mut stream);
        assert_eq!(stream.next_unless_rung(&bell), Ok(Some(Value::Int(2))));
        late(&mut stream);
        assert!(stream.answer().unwrap_err().is_timeout());
    }

    #[test]
    fn the_first_address_of_a_host_has_enough_time_however_many_there_are() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [listener.local_addr().unwrap(); 8];
        assert!(dial(&addresses, || Duration::ZERO).is_ok());
        assert!(dial(&[], || Duration::MAX).is_err());
    }

    /// A call with little time leaves a short time-out on the socket.
    #[test]
    fn a_short_time_out_of_an_earlier_call_does_not_end_a_later_one() {
        let (mut stream, mut server) = stream();
        stream.ends_by(soon(), Clock::Boot.now());
        assert!(stream.next().unwrap_err().is_timeout());
        stream.ends_by(Moment::MAX, Moment(0));
        let answering = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            server.write_all(b":1\r\n")
        });
        assert_eq!(stream.next(), Ok(Value::Int(1)));
        answering.join().unwrap().unwrap();
    }

    /// What nobody reads fills the buffers of both ends.
    #[test]
    fn a_write_that_nobody_reads_ends_in_time() {
        let (mut stream, _server) = stream();
        stream.ends_by(soon(), Clock::Boot.now());
        assert!(stream.send(&vec![0; 16 << 20]).unwrap_err().is_timeout());
    }

    #[test]
    fn a_socket_whose_server_accepts_nobody_is_given_up_in_time() {
        let path = std::env::temp_dir().join(format!("redlatch-deaf-{}", std::process::id()));
        let server = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        server.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        server.listen(0).unwrap();
        let dial = || dial_unix(&path, || Duration::from_millis(20));
        let pending: Vec<_> = std::iter::repeat_with(dial).take(3).collect();
        std::fs::remove_file(&path).unwrap();
        assert!(pending[0].is_ok());
        let error = RedisError::from(pending.into_iter().find_map(Result::err).unwrap());
        assert!(error.is_timeout(), "{error}");
    }
}
