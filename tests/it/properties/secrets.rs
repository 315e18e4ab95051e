//! No password is shown: not in an error, its source or its `Debug`, nor in what is logged, whatever is in it.
//!
//! A password here is made of words of six letters, with what may confuse a URL between them. That none of the words
//! is shown says more than that the whole is not.

use super::check;
use crate::process::alone;
use crate::server::{Server, free_port};
use crate::threads::{LONG, eventually, ms};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use redlatch::{Applied, Client, ClientBuilder, Error, RedLock, RedLockExt, ReentrantLock};
use std::error::Error as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const BETWEEN: [&str; 24] = [
    "", ":", "@", "/", "?", "#", "%", "&", "+", " ", "=", "[", "]", "'", "\"", "\\", "{", "}", "\r\n", "\t", "é", "🔒",
    "%2f", "12",
];

/// Words that must not be shown, and the password that they are part of.
#[derive(Debug, Clone)]
pub(super) struct Password {
    pub(super) words: Vec<String>,
    pub(super) whole: String,
}

pub(super) fn password() -> impl Strategy<Value = Password> {
    let between = || vec(select(BETWEEN.to_vec()), 0..3).prop_map(|parts| parts.concat());
    vec((between(), "[a-zA-Z][a-zA-Z0-9]{7}"), 1..4).prop_map(|parts| Password {
        whole: parts.iter().map(|(between, word)| [&**between, word].concat()).collect(),
        words: parts.into_iter().map(|(_, word)| word).collect(),
    })
}

impl Password {
    /// As a URL should have it.
    pub(super) fn escaped(&self) -> String {
        self.whole
            .bytes()
            .map(
                |byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") },
            )
            .collect()
    }

    /// That none of its words is in a text, in whichever case a URL may bring them.
    fn assert_not_in(&self, text: &str) {
        let text = text.to_lowercase();
        let shown = self.words.iter().find(|word| text.contains(&word.to_lowercase()));
        assert!(shown.is_none(), "{shown:?} of {:?} is shown: {text}", self.whole);
    }

    pub(super) fn assert_hidden_by(&self, shown: &dyn std::fmt::Debug) {
        self.assert_not_in(&format!("{shown:?} {shown:#?}"));
    }

    pub(super) fn assert_hidden_by_error(&self, error: &Error) {
        let mut sources = Vec::new();
        let mut next = error.source();
        while let Some(source) = next {
            sources.push(format!("{source} {source:?}"));
            next = source.source();
        }
        self.assert_not_in(&format!("{error} {error:?} {error:#?} {sources:?}"));
    }

    /// That what fails does, and does not tell.
    pub(super) fn assert_hidden_by_failure<T>(&self, result: redlatch::Result<T>) -> Error {
        let Err(error) = result else { panic!("it should fail") };
        self.assert_hidden_by_error(&error);
        error
    }

    /// That nothing of this crate and those below it logged a word.
    pub(super) fn assert_not_logged(&self) {
        let lines = std::mem::take(&mut *LOG.0.lock().unwrap());
        lines.iter().for_each(|line| self.assert_not_in(line));
    }
}

/// Keeps what is logged, of every crate and level.
struct Log(Mutex<Vec<String>>);

