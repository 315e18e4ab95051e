//! The harness's fault proxy, from a Unix socket or a TCP port to a server: a test says what the proxy does with each
//! piece of data.

use super::lua;
// A reset needs SO_LINGER, which std does not have; redis-rs brings the crate that has it.
use redis::io::tcp::socket2::Socket;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Where a piece of data goes: to the server or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Request,
    Reply,
}

/// One step of the proxy for a piece of data. Without any step the data is swallowed.
pub enum Step {
    Send(Vec<u8>),
    Sleep(Duration),
    /// Holds all later data until the gate is opened, or for ever.
    Hold(Gate),
    /// Sends this data to the server over another connection, and waits for the answer.
    Copy(Vec<u8>),
    /// Closes the connection on both sides.
    Cut,
    /// The same, but a TCP client gets a reset.
    Reset,
}

/// What a piece of data, or a connection, waits for.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

/// How often a thread that waits at a gate looks whether its proxy is gone. Nodes that are cut off connect again and again: on a late
/// machine more than a thousand threads waited here. When each of them looked every millisecond, they made the machine later.
const LOOKS: Duration = Duration::from_millis(100);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self, over: &AtomicBool) {
        let mut open = self.0.0.lock().unwrap();
        while !*open && !over.load(SeqCst) {
            open = self.0.1.wait_timeout(open, LOOKS).unwrap().0;
        }
    }
}

/// Gives the steps for a connection's number, a direction and a piece of data.
type Rule = Box<dyn FnMut(usize, Flow, &[u8]) -> Vec<Step> + Send>;

/// Where a proxy or a server is found.
pub enum Address {
    Path(PathBuf),
    Port(u16),
}

impl Address {
    fn connect(&self) -> io::Result<Socket> {
        match self {
            Self::Path(path) => Ok(UnixStream::connect(path)?.into()),
            Self::Port(port) => Ok(TcpStream::connect(("127.0.0.1", *port))?.into()),
        }
    }
}

/// A proxy in front of a server. Declare it between the server and its clients.
pub struct Proxy {
    address: Address,
    shared: Arc<Shared>,
}

struct Shared {
    server: Address,
    rule: Mutex<Option<Rule>>,
    pipes: Mutex<Vec<Weak<Pipe>>>,
    over: AtomicBool,
}

impl Proxy {
    /// A proxy that passes everything on until it gets a rule.
    pub fn new(server: PathBuf) -> Self {
        let number = NUMBER.fetch_add(1, SeqCst);
        let path = std::env::temp_dir().join(format!("redlatch-px-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket for the proxy");
        let numbers = AtomicUsize::new(0);
        let accept = move || Ok((numbers.fetch_add(1, SeqCst), listener.accept()?.0.into()));
        Self::start(Address::Path(path), Address::Path(server), accept)
    }

    /// The same on a TCP port of 127.0.0.1.
    pub fn on_tcp(server: PathBuf) -> Self {
        Self::on_tcp_before(Address::Path(server))
    }

    /// The same, for a server that may also be on a port.
    pub fn on_tcp_before(server: Address) -> Self {
        let numbers = AtomicUsize::new(0);
        Self::on_port(server, move |_| numbers.fetch_add(1, SeqCst))
    }

    /// The same, for clients that each connect from an address of their own, 127.0.0.2 and so on. Rules get the number of the
    /// client, from 0 on, in the place of the connection's.
    pub fn on_tcp_by_client(server: Address) -> Self {
        Self::on_port(server, |client| match client.ip() {
            IpAddr::V4(ip) => usize::from(ip.octets()[3]).saturating_sub(2),
            IpAddr::V6(ip) => panic!("{ip} is not of this machine"),
        })
    }

    fn on_port(server: Address, number: impl Fn(SocketAddr) -> usize + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for the proxy");
        let port = listener.local_addr().unwrap().port();
        Self::start(Address::Port(port), server, move || {
            let (client, from) = listener.accept()?;
            // What is sent twice in a row would else wait for an acknowledgement.
            client.set_nodelay(true)?;
            Ok((number(from), client.into()))
        })
    }

    fn start(
        address: Address,
        server: Address,
        accept: impl Fn() -> io::Result<(usize, Socket)> + Send + 'static,
    ) -> Self {
        let shared =
            Arc::new(Shared { server, rule: Mutex::default(), pipes: Mutex::default(), over: AtomicBool::new(false) });
        let proxy = Self { address, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            while let Ok((number, client)) = accept() {
                if shared.over.load(SeqCst) {
                    return;
                }
                if let Ok(server) = shared.server.connect() {
                    Pipe::lay(number, client, server, &shared);
                }
            }
        });
        proxy
    }

    pub fn url(&self) -> String {
        match &self.address {
            Address::Path(path) => format!("unix://{}", path.display()),
            Address::Port(port) => format!("redis://127.0.0.1:{port}/"),
        }
    }

    /// The port of a proxy on TCP.
    pub fn port(&self) -> u16 {
        match self.address {
            Address::Path(_) => panic!("it has no port"),
            Address::Port(port) => port,
        }
    }

