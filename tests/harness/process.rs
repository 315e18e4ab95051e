//! The harness's processes: a test in a process of its own, and a second process beside a test.
//!
//! Both are this test binary again, told to run the calling test alone. The test finds out its own name from
//! the name of the closure's type, and the parent checks that the child ran exactly one test.

use crate::ROOT;
use crate::server::{Server, Signal, signal};
use crate::threads::{LONG, eventually, of_redlatch};
use std::process::{Child, Command, Stdio};

/// This variable is set in the child of [`alone`].
const ALONE: &str = "REDLATCH_IT_ALONE";

/// This variable has the server's URL in the child of [`with_peer`].
const PEER: &str = "REDLATCH_IT_PEER";

/// The list on the server in which a peer says how far it is.
const NEWS: &str = "it:news";

/// Runs `body` in a process of its own, where no other test has threads. No thread of the library may outlive it.
pub fn alone(body: impl FnOnce()) {
    alone_with(&[], body);
}

/// The same with these variables in its environment.
pub fn alone_with(variables: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        body();
        eventually(LONG, "every thread of redlatch has ended", || of_redlatch().is_empty());
    } else {
        Peer::start(&test_name(&body), &[variables, &[(ALONE, "")]].concat()).join();
    }
}

/// Runs `main`, which may start a second process that runs `peer` with the server's URL.
pub fn with_peer(peer: impl FnOnce(&str), main: impl FnOnce(&dyn Fn(&Server) -> Peer)) {
    let name = test_name(&peer);
    match std::env::var(PEER) {
        Ok(url) => peer(&url),
        Err(_) => main(&|server| Peer::start(&name, &[(PEER, &server.url())])),
    }
}

/// The name of the test whose closure this is.
fn test_name<F>(_: &F) -> String {
    let path = std::any::type_name::<F>().split_once("::").unwrap().1;
    path.trim_end_matches("::{{closure}}").to_owned()
}

/// Another process that runs the calling test. Killed when dropped.
pub struct Peer {
    child: Option<Child>,
}

impl Peer {
    fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).envs(variables.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child: Some(child) }
    }

    /// Waits for the end of the process. Panics unless its test passed.
    pub fn join(mut self) {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains(" 1 passed"), "the child process failed:\n{out}\n{err}");
        print!("{out}");
    }

    pub fn freeze(&self) {
        signal(Signal::STOP, self.child.as_ref().unwrap().id()).unwrap();
    }

    pub fn thaw(&self) {
        signal(Signal::CONT, self.child.as_ref().unwrap().id()).unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Tells the parent how far this peer is.
pub fn tell(url: &str, news: &str) {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    redis::cmd("RPUSH").arg(NEWS).arg(news).exec(&mut connection).unwrap();
}

/// Waits for the next news of a peer.
pub fn hear(server: &Server) -> String {
    let news: Option<(String, String)> = server.ask(&["BLPOP", NEWS, &LONG.as_secs().to_string()]);
    news.expect("news of the other process").1
}

/// Where Cargo put a program of this project, `--example` or `--bench`. Cargo builds the program first if it is out of date.
pub fn built(kind: &str, name: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--message-format=json", kind, name]).current_dir(ROOT);
    // Whatever ran this test has set these. With them Cargo would build ring another time, and all that needs it.
    let is_set = |name: &str| {
        name == "RUSTC_BOOTSTRAP" || ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|of| name.starts_with(of))
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_set)) {
        cargo.env_remove(name);
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let mut built = lines.filter_map(|line: serde_json::Value| Some(line["executable"].as_str()?.to_owned()));
    built.next_back().expect("an executable")
}
