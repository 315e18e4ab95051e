//! What every kind of lock does alike: each case of `conformance/*.rs` runs over each kind.
//!
//! A new kind adds one line to the first list of `conformance!` below; a new case is one function and its name in the
//! second.

mod closures;
mod holding;
mod levels;
mod losses;
mod waits;

use crate::server::Server;
use redlatch::{HandOff, LocalRedLock, QuorumLock, RedLock, ReentrantLock};
use std::ops::Deref;
use std::process::Command;
use std::sync::Arc;

/// A kind of lock, and how to come by one of it.
trait Kind {
    type Lock: RedLock;
    fn start() -> Fixture<Self::Lock>;
}

/// A lock and what it needs; it derefs to the lock.
struct Fixture<L> {
    lock: Arc<L>,
    /// Dropped after the lock, and then each checks that nothing is left on it.
    _servers: Vec<Server>,
}

impl<L> Deref for Fixture<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lock
    }
}

impl<L> Fixture<L> {
    /// A lock on a server of its own.
    fn on_server(make: impl FnOnce(ReentrantLock) -> L) -> Self {
        let server = Server::start();
        Self { lock: Arc::new(make(server.locks())), _servers: vec![server] }
    }

    fn in_memory(lock: L) -> Self {
        Self { lock: Arc::new(lock), _servers: Vec::new() }
    }
}

impl Fixture<QuorumLock> {
    /// A lock on three servers.
    fn on_servers() -> Self {
        let servers: Vec<_> = std::iter::repeat_with(Server::start).take(3).collect();
        let lock = QuorumLock::connect(servers.iter().map(Server::url)).unwrap();
        Self { lock: Arc::new(lock), _servers: servers }
    }
}

impl Fixture<ReentrantLock> {
    fn handing_off(how: HandOff) -> Self {
        let server = Server::start();
        let lock = ReentrantLock::new(&server.builder().hand_off(how).build().unwrap());
        Self { lock: Arc::new(lock), _servers: vec![server] }
    }
}

macro_rules! conformance {
    ([$($kind:ident: $lock:ty = $start:expr;)*] $cases:tt) => {
        /// Every kind, by the name of its tests.
        const KINDS: &[&str] = &[$(stringify!($kind)),*];
        /// The types of the kinds, as they are written above.
        const TYPES: &[&str] = &[$(stringify!($lock)),*];
        $(mod $kind {
            use super::*;

            struct This;

            impl Kind for This {
                type Lock = $lock;

                fn start() -> Fixture<Self::Lock> {
                    $start
                }
            }

            conformance!(@tests $cases);
        })*
    };
    (@tests {$($file:ident: $($case:ident)*;)*}) => {
        $($(#[test]
        fn $case() {
            $file::$case::<This>();
        })*)*
    };
}

