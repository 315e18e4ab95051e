//! Who comes when: every arrival and every grant, as the server executed them.

use super::{assert_nothing_is_left, queue, queued, thread};
use crate::counting::{COUNTER, count, count_in_a_process};
use crate::process::{Peer, with_peer};
use crate::server::Server;
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, Holder, SentHome, Setting, record};
use crate::threads::{LONG, finish};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::thread::{JoinHandle, scope};
use std::time::Duration;

/// All commands at the server of a lock, also those of scripts, in the order in which it executed them.
struct Witness<'s> {
    servers: &'s Servers,
    commands: JoinHandle<Vec<Vec<String>>>,
}

const END: &str = "the end of what is witnessed";

impl<'s> Witness<'s> {
    fn of(servers: &'s Servers) -> Self {
        let socket = match &servers.cluster {
            None => servers.news.socket(),
            Some(cluster) => cluster.nodes[cluster.master_of(COUNTER)].socket(),
        };
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("+OK"));
        let commands = std::thread::spawn(move || lines.take_while(|line| !line.contains(END)).map(words).collect());
        Self { servers, commands }
    }

    fn end(self) -> Vec<Vec<String>> {
        self.servers.ask::<String>(COUNTER, &["ECHO", END]);
        self.commands.join().unwrap()
    }
}

/// `+<time> [<db> <client>] "<word>" ..`
fn words(line: String) -> Vec<String> {
    let (_, words) = line.split_once("] \"").expect("a command");
    words.trim_end_matches('"').split("\" \"").map(str::to_owned).collect()
}

/// The threads that wait, in the order in which they queued, and who has the lock.
#[derive(Default)]
struct Line {
    waiting: Vec<String>,
    owner: Option<String>,
    /// How often one that waited came after one of its own program, and after one of the other.
    turns: [usize; 2],
    last: String,
}

impl Line {
    fn follow(&mut self, command: &[String]) {
        let (list, lock) = (format!("redisson_lock_queue:{{{COUNTER}}}"), COUNTER);
        let [verb, key, rest @ ..] = command else { return };
        match (verb.to_lowercase().as_str(), rest) {
            ("rpush", [field]) if *key == list => self.waiting.push(field.clone()),
            // A thread here asks under another owner id, and keeps its place.
            ("linsert", [_, old, new]) if *key == list => {
                self.waiting.iter_mut().filter(|field| *field == old).for_each(|field| field.clone_from(new));
            }
            ("hset" | "hincrby", [field, _]) if key == lock && self.owner.is_none() => self.grant(field),
            ("del", []) if key == lock => self.owner = None,
            _ => {}
        }
    }

    /// Whoever was first and is not the one that comes has been passed over.
    fn grant(&mut self, field: &str) {
        self.owner = Some(field.to_owned());
        if !self.waiting.is_empty() {
            assert_eq!(self.waiting.remove(0), field, "before those who wait: {:?}", self.waiting);
            self.turns[usize::from(is_java(field) != is_java(&self.last))] += 1;
        }
        field.clone_into(&mut self.last);
    }
}

/// Its owner fields have two parts, ours three.
fn is_java(field: &str) -> bool {
    field.split(':').count() == 2
}

fairly!(a_long_wait_there_costs_nobody_its_place);

/// Redisson's thread takes its own wait off the ends of all behind it when it takes the lock.
fn a_long_wait_there_costs_nobody_its_place(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    let (first, came) = (setting.sides().0, Mutex::new(Vec::new()));
    first.lock("n");
    scope(|scope| {
        let _home = SentHome(&setting.locks);
        let waits = |program, name: &'static str| {
            let (setting, came) = (&setting, &came);
            queued(scope, setting, move || {
                let side = thread(setting, program, name);
                assert!(side.try_lock("n", if name == "an hour" { HOUR } else { LONG }).0, "{name}");
                came.lock().unwrap().push(name);
                side.unlock("n");
            })
        };
        let waiters =
            [(Holder::Java, "an hour"), (Holder::Rust, "second"), (Holder::Java, "third"), (Holder::Rust, "fourth")]
                .map(|(program, name)| waits(program, name));
        first.unlock("n");
        waiters.into_iter().for_each(finish);
    });
    assert_eq!(came.into_inner().unwrap(), ["an hour", "second", "third", "fourth"]);
    assert_nothing_is_left(&setting);
}

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn every_grant_of_four_processes_is_in_order() {
    with_peer(|url| count_in_a_process(Family::FAIR, url), |start| count_in_order(Family::FAIR, start));
}

#[test]
fn every_grant_in_a_sharded_cluster_is_in_order() {
    let family = Family::FAIR_SHARDED;
    with_peer(|url| count_in_a_process(family, url), |start| count_in_order(family, start));
}

#[test]
fn every_grant_in_a_plain_cluster_is_in_order() {
    let family = Family::FAIR_PLAIN;
    with_peer(|url| count_in_a_process(family, url), |start| count_in_order(family, start));
}

/// Two JVMs and two Rust processes count, each with several threads, and no grant is before one that waits for longer.
fn count_in_order(family: Family, start: &dyn Fn(&Server) -> Peer) {
    let servers = Servers::start(family);
    let witness = Witness::of(&servers);
    drop(count("2 + 2 processes count", family, &servers, start, |_| {}));
    assert!(queue(&servers, COUNTER).is_empty());
    let mut line = Line::default();
    witness.end().iter().for_each(|command| line.follow(command));
    assert!(line.waiting.is_empty() && line.owner.is_none(), "{:?}", line.waiting);
    let [own, other] = line.turns;
    assert!(own > 0 && other > 0, "{own} and {other}");
    let figures = format!(
        "{} grants, each to the thread that had waited longest; {other} times the program changed",
        own + other
    );
    record("order of all grants", family, "all", &figures);
}
