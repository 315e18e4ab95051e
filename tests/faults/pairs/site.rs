//! A server, the record of what it ran, and the proxy between it and the holder.

use crate::faults::Fault;
use crate::machine::Machine;
use crate::truth::{BY_HAND, MS, Micros, Record, now};
use harness::lua;
use harness::proxy::{Flow, Gate, Proxy, Step, deliver, pass};
use harness::server::{Server, Signal, signal};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::sleep;
use std::time::Duration;

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How long a request or an answer that comes late is kept.
const LATE: Duration = Duration::from_millis(150);

/// How long a fault lasts that does not end at once.
const LASTS: Duration = Duration::from_millis(300);

/// Longer than a response time-out.
const LONG: Duration = Duration::from_millis(1_200);

/// The scripts that release: the hash of each, and its text.
static RELEASE_SCRIPTS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let names = [
        "release",
        "release_in_turn",
        "release_group",
        "fair/release",
        "reads/release",
        "writes/release",
        "leased/release",
    ];
    // In a cluster the channels of a shard carry what they publish.
    let sharded = |text: &str| text.replace("'PUBLISH'", "'SPUBLISH'").replace("'NUMSUB'", "'SHARDNUMSUB'");
    let texts = names.iter().map(|name| lua::script(name)).flat_map(|text| [sharded(&text), text]);
    texts.map(|text| (redis::Script::new(&text).get_hash().to_owned(), text)).collect()
});

/// Their hashes.
pub(crate) static RELEASES: LazyLock<Vec<String>> =
    LazyLock::new(|| RELEASE_SCRIPTS.iter().map(|(hash, _)| hash.clone()).collect());

/// What a fault at the release does.
pub(crate) type Hit = Box<dyn FnOnce() + Send>;

/// What became of an attempt's answer, as its client can know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// None was passed on.
    None,
    At(Micros),
    /// The server said then that it executed nothing.
    Refused(Micros),
    /// It was kept back for some time, and may have come too late.
    Perhaps,
}

/// A release that a client sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) at: Micros,
    /// The life of the server when its connection was made, behind those of the sites before.
    pub(crate) life: usize,
    data: Vec<u8>,
    pub(crate) reply: Reply,
}

impl Sent {
    pub(crate) fn is_of(&self, owner: &str) -> bool {
        contains(&self.data, owner.as_bytes())
    }
}

/// What a proxy does, and what it saw.
#[derive(Default)]
pub(crate) struct Wire {
    /// To the next scripts.
    pub(crate) next: VecDeque<Fault>,
    /// What happens when a release comes by, and what it meets then.
    pub(crate) at_release: Vec<Hit>,
    /// What the next answers of these connections meet.
    replies: HashMap<usize, Fault>,
    /// The release of each connection that was not answered yet.
    open: HashMap<usize, usize>,
    pub(crate) sent: Vec<Sent>,
    /// In which life of the server each connection was made.
    born: HashMap<usize, usize>,
    /// In which life the server at each place is.
    pub(crate) lives: HashMap<usize, usize>,
    /// Nothing goes on until then: the server starts anew, and nobody records it yet.
    gate: Option<Gate>,
    /// The same, because it is silent.
    silence: Option<Gate>,
    /// The same of the site at a place, while a replica takes its place that lost all.
    hushed: HashMap<usize, Gate>,
}

