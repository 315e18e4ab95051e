//! Writes what each command prints in a real terminal into docs/tool.md: scripts/tool-docs runs it.

use harness::server::Server;
use harness::threads::{LONG, eventually};
use portable_pty::{CommandBuilder, NativePtySystem, PtySize, PtySystem};
use redlatch::{CancelToken, LeasedSemaphore, ReadWriteLock, RedLock, RedLockExt, ReentrantLock, Terms};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{Builder, scope, spawn};
use std::time::Duration;

const ROWS: u16 = 24;
const COLUMNS: u16 = 100;

/// What stands between these marks is written here.
const BEGIN: &str = "<!-- outputs: scripts/tool-docs writes them -->\n";
const END: &str = "<!-- end of the outputs -->";

/// What a terminal shows when a command has ended, or after `keys` were typed once it shows `waits_for`.
fn screen(url: &str, words: &[&str], typed: Option<(&str, &str)>) -> String {
    let size = PtySize { rows: ROWS, cols: COLUMNS, pixel_width: 0, pixel_height: 0 };
    let pair = NativePtySystem::default().openpty(size).unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_redlatch"));
    command.args(words);
    command.env("REDLATCH_URL", url);
    command.env("TERM", "xterm");
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let (mut reader, mut writer) = (pair.master.try_clone_reader().unwrap(), pair.master.take_writer().unwrap());
    let parser = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
    let seen = Arc::clone(&parser);
    let reading = spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            seen.lock().unwrap().process(&bytes[..count]);
        }
    });
    let contents = || parser.lock().unwrap().screen().contents();
    let mut shown = None;
    if let Some((waits_for, keys)) = typed {
        eventually(LONG, waits_for, || contents().contains(waits_for));
        shown = Some(contents());
        writer.write_all(keys.as_bytes()).unwrap();
        writer.flush().unwrap();
    }
    let status = child.wait().unwrap();
    drop(pair.master);
    let _ = reading.join();
    let is_full_screen = words[0] == "top";
    let text = shown.filter(|_| is_full_screen).unwrap_or_else(contents);
    // As a shell tells it. Ctrl-C is the only signal here.
    let code = if status.signal().is_some() { 130 } else { status.exit_code() };
    let code = if is_full_screen { String::new() } else { format!("\n[{code}]") };
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let quoted = |word: &&str| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() };
    let words: Vec<_> = words.iter().map(quoted).collect();
    format!("$ redlatch {}\n{}{code}", words.join(" "), lines.join("\n").trim_end())
}

fn main() {
    let server = Server::start_on_tcp();
    let client = server.builder().app_name("shop").build().unwrap();
    let locks = ReentrantLock::new(&client);
    let order = locks.guard("order:42").unwrap();
    let sides = ReadWriteLock::new(&client);
    let _reader = sides.read().guard("catalog").unwrap();
    let semaphore = LeasedSemaphore::new(&client);
    semaphore.try_set_permits("import", 3).unwrap();
    let _permit = semaphore.try_acquire("import", 1).unwrap();
    let url = server.tcp_url();
    let mut all = Vec::new();
    scope(|scope| {
        let other = server.builder().app_name("mailer").build().unwrap();
        let wait = move || drop(ReentrantLock::new(&other).guard("order:42").unwrap());
        Builder::new().name("sender".to_owned()).spawn_scoped(scope, wait).unwrap();
        std::thread::sleep(Duration::from_millis(1_500));
        all.push(screen(&url, &["status", "order:42", "catalog", "import", "order:43"], None));
        all.push(screen(&url, &["status", "--json", "order:42"], None));
        all.push(screen(&url, &["list"], None));
        all.push(screen(&url, &["top"], Some(("OLDEST", "q"))));
        all.push(screen(&url, &["run", "--wait", "100ms", "order:42", "--", "echo", "hello"], None));
        all.push(screen(&url, &["unlock", "order:42"], Some(("[y/N]", "y\n"))));
        let _ = order.unlock();
    });
    all.push(circle(&server));
    all.push(screen(&url, &["run", "report", "--", "echo", "hello"], None));
    all.push(screen(&url, &["run", "report", "--", "sh", "-c", "exit 3"], None));
    all.push(screen(&url, &["watch", "order:42"], Some(("order:42", "\u{3}"))));
    all.push(screen(&url, &["doctor"], None));
    all.push(screen(&url, &["bench", "--yes", "--seconds", "500ms"], None));
    write(&all);
}

/// What is printed while two threads wait for each other.
fn circle(server: &Server) -> String {
    let (token, both) = (CancelToken::new(), Barrier::new(2));
    let cross = |app: &str, [holds, waits]: [&str; 2]| {
        let locks = ReentrantLock::new(&server.builder().app_name(app).build().unwrap());
        let _guard = locks.guard(holds).unwrap();
        both.wait();
        let _ = locks.acquire(waits, &Terms::new().cancelled_by(&token));
    };
    scope(|scope| {
        let named = |name: &str| Builder::new().name(name.to_owned());
        named("checkout").spawn_scoped(scope, || cross("shop", ["order:43", "stock:7"])).unwrap();
        named("sender").spawn_scoped(scope, || cross("mailer", ["stock:7", "order:43"])).unwrap();
        std::thread::sleep(Duration::from_millis(1_500));
        let shown = screen(&server.tcp_url(), &["deadlocks"], None);
        token.cancel();
        shown
    })
}

fn write(all: &[String]) {
    let page = format!("{}/docs/tool.md", harness::ROOT);
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the mark");
    let (_, after) = rest.split_once(END).expect("the end mark");
    let mut outputs = String::from("A number in brackets is the exit code.\n\n");
    all.iter().for_each(|output| write!(outputs, "```text\n{output}\n```\n\n").expect("a string takes it"));
    std::fs::write(page, format!("{before}{BEGIN}{outputs}{END}{after}")).unwrap();
}
