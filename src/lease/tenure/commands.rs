//! What its holder had run while the lock was held, and was never told of.

use super::Tenure;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::time::Moment;
use std::time::Duration;

impl Tenure {
    /// Commands of its holder were not answered; the server may still execute them up to and within the last millisecond.
    pub(crate) fn leave_commands_open(&self, until: Moment) {
        self.commands_until.fetch_max(until.plus(Duration::from_millis(1)).0, SeqCst);
    }

    /// How much longer commands of its holder may still be executed: whoever came next in memory has the same owner id, and they would
    /// take it for their own.
    pub(crate) fn commands_open_for(&self) -> Option<Duration> {
        let until = self.commands_until.load(SeqCst);
        // Most tenures never had any, and do not look at the clock.
        let left = (until != 0).then(|| Moment(until).since(self.now()));
        left.filter(|left| !left.is_zero())
    }
}