impl Wire {
    fn steps(
        wire: &Arc<Mutex<Self>>,
        server: &std::path::Path,
        connection: usize,
        flow: Flow,
        data: &[u8],
    ) -> Vec<Step> {
        let is_script = flow == Flow::Request && contains(data, b"EVAL");
        let is_release = is_script && is_release(data);
        if is_release {
            let hits = std::mem::take(&mut wire.lock().unwrap().at_release);
            hits.into_iter().for_each(|hit| hit());
        }
        let mut wire = wire.lock().unwrap();
        let place = connection / CONNECTIONS;
        let gates = [wire.gate.as_ref(), wire.silence.as_ref(), wire.hushed.get(&place)];
        let mut steps: Vec<_> = gates.into_iter().flatten().cloned().map(Step::Hold).collect();
        if flow == Flow::Reply {
            let met = wire.replies.remove(&connection);
            let is_lost = matches!(met, Some(Fault::CutAnswer | Fault::CutWithinAnswer | Fault::SwallowAnswer));
            let is_refused = met == Some(Fault::SaysLoading) || data[0] == b'-';
            if let Some(at) = wire.open.remove(&connection) {
                wire.sent[at].reply = match met {
                    _ if is_lost => Reply::None,
                    _ if !steps.is_empty() => Reply::Perhaps,
                    _ if is_refused => Reply::Refused(now()),
                    Some(Fault::DelayAnswer) => Reply::At(now() + LATE.as_micros() as Micros),
                    _ => Reply::At(now()),
                };
            }
            steps.extend(match met {
                Some(Fault::CutAnswer) => vec![Step::Cut],
                Some(Fault::CutWithinAnswer) => vec![Step::Send(data[..data.len() / 2].to_vec()), Step::Cut],
                Some(Fault::SwallowAnswer) => vec![],
                Some(Fault::DoubleAnswer) => vec![Step::Send([data, data].concat())],
                Some(Fault::DelayAnswer) => vec![Step::Sleep(LATE), Step::Send(data.to_vec())],
                Some(Fault::SaysLoading) => {
                    vec![Step::Send(b"-LOADING Redis is loading the dataset in memory\r\n".to_vec())]
                }
                _ => pass(data),
            });
            return steps;
        }
        let life = wire.lives.get(&place).copied().unwrap_or(place * LIVES) + usize::from(wire.gate.is_some());
        let life = *wire.born.entry(connection).or_insert(life);
        // More than one command needs more than one answer.
        let is_alone = !data.windows(3).any(|window| window == b"\n*");
        let met = if is_script { wire.next.pop_front() } else { None };
        let met = met.filter(|met| *met != Fault::SaysLoading || is_alone);
        if is_release {
            // What is still open on this connection is answered before.
            let at = wire.sent.len();
            wire.open.insert(connection, at);
            wire.sent.push(Sent { at: now(), life, data: data.to_vec(), reply: Reply::None });
        }
        if matches!(met, Some(Fault::CutRequest | Fault::CutWithinRequest | Fault::SwallowRequest | Fault::LateCopy)) {
            wire.open.remove(&connection);
        }
        steps.extend(match met {
            Some(Fault::CutRequest) => vec![Step::Cut],
            Some(Fault::CutWithinRequest) => vec![Step::Send(data[..data.len() / 2].to_vec()), Step::Cut],
            Some(Fault::SwallowRequest) => vec![],
            Some(Fault::DelayRequest) => vec![Step::Sleep(LATE), Step::Send(data.to_vec())],
            Some(Fault::LateCopy) => {
                let (server, data) = (server.to_owned(), data.to_vec());
                std::thread::spawn(move || {
                    sleep(LASTS);
                    let _ = deliver(&server, &data);
                });
                vec![Step::Cut]
            }
            Some(Fault::SaysLoading) => {
                wire.replies.insert(connection, Fault::SaysLoading);
                vec![Step::Send(b"*1\r\n$4\r\nPING\r\n".to_vec())]
            }
            met => {
                wire.replies.extend(met.map(|met| (connection, met)));
                pass(data)
            }
        });
        steps
    }
}

fn contains(data: &[u8], part: &[u8]) -> bool {
    data.windows(part.len()).any(|window| window == part)
}

fn is_release(data: &[u8]) -> bool {
    RELEASE_SCRIPTS.iter().any(|(hash, text)| contains(data, hash.as_bytes()) || contains(data, text.as_bytes()))
}

/// A lock's key at a server, as faults see it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) key: String,
    /// A leased semaphore: the key of its leases is another.
    pub(crate) leases: Option<String>,
    /// How many permits it has.
    pub(crate) permits: u64,
}

/// Who the two clients are.
const USERS: [&str; 2] = ["holder", "rival"];

pub(crate) fn let_in(server: &Machine) -> redis::RedisResult<()> {
    USERS.iter().try_for_each(|user| server.try_ask(&["ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all"]))
}

