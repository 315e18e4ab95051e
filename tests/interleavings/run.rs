//! The crate's own files on a scheduler that tries orders on purpose: thousands of seeds, each an order of all
//! accesses to what threads share, and a thread that would sleep for ever is a failure.
//!
//! `sync.rs` takes the place of src/base/sync.rs, with shuttle's primitives behind the same names. A failing order is
//! printed and can be replayed with `shuttle::replay`. `REDLATCH_SEEDS` says how many orders each test tries.
//!
//! A call waits here by the waiting loop and the line of the crate; `store.rs` is a server without a wire.
//!
//! A new way to hand the lock on inside the process belongs into `queue.rs`: let the thread that unlocks do it, and
//! keep what is asserted there (one possessor at a time, nobody asleep, nothing left in the map).

#![forbid(unsafe_code)]
// What is public in the crate cannot be reached from outside of this program.
#![allow(unreachable_pub)]

// The files of the crate come whole, and no test needs all of one.
#[allow(dead_code, unused_imports)]
#[path = "../../src"]
mod source {
    pub(crate) mod base {
        pub(crate) mod config;
        pub(crate) mod credentials;
        pub(crate) mod error;
        pub(crate) mod key;
        pub(crate) mod kind;
        pub(crate) mod lives;
        #[path = "no_meters.rs"]
        pub(crate) mod meters;
        pub(crate) mod mutant;
        pub(crate) mod owner;
        pub(crate) mod say;
        pub(crate) mod signal;
        pub(crate) mod slot;
        pub(crate) mod stats;
        pub(crate) mod stop;
        pub(crate) mod threads;
        pub(crate) mod time;
        #[path = "no_tls.rs"]
        pub(crate) mod tls;
        pub(crate) mod turns;
        pub(crate) mod unwind;
        pub(crate) mod value;
        pub(crate) mod voters;
    }
    pub(crate) mod lease {
        pub(crate) mod hold;
        pub(crate) mod nodes;
        pub(crate) mod tenure;
        mod timer;
        pub(crate) mod watchdog;
    }
    pub(crate) mod lock {
        pub(crate) mod waiting {
            pub(crate) mod bid;
            pub(crate) mod line;
            mod policy;
            pub(crate) mod wait;
        }
    }
    pub(crate) mod registry;
}
use source::lock::waiting;
use source::{lease, registry};

/// The crate's own, but for what threads share.
mod base {
    pub(crate) use crate::source::base::*;
    pub(crate) use crate::sync;
}

mod beliefs;
mod queue;
mod renewals;
mod sharing;
mod signals;
mod store;
mod sync;
mod turns;
mod waits;

const TESTS: &[(&str, fn())] = &[
    ("signals::a_permit_is_never_lost", signals::a_permit_is_never_lost),
    (
        "signals::a_permit_that_comes_with_the_time_out_is_taken_or_kept",
        signals::a_permit_that_comes_with_the_time_out_is_taken_or_kept,
    ),
    ("turns::no_turn_is_lost_whoever_goes_without_one", turns::no_turn_is_lost_whoever_goes_without_one),
    ("beliefs::an_end_is_for_good_and_there_is_one", beliefs::an_end_is_for_good_and_there_is_one),
    (
        "beliefs::whoever_sees_the_deadline_passed_ends_what_a_renewal_did_not_save",
        beliefs::whoever_sees_the_deadline_passed_ends_what_a_renewal_did_not_save,
    ),
    ("beliefs::a_loss_has_one_teller", beliefs::a_loss_has_one_teller),
    ("sharing::no_reader_waits_for_another", sharing::no_reader_waits_for_another),
    ("sharing::who_shares_a_tenure_is_renewed", sharing::who_shares_a_tenure_is_renewed),
    ("sharing::who_stays_keeps_nobody_waiting", sharing::who_stays_keeps_nobody_waiting),
    ("sharing::readers_share_in_some_order", sharing::readers_share_in_some_order),
    ("sharing::a_loss_is_of_all_who_share", sharing::a_loss_is_of_all_who_share),
    ("queue::each_waiter_has_its_turn_alone", queue::each_waiter_has_its_turn_alone),
    ("queue::who_comes_again_has_its_turn_too", queue::who_comes_again_has_its_turn_too),
    ("queue::a_head_that_leaves_wakes_the_next", queue::a_head_that_leaves_wakes_the_next),
    ("queue::a_time_out_takes_nobodys_turn", queue::a_time_out_takes_nobodys_turn),
    ("queue::a_loss_lets_the_next_one_through", queue::a_loss_lets_the_next_one_through),
    ("queue::nobody_waits_for_the_unlock_of_what_was_lost", queue::nobody_waits_for_the_unlock_of_what_was_lost),
    (
        "queue::two_processes_have_their_turns_by_messages_alone",
        queue::two_processes_have_their_turns_by_messages_alone,
    ),
    ("queue::a_cancel_ends_the_wait_of_whoever_is_parked", queue::a_cancel_ends_the_wait_of_whoever_is_parked),
    ("waits::whoever_listens_misses_no_unlock", waits::whoever_listens_misses_no_unlock),
    (
        "waits::a_confirmation_that_comes_late_is_a_reason_to_look",
        waits::a_confirmation_that_comes_late_is_a_reason_to_look,
    ),
    ("waits::a_cancelled_waiter_wakes_and_leaves_nothing", waits::a_cancelled_waiter_wakes_and_leaves_nothing),
    ("waits::a_shutdown_wakes_whoever_waits", waits::a_shutdown_wakes_whoever_waits),
    ("waits::a_wait_that_ends_asks_once_more", waits::a_wait_that_ends_asks_once_more),
    ("waits::who_is_told_while_it_asks_does_not_sleep", waits::who_is_told_while_it_asks_does_not_sleep),
    ("waits::a_poll_ends_the_sleep_of_who_is_not_told", waits::a_poll_ends_the_sleep_of_who_is_not_told),
    (
        "renewals::what_is_watched_is_renewed_until_it_is_released",
        renewals::what_is_watched_is_renewed_until_it_is_released,
    ),
    (
        "renewals::a_deadline_that_comes_before_all_others_is_not_slept_through",
        renewals::a_deadline_that_comes_before_all_others_is_not_slept_through,
    ),
    ("renewals::a_loss_is_told_once_whoever_notices_it", renewals::a_loss_is_told_once_whoever_notices_it),
    ("renewals::closing_ends_the_threads_whatever_is_due", renewals::closing_ends_the_threads_whatever_is_due),
    (
        "renewals::a_tenure_that_is_passed_on_at_its_cap_is_renewed",
        renewals::a_tenure_that_is_passed_on_at_its_cap_is_renewed,
    ),
];

/// Takes a part of a name, as other test programs do.
fn main() {
    let part = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let seeds = std::env::var("REDLATCH_SEEDS").map_or(400, |seeds| seeds.parse().expect("a number of seeds"));
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(&part)) {
        let started = std::time::Instant::now();
        println!("test {name} ...");
        explore(*test, seeds);
        println!("test {name} ... ok, {seeds} orders in {:.1} s", started.elapsed().as_secs_f64());
    }
}

/// Tries orders of what a test does: half of them at random, half with few but deliberate preemptions.
fn explore(test: fn(), seeds: usize) {
    let test = move || {
        sync::begin();
        test();
    };
    shuttle::check_random(test, seeds / 2);
    shuttle::check_pct(test, seeds / 2, 3);
}
