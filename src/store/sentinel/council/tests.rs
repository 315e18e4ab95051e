//! Whom a client follows, by words made by hand.

use super::*;
use crate::base::error::Applied;
use crate::store::moving::Council as _;

mod walks;

fn address(host: &str) -> HostPort {
    HostPort { host: host.to_owned(), port: 1 }
}

fn word(epoch: u64, master: &str, others: &[&str]) -> Result<Word, Failure> {
    let others = others.iter().map(|other| address(other)).collect();
    Ok(Word { asked: NOW, named: named(epoch, master), others })
}

fn silent() -> Result<Word, Failure> {
    Err(Failure::Unreached(Broken::new("no answer")))
}

fn refused(code: &str) -> Result<Word, Failure> {
    Err(Failure::Refused { code: code.to_owned(), applied: Applied::No, cause: Cause::new("no") })
}

fn named(epoch: u64, master: &str) -> Named {
    Named { epoch, master: address(master) }
}

fn council() -> Sentinels {
    Sentinels::new(&["s1", "s2", "s3"].map(address))
}

const NOW: Moment = Moment(1_000_000_000);

#[test]
fn a_new_client_follows_the_highest_epoch_of_a_majority() {
    let mut council = council();
    council.note(&address("s1"), word(3, "old", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), None, "it may be one that was away");
    council.note(&address("s2"), word(4, "new", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), Some(named(4, "new")));
    council.note(&address("s3"), word(3, "old", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), Some(named(4, "new")));
}

#[test]
fn one_that_answers_is_enough_after_a_moment() {
    let mut council = council();
    council.note(&address("s1"), silent(), NOW);
    council.note(&address("s3"), word(3, "a", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), None);
    assert_eq!(council.next(None, false, NOW.plus(GRACE)), Some(named(3, "a")));
}

fn replica() -> Failure {
    refused("READONLY").unwrap_err()
}

#[test]
fn a_higher_epoch_is_followed_at_once_and_a_lower_one_not_for_one_sentinel_nor_while_the_master_is_one() {
    let mut council = council();
    let current = named(4, "b");
    for (sentinel, epoch) in [("s1", 4), ("s2", 4), ("s3", 3)] {
        council.note(&address(sentinel), word(epoch, if epoch == 4 { "b" } else { "a" }, &[]), NOW);
    }
    assert_eq!(council.next(Some(&current), true, NOW), None, "also when it is in doubt");
    assert!(!council.note_unfit(&current, &replica(), NOW));
    assert_eq!(council.next(Some(&current), true, NOW), None, "also when it says that it is a replica");
    assert!(!council.accepts(Some(&current), &current), "and is the master again");
    council.note(&address("s1"), silent(), NOW);
    council.note(&address("s1"), word(3, "a", &[]), NOW);
    assert_eq!(council.next(Some(&current), true, NOW), Some(current.clone()), "it is asked itself");
    assert!(
        !council.accepts(Some(&current), &named(3, "a")) && !council.note_unfit(&current, &silent().unwrap_err(), NOW)
    );
    assert_eq!(council.next(Some(&current), true, NOW), Some(current.clone()), "also when it is silent");
    council.note(&address("s3"), word(5, "a", &[]), NOW);
    assert_eq!(council.next(Some(&current), false, NOW), Some(named(5, "a")));
}

/// All were asked before it said so, so they may have learned of a failover meanwhile.
#[test]
fn a_master_that_gave_way_is_left_for_the_one_that_a_majority_names_after_that() {
    let (mut council, later) = (council(), Moment(NOW.0 + 1));
    let (current, next) = (named(4, "b"), named(0, "a"));
    council.note(&address("s1"), word(4, "b", &[]), NOW);
    ["s2", "s3"].iter().for_each(|sentinel| drop(council.note(&address(sentinel), word(0, "a", &[]), NOW)));
    assert!(council.note_unfit(&current, &replica(), later) && !council.note_unfit(&current, &replica(), later));
    assert_eq!(council.next(Some(&current), false, later), Some(current.clone()));
    assert!(!council.accepts(Some(&current), &next));
    let anew = || word(0, "a", &[]).map(|word| Word { asked: later, ..word });
    council.note(&address("s2"), anew(), later);
    assert!(!council.accepts(Some(&current), &next), "one of three");
    council.note(&address("s3"), anew(), later);
    assert_eq!(council.next(Some(&current), false, later), Some(next.clone()));
    assert!(council.accepts(Some(&current), &next));
    council.note(&address("s1"), word(4, "b", &[]), later);
    assert_eq!(council.next(Some(&next), true, later), None, "who still counts as before leads nobody back");
    council.note(&address("s1"), word(5, "b", &[]), later);
    assert_eq!(council.next(Some(&next), true, later), Some(named(5, "b")));
}

