//! What the commands for people on call print, and how they end.

use crate::tool::{Said, ends, lines, says, starts, tool};
use harness::server::{Server, Signal, signal};
use harness::threads::{LONG, eventually};
use redlatch::{Client, LeasedSemaphore, ReadWriteLock, RedLock, RedLockExt, ReentrantLock};
use std::io::Write;
use std::process::Stdio;

#[test]
fn status_says_who_holds_a_lock_and_how_many_wait() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().app_name("shop").build().unwrap());
    let free = says(&server, &["status", "n"]);
    assert_eq!((free.code, free.out.as_str()), (Some(1), "n: free\n"));
    let guard = locks.guard("n").unwrap();
    let held = says(&server, &["status", "n"]);
    let host = format!("shop@{}", rustix::system::uname().nodename().to_str().unwrap());
    assert_eq!(held.code, Some(0), "{held:?}");
    assert!(held.out.starts_with("n: held\n") && held.out.contains(&host), "{held:?}");
    assert!(
        held.out.contains(&format!(":{}, thread", std::process::id())) && held.out.contains("unless renewed"),
        "{held:?}"
    );
    std::thread::scope(|scope| {
        let other = server.locks();
        scope.spawn(move || drop(other.guard("n").unwrap()));
        eventually(LONG, "one waits", || says(&server, &["status", "n"]).out.contains("waiting  1 process\n"));
        guard.unlock().unwrap();
    });
}

