//! `redlatch run`: exit codes, signals, and what a job leaves behind.

use crate::tool::{Said, ends, lines, says, starts, tool};
use harness::server::{Server, Signal, signal};
use harness::threads::{LONG, eventually};
use redlatch::{LeasedSemaphore, RedLock};
use rustix::process::{Pid, kill_process_group};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn sh<'w>(words: &[&'w str], script: &'w str) -> Vec<&'w str> {
    [&["run", "n"][..], words, &["--", "sh", "-c", script]].concat()
}

fn runs(server: &Server, words: &[&str], script: &str) -> Said {
    says(server, &sh(words, script))
}

/// A file that jobs write to.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("redlatch-job-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let server = Server::start();
    for code in [0, 1, 3, 75, 126, 255] {
        let said = runs(&server, &[], &format!("exit {code}"));
        assert_eq!(said.code, Some(code), "{said:?}");
        assert_eq!(said.err.is_empty(), code == 0, "only a success goes without a word: {said:?}");
    }
    assert_eq!(says(&server, &["run", "n", "--", "/no/such/file"]).code, Some(127));
    assert_eq!(says(&server, &["run", "n", "--", "/etc/passwd"]).code, Some(126));
    assert!(!server.locks().is_locked("n").unwrap());
}

#[test]
fn a_signal_that_ends_the_command_is_told() {
    let server = Server::start();
    let said = runs(&server, &[], "kill -TERM $$");
    assert_eq!((said.code, said.err.contains("SIGTERM")), (Some(143), true), "{said:?}");
    let killed = runs(&server, &[], "kill -KILL $$");
    assert_eq!(killed.code, Some(137), "{killed:?}");
}

/// So that a loop in a shell ends, too.
#[test]
fn a_command_that_dies_by_sigint_takes_run_with_it() {
    let server = Server::start();
    let words = sh(&[], "kill -INT $$");
    let status = tool(&server.url(), &words).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.signal(), Some(2), "{status:?}");
}

#[test]
fn a_busy_lock_has_a_code_of_its_own() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("n").unwrap();
    assert_eq!(runs(&server, &["--wait", "0s"], "true").code, Some(75));
    assert_eq!(runs(&server, &["--wait", "100ms", "--busy-code", "0"], "true").code, Some(0));
}

#[test]
fn a_refusal_has_a_code_of_its_own() {
    let server = Server::start();
    let url = server.let_in("app", "secret", "~other &* +@all");
    let said: Said = tool(&url, &["run", "n", "--wait", "0s", "--", "true"]).output().unwrap().into();
    assert_eq!((said.code, said.err.contains("NOPERM")), (Some(77), true), "{said:?}");
}

#[test]
fn the_command_knows_its_lock_and_token() {
    let server = Server::start();
    let said = runs(&server, &["--kind", "fenced"], "echo $REDLATCH_LOCK $REDLATCH_TOKEN");
    let mut words = said.out.split_whitespace();
    assert_eq!(words.next(), Some("n"));
    assert!(words.next().unwrap().parse::<u64>().unwrap() > 0);
}

#[test]
fn how_it_ended_is_written_for_programs() {
    let server = Server::start();
    let file = Scratch::new("result");
    fs::write(file.path(), "").unwrap();
    let script = format!("{} run n --result-fd 3 -- sh -c 'exit 4' 3>{}", env!("CARGO_BIN_EXE_redlatch"), file.path());
    let status =
        std::process::Command::new("sh").args(["-c", &script]).env("REDLATCH_URL", server.url()).status().unwrap();
    let report: serde_json::Value = serde_json::from_str(&file.text()).unwrap();
    assert_eq!(
        (status.code(), &report["outcome"], &report["code"]),
        (Some(4), &"exited".into(), &4.into()),
        "{report}"
    );
}

/// What is told to programs of a run that did not begin.
#[test]
fn a_run_that_did_not_begin_is_written_for_programs() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("busy").unwrap();
    // The kernel finds it out, when the lock is held.
    let script = Scratch::new("no-interpreter");
    fs::write(&script.0, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script.0, fs::Permissions::from_mode(0o755)).unwrap();
    for (words, code, outcome) in [
        ("--lease 1ms n -- true", 64, "failed"),
        ("n -- no-such-command", 127, "not run"),
        ("n -- /etc/passwd", 126, "not run"),
        ("n -- ''", 127, "not run"),
        (&format!("n -- {}", script.path()), 127, "not run"),
        ("--wait 0s busy -- true", 75, "busy"),
    ] {
        let script = format!("{} run --result-fd 3 {words} 3>&1", env!("CARGO_BIN_EXE_redlatch"));
        let mut shell = std::process::Command::new("sh");
        let said: Said = shell.args(["-c", &script]).env("REDLATCH_URL", server.url()).output().unwrap().into();
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{words}: {said:?}"));
        assert_eq!((said.code, &report["outcome"]), (Some(code), &outcome.into()), "{words}: {report}");
        assert!(report["why"].is_string() && said.err.lines().count() == 1, "{words}: {report} {said:?}");
    }
}