static LOG: Log = Log(Mutex::new(Vec::new()));

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push(format!("{} {} {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

/// Keeps the log of this process, which the test should have for itself.
pub(super) fn keep_log() {
    log::set_logger(&LOG).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
}

/// A client that soon gives up.
fn hasty(url: &str) -> ClientBuilder {
    Client::builder(url).response_timeout(ms(50)).connect_timeout(ms(50)).outage_budget(ms(20))
}

pub(super) fn locks(password: &Password, builder: ClientBuilder) -> ReentrantLock {
    password.assert_hidden_by(&builder);
    let locks = ReentrantLock::new(&builder.build().unwrap());
    password.assert_hidden_by(locks.client());
    password.assert_hidden_by(&locks);
    locks
}

/// Places where a password may be, or was put by mistake.
pub(super) const SHAPES: [&str; 14] = [
    "redis://u:PASSWORD@127.0.0.1",
    "redis://:PASSWORD@127.0.0.1:1/3",
    "redis://u:PASSWORD@127.0.0.1:port",
    "redis://u:PASSWORD@127.0.0.1/database",
    "redis://u:PASSWORD@127.0.0.1/0?nonsense=1",
    "redis://u:PASSWORD@",
    "redis:/u:PASSWORD@127.0.0.1",
    "rediss://u:PASSWORD@127.0.0.1",
    "http://u:PASSWORD@127.0.0.1",
    "u:PASSWORD@127.0.0.1",
    "unix:///nowhere?user=u&pass=PASSWORD",
    "redis+unix:///nowhere?pass=PASSWORD&db=none",
    "unix:///nowhere?user=u&password=PASSWORD",
    "redis://127.0.0.1?password=PASSWORD",
];

#[test]
fn a_url_that_is_none_does_not_show_its_password() {
    check(2_000, (password(), select(SHAPES.to_vec()), any::<bool>()), |(password, shape, escaped)| {
        let inside = if escaped { password.escaped() } else { password.whole.clone() };
        let url = shape.replace("PASSWORD", &inside);
        password.assert_hidden_by(&Client::builder(&url));
        match Client::connect(&url) {
            Ok(client) => password.assert_hidden_by(&client),
            Err(error) => {
                assert!(matches!(error, Error::Config { .. }), "{error:?}");
                password.assert_hidden_by_error(&error);
            }
        }
    });
}

#[test]
fn a_server_out_of_reach_does_not_show_it() {
    alone(|| {
        keep_log();
        let port = free_port();
        check(30, (password(), any::<bool>()), |(password, tcp)| {
            let inside = password.escaped();
            let tcp_url = format!("redis://u:{inside}@127.0.0.1:{port}/");
            let url = if tcp { tcp_url } else { format!("unix:///nowhere/at/all?user=u&pass={inside}") };
            let locks = locks(&password, hasty(&url));
            let error = password.assert_hidden_by_failure(locks.lock("n"));
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
            assert!(!password.assert_hidden_by_failure(locks.try_lock_for("n", ms(5))).to_string().is_empty());
            password.assert_hidden_by_failure(locks.is_locked("n"));
            password.assert_not_logged();
        });
    });
}

#[test]
fn a_server_that_refuses_or_lets_in_does_not_show_it() {
    alone(|| {
        keep_log();
        let server = Server::start();
        check(60, (password(), password()), |(password, wrong)| {
            server.let_in("u", &password.whole, &format!("~n* +@all -publish {}", server.no_channels()));
            let refused = locks(&wrong, Client::builder(&server.url_as("u", &wrong.escaped())));
            let error = wrong.assert_hidden_by_failure(refused.lock("n"));
            assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"), "{error:?}");
            let right = locks(&password, Client::builder(&server.url_as("u", &password.escaped())));
            use_all(&password, &right);
            let error = password.assert_hidden_by_failure(right.lock("other"));
            assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{error:?}");
            drop((right, refused));
            password.assert_not_logged();
            wrong.assert_not_logged();
        });
    });
}

/// That nothing that can be had from these locks shows the password; the subscriber and the publish are refused.
fn use_all(password: &Password, locks: &ReentrantLock) {
    let guard = locks.guard("n").unwrap();
    password.assert_hidden_by(&guard);
    password.assert_hidden_by(guard.hold());
    password.assert_hidden_by(&locks.request("n"));
    password.assert_hidden_by(&locks.client().stats());
    let owned = locks.owned_guard("n").unwrap();
    password.assert_hidden_by(&owned);
    let busy = std::thread::scope(|scope| scope.spawn(|| locks.try_lock_for("n", ms(5))).join().unwrap());
    assert!(!busy.unwrap());
    drop(owned);
    guard.unlock().unwrap();
}

#[test]
fn a_server_that_does_not_answer_does_not_show_it() {
    alone(|| {
        keep_log();
        let server = Server::start();
        let number = AtomicUsize::new(0);
        check(12, password(), |password| {
            // A case that fails leaves it frozen, and the shorter ones that are tried then would wait for ever.
            server.thaw();
            // A name of its own: what the server is asked while it is frozen takes until later.
            let name = &format!("n{}", number.fetch_add(1, Relaxed));
            server.let_in("u", &password.whole, "~n* &* +@all");
            let locks = locks(&password, hasty(&server.url_as("u", &password.escaped())));
            let guard = loop {
                // The time-outs are short for a busy machine.
                match locks.guard(name) {
                    Err(error) if error.is_retryable() => password.assert_hidden_by_error(&error),
                    guard => break guard.unwrap(),
                }
            };
            // On a busy machine the time-out may be over before anything is sent. Then there is no connection any more, and a
            // frozen server makes no new one.
            eventually(LONG, "a try was sent", || {
                server.thaw();
                if let Err(error) = locks.is_locked(name) {
                    password.assert_hidden_by_error(&error);
                }
                server.freeze();
                password.assert_hidden_by_failure(locks.try_lock(name)).applied() == Applied::Unknown
            });
            password.assert_hidden_by_failure(guard.unlock());
            password.assert_hidden_by_failure(locks.is_locked(name));
            server.thaw();
            drop(locks);
            password.assert_not_logged();
        });
        server.clear();
    });
}