/// The highest epoch is that of a node that is no master, so a client that is new would find none.
#[test]
fn a_new_client_believes_a_majority_too_when_the_one_of_the_highest_epoch_says_that_it_is_a_replica() {
    let mut council = council();
    council.note(&address("s1"), word(4, "b", &[]), NOW);
    ["s2", "s3"].iter().for_each(|sentinel| drop(council.note(&address(sentinel), word(0, "a", &[]), NOW)));
    assert_eq!(council.next(None, false, NOW), Some(named(4, "b")));
    assert!(council.note_unfit(&named(4, "b"), &replica(), NOW));
    assert_eq!(council.next(None, false, NOW), Some(named(0, "a")));
    assert!(council.accepts(None, &named(0, "a")));
    assert_eq!(council.next(Some(&named(0, "a")), true, NOW), None);
}

/// Its sentinels lost their files: their next failover has an epoch that was there before.
#[test]
fn epochs_of_a_master_that_is_monitored_anew_count_from_there_for_a_majority() {
    let mut council = council();
    let all = |council: &mut Sentinels, said: [(u64, &str); 3]| {
        ["s1", "s2", "s3"].iter().zip(said).for_each(|(sentinel, (epoch, master))| {
            council.note(&address(sentinel), word(epoch, master, &[]), NOW);
        });
    };
    all(&mut council, [(4, "a"), (0, "a"), (0, "a")]);
    let (old, new) = (named(4, "a"), named(0, "a"));
    assert_eq!(council.next(Some(&old), false, NOW), Some(new.clone()));
    assert!(council.accepts(Some(&old), &new));
    all(&mut council, [(4, "b"), (1, "b"), (0, "a")]);
    assert_eq!(council.next(Some(&new), true, NOW), None, "each alone");
    assert!(!council.accepts(Some(&new), &named(1, "b")) && !council.accepts(Some(&new), &named(4, "b")));
    all(&mut council, [(1, "b"), (1, "b"), (4, "b")]);
    assert_eq!(council.next(Some(&new), false, NOW), Some(named(1, "b")));
    assert!(council.accepts(Some(&new), &named(1, "b")));
}

/// It was a replica meanwhile, which nobody noticed: what it knew then is gone.
#[test]
fn a_master_that_became_one_again_begins_a_generation() {
    let mut council = council();
    council.note(&address("s1"), word(6, "a", &[]), NOW);
    assert_eq!(council.next(Some(&named(4, "a")), false, NOW), Some(named(6, "a")));
}

#[test]
fn another_address_of_the_same_epoch_is_followed_only_in_doubt() {
    let mut council = council();
    let current = named(4, "a");
    council.note(&address("s1"), word(4, "a", &[]), NOW);
    council.note(&address("s2"), word(4, "moved", &[]), NOW);
    assert_eq!(council.next(Some(&current), false, NOW), None);
    assert_eq!(council.next(Some(&current), true, NOW), Some(named(4, "moved")));
}

/// It was never reached, so a client that is new would look for it for ever.
#[test]
fn one_that_nobody_names_any_more_is_looked_for_no_longer() {
    let mut council = council();
    ["s1", "s2"].iter().for_each(|sentinel| drop(council.note(&address(sentinel), word(0, "a", &[]), NOW)));
    assert_eq!(council.next(None, false, NOW), Some(named(0, "a")));
    council.note(&address("s1"), word(0, "b", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), Some(named(0, "a")), "one still names it");
    council.note(&address("s2"), word(0, "b", &[]), NOW);
    assert_eq!(council.next(None, false, NOW), Some(named(0, "b")));
}

#[test]
fn sentinels_that_others_name_are_asked_until_nobody_does_and_they_are_silent() {
    let mut council = council();
    assert_eq!(council.note(&address("s1"), word(1, "a", &["s2", "s4"]), NOW), [address("s4")]);
    assert_eq!(council.note(&address("s2"), word(1, "a", &["s4"]), NOW), []);
    council.note(&address("s4"), silent(), NOW);
    assert!(!council.dismiss(&address("s4")), "two name it");
    council.note(&address("s1"), word(1, "a", &[]), NOW);
    council.note(&address("s2"), word(1, "a", &[]), NOW);
    assert!(council.dismiss(&address("s4")) && !council.dismiss(&address("s4")));
    council.note(&address("s3"), silent(), NOW);
    assert!(!council.dismiss(&address("s3")), "it is in the URL");
    let many: Vec<_> = (0..99).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(council.note(&address("s1"), word(1, "a", &many), NOW).len(), MOST - 3);
}

#[test]
fn a_failure_is_said_when_all_have_failed_and_the_one_that_says_most() {
    let (mut council, later) = (council(), Moment(NOW.0 + 1));
    let text = |council: &Sentinels| council.failure(NOW).map(|failure| failure.into_error("n").to_string());
    council.note(&address("s1"), silent(), NOW);
    council.note(&address("s2"), silent(), NOW);
    assert_eq!(text(&council), None);
    council.note(&address("s3"), silent(), NOW);
    assert!(text(&council).unwrap().contains("none of 3 sentinels names the master: no answer"));
    council.note(&address("s3"), refused("NOAUTH"), NOW);
    assert!(text(&council).unwrap().contains("(NOAUTH)"));
    council.note(&address("s1"), refused(NO_MASTER), NOW);
    assert!(text(&council).unwrap().contains(&format!("({NO_MASTER})")));
    assert!(council.failure(later).is_none(), "they are asked again");
}
