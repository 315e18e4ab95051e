//! Subscriptions, messages and asks of a ticket, at a store whose subscriptions the test confirms.

use super::super::wait::News;
use super::ears::understood;
use super::*;
use crate::base::config::Settings;
use crate::base::key::Naming;
use crate::base::signal::Ear;
use crate::store::node::{Lane, Limits, Request};
use crate::store::{Answers, Health};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// A store that has channels and nothing else.
#[derive(Default)]
struct Channels {
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
    fn confirm(&self, channel: &str) {
        let ears = self.of(channel, |channel| {
            channel.confirmed.store(true, SeqCst);
            channel.ears.clone()
        });
        ears.iter().for_each(|ear| ear.missed());
    }

    /// The subscription of a channel ends.
    fn cut(&self, channel: &str) {
        self.of(channel, |channel| channel.confirmed.store(false, SeqCst));
    }

    /// Subscriptions fail from now on, as if no thread could be started for them.
    fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, SeqCst);
    }

    /// The number of listeners of a channel.
    fn open(&self, channel: &str) -> usize {
        self.of(channel, |channel| channel.open.load(SeqCst))
    }

    /// The number of listeners that the channel ever had.
    fn begun(&self, channel: &str) -> usize {
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

    fn counts_listeners(&self, _: &str) -> bool {
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
    queue_of(Settings::default())
}

fn queue_of(settings: Settings) -> (Queue, Arc<Channels>) {
    let store = Arc::<Channels>::default();
    let config = settings.derive().unwrap();
    (Queue::new(Uuid::from_u128(42), Arc::<Channels>::clone(&store), &config), store)
}

/// The queue's TTL in an ask of this ticket, ms; 0: it does not join.
fn ttl(queue: &Queue, ticket: &Arc<Ticket>) -> u64 {
    let (key, member) = (key(), queue.members_of(ticket.key(), &ticket.names()));
    let [.., Arg::Number(ttl)] = queue.asking(&key, Manner::Queued(ticket), &member)[..] else {
        panic!("it is a number")
    };
    ttl
}

/// A ticket is counted as one of ours until it is refused a place: then it hears the lock's channel alone, as foreigners do.
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

/// Messages before that would be lost.
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

/// A new subscription is confirmed soon, or never. So the first answer without a place is no reason to poll yet.
#[test]
fn a_ticket_that_hears_nothing_polls_from_its_second_ask_on() {
    let (queue, store) = queue();
    let ticket = queue.ticket(&key(), &Arc::default());
    let place = queue.listen(&ticket).unwrap();
    let asks = |rank: i64| {
        queue.offers(&ticket, "c:7:9", Lease::of_millis(1_000));
        let (ttl, [name, _]) = (ttl(&queue, &ticket), ticket.names());
        let said = [30_000, rank, 0, 0].map(Reply::Number);
        queue.not_won_in_turn(&key(), Manner::Queued(&ticket), &said).unwrap();
        (ttl, name.ends_with(".7.9.1000p"))
    };
    assert_eq!([asks(-1), asks(3), asks(0)], [(0, false), (15_000, true), (15_000, true)]);
    [0, 2].into_iter().for_each(|channel| store.confirm(CHANNELS[channel]));
    assert_eq!([asks(0), asks(0)], [(15_000, false); 2], "it hears");
    drop(place);
}

/// Even if each call asks only once. That the client hears of another lock makes no difference.
#[test]
fn who_hears_nothing_polls_from_the_first_ask_of_the_next_call_on() {
    for (rank, last) in [(-1, false), (-2, true)] {
        let (queue, store) = queue();
        let asks = |ticket: &Arc<Ticket>| {
            queue.offers(ticket, "c:7:9", Lease::of_millis(1_000));
            ttl(&queue, ticket)
        };
        let [one, next] = [(); 2].map(|()| queue.ticket(&key(), &Arc::default()));
        assert_eq!((asks(&one), one.polls()), (0, false));
        assert!(!queue.expects_a_wait(&key()));
        let manner = if last { Manner::Last(&one) } else { Manner::Queued(&one) };
        queue.not_won_in_turn(&key(), manner, &[30_000, rank, 0, 0].map(Reply::Number)).unwrap();
        let heard = Key::new(Naming::Redisson, "", "other");
        let other = queue.ticket(&heard, &Arc::default());
        let _place = queue.listen(&other).unwrap();
        [&*heard.channel(), CHANNELS[2]].into_iter().for_each(|channel| store.confirm(channel));
        assert_eq!((asks(&other), other.polls()), (15_000, false));
        assert!(queue.expects_a_wait(&key()), "it queues at once");
        assert_eq!((asks(&next), next.polls()), (15_000, true));
    }
}

/// A ticket is counted from its first subscription on. One that polls would hide a JVM.
#[test]
fn who_polls_is_not_counted() {
    let (queue, store) = queue();
    queue.company.note_unheard(&key(), Moment(1));
    let ticket = queue.ticket(&key(), &Arc::default());
    let _place = queue.listen(&ticket).unwrap();
    queue.offers(&ticket, "c:7:9", Lease::of_millis(1_000));
    queue.not_won_in_turn(&key(), Manner::Queued(&ticket), &[30_000, 0, 0, 0].map(Reply::Number)).unwrap();
    assert_eq!(CHANNELS.map(|channel| store.open(channel)), [1, 0, 1]);
}

/// Else a ticket would leave its place whenever the lock's channel is confirmed before the ear.
#[test]
fn ears_are_refused_no_more_once_they_hear() {
    let (queue, store) = queue();
    let ticket = queue.ticket(&key(), &Arc::default());
    let _place = queue.listen(&ticket).unwrap();
    queue.ears(&key()).refused();
    [0, 2].into_iter().for_each(|channel| store.confirm(CHANNELS[channel]));
    queue.offers(&ticket, "c:7:9", Lease::of_millis(1_000));
    store.cut(CHANNELS[2]);
    assert!(!queue.is_told_with_all(&key()));
}

/// The ticket got a place while it heard nothing at all. Now it takes the lock without a place, so the queue must not give it the lock,
/// too.
#[test]
fn who_is_told_with_all_leaves_first() {
    let (queue, store) = queue();
    let ticket = queue.ticket(&key(), &Arc::default());
    let _place = queue.listen(&ticket).unwrap();
    [0, 2].into_iter().for_each(|channel| store.confirm(CHANNELS[channel]));
    assert_eq!(ttl(&queue, &ticket), 15_000);
    store.cut(CHANNELS[2]);
    queue.ears(&key()).refused();
    let (key, members) = (key(), queue.members(Manner::Queued(&ticket)));
    assert!(queue.matters(&key, Manner::Queued(&ticket)));
    assert!(matches!(queue.asking(&key, Manner::Queued(&ticket), &members)[..], [.., Arg::Text("-1")]));
    queue.not_won_in_turn(&key, Manner::Queued(&ticket), &[30_000, -2, 0, 0].map(Reply::Number)).unwrap();
    assert!(!queue.matters(&key, Manner::Queued(&ticket)));
}

/// So the sweeper has no place to take back.
#[test]
fn the_last_ask_of_a_ticket_leaves_the_queue() {
    let (queue, store) = queue();
    let ticket = queue.ticket(&key(), &Arc::default());
    let _place = queue.listen(&ticket).unwrap();
    [0, 2].into_iter().for_each(|channel| store.confirm(CHANNELS[channel]));
    assert_eq!(ttl(&queue, &ticket), 15_000);
    let (key, members) = (key(), queue.members(Manner::Last(&ticket)));
    assert!(matches!(queue.asking(&key, Manner::Last(&ticket), &members)[..], [.., Arg::Text("-1")]));
    assert!(ticket.may_be_queued(), "until it is answered");
    queue.not_won_in_turn(&key, Manner::Last(&ticket), &[30_000, -2, 0, 0].map(Reply::Number)).unwrap();
    assert!(!ticket.may_be_queued());
    assert!(!queue.company.was_unheard(&key), "it heard");
}

/// Whichever subscription was confirmed before the ticket came: with the last one it can join, so it asks.
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
    assert_eq!([0, 1, 500, 501, 10_000, 600_000].map(turn_after), [4, 5, 5, 6, 24, 1_000]);
}

