//! One round: starts the processes of readers and of the writer, and collects what they noted.

use crate::seen::{Readers, Report, Round, Seen, Writer};
use crate::support::turns::read;
use crate::support::{Outcome, connect, monotonic, sent_scripts};
use crate::worker::{Order, READ, WRITE};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Until then all processes have read when they start.
const GET_READY: i64 = 20_000_000;

/// A process that reads or writes. Dropping it ends it.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(order: &Order, mutant: Option<&str>) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(order.args()).envs(mutant.map(|name| ("REDLATCH_MUTANT", name)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// The rest of the next line, which has to begin like that.
    fn line(&mut self, front: &str) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let rest = line.trim_end_matches('\n').strip_prefix(front);
        Ok(rest.ok_or_else(|| format!("a process says {line:?} instead of {front:?}"))?.to_owned())
    }

    fn report(&mut self) -> Outcome<Report> {
        let line = self.line("done ")?;
        let numbers: Vec<usize> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [turns, fewest, vain] = numbers[..] else { return Err("a report is too short".into()) };
        let mut bytes = Vec::new();
        self.output.read_to_end(&mut bytes)?;
        Ok(Report { turns, fewest, vain, noted: read(&bytes).collect() })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where rounds take place.
pub(crate) struct Stage {
    pub(crate) url: String,
}

impl Stage {
    /// Each round has a lock of its own.
    pub(crate) fn round(&self, readers: &Readers, writer: Option<&Writer>, span: Duration) -> Outcome<Round> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("bench:sides:{}", NUMBER.fetch_add(1, Relaxed));
        let mut crowd = self.start(&name, readers, writer)?;
        let mut probe = connect(&self.url)?;
        crowd.iter_mut().try_for_each(|worker| worker.line("ready").map(drop))?;
        let before = sent_scripts(&mut probe)?;
        let start = monotonic() + GET_READY;
        let end = start + i64::try_from(span.as_nanos())?;
        // A try that is given up is given up while all still read.
        let gives_up = writer.map(|writer| writer.patience).filter(|patience| *patience < span).unwrap_or_default();
        let last = end - i64::try_from(gives_up.as_nanos())?;
        for (number, worker) in crowd.iter_mut().enumerate() {
            writeln!(worker.input, "{start} {}", if number < readers.processes { end } else { last })?;
        }
        let reports: Outcome<Vec<_>> = crowd.iter_mut().map(Worker::report).collect();
        let (mut read, scripts) = (reports?, sent_scripts(&mut probe)? - before);
        let written = writer.and_then(|_| read.pop());
        Seen { read, written, readers, writer, scripts, span, end }.told()
    }

    /// The writer is the last.
    fn start(&self, name: &str, readers: &Readers, writer: Option<&Writer>) -> Outcome<Vec<Worker>> {
        let (url, name) = (self.url.clone(), name.to_owned());
        let Readers { processes, threads, hold, shares, mutant } = *readers;
        let (side, period, patience) = (READ.to_owned(), Duration::ZERO, Duration::ZERO);
        let reads = Order { side, url, name, threads, hold, period, patience, shares };
        let mut crowd: Vec<_> = (0..processes).map(|_| Worker::start(&reads, mutant)).collect::<Outcome<_>>()?;
        if let Some(&Writer { period, hold, patience, .. }) = writer {
            let writes = Order { side: WRITE.to_owned(), threads: 1, hold, period, patience, ..reads };
            crowd.push(Worker::start(&writes, mutant)?);
        }
        Ok(crowd)
    }
}
