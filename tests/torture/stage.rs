//! A server, a proxy for each worker, the workers, and what a nemesis does to them.

use crate::foreigner::{Foreigner, Habit};
use crate::history::circles::{self, Told};
use crate::history::commands::{Lists, writes};
use crate::history::events::{Event, NOTHING};
use crate::history::names::During;
use crate::history::operations::{Histories, histories};
use crate::history::record::{self, FOREIGNER, Log, MACHINE, MS, Trail, now};
use crate::history::waits::Bounds;
use crate::history::{Deaf, Events, Finding, Verdict, journal, judge};
use crate::nemesis::{Act, Step};
use crate::plan::{Order, Plan};
use crate::proxy::Proxy;
use crate::server::{Server, Signal, signal};
use crate::work::Cancels;
use crate::worker::{self, censuses_path, circles_path, log_path};
use crate::{reaper, rules};
pub(crate) use end::{End, explained};
pub(crate) use ground::Servers;
use ground::{GRANT, Ground};
use harness::cores::{cores, stay_on};
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::sleep;
use std::time::Duration;
use witness::{Witness, is_of_witness};

mod crowd;
mod end;
mod failovers;
mod ground;
mod party;
mod patience;
mod shards;
mod shares;
mod witness;

pub(crate) const ORDER: &str = "REDLATCH_TORTURE_WORKER";

/// How long workers need on a busy machine to ask for their first locks.
const STARTS: u64 = 1_000 * MS;

const FOREIGN_LOG: &str = "foreigner.log";

pub(crate) struct Setting {
    pub(crate) plan: Plan,
    pub(crate) workers: usize,
    pub(crate) servers: Servers,
    /// Workers reach the one server by TLS.
    pub(crate) sealed: bool,
    pub(crate) mutant: Option<&'static str>,
    pub(crate) seed: u64,
    /// Where the logs go.
    pub(crate) dir: PathBuf,
    /// How long a waiter may sleep beside a free lock, in ms.
    pub(crate) free: u64,
    /// How often a call may be passed over, and for how long, in ms.
    pub(crate) passes: (usize, u64),
    /// So few grants after a failover show nothing.
    pub(crate) enough: usize,
}

pub(crate) struct Stage {
    setting: Setting,
    ground: Option<Ground>,
    /// In front of the one server, for each worker; not of a group.
    pub(crate) proxies: Vec<Proxy>,
    crew: Vec<Worker>,
    /// That of every worker so far by its number.
    fates: Vec<Fate>,
    foreigner: Option<Foreigner>,
    events: Events,
    witness: Option<Witness>,
    /// The nemeses' log, for people.
    notes: File,
    pub(crate) started: u64,
    beats: Arc<AtomicBool>,
    /// The logs of the machine's heartbeats, one for each core.
    hearts: Vec<PathBuf>,
}

#[derive(Clone, Copy, Default)]
struct Fate {
    /// When it was ended by force.
    killed: Option<u64>,
    /// It was seen to have no lock then.
    empty_handed: bool,
}

struct Worker {
    number: u64,
    child: Child,
}

impl Stage {
    pub(crate) fn open(setting: Setting) -> Self {
        std::fs::create_dir_all(&setting.dir).expect("a directory for the logs");
        std::fs::write(setting.dir.join("counters"), [0; 8 * 256]).expect("the counters");
        let ground = Ground::open(&setting);
        let proxies = (0..setting.workers).filter_map(|_| ground.proxy(setting.sealed)).collect();
        let notes = File::create(setting.dir.join("nemeses.txt")).expect("a log file");
        let (crew, fates, events) = (Vec::new(), Vec::new(), Events::default());
        let witness = Some(Witness::new(ground.sockets()));
        let beats = Arc::new(AtomicBool::new(true));
        let hearts = cores().into_iter().map(|core| heart_of(core, &setting.dir, &beats)).collect();
        Self {
            beats,
            hearts,
            setting,
            ground: Some(ground),
            proxies,
            crew,
            fates,
            foreigner: None,
            events,
            witness,
            notes,
            started: now(),
        }
    }

