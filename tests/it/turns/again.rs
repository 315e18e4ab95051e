//! Within a turn a process takes the lock again, and then it is the next one's.

use super::alone::{names, scripts_during};
use super::{CHANNEL, MARK, MINUTE, QUEUE, ear_of, holder, locks_of};
use crate::server::Server;
use crate::threads::{LONG, answered, eventually, ms};
use redlatch::{Client, HandOff, RedLock, ReentrantLock};
use std::time::Duration;

/// A ticket of a process that hears what it is told, and never comes.
const TICKET: &str = "5ca1ab1e-0000-4000-8000-000000000000:1";

/// A client that took the lock in turn, and may take it again for so long: it was told before that others listen. The server
/// knows all scripts.
fn in_turn(server: &Server, turn: Duration) -> ReentrantLock {
    holder(server).unlock("n").unwrap();
    let client = Client::builder(&server.url()).poll_cap(MINUTE).watchdog_timeout(MINUTE);
    // A turn is no longer than a tenure that is passed on may be.
    let hand_off = HandOff::default().within(turn.max(ms(5))).turn(turn);
    let locks = locks_of(client.hand_off(hand_off));
    pair(&locks);
    eventually(LONG, "the turn is left to nobody", || server.pttl(MARK) == -2);
    assert_eq!(scripts_during(server, || locks.lock("n").unwrap()), ["in_turn+acquire"]);
    locks
}

/// The scripts of one who waits, beside what it subscribes to.
fn scripts_of_a_wait(server: &Server, locks: &ReentrantLock, span: Duration) -> (bool, Vec<&'static str>) {
    let mut got = false;
    let commands = server.commands_during(|| got = answered(|| locks.try_lock_for("n", span)).0);
    let scripts: Vec<_> = commands.into_iter().filter(|command| command.starts_with("\"evalsha\"")).collect();
    (got, names(&scripts))
}

fn pair(locks: &ReentrantLock) {
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
}

/// For how many ms its unlock leaves the turn to the head.
fn leaves(server: &Server, locks: &ReentrantLock) -> u64 {
    let unlocked = server.commands_during(|| locks.unlock("n").unwrap());
    let words: Vec<_> = unlocked[0].split("\" \"").collect();
    let mark =
        words.iter().position(|word| *word == MARK).unwrap_or_else(|| panic!("no release in turn: {unlocked:?}"));
    words[mark + 1].parse().unwrap()
}

fn queue_a_ticket(server: &Server) {
    assert_eq!(server.ask::<i64>(&["ZADD", QUEUE, "1", TICKET]), 1);
}

fn clear(server: &Server) {
    server.ask::<i64>(&["DEL", QUEUE, MARK]);
}

#[test]
fn within_a_turn_it_tells_the_head_each_time_and_takes_the_lock_again() {
    let server = Server::start();
    let mut stranger = server.connection();
    let mut ear = stranger.as_pubsub();
    ear.subscribe(&[CHANNEL, &ear_of(TICKET)]).unwrap();
    ear.set_read_timeout(Some(LONG)).unwrap();
    let locks = in_turn(&server, MINUTE);
    queue_a_ticket(&server);
    let scripts = scripts_during(&server, || {
        locks.unlock("n").unwrap();
        (0..3).for_each(|_| pair(&locks));
    });
    assert_eq!(scripts, [&["release_in_turn"][..], &["acquire", "release_in_turn"].repeat(3)].concat());
    locks.lock("n").unwrap();
    assert_eq!(leaves(&server, &locks), 0, "whoever comes first has it");
    let ranks = std::iter::repeat_with(|| ear.get_message().unwrap()).filter(|said| said.get_channel_name() != CHANNEL);
    let ranks: Vec<String> = ranks.take(4).map(|said| said.get_payload().unwrap()).collect();
    assert_eq!(ranks, [(); 4].map(|()| format!("{TICKET} 0")));
    clear(&server);
}

#[test]
fn after_its_turn_it_leaves_the_turn_to_the_head() {
    let server = Server::start();
    let mut stranger = server.connection();
    let mut ear = stranger.as_pubsub();
    ear.subscribe(&[CHANNEL, &ear_of(TICKET)]).unwrap();
    let locks = in_turn(&server, ms(1));
    queue_a_ticket(&server);
    std::thread::sleep(ms(2));
    assert!(leaves(&server, &locks) > 0);
    let (got, scripts) = scripts_of_a_wait(&server, &locks, LONG);
    assert!(got && scripts[0] == "in_turn+acquire", "{scripts:?}");
    locks.unlock("n").unwrap();
}

/// Else one turn follows upon the other, for the last ask of a turn is answered after it.
#[test]
fn what_is_taken_again_begins_no_turn() {
    let server = Server::start();
    let mut stranger = server.connection();
    let mut ear = stranger.as_pubsub();
    ear.subscribe(&[CHANNEL, &ear_of(TICKET)]).unwrap();
    let locks = in_turn(&server, ms(3_000));
    std::thread::sleep(ms(1_600));
    locks.unlock("n").unwrap();
    assert_eq!(scripts_during(&server, || locks.lock("n").unwrap()), ["acquire"]);
    queue_a_ticket(&server);
    std::thread::sleep(ms(1_600));
    assert!(leaves(&server, &locks) > 0);
    clear(&server);
}

/// Another one was faster: that is waited for as any other.
#[test]
fn who_finds_it_taken_within_its_turn_asks_in_turn() {
    let server = Server::start();
    let mut stranger = server.connection();
    let mut ear = stranger.as_pubsub();
    ear.subscribe(&[CHANNEL, &ear_of(TICKET)]).unwrap();
    let (locks, other) = (in_turn(&server, MINUTE), super::patient(&server));
    locks.unlock("n").unwrap();
    other.lock("n").unwrap();
    let (got, scripts) = scripts_of_a_wait(&server, &locks, ms(50));
    assert!(!got && scripts.starts_with(&["acquire", "in_turn+acquire"]), "{scripts:?}");
    other.unlock("n").unwrap();
}
