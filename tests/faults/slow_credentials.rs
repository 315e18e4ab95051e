//! Row 123: the callback that gives credentials does not answer for long.

use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, lost_within, ms, timed};
use crate::{LEASE, locks_of};
use redlatch::{ClientBuilder, Credentials, Error, LossCause, RedLock, RedLockExt, Result};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Where the callback gets them from, which takes so many ms.
#[derive(Clone, Default)]
struct Vault(Arc<AtomicU64>);

impl Vault {
    fn take(&self, span: Duration) {
        self.0.store(span.as_millis() as u64, SeqCst);
    }

    fn builder(&self, server: &Server) -> ClientBuilder {
        server.let_in("app", "right", "~* &* +@all");
        let vault = self.clone();
        let ask = move || {
            let asked = Mark::now();
            while asked.elapsed().real() < ms(vault.0.load(SeqCst)) {
                std::thread::sleep(ms(1));
            }
            Ok::<_, std::io::Error>(Credentials::new("app", "right"))
        };
        redlatch::Client::builder(&server.url()).credentials(ask)
    }
}

/// That a call gave up when its time was over, and says why.
#[track_caller]
fn assert_in_time<T: Debug>(span: Duration, call: impl FnOnce() -> Result<T>) {
    let (told, took) = timed(call);
    let error = told.unwrap_err();
    assert!(took <= span + SOON, "{error} after {took:?}");
    assert!(
        matches!(error, Error::Unavailable { .. }) && error.to_string().contains("has not answered yet"),
        "{error}"
    );
}

#[test]
fn fault_123_a_callback_that_blocks_keeps_no_call_and_no_loss_beyond_its_time() {
    const ANSWER: Duration = Duration::from_millis(300);
    const BUDGET: Duration = Duration::from_millis(500);
    let (server, vault) = (Server::start(), Vault::default());
    let builder = vault.builder(&server).watchdog_timeout(LEASE).response_timeout(ANSWER).outage_budget(BUDGET);
    let locks = locks_of(builder);
    let held = locks.guard("held").unwrap();
    vault.take(LONG);
    let _: i64 = server.ask(&["CLIENT", "KILL", "USER", "app"]);
    // The first finds a connection that was open.
    let _ = locks.client().ping(ms(100));
    assert_in_time(ms(100), || locks.client().ping(ms(100)));
    assert_in_time(ms(200), || locks.try_lock_for("n", ms(200)));
    assert_in_time(ANSWER, || locks.try_lock("n"));
    assert_in_time(BUDGET, || locks.lock("n"));
    assert_in_time(BUDGET, || locks.is_locked("n"));
    assert_eq!(lost_within(LEASE + SOON, &held), LossCause::Expired);
    vault.take(Duration::ZERO);
    eventually(LONG, "it answers", || locks.guard("n").is_ok());
    drop(held);
    server.clear();
}

/// Its answer is kept for the next call: none of them has the time that the callback takes.
#[test]
fn fault_123_calls_that_have_less_time_than_the_callback_takes_connect_in_the_end() {
    let (server, vault) = (Server::start(), Vault::default());
    let locks = locks_of(vault.builder(&server));
    vault.take(ms(300));
    eventually(LONG, "a call is answered", || {
        let is_taken = locks.try_lock_for("n", ms(50)).is_ok_and(|taken| taken);
        std::thread::sleep(ms(600));
        is_taken
    });
    locks.unlock("n").unwrap();
}
