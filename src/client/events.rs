//! The user's callbacks, for losses and for circles of waiting. They have a thread of their own: if one blocks, renewals must go on.

use crate::base::say::say;
use crate::base::threads::spawn;
use crate::census::Deadlock;
use crate::lease::hold::LostHold;
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use std::sync::Arc;

/// What a program can be told.
pub(super) enum Event {
    Lost(LostHold),
    Deadlock(Deadlock),
}

/// A callback of the program.
type Callback<T> = Option<Arc<dyn Fn(T) + Send + Sync>>;

/// What the program wants to be told.
#[derive(Default, Clone)]
pub(crate) struct Listeners {
    pub(crate) on_lost: Callback<LostHold>,
    pub(crate) on_deadlock: Callback<Deadlock>,
}

impl Listeners {
    fn want(&self, event: &Event) -> bool {
        match event {
            Event::Lost(_) => self.on_lost.is_some(),
            Event::Deadlock(_) => self.on_deadlock.is_some(),
        }
    }

    fn tell(&self, event: Event) {
        match event {
            Event::Lost(lost) => {
                if let Some(tell) = &self.on_lost {
                    tell(lost);
                }
            }
            Event::Deadlock(circle) => {
                if let Some(tell) = &self.on_deadlock {
                    tell(circle);
                }
            }
        }
    }
}

/// The queue to the callbacks' thread, which starts with the first report.
pub(super) struct Events {
    listeners: Listeners,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: Option<Sender<Event>>,
    closed: bool,
}

impl Events {
    pub(super) fn new(listeners: Listeners) -> Self {
        Self { listeners, state: Mutex::default() }
    }

    /// A thread that found the loss before a shutdown may report it after that. The callback is still called, and its thread ends then.
    pub(super) fn report(&self, event: Event) {
        if !self.listeners.want(&event) {
            return;
        }
        let mut state = self.state.lock();
        let started = state.start(&self.listeners);
        if let Some(queue) = &state.queue {
            let _ = queue.send(event);
        }
        if state.closed {
            state.queue = None;
        }
        // A logger is foreign code: it may lose a lock of its own and come here again.
        drop(state);
        if let Err(error) = started {
            say!(error, "the callbacks have no thread: {error}");
        }
    }

    /// The callbacks still get all earlier reports; then its thread ends.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue = None;
    }
}

impl State {
    fn start(&mut self, listeners: &Listeners) -> std::io::Result<()> {
        if self.queue.is_none() {
            self.queue = Some(call_each(listeners.clone())?);
        }
        Ok(())
    }
}

fn call_each(listeners: Listeners) -> std::io::Result<Sender<Event>> {
    let (sender, reports): (_, Receiver<Event>) = unbounded();
    let run = move || {
        for event in reports {
            let call = std::panic::AssertUnwindSafe(|| listeners.tell(event));
            if std::panic::catch_unwind(call).is_err() {
                say!(error, "a callback of the client panicked; it is called again for the next event");
            }
        }
    };
    spawn("redlatch-events", run).map(|()| sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tenure::LossCause;
    use std::time::Duration;

    /// A shutdown may overtake a thread on its way to report a loss.
    #[test]
    fn a_report_that_comes_after_the_end_is_called_and_leaves_no_thread() {
        let (tell, told) = unbounded();
        let on_lost: Callback<LostHold> = Some(Arc::new(move |lost: LostHold| tell.send(lost.cause()).unwrap()));
        let events = Events::new(Listeners { on_lost, ..Listeners::default() });
        events.close();
        for cause in [LossCause::Expired, LossCause::Removed] {
            events.report(Event::Lost(LostHold::new("n", "", cause)));
            assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(cause));
        }
        assert!(events.state.lock().queue.is_none());
    }
}
