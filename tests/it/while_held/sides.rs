//! The side of a writer, whose thread may read, too, and go on with that.

use super::unanswered::keep_back;
use super::{bytes, get, read_write, set};
use crate::proxy::{Proxy, deliver};
use crate::server::Server;
use crate::threads::{elsewhere, eventually, ms};
use redlatch::{Client, Error, Hold, HoldState, ReadWriteLock, RedLock, RedLockExt};

#[test]
fn who_reads_writes_nothing_and_who_writes_does() {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| read_write(&server));
    let (write, read) = (locks.write().guard("n").unwrap(), locks.read().guard("n").unwrap());
    let run = |hold: &Hold| locks.write().while_held(hold, &[set("a", "1")]);
    assert_eq!(run(write.hold()).unwrap(), [bytes("OK")]);
    assert_err!(run(read.hold()), Config);
    let hold = write.hold().clone();
    write.unlock().unwrap();
    server.ask::<i64>(&["DEL", "a"]);
    assert_err!(run(&hold), NotHeld);
    assert_err!(run(read.hold()), Config);
    assert_eq!(get(&server, "a"), None);
    read.unlock().unwrap();
    let write = other.write().guard("n").unwrap();
    assert_err!(run(write.hold()), Config);
    write.unlock().unwrap();
}

/// The thread reads on, by a field of its own, and others read beside it.
#[test]
fn nothing_is_run_when_the_writer_was_forced_out_over_its_reader() {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| read_write(&server));
    let (write, read) = (locks.write().guard("n").unwrap(), locks.read().guard("n").unwrap());
    assert!(other.write().force_unlock("n").unwrap());
    assert_err!(locks.write().while_held(write.hold(), &[set("a", "1")]), Lost);
    assert_eq!((get(&server, "a"), write.hold().state()), (None, HoldState::Lost));
    assert!(read.is_valid() && elsewhere(|| other.read().try_lock("n").unwrap() && other.read().unlock("n").is_ok()));
    assert_err!(write.unlock(), Lost);
    read.unlock().unwrap();
}

#[test]
fn a_late_copy_runs_nothing_after_a_downgrade() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = ReadWriteLock::new(&Client::connect(&proxy.url()).unwrap());
    let (write, read) = (locks.write().guard("n").unwrap(), locks.read().guard("n").unwrap());
    locks.write().while_held(write.hold(), &[]).unwrap();
    let late = keep_back(&proxy);
    let error = locks.write().while_held(write.hold(), &[set("a", "late")]).unwrap_err();
    assert!(matches!(error, Error::CommandsUnknown { .. }), "{error:?}");
    write.unlock().unwrap();
    let answer = deliver(&server.socket(), &late.lock().unwrap()).unwrap();
    assert_eq!((answer.as_str(), get(&server, "a")), (":0\r\n", None));
    assert!(read.is_valid() && locks.read().verify(read.hold()).unwrap());
    read.unlock().unwrap();
}

/// Its field stays for as long as somebody reads under it and nobody has freed it: its holder sends nothing any more.
#[test]
fn nothing_is_sent_beyond_a_write_lease_that_a_reader_outlives() {
    let server = Server::start();
    let locks = read_write(&server);
    let write = locks.write().request("n").lease(ms(1_000)).guard().unwrap().unwrap();
    let read = locks.read().guard("n").unwrap();
    locks.write().while_held(write.hold(), &[set("a", "1")]).unwrap();
    let before = server.commands_during(|| {
        eventually(ms(5_000), "it is over", || !write.is_valid());
        assert_err!(locks.write().while_held(write.hold(), &[set("a", "2")]), Lost);
    });
    assert!(!before.iter().any(|command| command.contains("\"a\"")), "{before:?}");
    assert_eq!(get(&server, "a").as_deref(), Some("1"));
    assert_err!(write.unlock(), Lost);
    read.unlock().unwrap();
    server.clear();
}
