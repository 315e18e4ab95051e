//! A worker process: its threads, its heartbeat, and what it leaves behind.

use crate::guarded::Locks;
use crate::history::circles::{Member, Told};
use crate::history::journal;
use crate::history::record::{Kind, Log, MS, Record, now};
use crate::history::sides::lock_of;
use crate::plan::{Order, Plan};
use crate::threads::of_redlatch;
use crate::work::{Cancels, Hand};
use fastrand::Rng;
use harness::papers::known_by;
use redlatch::inspect::Inspector;
use redlatch::{Client, ClientBuilder, Deadlock, HandOff, ShardedPubsub};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const BEAT: Duration = Duration::from_millis(5);

/// A beat that comes so much late is a stall of the whole process.
const MISSED_BEAT: u64 = 8 * MS;

/// After how long waits look for circles: as early as may be.
const CHECK: Duration = Duration::from_millis(100);

/// Every so manieth worker takes censuses, this often.
const TAKERS: u64 = 3;
const CENSUS_EVERY: Duration = Duration::from_millis(50);

/// The start of the names of the threads that work, before their numbers.
const HAND: &str = "hand-";

/// How soon threads, descriptors and holds are gone once nobody uses them.
const GONE: Duration = Duration::from_secs(5);

/// How much a process may grow after its first seconds, in bytes.
const GROWTH: u64 = 16 << 20;

/// Memory is looked at from here on: pools, stacks and buffers are there by then.
const WARM: Duration = Duration::from_secs(3);

/// Where a thread of a worker keeps its log.
pub(crate) fn log_path(dir: &Path, number: u64, thread: u64) -> PathBuf {
    dir.join(format!("{number}-{thread}.log"))
}

/// Where a worker says which client it is.
pub(crate) fn client_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.client"))
}

/// Where a worker says of which circles of waiting it was told.
pub(crate) fn circles_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.circles"))
}

/// Where a worker says how many censuses it took.
pub(crate) fn censuses_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.censuses"))
}

/// Where a worker says what it left behind.
pub(crate) fn leaks_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.leaks"))
}

/// Works until its standard input ends, which it also does when the orchestrator dies.
pub(crate) fn run(order: &Order) {
    let says = std::panic::take_hook();
    // A thread that panics is the end of all, also where the library would go on: its mistake is not to be overlooked.
    std::panic::set_hook(Box::new(move |panic| {
        says(panic);
        std::process::abort();
    }));
    let dir = PathBuf::from(&order.dir);
    let counters = OpenOptions::new().read(true).write(true).open(dir.join("counters")).expect("the counters");
    let journal = journal::open(&dir);
    let mut logs: Vec<_> =
        (0..=order.plan.threads).map(|thread| Log::new(&log_path(&dir, order.number, thread))).collect();
    let heart = logs.pop().unwrap();
    let files = open_files();
    let mut leaks = work(order, &counters, &journal, logs, heart);
    if !eventually(|| of_redlatch().is_empty()) {
        leaks.push(format!("threads: {:?}", of_redlatch()));
    }
    if !eventually(|| open_files() <= files) {
        leaks.push(format!("descriptors: {} instead of {files}", open_files()));
    }
    std::fs::write(leaks_path(&dir, order.number), leaks.join("\n")).expect("room for the leaks");
}

/// The client lives in here alone.
fn work(order: &Order, counters: &File, journal: &File, logs: Vec<Log>, heart: Log) -> Vec<String> {
    let client = client(order);
    std::fs::write(client_path(Path::new(&order.dir), order.number), format!("{client:?}")).expect("room for its name");
    let locks = Locks::new(order, &client);
    let (cancels, stop, beats) =
        (Cancels::default(), &*Box::leak(Box::new(AtomicBool::new(false))), AtomicBool::new(true));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, SeqCst);
    });
    let mut leaks = Vec::new();
    std::thread::scope(|scope| {
        let (beats, cancels, locks) = (&beats, &cancels, &locks);
        let heart = scope.spawn(move || beat(heart, beats, cancels));
        if order.number.is_multiple_of(TAKERS) {
            scope.spawn(|| take_censuses(order, &client, beats));
        }
        let hands: Vec<_> = logs
            .into_iter()
            .enumerate()
            .map(|(thread, log)| {
                let rng = Rng::with_seed(order.seed ^ (thread as u64) << 32);
                let (plan, holds, grant) = (&order.plan, HashMap::new(), None);
                let is_writer = order.number < plan.writers;
                let mut hand =
                    Hand { locks, cancels, stop, counters, journal, plan, is_writer, log, rng, asked: 0, holds, grant };
                let named = std::thread::Builder::new().name(format!("{HAND}{thread}"));
                named.spawn_scoped(scope, move || hand.run()).expect("a thread")
            })
            .collect();
        hands.into_iter().for_each(|hand| hand.join().expect("a thread of the worker panicked"));
        beats.store(false, SeqCst);
        leaks.extend(heart.join().expect("the heartbeat panicked"));
    });
    let left = || client.stats();
    if !eventually(|| left().holds == 0 && left().waiters == 0) {
        leaks.push(format!("holds and waiters: {:?}", left()));
    }
    leaks
}