/// The number of the first connection, and of the first life, of the next site, where several share a wire.
const CONNECTIONS: usize = 1_000_000;
pub(crate) const LIVES: usize = 1_000;

pub(crate) struct Site {
    /// Where it stands among those that share a wire.
    place: usize,
    pub(crate) server: Mutex<Machine>,
    pub(crate) record: Record,
    pub(crate) wire: Arc<Mutex<Wire>>,
    pub(crate) proxy: Arc<Proxy>,
    /// The way of the other clients, which has no faults of its own.
    pub(crate) other: Arc<Proxy>,
    pub(crate) others: Arc<Mutex<Wire>>,
    lives: Mutex<usize>,
    /// One restart after the other.
    restarts: Mutex<()>,
    is_over: AtomicBool,
}

impl Site {
    /// On a Unix socket a write to a closed connection fails; on a port the system takes it.
    pub(crate) fn open(is_on_port: bool) -> Self {
        let server = Server::start_with_data();
        let socket = server.socket();
        let way = || if is_on_port { Proxy::on_tcp(socket.clone()) } else { Proxy::new(socket.clone()) };
        let record = Record::default();
        record.listen(&socket, 0);
        Self::at(Machine::own(server), [(); 2].map(|()| Arc::new(way())), record, &Default::default(), 0)
    }