#[test]
fn ears_that_a_call_is_about_to_listen_on_are_kept() {
    let (queue, _) = queue_of(Settings { in_cluster: true, ..Settings::default() });
    let ears = queue.ears(&key());
    for number in 0..2 * MANY_EARS {
        queue.ears(&Key::new(Naming::Redisson, "", &number.to_string()));
    }
    assert!(Arc::ptr_eq(&ears, &queue.ears(&key())));
    assert!(queue.ears_of.lock().len() < 2 * MANY_EARS, "others are forgotten");
}

/// Its client has not met the cluster yet, so its store has no shards. A script of the cluster reaches channels of the lock's slot alone.
#[test]
fn the_first_ticket_in_a_cluster_names_an_ear_in_the_slot_of_its_lock() {
    let (queue, _) = queue_of(Settings { in_cluster: true, ..Settings::default() });
    let queue = queue.of_threads();
    let ticket = queue.ticket(&key(), &Arc::default());
    let [member, _] = queue.members(Manner::Queued(&ticket));
    assert!(member.starts_with("{n}:"), "{member}");
}

#[test]
fn what_is_left_to_foreigners_is_waited_out() {
    let (queue, _) = queue();
    let ticket = queue.ticket(&key(), &Arc::default());
    for manner in [Manner::Newcomer, Manner::Queued(&ticket)] {
        let take = queue.not_won_in_turn(&key(), manner, &[-2, 0, 7, 0].map(Reply::Number)).unwrap();
        assert_eq!(take, Take::Reserved(Duration::from_millis(8)));
    }
}

