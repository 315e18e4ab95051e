//! Examples whose point is how their processes end: each is built and started as its user would.

use crate::harness::cluster::{Cluster, slot_of};
use crate::harness::sentinel::{Group, PATIENCE};
use crate::process::built;
use crate::server::{Server, Signal, signal};
use crate::threads::{LATE, LONG, Mark, SOON, Took, eventually, ms};
use crossbeam_channel::{Receiver, unbounded};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Of the example `shutdown`.
const STEP: Duration = Duration::from_millis(200);

/// Of the example `leader`.
const LEASE: Duration = Duration::from_secs(3);

const LOCK: &str = "example:shutdown";
const OFFICE: &str = "example:leader";
const QUEUE: &str = "redlatch_queue:{example:leader}";

/// A process of an example. Killed when dropped.
struct Example {
    child: Child,
    lines: Receiver<String>,
}

impl Example {
    fn start(program: &str, name: &str, url: &str) -> Self {
        let mut command = Command::new(program);
        command.arg(name).env("REDLATCH_URL", url).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (tell, lines) = unbounded();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { child, lines }
    }

    fn signal(&self, which: Signal) {
        signal(which, self.child.id()).unwrap();
    }

    /// Waits until it says something that ends so; what it said until then.
    #[track_caller]
    fn hear(&self, what: &str) -> Vec<String> {
        self.hear_for(LONG, what)
    }

    #[track_caller]
    fn hear_for(&self, span: Duration, what: &str) -> Vec<String> {
        let (mut heard, end) = (Vec::new(), Instant::now() + span);
        while !heard.last().is_some_and(|line: &String| line.ends_with(what)) {
            heard.push(self.lines.recv_deadline(end).unwrap_or_else(|_| panic!("no {what:?} after {heard:?}")));
        }
        heard
    }