    /// The holder's way and the others' lead to a server, which is recorded. Sites may share wires.
    pub(crate) fn at(
        server: Machine,
        ways: [Arc<Proxy>; 2],
        record: Record,
        wires: &[Arc<Mutex<Wire>>; 2],
        place: usize,
    ) -> Self {
        let_in(&server).expect("the server runs");
        // What meets the first renewal meets one that is executed.
        for name in ["renew", "reads/renew", "leased/renew"] {
            let _ = server.try_ask::<String>(&["SCRIPT", "LOAD", &lua::script(name)]);
        }
        for (way, wire) in ways.iter().zip(wires) {
            let (wire, socket, first) = (Arc::clone(wire), server.socket(), place * CONNECTIONS);
            way.set(move |connection, flow, data| Wire::steps(&wire, &socket, first + connection, flow, data));
        }
        let ([proxy, other], [wire, others]) = (ways, wires.clone());
        Self {
            place,
            server: Mutex::new(server),
            record,
            wire,
            proxy,
            other,
            others,
            lives: Mutex::new(place * LIVES),
            restarts: Mutex::new(()),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn life(&self) -> usize {
        *self.lives.lock().unwrap()
    }

    /// A new life begins, and everything goes on. Returns its number.
    pub(crate) fn begin_life(&self) -> usize {
        let mut lives = self.lives.lock().unwrap();
        *lives += 1;
        for wire in [&self.wire, &self.others] {
            let mut wire = wire.lock().unwrap();
            wire.gate = None;
            wire.lives.insert(self.place, *lives);
        }
        *lives
    }

    /// Of the holder and of the rival.
    pub(crate) fn urls(&self) -> [String; 2] {
        let of = |(proxy, user): (&Arc<Proxy>, &str)| match proxy.url() {
            url if url.starts_with("redis:") => url.replace("//", &format!("//{user}:pw@")),
            url => format!("{url}?user={user}&pass=pw"),
        };
        [(&self.proxy, USERS[0]), (&self.other, USERS[1])].map(of)
    }

    /// Somebody sets the permits of a semaphore that was lost.
    fn set_permits(&self, targets: &[Target]) -> redis::RedisResult<()> {
        let mut of_semaphores = targets.iter().filter(|target| target.leases.is_some());
        of_semaphores.try_for_each(|target| self.ask(&["SET", &target.key, &target.permits.to_string()]).map(drop))
    }

    /// A fault, now. Those that last end by themselves.
    pub(crate) fn hit(self: &Arc<Self>, fault: Fault, targets: &[Target]) {
        if fault.is_of_wire() {
            self.wire.lock().unwrap().next.push_back(fault);
            return;
        }
        let ask = |words: &[&str]| self.ask(words).map(drop);
        let told = match fault {
            // Of the two clients: the record goes on.
            Fault::KillNormal => {
                USERS.iter().try_for_each(|user| ask(&["CLIENT", "KILL", "TYPE", "normal", "USER", user]))
            }
            Fault::KillPubsub => ask(&["CLIENT", "KILL", "TYPE", "pubsub"]),
            Fault::Pause => ask(&["CLIENT", "PAUSE", "300"]),
            Fault::Freeze => self.freeze(LASTS),
            Fault::FreezeLong => self.freeze(LONG),
            Fault::RestartEmpty => self.restart(Some(targets)),
            Fault::RestartWithData => self.restart(None),
            Fault::FlushAll => ask(&["FLUSHALL"]).and_then(|()| self.set_permits(targets)),
            Fault::Silence => self.be_silent(LASTS),
            Fault::SilenceLong => self.be_silent(LONG),
            Fault::Del | Fault::Take | Fault::EndLease => {
                targets.iter().try_for_each(|target| self.change(fault, target))
            }
            Fault::ScriptFlush => ask(&["SCRIPT", "FLUSH"]),
            Fault::NoMemory => {
                let begun = ask(&["CONFIG", "SET", "maxmemory", "1"]);
                self.later(LASTS, |site| _ = site.ask(&["CONFIG", "SET", "maxmemory", "0"]));
                begun
            }
            Fault::NoRight => {
                let begun = ask(&["ACL", "SETUSER", "holder", "-evalsha", "-eval"]);
                self.later(LASTS, |site| _ = site.ask(&["ACL", "SETUSER", "holder", "+evalsha", "+eval"]));
                begun
            }
            _ => unreachable!("a fault of the wire, or one that a client causes"),
        };
        // A server that is being started anew by another fault takes no command.
        let _ = told;
    }

    pub(crate) fn ask(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let server = self.server.lock().unwrap();
        if self.is_over.load(SeqCst) {
            return Ok(redis::Value::Nil);
        }
        server.try_ask(words)
    }

    /// Ends the server. What lasts is left.
    pub(crate) fn close(&self) {
        // They know this site.
        self.wire.lock().unwrap().at_release.clear();
        let mut server = self.server.lock().unwrap();
        if !self.is_over.swap(true, SeqCst) {
            server.end();
        }
    }

    /// The holder hears nothing, and nothing of it is heard.
    fn be_silent(self: &Arc<Self>, span: Duration) -> redis::RedisResult<()> {
        let gate = Gate::default();
        self.wire.lock().unwrap().silence = Some(gate.clone());
        self.later(span, move |site| {
            site.wire.lock().unwrap().silence = None;
            gate.open();
        });
        Ok(())
    }

    fn later(self: &Arc<Self>, after: Duration, act: impl FnOnce(&Self) + Send + 'static) {
        let site = Arc::clone(self);
        std::thread::spawn(move || {
            sleep(after);
            act(&site);
        });
    }

    fn freeze(&self, span: Duration) -> redis::RedisResult<()> {
        let server = self.server.lock().unwrap();
        let Some(pid) = server.pid() else { return Ok(()) };
        server.freeze();
        // Without the lock: whoever asks the server waits for it with that.
        std::thread::spawn(move || {
            sleep(span);
            let _ = signal(Signal::CONT, pid);
        });
        Ok(())
    }

    /// Nobody is heard any more, and what is under way is executed and recorded, before the server ends.
    pub(crate) fn hold(&self) -> Gate {
        let gate = Gate::default();
        for wire in [&self.wire, &self.others] {
            wire.lock().unwrap().gate = Some(gate.clone());
        }
        self.server.lock().unwrap().thaw();
        sleep(ms(5));
        self.settle();
        gate
    }

    /// Nobody is heard before the record goes on.
    fn restart(&self, empty: Option<&[Target]>) -> redis::RedisResult<()> {
        let _one = self.restarts.lock().unwrap();
        let gate = self.hold();
        let mut server = self.server.lock().unwrap();
        if self.is_over.load(SeqCst) {
            return Ok(());
        }
        if empty.is_some() {
            let _ = server.try_ask::<redis::Value>(&["FLUSHALL"]);
        }
        server.kill();
        if empty.is_some() {
            self.record.note(&["lost"], *self.lives.lock().unwrap());
        }
        server.restart();
        let_in(&server)?;
        // Connections that were made since it was silent count as of this life.
        let life = *self.lives.lock().unwrap() + 1;
        self.record.listen(&server.socket(), life);
        drop(server);
        empty.map_or(Ok(()), |targets| self.set_permits(targets))?;
        self.begin_life();
        gate.open();
        Ok(())
    }

    fn change(&self, fault: Fault, Target { key, leases, permits }: &Target) -> redis::RedisResult<()> {
        let socket = self.server.lock().unwrap().socket();
        let mut connection = redis::Client::open(format!("unix://{}", socket.display()))?.get_connection()?;
        connection.set_read_timeout(Some(LASTS))?;
        let (mut pipe, until) = (redis::pipe(), (now() + 3_000 * MS) / 1_000);
        pipe.atomic();
        match (fault, leases) {
            (Fault::Take, None) => {
                pipe.cmd("DEL").arg(key).cmd("HSET").arg(key).arg("stranger:1:1").arg(1);
                pipe.cmd("PEXPIRE").arg(key).arg(3_000);
            }
            (Fault::Take, Some(leases)) => {
                pipe.cmd("DEL").arg(leases).cmd("SET").arg(key).arg(0);
                (1..=*permits).for_each(|permit| {
                    pipe.cmd("ZADD").arg(leases).arg(until).arg(format!("stranger:1:1:{permit}"));
                });
            }
            (Fault::EndLease, None) => _ = pipe.cmd("PEXPIRE").arg(key).arg(1),
            (_, None) => {
                _ = pipe.cmd("DEL").arg(key).cmd("PUBLISH").arg(format!("redisson_lock__channel:{{{key}}}")).arg(0)
            }
            // Of a hold with two permits one alone is taken away.
            (fault, Some(leases)) => {
                let text = format!(
                    "{BY_HAND}\nfor _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[1])) do \
                     if ARGV[1] == '-1' then redis.call('ZADD', KEYS[1], ARGV[2], id) \
                     else redis.call('ZREM', KEYS[1], id) redis.call('INCR', KEYS[2]) end end"
                );
                let last = if fault == Fault::EndLease { "-1" } else { "0" };
                pipe.cmd("EVAL").arg(text).arg(2).arg(leases).arg(key).arg(last).arg(now() / 1_000 - 1);
                pipe.cmd("PUBLISH").arg(format!("redisson_sc:{{{key}}}")).arg(1);
            }
        }
        pipe.query::<()>(&mut connection)
    }

    /// Whether each permit is either left or out.
    pub(crate) fn has_all_permits(&self, target: &Target) -> bool {
        let Some(leases) = &target.leases else { return true };
        let server = self.server.lock().unwrap();
        let left: u64 = server.try_ask::<Option<u64>>(&["GET", &target.key]).ok().flatten().unwrap_or_default();
        left + server.try_ask::<u64>(&["ZCARD", leases]).unwrap_or_default() == target.permits
    }

    /// Nobody is heard here until that is dropped.
    pub(crate) fn hush(&self) -> Hush {
        let hush = Hush { gate: Gate::default(), place: self.place, wires: [&self.wire, &self.others].map(Arc::clone) };
        hush.wires.iter().for_each(|wire| _ = wire.lock().unwrap().hushed.insert(hush.place, hush.gate.clone()));
        hush
    }

    /// The record has all that was run until now.
    pub(crate) fn settle(&self) {
        let word = format!("settled-{}", now());
        for _ in 0..1_000 {
            if self.ask(&["ECHO", &word]).is_ok() {
                break;
            }
            sleep(ms(10));
        }
        for _ in 0..1_000 {
            if self.record.has(&word) {
                return;
            }
            sleep(ms(5));
        }
        panic!("the server shows no commands");
    }
}

pub(crate) struct Hush {
    gate: Gate,
    place: usize,
    wires: [Arc<Mutex<Wire>>; 2],
}

impl Drop for Hush {
    fn drop(&mut self) {
        self.wires.iter().for_each(|wire| _ = wire.lock().unwrap().hushed.remove(&self.place));
        self.gate.open();
    }
}