conformance! {
    [
        reentrant: ReentrantLock = Fixture::on_server(|lock| lock);
        never_passed_on: ReentrantLock = Fixture::handing_off(HandOff::off());
        passed_on_in_order: ReentrantLock = Fixture::handing_off(HandOff::default().in_order());
        quorum: QuorumLock = Fixture::on_servers();
        local: LocalRedLock = Fixture::in_memory(LocalRedLock::new());
        arc_dyn: Arc<dyn RedLock> = Fixture::on_server(|lock| Arc::new(lock) as Arc<dyn RedLock>);
        box_dyn: Box<dyn RedLock> = Fixture::in_memory(Box::new(LocalRedLock::new()) as Box<dyn RedLock>);
    ]
    {
        holding:
            sixteen_threads_exclude_each_other
            names_do_not_block_each_other
            names_may_be_of_any_characters
            a_try_of_what_another_thread_holds_is_busy
            unlocking_what_was_never_locked_is_an_error
            unlocking_once_too_often_is_an_error
            another_thread_cannot_unlock
            a_hold_tells_what_it_is
            each_acquisition_is_a_hold_of_its_own
            a_released_hold_reads_released
            threads_are_told_apart
            the_store_is_asked_for_lock_and_time_to_live
            verify_asks_the_store
            extend_prolongs_and_never_shortens
            extend_has_the_bounds_of_a_lease
            a_guard_unlocks_when_dropped
            a_guard_says_how_its_unlock_ended
            an_owned_guard_outlives_its_lock_object
            a_try_for_a_guard_is_none_when_busy
            a_hold_can_be_asked_from_other_threads;
        levels:
            a_lock_is_free_after_as_many_unlocks
            every_form_re_enters
            a_level_is_of_the_same_hold
            a_long_lease_inside_a_watched_hold_is_never_shortened
            a_short_lease_inside_a_watched_hold_shortens_nothing
            a_watched_level_inside_a_lease_prolongs_it
            guards_of_levels_release_one_level_each;
        losses:
            a_lease_that_runs_out_frees_the_lock
            a_late_unlock_says_lost
            a_late_unlock_never_frees_the_next_holders_lock
            a_guard_of_a_lost_hold_never_frees_a_later_one
            a_released_hold_never_frees_a_later_one
            a_lost_hold_cannot_be_re_entered_until_it_is_unlocked
            a_force_unlock_makes_the_holder_lost
            a_force_unlock_of_a_free_lock_is_false
            a_force_unlock_wakes_waiters
            a_lost_hold_stays_lost
            every_listener_hears_of_a_loss_once
            listeners_of_a_released_hold_are_disconnected
            a_loss_is_no_news_to_a_later_hold;
        waits:
            a_wait_in_vain_ends_in_time
            a_wait_of_zero_tries_once
            a_wait_of_max_waits_for_the_lock
            an_unlock_wakes_a_waiter
            every_waiter_is_served
            a_waiter_takes_over_when_the_lease_runs_out
            a_wait_in_vain_leaves_nothing_behind
            a_cancelled_token_ends_the_wait
            a_token_cancelled_before_prevents_the_lock
            a_cancelled_wait_leaves_nothing_behind
            cancelling_does_not_touch_what_is_held
            waiters_behind_one_that_gives_up_are_served;
        closures:
            a_closure_runs_in_the_lock_and_gives_its_value
            a_closure_that_panics_releases_the_lock
            a_panic_in_an_inner_level_releases_that_level
            a_closure_that_lost_the_lock_is_an_error
            a_closure_does_not_run_without_the_lock
            a_request_spells_out_its_terms
            hooks_are_called_in_order
            the_exit_hook_is_called_after_a_panic_too
            a_panic_in_the_acquire_hook_releases_the_lock
            hooks_are_not_called_without_the_lock
            the_exit_hook_is_called_when_the_lock_was_lost
            an_action_may_be_a_trait_object;
    }
}

/// The names of the cases that a file has.
fn cases_of(source: &str) -> Vec<&str> {
    let functions = source.lines().filter_map(|line| line.strip_prefix("pub(super) fn "));
    functions.filter_map(|line| line.split_once("<K: Kind>").map(|(name, _)| name)).collect()
}

#[test]
fn no_combination_of_case_and_kind_is_missing() {
    let sources = [
        include_str!("conformance/closures.rs"),
        include_str!("conformance/holding.rs"),
        include_str!("conformance/levels.rs"),
        include_str!("conformance/losses.rs"),
        include_str!("conformance/waits.rs"),
    ];
    let listed = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let cases: Vec<_> = sources.iter().flat_map(|source| cases_of(source)).collect();
    assert!(cases.len() > 50, "the cases were not found");
    for (kind, case) in KINDS.iter().flat_map(|kind| cases.iter().map(move |case| (kind, case))) {
        let test = format!("conformance::{kind}::{case}: test");
        assert!(listed.lines().any(|line| line == test), "{test} is missing");
    }
}

#[test]
fn no_kind_of_the_library_is_missing() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lock")).unwrap();
    let files = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let sources = files.map(|path| std::fs::read_to_string(path).unwrap());
    let kinds: Vec<_> = sources.flat_map(|source| kinds_in(&source)).collect();
    assert!(kinds.len() >= 2, "the kinds were not found: {kinds:?}");
    assert!(kinds.iter().all(|kind| TYPES.contains(&kind.as_str())), "{kinds:?} are not all in {TYPES:?}");
}

fn kinds_in(source: &str) -> Vec<String> {
    let impls = source.lines().filter_map(|line| line.strip_prefix("impl RedLock for "));
    impls.map(|rest| rest.trim_end_matches(" {").to_owned()).collect()
}
