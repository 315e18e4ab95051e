//! The harness's fault proxy, from Unix socket to Unix socket: a test says what becomes of each piece of data.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Where a piece of data goes: to the server or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Request,
    Reply,
}

/// What the proxy does with a piece of data; nothing at all swallows it.
pub(crate) enum Step {
    Send(Vec<u8>),
    Sleep(Duration),
    /// Closes the connection on both sides.
    Cut,
}

/// Decides by the number of the connection, the direction and the data.
type Rule = Box<dyn FnMut(usize, Flow, &[u8]) -> Vec<Step> + Send>;
type SharedRule = Arc<Mutex<Option<Rule>>>;

/// A proxy in front of a server. Declare it between the server and its clients.
pub(crate) struct Proxy {
    path: PathBuf,
    rule: SharedRule,
    over: Arc<AtomicBool>,
}

impl Proxy {
    /// Passes everything on until it gets a rule.
    pub(crate) fn new(server: PathBuf) -> Self {
        let number = NUMBER.fetch_add(1, SeqCst);
        let path = std::env::temp_dir().join(format!("redlatch-px-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket for the proxy");
        let proxy = Self { path, rule: Arc::default(), over: Arc::default() };
        let (rule, over) = (Arc::clone(&proxy.rule), Arc::clone(&proxy.over));
        std::thread::spawn(move || {
            for (connection, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if over.load(SeqCst) {
                    return;
                }
                if let Ok(server) = UnixStream::connect(&server) {
                    join(connection, client, server, &rule);
                }
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    pub(crate) fn set(&self, rule: impl FnMut(usize, Flow, &[u8]) -> Vec<Step> + Send + 'static) {
        *self.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// From now on it passes everything on.
    pub(crate) fn clear(&self) {
        *self.rule.lock().unwrap() = None;
    }

    /// Each reply comes later by so much.
    pub(crate) fn delay(&self, by: Duration) {
        self.set(move |_, flow, data| if flow == Flow::Reply { pass_after(by, data) } else { pass(data) });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Starts to pass data on between the two ends.
fn join(connection: usize, client: UnixStream, server: UnixStream, rule: &SharedRule) {
    let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    for (flow, from, to) in [(Flow::Request, client, server), (Flow::Reply, from_server, to_client)] {
        let rule = Arc::clone(rule);
        std::thread::spawn(move || pump(connection, flow, from, to, &rule));
    }
}

fn pump(connection: usize, flow: Flow, mut from: UnixStream, mut to: UnixStream, rule: &SharedRule) {
    let mut buffer = [0; 65536];
    'open: while let Ok(length @ 1..) = from.read(&mut buffer) {
        let data = &buffer[..length];
        let steps = rule.lock().unwrap().as_mut().map_or_else(|| pass(data), |rule| rule(connection, flow, data));
        for step in steps {
            match step {
                Step::Send(data) if to.write_all(&data).is_ok() => {}
                Step::Sleep(span) => std::thread::sleep(span),
                Step::Send(_) | Step::Cut => break 'open,
            }
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

pub(crate) fn pass(data: &[u8]) -> Vec<Step> {
    vec![Step::Send(data.to_vec())]
}

pub(crate) fn pass_after(delay: Duration, data: &[u8]) -> Vec<Step> {
    vec![Step::Sleep(delay), Step::Send(data.to_vec())]
}

/// Passes on so many bytes, and then it is over with the connection.
pub(crate) fn cut_after(length: usize, data: &[u8]) -> Vec<Step> {
    vec![Step::Send(data[..length.min(data.len())].to_vec()), Step::Cut]
}

/// Whether data is a request that runs the script of this name, by its hash.
pub(crate) fn runs(name: &str) -> impl Fn(Flow, &[u8]) -> bool + Send + 'static {
    let text = match name {
        "acquire" => include_str!("../../src/lua/acquire.lua"),
        "release" => include_str!("../../src/lua/release.lua"),
        "reenter" => include_str!("../../src/lua/reenter.lua"),
        "renew" => include_str!("../../src/lua/renew.lua"),
        "force_unlock" => include_str!("../../src/lua/force_unlock.lua"),
        _ => panic!("there is no script {name}"),
    };
    let hash = redis::Script::new(text).get_hash().to_owned();
    move |flow, data| flow == Flow::Request && data.windows(hash.len()).any(|window| window == hash.as_bytes())
}
