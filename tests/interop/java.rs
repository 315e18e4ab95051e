//! The Java program beside a test: a JVM that does what it is told, on threads that a command names.

use crate::servers::Servers;
use crate::setting::Program;
use crate::threads::{LONG, eventually};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a JVM may take for whatever it is told.
const ANSWER: Duration = Duration::from_secs(180);

/// Redisson trips over a refusal that comes when it has given the command up and closes the connection, as it does with those to
/// nodes that change their parts. It logs that, and goes on.
const ITS_OWN: &str = r#"CommandData.tryFailure(java.lang.Throwable)" because "data" is null"#;

/// When a call began and ended: nanoseconds of the clock that all processes of a machine share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

impl Span {
    pub(crate) fn length(self) -> Duration {
        Duration::from_nanos(self.ended - self.began)
    }

    /// How long after the beginning of what freed it this call ended.
    pub(crate) fn after(self, freed: Self) -> Duration {
        Duration::from_nanos(self.ended.saturating_sub(freed.began))
    }
}

/// An answer: the value, or the Java exception.
type Answer = (Result<String, String>, Span);

/// Those who wait for an answer, by the number of their command; none once the program has ended.
type Asked = Arc<Mutex<Option<HashMap<u64, Sender<Answer>>>>>;

/// A JVM with the locks of one program. In the end it has to exit by itself and to have logged nothing.
pub(crate) struct Jvm {
    child: Child,
    commands: Mutex<Option<ChildStdin>>,
    asked: Asked,
    numbers: AtomicU64,
    log: Arc<Mutex<String>>,
}

/// Where `scripts/interop` put the Java side.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("REDLATCH_INTEROP").expect("run these tests by scripts/interop, which builds the Java side").into()
}

fn argument_of(program: Program) -> &'static str {
    match program {
        Program::Jedis => "jedis",
        Program::Redisson => "redisson",
        Program::Sharded => "sharded",
        Program::Unsharded => "plain",
    }
}

