//! Four processes on a lock of five masters, of which a minority is killed, stopped and started again at random.
//!
//! Two kinds of nodes, for the two ways to restart one safely: three write each change to disk and are started again
//! at any time; two forget everything, and are started again when they were down for longer than the longest lease.
//! (An empty node that comes back sooner grants what it had granted: that Redlock does not survive is known, and
//! documented at `QuorumLock`.)
//!
//! Each process notes from when until when it believed that it held the lock, on the machine's one monotonic clock;
//! two beliefs that overlap are the failure. A busy machine gets through few holds, so the run goes on until there are
//! enough. `REDLATCH_CHAOS_SECONDS` and `REDLATCH_CHAOS_SEED` make a longer or
//! another run.

use crate::process::{Peer, hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LONG, eventually, ms};
use redlatch::{HoldState, QuorumLock, RedLockExt};
use std::time::{Duration, Instant};

const PROCESSES: usize = 4;

/// What each process asks for, and the watchdog's lease: nothing is held for longer without news.
const LEASE: Duration = Duration::from_millis(1_000);

/// A node that forgets is down for so long: whatever it may have granted is over.
const FORGOTTEN: Duration = Duration::from_millis(1_200);

/// Numbers that depend on the seed alone (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Nanoseconds on a clock that all processes of the machine share.
fn now() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// One belief: from when until when. Both are read before the hold said that it is valid.
type Belief = (i64, i64);

/// Works under the lock until the run is over, and hands in its beliefs.
fn take_part(url: &str) {
    let mut control = redis::Client::open(url).unwrap().get_connection().unwrap();
    let urls: Vec<String> = redis::cmd("LRANGE").arg("nodes").arg(0).arg(-1).query(&mut control).unwrap();
    let builder = QuorumLock::builder(urls).watchdog_timeout(LEASE).poll_cap(LEASE);
    let locks = builder.outage_budget(Duration::from_secs(3)).build().unwrap();
    tell(url, "ready");
    let mut random = Random(std::process::id().into());
    let (mut beliefs, mut lost, mut failed, mut longest) = (Vec::new(), 0, 0, Duration::ZERO);
    while !redis::cmd("EXISTS").arg("over").query::<bool>(&mut control).unwrap() {
        let start = Instant::now();
        let request = locks.request("n").wait(Duration::from_secs(5));
        let request = if random.below(2) == 0 { request.lease(LEASE) } else { request };
        match request.guard() {
            Ok(Some(guard)) => {
                longest = longest.max(start.elapsed());
                if let Some(belief) = believe(&guard, ms(random.below(30))) {
                    beliefs.push(belief);
                    redis::cmd("INCR").arg("held").exec(&mut control).unwrap();
                }
                lost += usize::from(guard.state() == HoldState::Lost);
                let _ = guard.unlock();
            }
            Ok(None) => failed += 1,
            Err(error) => {
                failed += 1;
                println!("{error}");
            }
        }
    }
    println!("{} holds, {lost} lost, {failed} waits in vain or failed, longest wait {longest:?}", beliefs.len());
    let mut pipe = redis::pipe();
    for (from, to) in beliefs {
        pipe.rpush("beliefs", format!("{from} {to}")).ignore();
    }
    pipe.exec(&mut control).unwrap();
    tell(url, "done");
}

/// Works for a while, and goes on to believe as long as the hold is valid.
fn believe(guard: &redlatch::LockGuard<'_, QuorumLock>, work: Duration) -> Option<Belief> {
    let (start, mut belief) = (Instant::now(), None);
    loop {
        let at = now();
        if !guard.is_valid() {
            return belief;
        }
        belief = Some((belief.map_or(at, |(from, _)| from), at));
        if start.elapsed() >= work {
            return belief;
        }
        std::thread::sleep(ms(1));
    }
}

/// How many beliefs begin before an earlier one has ended.
fn overlaps(mut beliefs: Vec<Belief>) -> usize {
    beliefs.sort_unstable();
    let (mut count, mut until) = (0, i64::MIN);
    for (from, to) in beliefs {
        count += usize::from(from <= until);
        until = until.max(to);
    }
    count
}

#[test]
fn overlaps_are_seen() {
    assert_eq!(overlaps(vec![(5, 9), (1, 4), (10, 10)]), 0);
    assert_eq!(overlaps(vec![(1, 4), (4, 5), (2, 3), (6, 7)]), 2);
}

