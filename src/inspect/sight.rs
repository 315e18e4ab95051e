//! What was seen of one name.

use super::{Process, Processes};
use crate::base::owner;
use crate::store::node::{Failure, Reply};
use std::fmt;
use std::time::{Duration, SystemTime};

/// What was seen of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sight {
    /// The name, without the key prefix.
    pub name: String,
    /// What is there.
    pub what: What,
    /// When it ends if nobody renews it. `None`: nothing is there, or it has no end.
    pub left: Option<Duration>,
    /// How many processes wait for it in a queue, each for all of its threads. `None`: not known, as of a read-write lock.
    pub processes: Option<usize>,
    /// How many threads wait in the queue of a fair lock, those of Redisson too. `None`: not known.
    pub threads: Option<usize>,
    /// How many processes wait for permits of a semaphore. `None`: not known.
    pub calls: Option<usize>,
}

/// What is at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// Nothing: a lock is free.
    Nothing,
    /// A lock of one holder: re-entrant, fair, fenced, or a vote of a quorum.
    Lock(Holder),
    /// The side of the readers of a read-write lock.
    Readers(Vec<Holder>),
    /// The side of the writer, whose thread may read, too: then it has two holds.
    Writer(Vec<Holder>),
    /// A number: permits that are in, or how often a latch has to be counted down.
    Counter {
        /// The number.
        left: i64,
        /// How many permits are out that have a lease.
        out: Option<usize>,
    },
    /// A key that is none of these, by the server's word for its type.
    Other(String),
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its field in the lock, as the server has it.
    pub field: String,
    /// The id of its client, as of [`Client::id`](crate::Client::id).
    pub client: String,
    /// The number of the thread that acquired it, as its process counts them. It may have passed the lock on to another thread.
    pub thread: u64,
    /// How often it has to be unlocked.
    pub depth: u64,
    /// When its process asked for the lock, by the clock of its machine: it has waited since then, or held it. `None`: a holder of Redisson's.
    pub asked: Option<SystemTime>,
    /// Its process, once [`Sight::name_processes`] has found it.
    pub process: Option<Process>,
    /// Whether its client is connected: one that is not has ended, or is cut off. `None`: not known. Nobody has listed the connections, or a
    /// server did not let them be listed, or the holder is one of Redisson's, whose connections have no names.
    pub is_connected: Option<bool>,
}

impl Sight {
    pub(super) fn read(name: &str, reply: Reply) -> Result<Self, Failure> {
        let Reply::Array(said) = reply else { return Err(Failure::not_understood()) };
        let [kind, left, processes, threads, calls, out, content @ ..] = &said[..] else {
            return Err(Failure::not_understood());
        };
        let (left, out) = (left.number()?, count(out)?);
        let what = What::read(&text(kind)?, left, out, content)?;
        let left = u64::try_from(left).ok().map(Duration::from_millis);
        Ok(Self::of(name, what, left, [count(processes)?, count(threads)?, count(calls)?]))
    }

    pub(super) fn of(name: &str, what: What, left: Option<Duration>, waiting: [Option<usize>; 3]) -> Self {
        // Who waits for a read-write lock is in none of these queues.
        let is_read_write = matches!(what, What::Readers(_) | What::Writer(_));
        let [processes, threads, calls] = if is_read_write { [None; 3] } else { waiting };
        Self { name: name.to_owned(), what, left, processes, threads, calls }
    }

