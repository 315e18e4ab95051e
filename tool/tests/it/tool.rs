//! The tool as a process.

use harness::server::{Server, Signal, signal};
use harness::threads::LONG;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// The tool, told where the locks are. Whoever started the tests may ignore signals, as a script does for what it starts in the background. The
/// tool would ignore them, too.
pub(crate) fn tool(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new("env");
    command
        .args(["--default-signal", env!("CARGO_BIN_EXE_redlatch")])
        .args(words)
        .env("REDLATCH_URL", url)
        .stdin(Stdio::null());
    command
}

/// What came of a command: its exit code, and what it printed to stdout and to stderr.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

pub(crate) fn says(server: &Server, words: &[&str]) -> Said {
    ends(starts(server, words))
}

pub(crate) fn starts(server: &Server, words: &[&str]) -> Child {
    tool(&server.url(), words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool runs")
}

/// What it said by its end.
pub(crate) fn ends(child: Child) -> Said {
    ends_within(child, LONG)
}

/// The same for a command that has much to do. One that hangs is ended: nothing else would, and the test fails.
pub(crate) fn ends_within(child: Child, span: Duration) -> Said {
    let (id, (sender, receiver)) = (child.id(), channel());
    thread::spawn(move || sender.send(child.wait_with_output()));
    receiver
        .recv_timeout(span)
        .unwrap_or_else(|_| {
            signal(Signal::KILL, id).unwrap();
            panic!("it hangs")
        })
        .expect("its end")
        .into()
}

/// The lines that it prints, as it prints them.
pub(crate) fn lines(child: &mut Child) -> impl FnMut() -> String + use<> {
    let (sender, receiver) = channel();
    let out = BufReader::new(child.stdout.take().expect("it is piped"));
    thread::spawn(move || out.lines().try_for_each(|line| sender.send(line.expect("text"))));
    move || receiver.recv_timeout(LONG).expect("a line")
}