    /// How it ended, and how long that took from now.
    fn end(mut self) -> (ExitStatus, Took) {
        let start = Mark::now();
        (self.child.wait().unwrap(), start.elapsed())
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn shutdown_leaves_nothing_behind_on_ctrl_c() {
    let server = Server::start();
    let program = built("--example", "shutdown");
    let [one, other] = ["one", "other"].map(|name| Example::start(&program, name, &server.url()));
    one.hear("begins a step");
    other.hear("begins a step");
    for (process, which) in [(one, Signal::INT), (other, Signal::TERM)] {
        process.signal(which);
        let said = process.hear("shut down");
        let (status, took) = process.end();
        assert!(status.success() && took <= STEP + SOON, "{status} after {took:?}");
        let (begun, done) = (count(&said, "begins a step"), count(&said, "has done it"));
        assert_eq!(done, begun + 1, "each step is finished, also the first, which was heard before: {said:?}");
    }
    assert_eq!(server.pttl(LOCK), -2, "the lock is free");
}

fn count(said: &[String], what: &str) -> usize {
    said.iter().filter(|line| line.ends_with(what)).count()
}

#[test]
fn shutdown_ends_at_once_on_the_second_ctrl_c() {
    let server = Server::start();
    let process = Example::start(&built("--example", "shutdown"), "one", &server.url());
    process.hear("begins a step");
    // Now it cannot unlock, and waits for its worker.
    server.freeze();
    process.signal(Signal::INT);
    process.hear("to end at once");
    process.signal(Signal::INT);
    let (status, took) = process.end();
    server.thaw();
    assert!(status.code() == Some(130) && took <= SOON, "{status} after {took:?}");
    server.clear();
}

/// What one of the leaders said: when, who, and what.
type Said = (u64, String, String);

fn parse(line: &str) -> Said {
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().unwrap().to_owned();
    (word().parse().unwrap(), word(), word())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// Three processes that stand for election, and what they said so far.
struct Election {
    running: Vec<(String, Example)>,
    said: Vec<Said>,
}

impl Election {
    fn start(server: &Server) -> Self {
        let program = built("--example", "leader");
        let start = |name: &str| (name.to_owned(), Example::start(&program, name, &server.url()));
        Self { running: ["a", "b", "c"].map(start).into(), said: Vec::new() }
    }

    fn process(&self, name: &str) -> &Example {
        &self.running.iter().find(|(known, _)| known == name).unwrap().1
    }

    fn take(&mut self, name: &str) -> Example {
        let place = self.running.iter().position(|(known, _)| known == name).unwrap();
        self.running.remove(place).1
    }

    fn listen(&mut self, span: Duration) {
        std::thread::sleep(span);
        let said = self.running.iter().flat_map(|(_, process)| process.lines.try_iter());
        self.said.extend(said.map(|line| parse(&line)));
    }

    /// Waits until somebody leads who began after this time, and has done some steps; who, and when the first was.
    fn leader_since(&mut self, since: u64) -> (String, u64) {
        let end = Instant::now() + LONG;
        loop {
            self.listen(ms(10));
            let steps = self.said.iter().filter(|(at, _, what)| *at > since && what == "step");
            if let Some((_, name, _)) = steps.clone().nth(5) {
                let first = steps.map(|step| step.0).min().unwrap();
                return (name.clone(), first);
            }
            assert!(Instant::now() < end, "nobody leads: {:?}", self.said);
        }
    }

    /// Who led, one after the other: whoever does a step between two steps of another is there twice.
    fn terms(&self) -> Vec<&str> {
        let mut steps: Vec<_> = self.said.iter().filter(|said| said.2 == "step").collect();
        steps.sort();
        let mut terms: Vec<_> = steps.iter().map(|said| said.1.as_str()).collect();
        terms.dedup();
        terms
    }

    /// All that are left step down, and leave nothing.
    fn finish(&mut self, server: &Server) {
        self.running.iter().for_each(|(_, process)| process.signal(Signal::INT));
        for (name, process) in std::mem::take(&mut self.running) {
            let (status, took) = process.end();
            assert!(status.success() && took <= SOON, "{name}: {status} after {took:?}");
        }
        assert_eq!(server.pttl(OFFICE), -2, "the office is free");
        // One that was told to end while the server was late may have left its place in the queue to its TTL.
        eventually(3 * LONG, "nobody stands in the queue", || server.pttl(QUEUE) == -2);
    }
}

#[test]
fn another_leads_within_the_lease_when_the_leader_is_killed() {
    let server = Server::start();
    let mut election = Election::start(&server);
    let (mut leader, _) = election.leader_since(0);
    let mut led = vec![leader.clone()];
    for _ in 0..2 {
        // Long enough that it was renewed.
        election.listen(LEASE / 2);
        let mut dead = election.take(&leader);
        dead.child.kill().unwrap();
        let killed = now();
        dead.child.wait().unwrap();
        election.said.extend(dead.lines.iter().map(|line| parse(&line)));
        let (next, first) = election.leader_since(killed);
        let took = Duration::from_micros(first - killed);
        println!("{next} leads {took:?} after {leader} was killed");
        assert!(took <= LEASE + LATE + SOON, "{next} leads {took:?} after {leader} was killed");
        led.push(next.clone());
        leader = next;
    }
    assert_eq!(election.terms(), led, "{:?}", election.said);
    election.finish(&server);
}

#[test]
fn a_leader_that_was_paused_beyond_its_lease_gives_up() {
    let server = Server::start();
    let mut election = Election::start(&server);
    let (paused, _) = election.leader_since(0);
    election.process(&paused).signal(Signal::STOP);
    let (next, first) = election.leader_since(now());
    election.process(&paused).signal(Signal::CONT);
    let heard = election.process(&paused).hear("lost the office");
    election.said.extend(heard.iter().map(|line| parse(line)));
    let stepped_down = now();
    election.process(&next).signal(Signal::INT);
    let (third, early) = election.leader_since(stepped_down);
    assert!(first < stepped_down && Duration::from_micros(early - stepped_down) <= SOON, "{:?}", election.said);
    election.listen(ms(100));
    assert_eq!(election.terms(), [&paused, &next, &third], "{:?}", election.said);
    election.finish(&server);
}

/// All that is said, until it ends well.
fn said_by(mut process: Example, span: Duration) -> Vec<Said> {
    let end = Instant::now() + span;
    let said = std::iter::from_fn(|| process.lines.recv_deadline(end).ok()).map(|line| parse(&line)).collect();
    let status = process.child.wait().unwrap();
    assert!(status.success(), "{status} after {said:?}");
    said
}

/// The most jobs of a customer that ran at once, and how many ended.
fn jobs_of(customer: &str, said: &[Said]) -> (isize, usize) {
    let of = |what: &str| format!("{what} {customer}");
    let change = |said: &Said| if said.2 == of("begins") { 1 } else { -isize::from(said.2 == of("ends")) };
    let mut changes: Vec<_> = said.iter().map(|said| (said.0, change(said))).collect();
    // What ends in the same microsecond comes first.
    changes.sort_unstable();
    let running = changes.iter().scan(0, |running, (_, change)| {
        *running += change;
        Some(*running)
    });
    (running.max().unwrap(), said.iter().filter(|said| said.2 == of("ends")).count())
}

/// Of the example `workers`.
const CUSTOMERS: [&str; 2] = ["ann", "bob"];

#[test]
fn two_jobs_of_a_customer_run_at_once_however_many_processes_work() {
    let server = Server::start();
    let program = built("--example", "workers");
    let processes = ["a", "b", "c"].map(|name| Example::start(&program, name, &server.url()));
    let said: Vec<_> = processes.into_iter().flat_map(|process| said_by(process, 2 * LONG)).collect();
    assert_eq!(CUSTOMERS.map(|customer| jobs_of(customer, &said)), [(2, 18), (2, 18)], "{said:?}");
}

#[test]
fn permits_of_a_killed_worker_come_back_within_the_lease() {
    let server = Server::start();
    let program = built("--example", "workers");
    let mut dead = Example::start(&program, "a", &server.url());
    // It has all permits of both.
    let mut said: Vec<_> = (0..4).map(|_| parse(&dead.lines.recv_timeout(LONG).unwrap())).collect();
    dead.child.kill().unwrap();
    let killed = now();
    dead.child.wait().unwrap();
    said.extend(dead.lines.iter().map(|line| parse(&line)));
    let lost = said.iter().filter(|said| said.2.starts_with("begins")).count();
    let ended = said.iter().filter(|said| said.2.starts_with("ends")).count();
    assert!(lost > ended, "{said:?}");
    let others = said_by(Example::start(&program, "b", &server.url()), 2 * LONG);
    let first = others.iter().map(|said| said.0).min().unwrap();
    assert!(Duration::from_micros(first - killed) <= LEASE + LATE + SOON, "{first} after {killed}: {others:?}");
    assert_eq!(CUSTOMERS.map(|customer| jobs_of(customer, &others)), [(2, 6), (2, 6)], "{others:?}");
}

/// Of the example `barrier`.
const PHASES: u32 = 4;
const PHASE: Duration = Duration::from_secs(10);

#[test]
fn nobody_begins_a_phase_before_all_have_done_the_one_before() {
    let server = Server::start();
    let program = built("--example", "barrier");
    let processes = ["a", "b", "c"].map(|name| Example::start(&program, name, &server.url()));
    let said: Vec<_> = processes.into_iter().flat_map(|process| said_by(process, 2 * LONG)).collect();
    assert_eq!(said.len(), 3 * 2 * PHASES as usize, "{said:?}");
    let times = |what: String| said.iter().filter(move |said| said.2 == what).map(|said| said.0);
    for phase in 2..=PHASES {
        let (before, begun) = (times(format!("ends {}", phase - 1)), times(format!("begins {phase}")));
        assert!(before.max().unwrap() <= begun.min().unwrap(), "phase {phase}: {said:?}");
    }
}

#[test]
fn a_barrier_tells_the_others_that_one_died() {
    let server = Server::start();
    let program = built("--example", "barrier");
    let [dead, one, other] = ["a", "b", "c"].map(|name| Example::start(&program, name, &server.url()));
    // It does its part of no other phase.
    dead.hear("begins 2");
    drop(dead);
    for process in [one, other] {
        let end = Instant::now() + PHASE + LONG;
        let said: Vec<_> = std::iter::from_fn(|| process.lines.recv_deadline(end).ok()).collect();
        let (status, _) = process.end();
        assert_eq!(status.code(), Some(1), "{said:?}");
    }
}

#[test]
fn readers_are_together_and_a_writer_reads_on() {
    let server = Server::start();
    let process = Example::start(&built("--example", "read_write"), "", &server.url());
    let expected = [
        "four read together",
        "one writes: may the other read? false Write? false",
        "one reads on: may the other read? true Write? false",
    ];
    assert_eq!(process.hear(expected[2]), expected);
    let said = process.hear("nobody reads: may the other write? true");
    assert!(said[0].contains("as a read lock"), "{said:?}");
    let (status, took) = process.end();
    assert!(status.success() && took <= SOON, "{status} after {took:?}");
}

#[test]
fn a_hold_and_a_wait_go_over_to_the_next_master() {
    let mut group = Group::start();
    let process = Example::start(&built("--example", "sentinel"), "", &group.url());
    process.hear("holds example:sentinel:kept");
    group.replicated(0);
    group.nodes[0].kill();
    process.hear_for(PATIENCE, "the master was replaced");
    process.hear("example:sentinel:kept is Held");
    let (status, took) = process.end();
    assert!(status.success() && took <= SOON, "{status} after {took:?}");
}

#[test]
fn counters_lose_nothing_while_a_slot_moves_and_a_master_dies() {
    let mut cluster = Cluster::start();
    let process = Example::start(&built("--example", "cluster"), "8", &cluster.url());
    process.hear("ms");
    let [moved, kept] = ["example:cluster:0", "example:cluster:1"];
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(moved)).unwrap();
    cluster.move_slot(slot_of(moved), to);
    let dead = cluster.master_of(kept);
    cluster.nodes[dead].kill();
    cluster.replaced(dead);
    process.hear_for(PATIENCE, "increments, 0 of them lost");
    let (status, took) = process.end();
    assert!(status.success() && took <= SOON, "{status} after {took:?}");
}
