//! What a quorum of five costs: `cargo bench --bench quorum`, with all nodes up, two killed, and two stopped.
//!
//! Ours is `lock` + `unlock` of a `QuorumLock`. Its floor is the two scripts by EVALSHA on private connections to the
//! nodes that are up, once each pair by a thread for each node, all at the same time, and once by one thread that
//! writes to all and then reads from all. The contenders take turns in short rounds and are compared round by round,
//! because on a shared machine the minute counts for more than the program; hence a plain `main`.
//!
//! It brings its own `redis-server`s. Without `--bench` (as `cargo test --benches` does) or with `--test`, it only
//! shows that it works.

#[allow(dead_code, reason = "each bench uses a part")]
mod support;

use harness::lua;
use redis::{Cmd, Connection, Value};
use redlatch::{QuorumLock, RedLock};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use support::contest::{self, Contender, Scale, show_head};
use support::{Outcome, Samples, Server, connect};

const NODES: usize = 5;

const FULL: Scale = Scale { rounds: 20, pairs: 200 };
fn main() -> Outcome<()> {
    contest::main(FULL, servers, run)
}

fn servers() -> Outcome<Vec<Server>> {
    std::iter::repeat_with(Server::start).take(NODES).collect()
}

fn run(mut up: Vec<Server>, scale: Scale) -> Outcome<()> {
    show_head(scale);
    println!("5 nodes up");
    compare(&up, NODES, scale)?;
    println!("5 nodes, 2 of them killed");
    up.iter_mut().take(2).try_for_each(Server::kill)?;
    compare(&up, 2, scale)?;
    drop(up);
    println!("5 nodes, 2 of them stopped");
    let stopped = servers()?;
    stopped.iter().take(2).try_for_each(Server::stop)?;
    compare(&stopped, 2, scale)
}

/// Ours first and then the floors; `down`: so many of the first nodes do not answer, or none if it is all of them.
fn compare(servers: &[Server], down: usize, scale: Scale) -> Outcome<()> {
    let up = if down == NODES { servers } else { &servers[down..] };
    let locks = QuorumLock::connect(servers.iter().map(Server::unix))?;
    let (mut threads, mut by_one) = (Threads::start(up)?, ByOne::new(up)?);
    let contenders: Vec<Contender<'_>> = vec![
        ("ours", Box::new(|| Ok(locks.lock(OURS).and_then(|()| locks.unlock(OURS))?)), Samples::default()),
        ("floor: a thread for each node", Box::new(|| threads.pair()), Samples::default()),
        ("floor: one thread for all", Box::new(|| by_one.pair()), Samples::default()),
    ];
    contest::compare(scale, contenders)
}

/// Names of one length.
const OURS: &str = "bench:quorum:o";
const FLOOR: &str = "bench:quorum:f";
const OWNER: &str = "01234567-89ab-cdef-0123-456789abcdef:1:12345";

/// The two commands of a pair, packed, and a connection.
struct Scripts {
    connection: Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
    /// What the acquire says if it got the lock: its deadline.
    taken: Value,
}

impl Scripts {
    fn new(server: &Server) -> Outcome<Self> {
        let mut connection = connect(&server.unix())?;
        let mut load = |text: &str| redis::cmd("SCRIPT").arg("LOAD").arg(text).query::<String>(&mut connection);
        let acquire = load(&lua::script("acquire"))?;
        let release = load(&lua::script("release"))?;
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection)?;
        let deadline = (seconds + 3_600) * 1_000_000;
        let taken = Value::Int(deadline.cast_signed());
        let call = |hash: &str| redis::cmd("EVALSHA").arg(hash).arg(1).arg(FLOOR).take();
        let pack = |command: &mut Cmd| command.get_packed_command();
        let acquire = pack(call(&acquire).arg(deadline).arg(30_000).arg(OWNER).arg(1));
        let release = pack(call(&release).arg(OWNER).arg(0).arg(format!("redisson_lock__channel:{{{FLOOR}}}")));
        Ok(Self { connection, acquire, release, taken })
    }

    fn expect(&mut self, reply: &Value) -> Outcome<()> {
        let got = self.connection.recv_response()?;
        if got == *reply { Ok(()) } else { Err(format!("the floor got {got:?}").into()) }
    }

    fn take(&mut self) -> Outcome<()> {
        self.connection.send_packed_command(&self.acquire)?;
        self.expect(&self.taken.clone())
    }

    fn free(&mut self) -> Outcome<()> {
        self.connection.send_packed_command(&self.release)?;
        self.expect(&Value::Int(1))
    }
}

/// A thread that writes to all and then reads from all.
struct ByOne {
    nodes: Vec<Scripts>,
}

impl ByOne {
    fn new(servers: &[Server]) -> Outcome<Self> {
        Ok(Self { nodes: servers.iter().map(Scripts::new).collect::<Outcome<_>>()? })
    }

    fn pair(&mut self) -> Outcome<()> {
        self.nodes.iter_mut().try_for_each(|node| node.connection.send_packed_command(&node.acquire))?;
        self.nodes.iter_mut().try_for_each(|node| node.expect(&node.taken.clone()))?;
        self.nodes.iter_mut().try_for_each(|node| node.connection.send_packed_command(&node.release))?;
        self.nodes.iter_mut().try_for_each(|node| node.expect(&Value::Int(1)))
    }
}

/// A thread for each node; a pair is over when each has acquired, and then each has released.
struct Threads {
    orders: Vec<Sender<bool>>,
    done: Receiver<Outcome<()>>,
}

impl Threads {
    fn start(servers: &[Server]) -> Outcome<Self> {
        let (tell, done) = channel();
        let tell = Arc::new(tell);
        let mut orders = Vec::new();
        for server in servers {
            let (mut node, tell, (order, wanted)) = (Scripts::new(server)?, Arc::clone(&tell), channel());
            std::thread::spawn(move || {
                for take in wanted {
                    let _ = tell.send(if take { node.take() } else { node.free() });
                }
            });
            orders.push(order);
        }
        Ok(Self { orders, done })
    }

    fn pair(&mut self) -> Outcome<()> {
        for take in [true, false] {
            self.orders.iter().try_for_each(|order| order.send(take))?;
            self.orders.iter().try_for_each(|_| self.done.recv()?)?;
        }
        Ok(())
    }
}
