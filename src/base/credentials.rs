//! The credentials of a client, which may change while it runs.

use crate::base::sync::{Condvar, Mutex};
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

/// A user and a password, or a token in its place. Its `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Credentials {
    /// The credentials of a user.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// The error of a credentials callback.
pub(crate) type Refusal = Box<dyn Error + Send + Sync>;

type Callback = dyn Fn() -> Result<Credentials, Refusal> + Send + Sync;

/// The credentials callback, asked for each connection.
#[derive(Clone)]
pub(crate) struct Source {
    callback: Arc<Callback>,
    asking: Arc<Asking>,
    /// By address and not in `Server`: a `Server` lives only for one look for a master or for slots.
    refused: Arc<Mutex<HashMap<String, Refused>>>,
}

/// The callback may block, and a call may not wait for it beyond its own time. So the callback runs on a thread of its own, one run at a
/// time, and all threads that connect meanwhile wait for the same answer.
#[derive(Default)]
struct Asking {
    state: Mutex<Asked>,
    told: Condvar,
}

#[derive(Default)]
struct Asked {
    /// `Some` while the callback runs.
    run: Option<Run>,
    last: Option<Answer>,
}

#[derive(Default)]
struct Run {
    thread: Option<ThreadId>,
    /// The callback uses the client, which waits for the callback.
    uses_client: bool,
}

struct Answer {
    number: u64,
    given: Moment,
    said: Result<Credentials, String>,
    is_taken: bool,
}

impl Answer {
    fn is_left(&self, now: Moment) -> bool {
        !self.is_taken && self.said.is_ok() && now.since(self.given) <= LEFT
    }
}

/// Credentials that came after all callers had gone are kept for the next connection for this long. Else calls with less time than the
/// callback takes would never connect. If the credentials are out of date by then, that costs one refused login.
const LEFT: Duration = Duration::from_secs(10);

/// A server's error: its code and its text.
pub(crate) type Said = (String, String);

/// A refused login: until `until` no other login is tried.
struct Refused {
    said: Said,
    until: Moment,
    pause: Duration,
}

/// The pause of a client after a refused login, doubled each time up to [`LONGEST_PAUSE`]. Each waiting thread repeats its attempt every 10
/// to 200 ms: 1,000 threads would make 5,000 connections a second, each with a TLS handshake and a call of the callback. With this pause a
/// client makes two a second at each server, for any number of threads. A new password works 0.7 s after the callback knows it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A refusal is forgotten this long after its pause.
const FORGOTTEN: Duration = Duration::from_secs(60);

impl Source {
    pub(crate) fn new<E: Into<Refusal>>(ask: impl Fn() -> Result<Credentials, E> + Send + Sync + 'static) -> Self {
        Self { callback: Arc::new(move || ask().map_err(Into::into)), asking: Arc::default(), refused: Arc::default() }
    }

    /// Whether this thread may log in at the server now. After a refusal one thread may, and the others get that refusal for another pause.
    /// Returns the pause after the next refusal.
    ///
    /// # Errors
    /// The last refusal, during its pause.
    pub(crate) fn take_turn(&self, address: &str, now: Moment) -> Result<Duration, Said> {
        let mut refused = self.refused.lock();
        let Some(last) = refused.get_mut(address) else { return Ok(FIRST_PAUSE) };
        if now < last.until {
            return Err(last.said.clone());
        }
        last.until = now.plus(last.pause);
        Ok((last.pause * 2).min(LONGEST_PAUSE))
    }

    /// The server refused the callback's credentials.
    pub(crate) fn note_refused(&self, address: &str, said: Said, now: Moment, pause: Duration) {
        let mut all = self.refused.lock();
        // A node that moved is never asked at its old address again: its entry must not stay for ever.
        all.retain(|_, old| now < old.until.plus(FORGOTTEN));
        let pause = all.get(address).map_or(pause, |old| old.pause.max(pause));
        all.insert(address.to_owned(), Refused { said, until: now.plus(pause), pause });
    }

