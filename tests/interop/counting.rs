//! Two JVMs and two Rust processes, each with several threads, count in one file under one lock.

use crate::cluster::How;
use crate::fair;
use crate::java::Jvm;
use crate::process::{Peer, hear, tell, with_peer};
use crate::server::Server;
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, Kind, Ours, record};
use crate::threads::{LONG, eventually, finish};
use redlatch::{ReadWriteLock, RedLockExt};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

const TARGET: u32 = 20_000;
/// Each command costs more there.
const TARGET_IN_A_CLUSTER: u32 = 5_000;
/// They exclude by the same key; what is counted are tokens.
const TARGET_OF_FENCED_LOCKS: u32 = 2_500;
/// Each hold goes to another thread.
const TARGET_OF_FAIR_LOCKS: u32 = 2_500;
/// By channels of all nodes a thread here finds what it was given at its next look, up to 50 ms later.
const TARGET_OF_FAIR_LOCKS_IN_A_CLUSTER: u32 = 500;
/// Readers are in between. For the table it is all of [`TARGET`].
const TARGET_OF_WRITE_LOCKS: u32 = 2_500;
const TARGET_OF_WRITE_LOCKS_IN_A_CLUSTER: u32 = 1_000;
/// To Redisson readers that are always there are no reason to let a writer in.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
const THREADS: usize = 4;
pub(crate) const COUNTER: &str = "count";
const TOKENS: &str = "tokens";

#[test]
fn no_increment_is_lost_beside_redisson() {
    with_peer(|url| count_in_a_process(Family::REDISSON, url), |start| count_together(Family::REDISSON, start));
}

#[test]
fn no_increment_is_lost_beside_redissons_fenced_lock() {
    with_peer(|url| count_in_a_process(Family::FENCED, url), |start| count_together(Family::FENCED, start));
}

/// Beside them a reader in each process looks for numbers that change or are unfinished while it looks.
#[test]
fn no_increment_is_lost_beside_redissons_write_lock_and_readers() {
    with_peer(|url| count_in_a_process(Family::READ_WRITE, url), |start| count_together(Family::READ_WRITE, start));
}

#[test]
fn no_increment_is_lost_beside_redissons_write_lock_and_readers_in_a_sharded_cluster() {
    let family = Family::READ_WRITE_SHARDED;
    with_peer(|url| count_in_a_process(family, url), |start| count_together(family, start));
}

#[test]
fn no_increment_is_lost_beside_redissons_write_lock_and_readers_in_a_plain_cluster() {
    let family = Family::READ_WRITE_PLAIN;
    with_peer(|url| count_in_a_process(family, url), |start| count_together(family, start));
}

#[test]
fn no_increment_is_lost_beside_jedis() {
    with_peer(|url| count_in_a_process(Family::JEDIS, url), |start| count_together(Family::JEDIS, start));
}

#[test]
fn no_increment_is_lost_beside_redisson_in_a_sharded_cluster() {
    with_peer(|url| count_in_a_process(Family::SHARDED, url), |start| count_together(Family::SHARDED, start));
}

#[test]
fn no_increment_is_lost_beside_redisson_in_a_plain_cluster() {
    with_peer(|url| count_in_a_process(Family::PLAIN, url), |start| count_together(Family::PLAIN, start));
}

#[test]
fn no_increment_is_lost_when_a_sharded_cluster_fails_over() {
    with_peer(|url| count_in_a_process(Family::SHARDED, url), |start| count_in_a_failover(Family::SHARDED, start));
}

#[test]
fn no_increment_is_lost_when_a_plain_cluster_fails_over() {
    with_peer(|url| count_in_a_process(Family::PLAIN, url), |start| count_in_a_failover(Family::PLAIN, start));
}

fn count_together(family: Family, start: &dyn Fn(&Server) -> Peer) {
    count("2 + 2 processes count", family, &Servers::start(family), start, |_| {});
}

/// The lock's master gives way to its replica when a tenth is counted: later all may be counted before it does.
fn count_in_a_failover(family: Family, start: &dyn Fn(&Server) -> Peer) {
    let servers = Servers::start_alone();
    let cluster = servers.cluster.as_deref().unwrap();
    let jvms = count("2 + 2 processes count, failover by hand", family, &servers, start, |file| {
        let target = target(family);
        eventually(2 * LONG, "a tenth is counted", || number_in(file).is_some_and(|number| number >= target / 10));
        let replica = cluster.replicas_of(cluster.master_of(COUNTER))[0];
        cluster.fail_over(replica, How::Orderly);
        assert!(number_in(file).is_some_and(|number| number < target), "too late");
    });
    jvms.into_iter().for_each(|mut jvm| jvm.end_after_failover());
}