/// What `run` opens would get the number, and the report would go there.
#[test]
fn a_closed_result_descriptor_is_refused() {
    let server = Server::start();
    for number in [3, 4, 9] {
        let script = format!("{} run --result-fd {number} n -- true {number}>&-", env!("CARGO_BIN_EXE_redlatch"));
        let mut shell = std::process::Command::new("sh");
        let said: Said = shell.args(["-c", &script]).env("REDLATCH_URL", server.url()).output().unwrap().into();
        assert_eq!((said.code, said.err.contains("is not open")), (Some(64), true), "{number}: {said:?}");
    }
}

/// A supervisor may have given a socket.
#[test]
fn how_it_ended_goes_to_a_socket() {
    let server = Server::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script =
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}; {} run n --result-fd 3 -- true", env!("CARGO_BIN_EXE_redlatch"));
    let mut shell = std::process::Command::new("bash");
    let mut shell = shell.args(["-c", &script]).env("REDLATCH_URL", server.url()).spawn().unwrap();
    eventually(LONG, "it ends", || shell.try_wait().unwrap().is_some_and(|status| status.success()));
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["outcome"], &report["code"]), (&"exited".into(), &0.into()), "{report}");
}

#[test]
fn signals_are_passed_on() {
    let server = Server::start();
    let file = Scratch::new("signals");
    for (name, which) in [("HUP", Signal::HUP), ("USR1", Signal::USR1), ("TERM", Signal::TERM), ("QUIT", Signal::QUIT)]
    {
        let script = format!(
            "trap 'echo {name} > {0}; exit 9' {name}; echo up > {0}; while :; do sleep 0.05; done",
            file.path()
        );
        let run = starts(&server, &sh(&[], &script));
        eventually(LONG, "it is up", || file.text() == "up\n");
        signal(which, run.id()).unwrap();
        assert_eq!((ends(run).code, file.text()), (Some(9), format!("{name}\n")));
    }
}

#[test]
fn sigterm_ends_a_wait_for_the_lock() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("n").unwrap();
    let run = starts(&server, &sh(&[], "true"));
    eventually(LONG, "it waits", || server.subscribers("redisson_lock__channel:{n}") > 0);
    signal(Signal::TERM, run.id()).unwrap();
    let said = ends(run);
    assert_eq!((said.code, said.err.contains("did not run")), (Some(143), true), "{said:?}");
    eventually(LONG, "its place is gone", || server.ask::<Vec<String>>(&["KEYS", "redlatch_queue:*"]).is_empty());
}

/// A parent-death signal would reach the shell and not what the shell has started.
#[test]
fn a_job_dies_with_run() {
    let server = Server::start();
    let file = Scratch::new("killed");
    let script = format!(
        "(while :; do echo $$ >> {0}; sleep 0.01; done) & while :; do echo $$ >> {0}; sleep 0.01; done",
        file.path()
    );
    let run = starts(&server, &sh(&[], &script));
    eventually(LONG, "both write", || file.text().lines().count() > 10);
    signal(Signal::KILL, run.id()).unwrap();
    ends(run);
    stays_still(&file);
    assert!(server.locks().is_locked("n").unwrap(), "its lease goes on");
    server.clear();
}

/// Nobody writes any more, a moment later.
fn stays_still(file: &Scratch) {
    std::thread::sleep(Duration::from_secs(1));
    let before = file.text().len();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(file.text().len(), before);
}

#[test]
fn a_job_that_is_stopped_with_run_ends_before_the_lease() {
    let server = Server::start();
    let file = Scratch::new("stopped");
    let script = format!("while :; do echo x >> {}; sleep 0.01; done", file.path());
    let run = starts(&server, &sh(&["--lease", "2s"], &script));
    eventually(LONG, "it writes", || file.text().lines().count() > 10);
    signal(Signal::STOP, run.id()).unwrap();
    eventually(LONG, "the lock is free", || !server.locks().is_locked("n").unwrap());
    let written = file.text().len();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(file.text().len(), written, "it writes though the lock is free");
    signal(Signal::CONT, run.id()).unwrap();
    let said = ends(run);
    assert_eq!((said.code, said.err.contains("nothing of the command ran")), (Some(76), true), "{said:?}");
}

