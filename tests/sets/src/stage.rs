//! One way at work: its server, its workers behind a proxy each, and the nemesis.

use crate::checker::{Counts, judge};
use crate::history::History;
use crate::nemesis::{Act, EVERY};
use crate::place;
use crate::way::Way;
use crate::worker::Order;
use fastrand::Rng;
use harness::proxy::{Flow, Proxy, Step, pass};
use harness::reaper;
use harness::server::{Server, Signal, signal};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Worker processes of a way.
const WORKERS: usize = 5;

/// How long a nemesis waits for a worker that holds a lock.
const FIND: Duration = Duration::from_millis(400);

/// The role of a worker, as the first word of its command line.
pub(crate) const WORKER: &str = "worker";

pub(crate) struct Setting {
    pub(crate) way: &'static Way,
    pub(crate) span: Duration,
    pub(crate) seed: u64,
    pub(crate) sets: usize,
    pub(crate) is_renewed: bool,
    /// Of this way alone.
    pub(crate) folder: PathBuf,
}

pub(crate) struct End {
    pub(crate) way: &'static Way,
    pub(crate) counts: Counts,
    pub(crate) acts: BTreeMap<Act, usize>,
    pub(crate) log: String,
}

struct Worker {
    number: u64,
    child: Child,
    ear: JoinHandle<()>,
}

struct Stage {
    setting: Setting,
    server: Server,
    proxies: Vec<Proxy>,
    workers: Vec<Worker>,
    /// How many workers have come so far.
    number: u64,
    history: Arc<Mutex<History>>,
    rng: Rng,
}

/// Runs a way until its time is over.
pub(crate) fn play(setting: Setting) -> End {
    let mut stage = Stage::open(setting);
    let start = Instant::now();
    let first = stage.rng.usize(..Act::ALL.len());
    for turn in 1.. {
        let due = EVERY * turn;
        if due + EVERY > stage.setting.span {
            break;
        }
        sleep(due.saturating_sub(start.elapsed()));
        let acts = stage.setting.way.acts;
        stage.perform(acts[(first + turn as usize) % acts.len()]);
    }
    sleep(stage.setting.span.saturating_sub(start.elapsed()));
    stage.end()
}

impl Stage {
    fn open(setting: Setting) -> Self {
        std::fs::create_dir_all(&setting.folder).expect("a folder");
        place::prepare(setting.way.place, &setting.folder, setting.sets);
        let server = Server::start_with_data();
        reaper::watch(server.pid());
        reaper::tidy(server.socket().parent().expect("a folder"));
        let proxies = (0..WORKERS).map(|_| Proxy::new(server.socket())).collect();
        let (history, rng) = (Arc::new(Mutex::new(History::new())), Rng::with_seed(setting.seed));
        let mut stage = Self { setting, server, proxies, workers: Vec::new(), number: 0, history, rng };
        for place in 0..WORKERS {
            let worker = stage.hire(place);
            stage.workers.push(worker);
        }
        stage
    }

    /// Starts a worker behind the proxy of this place.
    fn hire(&mut self, place: usize) -> Worker {
        let Setting { way, seed, sets, is_renewed, ref folder, .. } = self.setting;
        let (number, url) = (self.number, self.proxies[place].url());
        self.number += 1;
        let order = Order { way, number, seed, sets, is_renewed, url, folder: folder.clone() };
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.arg(WORKER).args(order.words()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        reaper::watch(child.id());
        let (says, history) = (BufReader::new(child.stdout.take().expect("a pipe")), Arc::clone(&self.history));
        let hear = move |line: String| history.lock().unwrap().hear(&line);
        let ear = std::thread::spawn(move || says.lines().map_while(Result::ok).for_each(hear));
        Worker { number, child, ear }
    }

    /// The place of a worker that holds a lock now, or of any if none does for a while.
    fn holder(&mut self) -> usize {
        let start = Instant::now();
        loop {
            let holders = self.history.lock().unwrap().holders();
            let is_over = start.elapsed() > FIND;
            if let Some(number) = self.rng.choice(holders) {
                return self.workers.iter().position(|worker| worker.number == number).expect("it works");
            } else if is_over {
                return self.rng.usize(..WORKERS);
            }
            sleep(Duration::from_millis(1));
        }
    }

    fn perform(&mut self, act: Act) {
        let (span, place) = (act.random_span(&mut self.rng), self.holder());
        let what = format!("for {span:?}, worker {}", self.workers[place].number);
        self.history.lock().unwrap().count(act, &what);
        match act {
            Act::PauseHolder => self.pause(place, span),
            Act::FreezeServer => {
                self.server.freeze();
                sleep(span);
                self.server.thaw();
            }
            Act::KillServer => self.kill_server(span),
            Act::KillWorker => self.replace(place),
            Act::CutWorker => self.cut(place, span),
        }
        self.history.lock().unwrap().note("healed");
    }

    fn pause(&self, place: usize, span: Duration) {
        let pid = self.workers[place].child.id();
        signal(Signal::STOP, pid).unwrap();
        sleep(span);
        signal(Signal::CONT, pid).unwrap();
    }

    fn kill_server(&mut self, span: Duration) {
        reaper::forget(self.server.pid());
        self.server.kill();
        sleep(span);
        self.server.restart();
        reaper::watch(self.server.pid());
    }

    fn replace(&mut self, place: usize) {
        let new = self.hire(place);
        let mut old = std::mem::replace(&mut self.workers[place], new);
        reaper::forget(old.child.id());
        old.child.kill().expect("it runs");
        old.child.wait().expect("it ends");
        old.ear.join().expect("it was heard");
        self.history.lock().unwrap().bury(old.number);
    }

    /// Half of the time replies alone are cut, so that what a worker sent may have been executed.
    fn cut(&mut self, place: usize, span: Duration) {
        let spares_requests = self.rng.bool();
        self.proxies[place].set(
            move |_, flow, data| {
                if spares_requests && flow == Flow::Request { pass(data) } else { vec![Step::Cut] }
            },
        );
        sleep(span);
        self.proxies[place].clear();
    }

    fn end(mut self) -> End {
        // Each hears the end of its standard input, and ends after its last add.
        self.workers.iter_mut().for_each(|worker| drop(worker.child.stdin.take()));
        for mut worker in self.workers {
            let status = worker.child.wait().expect("it ends");
            reaper::forget(worker.child.id());
            assert!(status.success(), "worker {} of {}: {status}", worker.number, self.setting.way.name);
            worker.ear.join().expect("it was heard");
        }
        let Setting { way, ref folder, sets, .. } = self.setting;
        let last: Vec<_> = (0..sets).map(|set| place::last_of(way.place, folder, &self.server.url(), set)).collect();
        reaper::forget(self.server.pid());
        self.server.clear();
        let history = self.history.lock().unwrap();
        let end = judge(&history.adds(), &last);
        End { way, counts: end, acts: history.acts().clone(), log: format!("{}{last:?}\n", history.log()) }
    }
}