    pub(crate) fn start(&mut self) {
        (0..self.setting.workers).for_each(|place| self.engage(place));
        self.started = now();
        // The first strict client takes a server for one that lost its data.
        let quiet = self.bounds().quarantine().map(|lease| (self.started, now() + lease + STARTS));
        self.events.rough.extend(quiet.map(During::of_all));
    }

    /// One more worker, whose connections go through this proxy.
    pub(crate) fn engage(&mut self, place: usize) {
        let worker = self.hire(place);
        self.crew.push(worker);
    }

    fn end_by_force(&mut self, worker: &mut Worker) {
        end_by_force(&mut worker.child);
        self.fates[worker.number as usize].killed = Some(now());
    }

    /// From now on somebody waits for the first lock as a JVM does, which has it for so many ms and then not for so many.
    pub(crate) fn invite_foreigner(&mut self, hold: u64, pause: u64) {
        let (log, ms) = (Log::new(&self.setting.dir.join(FOREIGN_LOG)), Duration::from_millis);
        let habit = Habit { lease: ms(self.setting.plan.watchdog), hold: ms(hold), pause: ms(pause) };
        self.foreigner = Some(Foreigner::start(&self.server().url(), log, habit));
    }

    fn hire(&mut self, place: usize) -> Worker {
        let number = self.fates.len() as u64;
        let (url, ways) = match self.ground() {
            Ground::One(_) => (ground::url(&self.proxies[place], self.setting.sealed), Vec::new()),
            Ground::Group(party) => party.way_of(place),
            Ground::Cluster(shards) => shards.way(),
        };
        let order = Order {
            dir: self.setting.dir.display().to_string(),
            url,
            ways,
            number,
            seed: self.setting.seed ^ number,
            plan: self.setting.plan.clone(),
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ORDER, order.to_text()).env_remove("REDLATCH_MUTANT").stdin(Stdio::piped());
        command.envs(self.setting.mutant.map(|name| ("REDLATCH_MUTANT", name)));
        let child = command.spawn().expect("a process");
        reaper::watch(child.id());
        self.fates.push(Fate::default());
        Worker { number, child }
    }

    fn ground(&self) -> &Ground {
        self.ground.as_ref().expect("the servers run")
    }

    /// The one that there is.
    pub(crate) fn server(&mut self) -> &mut Server {
        match &mut self.ground {
            Some(Ground::One(server)) => server,
            _ => panic!("no single server"),
        }
    }

    /// One step of a nemesis, and the pause after it.
    pub(crate) fn perform(&mut self, step: Step) {
        if step.act == Act::Rest {
            return sleep(Duration::from_millis(step.pause));
        }
        let from = now();
        self.act(step);
        if !step.act.replaces() && !step.act.moves() {
            self.events.rough.push(During::of_all((from, now())));
        }
        let (is_one, span) = step.act.deafens();
        let process = is_one.then(|| self.crew[step.whom].number as usize);
        self.events.deaf.push(Deaf { process, span: (from, now() + span) });
        if step.act == Act::FlushAll || (step.act == Act::KillServer && self.setting.servers == Servers::Forgetful) {
            self.events.losses.push((from, now()));
        }
        let (begin, end) = (from.saturating_sub(self.started) / MS, now().saturating_sub(self.started) / MS);
        writeln!(self.notes, "{begin:6} to {end:6} ms: {:?} of {}", step.act, step.whom).expect("room for the log");
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
            Act::ClockBack => self.put_clock_back(lasts),
            Act::Evict => self.evict(step.seed),
            Act::ForgetScripts => self.admin(&["SCRIPT", "FLUSH"]),
            Act::KillNormal => self.admin(&["CLIENT", "KILL", "TYPE", "normal"]),
            Act::KillPubsub => self.admin(&["CLIENT", "KILL", "TYPE", "pubsub"]),
            Act::Pause => {
                self.admin(&["CLIENT", "PAUSE", &step.lasts.to_string(), "ALL"]);
                sleep(lasts);
            }
            Act::PauseWrites => {
                self.admin(&["CLIENT", "PAUSE", &step.lasts.to_string(), "WRITE"]);
                sleep(lasts);
            }
            Act::MaxClients => {
                self.during(lasts, &["CONFIG", "SET", "maxclients", "1"], &["CONFIG", "SET", "maxclients", "10000"]);
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
            _ => self.replace(step),
        }
    }

