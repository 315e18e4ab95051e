//! Who waits, by name: what `status`, `top` and `deadlocks` learn from the clients themselves.

use crate::terminal::Terminal;
use crate::tool::{Said, says, starts, tool};
use harness::process::{hear, tell, with_peer};
use harness::server::{Server, Signal, signal};
use harness::threads::{LONG, eventually};
use redlatch::{CancelToken, Client, Error, ReadWriteLock, RedLock, RedLockExt, ReentrantLock, Terms};
use serde_json::Value;
use std::process::Child;
use std::thread;
use std::time::Duration;

/// Ends a wait, also in a test that fails.
struct CancelsAtEnd<'a>(&'a CancelToken);

impl Drop for CancelsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Ends commands, also in a test that fails.
struct KillsAtEnd(Vec<Child>);

impl Drop for KillsAtEnd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            signal(Signal::TERM, child.id()).unwrap();
            let _ = child.wait();
        }
    }
}

fn json(said: &Said) -> Vec<Value> {
    said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The threads that wait for a lock, as `status` names them.
fn waits(server: &Server, name: &str) -> Vec<Value> {
    let said = says(server, &["status", "--json", name]);
    json(&said)[0]["waits"].as_array().unwrap_or_else(|| panic!("{said:?}")).clone()
}

/// The peer holds `b` and waits for `a`. This process holds `a` and comes to wait for `b` when the peer waits.
#[test]
fn deadlocks_finds_a_circle_of_two_processes() {
    let peer = |url: &str| {
        let locks = ReentrantLock::new(&Client::builder(url).app_name("peer").build().unwrap());
        let _guard = locks.guard("b").unwrap();
        tell(url, "b is held");
        assert!(locks.request("a").wait(LONG).guard().unwrap().is_some());
    };
    with_peer(peer, |start| {
        let server = Server::start();
        let locks = ReentrantLock::new(&server.builder().app_name("main").build().unwrap());
        let guard = locks.guard("a").unwrap();
        let peer = start(&server);
        assert_eq!(hear(&server), "b is held");
        eventually(LONG, "the peer waits", || waits(&server, "a").len() == 1);
        assert_eq!(no_circle(&server), [0, 0], "a wait is no circle");
        let token = CancelToken::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _end = CancelsAtEnd(&token);
                eventually(LONG, "the circle", || says(&server, &["deadlocks"]).code == Some(1));
                is_told(&server);
            });
            let ended = locks.acquire("b", &Terms::new().wait(LONG).cancelled_by(&token));
            assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
        });
        guard.unlock().unwrap();
        peer.join();
        assert_eq!(no_circle(&server), [0, 0], "it is over");
    });
}

/// The exit codes, once the words were checked.
fn no_circle(server: &Server) -> [i32; 2] {
    let (people, programs) = (says(server, &["deadlocks"]), says(server, &["deadlocks", "--json"]));
    assert_eq!([&*people.out, &*programs.out, &*people.err, &*programs.err], ["no circles\n", "", "", ""]);
    [people, programs].map(|said| said.code.unwrap())
}

