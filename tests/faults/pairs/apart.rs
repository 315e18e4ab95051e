//! A client in a process of its own, which can be stopped and killed.

use crate::faults::Phase;
use crate::party::{Account, Locks, NAME, Owners, SECOND, Turn, account, prepare};
use crate::site::ms;
use crate::trial::Trial;
use crate::truth::{Micros, now};
use harness::reaper;
use harness::server::{Signal, signal};
use redlatch::{Client, ClientBuilder};
use std::cell::RefCell;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The environment of such a process has this, with who it is.
pub(crate) const ROLE: &str = "REDLATCH_PARTY";

/// Where a client finds its servers. As text it goes to a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach {
    /// Several are those of a quorum.
    pub(crate) urls: Vec<String>,
    pub(crate) prefix: String,
    /// The port of each node of a cluster, and of the proxy in front of it.
    pub(crate) ways: Vec<(u16, u16)>,
}

impl Reach {
    pub(crate) fn builder(&self) -> ClientBuilder {
        let builder = Client::builder(&self.urls[0]);
        if self.ways.is_empty() {
            return builder;
        }
        let ways = self.ways.clone();
        let way = move |port| ways.iter().find(|(own, _)| *own == port).map_or(port, |(_, way)| *way);
        builder.key_prefix(&*self.prefix).map_address(move |host, port| (host.to_owned(), way(port)))
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways: Vec<_> = self.ways.iter().map(|(own, way)| format!("{own}-{way}")).collect();
        write!(f, "{}\t{}\t{}", self.urls.join(" "), self.prefix, ways.join(" "))
    }
}

impl FromStr for Reach {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('\t');
        let mut part = || parts.next().ok_or(());
        let (urls, prefix, ways) = (part()?, part()?, part()?);
        let way = |way: &str| {
            let (own, way) = way.split_once('-').ok_or(())?;
            Ok((own.parse().map_err(drop)?, way.parse().map_err(drop)?))
        };
        let ways = ways.split_whitespace().map(way).collect::<Result<_, ()>>()?;
        Ok(Self { urls: urls.split(' ').map(str::to_owned).collect(), prefix: prefix.to_owned(), ways })
    }
}

/// What the process does. It says a line and hears one, again and again; at last it says its account and ends when nobody listens any more.
pub(crate) fn run(party: &str) {
    let [trial, reach] = [1, 2].map(|number| std::env::args().nth(number).expect("it is given"));
    let trial: Trial = trial.parse().expect("a trial");
    let is_holder = party == HOLDER;
    let called = Default::default();
    let (locks, counted) = Locks::of(&trial, &reach.parse().expect("a reach"), !is_holder, &called);
    let client = prepare(&locks, &trial, is_holder);
    let lines = RefCell::new(std::io::stdin().lines());
    let say = |said: &str| {
        println!("{said}");
        lines.borrow_mut().next().and_then(Result::ok).unwrap_or_default()
    };
    say(&client);
    let is_answered = |owners: &Owners, since: Micros| {
        let owners: Vec<_> = owners.iter().map(|(name, owner)| format!("{name} {owner}")).collect();
        say(&format!("answered {since} {}", owners.join(" "))) == "yes"
    };
    let turn = if is_holder { Turn::of_holder(&trial, &is_answered) } else { Turn::behind(&trial) };
    let mut account = account(&locks, &turn, &mut |phase| _ = say(&format!("at {phase:?}")));
    account.count(&counted, &called);
    say(&account.to_string());
}

pub(crate) const HOLDER: &str = "holder";
pub(crate) const WAITER: &str = "waiter";

type Talk = (ChildStdin, std::io::Lines<BufReader<ChildStdout>>);

/// A process, seen from the outside.
pub(crate) struct Apart {
    child: Mutex<Child>,
    /// By a fault. Nobody else may end it.
    is_killed: AtomicBool,
    /// Until nobody listens any more.
    talk: Mutex<Option<Talk>>,
    /// What the owner fields of all of its holds begin with.
    client: String,
}

impl Apart {
    /// Starts it. It has made its connections when this returns.
    pub(crate) fn start(party: &str, trial: &Trial, reach: &Reach) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([trial.to_string(), reach.to_string()]).env(ROLE, party);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        reaper::watch(child.id());
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut lines = BufReader::new(stdout).lines();
        let client = lines.next().and_then(Result::ok).expect("it begins");
        Self {
            child: Mutex::new(child),
            is_killed: AtomicBool::new(false),
            talk: Mutex::new(Some((stdin, lines))),
            client,
        }
    }

    /// Its turn, from the ask to its account, or to its death.
    pub(crate) fn account(
        &self,
        trial: &Trial,
        at: &mut dyn FnMut(Phase),
        is_answered: &dyn Fn(&Owners, Micros) -> bool,
    ) -> Account {
        let mut talk = self.talk.lock().unwrap();
        let (stdin, lines) = talk.as_mut().expect("it was not ended");
        let names = if trial.is_of_two() { &[NAME, SECOND][..] } else { &[NAME] };
        let mut seen = Account {
            asked: now(),
            owners: names.iter().map(|name| ((*name).to_owned(), self.client.clone())).collect(),
            died: true,
            ..Account::default()
        };
        let mut word = "go";
        // It may be dead when it is told.
        while writeln!(stdin, "{word}").is_ok() {
            let Some(said) = lines.next().and_then(Result::ok) else { break };
            word = "on";
            if let Some(phase) = said.strip_prefix("at ").and_then(Phase::named) {
                if phase == Phase::Granted {
                    seen.granted = Some(now());
                }
                at(phase);
            } else if let Some(asked) = said.strip_prefix("answered ") {
                let (since, owners) = asked.split_once(' ').unwrap_or((asked, ""));
                let words: Vec<_> = owners.split(' ').map(str::to_owned).collect();
                let owners: Vec<_> = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
                word = if is_answered(&owners, since.parse().expect("a time")) { "yes" } else { "no" };
            } else {
                return said.parse().unwrap_or_else(|()| panic!("no account: {said}"));
            }
        }
        assert!(self.is_killed.load(SeqCst), "a client's process has ended by itself");
        seen.ended = now();
        seen
    }

    pub(crate) fn kill(&self) {
        self.is_killed.store(true, SeqCst);
        let _ = self.child.lock().unwrap().kill();
    }

    /// Stops it. It goes on by itself.
    pub(crate) fn stop(&self, span: Duration) {
        let mut child = self.child.lock().unwrap();
        // One that has ended and was not waited for still has its number.
        if matches!(child.try_wait(), Ok(None)) {
            let pid = child.id();
            signal(Signal::STOP, pid).unwrap();
            std::thread::spawn(move || {
                std::thread::sleep(span);
                let _ = signal(Signal::CONT, pid);
            });
        }
    }

    /// It frees what it still has, and ends.
    pub(crate) fn end(&self) {
        drop(self.talk.lock().unwrap().take());
        let mut child = self.child.lock().unwrap();
        let ended = (0..4_000).find_map(|_| {
            let ended = child.try_wait().expect("it is a child");
            if ended.is_none() {
                std::thread::sleep(ms(5));
            }
            ended
        });
        if ended.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        reaper::forget(child.id());
        let is_well = self.is_killed.load(SeqCst) || ended.is_some_and(|status| status.success());
        assert!(is_well, "a client's process does not end well: {ended:?}");
    }
}