#[test]
fn each_kind_has_words_of_its_own() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    let sides = ReadWriteLock::new(&client);
    let _reader = sides.read().guard("rw").unwrap();
    let semaphore = LeasedSemaphore::new(&client);
    semaphore.try_set_permits("sem", 3).unwrap();
    let _permit = semaphore.try_acquire("sem", 1).unwrap();
    let _: () = server.ask(&["RPUSH", "list", "x"]);
    let said = says(&server, &["status", "rw", "sem", "list", "--json"]);
    let lines: Vec<serde_json::Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<_> = lines.iter().map(|line| line["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["readers", "counter", "other"], "{said:?}");
    assert_eq!((&lines[1]["left"], &lines[1]["permits_out"]), (&2.into(), &1.into()));
    assert_eq!(said.code, Some(2), "a counter is no lock");
    assert_eq!(lines[0]["waiting_processes"], serde_json::Value::Null, "who waits for it is in no queue");
    let listed = says(&server, &["list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(listed["waiting_processes"], serde_json::Value::Null, "{listed}");
    let people = says(&server, &["status", "rw", "list"]);
    assert!(people.out.contains("rw: held by readers") && people.out.contains("is refused"), "{people:?}");
    let _: () = server.ask(&["DEL", "list"]);
}

/// `run` would wait for its end, and a name that says "no lock" would send people elsewhere.
#[test]
fn a_foreign_hash_is_said_to_be_in_the_way() {
    let server = Server::start();
    let _: () = server.ask(&["HSET", "n", "some", "thing"]);
    let status = says(&server, &["status", "n"]);
    assert!(status.code == Some(2) && status.out.contains("waits for its end"), "{status:?}");
    let run = says(&server, &["run", "--wait", "0s", "n", "--", "true"]);
    assert!(run.code == Some(75) && run.err.contains("which is no lock"), "{run:?}");
    let unlock = says(&server, &["unlock", "--yes", "n"]);
    assert!(unlock.code == Some(64) && unlock.err.contains("another program's"), "{unlock:?}");
    let _: () = server.ask(&["DEL", "n"]);
}

#[test]
fn list_finds_locks_and_nothing_else() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().key_prefix("a*:").build().unwrap());
    let guards: Vec<_> = (0..30).map(|at| locks.guard(&format!("order:{at}")).unwrap()).collect();
    let _: () = server.ask(&["HSET", "a*:none", "field", "1"]);
    let _: () = server.ask(&["HSET", "ab:order:1", "00000000-0000-0000-0000-000000000000:1:1", "1"]);
    let listed = says(&server, &["list", "--prefix", "a*:", "--match", "order:*", "--json"]);
    assert_eq!((listed.code, listed.out.lines().count()), (Some(0), 30), "{listed:?}");
    let table = says(&server, &["list", "--prefix", "a*:", "--match", "order:1?"]);
    assert_eq!((table.out.lines().count(), table.out.starts_with("NAME")), (11, true), "{table:?}");
    drop(guards);
    let _: () = server.ask(&["DEL", "a*:none", "ab:order:1"]);
}

#[test]
fn unlock_frees_only_whom_it_has_shown() {
    let server = Server::start();
    let locks = server.locks();
    assert_eq!(says(&server, &["unlock", "n", "--yes"]).out, "n: free\n");
    locks.lock("n").unwrap();
    let asked = says(&server, &["unlock", "n"]);
    assert_eq!((asked.code, asked.err.contains("give --yes")), (Some(64), true), "{asked:?}");
    let freed = says(&server, &["unlock", "n", "--yes"]);
    assert!(freed.code == Some(0) && freed.out.contains("freed"), "{freed:?}");
    assert!(!server.locks().is_locked("n").unwrap());
}

/// What becomes of the holder depends on who it is.
#[test]
fn unlock_tells_what_becomes_of_the_holder() {
    let server = Server::start();
    let gone = "00000000-0000-0000-0000-000000000001";
    for (field, told) in
        [(format!("{gone}:7:1700000000000000"), "is not connected"), (format!("{gone}:7"), "of Redisson")]
    {
        let _: () = server.ask(&["HSET", "n", &field, "1"]);
        let freed = says(&server, &["unlock", "n", "--yes"]);
        assert_eq!((freed.code, freed.out.contains(told)), (Some(0), true), "{freed:?}");
    }
}

/// Who may not list connections does not know who is connected, and says of nobody that he is gone.
#[test]
fn a_holder_that_cannot_be_looked_for_is_not_said_to_be_gone() {
    let server = Server::start();
    let url = server.let_in("ops", "secret", "~* &* +@all -client|list");
    let locks = server.locks();
    locks.lock("n").unwrap();
    let client = locks.client().id().to_string();
    for words in [&["status", "n"][..], &["list"], &["status", "--json", "n"]] {
        let said: Said = tool(&url, words).output().unwrap().into();
        assert!(said.code == Some(0) && said.out.contains(&client) && !said.out.contains("gone?"), "{said:?}");
        assert!(said.err.contains("without their processes"), "{said:?}");
    }
    let freed: Said = tool(&url, &["unlock", "--yes", "n"]).output().unwrap().into();
    assert!(freed.code == Some(0) && freed.out.contains("at its next renewal"), "{freed:?}");
}

/// Somebody else gets the lock between the look and the word.
#[test]
fn unlock_frees_no_holder_that_came_after() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    let locks = ReentrantLock::new(&client);
    let inspector = redlatch::inspect::Inspector::new(&client);
    let guard = locks.guard("n").unwrap();
    let seen = inspector.look("n").unwrap();
    guard.unlock().unwrap();
    let guard = locks.guard("n").unwrap();
    assert!(!inspector.free(&seen).unwrap() && locks.verify(guard.hold()).unwrap());
    assert!(inspector.free(&inspector.look("n").unwrap()).unwrap() && !locks.verify(guard.hold()).unwrap());
}

#[test]
fn unlock_wakes_who_waits() {
    let server = Server::start();
    for kind in ["reentrant", "fair", "write"] {
        let held = starts(&server, &["run", "n", "--kind", kind, "--", "sleep", "20"]);
        eventually(LONG, "it is held", || server.locks().is_locked("n").unwrap());
        let waits = starts(&server, &["run", "n", "--kind", kind, "--", "true"]);
        eventually(LONG, "one waits", || waiting(&server, kind));
        assert_eq!(says(&server, &["unlock", "n", "--yes"]).code, Some(0));
        assert_eq!(ends(waits).code, Some(0), "{kind}");
        // Its lock is gone, and it learns of it at its next renewal.
        signal(Signal::KILL, held.id()).unwrap();
        ends(held);
        server.clear();
    }
}

/// A writer that waits has no queue; it listens.
fn waiting(server: &Server, kind: &str) -> bool {
    match kind {
        "write" => server.subscribers("redisson_rwlock:{n}") > 0,
        _ => says(server, &["status", "n"]).out.contains("waiting"),
    }
}

