//! What the benches need around them: servers of their own, samples with quantiles, and a waiter in another process.

pub(crate) mod actors;
pub(crate) mod contest;
pub(crate) mod doubts;
pub(crate) mod floor;
pub(crate) mod turns;
pub(crate) mod watch;

use redis::io::tcp::TcpSettings;
use redis::{Connection, IntoConnectionInfo};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The arguments that turn this program into the other process of a [`Waiter`]; the URL follows.
pub(crate) const WAITER: &str = "--waiter";
pub(crate) const WAITER_BY_HAND: &str = "--waiter-by-hand";

/// A `redis-server` on a Unix socket and a loopback port. Dropping it ends it and removes its directory.
pub(crate) struct Server {
    child: Child,
    dir: PathBuf,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Outcome<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let dir = std::env::temp_dir().join(format!("redlatch-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let port = free_port()?;
        match spawn_server(&dir, port) {
            Ok(child) => Self { child, dir, port }.ready(),
            Err(error) => {
                std::fs::remove_dir_all(&dir)?;
                Err(format!("redis-server cannot be started: {error}").into())
            }
        }
    }

    fn ready(self) -> Outcome<Self> {
        let patience = Instant::now() + Duration::from_secs(5);
        while connect(&self.unix()).and_then(|mut connection| ping(&mut connection)).is_err() {
            if Instant::now() > patience {
                return Err("redis-server does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(self)
    }

    pub(crate) fn unix(&self) -> String {
        format!("unix://{}", self.dir.join("socket").display())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// It keeps its connections and answers nothing until it is killed.
    pub(crate) fn stop(&self) -> Outcome<()> {
        let stopped = Command::new("kill").args(["-STOP", &self.child.id().to_string()]).status()?.success();
        if stopped { Ok(()) } else { Err("the server cannot be stopped".into()) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn tcp(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Server {
    /// Runs `act` with the server, this thread and all threads it starts on one core.
    pub(crate) fn on_one_core<T>(&self, act: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        on_one_core(&[self.id()], act)
    }
}

/// Runs `act` with these processes, this thread and all threads it starts on one core.
#[cfg(target_os = "linux")]
pub(crate) fn on_one_core<T>(processes: &[u32], act: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
    let all = sched_getaffinity(None)?;
    let pid = |process: &u32| i32::try_from(*process).ok().and_then(Pid::from_raw);
    let move_to = |cores: &CpuSet| {
        let mut processes = processes.iter().filter_map(pid);
        processes.try_for_each(|process| sched_setaffinity(Some(process), cores))?;
        sched_setaffinity(None, cores)
    };
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).rev().find(|core| all.is_set(*core)).ok_or("no core")?);
    move_to(&one)?;
    let result = act();
    move_to(&all)?;
    result
}

/// Here threads cannot be kept on a core.
#[cfg(not(target_os = "linux"))]
pub(crate) fn on_one_core<T>(_: &[u32], act: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    act()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn spawn_server(dir: &std::path::Path, port: u16) -> std::io::Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning"]);
    command.arg("--port").arg(port.to_string()).arg("--dir").arg(dir).arg("--unixsocket").arg(dir.join("socket"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// A private connection, set as the pool's are: no Nagle, and a time-out on reads.
pub(crate) fn connect(url: &str) -> Outcome<Connection> {
    let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let connection = redis::Client::open(info)?.get_connection()?;
    connection.set_read_timeout(Some(Duration::from_secs(2)))?;
    Ok(connection)
}

pub(crate) fn ping(connection: &mut Connection) -> Outcome<()> {
    Ok(redis::cmd("PING").exec(connection)?)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share; an `Instant` cannot be sent.
pub(crate) fn monotonic() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Until a point in time by [`monotonic`].
pub(crate) fn sleep_until(start: i64) {
    std::thread::sleep(Duration::from_nanos(u64::try_from(start - monotonic()).unwrap_or(0)));
}

/// The processor time of this process so far, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The median and the most.
pub(crate) fn median_and_most(values: &Samples) -> String {
    format!("{:.0} (max {:.0})", values.p50(), values.quantile(1.0))
}

/// The median of the rounds, the least and the most. A round in which nobody had the lock, or nobody passed it on, may
/// have no such figure.
pub(crate) fn cell(values: &Samples, digits: usize) -> String {
    let known: Samples = values.all().iter().copied().filter(|value| value.is_finite()).collect();
    if known.all().is_empty() {
        return "-".to_owned();
    }
    let at = |share| format!("{:.digits$}", known.quantile(share));
    let (least, most) = (at(0.0), at(1.0));
    if least == most { least } else { format!("{} ({least} to {most})", at(0.5)) }
}

/// The values of an option that may be given more than once.
pub(crate) fn values<'a>(args: &'a [String], option: &str) -> Vec<&'a str> {
    args.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1].as_str()).collect()
}

/// Durations in nanoseconds.
#[derive(Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Times one call.
    pub(crate) fn time(&mut self, act: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
        let start = Instant::now();
        act()?;
        self.push(start.elapsed().as_nanos() as f64);
        Ok(())
    }

    pub(crate) fn push(&mut self, nanos: f64) {
        self.0.push(nanos);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn all(&self) -> &[f64] {
        &self.0
    }

    /// The value that this share of the samples does not exceed.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.quantile(0.5)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// What is timed.
pub(crate) type Act<'a> = &'a mut dyn FnMut() -> Outcome<()>;

pub(crate) fn repeat(times: usize, act: Act<'_>) -> Outcome<Samples> {
    let mut samples = Samples::default();
    for _ in 0..times {
        samples.time(&mut *act)?;
    }
    Ok(samples)
}

/// One round of two contenders; who goes first changes, as what is measured second finds a warmer server.
pub(crate) fn take_turns(round: usize, times: usize, [one, other]: [Act<'_>; 2]) -> Outcome<[Samples; 2]> {
    if round.is_multiple_of(2) {
        let first = repeat(times, one)?;
        Ok([first, repeat(times, other)?])
    } else {
        let first = repeat(times, other)?;
        Ok([repeat(times, one)?, first])
    }
}

/// This program once more, as a process that waits for locks. Dropping it ends it.
pub(crate) struct Waiter {
    child: Child,
    names: ChildStdin,
    times: BufReader<ChildStdout>,
}

impl Waiter {
    pub(crate) fn start(kind: &str, url: &str) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args([kind, url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (names, times) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        Ok(Self { child, names, times: BufReader::new(times) })
    }

    /// Has it wait for a lock.
    pub(crate) fn ask(&mut self, name: &str) -> Outcome<()> {
        Ok(writeln!(self.names, "{name}")?)
    }

    /// When it had the lock, by [`monotonic`].
    pub(crate) fn answer(&mut self) -> Outcome<i64> {
        let mut line = String::new();
        self.times.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the server says of one command: how often it ran, and for how many microseconds in all.
#[derive(Default)]
pub(crate) struct CommandStats {
    pub(crate) calls: f64,
    pub(crate) micros: f64,
}

pub(crate) fn command_stats(connection: &mut Connection, command: &str) -> Outcome<CommandStats> {
    let info: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
    let front = format!("cmdstat_{command}:");
    let Some(line) = info.lines().find_map(|line| line.strip_prefix(&front)) else {
        return Ok(CommandStats::default());
    };
    let number = |name: &str| -> Outcome<f64> {
        let field = line.split(',').find_map(|field| field.strip_prefix(name)).ok_or("no such field")?;
        Ok(field.parse()?)
    };
    Ok(CommandStats { calls: number("calls=")?, micros: number("usec=")? })
}

/// How many scripts were sent so far.
pub(crate) fn sent_scripts(connection: &mut Connection) -> Outcome<f64> {
    Ok(command_stats(connection, "evalsha")?.calls)
}

/// How often each command was executed, those inside of scripts too, since `CONFIG RESETSTAT`.
pub(crate) fn command_counts(connection: &mut Connection) -> Outcome<Vec<(String, f64)>> {
    let info: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
    let lines = info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    let counts = lines.filter_map(|(name, rest)| Some((name.to_owned(), rest.split(',').next()?.parse().ok()?)));
    let mut counts: Vec<_> = counts.filter(|(name, _)| name != "info" && !name.starts_with("config")).collect();
    counts.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(counts)
}