/// This process began to wait last.
fn is_told(server: &Server) {
    let people = says(server, &["deadlocks"]);
    let lines: Vec<_> = people.out.lines().collect();
    assert_eq!((people.code, lines.len(), lines[0]), (Some(1), 4, "a circle of 2"), "{people:?}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let [last, first] = [words(lines[2]), words(lines[3])];
    assert_eq!([&last[0], &last[3], &last[4]], [&format!("main@{}", ours()), "a", "b"], "{people:?}");
    assert!(first[0].starts_with("peer@") && first[2].contains("two_processes"), "{people:?}");
    assert_eq!([&first[3], &first[4]], ["b", "a"], "{people:?}");
    let programs = says(server, &["deadlocks", "--json"]);
    let circles = json(&programs);
    let [last, first] = [0, 1].map(|at| &circles[0]["members"][at]);
    assert_eq!((programs.code, circles.len(), &last["process"]["pid"]), (Some(1), 1, &std::process::id().into()));
    assert_eq!([&last["holds"], &last["waits_for"], &first["holds"], &first["waits_for"]], ["a", "b", "b", "a"]);
    assert!(last["began_at_ms"].as_u64() >= first["began_at_ms"].as_u64() && first["process"]["app"] == "peer");
    let names = last["thread_name"].as_str().unwrap();
    assert!(names.contains("two_processes") && last["thread"].is_u64() && last["client"].is_string(), "{programs:?}");
}

/// The host and the process id of this process.
fn ours() -> String {
    format!("{}:{}", rustix::system::uname().nodename().to_str().unwrap(), std::process::id())
}

#[test]
fn status_names_who_waits_and_those_who_came_first_first() {
    let server = Server::start();
    let mut runs = KillsAtEnd(vec![starts(&server, &["run", "n", "--", "sleep", "60"])]);
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    for (at, wait) in [&["--wait", "1h"][..], &[]].into_iter().enumerate() {
        runs.0.push(starts(&server, &[&["run", "n"][..], wait, &["--", "true"]].concat()));
        eventually(LONG, "it waits", || waits(&server, "n").len() == at + 1);
    }
    let [first, second] = [1, 2].map(|at| runs.0[at].id());
    let told = waits(&server, "n");
    let each: Vec<_> = told.iter().map(|wait| (&wait["process"]["pid"], &wait["thread_name"])).collect();
    let main = Value::from("main");
    assert_eq!(each, [(&first.into(), &main), (&second.into(), &main)]);
    assert!(told[0]["ends_in_ms"].as_u64().is_some_and(|left| (3_500_000..=3_600_000).contains(&left)), "{told:?}");
    assert!(told[1]["ends_in_ms"].is_null() && told[0]["process"]["app"] == "run/true", "{told:?}");
    assert!(told[0]["access"] == "alone" && told[0]["began_at_ms"].as_u64() < told[1]["began_at_ms"].as_u64());
    let said = says(&server, &["status", "n", "free"]);
    let lines: Vec<_> = said.out.lines().filter(|line| line.starts_with("  waits    run/true@")).collect();
    assert!(lines.len() == 2 && said.err.is_empty() && said.out.contains("waiting  2 processes\n"), "{said:?}");
    assert!(lines[0].contains(&format!(":{first}, thread 1 (main), began ")) && lines[0].contains(", ends in 59m"));
    assert!(lines[1].contains(&format!(":{second}, thread 1 (main)")) && lines[1].ends_with("ago, without an end"));
}

/// It hangs, or is of an earlier version: it may wait for anything. A `top` beside it waits for nothing, and is not named.
#[test]
fn a_process_that_does_not_answer_is_named() {
    let server = Server::start();
    let mut runs = KillsAtEnd(vec![starts(&server, &["run", "n", "--", "sleep", "60"])]);
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    runs.0.push(starts(&server, &["run", "n", "--", "true"]));
    eventually(LONG, "it waits", || waits(&server, "n").len() == 1);
    let mut terminal = Terminal::start(&server);
    terminal.types("$R top\n");
    eventually(LONG, "top has asked", || terminal.screen().contains("OLDEST"));
    let silent = runs.0[1].id();
    signal(Signal::STOP, silent).unwrap();
    let said = [&["status", "n"][..], &["deadlocks"]].map(|words| says(&server, words));
    signal(Signal::CONT, silent).unwrap();
    terminal.types("q");
    terminal.shows("ready> ");
    assert!(said[0].err.contains("some who wait may be missing") && said[0].out.contains("1 process"), "{said:?}");
    assert!(said[1].err.contains("circles may be missing") && said[1].out == "no circles\n", "{said:?}");
    for said in said {
        assert!(said.err.contains("or did not answer: run/true@"), "{said:?}");
        assert!(said.err.ends_with(&format!(":{silent}\n")) && said.err.lines().count() == 1, "{said:?}");
    }
}

/// The counts are the server's, and are shown as ever.
#[test]
fn a_user_without_the_channels_is_told_why_nobody_is_named() {
    let server = Server::start();
    let url = server.let_in("ops", "secret", &format!("~* +@all {}", server.no_channels()));
    let says = |words: &[&str]| -> Said { tool(&url, words).output().unwrap().into() };
    let mut runs = KillsAtEnd(vec![starts(&server, &["run", "n", "--", "sleep", "60"])]);
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    runs.0.push(starts(&server, &["run", "n", "--", "true"]));
    eventually(LONG, "it waits", || waits(&server, "n").len() == 1);
    let people = says(&["status", "n"]);
    assert!(people.code == Some(0) && people.out.ends_with("  waiting  1 process\n"), "{people:?}");
    assert!(people.err.contains("those who wait are not named") && people.err.contains("redlatch_census:*"));
    let programs = json(&says(&["status", "--json", "n"]));
    assert_eq!((&programs[0]["waits"], &programs[0]["waiting_processes"]), (&Value::Null, &1.into()));
    assert_eq!(says(&["-q", "status", "n"]).err, "");
    // Redis 6.0 has no rules for channels: a command that is missing is taken for an outage.
    let code = if server.version() < (6, 2) { 69 } else { 77 };
    assert_eq!(says(&["deadlocks"]).code, Some(code));
    let mut terminal = Terminal::start(&server);
    terminal.types(&format!("REDLATCH_URL='{url}' $R top --every 100ms\n"));
    eventually(LONG, "the lock is shown", || cells(&terminal, "n").is_some());
    thread::sleep(Duration::from_secs(1));
    assert_eq!((cells(&terminal, "n").unwrap().len(), terminal.screen().contains("OLDEST")), (5, false));
    terminal.types("q");
    terminal.shows("ready> ");
}

/// The server does not know who waits for a read-write lock. The clients do.
#[test]
fn top_shows_who_waits_for_a_read_write_lock_and_for_how_long() {
    let server = Server::start();
    let [reader, writer] = [(); 2].map(|()| ReadWriteLock::new(&server.builder().build().unwrap()));
    let _other = server.locks().owned_guard("other").unwrap();
    let guard = reader.read().guard("n").unwrap();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R top --every 100ms\n");
    eventually(LONG, "the clients are asked", || terminal.screen().contains("OLDEST"));
    assert_eq!(cells(&terminal, "n").unwrap()[4], "?");
    let token = CancelToken::new();
    thread::scope(|scope| {
        let terms = Terms::new().wait(LONG).cancelled_by(&token);
        scope.spawn(move || writer.write().acquire("n", &terms).map(drop));
        let _end = CancelsAtEnd(&token);
        eventually(LONG, "one waits", || cells(&terminal, "n").is_some_and(|cells| cells[4] == "1"));
        let cells = cells(&terminal, "n").unwrap();
        assert!(cells.len() == 6 && cells[5].ends_with('s'), "{cells:?}");
        assert!(terminal.screen().contains("2 locks, 1 of them waited for"), "{}", terminal.screen());
        let is_first = || terminal.screen().lines().nth(2).is_some_and(|line| line.starts_with("│n "));
        eventually(LONG, "it comes first, though it was asked for last", is_first);
    });
    guard.unlock().unwrap();
    terminal.types("q");
    terminal.shows("ready> ");
}

/// What `top` shows of a lock. A long name of a holder is one word.
fn cells(terminal: &Terminal, name: &str) -> Option<Vec<String>> {
    let screen = terminal.screen();
    let line = screen.lines().find(|line| line.starts_with(&format!("│{name} ")))?;
    Some(line.trim_matches('│').split_whitespace().map(str::to_owned).collect())
}
