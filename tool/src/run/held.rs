//! The lock of a `run`, of whatever kind.

use crate::cli::{Cli, Kind, Run};
use crate::out::{Failed, UNAVAILABLE, is_outage, plain};
use crate::show;
use crate::status::look;
use redlatch::inspect::{Inspector, What};
use redlatch::{
    CancelToken, Client, Error, FairLock, FencedLock, Hold, LeasedSemaphore, OwnedGuard, Permits, ReadWriteLock,
    RedLock, ReentrantLock, Terms,
};
use std::slice::from_ref;
use std::sync::{Arc, Once};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server has so long to answer for the first time, as of the library's outage budget, or as long as the wait if that is shorter.
const REACH: Duration = Duration::from_secs(10);

/// A server that is silent keeps a signal waiting for so long.
const SIGNALS: Duration = Duration::from_secs(2);

/// How soon it is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// A lock that is held, or a permit.
pub(super) enum Held {
    Lock(OwnedGuard<Arc<dyn RedLock>>),
    Permit(Permits),
}

/// The client of a `run`, whose connections have the command's name.
pub(super) fn client(cli: &Cli, args: &Run) -> Result<Client, Failed> {
    let app = args.command.first().map_or_else(String::new, |command| clean(&command.to_string_lossy()));
    Ok(cli.server.builder(&format!("run/{app}"))?.watchdog_timeout(args.lease).build()?)
}

impl Held {
    /// `None`: another has it, and the wait is over.
    pub(super) fn take(client: &Client, args: &Run, token: &CancelToken) -> redlatch::Result<Option<Self>> {
        let until = args.wait.map(|wait| Instant::now() + wait);
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        let goes_on = || left() != Some(Duration::ZERO) && !token.is_cancelled();
        match reach(client, token, args.wait.unwrap_or(REACH).min(REACH)) {
            // A server that was never there is an error for a wait without an end: the URL may be wrong.
            Err(error) if !(args.wait.is_some() && is_outage(&error) && goes_on()) => return Err(error),
            _ => {}
        }
        loop {
            let terms = Terms::new().cancelled_by(token);
            match Self::attempt(client, args, &left().into_iter().fold(terms, Terms::wait)) {
                // A wait is as patient as its end, and one without an end goes through every outage. What it was given may end before it knows.
                Err(error) if goes_on() && (is_outage(&error) || matches!(error, Error::Lost { .. })) => {
                    log::warn!("{}: the wait goes on: {error}", args.name);
                    sleep(AGAIN);
                }
                done => return done,
            }
        }
    }

    fn attempt(client: &Client, args: &Run, terms: &Terms<'_>) -> redlatch::Result<Option<Self>> {
        let held = match args.n {
            Some(permits) => permit(client, &args.name, permits, terms)?.map(Self::Permit),
            None => OwnedGuard::acquire(of_kind(client, args.kind), &args.name, terms)?.map(Self::Lock),
        };
        // What a wait was given lasts for 1.5 s at first. A job with so little time left would be ended at once.
        let short = held.iter().map(Self::hold).filter(|hold| hold.remaining() < args.lease / 2);
        short.into_iter().try_for_each(|hold| hold.extend(args.lease))?;
        Ok(held)
    }

    pub(super) fn hold(&self) -> &Hold {
        match self {
            Self::Lock(guard) => guard.hold(),
            Self::Permit(permit) => permit.hold().expect("these permits have leases"),
        }
    }

    pub(super) fn release(self) -> redlatch::Result<()> {
        match self {
            Self::Lock(guard) => guard.unlock(),
            Self::Permit(permit) => permit.release(),
        }
    }
}

/// Until the server answers. One that is busy, or has no data yet, is there.
fn reach(client: &Client, token: &CancelToken, limit: Duration) -> redlatch::Result<()> {
    let until = Instant::now() + limit;
    loop {
        match client.ping(SIGNALS) {
            Err(error @ Error::Refused { .. }) if is_outage(&error) => return Ok(()),
            Err(error) if error.is_retryable() && Instant::now() < until && !token.is_cancelled() => sleep(AGAIN),
            done => return done.map(drop),
        }
    }
}

fn of_kind(client: &Client, kind: Kind) -> Arc<dyn RedLock> {
    match kind {
        Kind::Reentrant => Arc::new(ReentrantLock::new(client)),
        Kind::Fair => Arc::new(FairLock::new(client)),
        Kind::Fenced => Arc::new(FencedLock::new(client)),
        Kind::Read => Arc::new(ReadWriteLock::new(client).read().clone()),
        Kind::Write => Arc::new(ReadWriteLock::new(client).write().clone()),
    }
}

/// Whoever comes first sets how many there are.
fn permit(client: &Client, name: &str, permits: u32, terms: &Terms<'_>) -> redlatch::Result<Option<Permits>> {
    let semaphore = LeasedSemaphore::new(client);
    if !semaphore.try_set_permits(name, permits)? {
        warn_of_another_number(&semaphore, name, permits)?;
    }
    semaphore.acquire(name, 1, terms)
}

fn warn_of_another_number(semaphore: &LeasedSemaphore, name: &str, permits: u32) -> redlatch::Result<()> {
    static IS_TOLD: Once = Once::new();
    let (left, out) = (semaphore.available_permits(name)?, semaphore.acquired_permits(name)?);
    let all = left.unwrap_or(0) + out.unwrap_or(0);
    if all != i64::from(permits) {
        IS_TOLD.call_once(|| {
            log::warn!(
                "{name}: {all} may run at once, and -n {permits} does not change that: all have to give the same number \
                 (docs/tool.md tells how to change it)"
            );
        });
    }
    Ok(())
}

/// What is in the way, for people; nothing if this user may not look.
pub(super) fn in_the_way(client: &Client, name: &str) -> Option<String> {
    let sight = match look(&Inspector::new(client), from_ref(&name.to_owned())) {
        Ok(mut sights) => sights.pop()?,
        Err(failed) => return (failed.code == UNAVAILABLE).then(|| "the server does not answer".to_owned()),
    };
    Some(match &sight.what {
        What::Nothing => "nobody has it by now".to_owned(),
        What::Other(kind) => format!("a key of type {kind} is in the way, which is no lock"),
        What::Counter { out, .. } => format!("{} are running", out.unwrap_or(0)),
        _ => {
            let asked = sight.holders().iter().filter_map(|holder| holder.asked).min();
            let since = asked.map_or_else(String::new, |asked| format!(", which asked {} ago", show::ago(Some(asked))));
            let is_gone = sight.holders().iter().all(|holder| holder.is_connected == Some(false));
            let gone = if is_gone { "a process that is not connected: " } else { "" };
            format!("held by {gone}{}{since}", plain(&show::holders(&sight)).trim_start_matches("gone? "))
        }
    })
}

/// The file name of a command, as a part of a connection's name.
fn clean(command: &str) -> String {
    let file = command.rsplit('/').next().unwrap_or_default();
    file.chars().map(|sign| if sign.is_ascii_graphic() { sign } else { '_' }).take(64).collect()
}
