//! A server, a proxy for each worker, the workers, and what a nemesis does to them.

use crate::history::record::{Log, MACHINE, MS, Trail, now};
use crate::history::waits::{Bounds, Span};
use crate::history::{Verdict, judge};
use crate::nemesis::{Act, Step};
use crate::plan::{Order, Plan};
use crate::proxy::Proxy;
use crate::server::{Server, signal};
use crate::work::Cancels;
use crate::worker::{self, leaks_path, log_path};
use crate::{reaper, rules};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const ORDER: &str = "REDLATCH_TORTURE_WORKER";

/// How soon a worker has ended once it is told to, and what is left on the server is gone.
const END: Duration = Duration::from_secs(20);

const LOGIN: &str = "?user=torture&pass=torture";
const GRANT: &[&str] = &["ACL", "SETUSER", "torture", "on", ">torture", "~*", "&*", "+@all"];

pub(crate) struct Setting {
    pub(crate) plan: Plan,
    pub(crate) workers: usize,
    pub(crate) keeps_data: bool,
    pub(crate) mutant: Option<&'static str>,
    pub(crate) seed: u64,
    /// Where the logs go.
    pub(crate) dir: PathBuf,
    /// How long a waiter may sleep beside a free lock, in ms.
    pub(crate) free: u64,
}

pub(crate) struct Stage {
    setting: Setting,
    server: Option<Server>,
    pub(crate) proxies: Vec<Proxy>,
    crew: Vec<Worker>,
    /// Every worker so far, and whether it was ended by force.
    numbers: Vec<(u64, bool)>,
    rough: Vec<Span>,
    /// When the server lost its data.
    losses: Vec<Span>,
    /// The nemeses' log, for people.
    events: File,
    pub(crate) started: u64,
    beats: Arc<AtomicBool>,
    heart: PathBuf,
}

struct Worker {
    number: u64,
    child: Child,
}

/// What came of it.
pub(crate) struct End {
    pub(crate) verdict: Verdict,
    /// What is left of the clients, on the server and in the workers, and how workers failed.
    pub(crate) leaks: Vec<String>,
}

impl Stage {
    pub(crate) fn open(setting: Setting) -> Self {
        std::fs::create_dir_all(&setting.dir).expect("a directory for the logs");
        std::fs::write(setting.dir.join("counters"), [0; 8 * 256]).expect("the counters");
        let server = if setting.keeps_data { Server::start_with_data() } else { Server::start() };
        reaper::watch(server.pid());
        reaper::tidy(server.socket().parent().expect("a directory"));
        let _: String = server.ask(GRANT);
        let proxies = (0..setting.workers).map(|_| Proxy::new(server.socket())).collect();
        let events = File::create(setting.dir.join("nemeses.txt")).expect("a log file");
        let (crew, numbers, rough, losses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (beats, heart) = (Arc::new(AtomicBool::new(true)), setting.dir.join("orchestrator.log"));
        let (log, beating) = (Log::new(&heart), Arc::clone(&beats));
        std::thread::spawn(move || worker::beat(log, &beating, &Cancels::default()));
        Self {
            beats,
            heart,
            setting,
            server: Some(server),
            proxies,
            crew,
            numbers,
            rough,
            losses,
            events,
            started: now(),
        }
    }

    pub(crate) fn start(&mut self) {
        for place in 0..self.setting.workers {
            let worker = self.hire(place);
            self.crew.push(worker);
        }
        self.started = now();
    }

    fn hire(&mut self, place: usize) -> Worker {
        let number = self.numbers.len() as u64;
        let order = Order {
            dir: self.setting.dir.display().to_string(),
            url: self.proxies[place].url() + LOGIN,
            number,
            seed: self.setting.seed ^ number,
            plan: self.setting.plan.clone(),
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ORDER, order.to_text()).env_remove("REDLATCH_MUTANT").stdin(Stdio::piped());
        command.envs(self.setting.mutant.map(|name| ("REDLATCH_MUTANT", name)));
        let child = command.spawn().expect("a process");
        reaper::watch(child.id());
        self.numbers.push((number, false));
        Worker { number, child }
    }

    pub(crate) fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("the server runs")
    }

    /// One step of a nemesis, and the pause after it.
    pub(crate) fn perform(&mut self, step: Step) {
        let from = now();
        self.act(step);
        self.rough.push((from, now()));
        if step.act == Act::FlushAll || (step.act == Act::KillServer && !self.setting.keeps_data) {
            self.losses.push((from, now()));
        }
        let (begin, end) = (from.saturating_sub(self.started) / MS, now().saturating_sub(self.started) / MS);
        writeln!(self.events, "{begin:6} to {end:6} ms: {:?} of {}", step.act, step.whom).expect("room for the log");
        sleep(Duration::from_millis(step.pause));
    }