#[test]
fn an_offer_is_the_lease_within_bounds() {
    let offers = [1, 10, 700, 1_500, 30_000].map(|lease| offer(Lease::of_millis(lease)).millis());
    assert_eq!(offers, [10, 10, 700, 1_500, 1_500]);
}

#[test]
fn one_release_in_turn_of_128_is_told_to_all() {
    let (queue, _) = queue();
    let key = key();
    let to_all = (0..256).filter(|_| matches!(queue.releasing(&key), [.., Arg::Number(1)])).count();
    assert_eq!(to_all, 2);
}

/// The client of the ears in these tests.
const CLIENT: &str = "00000000-0000-0000-0000-00000000002a";
fn ears() -> Arc<Ears> {
    Arc::new(Ears::new(Uuid::from_u128(42)))
}

/// A ticket of that number, and the semaphore of its call.
fn of_number(number: u64) -> (Arc<Ticket>, Arc<Semaphore>) {
    let (key, semaphore) = (key(), Arc::<Semaphore>::default());
    (Arc::new(Ticket::new(key, number, Arc::clone(&semaphore), Clock::Boot)), semaphore)
}

fn is_woken(semaphore: &Semaphore) -> bool {
    semaphore.acquire(Duration::ZERO)
}

#[test]
fn only_what_ours_publish_is_understood() {
    assert_eq!(understood(b"c:1 free"), Some(("c", "1", 1, None)));
    let last = "ffffffffffffffff";
    assert_eq!(understood(b"c:ffffffffffffffff free"), Some(("c", last, u64::MAX, None)));
    for (news, token) in [("given", None), ("given:7", Some(7)), ("given:9007199254740991", Some((1 << 53) - 1))] {
        let said = format!("t:c:1f.2.3.4.5 {news}");
        let given = Some(Given { token });
        assert_eq!(understood(said.as_bytes()), Some(("t:c", "1f.2.3.4.5", 0x1f, given)));
    }
    let garbage: [&[u8]; 19] = [
        b"c:1 given:",
        b"c:1 given:-1",
        b"c:1 given:18446744073709551616",
        b"",
        b"free",
        b" ",
        b":",
        b": ",
        b"c:1",
        b"c:1 ",
        b"c:1 0",
        b"c:1 -1",
        b"c:10000000000000000 free",
        b"c:1 Given",
        b"c:.1 given",
        b"c 1:free",
        b"c:1  free",
        b"c:-1 free",
        b"\xff:1 free",
    ];
    for payload in garbage {
        assert_eq!(understood(payload), None, "{payload:?}");
    }
}

#[test]
fn a_ticket_is_named_after_its_client() {
    assert_eq!(ears().member(&of_number(7).0.names()[0]), format!("{CLIENT}:7"));
}

