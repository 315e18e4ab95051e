//! Which names have company, and for how long, by made-up moments.

use super::*;
use crate::base::key::Naming;
use std::time::Duration;

fn key(name: &str) -> Key {
    Key::new(Naming::Redisson, "", name)
}

fn at(millis: u64) -> Moment {
    Moment(60_000_000_000).plus(Duration::from_millis(millis))
}

/// The last ms at which company is expected for that name.
fn lasts(company: &Company, name: &str) -> Option<u64> {
    (0..10_000).rev().find(|millis| company.is_expected(&key(name), at(*millis)))
}

#[test]
fn whoever_saw_nobody_is_alone() {
    let company = Company::default();
    assert!(!company.is_expected(&key("n"), at(0)) && !company.had_to_wait(&key("n"), at(0)));
    company.note_alone(&key("n"));
    assert_eq!(lasts(&company, "n"), None);
}

#[test]
fn a_wait_is_company_for_two_seconds() {
    let company = Company::default();
    company.note_wait(&key("n"), at(100));
    assert_eq!(lasts(&company, "n"), Some(2_099));
    assert!(company.had_to_wait(&key("n"), at(2_099)) && !company.had_to_wait(&key("n"), at(2_100)));
    assert_eq!(lasts(&company, "m"), None, "of another name");
}

#[test]
fn who_was_told_is_company_for_two_seconds_and_no_wait() {
    let company = Company::default();
    company.note_told(&key("n"), at(100), 1);
    assert_eq!(lasts(&company, "n"), Some(2_099));
    assert!(!company.had_to_wait(&key("n"), at(100)));
}

#[test]
fn whoever_told_nobody_is_alone_at_once() {
    let company = Company::default();
    for name in ["n", "m"] {
        company.note_wait(&key(name), at(0));
        company.note_told(&key(name), at(0), 3);
    }
    company.note_alone(&key("n"));
    assert_eq!(lasts(&company, "n"), None);
    assert_eq!(lasts(&company, "m"), Some(1_999));
}

/// Bystanders listen and never wait: now and then a release in turn looks for foreigners, and not each time.
#[test]
fn bystanders_are_no_company() {
    let company = Company::default();
    company.note_told(&key("n"), at(0), 2);
    for time in 0..20 {
        company.note_left_to_foreigners(&key("n"), at(time), [1, 1]);
    }
    company.note_bystanders(&key("n"), at(20), 2);
    assert!(!company.is_expected(&key("n"), at(21)));
    company.note_told(&key("n"), at(30), 2);
    assert!(!company.is_expected(&key("n"), at(31)), "the same ones");
    assert!(company.is_expected(&key("n"), at(1_900)), "it looks again");
    company.note_told(&key("n"), at(40), 3);
    assert!(company.is_expected(&key("n"), at(41)), "somebody came");
}

#[test]
fn a_wait_tells_that_they_are_no_bystanders() {
    let company = Company::default();
    company.note_told(&key("n"), at(0), 2);
    (0..9).for_each(|time| company.note_left_to_foreigners(&key("n"), at(time), [1, 1]));
    company.note_bystanders(&key("n"), at(9), 2);
    assert!(!company.is_expected(&key("n"), at(10)));
    company.note_wait(&key("n"), at(10));
    assert!(company.is_expected(&key("n"), at(11)));
}

#[test]
fn foreigners_who_take_their_turns_get_them_again_soon() {
    let company = Company::default();
    let owes = |millis| company.owes_foreigners(&key("n"), at(millis));
    assert!(!owes(0), "nothing is known of the name");
    company.note_told(&key("n"), at(0), 1);
    assert!(owes(0));
    company.note_left_to_foreigners(&key("n"), at(0), [1, 1]);
    company.note_queue(&key("n"), at(1));
    assert!(!owes(99) && owes(100));
    company.note_left_to_foreigners(&key("n"), at(0), [8, 1]);
    company.note_queue(&key("n"), at(1));
    assert!(!owes(3_199) && owes(3_200), "eight of ours leave no more turns than one");
    company.note_foreign_hold(&key("n"), at(200));
    assert!(!owes(215) && owes(216), "eight times 2 ms");
    company.note_left_to_foreigners(&key("n"), at(216), [8, 1]);
    company.note_foreign_hold(&key("n"), at(217));
    assert!(!owes(1_000), "the queue, in which more wait, has the next turn");
    company.note_queue(&key("n"), at(1_000));
    assert!(owes(1_000));
}

/// Fifty listeners that never ask cost no more than one.
#[test]
fn many_foreigners_who_never_take_their_turns_get_no_more_of_them() {
    let company = Company::default();
    company.note_told(&key("n"), at(0), 1);
    company.note_left_to_foreigners(&key("n"), at(0), [50, 50]);
    company.note_queue(&key("n"), at(1));
    assert!(!company.owes_foreigners(&key("n"), at(4_999)) && company.owes_foreigners(&key("n"), at(5_000)));
    company.note_foreign_hold(&key("n"), at(5_000));
    assert!(company.owes_foreigners(&key("n"), at(5_002)), "they take them");
}

/// While no foreigner is seen to hold the lock, the queue has every second turn.
#[test]
fn as_many_foreigners_as_ours_have_each_turn_that_they_are_seen_to_take() {
    let company = Company::default();
    let owes = |millis| company.owes_foreigners(&key("n"), at(millis));
    company.note_told(&key("n"), at(0), 1);
    company.note_left_to_foreigners(&key("n"), at(0), [1, 1]);
    assert!(!owes(1_000));
    company.note_queue(&key("n"), at(1_000));
    assert!(owes(1_000));
    company.note_left_to_foreigners(&key("n"), at(1_000), [1, 1]);
    company.note_foreign_hold(&key("n"), at(1_001));
    assert!(!owes(1_002) && owes(1_003));
}

#[test]
fn foreigners_who_never_take_their_turns_get_them_ever_more_seldom() {
    let company = Company::default();
    company.note_told(&key("n"), at(0), 1);
    for pause in [100, 400, 1_600, 1_600, 1_600] {
        company.note_left_to_foreigners(&key("n"), at(0), [1, 1]);
        company.note_no_queue(&key("n"), at(1));
        assert!(!company.owes_foreigners(&key("n"), at(pause - 1)), "{pause}");
        assert!(company.owes_foreigners(&key("n"), at(pause)), "{pause}");
    }
}

/// Names without expected company are not kept.
#[test]
fn old_names_are_forgotten() {
    let company = Company::default();
    for number in 0..100_000 {
        company.note_wait(&key(&number.to_string()), at(number));
    }
    let kept = company.names.lock().len();
    assert!(kept <= 2 * 4_096, "{kept} names");
    assert_eq!(company.count.load(Relaxed), kept);
}