#[test]
fn what_a_command_leaves_behind_is_ended_before_the_release() {
    let server = Server::start();
    let file = Scratch::new("left");
    let began = Instant::now();
    // Whoever has written ignores SIGTERM by then.
    let script = format!(
        "(trap '' TERM; while :; do echo x >> {0}; sleep 0.01; done) & until [ -s {0} ]; do sleep 0.01; done; exit 5",
        file.path()
    );
    let said = runs(&server, &["--grace", "500ms"], &script);
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(began.elapsed() >= Duration::from_millis(500), "it had its grace");
    let written = file.text().len();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(file.text().len(), written);
    assert!(!server.locks().is_locked("n").unwrap());
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_at_max_hold() {
    let server = Server::start();
    let began = Instant::now();
    let said = runs(&server, &["--max-hold", "2s", "--grace", "1s"], "trap '' TERM; while :; do sleep 0.05; done");
    assert_eq!((said.code, said.err.contains("--max-hold")), (Some(79), true), "{said:?}");
    assert!(began.elapsed() >= Duration::from_secs(3));
}

#[test]
fn a_lock_is_kept_for_min_hold() {
    let server = Server::start();
    let began = Instant::now();
    assert_eq!(runs(&server, &["--min-hold", "700ms"], "true").code, Some(0));
    assert!(began.elapsed() >= Duration::from_millis(700));
}

#[test]
fn output_that_nobody_reads_hangs_nothing() {
    let server = Server::start();
    let run = starts(
        &server,
        &sh(
            &["--max-hold", "1s", "--grace", "100ms"],
            "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done",
        ),
    );
    let mut run = run;
    let began = Instant::now();
    while run.try_wait().unwrap().is_none() && began.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(run.try_wait().unwrap().and_then(|status| status.code()), Some(79));
}

#[test]
fn at_most_n_run_at_once() {
    let server = Server::start();
    let file = Scratch::new("crowd");
    let script = format!("echo + >> {0}; sleep 0.2; echo - >> {0}", file.path());
    let words = sh(&["-n", "2"], &script);
    let all: Vec<_> = (0..6).map(|_| starts(&server, &words)).collect();
    all.into_iter().for_each(|run| assert_eq!(ends(run).code, Some(0)));
    let (mut now, mut most) = (0, 0);
    for line in file.text().lines() {
        now += if line == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!((now, most), (0, 2));
    let semaphore = LeasedSemaphore::new(&server.builder().build().unwrap());
    assert_eq!(semaphore.available_permits("n").unwrap(), Some(2));
    let other = runs(&server, &["-n", "3"], "true");
    assert!(other.err.contains("does not change that"), "{other:?}");
}

#[test]
fn times_that_do_not_go_together_are_refused() {
    let server = Server::start();
    for words in
        [&["--lease", "10s", "--grace", "4s"][..], &["--lease", "500ms"], &["-n", "2", "--kind", "fair"], &["-n", "0"]]
    {
        assert_eq!(runs(&server, words, "true").code, Some(64), "{words:?}");
    }
}

#[test]
fn a_lock_that_was_freed_by_force_is_lost() {
    let server = Server::start();
    let run = starts(&server, &sh(&["--lease", "9s"], "sleep 30"));
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    let freed = Instant::now();
    server.locks().force_unlock("n").unwrap();
    let said = ends(run);
    assert_eq!(said.code, Some(76), "{said:?}");
    assert!(freed.elapsed() < Duration::from_secs(4), "one renewal period and a second: {:?}", freed.elapsed());
}

/// The job ends before `run` could learn of it: the release finds the lock gone.
#[test]
fn a_loss_that_the_release_finds_is_told() {
    let server = Server::start();
    let run = starts(&server, &sh(&[], "sleep 4"));
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    server.locks().force_unlock("n").unwrap();
    assert_eq!(ends(run).code, Some(76));
}

/// The job is over already, and has run alone; but who relies on `--min-hold` has to know.
#[test]
fn a_loss_during_min_hold_is_told() {
    let server = Server::start();
    let mut run = starts(&server, &sh(&["--min-hold", "60s", "--lease", "3s"], "echo up"));
    assert_eq!(lines(&mut run)(), "up");
    // The command's end is a matter of milliseconds, and the first renewal comes after a second.
    std::thread::sleep(Duration::from_millis(500));
    server.locks().force_unlock("n").unwrap();
    let said = ends(run);
    assert_eq!((said.code, said.err.contains("gone after the command had ended")), (Some(76), true), "{said:?}");
}

/// The processes of this program whose parent is `run`.
fn guards(run: u32) -> Vec<u32> {
    let is_guard =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("__guard"));
    children(run).into_iter().filter(is_guard).collect()
}

fn children(of: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn the_guard_leaves_with_run() {
    let server = Server::start();
    let run = starts(&server, &sh(&[], "sleep 1"));
    eventually(LONG, "it has a guard", || guards(run.id()).len() == 1);
    let guard = guards(run.id())[0];
    assert_eq!(ends(run).code, Some(0));
    assert!(!std::path::Path::new(&format!("/proc/{guard}")).exists());
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let server = Server::start();
    let mut run = starts(&server, &sh(&[], "echo up; sleep 3"));
    assert_eq!(lines(&mut run)(), "up");
    let guard = guards(run.id())[0];
    signal(Signal::KILL, guard).unwrap();
    eventually(LONG, "it has another", || guards(run.id()).first().is_some_and(|other| *other != guard));
    assert_eq!(ends(run).code, Some(0));
}

/// `timeout` and `setsid` leave the process group. After a double fork the parent is gone, too.
#[test]
fn what_left_the_group_is_ended_before_the_release() {
    let server = Server::start();
    let ways = ["timeout 60 sh", "setsid sh", "setsid -f setsid -f sh"];
    let words = [&["--grace", "200ms", "--no-cgroup"][..], &["--grace", "200ms"]];
    for (leaves, words) in ways.into_iter().flat_map(|leaves| words.map(|words| (leaves, words))) {
        let file = Scratch::new("leaves");
        let script = format!(
            "{leaves} -c 'while :; do echo x >> {0}; sleep 0.01; done' & until [ -s {0} ]; do sleep 0.01; done; exit 6",
            file.path()
        );
        let said = runs(&server, words, &script);
        assert_eq!(said.code, Some(6), "{said:?}");
        let written = file.text().len();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!((written > 0, file.text().len()), (true, written), "{leaves}");
    }
}

#[test]
fn the_server_that_is_gone_is_a_loss_whatever_on_lost_says() {
    for (words, code) in [(&["--on-lost", "kill"][..], 76), (&["--grace", "0s"], 76), (&["--on-lost", "ignore"], 76)] {
        let server = Server::start();
        let words = [&["--lease", "1s"], words].concat();
        let run = starts(&server, &sh(&words, "sleep 3; echo whole; exit 7"));
        eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
        server.freeze();
        let said = ends(run);
        server.thaw();
        assert_eq!(said.code, Some(code), "{words:?}: {said:?}");
        assert_eq!(said.out.contains("whole"), words.contains(&"ignore"), "{words:?}: {said:?}");
        let is_in_time = said.err.contains("nothing of the command ran when its lease was over");
        assert_eq!(is_in_time, !words.contains(&"ignore"), "{words:?}: {said:?}");
        eventually(LONG, "it is free", || !server.locks().is_locked("n").unwrap());
    }
}

#[test]
fn a_signal_ends_min_hold() {
    let server = Server::start();
    let mut run = starts(&server, &sh(&["--min-hold", "60s"], "echo up"));
    assert_eq!(lines(&mut run)(), "up");
    std::thread::sleep(Duration::from_millis(500));
    signal(Signal::TERM, run.id()).unwrap();
    assert_eq!(ends(run).code, Some(0));
    assert!(!server.locks().is_locked("n").unwrap());
}

/// As Perl programs and some supervisors have it. The system would wait for the command itself.
#[test]
fn ignored_ends_of_children_hide_none() {
    let server = Server::start();
    let script = format!("trap '' CHLD; exec {} run n -- sh -c 'exit 8'", env!("CARGO_BIN_EXE_redlatch"));
    let mut shell = std::process::Command::new("bash");
    let shell = shell.args(["-c", &script]).env("REDLATCH_URL", server.url());
    let said = ends(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(said.code, Some(8), "{said:?}");
}

/// The entry point of a container starts a process, and then becomes `run`.
#[test]
fn a_child_that_run_has_not_started_is_none_of_the_job() {
    let server = Server::start();
    let script = format!("sleep 60 >/dev/null 2>&1 & echo $!; exec {} run n -- true", env!("CARGO_BIN_EXE_redlatch"));
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", &script]).env("REDLATCH_URL", server.url());
    let said = ends(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let sidecar: u32 = said.out.trim().parse().unwrap();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(std::path::Path::new(&format!("/proc/{sidecar}")).exists(), "it was ended");
    signal(Signal::KILL, sidecar).unwrap();
}

#[test]
fn nohup_is_kept() {
    let server = Server::start();
    let script = format!("trap '' HUP; exec {} run n -- sh -c 'kill -HUP $$; exit 8'", env!("CARGO_BIN_EXE_redlatch"));
    let status =
        std::process::Command::new("sh").args(["-c", &script]).env("REDLATCH_URL", server.url()).status().unwrap();
    assert_eq!(status.code(), Some(8));
}

#[test]
fn any_bytes_are_an_argument() {
    use std::os::unix::ffi::OsStrExt;
    let server = Server::start();
    let mut command = tool(&server.url(), &["run", "n", "--", "printf", "%s"]);
    let output = command.arg(std::ffi::OsStr::from_bytes(b"caf\xe9")).output().unwrap();
    assert_eq!(output.stdout, b"caf\xe9");
}

#[test]
fn a_closed_stderr_changes_no_exit_code() {
    let server = Server::start();
    let words = sh(&[], "sleep 0.3; exit 9");
    let mut run = tool(&server.url(), &words).stderr(Stdio::piped()).spawn().unwrap();
    drop(run.stderr.take());
    assert_eq!(run.wait().unwrap().code(), Some(9));
}

#[test]
fn the_job_inherits_no_descriptor_of_run() {
    let server = Server::start();
    // Other tests of this process have descriptors that all its children inherit.
    let close = "for n in $(ls /proc/self/fd); do [ $n -le 2 ] || eval \"exec $n>&-\"; done";
    let script =
        format!("{close}; exec {} run n --result-fd 7 -- ls /proc/self/fd 7>/dev/null", env!("CARGO_BIN_EXE_redlatch"));
    let output =
        std::process::Command::new("bash").args(["-c", &script]).env("REDLATCH_URL", server.url()).output().unwrap();
    // `ls` has the folder open that it looks at.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n2\n3\n", "{output:?}");
}

#[test]
fn a_token_of_an_outer_run_is_none_of_an_inner_one() {
    let server = Server::start();
    let script =
        format!("{} run inner -- sh -c 'echo [$REDLATCH_LOCK:$REDLATCH_TOKEN]'", env!("CARGO_BIN_EXE_redlatch"));
    assert_eq!(runs(&server, &["--kind", "fenced"], &script).out, "[inner:]\n");
}

/// The process of a command that was stopped before it had a group was in none that a shell continues, and `run` waited for it for ever.
#[test]
fn ctrl_z_while_the_command_begins_hangs_nothing() {
    let (server, mut longest) = (Server::start(), Duration::ZERO);
    let locks = server.locks();
    let ends_well =
        |run: &mut Child| run.try_wait().unwrap().inspect(|status| assert!(status.success(), "{status}")).is_some();
    for round in 0..60 {
        let mut run = tool(&server.url(), &["run", "n", "--", "true"]).process_group(0).spawn().unwrap();
        let group = Pid::from_child(&run);
        eventually(LONG, "it is held", || locks.is_locked("n").unwrap() || ends_well(&mut run));
        let held = Instant::now();
        sleep(Duration::from_micros(50 * (round % 20)));
        let _ = kill_process_group(group, Signal::TSTP);
        eventually(LONG, "it ends", || {
            let _ = kill_process_group(group, Signal::CONT);
            ends_well(&mut run)
        });
        longest = longest.max(held.elapsed());
    }
    println!("the longest took {longest:?}");
}

/// As in a container: there the session and the group of what began outside have the id 0. Ctrl-Z is left alone, since no shell is known.
#[test]
fn ctrl_z_in_a_namespace_of_processes_is_no_end() {
    let namespace = || {
        let mut outer = std::process::Command::new("unshare");
        outer.args(["--map-root-user", "--pid", "--fork", "--mount-proc"]);
        outer
    };
    if !namespace().arg("true").status().is_ok_and(|status| status.success()) {
        println!("not shown: this machine lets nobody make a namespace");
        return;
    }
    let server = Server::start();
    let script = "(sleep .1; kill -TSTP 1) & exec \"$0\" run n -- sh -c 'sleep .3; echo done'";
    let mut outer = namespace();
    outer.args(["sh", "-c", script, env!("CARGO_BIN_EXE_redlatch")]);
    let said = outer.env("REDLATCH_URL", server.url()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "done\n", "{}", String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
