//! A census, for whoever looks.

use super::{Inspector, Process};
use crate::base::error::Result;
use crate::census::{Account, Deadlock, circles};
use std::collections::HashSet;
use std::time::Duration;

/// What the clients of a database and a key prefix told of their threads.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Census {
    /// One for each client that answered, in no order. A client answers once it has waited for a lock.
    pub accounts: Vec<Account>,
    /// Clients that listen for messages and did not answer within half a second, if the server answers `CLIENT LIST`. They hang, or have
    /// another prefix or database, or are of an earlier version, or may not listen to `redlatch_census:*`.
    pub silent: Vec<Process>,
    /// How many clients heard the question. `None`: the server cannot count them.
    pub asked: Option<usize>,
    took: Vec<Duration>,
}

impl Census {
    /// The circles of waiting in it: threads that hold locks and wait for each other's. Each is true of one moment.
    #[must_use]
    pub fn circles(&self) -> Vec<Deadlock> {
        let accounts: Vec<_> = self.accounts.iter().cloned().zip(self.took.iter().copied()).collect();
        circles(&accounts)
    }
}

impl Inspector {
    /// Asks all clients with this client's database and key prefix who holds locks, and who waits. Takes half a second at most, less if the
    /// server can count the clients and all have answered. Then `CLIENT LIST` says who listens and was not asked, which takes some time where
    /// there are thousands of connections.
    ///
    /// ```no_run
    /// use redlatch::{Client, inspect::Inspector};
    ///
    /// let census = Inspector::new(&Client::connect("redis://127.0.0.1/")?).census()?;
    /// for account in &census.accounts {
    ///     println!("{}: {} holds, {} waits", account.process, account.holds.len(), account.waits.len());
    /// }
    /// census.circles().iter().for_each(|circle| println!("deadlock: {circle}"));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`Client::ping`](crate::Client::ping). [`Error::Refused`](crate::Error::Refused) if the user may not publish or subscribe to `redlatch_census:*`.
    pub fn census(&self) -> Result<Census> {
        let space = self.client.space();
        space.check_open("")?;
        let gathered = space.gather()?;
        let asked = gathered.asked;
        let (accounts, took): (Vec<_>, Vec<_>) = gathered.accounts.into_iter().unzip();
        Ok(Census { silent: self.silent(&accounts), accounts, asked, took })
    }

    /// Nobody, if the server does not say who listens. What the others told is told all the same.
    fn silent(&self, accounts: &[Account]) -> Vec<Process> {
        let Ok(processes) = self.processes() else { return Vec::new() };
        let told: HashSet<_> = accounts.iter().map(|account| &account.process.client).collect();
        let own = self.client.id();
        let is_silent = |process: &&Process| process.client != own && !told.contains(&process.client);
        processes.iter().filter(is_silent).filter(|process| processes.listens(process)).cloned().collect()
    }
}
