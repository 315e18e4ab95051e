//! Which cases there are, each by its file and name. What is given to these macros gets such a list.

/// Every case.
macro_rules! all {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)* {
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
                    a_hold_can_be_asked_from_other_threads
                    a_watched_hold_is_renewed
                    a_lock_that_is_dropped_gives_back_what_it_holds;
                levels:
                    a_lock_is_free_after_as_many_unlocks
                    every_form_re_enters
                    a_level_is_of_the_same_hold
                    a_long_lease_inside_a_watched_hold_is_never_shortened
                    a_short_lease_inside_a_watched_hold_shortens_nothing
                    a_watched_level_inside_a_lease_prolongs_it
                    guards_of_levels_release_one_level_each
                    a_renewed_level_goes_on_when_the_leased_one_around_it_ends
                    a_leased_level_lasts_as_long_as_it_asked_for_when_the_renewed_one_around_it_ends;
                losses:
                    a_lease_that_runs_out_frees_the_lock
                    a_try_with_a_lease_ends_by_itself
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
                    a_try_with_a_lease_does_not_wait
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
    };
}

/// What has to be seen once of a kind on a deployment where each of them alone goes through all cases: that it is taken,
/// busy, wakes who waits, is renewed, lost, forced open, waited for in vain, and shut down.
macro_rules! on_the_wire {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)* {
                holding:
                    sixteen_threads_exclude_each_other
                    a_try_of_what_another_thread_holds_is_busy
                    a_watched_hold_is_renewed
                    a_lock_that_is_dropped_gives_back_what_it_holds;
                losses:
                    a_force_unlock_makes_the_holder_lost;
                waits:
                    a_wait_in_vain_ends_in_time
                    an_unlock_wakes_a_waiter
                    a_waiter_takes_over_when_the_lease_runs_out;
            }
        }
    };
}

/// What shows that a pointer to a lock passes every call on.
macro_rules! a_handful {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)* {
                holding:
                    a_try_of_what_another_thread_holds_is_busy
                    the_store_is_asked_for_lock_and_time_to_live
                    verify_asks_the_store
                    a_guard_unlocks_when_dropped
                    an_owned_guard_outlives_its_lock_object
                    a_lock_that_is_dropped_gives_back_what_it_holds;
                levels:
                    every_form_re_enters;
                losses:
                    a_force_unlock_makes_the_holder_lost;
                waits:
                    a_wait_in_vain_ends_in_time
                    a_cancelled_token_ends_the_wait;
                closures:
                    hooks_are_called_in_order;
            }
        }
    };
}

/// Every case of a lock that several may have, but for those in which it is busy; and what its sides are to each other.
macro_rules! all_of_shared {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)* {
                holding:
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
                    a_hold_can_be_asked_from_other_threads
                    a_watched_hold_is_renewed
                    a_lock_that_is_dropped_gives_back_what_it_holds;
                levels:
                    every_form_re_enters
                    a_level_is_of_the_same_hold
                    a_long_lease_inside_a_watched_hold_is_never_shortened
                    a_short_lease_inside_a_watched_hold_shortens_nothing
                    a_watched_level_inside_a_lease_prolongs_it
                    guards_of_levels_release_one_level_each
                    a_renewed_level_goes_on_when_the_leased_one_around_it_ends
                    a_leased_level_lasts_as_long_as_it_asked_for_when_the_renewed_one_around_it_ends;
                losses:
                    a_lease_that_runs_out_frees_the_lock
                    a_try_with_a_lease_ends_by_itself
                    a_late_unlock_says_lost
                    a_guard_of_a_lost_hold_never_frees_a_later_one
                    a_released_hold_never_frees_a_later_one
                    a_lost_hold_cannot_be_re_entered_until_it_is_unlocked
                    a_force_unlock_makes_the_holder_lost
                    a_force_unlock_of_a_free_lock_is_false
                    a_lost_hold_stays_lost
                    every_listener_hears_of_a_loss_once
                    listeners_of_a_released_hold_are_disconnected
                    a_loss_is_no_news_to_a_later_hold;
                waits:
                    a_token_cancelled_before_prevents_the_lock
                    cancelling_does_not_touch_what_is_held;
                closures:
                    a_closure_that_panics_releases_the_lock
                    a_panic_in_an_inner_level_releases_that_level
                    a_closure_that_lost_the_lock_is_an_error
                    hooks_are_called_in_order
                    the_exit_hook_is_called_after_a_panic_too
                    a_panic_in_the_acquire_hook_releases_the_lock
                    the_exit_hook_is_called_when_the_lock_was_lost
                    an_action_may_be_a_trait_object;
                sides:
                    readers_are_together_and_writers_alone
                    a_reader_goes_in_beside_another
                    each_side_is_woken_by_the_other;
            }
        }
    };
}

/// What has to be seen of it on each deployment.
macro_rules! shared_on_the_wire {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)* {
                holding:
                    a_watched_hold_is_renewed
                    a_lock_that_is_dropped_gives_back_what_it_holds;
                losses:
                    a_force_unlock_makes_the_holder_lost;
                sides:
                    readers_are_together_and_writers_alone
                    a_reader_goes_in_beside_another
                    each_side_is_woken_by_the_other;
            }
        }
    };
}