impl Jvm {
    /// Starts one and comes back when its client is connected.
    pub(crate) fn start(program: Program, servers: &Servers, watchdog: Duration, prefix: &str) -> Self {
        let mut command = Command::new("java");
        let classes = format!("{0}/classes:{0}/lib/*", folder().display());
        command.args([
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            &classes,
            "redlatch.interop.Peer",
            argument_of(program),
            &servers.addresses(),
        ]);
        command.args([&watchdog.as_millis().to_string(), prefix]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("java is on the PATH");
        let asked = Asked::new(Mutex::new(Some(HashMap::new())));
        listen(child.stdout.take().unwrap(), Arc::clone(&asked));
        let log = collect(child.stderr.take().unwrap());
        let commands = Mutex::new(child.stdin.take());
        let jvm = Self { child, commands, asked, numbers: AtomicU64::new(0), log };
        jvm.ask("main", &["ready"]).0.unwrap();
        jvm
    }

    /// Has a thread do something, and waits for it.
    #[track_caller]
    pub(crate) fn ask(&self, thread: &str, words: &[&str]) -> Answer {
        // What it logged is told when it is dropped.
        self.begin(thread, words).recv_timeout(ANSWER).expect("an answer")
    }

    /// Has a thread do something, and does not wait. Nobody answers if the JVM is killed.
    pub(crate) fn begin(&self, thread: &str, words: &[&str]) -> Receiver<Answer> {
        let number = self.numbers.fetch_add(1, SeqCst);
        let (tell, told) = channel();
        self.asked.lock().unwrap().as_mut().expect("the JVM runs").insert(number, tell);
        let line = format!("{number}\t{thread}\t{}\n", words.join("\t"));
        self.commands.lock().unwrap().as_mut().expect("the JVM runs").write_all(line.as_bytes()).unwrap();
        told
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it after a failover: SIGKILL, and whatever it logged. Redisson logs errors of its own connections when a master
    /// gives way, and when it shuts down while it still connects to the old one; they say nothing of a lock.
    pub(crate) fn end_after_failover(&mut self) {
        self.kill();
        eventually(LONG, "the log is complete", || Arc::strong_count(&self.log) == 1);
        self.log.lock().unwrap().clear();
    }

    /// What it logged since it was last asked, when there is something.
    pub(crate) fn complaint(&self) -> String {
        eventually(LONG, "the JVM logs something", || !self.log.lock().unwrap().is_empty());
        // The log comes in pieces: the rest of it within a moment.
        std::thread::sleep(Duration::from_millis(500));
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Ends it by the end of its input.
    fn end(&mut self) {
        self.commands.lock().unwrap().take();
        eventually(LONG, "the JVM ends", || self.child.try_wait().unwrap().is_some());
        // The thread that collects it drops its clone at the end of stderr.
        eventually(LONG, "the log is complete", || Arc::strong_count(&self.log) == 1);
        self.assert_content();
    }

    fn assert_content(&self) {
        let log = self.log.lock().unwrap().clone();
        let mut entries = log.split("\nERROR ").flat_map(|part| part.split("\nWARN "));
        let is_well = entries.all(|entry| entry.is_empty() || entry.contains(ITS_OWN));
        assert!(is_well, "the Java side logged a warning or an error: {log}");
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            eprintln!("{}", self.log.lock().unwrap());
        } else {
            self.end();
        }
    }
}

/// A JVM that one case has. When it is over the next one on the shared servers that wants the same gets it: a Redisson takes seconds
/// to start.
pub(crate) struct Lent {
    jvm: Option<Jvm>,
    kept_as: Option<Kept>,
}

/// With the watchdog's time-out and the prefix.
type Kept = (Program, Duration, String);

/// Those that nobody has. They end with this process, which is the end of their input.
static IDLE: Mutex<Vec<(Kept, Jvm)>> = Mutex::new(Vec::new());

impl Lent {
    /// One that ends with its case.
    pub(crate) fn once(jvm: Jvm) -> Self {
        Self { jvm: Some(jvm), kept_as: None }
    }

    pub(crate) fn of(program: Program, servers: &Servers, watchdog: Duration, prefix: &str) -> Self {
        let kept = (program, watchdog, prefix.to_owned());
        let jvm = take_idle(&kept).unwrap_or_else(|| Jvm::start(program, servers, watchdog, prefix));
        // That on Jedis always listens to a channel, and would be what a case left.
        Self { jvm: Some(jvm), kept_as: Some(kept).filter(|_| program != Program::Jedis) }
    }
}

fn take_idle(kept: &Kept) -> Option<Jvm> {
    let mut idle = IDLE.lock().unwrap();
    let place = idle.iter().position(|(other, _)| other == kept)?;
    Some(idle.swap_remove(place).1)
}

impl Deref for Lent {
    type Target = Jvm;

    fn deref(&self) -> &Jvm {
        self.jvm.as_ref().expect("it is given back in the end")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Jvm {
        self.jvm.as_mut().expect("it is given back in the end")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let runs = self.child.try_wait().unwrap().is_none();
        let kept = self.kept_as.take().filter(|_| runs && !std::thread::panicking());
        if let Some(kept) = kept {
            self.assert_content();
            IDLE.lock().unwrap().extend(self.jvm.take().map(|jvm| (kept, jvm)));
        }
    }
}

/// Passes answers on to those who asked.
fn listen(answers: ChildStdout, asked: Asked) {
    std::thread::spawn(move || {
        for line in BufReader::new(answers).lines().map_while(Result::ok) {
            let words: Vec<_> = line.splitn(5, '\t').collect();
            let [number, began, ended, outcome, value] = words[..] else { panic!("not an answer: {line:?}") };
            let span = Span { began: began.parse().unwrap(), ended: ended.parse().unwrap() };
            let value = if outcome == "ok" { Ok(value.to_owned()) } else { Err(value.to_owned()) };
            let asker = asked.lock().unwrap().as_mut().and_then(|asked| asked.remove(&number.parse().unwrap()));
            // A test that failed no longer listens.
            let _ = asker.expect("it was asked").send((value, span));
        }
        asked.lock().unwrap().take();
    });
}

/// Collects what the program logs until its end.
fn collect(mut errors: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let log = Arc::new(Mutex::new(String::new()));
    let collected = Arc::clone(&log);
    std::thread::spawn(move || {
        let mut piece = [0; 4_096];
        while let Ok(length @ 1..) = errors.read(&mut piece) {
            collected.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..length]));
        }
    });
    log
}
