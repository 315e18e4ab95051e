//! One round: starts the processes, disturbs some of them, and collects what they and the server have to say.

use crate::setting::{Disturbance, Harm, Setting};
use crate::support::floor::Name;
use crate::support::turns::{Owned, Turn, read};
use crate::support::{Outcome, command_counts, connect, monotonic, sleep_until};
use crate::worker::Order;
use redis::Connection;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

/// Until then all processes have read when they start.
const GET_READY: i64 = 20_000_000;

/// Until then the server has done what a process sent before it was stopped.
const IN_FLIGHT: Duration = Duration::from_millis(2);

/// Whose processes contend: the command that starts one, this program or another that does as worker.rs says, and what they
/// contend with.
pub(crate) struct Contender {
    pub(crate) label: String,
    pub(crate) command: Vec<String>,
    pub(crate) kind: &'static str,
}

/// A process of the crowd. Dropping it ends it.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What all its owner ids begin with.
    front: String,
}

impl Worker {
    fn start(contender: &Contender, order: &Order) -> Outcome<Self> {
        let (program, front) = contender.command.split_first().ok_or("a contender without a command")?;
        let mut command = Command::new(program);
        command.args(front).args(order.args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        Ok(Self { child, input, output: BufReader::new(output), front: String::new() })
    }

    /// The rest of the next line, which has to begin like that.
    fn line(&mut self, front: &str) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let rest = line.trim_end_matches('\n').strip_prefix(front);
        Ok(rest.ok_or_else(|| format!("a worker says {line:?} instead of {front:?}"))?.to_owned())
    }

    fn ready(&mut self) -> Outcome<()> {
        self.front = self.line("ready ")?;
        Ok(())
    }

    fn begin(&mut self, start: i64, end: i64) -> Outcome<()> {
        Ok(writeln!(self.input, "{start} {end}")?)
    }

    fn signal(&self, signal: Signal) -> Outcome<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn stop(&self) -> Outcome<()> {
        self.signal(Signal::STOP)?;
        sleep(IN_FLIGHT);
        Ok(())
    }

