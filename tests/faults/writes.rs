//! Rows 115 and 116: what a holder writes to the lock's own Redis by `while_held`.

use crate::process::{hear, tell, with_peer};
use crate::proxy::{Flow, Proxy, Step, pass, runs};
use crate::server::Server;
use crate::threads::{LONG, ms};
use redlatch::{Applied, Client, Command, RedLock, RedLockExt, ReentrantLock};

fn count() -> [Command; 1] {
    [Command::new("INCR").key("count")]
}

/// The first exchange is cut before the server has the request, or before the client has the answer.
fn assert_run_once(lost: Flow, times: i64) {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = ReentrantLock::new(&Client::builder(&proxy.url()).response_timeout(ms(300)).build().unwrap());
    let guard = locks.guard("n").unwrap();
    // The server knows the script from here on.
    locks.while_held(guard.hold(), &[]).unwrap();
    let (asks, mut asked, mut cut) = (runs("while_held/run"), false, false);
    proxy.set(move |_, flow, data| {
        asked |= asks(flow, data);
        if !asked || cut || flow != lost {
            return pass(data);
        }
        cut = true;
        vec![Step::Cut]
    });
    let error = locks.while_held(guard.hold(), &count()).unwrap_err();
    assert_eq!((error.applied(), error.is_retryable()), (Applied::Unknown, false), "{error:?}");
    assert_eq!(server.ask::<Option<i64>>(&["GET", "count"]).unwrap_or(0), times);
    assert_eq!(locks.while_held(guard.hold(), &count()).unwrap()[0].integer(), Some(times + 1));
    guard.unlock().unwrap();
    server.clear();
}

#[test]
fn fault_115_commands_without_an_answer_are_not_run_twice() {
    assert_run_once(Flow::Reply, 1);
}

#[test]
fn fault_115_commands_that_did_not_arrive_are_not_sent_again() {
    assert_run_once(Flow::Request, 0);
}

/// It has its answer, or the lock, in mind for as long as it was stopped.
#[test]
fn fault_116_a_holder_that_was_stopped_beyond_its_lease_writes_nothing() {
    with_peer(
        |url| {
            let locks = ReentrantLock::connect(url).unwrap();
            let guard = locks.request("n").renewed_lease(ms(600)).guard().unwrap().unwrap();
            assert!(guard.is_valid());
            tell(url, "held");
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            // Stopped in this wait.
            let wait = redis::cmd("BLPOP").arg("it:go").arg(LONG.as_secs()).take();
            wait.query::<(String, String)>(&mut connection).unwrap();
            assert_err!(locks.while_held(guard.hold(), &count()), Lost);
            assert_err!(guard.unlock(), Lost);
            tell(url, "refused");
        },
        |start| {
            let server = Server::start();
            let locks = server.locks();
            let peer = start(&server);
            assert_eq!(hear(&server), "held");
            peer.freeze();
            let guard = locks.guard("n").unwrap();
            locks.while_held(guard.hold(), &count()).unwrap();
            server.ask::<i64>(&["RPUSH", "it:go", "go"]);
            peer.thaw();
            assert_eq!(hear(&server), "refused");
            let answers = locks.while_held(guard.hold(), &count()).unwrap();
            assert_eq!(answers[0].integer(), Some(2), "nobody else has counted");
            peer.join();
            guard.unlock().unwrap();
            server.clear();
        },
    );
}

/// The server's word counts, whatever its holder believes.
#[test]
fn fault_116_a_hold_that_the_server_does_not_know_writes_nothing() {
    let server = Server::start();
    let (first, second) = (server.locks(), server.locks());
    let late = first.guard("n").unwrap();
    assert!(second.force_unlock("n").unwrap());
    let guard = second.guard("n").unwrap();
    assert!(late.is_valid());
    assert_err!(first.while_held(late.hold(), &count()), Lost);
    assert_eq!(second.while_held(guard.hold(), &count()).unwrap()[0].integer(), Some(1));
    guard.unlock().unwrap();
    assert_err!(late.unlock(), Lost);
    server.clear();
}
