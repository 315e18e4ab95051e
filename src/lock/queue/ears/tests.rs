//! What is said on the ear of a client, and whom it is told to.

use super::*;
use crate::base::key::{Key, Naming};
use crate::base::signal::Semaphore;
use crate::base::time::Clock;
use crate::lock::queue::tests::Channels;
use std::time::Duration;

const CLIENT: &str = "00000000-0000-0000-0000-00000000002a";
const EAR: &str = "redlatch_ear:00000000-0000-0000-0000-00000000002a";

fn ears() -> Arc<Ears> {
    Arc::new(Ears::new(Uuid::from_u128(42)))
}

/// A ticket of that number, and what its call sleeps on.
fn ticket(number: u64) -> (Arc<Ticket>, Arc<Semaphore>) {
    let (key, semaphore) = (Key::new(Naming::Redisson, "", "n"), Arc::<Semaphore>::default());
    (Arc::new(Ticket::new(key, number, Arc::clone(&semaphore), Clock::Boot)), semaphore)
}

fn is_woken(semaphore: &Semaphore) -> bool {
    semaphore.acquire(Duration::ZERO)
}

#[test]
fn only_what_ours_publish_is_understood() {
    assert_eq!(understood(b"c:1 free"), Some(("c", "1", 1, News::Free)));
    let last = "ffffffffffffffff";
    assert_eq!(understood(b"c:ffffffffffffffff free"), Some(("c", last, u64::MAX, News::Free)));
    for (news, token) in [("given", None), ("given:7", Some(7)), ("given:9007199254740991", Some((1 << 53) - 1))] {
        let said = format!("t:c:1f.2.3.4.5 {news}");
        let given = News::Given(Given { token });
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
    assert_eq!(ears().member(&ticket(7).0.names()[0]), format!("{CLIENT}:7"));
}

#[test]
fn each_ticket_hears_what_is_told_to_it_alone() {
    let (ears, store, [one, two]) = (ears(), Channels::default(), [1, 2].map(ticket));
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
    let (ears, store, tickets) = (ears(), Channels::default(), [1, 2, 3].map(|number| ticket(number).0));
    assert!(!ears.are_open());
    tickets.iter().for_each(|ticket| ears.open(ticket, &store).unwrap());
    assert_eq!((store.open(EAR), store.begun(EAR)), (1, 1));
    assert!(!ears.are_open(), "not confirmed");
    store.confirm(EAR);
    assert!(ears.are_open());
    tickets[..2].iter().for_each(|ticket| ears.close(ticket));
    assert!(ears.are_open());
    ears.close(&tickets[2]);
    assert!(!ears.are_open());
    assert_eq!(store.open(EAR), 0);
    ears.open(&tickets[0], &store).unwrap();
    assert_eq!((store.open(EAR), store.begun(EAR)), (1, 2));
    ears.close(&tickets[0]);
}

/// No thread could be started for the subscriber: the place is given back all the same, and the next begins anew.
#[test]
fn an_ear_that_cannot_be_opened_is_tried_again() {
    let (ears, store, ticket) = (ears(), Channels::default(), ticket(1).0);
    store.refuse(true);
    assert!(ears.open(&ticket, &store).is_err());
    ears.close(&ticket);
    store.refuse(false);
    ears.open(&ticket, &store).unwrap();
    ears.close(&ticket);
    assert_eq!(store.open(EAR), 0);
}

/// One of its two subscriptions is there: it need not be waited for.
#[test]
fn a_ticket_of_a_client_that_listens_already_looks_with_the_other_subscription() {
    let (ears, store, (ticket, semaphore)) = (ears(), Channels::default(), ticket(1));
    store.confirm(EAR);
    ears.open(&ticket, &store).unwrap();
    assert!(!is_woken(&semaphore));
    ticket.missed();
    assert!(is_woken(&semaphore));
    ears.close(&ticket);
}

#[test]
fn all_who_wait_look_when_the_ear_was_cut() {
    let (ears, store, tickets) = (ears(), Channels::default(), [1, 2].map(ticket));
    for (ticket, _) in &tickets {
        ears.open(ticket, &store).unwrap();
        ticket.missed();
    }
    assert!(tickets.iter().all(|(_, semaphore)| !is_woken(semaphore)));
    ears.missed();
    assert!(tickets.iter().all(|(_, semaphore)| is_woken(semaphore)));
    tickets.iter().for_each(|(ticket, _)| ears.close(ticket));
}
