//! What a ticket listens to, and when it looks because of that, at a store whose subscriptions are confirmed by hand.

use super::*;
use crate::base::config::Settings;
use crate::base::key::Naming;
use crate::base::signal::Ear;
use crate::store::node::{Lane, Limits, Request};
use crate::store::{Answers, Health};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A store that has channels and nothing else.
#[derive(Default)]
pub(super) struct Channels {
    channels: Mutex<HashMap<String, Line>>,
    refuses: AtomicBool,
}

#[derive(Default)]
struct Line {
    confirmed: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
    ears: Vec<Arc<dyn Ear>>,
}

struct Listener {
    confirmed: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
}

impl Listening for Listener {
    fn is_confirmed(&self) -> bool {
        self.confirmed.load(SeqCst)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.open.fetch_sub(1, SeqCst);
    }
}

impl Channels {
    fn of<T>(&self, channel: &str, act: impl FnOnce(&mut Line) -> T) -> T {
        act(self.channels.lock().entry(channel.to_owned()).or_default())
    }

    /// The server answers to the subscription of a channel.
    pub(super) fn confirm(&self, channel: &str) {
        let ears = self.of(channel, |channel| {
            channel.confirmed.store(true, SeqCst);
            channel.ears.clone()
        });
        ears.iter().for_each(|ear| ear.missed());
    }

    /// No thread can be started for it.
    pub(super) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, SeqCst);
    }

    /// How many listen to a channel.
    pub(super) fn open(&self, channel: &str) -> usize {
        self.of(channel, |channel| channel.open.load(SeqCst))
    }

    /// How many ever did.
    pub(super) fn begun(&self, channel: &str) -> usize {
        self.of(channel, |channel| channel.ears.len())
    }
}

impl Health for Channels {
    fn address(&self) -> String {
        String::new()
    }

    fn outage(&self) -> Option<Duration> {
        None
    }

    fn outage_ends(&self, _: &str, now: Moment) -> Moment {
        now
    }

    fn last_failure(&self, _: &str) -> Option<Failure> {
        None
    }
}

impl Store for Channels {
    fn identity(&self) -> Vec<String> {
        vec![self.address()]
    }

    fn attempt(&self, _: Lane, _: &Request<'_>, _: Limits<'_>) -> Result<Answer, Failure> {
        Err(Failure::not_understood())
    }

    fn attempt_all(&self, _: Lane, _: &Request<'_>, _: usize, _: Limits<'_>) -> Result<Answers, Failure> {
        Err(Failure::not_understood())
    }

    fn listen(&self, channel: &str, ear: Arc<dyn Ear>) -> io::Result<Box<dyn Listening>> {
        if self.refuses.load(SeqCst) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(self.of(channel, |channel| {
            channel.open.fetch_add(1, SeqCst);
            channel.ears.push(ear);
            Box::new(Listener { confirmed: Arc::clone(&channel.confirmed), open: Arc::clone(&channel.open) })
        }))
    }

    fn hears(&self, channel: &str) -> bool {
        self.of(channel, |channel| channel.confirmed.load(SeqCst))
    }

    fn counts_listeners(&self) -> bool {
        true
    }

    fn ping(&self, _: Moment) -> Result<Duration, Failure> {
        Ok(Duration::ZERO)
    }

    fn warm(&self, _: Lane) -> Result<(), Failure> {
        Ok(())
    }

    fn close(&self) {}
}

const CHANNELS: [&str; 3] =
    ["redisson_lock__channel:{n}", "redlatch_members:{n}", "redlatch_ear:00000000-0000-0000-0000-00000000002a"];

fn key() -> Key {
    Key::new(Naming::Redisson, "", "n")
}

fn queue() -> (Queue, Arc<Channels>) {
    let store = Arc::<Channels>::default();
    let config = Settings::default().derive().unwrap();
    (Queue::new(Uuid::from_u128(42), Arc::<Channels>::clone(&store), &config), store)
}

/// The TTL that the queue has from an ask of this ticket, ms; 0: it does not join.
fn ttl(queue: &Queue, ticket: &Arc<Ticket>) -> u64 {
    let (key, member) = (key(), queue.members_of(ticket.key(), &ticket.names()));
    let [.., Arg::Number(ttl)] = queue.asking(&key, Manner::Queued(ticket), &member) else { panic!("it is a number") };
    ttl
}