    fn report(&mut self) -> Outcome<Report> {
        let line = self.line("done ")?;
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().ok_or("a report is too short");
        let (turns, micros, failures): (usize, f64, usize) = (word()?.parse()?, word()?.parse()?, word()?.parse()?);
        let failure = (failures > 0).then(|| words.next().unwrap_or_default().to_owned());
        let mut bytes = vec![0; turns * 32];
        self.output.read_exact(&mut bytes)?;
        Ok(Report { turns: read(&bytes).collect(), micros, failure })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process did.
struct Report {
    turns: Vec<Turn>,
    /// Of processor time.
    micros: f64,
    failure: Option<String>,
}

/// What a round showed: from its start to its end, or from the disturbance on.
pub(crate) struct Round {
    /// In the order in which they had the lock.
    pub(crate) turns: Vec<Owned>,
    pub(crate) from: i64,
    pub(crate) end: i64,
    /// Those that were not disturbed.
    pub(crate) living: Vec<usize>,
    pub(crate) scripts: f64,
    /// Those inside of scripts, too.
    pub(crate) commands: f64,
    pub(crate) publishes: f64,
    /// Processor time: of the server in that span, of the processes for each of their pairs in the whole round.
    pub(crate) server_micros: f64,
    pub(crate) micros_a_pair: f64,
}

/// Where rounds take place.
pub(crate) struct Stage {
    pub(crate) url: String,
    pub(crate) span: Duration,
}

impl Stage {
    /// Each round has a lock of its own, on whose channel somebody else may listen.
    pub(crate) fn round(&self, contender: &Contender, setting: &Setting, beside_listener: bool) -> Outcome<Round> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("bench:crowd:{}", NUMBER.fetch_add(1, Relaxed));
        let listener = beside_listener.then(|| Listener::start(&self.url, &name)).transpose()?;
        let round = self.contend(contender, setting, &name);
        drop(listener);
        round.map_err(|error| format!("{setting}, {}: {error}", contender.label).into())
    }

    fn contend(&self, contender: &Contender, setting: &Setting, name: &str) -> Outcome<Round> {
        let mut crowd = Crowd::start(self, contender, setting, name)?;
        let length = i64::try_from(self.span.as_nanos())?;
        let start = monotonic() + GET_READY;
        let end = start + length;
        let mut before = Usage::now(&mut crowd.probe)?;
        crowd.workers.iter_mut().try_for_each(|worker| worker.begin(start, end))?;
        let (mut from, mut victims) = (start, Vec::new());
        if let Some(disturbance) = setting.disturbance {
            sleep_until(start + length / 3);
            (from, before) = (monotonic(), Usage::now(&mut crowd.probe)?);
            victims = crowd.disturb(disturbance, setting.victims())?;
            sleep_until(start + 5 * length / 6);
            crowd.go_on(disturbance, &mut victims)?;
        }
        sleep_until(end);
        let used = Usage::now(&mut crowd.probe)?.since(&before);
        let living = (0..setting.processes).filter(|number| victims.iter().all(|victim| victim.number != *number));
        let living = living.collect();
        let (mut turns, micros_a_pair) = crowd.reports(&victims)?;
        turns.retain(|(_, turn)| turn.held >= from);
        turns.sort_by_key(|(_, turn)| turn.held);
        let Usage { scripts, commands, publishes, micros: server_micros } = used;
        Ok(Round { turns, from, end, living, scripts, commands, publishes, server_micros, micros_a_pair })
    }
}

/// A process that was disturbed.
struct Victim {
    number: usize,
    /// It lives, so it reports.
    went_on: bool,
}

struct Crowd {
    workers: Vec<Worker>,
    probe: Connection,
    name: String,
}

impl Crowd {
    fn start(stage: &Stage, contender: &Contender, setting: &Setting, name: &str) -> Outcome<Self> {
        let order = Order {
            kind: contender.kind.to_owned(),
            url: stage.url.clone(),
            name: name.to_owned(),
            threads: u64::try_from(setting.threads)?,
            work: setting.work,
            spin: setting.spin,
            pause: setting.pause,
            lease: setting.lease(),
        };
        let workers: Outcome<Vec<_>> = (0..setting.processes).map(|_| Worker::start(contender, &order)).collect();
        let mut crowd = Self { workers: workers?, probe: connect(&stage.url)?, name: name.to_owned() };
        crowd.workers.iter_mut().try_for_each(Worker::ready)?;
        Ok(crowd)
    }

    /// The process that holds the lock.
    fn holder(&mut self) -> Outcome<Option<usize>> {
        let owners: Vec<String> = redis::cmd("HKEYS").arg(&self.name).query(&mut self.probe)?;
        let fronts = owners.first().and_then(|owner| owner.split(':').next());
        Ok(fronts.and_then(|front| self.workers.iter().position(|worker| worker.front == front)))
    }

    /// Each is stopped first: whether it holds the lock can be told only of a process that does nothing. It is killed before the next is
    /// stopped, for while it lives it may be given the lock.
    fn disturb(&mut self, disturbance: Disturbance, wanted: usize) -> Outcome<Vec<Victim>> {
        let mut stopped = Vec::new();
        if disturbance.holder {
            let one = self.stop_holder()?;
            self.harm(disturbance, one)?;
            stopped.push(one);
        }
        let number = self.workers.len();
        for one in (0..number).cycle().take(100 * number) {
            if stopped.len() < wanted && !stopped.contains(&one) && self.stop_other(one)? {
                self.harm(disturbance, one)?;
                stopped.push(one);
            }
        }
        if stopped.len() < wanted {
            return Err("too few processes do not hold the lock".into());
        }
        Ok(stopped.into_iter().map(|number| Victim { number, went_on: false }).collect())
    }

    /// What befalls one that is stopped.
    fn harm(&self, disturbance: Disturbance, one: usize) -> Outcome<()> {
        match disturbance.harm {
            Harm::Stopped => Ok(()),
            Harm::Killed => self.workers[one].signal(Signal::KILL),
        }
    }

