//! The line of threads that wait for a lock: one contends on the wire, and the others are parked behind it in order of arrival.

use super::waiter::Waiter;
use crate::base::mutant::{self, Mutant};
use crate::base::sync::atomic::Ordering::Relaxed;
use std::collections::VecDeque;
use std::sync::Arc;

/// The waiters of one lock.
#[derive(Default)]
pub(super) struct Waiters {
    /// The waiter that contends on the wire.
    head: Option<Arc<Waiter>>,
    parked: VecDeque<Arc<Waiter>>,
}

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_none() && self.parked.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.head.iter().count() + self.parked.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.head.iter().chain(&self.parked)
    }

    pub(super) fn head(&self) -> Option<&Arc<Waiter>> {
        self.head.as_ref()
    }

    pub(super) fn is_head(&self, waiter: &Arc<Waiter>) -> bool {
        self.head.as_ref().is_some_and(|head| Arc::ptr_eq(head, waiter))
    }

    /// The parked one that has waited longest.
    pub(super) fn first(&self) -> Option<&Arc<Waiter>> {
        self.parked.front()
    }

    pub(super) fn park(&mut self, waiter: &Arc<Waiter>) {
        self.parked.push_back(Arc::clone(waiter));
    }

    pub(super) fn lead(&mut self, waiter: &Arc<Waiter>) {
        self.head = Some(Arc::clone(waiter));
    }

    /// Lets the first parked one contend, unless there is a head.
    pub(super) fn promote(&mut self) {
        if self.head.is_none() && !self.parked.is_empty() {
            self.head = self.parked.pop_front();
            self.wake_head();
        }
    }

    /// The lock may be free: the head should look.
    pub(super) fn wake_head(&self) {
        if let Some(head) = &self.head {
            head.semaphore.release();
        }
    }

    /// Wakes the first parked one for a kept tenure, unless it was roused already.
    pub(super) fn rouse(&self) {
        if mutant::is(Mutant::NeverRouses) {
            return;
        }
        if let Some(first) = self.parked.front().filter(|first| !first.roused.swap(true, Relaxed)) {
            first.semaphore.release();
        }
    }

    /// The kept tenure is gone: the first parked one should look.
    pub(super) fn wake_first(&self) {
        if let Some(first) = self.parked.front() {
            first.semaphore.release();
        }
    }

    /// The first parked one has the lock, and waits no more.
    pub(super) fn serve_first(&mut self) {
        self.parked.pop_front();
    }

    pub(super) fn forget(&mut self, waiter: &Arc<Waiter>) {
        if self.head.take_if(|head| Arc::ptr_eq(head, waiter)).is_none() {
            self.parked.retain(|parked| !Arc::ptr_eq(parked, waiter));
        }
    }
}