    /// Those who hold it; none if it is free or no lock.
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        match &self.what {
            What::Lock(holder) => std::slice::from_ref(holder),
            What::Readers(holders) | What::Writer(holders) => holders,
            _ => &[],
        }
    }

    /// Whether somebody holds it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.holders().is_empty()
    }

    /// How many wait, as far as that is known: processes, threads of a fair lock, and processes that wait for permits.
    #[must_use]
    pub fn waiting(&self) -> usize {
        [self.processes, self.threads, self.calls].into_iter().flatten().sum()
    }

    /// Notes the process of each holder, and whether it is connected. Processes that were listed before the look lack a holder that came later.
    pub fn name_processes(&mut self, processes: &Processes) {
        let holders = match &mut self.what {
            What::Lock(holder) => std::slice::from_mut(holder),
            What::Readers(holders) | What::Writer(holders) => holders,
            _ => &mut [],
        };
        for holder in holders {
            holder.process = processes.of(&holder.client).cloned();
            let is_known = holder.process.is_some() || (processes.are_all && holder.asked.is_some());
            holder.is_connected = is_known.then_some(holder.process.is_some());
        }
    }
}

impl What {
    fn read(kind: &str, left: i64, out: Option<usize>, content: &[Reply]) -> Result<Self, Failure> {
        let content = content.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        Ok(match kind {
            "none" => Self::Nothing,
            // A key that ended between two commands of the script.
            _ if left == -2 => Self::Nothing,
            "string" => counter(content.first(), out).unwrap_or_else(|| Self::Other(kind.to_owned())),
            "hash" => Self::of_fields(&content).unwrap_or_else(|| Self::Other(kind.to_owned())),
            other => Self::Other(other.to_owned()),
        })
    }

    /// A lock, by the fields and values of a hash; `None` if it is none.
    pub(super) fn of_fields(content: &[String]) -> Option<Self> {
        let pairs = || content.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
        let mode = pairs().find_map(|(field, value)| (field == "mode").then_some(value));
        let holders = pairs().filter(|(field, _)| *field != "mode").map(|(field, depth)| Holder::read(field, depth));
        let holders = holders.collect::<Option<Vec<_>>>().filter(|holders| !holders.is_empty())?;
        match mode {
            Some("read") => Some(Self::Readers(holders)),
            Some("write") => Some(Self::Writer(holders)),
            None if holders.len() == 1 => holders.into_iter().next().map(Self::Lock),
            _ => None,
        }
    }
}

impl Holder {
    fn read(field: &str, depth: &str) -> Option<Self> {
        let (client, thread, asked) = owner::read(field)?;
        let (field, client, depth) = (field.to_owned(), client.to_string(), depth.parse().ok()?);
        Some(Self { field, client, thread, depth, asked, process: None, is_connected: None })
    }

    /// For how long it has held or waited for the lock, by this machine's clock. `None`: a holder of Redisson's.
    #[must_use]
    pub fn since(&self) -> Option<Duration> {
        self.asked.map(|asked| SystemTime::now().duration_since(asked).unwrap_or_default())
    }
}

fn counter(text: Option<&String>, out: Option<usize>) -> Option<What> {
    let left = text?.parse().ok()?;
    Some(What::Counter { left, out: out.filter(|out| *out > 0) })
}

fn text(reply: &Reply) -> Result<String, Failure> {
    match reply {
        Reply::Text(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(Failure::not_understood()),
    }
}

/// -1 stands for what is not known.
fn count(reply: &Reply) -> Result<Option<usize>, Failure> {
    reply.number().map(|number| usize::try_from(number).ok())
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some(process) => write!(f, "{process}")?,
            None => write!(f, "client {}", self.client)?,
        }
        write!(f, ", thread {}", self.thread)?;
        self.since().map_or(Ok(()), |since| write!(f, ", asked {} ago", rough(since)))
    }
}