    pub fn set(&self, rule: impl FnMut(usize, Flow, &[u8]) -> Vec<Step> + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// From now on the proxy passes everything on.
    pub fn clear(&self) {
        *self.shared.rule.lock().unwrap() = None;
    }

    /// Closes all connections, as a proxy does with those that are idle.
    pub fn cut(&self) {
        let pipes = std::mem::take(&mut *self.shared.pipes.lock().unwrap());
        pipes.iter().filter_map(Weak::upgrade).for_each(|pipe| pipe.close());
    }

    /// Whether all connections that there are now have ended for their clients, too; to be asked later.
    pub fn ends(&self) -> impl Fn() -> bool + use<> {
        let pipes = self.shared.pipes.lock().unwrap().clone();
        move || pipes.iter().all(|pipe| pipe.strong_count() == 0)
    }

    /// Sends this to the clients of all connections, though nobody asked.
    pub fn interject(&self, data: &[u8]) {
        let pipes = self.shared.pipes.lock().unwrap();
        pipes.iter().filter_map(Weak::upgrade).for_each(|pipe| drop((&pipe.client).write_all(data)));
    }

    /// Delays each reply by this time.
    pub fn delay(&self, by: Duration) {
        self.set(move |_, flow, data| if flow == Flow::Reply { pass_after(by, data) } else { pass(data) });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, SeqCst);
        match &self.address {
            Address::Path(path) => {
                let _ = UnixStream::connect(path);
                let _ = std::fs::remove_file(path);
            }
            Address::Port(port) => drop(TcpStream::connect(("127.0.0.1", *port))),
        }
    }
}

/// One connection through the proxy.
struct Pipe {
    number: usize,
    client: Socket,
    server: Socket,
    reset: AtomicBool,
    shared: Arc<Shared>,
}

impl Pipe {
    /// Starts to pass data on between the two ends.
    fn lay(number: usize, client: Socket, server: Socket, shared: &Arc<Shared>) {
        let pipe = Arc::new(Self { number, client, server, reset: AtomicBool::new(false), shared: Arc::clone(shared) });
        shared.pipes.lock().unwrap().push(Arc::downgrade(&pipe));
        for flow in [Flow::Request, Flow::Reply] {
            let pipe = Arc::clone(&pipe);
            std::thread::spawn(move || pipe.pump(flow));
        }
    }

    fn pump(&self, flow: Flow) {
        let (mut from, to) = match flow {
            Flow::Request => (&self.client, &self.server),
            Flow::Reply => (&self.server, &self.client),
        };
        let mut buffer = [0; 65536];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if !self.steps(flow, &buffer[..length]).into_iter().all(|step| self.take(step, to)) {
                break;
            }
        }
        self.close();
    }

    fn steps(&self, flow: Flow, data: &[u8]) -> Vec<Step> {
        let mut rule = self.shared.rule.lock().unwrap();
        rule.as_mut().map_or_else(|| pass(data), |rule| rule(self.number, flow, data))
    }

    /// Whether the connection goes on after this step.
    fn take(&self, step: Step, mut to: &Socket) -> bool {
        match step {
            Step::Send(data) => return to.write_all(&data).is_ok(),
            Step::Sleep(span) => std::thread::sleep(span),
            Step::Hold(gate) => gate.wait(&self.shared.over),
            Step::Copy(data) => drop(self.shared.server.connect().and_then(|server| exchange(server, &data))),
            Step::Cut => return false,
            Step::Reset => {
                self.reset.store(true, SeqCst);
                return false;
            }
        }
        true
    }

    /// The system sends a reset when the last owner drops a socket that does not linger. Until then only reading is shut
    /// down: shutting down both directions would end the connection in order.
    fn close(&self) {
        let _ = self.server.shutdown(Shutdown::Both);
        if self.reset.load(SeqCst) {
            let _ = self.client.set_linger(Some(Duration::ZERO));
            let _ = self.client.shutdown(Shutdown::Read);
        } else {
            let _ = self.client.shutdown(Shutdown::Both);
        }
    }
}

/// Has the server execute a request over a new connection, and returns the answer.
pub fn deliver(server: &Path, request: &[u8]) -> io::Result<String> {
    exchange(UnixStream::connect(server)?.into(), request)
}

fn exchange(mut server: Socket, request: &[u8]) -> io::Result<String> {
    server.write_all(request)?;
    let mut answer = [0; 1024];
    let length = server.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

pub fn pass(data: &[u8]) -> Vec<Step> {
    vec![Step::Send(data.to_vec())]
}

pub fn pass_after(delay: Duration, data: &[u8]) -> Vec<Step> {
    vec![Step::Sleep(delay), Step::Send(data.to_vec())]
}

/// Passes on `length` bytes, and then closes the connection.
pub fn cut_after(length: usize, data: &[u8]) -> Vec<Step> {
    vec![Step::Send(data[..length.min(data.len())].to_vec()), Step::Cut]
}

/// Whether data is a request that runs the script of this name, by its hash.
pub fn runs(name: &str) -> impl Fn(Flow, &[u8]) -> bool + Send + 'static {
    let hash = redis::Script::new(&lua::script(name)).get_hash().to_owned();
    move |flow, data| flow == Flow::Request && data.windows(hash.len()).any(|window| window == hash.as_bytes())
}

/// Numbers below a bound that look random and are the same in each run.
pub fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 + Send {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    }
}