#[test]
fn each_ticket_hears_what_is_told_to_it_alone() {
    let (ears, store, [one, two]) = (ears(), Channels::default(), [1, 2].map(of_number));
    [&one, &two].into_iter().for_each(|ticket| ears.open(&ticket.0, &store).unwrap());
    let told = |payload: String| {
        ears.hear(payload.as_bytes());
        [&one, &two].map(|ticket| is_woken(&ticket.1))
    };
    assert_eq!(told(format!("{CLIENT}:1 free")), [true, false]);
    assert_eq!(told(format!("{CLIENT}:2 given")), [false, true]);
    for stranger in [format!("{CLIENT}:3 free"), "c:1 free".to_owned(), ":1 free".to_owned(), format!("{CLIENT}:1")] {
        assert_eq!(told(stranger), [false, false]);
    }
    ears.close(&one.0);
    assert_eq!(told(format!("{CLIENT}:1 free")), [false, false], "nobody waits with it");
    ears.close(&two.0);
}

#[test]
fn a_client_listens_once_and_while_anybody_waits() {
    let (ears, store, tickets) = (ears(), Channels::default(), [1, 2, 3].map(|number| of_number(number).0));
    assert!(!ears.are_open());
    tickets.iter().for_each(|ticket| ears.open(ticket, &store).unwrap());
    assert_eq!((store.open(CHANNELS[2]), store.begun(CHANNELS[2])), (1, 1));
    assert!(!ears.are_open(), "not confirmed");
    store.confirm(CHANNELS[2]);
    assert!(ears.are_open());
    tickets[..2].iter().for_each(|ticket| ears.close(ticket));
    assert!(ears.are_open());
    ears.close(&tickets[2]);
    assert!(!ears.are_open());
    assert_eq!(store.open(CHANNELS[2]), 0);
    ears.open(&tickets[0], &store).unwrap();
    assert_eq!((store.open(CHANNELS[2]), store.begun(CHANNELS[2])), (1, 2));
    ears.close(&tickets[0]);
}

/// No thread can be started for the subscriber: the ticket still gives its place back, and the next one tries again.
#[test]
fn an_ear_that_cannot_be_opened_is_tried_again() {
    let (ears, store, ticket) = (ears(), Channels::default(), of_number(1).0);
    store.refuse(true);
    assert!(ears.open(&ticket, &store).is_err());
    ears.close(&ticket);
    store.refuse(false);
    ears.open(&ticket, &store).unwrap();
    ears.close(&ticket);
    assert_eq!(store.open(CHANNELS[2]), 0);
}

/// One of its two subscriptions is confirmed already, so the ticket does not wait for it.
#[test]
fn a_ticket_of_a_client_that_listens_already_looks_with_the_other_subscription() {
    let (ears, store, (ticket, semaphore)) = (ears(), Channels::default(), of_number(1));
    store.confirm(CHANNELS[2]);
    ears.open(&ticket, &store).unwrap();
    assert!(!is_woken(&semaphore));
    ticket.missed();
    assert!(is_woken(&semaphore));
    ears.close(&ticket);
}

#[test]
fn all_who_wait_look_when_the_ear_was_cut() {
    let (ears, store, tickets) = (ears(), Channels::default(), [1, 2].map(of_number));
    for (ticket, _) in &tickets {
        ears.open(ticket, &store).unwrap();
        ticket.missed();
    }
    assert!(tickets.iter().all(|(_, semaphore)| !is_woken(semaphore)));
    ears.missed();
    assert!(tickets.iter().all(|(_, semaphore)| is_woken(semaphore)));
    tickets.iter().for_each(|(ticket, _)| ears.close(ticket));
}

const GIVEN: Given = Given { token: Some(7) };

/// The name of the ticket's last ask.
fn name_of(ticket: &Ticket) -> String {
    let [name, _] = ticket.names();
    name
}

/// The ticket may have the lock, or another rank in the queue.
#[test]
fn who_is_told_on_its_own_ear_has_a_reason_to_look() {
    for (name, given) in [("1", None), ("1", Some(GIVEN)), ("1.2.3.4.5", Some(GIVEN))] {
        let (ticket, semaphore) = of_number(1);
        ticket.hear_own(name, given);
        assert!(is_woken(&semaphore), "{name}");
        assert_eq!(ticket.told().take(), Some(News::ForIt));
    }
}

#[test]
fn who_is_told_like_everybody_has_a_share_of_its_own() {
    for (number, own) in [(0, 0), (1_023, 1_023), (1_024, 0), (u64::MAX, 1_023)] {
        let (ticket, semaphore) = of_number(number);
        ticket.hear(b"0");
        assert!(is_woken(&semaphore));
        assert!(matches!(ticket.told().take(), Some(News::ForAll { share, .. }) if share == own), "{number}");
    }
}