    fn admin(&mut self, words: &[&str]) {
        self.ground().tell(words);
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

    /// Keys stay for so much longer, and those who wait for them wait as long.
    fn put_clock_back(&mut self, by: Duration) {
        let server = self.server();
        if server.set_clock(server.clock_ahead() - by.as_millis() as i64) {
            sleep(by);
            self.compare_clocks();
        }
    }

    /// Has the witness compare the server's clock with ours anew.
    fn compare_clocks(&mut self) {
        let clients = self.server().ask::<String>(&["CLIENT", "LIST"]);
        for line in clients.lines().filter(|line| is_of_witness(line)) {
            let id = line.split(' ').find_map(|word| word.strip_prefix("id=")).expect("each client has an id");
            self.admin(&["CLIENT", "KILL", "ID", id]);
        }
    }

    pub(crate) fn freeze_client(&mut self, whom: usize, span: Duration) {
        signal(Signal::STOP, self.crew[whom].child.id()).unwrap();
        self.thaw_client(whom, span);
    }

    pub(crate) fn kill_client(&mut self, whom: usize) {
        let next = self.hire(whom);
        let mut worker = std::mem::replace(&mut self.crew[whom], next);
        self.end_by_force(&mut worker);
    }

    /// Whether a worker has ended by itself: then nothing else that is found says anything.
    pub(crate) fn has_lost_a_worker(&mut self) -> bool {
        self.crew.iter_mut().any(|worker| worker.child.try_wait().expect("a child's state").is_some())
    }

    /// What the logs tell so far. Calls under way are no findings yet, and what is written while logs are read is left out: a
    /// release of a log that was read would be missing beside the next acquire in one that is read later, and look like an
    /// overlap.
    pub(crate) fn judge_so_far(&self) -> Verdict {
        let said = self.said();
        self.judge(&self.trails_so_far(), &said)
    }

    /// What a checker from outside is given of that. What lists have that the logs do not was written after these were read.
    pub(crate) fn histories_so_far(&self) -> Histories {
        let (trails, mut lists) = (self.trails_so_far(), self.lists());
        let known: HashSet<_> = writes(&trails).into_iter().map(|write| write.number).collect();
        lists.iter_mut().for_each(|list| list.retain(|number| known.contains(number)));
        histories(&trails, &lists, &self.events, &self.bounds())
    }

    fn trails_so_far(&self) -> Vec<Trail> {
        let until = now();
        let mut trails = self.trails(true);
        trails.iter_mut().for_each(|trail| trail.records.retain(|record| record.at <= until));
        trails
    }

    /// Whether the servers said anything of the lock that a finding is about.
    pub(crate) fn explains(&self, finding: &Finding) -> bool {
        explained(finding, &self.said()).is_none_or(|told| !told.ends_with(NOTHING))
    }

    fn said(&self) -> Vec<Event> {
        self.witness.as_ref().map_or_else(Vec::new, Witness::so_far)
    }

    fn judge(&self, trails: &[Trail], said: &[Event]) -> Verdict {
        let said = if matches!(self.ground(), Ground::One(_)) { said } else { &[] };
        let circles = self.circles();
        let (number, untrue) = (circles.len(), circles::untrue(trails, &circles));
        let verdict =
            judge(trails, &journal::read(&self.setting.dir), &self.lists(), said, &self.events, &self.bounds());
        Verdict { circles: number, censuses: self.censuses(), untrue, ..verdict }
    }

    fn censuses(&self) -> u64 {
        let paths = (0..).zip(&self.fates).map(|(number, _)| censuses_path(&self.setting.dir, number));
        paths.filter_map(|path| std::fs::read_to_string(path).ok()?.parse::<u64>().ok()).sum()
    }

    /// The circles of waiting that workers were told of.
    fn circles(&self) -> Vec<Told> {
        let paths = (0..).zip(&self.fates).map(|(number, _)| circles_path(&self.setting.dir, number));
        let texts: Vec<_> = paths.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        texts.iter().flat_map(|text| text.lines()).filter_map(Told::of).collect()
    }

    fn histories(&self, trails: &[Trail]) -> Histories {
        histories(trails, &self.lists(), &self.events, &self.bounds())
    }

    /// What was written while locks were held.
    fn lists(&self) -> Lists {
        self.ground().written(self.setting.plan.names as u8)
    }

    fn bounds(&self) -> Bounds {
        let Setting { free, passes: (passes, passed), plan, .. } = &self.setting;
        let (lease, replicated) = (plan.watchdog.max(plan.lease) * MS, plan.replicas > 0);
        let (free, passed, response) = (free * MS, passed * MS, plan.response * MS);
        let (strict, poll) = (plan.strict, plan.poll * MS);
        let forgets_permits = self.setting.servers.forget_permits(plan);
        Bounds { free, lease, response, passes: *passes, passed, strict, replicated, poll, forgets_permits }
    }

    fn trails(&self, under_way: bool) -> Vec<Trail> {
        let plan = &self.setting.plan;
        let of_core = |heart: &PathBuf| Trail {
            process: MACHINE,
            killed: true,
            records: record::read(heart),
            ..Trail::default()
        };
        let mut trails: Vec<_> = self.hearts.iter().map(of_core).collect();
        let until = now();
        for (number, fate) in (0..).zip(&self.fates) {
            let paths = (0..=plan.threads).map(|thread| log_path(&self.setting.dir, number, thread));
            let paths = paths.enumerate().filter(|(_, path)| path.exists());
            trails.extend(paths.map(|(hand, path)| Trail {
                process: number as usize,
                hand,
                killed: fate.killed.is_some() || under_way,
                empty_handed: fate.empty_handed,
                until: fate.killed.unwrap_or(until),
                queues: worker::queues(plan, number),
                fair: worker::is_fair(plan, number),
                records: record::read(&path),
            }));
        }
        let foreign = self.setting.dir.join(FOREIGN_LOG);
        trails.extend(foreign.exists().then(|| Trail {
            process: FOREIGNER,
            killed: true,
            until,
            records: record::read(&foreign),
            ..Trail::default()
        }));
        trails
    }

    /// Ends the workers as they are.
    pub(crate) fn abort(mut self) {
        self.foreigner = None;
        for worker in &mut self.crew {
            end_by_force(&mut worker.child);
        }
        self.proxies.clear();
        self.ground.take().into_iter().for_each(Ground::close);
        let _ = std::fs::remove_dir_all(&self.setting.dir);
    }

    /// Whether something came about that no nemesis did: what is left of the round says nothing.
    pub(crate) fn broken(&mut self) -> Option<String> {
        match &mut self.ground {
            Some(Ground::Group(party)) => party.broken(),
            Some(Ground::Cluster(shards)) => shards.broken(),
            _ => None,
        }
    }
}

/// Starts a heartbeat that stays on one core: where that is taken away, the threads that wait there stand still, and a heartbeat on
/// another core would not see it. Its log.
fn heart_of(core: usize, dir: &Path, beats: &Arc<AtomicBool>) -> PathBuf {
    let (path, beats) = (dir.join(format!("orchestrator-{core}.log")), Arc::clone(beats));
    let log = Log::new(&path);
    std::thread::spawn(move || {
        stay_on(core);
        worker::beat(log, &beats, &Cancels::default())
    });
    path
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.beats.store(false, SeqCst);
    }
}

fn end_by_force(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
    reaper::forget(child.id());
}
