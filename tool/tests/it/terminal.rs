//! `run` and `top` in a real terminal.

use crate::tool::{ends, starts};
use harness::lateness::Mark;
use harness::server::{Server, Signal, signal};
use harness::threads::{LONG, eventually, ms};
use portable_pty::{CommandBuilder, NativePtySystem, PtyPair, PtySize, PtySystem};
use redlatch::{RedLock, RedLockExt};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// A terminal with a shell in it, and all that was shown.
pub(crate) struct Terminal {
    writer: Box<dyn Write + Send>,
    shown: Arc<Mutex<String>>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    pair: PtyPair,
}

impl Terminal {
    pub(crate) fn start(server: &Server) -> Self {
        let size = PtySize { rows: 24, cols: 100, pixel_width: 0, pixel_height: 0 };
        let pair = NativePtySystem::default().openpty(size).unwrap();
        let mut shell = CommandBuilder::new("bash");
        shell.args(["--norc", "--noprofile", "-i"]);
        for (key, value) in [("PS1", "ready> "), ("REDLATCH_URL", &server.url()), ("TERM", "xterm")] {
            shell.env(key, value);
        }
        shell.env("R", env!("CARGO_BIN_EXE_redlatch"));
        let child = pair.slave.spawn_command(shell).unwrap();
        come_first(child.process_id().unwrap());
        let (mut reader, writer) = (pair.master.try_clone_reader().unwrap(), pair.master.take_writer().unwrap());
        let shown = Arc::<Mutex<String>>::default();
        let seen = Arc::clone(&shown);
        spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let terminal = Self { writer, shown, child, pair };
        terminal.shows("ready> ");
        terminal
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.shown.lock().unwrap().clear();
        self.writer.write_all(keys.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        self.shows_within(LONG, text);
    }

    #[track_caller]
    pub(crate) fn shows_within(&self, bound: Duration, text: &str) {
        let start = Mark::now();
        while !self.shown.lock().unwrap().contains(text) {
            assert!(start.elapsed() <= bound, "not within {bound:?}: {text}. The screen:\n{}", self.screen());
            sleep(ms(1));
        }
    }

    /// Continues what was stopped, and waits until it is in the foreground. The shell shows the command before that, and a Ctrl-C then goes to the shell.
    #[track_caller]
    pub(crate) fn continues(&mut self) {
        self.types("fg\n");
        self.shows("run n");
        let shell = self.child.process_id();
        let in_front = || self.pair.master.process_group_leader().and_then(|pid| u32::try_from(pid).ok());
        eventually(LONG, "it is in the foreground", || in_front() != shell);
    }
}

impl Terminal {
    /// What is on the screen since keys were typed.
    pub(crate) fn screen(&self) -> String {
        let mut parser = vt100::Parser::new(24, 100, 0);
        parser.process(self.shown.lock().unwrap().as_bytes());
        parser.screen().contents()
    }

    /// Whether the last line that was shown is the shell's prompt.
    pub(crate) fn is_at_the_prompt(&self) -> bool {
        self.shown.lock().unwrap().ends_with("ready> ")
    }
}

/// Linux shares the cores among sessions first, and then among processes. The tests are one busy session, and a terminal is another. Linux 6.18
/// has let what ran in a terminal wait for a core for 26 s, and never when its session came first. Without the right to say so, all is as before.
fn come_first(session: u32) {
    let _ = std::fs::write(format!("/proc/{session}/autogroup"), "-10");
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_job_reads_from_the_terminal() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R run n -- sh -c 'read line; echo got-$line'\n");
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    terminal.types("words\n");
    terminal.shows("got-words");
    terminal.shows("ready> ");
    terminal.types("echo again-$((1+1))\n");
    terminal.shows("again-2");
}

#[test]
fn ctrl_c_ends_the_job_and_run_dies_of_it() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("for i in 1 2 3; do $R run n -- sleep 60; done; echo out-$((2+3))\n");
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    sleep(Duration::from_millis(300));
    terminal.types("\x03");
    terminal.shows("ready> ");
    assert!(!terminal.shown.lock().unwrap().contains("out-5"), "the loop ends, too");
    eventually(LONG, "it is free", || !server.locks().is_locked("n").unwrap());
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R run n -- sh -c 'sleep 1; read line; echo got-$line'\n");
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    sleep(Duration::from_millis(300));
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.continues();
    terminal.types("words\n");
    terminal.shows("got-words");
    terminal.shows("ready> ");
}

/// The reader of a pipeline has the terminal, as without `run`.
#[test]
fn a_pipeline_reads_from_the_terminal_and_ends_with_its_reader() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal
        .types("$R run n -- sh -c 'echo first; sleep 60' | sh -c 'read line; read key </dev/tty; echo $line-$key'\n");
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    terminal.types("words\n");
    terminal.shows("first-words");
    terminal.types("\x03");
    terminal.shows("ready> ");
    eventually(LONG, "it is free", || !server.locks().is_locked("n").unwrap());
    terminal.types("$R run n -- yes | head -2; echo out-$((2+3))\n");
    terminal.shows("out-5");
    eventually(LONG, "it is free", || !server.locks().is_locked("n").unwrap());
}

