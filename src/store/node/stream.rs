//! One socket, TCP or Unix, sealed by TLS or not: whatever is sent or read on it ends by one point in time, in however many pieces it comes.
//!
//! The socket is ours, and redis-rs gives only the parser: its own connection hides the socket, its time-outs are those
//! of each system call, and nothing but a message ends its read early. `docs/stream.md` has the measurements.

use super::LEAST_TO_CONNECT;
use super::bell::Bell;
use super::seal::{Seal, explained};
use super::sockets::Sockets;
use crate::base::time::{Clock, Moment};
use crate::base::tls::Connector;
use redis::io::tcp::socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use redis::{ConnectionAddr, ErrorKind, Parser, RedisError, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An answer is looked for at least this long: it may be there already when the time is up.
const LOOK: Duration = Duration::from_millis(1);

/// The first byte of a record by which a server that speaks TLS ends a connection. No answer of Redis begins with it.
const TLS_ALERT: u8 = 21;

/// A connection, and what was read of the next answer.
pub(crate) struct Stream {
    socket: Bounded,
    seal: Option<Seal>,
    parser: Parser,
}

impl Stream {
    /// Connects by then, TLS included. The look-up of a host name is not bounded: the system offers no way.
    ///
    /// `user_timeout` is how long sent data may stay unacknowledged. Its socket is among the `open` ones before anything is said on
    /// it, so that whoever closes those ends its handshake, too.
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
                // What the look-up took is not taken from the time to connect: else a program whose calls all have
                // little time would never connect through a slow resolver.
                let until = until.max(clock.now().plus(LEAST_TO_CONNECT));
                let socket = dial(&addresses, || until.since(clock.now()))?;
                keep_alive(&socket, user_timeout)?;
                socket
            }
            ConnectionAddr::Unix(path) => dial_unix(path, || until.since(clock.now()).max(LOOK))?,
            _ => return Err((ErrorKind::InvalidClientConfig, "this version knows no such address").into()),
        };
        let mut socket = Bounded::new(socket, clock.clone(), until.max(clock.now().plus(LOOK)));
        open.add(&socket.socket);
        let seal = match (tls, address) {
            (Some(tls), ConnectionAddr::Tcp(host, _)) => Some(Seal::on(tls, host, &mut socket)?),
            _ => None,
        };
        Ok(Self { socket, seal, parser: Parser::new() })
    }

    /// When all that follows has to be over, as seen from now.
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

    /// Why a handshake without TLS failed, if the server's port may be one for TLS: it ends such a connection with an alert, as
    /// proxies do, or without an answer, as Redis does.
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

    /// Whether the server has closed it, as far as that is known here.
    pub(super) fn is_closed(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket.socket, CLOSED)];
        poll(&mut socket, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// The answer to what was sent. What a server tells unasked is none.
    pub(crate) fn answer(&mut self) -> Result<Value, RedisError> {
        loop {
            match self.next()? {
                Value::Push { .. } => {}
                answer => return Ok(answer),
            }
        }
    }

    /// What the server says next.
    pub(crate) fn next(&mut self) -> Result<Value, RedisError> {
        match &mut self.seal {
            None => self.parser.parse_value(&mut self.socket),
            Some(seal) => {
                let next = self.parser.parse_value(Opened { seal, socket: &mut self.socket });
                next.map_err(|error| seal.why(error))
            }
        }
    }

    /// The same, or nothing when the time is up or the bell rings. What was read of it is kept for the next call.
    pub(crate) fn next_unless_rung(&mut self, bell: &Bell) -> Result<Option<Value>, RedisError> {
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

/// What a system tells of a connection that the other side has closed, besides what it tells unasked.
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

/// The addresses of a host share the time, so that one that is silent leaves some for the others; but the first has enough
/// to connect, if there is little.
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

/// A server that accepts nobody lets whoever connects wait as for a write. A signal ends that wait, whatever its handler
/// asks for, and then nothing was begun.
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

/// The system takes milliseconds in an `int`, and refuses a longer one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LONGEST_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// A dead peer is noticed by traffic (user time-out) and without it (keepalive).
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
    /// Of std, also where it is a Unix socket: its writes ask for no SIGPIPE, which would end a program that has not
    /// set that signal to be ignored, as C programs and many command-line tools do not.
    socket: Arc<TcpStream>,
    clock: Clock,
    until: Moment,
    /// When it was set: who comes first need not look at the clock again.
    seen: Option<Moment>,
    /// An answer was looked for when the time was up.
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

    /// An answer that came while this thread had no core, or was stopped, is there when the time is up: looked for once.
    fn last_look(&mut self) -> u64 {
        if std::mem::replace(&mut self.looked, true) { 0 } else { whole_millis(LOOK) }
    }

    fn left(&mut self) -> Duration {
        let now = self.seen.take().unwrap_or_else(|| self.clock.now());
        self.until.since(now)
    }

    /// Makes one call that ends in time. Setting a time-out costs a system call, so one that is shorter than the time
    /// left stays until the call meets it: in most cases the answer is there long before.
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

/// Rounded up.
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
            // It is there, so no time-out is needed, and none may say that it came too late.
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

/// What is under a seal.
struct Opened<'a, S> {
    seal: &'a mut Seal,
    socket: &'a mut S,
}

impl<S: Read + Write> Read for Opened<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.seal.read(buffer, self.socket)
    }
}

/// Whether an error of a socket has words of its own: the system's for a time-out are of a lack of resources.
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
        (Stream { socket, seal: None, parser: Parser::new() }, theirs)
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