/// It is counted as one of ours until it is refused a place: who has none is told with those who are not.
#[test]
fn a_ticket_listens_to_three_channels_while_it_can_queue() {
    let (queue, store) = queue();
    let ticket = queue.ticket(&key(), &Arc::default());
    let place = queue.listen(&ticket).unwrap();
    let open = || CHANNELS.map(|channel| store.open(channel));
    assert_eq!(open(), [1, 1, 1]);
    for (rank, counted) in [(3, 1), (-1, 0), (2, 1)] {
        let said = [30_000, rank, 0, 0].map(Reply::Number);
        queue.not_won_in_turn(&key(), Manner::Queued(&ticket), &said).unwrap();
        assert_eq!(open(), [1, counted, 1], "rank {rank}");
    }
    drop(place);
    assert_eq!(open(), [0, 0, 0]);
}

/// What is told before that would not be heard.
#[test]
fn a_ticket_joins_once_it_hears_on_both_channels() {
    for [first, second] in [[0, 2], [2, 0]] {
        let (queue, store) = queue();
        let ticket = queue.ticket(&key(), &Arc::default());
        let place = queue.listen(&ticket).unwrap();
        assert_eq!(ttl(&queue, &ticket), 0);
        store.confirm(CHANNELS[first]);
        assert_eq!(ttl(&queue, &ticket), 0);
        assert!(!ticket.may_be_queued());
        store.confirm(CHANNELS[second]);
        assert_eq!(ttl(&queue, &ticket), 15_000, "three poll caps");
        assert!(ticket.may_be_queued());
        drop(place);
    }
}

/// Whichever of the two subscriptions was there before it: with the last of them it can join, and so it looks.
#[test]
fn a_ticket_looks_with_the_last_of_its_subscriptions() {
    for before in [&[][..], &[0], &[2]] {
        let (queue, store) = queue();
        let semaphore = Arc::<Semaphore>::default();
        before.iter().for_each(|channel| store.confirm(CHANNELS[*channel]));
        let ticket = queue.ticket(&key(), &semaphore);
        let place = queue.listen(&ticket).unwrap();
        let later = [0, 2].into_iter().filter(|channel| !before.contains(channel));
        later.for_each(|channel| store.confirm(CHANNELS[channel]));
        assert!(semaphore.acquire(Duration::ZERO), "{before:?} were there before");
        drop(place);
    }
}

#[test]
fn nothing_is_listened_to_where_that_cannot_be() {
    let (queue, store) = queue();
    store.refuse(true);
    let ticket = queue.ticket(&key(), &Arc::default());
    assert!(queue.listen(&ticket).is_err());
    store.refuse(false);
    drop(queue.listen(&ticket).unwrap());
    assert_eq!(CHANNELS.map(|channel| store.open(channel)), [0, 0, 0]);
}

#[test]
fn the_turn_of_foreigners_grows_with_the_round_trips() {
    let (queue, _) = queue();
    let turn_after = |trip: u64| {
        queue.trip.store(trip, Relaxed);
        queue.foreign_turn()
    };
    assert_eq!([0, 1, 500, 501, 10_000].map(turn_after), [4, 5, 5, 6, 24]);
}

#[test]
fn what_is_left_to_foreigners_is_waited_out() {
    let (queue, _) = queue();
    let ticket = queue.ticket(&key(), &Arc::default());
    for manner in [Manner::Newcomer, Manner::Queued(&ticket)] {
        let take = queue.not_won_in_turn(&key(), manner, &[-2, 0, 7, 0].map(Reply::Number)).unwrap();
        assert_eq!(take, Take::Left(Duration::from_millis(8)));
    }
}

#[test]
fn an_offer_is_the_lease_within_bounds() {
    let offers = [1, 10, 700, 1_500, 30_000].map(|lease| offer(Lease::of_millis(lease)).millis());
    assert_eq!(offers, [10, 10, 700, 1_500, 1_500]);
}

#[test]
fn one_release_in_turn_of_32_is_told_to_all() {
    let (queue, _) = queue();
    let key = key();
    let to_all = (0..64).filter(|_| matches!(queue.releasing(&key), [.., Arg::Number(1)])).count();
    assert_eq!(to_all, 2);
}