    /// The server let the user in, or said nothing of the login.
    pub(crate) fn forget_refused(&self, address: &str) {
        self.refused.lock().remove(address);
    }

    /// The answer of the callback, until this moment.
    ///
    /// # Errors
    /// The callback's error, or a time-out.
    pub(crate) fn ask(&self, until: Moment) -> io::Result<Credentials> {
        let now = || Clock::Boot.now();
        let mut asked = self.asking.state.lock();
        let awaited = asked.last.as_ref().map_or(1, |last| last.number + u64::from(!last.is_left(now())));
        loop {
            if let Some(last) = asked.last.as_mut().filter(|last| last.number >= awaited) {
                last.is_taken = true;
                return last.said.clone().map_err(|why| failed(io::ErrorKind::Other, &why));
            }
            if asked.uses_client() {
                self.asking.told.notify_all();
                return Err(failed(io::ErrorKind::Other, "the callback uses the client that asks it"));
            }
            if asked.run.is_none() {
                self.start(&mut asked)?;
            }
            let left = until.since(now());
            if left.is_zero() {
                return Err(failed(io::ErrorKind::TimedOut, "the callback has not answered yet"));
            }
            self.asking.told.wait_for(&mut asked, left);
        }
    }

    fn start(&self, asked: &mut Asked) -> io::Result<()> {
        let (callback, asking) = (Arc::clone(&self.callback), Arc::clone(&self.asking));
        spawn("redlatch-credentials", move || {
            asking.state.lock().run = Some(Run { thread: Some(thread::current().id()), uses_client: false });
            // The `Display` of the caller's error type may panic, too.
            let said = catch_unwind(AssertUnwindSafe(|| callback().map_err(|why| why.to_string())));
            let said = said.unwrap_or_else(|_| Err("the callback panicked".to_owned()));
            asking.state.lock().end(said);
            asking.told.notify_all();
        })?;
        asked.run = Some(Run::default());
        Ok(())
    }
}

impl Asked {
    /// Whether the callback uses the client, now on this thread or earlier in this run. Such a call would wait for itself.
    fn uses_client(&mut self) -> bool {
        let me = Some(thread::current().id());
        self.run.as_mut().is_some_and(|run| {
            run.uses_client |= run.thread == me;
            run.uses_client
        })
    }

    fn end(&mut self, said: Result<Credentials, String>) {
        self.run = None;
        let number = self.last.as_ref().map_or(1, |last| last.number + 1);
        self.last = Some(Answer { number, given: Clock::Boot.now(), said, is_taken: false });
    }
}

fn failed(kind: io::ErrorKind, why: &str) -> io::Error {
    io::Error::new(kind, format!("no credentials: {why}"))
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(source: &Source, now: Moment) -> Duration {
        let pause = source.take_turn("h", now).unwrap();
        source.note_refused("h", ("WRONGPASS".to_owned(), "no".to_owned()), now, pause);
        pause
    }

    #[test]
    fn after_a_refusal_one_thread_at_a_time_tries_again_and_ever_more_seldom() {
        let source = Source::new(|| Ok::<_, Refusal>(Credentials::password("p")));
        let mut now = Moment(0);
        let pauses: Vec<_> = (0..7)
            .map(|_| {
                let pause = refused(&source, now);
                assert_eq!(source.take_turn("h", now).unwrap_err().0, "WRONGPASS");
                assert!(source.take_turn("other", now).is_ok());
                now = now.plus(pause);
                pause.as_millis()
            })
            .collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 500, 500]);
        assert!(source.take_turn("h", now).is_ok());
        assert!(source.take_turn("h", now).is_err(), "the first one is on its way");
        source.forget_refused("h");
        assert_eq!(source.take_turn("h", now), Ok(FIRST_PAUSE));
    }
}
