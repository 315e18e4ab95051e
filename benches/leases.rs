//! What a lease means for those who wait: `cargo bench --bench leases`, some 90 seconds, mostly asleep.
//!
//! How soon another process has the lock of one that was killed, how many renewals a minute a lease costs, which pauses of
//! the holder and of the server a hold survives, and what each way to end a process leaves behind. The tables are those
//! of docs/leases.md. Holders are processes of this program; each is ended at another point between two renewals.
//!
//! It brings its own `redis-server`s. Without `--bench` (as `cargo test --benches` does) or with `--test`, it only
//! shows that it works.

#[allow(dead_code, reason = "each bench uses a part")]
mod support;

use redlatch::{Client, OwnedGuard, RedLock, RedLockExt, RedisRedLock};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use support::{Outcome, Server, connect};

/// The arguments that turn this program into a holder: the URL, the lock, the lease in ms and the ending follow.
const HOLDER: &str = "--holder";

/// What each holder's process does once it is told to end; the first does not end by itself.
const ENDINGS: [&str; 11] = [
    "SIGKILL",
    "SIGTERM",
    "process::exit",
    "process::abort",
    "panic of main",
    "main returns, static client",
    "main returns, detached thread holds",
    "main returns, guard forgotten",
    "main returns, owned guard forgotten",
    "main returns, guard in scope",
    "Client::shutdown, process::exit",
];

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    leases: &'static [u64],
    holders: u32,
    minute: Duration,
}