impl fmt::Display for Sight {
    /// One line, such as `order:42 is held by shop@web-1 (pid 4711), thread 1, asked 12 s ago; it ends in 27 s unless renewed; 3 wait`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.what)?;
        if let Some(left) = self.left {
            write!(f, "; it ends in {} unless renewed", rough(left))?;
        } else if self.is_held() {
            f.write_str("; it has no end")?;
        }
        if self.waiting() > 0 { write!(f, "; {} wait", self.waiting()) } else { Ok(()) }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("is free"),
            Self::Lock(holder) => write!(f, "is held by {holder}"),
            Self::Readers(holders) => write!(f, "is read by {}", each(holders)),
            Self::Writer(holders) => write!(f, "is written by {}", each(holders)),
            Self::Counter { left, out: None } => write!(f, "is a counter at {left}"),
            Self::Counter { left, out: Some(out) } => write!(f, "has {left} permits, and {out} more are out"),
            Self::Other(kind) => write!(f, "is no lock: the key is of type {kind}"),
        }
    }
}

fn each(holders: &[Holder]) -> String {
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(" and ")
}

/// A span as people say it.
fn rough(span: Duration) -> String {
    match span.as_secs() {
        0..10 => format!("{:.1} s", span.as_secs_f64()),
        10..120 => format!("{} s", span.as_secs()),
        120..7_200 => format!("{} min", span.as_secs() / 60),
        7_200..172_800 => format!("{} h", span.as_secs() / 3_600),
        _ => format!("{} days", span.as_secs() / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "00000000-0000-0000-0000-00000000002a";

    fn sight(kind: &str, left: i64, content: &[&str]) -> Sight {
        let words = |words: &str| Reply::Text(words.as_bytes().to_vec());
        let numbers = [left, 2, 1, -1, 0].map(Reply::Number);
        let said = [words(kind)].into_iter().chain(numbers).chain(content.iter().map(|part| words(part)));
        Sight::read("n", Reply::Array(said.collect())).unwrap()
    }

    #[test]
    fn each_shape_is_told_in_one_line() {
        let (one, redisson) = (format!("{CLIENT}:7:1600000000000000"), format!("{CLIENT}:7"));
        let write = format!("{CLIENT}:7:5:write");
        let line = |kind: &str, content: &[&str]| sight(kind, 9_000, content).to_string();
        assert!(line("hash", &[&one, "2"]).starts_with(&format!("n is held by client {CLIENT}, thread 7, asked ")));
        assert!(line("hash", &[&redisson, "1"]).ends_with("thread 7; it ends in 9.0 s unless renewed; 3 wait"));
        assert!(line("hash", &["mode", "read", &one, "1", &redisson, "1"]).contains(" is read by "));
        assert!(line("hash", &["mode", "write", &write, "1"]).contains("is written by"));
        assert_eq!(sight("hash", 9, &["mode", "read", &one, "1"]).processes, None, "its waiters are in no queue");
        assert!(line("string", &["12"]).starts_with("n is a counter at 12;"));
        assert_eq!(sight("none", -2, &[]).to_string(), "n is free; 3 wait");
        assert!(sight("hash", -1, &[&redisson, "1"]).to_string().contains("it has no end"));
    }

    #[test]
    fn what_has_another_shape_is_no_lock() {
        let one = format!("{CLIENT}:7:1");
        for content in
            [&["a", "1"][..], &[&one, "x"], &[&one, "1", &format!("{CLIENT}:8:2"), "1"], &["mode", "read"], &[]]
        {
            assert_eq!(sight("hash", 9, content).what, What::Other("hash".to_owned()), "{content:?}");
        }
        assert_eq!(sight("string", 9, &["x"]).what, What::Other("string".to_owned()));
        assert_eq!(sight("list", 9, &[]).what, What::Other("list".to_owned()));
    }

    #[test]
    fn a_sight_says_depth_and_time() {
        let seen = sight("hash", 9_000, &[&format!("{CLIENT}:7:1600000000000000"), "3"]);
        let [holder] = seen.holders() else { panic!("{seen:?}") };
        assert_eq!((holder.depth, holder.thread, holder.client.as_str()), (3, 7, CLIENT));
        assert_eq!(holder.asked, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000)));
        assert_eq!((seen.left, seen.waiting(), seen.calls), (Some(Duration::from_secs(9)), 3, None));
    }
}