#[test]
fn watch_tells_each_change_once() {
    let server = Server::start();
    let locks = server.locks();
    let mut watching = starts(&server, &["watch", "n", "--every", "20ms", "--json"]);
    let mut lines = lines(&mut watching);
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines()).unwrap()["state"].clone();
    assert_eq!(next(), "free");
    locks.lock("n").unwrap();
    assert_eq!(next(), "lock");
    locks.unlock("n").unwrap();
    assert_eq!(next(), "free");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn watch_ends_when_nobody_reads() {
    let server = Server::start();
    let url = server.url();
    let mut watching = tool(&url, &["watch", "n", "--every", "20ms"]).stdout(Stdio::piped()).spawn().unwrap();
    // One line is read, and then the pipe is closed.
    let mut line = [0; 40];
    std::io::Read::read_exact(&mut watching.stdout.take().unwrap(), &mut line[..34]).unwrap();
    assert!(line.starts_with(b"20") && line[..34].ends_with(b"n  free\n"), "{line:?}");
    // No lock changes, so nothing is written that could fail.
    eventually(LONG, "it has ended", || watching.try_wait().unwrap().is_some_and(|status| status.code() == Some(141)));
}

#[test]
fn watch_tells_of_an_outage_and_of_its_end() {
    let mut server = Server::start();
    let mut watching = starts(&server, &["watch", "n", "--every", "20ms", "--json"]);
    let mut lines = lines(&mut watching);
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines()).unwrap()["state"].clone();
    assert_eq!(next(), "free");
    server.kill();
    assert_eq!(next(), "unknown");
    server.restart();
    assert_eq!(next(), "free");
    watching.kill().unwrap();
    assert!(ends(watching).err.contains("answers again"));
}

/// A template of a unit or a pod sets all variables, some of them to nothing.
#[test]
fn an_empty_variable_is_not_set() {
    let server = Server::start();
    let mut command = tool(&server.url(), &["status", "n"]);
    for name in
        ["USER", "PASSWORD_FILE", "SENTINEL_USER", "CA", "CERT", "KEY", "SERVER_NAME", "STRICT", "SYNC_REPLICAS"]
    {
        command.env(format!("REDLATCH_{name}"), "");
    }
    let said: Said = command.output().unwrap().into();
    assert_eq!((said.code, said.out.as_str()), (Some(1), "n: free\n"), "{said:?}");
    let wrong: Said = tool(&server.url(), &["status", "n"]).env("REDLATCH_STRICT", "banana").output().unwrap().into();
    assert_eq!((wrong.code, wrong.err.contains("write 1 or 0")), (Some(64), true), "{wrong:?}");
    let half: Said = tool(&server.url(), &["status", "n"]).env("REDLATCH_CERT", "/x").output().unwrap().into();
    assert_eq!((half.code, half.err.contains("give both")), (Some(64), true), "{half:?}");
}

#[test]
fn a_password_is_not_in_the_command_line() {
    let server = Server::start();
    let url = server.let_in("app", "secret", "~* &* +@all");
    let said = tool("", &["status", "n", "--url", &server.url_as("app", "secret")]).output().unwrap();
    assert_eq!(said.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&said.stderr).contains("REDLATCH_PASSWORD"));
    assert_eq!(tool(&url, &["status", "n"]).output().unwrap().status.code(), Some(1));
    let by_word =
        tool(&server.url(), &["status", "n", "--user", "app"]).env("REDLATCH_PASSWORD", "secret").output().unwrap();
    assert_eq!(by_word.status.code(), Some(1), "{by_word:?}");
    let file = std::env::temp_dir().join(format!("redlatch-tool-{}", std::process::id()));
    std::fs::File::create(&file).unwrap().write_all(b"secret\n").unwrap();
    let words = ["status", "n", "--user", "app", "--password-file", file.to_str().unwrap()];
    assert_eq!(tool(&server.url(), &words).output().unwrap().status.code(), Some(1));
    std::fs::remove_file(file).unwrap();
    let wrong =
        tool(&server.url(), &["status", "n", "--user", "app"]).env("REDLATCH_PASSWORD", "wrong").output().unwrap();
    assert_eq!(wrong.status.code(), Some(77), "{wrong:?}");
    let told = String::from_utf8_lossy(&wrong.stderr).contains("REDLATCH_PASSWORD or the password file");
    assert!(told, "in words of the tool: {wrong:?}");
    for words in [&["watch", "n"][..], &["run", "--wait", "1h", "n", "--", "true"]] {
        let words = [&["--user", "app"], words].concat();
        let mut command = tool(&server.url(), &words);
        let command = command.env("REDLATCH_PASSWORD", "wrong").stdout(Stdio::piped()).stderr(Stdio::piped());
        let said = ends(command.spawn().unwrap());
        assert_eq!(said.code, Some(77), "{words:?}: {said:?}");
    }
}

