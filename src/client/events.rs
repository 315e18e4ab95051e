//! The user's callback for losses. It has a thread of its own: if it blocks, renewals must go on.

use super::Callback;
use crate::base::say::say;
use crate::base::threads::spawn;
use crate::lease::hold::LostHold;
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

/// The queue to the callback's thread, which starts with the first report.
pub(super) struct Events {
    callback: Option<Callback>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: Option<Sender<LostHold>>,
    closed: bool,
}

impl Events {
    pub(super) fn new(callback: Option<Callback>) -> Self {
        Self { callback, state: Mutex::default() }
    }

    /// A thread that found the loss before a shutdown may report it after that. The callback is still called, and its thread ends then.
    pub(super) fn report(&self, lost: LostHold) {
        let Some(callback) = &self.callback else { return };
        let mut state = self.state.lock();
        let started = state.start(callback);
        if let Some(queue) = &state.queue {
            let _ = queue.send(lost);
        }
        if state.closed {
            state.queue = None;
        }
        // A logger is foreign code: it may lose a lock of its own and come here again.
        drop(state);
        if let Err(error) = started {
            say!(error, "the on_lost callback has no thread: {error}");
        }
    }

    /// The callback still gets all earlier reports; then its thread ends.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue = None;
    }
}

impl State {
    fn start(&mut self, callback: &Callback) -> std::io::Result<()> {
        if self.queue.is_none() {
            self.queue = Some(call_each(Callback::clone(callback))?);
        }
        Ok(())
    }
}

fn call_each(callback: Callback) -> std::io::Result<Sender<LostHold>> {
    let (sender, reports): (_, Receiver<LostHold>) = unbounded();
    let run = move || {
        for lost in reports {
            let call = std::panic::AssertUnwindSafe(|| callback(lost));
            if std::panic::catch_unwind(call).is_err() {
                say!(error, "the on_lost callback panicked; it is called again for the next lost hold");
            }
        }
    };
    spawn("redlatch-events", run).map(|()| sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tenure::LossCause;
    use std::sync::Arc;
    use std::time::Duration;

    /// A shutdown may overtake a thread on its way to report a loss.
    #[test]
    fn a_report_that_comes_after_the_end_is_called_and_leaves_no_thread() {
        let (tell, told) = unbounded();
        let events = Events::new(Some(Arc::new(move |lost: LostHold| tell.send(lost.cause()).unwrap())));
        events.close();
        for cause in [LossCause::Expired, LossCause::Removed] {
            events.report(LostHold::new("n", "", cause));
            assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(cause));
        }
        assert!(events.state.lock().queue.is_none());
    }
}