    fn stop_holder(&mut self) -> Outcome<usize> {
        for _ in 0..1_000 {
            if let Some(one) = self.holder()? {
                self.workers[one].stop()?;
                if self.holder()? == Some(one) {
                    return Ok(one);
                }
                self.workers[one].signal(Signal::CONT)?;
            }
        }
        Err("no holder can be stopped".into())
    }

    /// Stops it unless it holds the lock.
    fn stop_other(&mut self, one: usize) -> Outcome<bool> {
        self.workers[one].stop()?;
        let holds = self.holder()? == Some(one);
        if holds {
            self.workers[one].signal(Signal::CONT)?;
        }
        Ok(!holds)
    }

    fn go_on(&self, disturbance: Disturbance, victims: &mut [Victim]) -> Outcome<()> {
        if disturbance.harm == Harm::Stopped {
            for victim in victims.iter_mut().step_by(2) {
                self.workers[victim.number].signal(Signal::CONT)?;
                victim.went_on = true;
            }
        }
        Ok(())
    }

    /// The turns of all that can still tell, and their processor time for each. Only a disturbed crowd may fail.
    fn reports(&mut self, victims: &[Victim]) -> Outcome<(Vec<Owned>, f64)> {
        let silent = |number: usize| victims.iter().any(|victim| victim.number == number && !victim.went_on);
        let (mut turns, mut micros) = (Vec::new(), 0.0);
        for (number, worker) in self.workers.iter_mut().enumerate().filter(|(number, _)| !silent(*number)) {
            let report = worker.report()?;
            if let Some(failure) = report.failure.filter(|_| victims.is_empty()) {
                return Err(format!("a turn failed: {failure}").into());
            }
            turns.extend(report.turns.into_iter().map(|turn| (number, turn)));
            micros += report.micros;
        }
        let pairs = turns.len() as f64;
        Ok((turns, micros / pairs))
    }
}

/// What the server has done so far.
struct Usage {
    scripts: f64,
    commands: f64,
    publishes: f64,
    /// Of processor time.
    micros: f64,
}

impl Usage {
    fn now(probe: &mut Connection) -> Outcome<Self> {
        let counts = command_counts(probe)?;
        let calls = |wanted: &[&str]| counts.iter().filter(|(name, _)| wanted.contains(&&**name)).map(|(_, n)| n).sum();
        let (scripts, publishes) = (calls(&["evalsha", "eval"]), calls(&["publish"]));
        let commands = counts.iter().map(|(_, calls)| calls).sum();
        let info: String = redis::cmd("INFO").arg("cpu").query(probe)?;
        let spent = |front| info.lines().find_map(|line| line.strip_prefix(front)?.parse::<f64>().ok()).unwrap_or(0.0);
        Ok(Self { scripts, commands, publishes, micros: (spent("used_cpu_sys:") + spent("used_cpu_user:")) * 1e6 })
    }

    fn since(self, before: &Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            commands: self.commands - before.commands,
            publishes: self.publishes - before.publishes,
            micros: self.micros - before.micros,
        }
    }
}

/// A subscriber that only reads, and so rarely that it takes next to no time: a monitor, or a client that has done
/// waiting. Dropping it ends it.
struct Listener {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn start(url: &str, name: &str) -> Outcome<Self> {
        let mut stream = UnixStream::connect(url.strip_prefix("unix://").ok_or("not the path of a socket")?)?;
        stream.write_all(&redis::cmd("SUBSCRIBE").arg(Name::new(name).channel).get_packed_command())?;
        let mut news = [0; 4_096];
        // The answer: from then on it is told.
        if stream.read(&mut news)? == 0 {
            return Err("the server does not let a subscriber in".into());
        }
        stream.set_nonblocking(true)?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !ended.load(Relaxed) {
                sleep(Duration::from_millis(20));
                while stream.read(&mut news).is_ok_and(|bytes| bytes > 0) {}
            }
        });
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