#[test]
fn only_what_was_given_to_the_last_ask_is_taken_and_once() {
    let ((ticket, _), offer) = (of_number(1), Lease::of_millis(1_500));
    ticket.offers("client:7:8", offer, false);
    let first = name_of(&ticket);
    assert!(first.starts_with("1.") && first.ends_with(".7.8.1500"), "{first}");
    ticket.asks(true);
    ticket.offers("client:7:8", offer, false);
    ticket.hear_own(&first, Some(GIVEN));
    assert_eq!(ticket.takes_what_was_given(), None, "that of an earlier ask");
    ticket.hear_own(&name_of(&ticket), Some(GIVEN));
    assert_eq!([ticket.takes_what_was_given(), ticket.takes_what_was_given()], [Some(GIVEN), None]);
    ticket.hear_own(&name_of(&ticket), Some(GIVEN));
    ticket.offers("client:7:8", offer, false);
    assert_eq!(ticket.takes_what_was_given(), None, "it asks again");
}

#[test]
fn the_names_of_eight_earlier_asks_are_known_if_they_were_sent() {
    let (ticket, _) = of_number(1);
    let mut names = Vec::new();
    for _ in 0..10 {
        ticket.offers("client:7:8", Lease::of_millis(10), false);
        ticket.offers("client:7:8", Lease::of_millis(10), false);
        names.insert(0, name_of(&ticket));
        ticket.asks(true);
    }
    ticket.offers("client:7:8", Lease::of_millis(10), false);
    let [_, before] = ticket.names();
    assert_eq!(before.split(' ').collect::<Vec<_>>(), names[..8]);
}

/// The ticket asks once both subscriptions are confirmed, in either order, and each time one was cut after that.
#[test]
fn it_looks_when_it_may_have_missed_something_on_both_channels() {
    for [first, second] in [[Channel::All, Channel::Own], [Channel::Own, Channel::All]] {
        let (ticket, semaphore) = of_number(1);
        ticket.missed_on(first);
        ticket.missed_on(first);
        assert!(!is_woken(&semaphore));
        ticket.missed_on(second);
        assert!(is_woken(&semaphore));
        assert_eq!([ticket.told().take(), ticket.told().take()], [Some(News::ForIt), None]);
        ticket.missed_on(first);
        assert_eq!(ticket.told().take(), Some(News::ForIt));
    }
    let (ticket, semaphore) = of_number(1);
    ticket.is_heard_on(Channel::Own);
    ticket.missed();
    assert!(is_woken(&semaphore));
}

#[test]
fn it_may_be_queued_once_it_asked() {
    let (ticket, _) = of_number(1);
    assert!(!ticket.may_be_queued());
    ticket.asks(false);
    assert!(!ticket.may_be_queued());
    ticket.asks(true);
    assert!(ticket.may_be_queued());
}

/// Only if it asked for a place: without its subscriptions it asks for none.
#[test]
fn who_asked_for_a_place_and_has_none_waits_outside() {
    let (ticket, _) = of_number(1);
    ticket.asks(true);
    ticket.asks(false);
    ticket.has_no_place(false);
    assert!(!ticket.is_outside() && !ticket.leaves_a_place());
    ticket.asks(true);
    ticket.has_no_place(false);
    assert!(ticket.is_outside() && ticket.leaves_a_place());
}

/// The node that a slot moves to touches no queue. So whoever asks there takes no place, and keeps one that it had.
#[test]
fn who_wins_elsewhere_leaves_the_place_that_it_had_before() {
    let (ticket, _) = of_number(1);
    ticket.asks(true);
    ticket.asked_elsewhere();
    assert!(!ticket.may_be_queued() && !ticket.leaves_a_place());
    ticket.asks(true);
    assert!(ticket.may_be_queued() && !ticket.leaves_a_place());
    ticket.asks(true);
    ticket.asked_elsewhere();
    assert!(ticket.may_be_queued() && ticket.leaves_a_place());
    ticket.asks(false);
    assert!(ticket.may_be_queued() && !ticket.leaves_a_place());
}

/// The script accepts each offer that a call makes. Else it would drop the ticket.
#[test]
fn the_script_takes_each_offer_that_a_call_makes() {
    let give = include_str!("../../../base/script/preludes/give.lua");
    let bounds = format!("offer >= {} and offer <= {}", SHORTEST_OFFER.millis(), OFFER.millis());
    assert!(give.contains(&bounds), "{bounds}");
}
