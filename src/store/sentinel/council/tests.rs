//! Whom a client follows, by words made by hand.

use super::*;
use crate::base::error::Applied;
use crate::store::moving::Council as _;

fn place(host: &str) -> Place {
    Place { host: host.to_owned(), port: 1 }
}

fn word(epoch: u64, master: &str, others: &[&str]) -> Result<Word, Failure> {
    Ok(Word { epoch, master: place(master), others: others.iter().map(|other| place(other)).collect() })
}

fn silent() -> Result<Word, Failure> {
    Err(Failure::Unreached(Broken::new("no answer")))
}

fn refused(code: &str) -> Result<Word, Failure> {
    Err(Failure::Refused { code: code.to_owned(), applied: Applied::No, cause: Cause::new("no") })
}

fn named(epoch: u64, master: &str) -> Named {
    Named { epoch, master: place(master) }
}

fn council() -> Council {
    Council::new(&["s1", "s2", "s3"].map(place))
}

const NOW: Moment = Moment(1_000_000_000);

#[test]
fn a_new_client_follows_the_highest_epoch_of_a_majority() {
    let mut council = council();
    council.note(&place("s1"), word(3, "old", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), None, "it may be one that was away");
    council.note(&place("s2"), word(4, "new", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), Some(named(4, "new")));
    council.note(&place("s3"), word(3, "old", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), Some(named(4, "new")));
}

#[test]
fn one_that_answers_is_enough_after_a_moment() {
    let mut council = council();
    council.note(&place("s1"), silent(), NOW);
    council.note(&place("s3"), word(3, "a", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), None);
    assert_eq!(council.next(None, false, NOW.plus(GRACE)), Some(named(3, "a")));
}

#[test]
fn a_lower_epoch_is_never_followed_and_a_higher_one_at_once() {
    let mut council = council();
    let current = named(4, "b");
    for (sentinel, epoch) in [("s1", 4), ("s2", 3), ("s3", 3)] {
        council.note(&place(sentinel), word(epoch, if epoch == 4 { "b" } else { "a" }, &[]), NOW);
    }
    assert_eq!(council.next(Some(&current), true, NOW), None, "also when it is in doubt");
    council.note(&place("s1"), silent(), NOW);
    council.note(&place("s1"), word(3, "a", &[]), NOW);
    assert_eq!(council.next(Some(&current), true, NOW), None, "also when all say so");
    council.note(&place("s3"), word(5, "a", &[]), NOW);
    assert_eq!(council.next(Some(&current), false, NOW), Some(named(5, "a")));
}

/// It was a replica meanwhile, which nobody noticed: what it knew then is gone.
#[test]
fn a_master_that_became_one_again_begins_a_generation() {
    let mut council = council();
    council.note(&place("s1"), word(6, "a", &[]), NOW);
    assert_eq!(council.next(Some(&named(4, "a")), false, NOW), Some(named(6, "a")));
}

#[test]
fn another_address_of_the_same_epoch_is_followed_only_in_doubt() {
    let mut council = council();
    let current = named(4, "a");
    council.note(&place("s1"), word(4, "a", &[]), NOW);
    council.note(&place("s2"), word(4, "moved", &[]), NOW);
    assert_eq!(council.next(Some(&current), false, NOW), None);
    assert_eq!(council.next(Some(&current), true, NOW), Some(named(4, "moved")));
}

#[test]
fn sentinels_that_others_name_are_asked_until_nobody_does_and_they_are_silent() {
    let mut council = council();
    assert_eq!(council.note(&place("s1"), word(1, "a", &["s2", "s4"]), NOW), [place("s4")]);
    assert_eq!(council.note(&place("s2"), word(1, "a", &["s4"]), NOW), []);
    council.note(&place("s4"), silent(), NOW);
    assert!(!council.dismiss(&place("s4")), "two name it");
    council.note(&place("s1"), word(1, "a", &[]), NOW);
    council.note(&place("s2"), word(1, "a", &[]), NOW);
    assert!(council.dismiss(&place("s4")) && !council.dismiss(&place("s4")));
    council.note(&place("s3"), silent(), NOW);
    assert!(!council.dismiss(&place("s3")), "it is in the URL");
    let many: Vec<_> = (0..99).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(council.note(&place("s1"), word(1, "a", &many), NOW).len(), MOST - 3);
}

#[test]
fn a_failure_is_said_when_all_have_failed_and_the_one_that_says_most() {
    let (mut council, later) = (council(), Moment(NOW.0 + 1));
    let text = |council: &Council| council.failure(NOW).map(|failure| failure.into_error("n").to_string());
    council.note(&place("s1"), silent(), NOW);
    council.note(&place("s2"), silent(), NOW);
    assert_eq!(text(&council), None);
    council.note(&place("s3"), silent(), NOW);
    assert!(text(&council).unwrap().contains("none of 3 sentinels names the master: no answer"));
    council.note(&place("s3"), refused("NOAUTH"), NOW);
    assert!(text(&council).unwrap().contains("(NOAUTH)"));
    council.note(&place("s1"), refused(NO_MASTER), NOW);
    assert!(text(&council).unwrap().contains(&format!("({NO_MASTER})")));
    assert!(council.failure(later).is_none(), "they are asked again");
}