/// Of five workers three pass locks on as usual, one in order of arrival, and one never.
fn hand_off(plan: &Plan, number: u64) -> HandOff {
    match number % 5 {
        1 if plan.mixed => HandOff::default().in_order(),
        2 if plan.mixed => HandOff::off(),
        _ => HandOff::default(),
    }
}

/// Whether a worker has a place in the queue of processes of each lock that it waits for.
pub(crate) fn queues(plan: &Plan, number: u64) -> bool {
    !plan.plain && hand_off(plan, number) != HandOff::off() && !is_fair(plan, number)
}

/// Whether each thread of a worker has a place of its own, in the queue of a fair lock.
pub(crate) fn is_fair(plan: &Plan, number: u64) -> bool {
    plan.fair || (plan.mixed && number % 5 == 4)
}

fn client(order: &Order) -> Client {
    let (ms, plan) = (Duration::from_millis, &order.plan);
    let builder = Client::builder(&order.url)
        .hand_off(hand_off(plan, order.number))
        .watchdog_timeout(ms(plan.watchdog))
        .response_timeout(ms(plan.response));
    let builder = builder.connect_timeout(ms(plan.response)).outage_budget(ms(plan.outage)).poll_cap(ms(plan.poll));
    let ways = order.ways.clone();
    let reached = move |port| ways.iter().find(|(named, _)| *named == port).map_or(port, |&(_, reached)| reached);
    let builder = builder.map_address(move |host, port| (host.to_owned(), reached(port)));
    let told = if plan.plain { ShardedPubsub::Off } else { ShardedPubsub::Auto };
    let builder = builder.strict(plan.strict).sharded_pubsub(told);
    let confirmed = |builder: ClientBuilder| builder.sync_replicas(plan.replicas as usize, ms(plan.response / 2));
    let builder = if plan.replicas > 0 { confirmed(builder) } else { builder };
    let is_sealed = order.url.starts_with("rediss");
    let builder = if is_sealed { builder.tls(known_by(Path::new(&order.dir))) } else { builder };
    let builder = builder.app_name(app_name(order.number)).deadlock_check(CHECK);
    builder.on_deadlock(note_circles(order)).build().expect("settings that fit")
}

/// How a worker is called where it is named.
fn app_name(number: u64) -> String {
    format!("worker-{number}")
}

/// Notes each circle that the worker is told of at once: it may be killed.
fn note_circles(order: &Order) -> impl Fn(Deadlock) + Send + Sync + 'static {
    let path = circles_path(Path::new(&order.dir), order.number);
    let file = OpenOptions::new().create(true).append(true).open(path).expect("a file for circles");
    move |circle| (&file).write_all(told(&circle).to_line().as_bytes()).expect("room for a circle")
}

/// Few threads hold a lock and wait for long, so few waits look for circles. This looks all the time.
fn take_censuses(order: &Order, client: &Client, goes_on: &AtomicBool) {
    let (inspector, note) = (Inspector::new(client), note_circles(order));
    let mut taken = 0_u64;
    while goes_on.load(SeqCst) {
        std::thread::sleep(CENSUS_EVERY);
        if let Ok(census) = inspector.census() {
            census.circles().into_iter().for_each(&note);
            taken += 1;
            std::fs::write(censuses_path(Path::new(&order.dir), order.number), taken.to_string())
                .expect("room for a number");
        }
    }
}

fn told(circle: &Deadlock) -> Told {
    let number = |text: Option<&str>, start: &str| text.and_then(|text| text.strip_prefix(start)?.parse().ok());
    let members = circle.members.iter().map(|member| Member {
        process: number(Some(&member.process.app), "worker-").unwrap_or(usize::MAX),
        hand: number(member.thread_name.as_deref(), HAND),
        holds: lock_named(&member.holds),
        waits: lock_named(&member.waits_for),
    });
    Told { at: now(), members: members.collect() }
}

/// The lock with this resource, as the logs name it; both sides of a read-write lock are one.
fn lock_named(resource: &str) -> u8 {
    (0..u8::MAX).find(|name| crate::work::resource(*name) == resource).map_or(u8::MAX, lock_of)
}

/// Notes when the whole process stood still, cancels what is due, and says when the memory has grown.
pub(crate) fn beat(mut log: Log, beats: &AtomicBool, cancels: &Cancels) -> Option<String> {
    let (start, mut last, mut warm) = (Instant::now(), now(), None);
    while beats.load(SeqCst) {
        std::thread::sleep(BEAT);
        let at = now();
        if at - last > MISSED_BEAT {
            log.write(Record { at, kind: Kind::Stall, value: at - last, ..Record::default() });
        }
        last = at;
        cancels.lock().unwrap().retain(|(due, token)| {
            let due = *due <= at;
            if due {
                token.cancel();
            }
            !due
        });
        if warm.is_none() && start.elapsed() > WARM {
            warm = Some(memory());
        }
    }
    let (warm, end) = (warm?, memory());
    (end > warm + GROWTH).then(|| format!("memory: {warm} bytes, later {end}"))
}

fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + GONE;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(BEAT);
    }
    true
}

/// Zero where the system does not show them.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Resident memory; zero where the system does not show it.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}
