//! A census of many processes: how long it takes, and what it costs the server.

use crate::Scale;
use crate::report::{Report, Target};
use crate::support::{Outcome, Server, connect};
use redlatch::inspect::Inspector;
use redlatch::{Client, RedLock, ReentrantLock};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The argument that turns this program into one of the processes.
pub(crate) const MEMBER: &str = "--census";

const PROCESSES: usize = 32;

/// Of each process: so many locks are held, and so many threads wait for one of the parent's.
const HOLDS: usize = 24;
const WAITS: usize = 8;

const AWAITED: &str = "bench:census:awaited";

/// How long all take to get there.
const READY: Duration = Duration::from_secs(30);

/// A process: holds and waits until its standard input ends.
pub(crate) fn run(url: &str) -> Outcome<()> {
    let locks = ReentrantLock::connect(url)?;
    for number in 0..HOLDS {
        locks.lock(&format!("bench:census:{}:{number}", std::process::id()))?;
    }
    for _ in 0..WAITS {
        let locks = locks.clone();
        std::thread::spawn(move || locks.lock(AWAITED));
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Ended with the bench, also if a row fails.
struct Member(Child);

impl Member {
    fn start(url: &str) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        Ok(Self(command.args([MEMBER, url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?))
    }

    fn is_ready(&mut self) -> Outcome<()> {
        let out = self.0.stdout.as_mut().ok_or("no pipe")?;
        BufReader::new(out).read_line(&mut String::new())?;
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What a server counts.
fn counted(probe: &mut redis::Connection, field: &str) -> Outcome<f64> {
    let info: String = redis::cmd("INFO").query(probe)?;
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).ok_or("no such field")?;
    Ok(line.trim().parse()?)
}

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    let (url, mut probe) = (server.unix(), connect(&server.unix())?);
    let client = Client::connect(&url)?;
    let (locks, inspector) = (ReentrantLock::new(&client), Inspector::new(&client));
    locks.lock(AWAITED)?;
    let mut members = (0..PROCESSES).map(|_| Member::start(&url)).collect::<Outcome<Vec<_>>>()?;
    members.iter_mut().try_for_each(Member::is_ready)?;
    wait_for_all(&inspector)?;
    let fields = ["total_commands_processed", "total_net_input_bytes", "total_net_output_bytes"];
    let [mut millis, mut commands, mut bytes_in, mut bytes_out] = [const { Vec::new() }; 4];
    for _ in 0..scale.rounds {
        let before = fields.map(|field| counted(&mut probe, field));
        let asked = Instant::now();
        let census = inspector.census()?;
        millis.push(asked.elapsed().as_secs_f64() * 1_000.0);
        // Who asks answers, too.
        assert_eq!(census.accounts.len(), PROCESSES + 1);
        for ((all, before), field) in [&mut commands, &mut bytes_in, &mut bytes_out].into_iter().zip(before).zip(fields)
        {
            all.push(counted(&mut probe, field)? - before?);
        }
    }
    drop(members);
    locks.unlock(AWAITED)?;
    let group = "census";
    let title = format!("{PROCESSES} processes, {} holds and waits", PROCESSES * (HOLDS + WAITS));
    report.row(group, title, "ms", millis, Target::None);
    report.row(group, "  at the server, those that measure included".to_owned(), "commands", commands, Target::None);
    report.row(group, "  to the server".to_owned(), "bytes", bytes_in, Target::None);
    report.row(group, "  from the server, those that measure included".to_owned(), "bytes", bytes_out, Target::None);
    Ok(())
}

fn wait_for_all(inspector: &Inspector) -> Outcome<()> {
    let until = Instant::now() + READY;
    while Instant::now() < until {
        let waits: usize = inspector.census()?.accounts.iter().map(|account| account.waits.len()).sum();
        if waits == PROCESSES * WAITS {
            return Ok(());
        }
    }
    Err("not all processes wait".into())
}
