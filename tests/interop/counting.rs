//! Two JVMs and two Rust processes, each with several threads, count in one file under one lock.

use crate::java::Jvm;
use crate::process::{Peer, hear, tell, with_peer};
use crate::server::Server;
use crate::setting::{FOR_EVER, Family, record};
use crate::threads::{LONG, eventually, finish};
use redlatch::{RedLock, RedLockExt, ReentrantLock};
use std::path::{Path, PathBuf};
use std::time::Instant;

const TARGET: u32 = 20_000;
const THREADS: usize = 4;

#[test]
fn no_increment_is_lost_beside_redisson() {
    with_peer(|url| count_in_a_process(Family::Redisson, url), |start| count(Family::Redisson, start));
}

#[test]
fn no_increment_is_lost_beside_jedis() {
    with_peer(|url| count_in_a_process(Family::Jedis, url), |start| count(Family::Jedis, start));
}

fn count(family: Family, start: &dyn Fn(&Server) -> Peer) {
    let server = Server::start_on_tcp();
    let file = server.socket().with_file_name("count");
    std::fs::write(&file, "0").unwrap();
    let jvms = [(); 2].map(|()| Jvm::start(family, &server, FOR_EVER, ""));
    let gate = family.locks(&server.url(), FOR_EVER, "");
    gate.lock("count").unwrap();
    let peers = [start(&server), start(&server)];
    peers.iter().for_each(|_| assert_eq!(hear(&server), "ready"));
    let (began, java) = count_in_jvms(family, &jvms, &file, &server, &gate);
    let took = began.elapsed();
    let rust = peers.map(|peer| {
        let counts = hear(&server);
        peer.join();
        counts.split(' ').map(|count| count.parse().unwrap()).collect()
    });
    assert_eq!(std::fs::read_to_string(&file).unwrap(), TARGET.to_string());
    let counted: u32 = java.iter().chain(&rust).flatten().sum();
    let figures = format!("{TARGET} in {took:.1?}; {}; {}", shares("JVMs", &java), shares("Rust processes", &rust));
    assert_eq!(counted, TARGET, "increments were lost: {figures}");
    record("2 + 2 processes count", family, "all", &figures);
}

/// Lets everybody in when everybody waits at the gate, and gives what the threads of each JVM counted.
fn count_in_jvms(
    family: Family,
    jvms: &[Jvm; 2],
    file: &Path,
    server: &Server,
    gate: &ReentrantLock,
) -> (Instant, [Vec<u32>; 2]) {
    let target = TARGET.to_string();
    let count = |jvm: &Jvm, thread: usize| {
        let words = ["count", "count", file.to_str().unwrap(), &target];
        jvm.ask(&thread.to_string(), &words).0.unwrap().parse().unwrap()
    };
    std::thread::scope(|scope| {
        let count = &count;
        let threads = jvms
            .each_ref()
            .map(|jvm| (0..THREADS).map(|thread| scope.spawn(move || count(jvm, thread))).collect::<Vec<_>>());
        let waiting = || server.subscribers(&family.channel("count"));
        eventually(LONG, "all processes wait", || waiting() >= 4);
        gate.unlock("count").unwrap();
        let began = Instant::now();
        (began, threads.map(|threads| threads.into_iter().map(finish).collect()))
    })
}

/// What a Rust process does.
fn count_in_a_process(family: Family, url: &str) {
    let file = PathBuf::from(url.trim_start_matches("unix://")).with_file_name("count");
    let locks = family.locks(url, FOR_EVER, "");
    tell(url, "ready");
    let counts: Vec<_> = std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(|| count_in_a_thread(&locks, &file)));
        threads.into_iter().map(|thread| finish(thread).to_string()).collect()
    });
    tell(url, &counts.join(" "));
}

fn count_in_a_thread(locks: &ReentrantLock, file: &Path) -> u32 {
    let mut mine = 0;
    while locks.execute_in_lock("count", || increment(file)).unwrap() {
        mine += 1;
    }
    mine
}

/// False when the target was reached.
fn increment(file: &Path) -> bool {
    let number: u32 = std::fs::read_to_string(file).unwrap().parse().unwrap();
    if number < TARGET {
        std::fs::write(file, (number + 1).to_string()).unwrap();
    }
    number < TARGET
}

/// What each process of a kind got, and its threads at the ends.
fn shares(who: &str, processes: &[Vec<u32>; 2]) -> String {
    let sums: Vec<_> = processes.iter().map(|threads| threads.iter().sum::<u32>().to_string()).collect();
    let threads = || processes.iter().flatten();
    let (least, most) = (threads().min().unwrap(), threads().max().unwrap());
    format!("{who} {} (a thread {least} to {most})", sums.join(" + "))
}