const FULL: Plan = Plan { leases: &[1_000, 3_000, 10_000, 30_000], holders: 9, minute: Duration::from_secs(60) };
const TINY: Plan = Plan { leases: &[600], holders: 1, minute: Duration::from_millis(300) };

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    if let [first, url, name, lease, ending] = args.as_slice()
        && first == HOLDER
    {
        return hold(url, name, Duration::from_millis(lease.parse()?), ending);
    }
    if has("--list") {
        return Ok(());
    }
    let tiny = has("--test") || !has("--bench");
    match Server::start() {
        Ok(server) => run(&server, if tiny { TINY } else { FULL }),
        Err(error) if tiny => {
            println!("not run: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn run(server: &Server, plan: Plan) -> Outcome<()> {
    let url = &server.unix();
    thread::scope(|scope| {
        let leases = plan.leases.iter().map(|lease| Duration::from_millis(*lease));
        let rows: Vec<_> = leases.map(|lease| scope.spawn(move || row(url, lease, plan))).collect();
        println!("lease | free after a SIGKILL: least, median, most | renewals a minute | survived pauses");
        for row in rows {
            println!("{}", row.join().expect("no panic")?);
        }
        println!("\nending | what is left of 30 s after 2 s");
        let endings = ENDINGS.map(|ending| (ending, scope.spawn(move || left_behind(url, ending))));
        for (ending, left) in endings {
            println!("{ending} | {}", left.join().expect("no panic")?);
        }
        Ok(())
    })
}

fn row(url: &str, lease: Duration, plan: Plan) -> Outcome<String> {
    thread::scope(|scope| {
        let renewals = scope.spawn(move || renewals(url, lease, plan.minute));
        let spans = scope.spawn(move || each(plan, |phase| take_over(url, lease, phase)));
        let pauses = [0.5, 1.05].map(|share| scope.spawn(move || holder_paused(url, lease, share, plan)));
        let halts = [0.5, 1.05].map(|share| scope.spawn(move || server_paused(lease, share, plan)));
        let mut spans = spans.join().expect("no panic")?;
        spans.sort();
        let spans = [0, spans.len() / 2, spans.len() - 1].map(|place| format!("{:.2} s", spans[place].as_secs_f64()));
        let renewals = renewals.join().expect("no panic")?;
        let survived: Outcome<Vec<_>> =
            pauses.into_iter().chain(halts).map(|one| one.join().expect("no panic")).collect();
        Ok(format!("{lease:?} | {} | {renewals} | {}", spans.join(", "), survived?.join(", ")))
    })
}

/// Does it for each holder at the same time, each at another point of the interval of renewals: 0 to 1.
fn each<T: Send>(plan: Plan, act: impl Fn(f64) -> Outcome<T> + Sync) -> Outcome<Vec<T>> {
    thread::scope(|scope| {
        let phases = (0..plan.holders).map(|number| f64::from(number) / f64::from(plan.holders));
        let act = &act;
        let acts: Vec<_> = phases.map(|phase| scope.spawn(move || act(phase))).collect();
        acts.into_iter().map(|act| act.join().expect("no panic")).collect()
    })
}

/// When the hold was renewed at least three times, and the next time is so near.
fn at_phase(lease: Duration, phase: f64) -> Duration {
    lease + lease.mul_f64((0.03 + 0.94 * phase) / 3.0)
}

/// How long a process that waits has to wait from the kill of the holder on.
fn take_over(url: &str, lease: Duration, phase: f64) -> Outcome<Duration> {
    let name = format!("take over:{lease:?}:{phase}");
    let holder = Holder::start(url, &name, lease, "SIGKILL")?;
    let locks = RedisRedLock::connect(url)?;
    thread::scope(|scope| {
        let successor = scope.spawn(|| -> Outcome<Instant> {
            locks.lock(&name)?;
            let acquired = Instant::now();
            locks.unlock(&name)?;
            Ok(acquired)
        });
        thread::sleep(at_phase(lease, phase));
        let killed = Instant::now();
        drop(holder);
        Ok(successor.join().expect("no panic")?.duration_since(killed))
    })
}

/// How many renewals one hold makes in that time. A busy machine may lose a short lease all the same.
fn renewals(url: &str, lease: Duration, minute: Duration) -> Outcome<String> {
    let locks = locks(url, lease)?;
    let guard = locks.guard(&format!("renewals:{lease:?}"))?;
    thread::sleep(minute);
    let lost = if guard.unlock().is_err() { ", then lost" } else { "" };
    Ok(format!("{}{lost}", locks.client().stats().renewals))
}

/// How many holders go on after a stop of their process for such a share of the lease.
fn holder_paused(url: &str, lease: Duration, share: f64, plan: Plan) -> Outcome<String> {
    let survived = each(plan, |phase| {
        let holder = Holder::start(url, &format!("paused:{lease:?}:{share}:{phase}"), lease, "is_valid")?;
        thread::sleep(at_phase(lease, phase));
        pause(holder.child.id(), lease.mul_f64(share))?;
        thread::sleep(lease / 2);
        holder.ends_valid()
    })?;
    Ok(show(&format!("holder {share}"), &survived))
}

/// The same, but it is the server that is stopped.
fn server_paused(lease: Duration, share: f64, plan: Plan) -> Outcome<String> {
    let server = Server::start()?;
    let url = &server.unix();
    // Those of a later phase are started that much earlier.
    let holders = each(plan, |phase| {
        thread::sleep(lease.mul_f64((1.0 - phase) / 3.0));
        Holder::start(url, &format!("{phase}"), lease, "is_valid")
    })?;
    thread::sleep(lease);
    pause(server.id(), lease.mul_f64(share))?;
    thread::sleep(lease / 2);
    let survived: Outcome<Vec<_>> = holders.into_iter().map(Holder::ends_valid).collect();
    Ok(show(&format!("server {share}"), &survived?))
}

fn show(what: &str, survived: &[bool]) -> String {
    format!("{what}: {} of {}", survived.iter().filter(|survived| **survived).count(), survived.len())
}

fn pause(pid: u32, span: Duration) -> Outcome<()> {
    signal("-STOP", pid)?;
    thread::sleep(span);
    signal("-CONT", pid)
}

fn signal(name: &str, pid: u32) -> Outcome<()> {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status()?.success();
    if sent { Ok(()) } else { Err(format!("no {name} to {pid}").into()) }
}

/// What is left of a lock of 30 s, held for 2 s, when the process of its holder has ended.
fn left_behind(url: &str, ending: &str) -> Outcome<String> {
    let name = format!("left:{ending}");
    let mut holder = Holder::start(url, &name, Duration::from_secs(30), ending)?;
    thread::sleep(Duration::from_secs(2));
    match ending {
        "SIGKILL" => holder.child.kill()?,
        "SIGTERM" => signal("-TERM", holder.child.id())?,
        _ => holder.tell()?,
    }
    holder.child.wait()?;
    let mut connection = connect(url)?;
    let left: i64 = redis::cmd("PTTL").arg(&name).query(&mut connection)?;
    redis::cmd("DEL").arg(&name).exec(&mut connection)?;
    Ok(if left == -2 { "nothing".to_owned() } else { format!("{:.1} s", left as f64 / 1_000.0) })
}

/// Another process that holds a lock. Killed when dropped.
struct Holder {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Holder {
    fn start(url: &str, name: &str, lease: Duration, ending: &str) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([HOLDER, url, name, &lease.as_millis().to_string(), ending]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut holder = Self { child, lines };
        let held = holder.hear()?;
        if held == "held" { Ok(holder) } else { Err(format!("the holder says {held:?}").into()) }
    }

    fn hear(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn tell(&mut self) -> Outcome<()> {
        Ok(writeln!(self.child.stdin.as_mut().ok_or("no stdin")?)?)
    }

    /// Asks whether it still holds its lock.
    fn ends_valid(mut self) -> Outcome<bool> {
        self.tell()?;
        Ok(self.hear()? == "true")
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn locks(url: &str, lease: Duration) -> redlatch::Result<RedisRedLock> {
    Ok(RedisRedLock::new(&Client::builder(url).watchdog_timeout(lease).build()?))
}

/// Says that it holds, and waits to be told.
fn held() -> Outcome<()> {
    println!("held");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The other process.
fn hold(url: &str, name: &str, lease: Duration, ending: &str) -> Outcome<()> {
    static LOCKS: OnceLock<RedisRedLock> = OnceLock::new();
    let locks = locks(url, lease)?;
    match ending {
        "main returns, static client" => {
            LOCKS.get_or_init(|| locks).lock(name)?;
            return held();
        }
        "main returns, detached thread holds" => return detached(locks, name.to_owned()),
        "main returns, guard forgotten" => {
            std::mem::forget(locks.guard(name)?);
            return held();
        }
        "main returns, owned guard forgotten" => {
            let guard: OwnedGuard<_> = Arc::new(locks).owned_guard(name)?;
            std::mem::forget(guard);
            return held();
        }
        _ => {}
    }
    let guard = locks.guard(name)?;
    held()?;
    match ending {
        "process::exit" => std::process::exit(0),
        "process::abort" => std::process::abort(),
        "panic of main" => panic!("on purpose"),
        "Client::shutdown, process::exit" => {
            locks.client().shutdown();
            std::process::exit(0)
        }
        "is_valid" => println!("{}", guard.is_valid() && locks.verify(&guard)?),
        _ => {}
    }
    Ok(())
}

/// The thread has its own clone of the client, which nobody drops.
fn detached(locks: RedisRedLock, name: String) -> Outcome<()> {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let _guard = locks.guard(&name).expect("the lock is free");
        tell.send(()).expect("main listens");
        loop {
            thread::park();
        }
    });
    told.recv()?;
    held()
}