#[test]
fn a_job_in_the_background_that_reads_waits_for_fg() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R run n -- sh -c 'read line; echo got-$line' &\n");
    terminal.shows("ready> ");
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    sleep(Duration::from_millis(300));
    terminal.types("jobs\n");
    terminal.shows("Stopped");
    terminal.continues();
    terminal.types("words\n");
    terminal.shows("got-words");
    terminal.shows("ready> ");
}

/// Stdin is a pipe, and the command reads from the terminal all the same, as `less` does.
#[test]
fn a_job_behind_a_pipe_has_the_terminal() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("echo piped | $R run n -- sh -c 'read line; read key </dev/tty; echo $line-$key'\n");
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    sleep(Duration::from_millis(300));
    terminal.types("words\n");
    terminal.shows("piped-words");
    terminal.shows("ready> ");
}

/// As `ssh -t host redlatch run ..` has it: nobody would continue it.
#[test]
fn ctrl_z_without_a_shell_stops_nothing() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("exec $R run n -- sh -c 'echo up-$((2+3)); sleep 60'\n");
    terminal.shows("up-5");
    terminal.types("\x1a");
    sleep(Duration::from_millis(500));
    terminal.types("\x03");
    eventually(LONG, "it ends", || terminal.child.try_wait().unwrap().is_some());
    assert!(!server.locks().is_locked("n").unwrap());
}

/// As `suspend` of a shell.
#[test]
fn a_job_that_stops_itself_gives_the_terminal_back() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R run n -- sh -c 'read one; kill -STOP $$; read two; echo $one-$two'\n");
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    terminal.types("words\n");
    terminal.shows("Stopped");
    terminal.shows("ready> ");
    terminal.continues();
    terminal.types("more\n");
    terminal.shows("words-more");
    terminal.shows("ready> ");
}

#[test]
fn top_shows_a_holder_that_is_gone() {
    let server = Server::start();
    let run = starts(&server, &["run", "n", "--", "sleep", "60"]);
    eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
    let mut terminal = Terminal::start(&server);
    terminal.types("$R top --every 100ms\n");
    terminal.shows("run/sleep");
    signal(Signal::KILL, run.id()).unwrap();
    ends(run);
    terminal.shows("gone?");
    terminal.types("q");
    terminal.shows("ready> ");
    server.clear();
}

#[test]
fn top_shows_locks_and_ends_with_q() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("order:42").unwrap();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R top --every 100ms\n");
    terminal.shows("order:42");
    terminal.shows("locks,");
    drop(guard);
    // What is on the screen already is not drawn again, and a new lock is found by the next scan. Its holder has come since the first one.
    let newcomer = server.locks();
    let _other = newcomer.guard("order:43").unwrap();
    terminal.shows("locks,");
    terminal.types("k");
    terminal.shows("43");
    sleep(Duration::from_secs(1));
    assert!(!terminal.shown.lock().unwrap().contains("gone?"), "it is connected");
    // A server that is silent keeps no key waiting.
    server.freeze();
    sleep(Duration::from_millis(200));
    let typed = Mark::now();
    terminal.types("q");
    terminal.shows("ready> ");
    assert!(typed.elapsed() <= Duration::from_secs(1), "an answer is waited for 2 s");
    server.thaw();
}

/// The terminal is as before: lines are edited, and what is typed is seen. An interactive shell sets that itself, and one that runs a script does not.
#[test]
fn top_leaves_the_terminal_as_it_was() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R top --every 100ms\n");
    terminal.shows("locks,");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.types("fg\n");
    terminal.shows("locks,");
    terminal.types("q");
    terminal.shows("ready> ");
    let modes = "stty -a | tr -s ' ;' '[\\n*]' | grep -cxE 'icanon|echo'";
    terminal.types(&format!("sh -c \"\\$R top --every 100ms; echo modes-\\$({modes})-\"\n"));
    terminal.shows("locks,");
    terminal.types("q");
    terminal.shows("modes-2-");
    // A signal ends it as q does: the screen of before is shown again.
    terminal.types("bash -c 'echo pid-$$-; exec $R top --every 100ms'\n");
    terminal.shows("locks,");
    let shown = terminal.shown.lock().unwrap().clone();
    let pid = shown.rsplit("pid-").find_map(|rest| rest.split_once('-')?.0.parse::<u32>().ok()).unwrap();
    terminal.shown.lock().unwrap().clear();
    signal(Signal::TERM, pid).unwrap();
    terminal.shows("\u{1b}[?1049l");
    terminal.shows("ready> ");
}

#[test]
fn unlock_asks_at_the_terminal() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("n").unwrap();
    let mut terminal = Terminal::start(&server);
    terminal.types("$R unlock n; echo code-$?\n");
    terminal.shows("[y/N]");
    terminal.types("n\n");
    terminal.shows("code-1");
    assert!(locks.is_locked("n").unwrap());
    terminal.types("$R unlock n; echo code-$?\n");
    terminal.shows("[y/N]");
    terminal.types("y\n");
    terminal.shows("code-0");
    assert!(!locks.is_locked("n").unwrap());
}
