//! What `redlatch run` does while it waits for the lock, and what it leaves when it waited in vain.

use crate::terminal::Terminal;
use crate::tool::{ends, says, starts, tool};
use harness::server::{Server, Signal, signal};
use harness::threads::{LONG, eventually};
use redlatch::{FairLock, LeasedSemaphore, RedLock, RedLockExt, Terms};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How many places there are in the queues of processes, of threads, and of those that wait for permits.
fn places(server: &Server) -> i64 {
    [["ZCARD", "redlatch_queue:{n}"], ["LLEN", "redisson_lock_queue:{n}"], ["HLEN", "redlatch_places:{n}"]]
        .iter()
        .map(|words| server.ask::<i64>(words))
        .sum()
}

/// The process is over in a moment. A place that it leaves would keep others from a free lock, or a free permit, for some seconds.
#[test]
fn a_wait_in_vain_leaves_no_place() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    let semaphore = LeasedSemaphore::new(&client);
    for way in [&["--kind", "reentrant"][..], &["--kind", "fair"], &["-n", "1"]] {
        let guard = FairLock::new(&client);
        let permit = match way[0] {
            "-n" => {
                semaphore.try_set_permits("n", 1).unwrap();
                semaphore.acquire("n", 1, &Terms::new()).unwrap()
            }
            _ => {
                guard.lock("n").unwrap();
                None
            }
        };
        for ending in ["time", "time", "SIGTERM", "SIGTERM"] {
            let wait = if ending == "time" { "300ms" } else { "1h" };
            let run = starts(&server, &[&["run", "n", "--wait", wait][..], way, &["--", "true"]].concat());
            if ending == "SIGTERM" {
                eventually(LONG, "it has a place", || places(&server) == 1);
                signal(Signal::TERM, run.id()).unwrap();
            }
            let said = ends(run);
            assert_eq!(said.code, Some(if ending == "time" { 75 } else { 143 }), "{way:?}: {said:?}");
            assert_eq!(places(&server), 0, "{way:?}, {ending}");
        }
        match permit {
            Some(permit) => permit.release().unwrap(),
            None => guard.unlock("n").unwrap(),
        }
        server.clear();
    }
}

#[test]
fn a_busy_lock_is_told_with_its_holder() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("n").unwrap();
    let said = says(&server, &["run", "--wait", "0s", "n", "--", "true"]);
    let pid = format!(":{}", std::process::id());
    assert!(said.err.contains("held by") && said.err.contains(&pid) && said.err.contains("did not run"), "{said:?}");
    let waiting = starts(&server, &["run", "-v", "--wait", "10s", "n", "--", "true"]);
    let said = ends(waiting);
    assert!(said.err.contains("n: waiting, held by") && said.code == Some(75), "{said:?}");
}

/// Whoever may not look is not told what he does not know.
#[test]
fn who_may_not_look_waits_all_the_same() {
    let server = Server::start();
    let url = server.let_in("app", "secret", "~* &* +@all -hgetall");
    let locks = server.locks();
    locks.lock("n").unwrap();
    let mut run = tool(&url, &["run", "-v", "--wait", "5s", "n", "--", "true"]);
    let said = ends(run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert!(said.code == Some(75) && said.err.contains("n: waiting\n") && !said.err.contains("nobody"), "{said:?}");
}

/// Longer than the library's outage budget. A wait with an end would go through it, too.
#[test]
fn a_wait_without_an_end_goes_through_an_outage() {
    let mut server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    let run = starts(&server, &["run", "n", "--", "true"]);
    eventually(LONG, "it waits", || places(&server) == 1);
    server.kill();
    std::thread::sleep(Duration::from_secs(13));
    server.restart();
    let said = ends(run);
    assert_eq!(said.code, Some(0), "{said:?}");
    drop(guard);
}

/// A server that was never there is an error, whatever the wait.
#[test]
fn a_server_that_was_never_there_is_told_soon() {
    let began = Instant::now();
    let start = || tool("redis://127.0.0.1:1/", &["run", "n", "--", "true"]).stderr(Stdio::piped()).spawn().unwrap();
    let told = start();
    std::thread::sleep(Duration::from_millis(500));
    signal(Signal::TERM, told.id()).unwrap();
    let said = ends(told);
    assert!(said.code == Some(143) && began.elapsed() < Duration::from_secs(8), "a signal ends it at once: {said:?}");
    let began = Instant::now();
    assert_eq!(ends(start()).code, Some(69));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let began = Instant::now();
    let once = ["run", "-n", "3", "--wait", "0s", "n", "--", "true"];
    assert_eq!(ends(tool("redis://127.0.0.1:1/", &once).stderr(Stdio::piped()).spawn().unwrap()).code, Some(69));
    assert!(began.elapsed() < Duration::from_secs(8), "it tries once: {:?}", began.elapsed());
}

/// Somebody has to do something first. An outage may pass by itself.
#[test]
fn a_refusal_ends_a_wait_without_an_end() {
    let server = Server::start();
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let said = says(&server, &["run", "n", "--", "true"]);
    assert!(said.code == Some(77) && said.err.contains("OOM"), "{said:?}");
}

#[test]
fn a_run_in_a_run_of_the_same_lock_is_told() {
    let server = Server::start();
    let tool = env!("CARGO_BIN_EXE_redlatch");
    let said = says(&server, &["run", "n", "--", tool, "run", "--wait", "0s", "n", "--", "true"]);
    assert!(said.code == Some(75) && said.err.contains("may wait for itself"), "{said:?}");
}

#[test]
fn ctrl_z_stops_min_hold_and_fg_continues_it() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R run n --min-hold 60s -- sh -c 'echo out-$((2+3))'\n");
    terminal.shows("out-5");
    std::thread::sleep(Duration::from_millis(500));
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.continues();
    terminal.types("\x03");
    terminal.shows("ready> ");
}

/// As with any other command.
#[test]
fn ctrl_z_stops_a_wait_and_fg_continues_it() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R run n -- echo out-$((2+3))\n");
    eventually(LONG, "it waits", || places(&server) == 1);
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.continues();
    guard.unlock().unwrap();
    terminal.shows("out-5");
    terminal.shows("ready> ");
}