fn target(family: Family) -> u32 {
    match family.kind {
        Kind::Plain if family.is_in_cluster() => TARGET_IN_A_CLUSTER,
        Kind::Plain => TARGET,
        Kind::Fenced => TARGET_OF_FENCED_LOCKS,
        Kind::Fair if family.is_in_cluster() => TARGET_OF_FAIR_LOCKS_IN_A_CLUSTER,
        Kind::Fair => TARGET_OF_FAIR_LOCKS,
        Kind::ReadWrite if family.is_in_cluster() => TARGET_OF_WRITE_LOCKS_IN_A_CLUSTER,
        Kind::ReadWrite if std::env::var_os("REDLATCH_INTEROP_RECORD").is_some() => TARGET,
        Kind::ReadWrite => TARGET_OF_WRITE_LOCKS,
    }
}

/// How often a thread counted, and how long it waited at most, ms, but for the first time.
#[derive(Clone, Copy, Default)]
struct Share {
    count: u32,
    longest: u64,
}

impl Share {
    fn of(words: &str) -> Self {
        let (count, longest) = words.split_once(' ').unwrap();
        Self { count: count.parse().unwrap(), longest: longest.parse().unwrap() }
    }
}

/// Something is done `meanwhile`, which is given the file. Gives the JVMs, which are done.
pub(crate) fn count(
    case: &str,
    family: Family,
    servers: &Servers,
    start: &dyn Fn(&Server) -> Peer,
    meanwhile: impl FnOnce(&Path),
) -> [Jvm; 2] {
    let target = target(family);
    let file = servers.news.socket().with_file_name("count");
    std::fs::write(&file, "0").unwrap();
    let jvms = [(); 2].map(|()| Jvm::start(family.program, servers, FOR_EVER, ""));
    let gate = family.locks(&servers.url(), FOR_EVER, "");
    gate.lock(COUNTER).unwrap();
    let peers = [start(&servers.news), start(&servers.news)];
    peers.iter().for_each(|_| assert_eq!(hear(&servers.news), "ready"));
    let (began, java, mut looks) = count_in_jvms(family, &jvms, &file, servers, &gate, meanwhile);
    let took = began.elapsed();
    let rust = peers.map(|peer| {
        let told = hear(&servers.news);
        peer.join();
        let (shares, looked) = told.split_once(';').unwrap();
        looks += looked.parse::<u32>().unwrap();
        shares.split(',').map(Share::of).collect()
    });
    assert_eq!(std::fs::read_to_string(&file).unwrap(), target.to_string());
    if family.kind == Kind::Fenced {
        assert_tokens_grow(&file);
    }
    let counted: u32 = java.iter().chain(&rust).flatten().map(|share| share.count).sum();
    let readers = if looks > 0 { format!("; readers looked {looks} times") } else { String::new() };
    let (java, rust) = (shares("JVMs", &java), shares("Rust processes", &rust));
    let figures = format!("{target} in {took:.1?}; {java}; {rust}{readers}");
    assert_eq!(counted, target, "increments were lost: {figures}");
    record(case, family, "all", &figures);
    jvms
}

/// Lets everybody in when everybody waits at the gate, and gives what the threads of each JVM say, and how often its readers looked.
fn count_in_jvms(
    family: Family,
    jvms: &[Jvm; 2],
    file: &Path,
    servers: &Servers,
    gate: &Ours,
    meanwhile: impl FnOnce(&Path),
) -> (Instant, [Vec<Share>; 2], u32) {
    let target = target(family).to_string();
    let count = |jvm: &Jvm, thread: usize| {
        let verb = [family.verbs(), "count"].concat();
        let words = [verb.as_str(), COUNTER, file.to_str().unwrap(), &target];
        Share::of(&jvm.ask(&thread.to_string(), &words).0.unwrap())
    };
    let watch = |jvm: &Jvm| jvm.ask("reader", &["read.watch", COUNTER, file.to_str().unwrap(), &target]).0.unwrap();
    std::thread::scope(|scope| {
        let (count, watch) = (&count, &watch);
        let threads = jvms
            .each_ref()
            .map(|jvm| (0..THREADS).map(|thread| scope.spawn(move || count(jvm, thread))).collect::<Vec<_>>());
        let readers: Vec<_> =
            jvms.iter().filter(|_| family.kind == Kind::ReadWrite).map(|jvm| scope.spawn(move || watch(jvm))).collect();
        let waiting = || match family.kind {
            Kind::Fair => fair::queue(servers, COUNTER).len() == 4 * THREADS,
            _ => servers.subscribers(&family.channel(COUNTER)) >= 4,
        };
        eventually(LONG, "all processes wait", waiting);
        gate.unlock(COUNTER).unwrap();
        let began = Instant::now();
        meanwhile(file);
        let shares = threads.map(|threads| threads.into_iter().map(finish).collect());
        (began, shares, readers.into_iter().map(|reader| finish(reader).parse::<u32>().unwrap()).sum())
    })
}

