//! Whom a client follows, by words made by hand.

use super::*;

const NOW: Moment = Moment(1_000_000_000_000);

fn poll() -> Poll {
    let mut poll = Poll::new(["a", "b", "c"].map(str::to_owned).to_vec());
    poll.asks(0, NOW);
    poll
}

fn node(index: usize) -> Node {
    Node { index, address: ["a", "b", "c"][index].to_owned() }
}

fn silent() -> Result<Role, Failure> {
    Err(Failure::Unreached(Broken::new("x: no answer")))
}

fn course(poll: &mut Poll, current: Option<&Node>, now: Moment) -> Course<Node> {
    poll.course(Seen { current, is_in_doubt: false, looked_at: None, now })
}

fn note_all(poll: &mut Poll, said: [Role; 3], now: Moment) {
    said.into_iter().enumerate().for_each(|(index, role)| poll.note(index, Ok(role), now));
}

use Role::{Master, Replica};

#[test]
fn the_one_that_says_so_is_followed_once_the_others_had_time_to_say_so_too() {
    let (mut poll, late) = (poll(), NOW.plus(GRACE));
    poll.note(1, Ok(Master), NOW);
    assert_eq!(course(&mut poll, None, NOW), Course::Stay, "the others are awaited");
    poll.note(0, Ok(Replica), NOW);
    assert_eq!(course(&mut poll, None, NOW), Course::Stay, "one is awaited");
    assert_eq!(course(&mut poll, None, late), Course::Follow(node(1)), "it is silent");
    poll.note(2, silent(), NOW);
    assert_eq!(course(&mut poll, None, NOW), Course::Follow(node(1)), "it has failed");
}

#[test]
fn a_new_master_is_compared_with_what_the_old_one_says_after_that() {
    let (mut poll, current) = (poll(), node(0));
    note_all(&mut poll, [Master, Replica, Replica], NOW);
    assert_eq!(course(&mut poll, Some(&current), NOW), Course::Stay);
    let later = NOW.plus(EVERY / 2);
    poll.note(1, Ok(Master), later);
    assert_eq!(course(&mut poll, Some(&current), later), Course::AskAll);
    poll.begin(later);
    (0..3).for_each(|index| poll.asks(index, later));
    poll.note(1, Ok(Master), later);
    assert_eq!(course(&mut poll, Some(&current), later), Course::Stay, "the old one is awaited");
    poll.note(2, Ok(Replica), later);
    let silent = later.plus(GRACE);
    assert_eq!(course(&mut poll, Some(&current), silent), Course::Follow(node(1)), "the old one is silent");
    poll.note(0, Ok(Replica), later);
    assert!(matches!(course(&mut poll, Some(&current), later), Course::Leave(_)), "it says that it is none");
    assert_eq!(course(&mut poll, None, later), Course::Follow(node(1)));
}

#[test]
fn of_two_none_is_followed_until_one_says_otherwise_or_fails() {
    let (mut poll, current) = (poll(), node(0));
    note_all(&mut poll, [Master, Replica, Master], NOW);
    let words = "a and c say that they are the master";
    let Course::Leave(why) = course(&mut poll, Some(&current), NOW) else { panic!("one is followed") };
    assert!(why.starts_with(words), "{why}");
    let told = poll.failure(NOW).expect("it is told at once").into_error("n").to_string();
    assert!(told.contains(words), "{told}");
    let later = NOW.plus(2 * EVERY);
    poll.asks(2, later);
    poll.note(2, Ok(Master), later);
    assert!(matches!(course(&mut poll, None, later.plus(GRACE)), Course::Leave(_)), "a silence is not enough");
    poll.note(0, silent(), later);
    poll.note(1, Ok(Replica), later);
    assert_eq!(course(&mut poll, None, later), Course::Follow(node(2)));
}

#[test]
fn one_that_is_being_looked_at_counts_as_one_that_says_so() {
    let mut poll = poll();
    note_all(&mut poll, [Replica, Master, Replica], NOW);
    assert_eq!(course(&mut poll, None, NOW), Course::Follow(node(1)));
    let later = NOW.plus(EVERY);
    poll.asks(0, later);
    poll.note(0, Ok(Master), later);
    let one = node(1);
    let seen = || Seen { current: None, is_in_doubt: false, looked_at: Some(&one), now: later };
    assert_eq!(poll.course(seen()), Course::AskAll);
    assert!(matches!(poll.course(seen()), Course::Leave(_)));
}

#[test]
fn that_there_is_none_is_said_when_all_have_answered_and_with_each_reason() {
    let mut poll = poll();
    poll.note(0, Ok(Replica), NOW);
    poll.note(1, Ok(Replica), NOW);
    assert!(poll.failure(NOW).is_none(), "one may be it");
    poll.note(2, silent(), NOW);
    let told = poll.failure(NOW).expect("all have answered").into_error("n").to_string();
    let words = "none of 3 nodes says that it is the master: a is a replica; b is a replica; x: no answer";
    assert!(told.contains(words), "{told}");
    assert!(poll.failure(NOW.plus(Duration::from_millis(1))).is_none(), "they are asked again");
}

#[test]
fn a_refusal_is_told_as_one_when_no_other_node_may_be_the_master() {
    let mut poll = poll();
    let refused =
        Failure::Refused { code: "NOAUTH".into(), applied: crate::base::error::Applied::No, cause: Cause::new("no") };
    poll.note(0, Err(refused), NOW);
    poll.note(1, Ok(Replica), NOW);
    poll.note(2, silent(), NOW);
    assert!(matches!(poll.last_failure(), Failure::Unreached(_)));
    poll.note(2, Ok(Replica), NOW);
    assert!(matches!(poll.last_failure(), Failure::Refused { code, .. } if code == "NOAUTH"));
}

#[test]
fn all_are_asked_again_at_one_time_when_all_is_well_and_ever_more_seldom_when_not() {
    let (mut poll, mut patience) = (poll(), FIRST_PAUSE);
    note_all(&mut poll, [Replica; 3], NOW);
    course(&mut poll, None, NOW);
    let waits = [(); 7].map(|()| poll.until(NOW, &mut patience).since(NOW).as_millis());
    assert_eq!(waits, [25, 50, 100, 200, 400, 800, 1_000]);
    poll.note(1, Ok(Master), NOW);
    course(&mut poll, Some(&node(1)), NOW);
    assert_eq!(poll.until(NOW.plus(EVERY / 2), &mut patience), NOW.plus(EVERY));
    assert_eq!(patience, FIRST_PAUSE);
}
