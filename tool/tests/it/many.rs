//! `list` and `top` beside 100,000 locks: what they cost the server and this machine.

use crate::terminal::Terminal;
use crate::tool::{ends_within, starts};
use harness::server::Server;
use harness::threads::{LONG, eventually};
use std::fs;
use std::time::{Duration, Instant};

const LOCKS: usize = 100_000;

/// More than either needs: most of it is the program itself.
const MEMORY: u64 = 128 << 20;

/// Locks as Redisson writes them, each of another owner.
fn fill(server: &Server) {
    let script = "for at = 1, ARGV[1] do \
                  local name = 'many:' .. at \
                  redis.call('HSET', name, '00000000-0000-4000-8000-000000000000:' .. at .. ':1', '1') \
                  redis.call('PEXPIRE', name, 600000) end return redis.call('DBSIZE')";
    assert_eq!(server.ask::<usize>(&["EVAL", script, "0", &LOCKS.to_string()]), LOCKS);
}

/// How many commands the server has executed, those of scripts among them.
fn commands(server: &Server) -> u64 {
    let said: String = server.ask(&["INFO", "stats"]);
    let line = said.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
    line.trim().parse().unwrap()
}

/// The most memory that a process has had.
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[test]
fn list_goes_through_all_locks_once() {
    let server = Server::start();
    fill(&server);
    for words in [&["list"][..], &["list", "--json"]] {
        let (before, began) = (commands(&server), Instant::now());
        let list = starts(&server, words);
        let pid = list.id();
        let watch = std::thread::spawn(move || {
            let mut most = 0;
            while let Some(bytes) = peak(pid) {
                most = bytes;
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let said = ends_within(list, 10 * LONG);
        let (took, sent, most) = (began.elapsed(), commands(&server) - before, watch.join().unwrap());
        let lines = said.out.lines().count();
        println!("{words:?}: {lines} lines in {took:?}, {sent} commands, {} MiB at most", most >> 20);
        assert_eq!((said.code, lines >= LOCKS), (Some(0), true), "{}", said.err);
        assert!(most < MEMORY && sent < LOCKS as u64 * 6, "{most} bytes, {sent} commands: five a lock and some");
    }
    server.ask::<String>(&["FLUSHALL"]);
}

#[test]
fn top_looks_at_what_it_shows() {
    let server = Server::start();
    fill(&server);
    let mut terminal = Terminal::start(&server);
    terminal.types("$R top\n");
    terminal.shows_within(10 * LONG, "100000");
    let (before, began) = (commands(&server), Instant::now());
    std::thread::sleep(Duration::from_secs(12));
    let (sent, took) = (commands(&server) - before, began.elapsed());
    let program = env!("CARGO_BIN_EXE_redlatch");
    let is_ours = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.as_os_str() == program)
            && fs::read_to_string(format!("/proc/{pid}/environ")).is_ok_and(|all| all.contains(&server.url()))
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let most = pids.into_iter().filter(is_ours).filter_map(peak).max().expect("it runs");
    let a_second = sent as f64 / took.as_secs_f64();
    println!("top: {a_second:.0} commands a second, {} MiB at most", most >> 20);
    assert!(most < MEMORY && a_second < 1_000., "{most} bytes, {a_second} commands a second");
    terminal.types("q");
    eventually(LONG, "it ends", || terminal.is_at_the_prompt());
    server.ask::<String>(&["FLUSHALL"]);
}