/// What a Rust process does.
pub(crate) fn count_in_a_process(family: Family, url: &str) {
    let file = PathBuf::from(url.trim_start_matches("unix://")).with_file_name("count");
    let locks = family.locks(&Servers::url_beside(url), FOR_EVER, "");
    tell(url, "ready");
    let (shares, looks): (Vec<_>, u32) = std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(|| count_in_a_thread(&locks, &file, target(family))));
        let looks = if family.kind == Kind::ReadWrite { watch_in_a_thread(&locks, &file, target(family)) } else { 0 };
        let shares = threads.into_iter().map(finish).map(|share| format!("{} {}", share.count, share.longest));
        (shares.collect(), looks)
    });
    tell(url, &format!("{};{looks}", shares.join(",")));
}

/// How often a reader looked at the number, twice each time, until the target was reached.
fn watch_in_a_thread(locks: &Ours, file: &Path, target: u32) -> u32 {
    let readers = ReadWriteLock::new(locks.client()).read().clone();
    let number = || number_in(file).expect("a number that is written has a reader beside it");
    for looks in 1.. {
        let [before, after] = readers.execute_in_lock(COUNTER, || [(); 2].map(|()| (number(), yield_now()).0)).unwrap();
        assert_eq!(before, after, "a writer beside a reader");
        if after >= target {
            return looks;
        }
        sleep(BETWEEN_LOOKS);
    }
    unreachable!("it was not reached")
}

fn count_in_a_thread(locks: &Ours, file: &Path, target: u32) -> Share {
    let mut mine = Share::default();
    loop {
        let asked = Instant::now();
        let waited_and_counted = || (asked.elapsed(), increment(file, target, locks.hold(COUNTER).unwrap().token()));
        let (waited, counted) = locks.execute_in_lock(COUNTER, waited_and_counted).unwrap();
        if mine.count > 0 {
            mine.longest = mine.longest.max(waited.as_millis() as u64);
        }
        if !counted {
            return mine;
        }
        mine.count += 1;
    }
}

/// False when the target was reached. Tokens go to a file beside that one.
fn increment(file: &Path, target: u32, token: Option<u64>) -> bool {
    let number: u32 = std::fs::read_to_string(file).unwrap().parse().unwrap();
    if number < target {
        std::fs::write(file, (number + 1).to_string()).unwrap();
        if let Some(token) = token {
            let mut tokens = OpenOptions::new().create(true).append(true).open(file.with_file_name(TOKENS)).unwrap();
            tokens.write_all(format!("{token}\n").as_bytes()).unwrap();
        }
    }
    number < target
}

/// Whoever counted wrote down its token while it had the lock.
fn assert_tokens_grow(file: &Path) {
    let tokens = std::fs::read_to_string(file.with_file_name(TOKENS)).unwrap();
    let tokens: Vec<u64> = tokens.lines().map(|token| token.parse().unwrap()).collect();
    let back = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!((tokens.len(), back), (target(Family::FENCED) as usize, None), "tokens in the order of holds");
}

/// While somebody writes it there may be none.
fn number_in(file: &Path) -> Option<u32> {
    std::fs::read_to_string(file).unwrap().parse().ok()
}

/// What each process of a kind got, and its threads at the ends.
fn shares(who: &str, processes: &[Vec<Share>; 2]) -> String {
    let sum = |threads: &Vec<Share>| threads.iter().map(|share| share.count).sum::<u32>().to_string();
    let sums: Vec<_> = processes.iter().map(sum).collect();
    let threads = || processes.iter().flatten();
    let counts = || threads().map(|share| share.count);
    let (least, most) = (counts().min().unwrap(), counts().max().unwrap());
    let longest = threads().map(|share| share.longest).max().unwrap();
    format!("{who} {} (a thread {least} to {most}, longest wait {longest} ms)", sums.join(" + "))
}
