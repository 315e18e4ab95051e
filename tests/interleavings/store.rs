//! A server without a wire: one lock, who listens to it, and what those leave who ask while it is busy.

use crate::base::signal::{Listening, Semaphore};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Store {
    state: Mutex<State>,
    /// Released by whoever listens.
    pub(crate) listened_to: Semaphore,
}

#[derive(Default)]
struct State {
    taken: bool,
    /// Entries of those that asked and neither took it nor withdrew: one for each thread that waits.
    entries: Vec<crate::sync::thread::ThreadId>,
    places: Vec<Place>,
    /// Subscriptions are confirmed later, by [`Store::confirm`].
    slow: bool,
}

#[derive(Clone)]
struct Place {
    semaphore: Arc<Semaphore>,
    confirmed: Arc<AtomicBool>,
}

/// A subscription, which ends when it is dropped.
struct Listener {
    store: Arc<Store>,
    place: Place,
}

impl Listening for Listener {
    fn is_confirmed(&self) -> bool {
        self.place.confirmed.load(SeqCst)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.store.state.lock().places.retain(|place| !Arc::ptr_eq(&place.semaphore, &self.place.semaphore));
    }
}

impl Store {
    /// One whose confirmations come late.
    pub(crate) fn slow() -> Self {
        Self { state: Mutex::new(State { slow: true, ..State::default() }), ..Self::default() }
    }

    /// Takes the lock if it is free; else an entry stays until it is taken or withdrawn.
    pub(crate) fn take(&self) -> bool {
        let me = crate::sync::thread::current().id();
        let mut state = self.state.lock();
        state.entries.retain(|entry| *entry != me);
        if state.taken {
            state.entries.push(me);
        }
        !std::mem::replace(&mut state.taken, true)
    }

    pub(crate) fn withdraw(&self) {
        let me = crate::sync::thread::current().id();
        self.state.lock().entries.retain(|entry| *entry != me);
    }

    /// Frees the lock and tells everyone whose subscription is confirmed.
    pub(crate) fn free(&self) {
        let told = self.free_silently();
        told.iter().filter(|place| place.confirmed.load(SeqCst)).for_each(|place| place.semaphore.release());
    }

    /// Frees the lock and tells nobody. Those who would have been told.
    fn free_silently(&self) -> Vec<Place> {
        let mut state = self.state.lock();
        assert!(std::mem::take(&mut state.taken), "two had it");
        state.places.clone()
    }

    /// The lease of a holder ends, of which there is no message.
    pub(crate) fn expire(&self) {
        self.free_silently();
    }

    pub(crate) fn listen(self: &Arc<Self>, semaphore: &Arc<Semaphore>) -> Box<dyn Listening> {
        let mut state = self.state.lock();
        let place = Place { semaphore: Arc::clone(semaphore), confirmed: Arc::new(AtomicBool::new(!state.slow)) };
        state.places.push(place.clone());
        self.listened_to.release();
        Box::new(Listener { store: Arc::clone(self), place })
    }

    /// The server confirms all subscriptions, and whoever has one is woken: a message may have been missed.
    pub(crate) fn confirm(&self) {
        let mut state = self.state.lock();
        state.slow = false;
        let places = state.places.clone();
        places.iter().for_each(|place| place.confirmed.store(true, SeqCst));
        drop(state);
        places.iter().for_each(|place| place.semaphore.release());
    }

    /// Nobody has the lock, nobody listens, and whoever left an entry has withdrawn it.
    pub(crate) fn assert_untouched(&self) {
        let state = self.state.lock();
        assert!(!state.taken && state.places.is_empty(), "it is taken or listened to");
        assert!(state.entries.is_empty(), "an entry was not withdrawn");
    }
}
