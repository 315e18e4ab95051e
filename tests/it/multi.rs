//! `MultiLock`: what groups of all kinds do alike, each case over each fixture, and in the files below what only some do.
//!
//! A new fixture adds one line to the list below; a new case is one function and its name in the list.

mod closures;
mod demand;
mod faults;
mod holding;
mod kinds;
mod levels;
mod losses;
pub(crate) mod members;
mod one_script;
mod one_script_faults;
mod stress;
mod waits;

use crate::server::Server;
use redlatch::{Client, FencedLock, LocalRedLock, MultiLock, ReadWriteLock, RedLock, ReentrantLock};
use std::ops::Deref;
use std::sync::Arc;

/// A lock of any kind.
type Any = Arc<dyn RedLock>;

/// A group of three, its members and what they need; it derefs to the group.
struct Fixture {
    group: MultiLock<'static>,
    members: Vec<(Any, String)>,
    /// Dropped after the locks, and then each checks that nothing is left on it.
    _servers: Vec<Server>,
}

impl Deref for Fixture {
    type Target = MultiLock<'static>;

    fn deref(&self) -> &Self::Target {
        &self.group
    }
}

impl Fixture {
    fn new(servers: Vec<Server>, locks: [Any; 3]) -> Self {
        let names = ["a", "b", "c"].map(str::to_owned);
        let members: Vec<_> = locks.into_iter().zip(names).collect();
        // Given in another order than they are taken in.
        let group = members.iter().rev().cloned().collect();
        Self { group, members, _servers: servers }
    }

    /// Whether any member is locked, asked one by one.
    fn locked(&self) -> Vec<bool> {
        self.members.iter().map(|(lock, name)| lock.is_locked(name).unwrap()).collect()
    }

    #[track_caller]
    fn assert_free(&self) {
        assert_eq!(self.locked(), [false; 3]);
        assert_eq!(self.members.iter().map(|(lock, name)| lock.hold_count(name)).sum::<usize>(), 0);
    }
}

/// All of one client: taken by one script.
fn together() -> Fixture {
    let server = Server::start();
    let lock: Any = Arc::new(server.locks());
    Fixture::new(vec![server], [(); 3].map(|()| Arc::clone(&lock)))
}

/// Of two clients on two servers: two of the members can be taken by one script.
fn two_servers() -> Fixture {
    let servers = [Server::start(), Server::start()];
    let [one, other] = servers.each_ref().map(|server| Arc::new(server.locks()) as Any);
    Fixture::new(servers.into(), [Arc::clone(&one), other, one])
}

fn in_memory() -> Fixture {
    let lock: Any = Arc::new(LocalRedLock::new());
    Fixture::new(Vec::new(), [(); 3].map(|()| Arc::clone(&lock)))
}

/// Of the kinds that one server has and one thread alone.
fn at_one_server() -> Fixture {
    let server = Server::start();
    let client = Client::connect(&server.url()).unwrap();
    let write = ReadWriteLock::new(&client).write().clone();
    let fenced = Arc::new(FencedLock::new(&client));
    Fixture::new(vec![server], [fenced, Arc::new(write), Arc::new(ReentrantLock::new(&client))])
}

/// Of kinds at different places.
fn mixed() -> Fixture {
    let servers: Vec<_> = std::iter::repeat_with(Server::start).take(4).collect();
    let quorum = Arc::new(crate::harness::quorum::connect(&servers[1..]));
    let single = Arc::new(servers[0].locks());
    Fixture::new(servers, [single, Arc::new(LocalRedLock::new()), quorum])
}

macro_rules! over_each {
    ([$($fixture:ident)*] $cases:tt) => {
        $(mod $fixture {
            over_each!(@tests $fixture $cases);
        })*
    };
    (@tests $fixture:ident {$($file:ident: $($case:ident)*;)*}) => {
        $($(#[test]
        fn $case() {
            super::$file::$case(&super::super::$fixture());
        })*)*
    };
}

mod cases {
    use super::{closures, holding, levels, losses, waits};

    over_each! {
        [together two_servers in_memory at_one_server mixed]
        {
            holding:
                a_group_holds_every_member_and_frees_it
                threads_exclude_each_other
                a_try_with_one_member_busy_takes_nothing
                unlocking_what_was_never_locked_is_an_error
                another_thread_cannot_unlock
                a_group_hold_tells_what_it_is
                a_hold_is_released_by_the_same_members_in_any_order
                a_group_is_locked_while_one_member_is
                a_group_lasts_as_long_as_its_longest_member
                an_extend_prolongs_every_member_and_shortens_none
                a_force_unlock_frees_every_member
                a_guard_unlocks_when_dropped
                a_guard_says_how_its_unlock_ended
                a_hold_of_another_group_is_refused
                leases_have_bounds;
            levels:
                a_group_is_free_after_as_many_unlocks
                every_form_re_enters
                a_member_that_is_held_is_entered_once_more
                a_member_may_be_in_the_group_twice
                a_renewed_level_goes_on_when_the_leased_one_around_it_ends;
            waits:
                a_wait_in_vain_ends_in_time
                a_wait_of_zero_tries_once
                a_try_with_a_lease_does_not_wait
                an_unlock_of_a_member_wakes_a_group
                members_that_are_freed_one_after_another_are_waited_for
                nothing_is_held_while_a_member_is_waited_for
                groups_in_opposite_order_do_not_deadlock
                a_cancelled_token_ends_the_wait
                a_token_cancelled_before_prevents_the_locks
                cancelling_does_not_touch_what_is_held;
            losses:
                leases_that_run_out_free_the_group
                a_try_with_a_lease_ends_by_itself
                a_loss_of_one_member_is_a_loss_of_the_group
                an_unlock_releases_past_a_lost_member
                a_lost_member_cannot_be_re_entered_until_it_is_unlocked
                nothing_is_prolonged_once_a_member_is_lost
                listeners_of_a_released_group_are_disconnected;
            closures:
                a_closure_runs_in_the_locks_and_gives_its_value
                a_closure_that_panics_releases_the_locks
                a_closure_that_lost_a_member_is_an_error
                a_closure_does_not_run_without_the_locks
                a_request_spells_out_its_terms;
        }
    }
}

/// The names of the cases that a file has.
fn cases_of(source: &str) -> Vec<&str> {
    let functions = source.lines().filter_map(|line| line.strip_prefix("pub(super) fn "));
    functions.filter_map(|line| line.split_once("(group: &Fixture)").map(|(name, _)| name)).collect()
}

#[test]
fn no_case_is_missing() {
    let sources = [
        include_str!("multi/closures.rs"),
        include_str!("multi/holding.rs"),
        include_str!("multi/levels.rs"),
        include_str!("multi/losses.rs"),
        include_str!("multi/waits.rs"),
    ];
    let list = include_str!("multi.rs");
    let cases: Vec<_> = sources.iter().flat_map(|source| cases_of(source)).collect();
    assert!(cases.len() > 25, "the cases were not found");
    for case in cases {
        assert!(list.lines().any(|line| line.trim().trim_end_matches(';') == case), "{case} is not in the list");
    }
}
