//! A holder of a lock is paused for longer than its lease, another one takes the lock and writes, and then the first goes on and writes
//! what it has had in mind: with what refuses it, and without.
//!
//! Each holder is a process, the pause is SIGSTOP, the database is SQLite and the server a Redis of its own. It fails unless each late
//! write is refused where something can refuse it, and does its damage where nothing can. `--guards-taken-out` writes without the guards
//! where they are expected: then it has to fail.

mod holder;
mod order;

use harness::server::{Server, Signal, signal};
use holder::SAYS_HELD;
use order::{Order, Way};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

const ROUNDS: u32 = 6;

/// Of those that have to fail.
const ROUNDS_WITHOUT: u32 = 1;

/// A process that holds the lock, and writes when it is told to.
struct Holder {
    child: Child,
    tell: ChildStdin,
}

impl Holder {
    /// Comes back when it holds the lock.
    fn start(order: &Order, way: Way, state: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args(order.words()).args([way.name(), state]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let tell = child.stdin.take().expect("a pipe");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut said).expect("it says something");
        assert_eq!(said.trim_end(), SAYS_HELD);
        Self { child, tell }
    }

    fn signal(&self, which: Signal) {
        signal(which, self.child.id()).unwrap();
    }

    fn write(mut self) {
        self.tell.write_all(b"\n").expect("it listens");
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the write of a holder that was paused came through after the next one's.
fn is_damaged(order: &Order, written: Way) -> bool {
    let late = Holder::start(order, written, "late");
    late.signal(Signal::STOP);
    Holder::start(order, written, "next").write();
    assert_eq!(order.state(written), "next");
    late.signal(Signal::CONT);
    late.write();
    order.state(written) == "late"
}

/// Whether each round ended as it has to.
fn show(server: &Server, way: Way, taken_out: bool) -> bool {
    let (written, rounds) = if taken_out { (way.without(), ROUNDS_WITHOUT) } else { (way, ROUNDS) };
    let damaged = |round| u32::from(is_damaged(&Order::make(&server.url(), round), written));
    let damaged: u32 = (0..rounds).map(damaged).sum();
    match way.refuses() {
        true => println!("{}: refused {} of {rounds}", way.name(), rounds - damaged),
        false => println!("{}: damage {damaged} of {rounds}", way.name()),
    }
    damaged == if way.refuses() { 0 } else { rounds }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let taken_out = words.iter().any(|word| word == "--guards-taken-out");
    if !taken_out && !words.is_empty() {
        holder::run(&words);
        return ExitCode::SUCCESS;
    }
    let server = Server::start();
    let as_expected = Way::ALL.map(|way| show(&server, way, taken_out));
    server.clear();
    if as_expected.iter().all(|as_expected| *as_expected) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