#[test]
fn a_wrong_use_ends_with_64_and_a_server_that_is_away_with_69() {
    let server = Server::start();
    for words in
        [&["run", "n"][..], &["status"], &["run", "--wait", "5", "n", "--", "true"], &["nonsense"], &["status", ""]]
    {
        assert_eq!(says(&server, words).code, Some(64), "{words:?}");
    }
    for words in
        [&["status", "n"][..], &["list"], &["deadlocks"], &["run", "--wait", "1s", "n", "--", "true"], &["doctor"]]
    {
        let away = tool("unix:///nowhere/at/all", words).stdout(Stdio::piped()).output().unwrap();
        assert_eq!(away.status.code(), Some(69), "{words:?}: {away:?}");
    }
    assert_eq!(says(&server, &["--help"]).code, Some(0));
    assert_eq!(says(&server, &["--version"]).out, format!("redlatch {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn bench_leaves_no_key() {
    let server = Server::start();
    let said = says(&server, &["bench", "--seconds", "100ms", "--threads", "4", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert!(report["pairs_a_second_apart"].as_f64().unwrap() > 1.0, "{said:?}");
    assert!(!server.ask::<Vec<String>>(&["KEYS", "*"]).iter().any(|key| key.contains("bench")));
}

#[test]
fn a_page_for_each_command_and_completions_are_made() {
    let server = Server::start();
    let folder = std::env::temp_dir().join(format!("redlatch-man-{}", std::process::id()));
    assert_eq!(says(&server, &["man", folder.to_str().unwrap()]).code, Some(0));
    let pages = std::fs::read_dir(&folder).unwrap().count();
    assert!(pages >= 10 && folder.join("redlatch-deadlocks.1").exists(), "{pages}");
    std::fs::remove_dir_all(folder).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        assert!(says(&server, &["completions", shell]).out.contains("deadlocks"));
    }
}

#[test]
fn a_client_names_its_process_to_all() {
    let server = Server::start();
    let client: Client = server.builder().build().unwrap();
    drop(ReentrantLock::new(&client).guard("n").unwrap());
    let processes = redlatch::inspect::Inspector::new(&client).processes().unwrap();
    let process = processes.of(&client.id()).expect("it is connected");
    assert_eq!((process.pid, process.app.starts_with("it-")), (std::process::id(), true), "{process:?}");
}

#[test]
fn the_user_of_the_page_may_look_and_change_nothing() {
    let server = Server::start();
    let page = std::fs::read_to_string(format!("{}/docs/tool.md", harness::ROOT)).unwrap();
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER onlooker")).unwrap();
    // Redis 6.0 has no rules for channels.
    let channels = |word: &&str| word.starts_with('&') || *word == "resetchannels";
    let words: Vec<_> = line.split(' ').filter(|word| server.version() >= (6, 2) || !channels(word)).collect();
    let _: () = server.ask(&words);
    let locks = server.locks();
    let _guard = locks.guard("n").unwrap();
    let says = |words: &[&str]| tool(&server.url_as("onlooker", "PASSWORD"), words).output().unwrap();
    let asked = says(&["deadlocks"]);
    assert_eq!((asked.status.code(), asked.stderr.is_empty()), (Some(0), true), "{asked:?}");
    for words in [&["status", "n"][..], &["list"]] {
        let said = says(words);
        let shown = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.status.success() && said.stderr.is_empty() && shown.contains("it-"), "{said:?}");
    }
    let freed = says(&["unlock", "--yes", "n"]);
    assert!(!freed.status.success() && locks.is_locked("n").unwrap(), "{freed:?}");
    assert!(!says(&["run", "--wait", "0s", "m", "--", "true"]).status.success());
}