/// What is wrong with a node, and until when.
enum Trouble {
    Killed(Instant),
    Stopped(Instant),
}

/// Lets at most two of the five be in trouble at any time.
struct Chaos {
    random: Random,
    nodes: Vec<Server>,
    troubles: Vec<Option<Trouble>>,
    done: [usize; 2],
}

impl Chaos {
    fn step(&mut self) {
        for node in 0..self.nodes.len() {
            self.mend(node, Instant::now());
        }
        let node = self.random.below(5) as usize;
        if self.troubles[node].is_none() && self.troubles.iter().flatten().count() < 2 {
            self.break_one(node);
        }
        std::thread::sleep(ms(20 + self.random.below(200)));
    }

    fn break_one(&mut self, node: usize) {
        let short = ms(50 + self.random.below(1_000));
        let kill = self.random.below(2) == 0;
        self.done[usize::from(kill)] += 1;
        self.troubles[node] = Some(if kill {
            self.nodes[node].kill();
            let forgets = node >= 3;
            Trouble::Killed(Instant::now() + if forgets { FORGOTTEN } else { short })
        } else {
            self.nodes[node].freeze();
            Trouble::Stopped(Instant::now() + short)
        });
    }

    /// What is due.
    fn mend(&mut self, node: usize, now: Instant) {
        match self.troubles[node] {
            Some(Trouble::Killed(until)) if until <= now => self.nodes[node].restart(),
            Some(Trouble::Stopped(until)) if until <= now => self.nodes[node].thaw(),
            _ => return,
        }
        self.troubles[node] = None;
    }

    fn mend_all(&mut self) {
        for node in 0..self.nodes.len() {
            while self.troubles[node].is_some() {
                self.mend(node, Instant::now());
                std::thread::sleep(ms(10));
            }
        }
    }
}

#[test]
fn nobody_overlaps_while_a_minority_fails_at_random() {
    let main = |start: &dyn Fn(&Server) -> Peer| {
        let (seconds, seed) = (setting("REDLATCH_CHAOS_SECONDS", 10), setting("REDLATCH_CHAOS_SEED", 1));
        let with_data = std::iter::repeat_with(Server::start_with_data).take(3);
        let nodes: Vec<_> = with_data.chain(std::iter::repeat_with(Server::start).take(2)).collect();
        let control = Server::start();
        for node in &nodes {
            let _: i64 = control.ask(&["RPUSH", "nodes", &node.url()]);
        }
        let peers: Vec<_> = std::iter::repeat_with(|| start(&control)).take(PROCESSES).collect();
        peers.iter().for_each(|_| assert_eq!(hear(&control), "ready"));
        let mut chaos =
            Chaos { random: Random(seed), troubles: nodes.iter().map(|_| None).collect(), nodes, done: [0; 2] };
        let (begin, least) = (Instant::now(), 10 * seconds);
        let goes_on = |control: &Server| {
            let held = || control.ask::<Option<u64>>(&["GET", "held"]).unwrap_or_default();
            begin.elapsed() < Duration::from_secs(seconds) || begin.elapsed() < 6 * LONG && held() <= least
        };
        while goes_on(&control) {
            chaos.step();
        }
        chaos.mend_all();
        let _: String = control.ask(&["SET", "over", "1"]);
        peers.iter().for_each(|_| assert_eq!(hear(&control), "done"));
        peers.into_iter().for_each(|peer| peer.join());
        let beliefs: Vec<String> = control.ask(&["LRANGE", "beliefs", "0", "-1"]);
        control.clear();
        let parse =
            |belief: &String| belief.split_once(' ').map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
        let beliefs: Vec<Belief> = beliefs.iter().filter_map(parse).collect();
        let [stops, kills] = chaos.done;
        println!("seed {seed}, {seconds} s: {} holds, {stops} stops, {kills} kills", beliefs.len());
        assert!(beliefs.len() as u64 > least, "too few holds to say anything: {}", beliefs.len());
        assert_eq!(overlaps(beliefs), 0, "two processes held the lock at the same time");
        let is_empty = |node: &Server| node.ask::<i64>(&["DBSIZE"]) == 0;
        eventually(LONG, "what was not released has run out", || chaos.nodes.iter().all(is_empty));
    };
    let part = |url: &str| take_part(url);
    // Not the function itself: by the type's name a peer knows which test it is.
    with_peer(part, main);
}