    fn act(&mut self, step: Step) {
        let lasts = Duration::from_millis(step.lasts);
        match step.act {
            Act::KillServer => self.kill_server(lasts),
            Act::FreezeServer => {
                self.server().freeze();
                sleep(lasts);
                self.server().thaw();
            }
            Act::FreezeClient => self.freeze_client(step.whom, lasts),
            Act::KillClient => self.kill_client(step.whom),
            Act::FlushAll => self.admin(&["FLUSHALL"]),
            Act::ForgetScripts => self.admin(&["SCRIPT", "FLUSH"]),
            Act::KillNormal => self.admin(&["CLIENT", "KILL", "TYPE", "normal"]),
            Act::KillPubsub => self.admin(&["CLIENT", "KILL", "TYPE", "pubsub"]),
            Act::Pause => {
                self.admin(&["CLIENT", "PAUSE", &step.lasts.to_string(), "ALL"]);
                sleep(lasts);
            }
            Act::OutOfMemory => {
                self.during(lasts, &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]);
            }
            Act::ReadOnly => self.during(lasts, &["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
            Act::RevokeScripts => self.revoke(lasts, &["-eval", "-evalsha"]),
            Act::RevokePublish => self.revoke(lasts, &["-publish"]),
            Act::RevokeChannels => self.revoke(lasts, &["resetchannels"]),
            Act::RevokeAll => self.revoke(lasts, &["off", "-@all"]),
            Act::Delay | Act::Cut | Act::Swallow | Act::Linger => {
                let proxy = &self.proxies[step.whom];
                rules::set(proxy, step);
                sleep(lasts);
                proxy.clear();
            }
        }
    }

    fn admin(&mut self, words: &[&str]) {
        let _: redis::Value = self.server().ask(words);
    }

    fn during(&mut self, span: Duration, begin: &[&str], end: &[&str]) {
        self.admin(begin);
        sleep(span);
        self.admin(end);
    }

    fn revoke(&mut self, span: Duration, rules: &[&str]) {
        self.during(span, &[&["ACL", "SETUSER", "torture"], rules].concat(), GRANT);
    }

    fn kill_server(&mut self, dead_for: Duration) {
        reaper::forget(self.server().pid());
        self.server().kill();
        sleep(dead_for);
        self.server().restart();
        reaper::watch(self.server().pid());
        self.admin(GRANT);
    }

    pub(crate) fn freeze_client(&mut self, whom: usize, span: Duration) {
        let pid = self.crew[whom].child.id();
        signal("-STOP", pid);
        sleep(span);
        signal("-CONT", pid);
    }

    fn kill_client(&mut self, whom: usize) {
        let worker = &mut self.crew[whom];
        end_by_force(&mut worker.child);
        self.numbers[worker.number as usize].1 = true;
        self.crew[whom] = self.hire(whom);
    }

    /// What the logs tell so far. Calls under way are no findings yet.
    pub(crate) fn judge_so_far(&self) -> Verdict {
        self.judge(&self.trails(true))
    }

    fn judge(&self, trails: &[Trail]) -> Verdict {
        let lease = self.setting.plan.watchdog.max(self.setting.plan.lease) * MS;
        let bounds = Bounds { free: self.setting.free * MS, lease, strict: self.setting.plan.strict };
        judge(trails, &self.rough, &self.losses, &bounds)
    }

    fn trails(&self, under_way: bool) -> Vec<Trail> {
        let threads = 0..=self.setting.plan.threads;
        let all = self.numbers.iter().flat_map(|number| threads.clone().map(move |thread| (number, thread)));
        let paths =
            all.map(|(&(number, killed), thread)| (log_path(&self.setting.dir, number, thread), number, killed));
        let there = paths.filter(|(path, ..)| path.exists());
        let trails = there.map(|(path, number, killed)| Trail::read(&path, number as usize, killed || under_way));
        trails.chain([Trail::read(&self.heart, MACHINE, true)]).collect()
    }

    /// Ends the workers as they are.
    pub(crate) fn abort(mut self) {
        for worker in &mut self.crew {
            end_by_force(&mut worker.child);
        }
        self.proxies.clear();
        self.close_server();
        let _ = std::fs::remove_dir_all(&self.setting.dir);
    }

    /// Lets the workers finish, and looks at what they left.
    pub(crate) fn finish(mut self) -> End {
        let mut leaks = Vec::new();
        for worker in &mut self.crew {
            drop(worker.child.stdin.take());
        }
        let end = Instant::now() + END;
        for worker in std::mem::take(&mut self.crew) {
            leaks.extend(self.see_off(worker, end));
        }
        leaks.extend(self.left_on_server());
        let verdict = self.judge(&self.trails(false));
        self.proxies.clear();
        self.close_server();
        End { verdict, leaks }
    }

    fn see_off(&mut self, mut worker: Worker, end: Instant) -> Vec<String> {
        let number = worker.number;
        match wait_until(&mut worker.child, end) {
            None => {
                end_by_force(&mut worker.child);
                vec![format!("worker {number} does not end")]
            }
            Some(status) => {
                reaper::forget(worker.child.id());
                let said = std::fs::read_to_string(leaks_path(&self.setting.dir, number));
                let failed = (!status.success()).then(|| format!("worker {number} failed: {status}"));
                failed.into_iter().chain(said.iter().flat_map(|text| text.lines()).map(str::to_owned)).collect()
            }
        }
    }

    /// Keys of workers that were killed stay until their leases end; nothing else may, and those not for long.
    fn left_on_server(&mut self) -> Option<String> {
        let strict = self.setting.plan.strict;
        let server = self.server();
        if strict {
            server.ask::<i64>(&["DEL", "redlatch:epoch"]);
        }
        let left = || {
            let keys: i64 = server.ask(&["DBSIZE"]);
            let channels: Vec<String> = server.ask(&["PUBSUB", "CHANNELS"]);
            let clients = server.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1;
            (keys > 0 || !channels.is_empty() || clients > 0)
                .then(|| format!("on the server: {keys} keys, {clients} connections, channels {channels:?}"))
        };
        let end = Instant::now() + END;
        while left().is_some() && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        left()
    }

    /// Killed, it is not asked by the harness what is left on it: that was told.
    fn close_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            reaper::forget(server.pid());
            server.kill();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.beats.store(false, SeqCst);
    }
}

fn wait_until(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait().expect("a child's state") {
            Some(status) => return Some(status),
            None if Instant::now() > end => return None,
            None => sleep(Duration::from_millis(5)),
        }
    }
}

fn end_by_force(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
    reaper::forget(child.id());
}
