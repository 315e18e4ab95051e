//! Results that are easily lost: what warns, what says instead, and where only a lint that is off by default helps.

use super::{assert_silent, assert_warned};

#[test]
fn a_guard_that_is_not_kept_is_warned_of() {
    let kept = "write `let _guard = ..`, not `let _ = ..`";
    assert_warned("locks.guard(\"n\")?;", kept);
    assert_warned("locks.owned_guard(\"n\")?;", kept);
    assert_warned("locks.request(\"n\").guard()?.unwrap();", kept);
    assert_warned("MultiLock::of([(&locks, \"n\")]).guard()?;", kept);
    assert_silent("let _guard = locks.guard(\"n\")?;");
    assert_silent("locks.guard(\"n\")?.unlock()?;");
}

#[test]
fn what_does_nothing_by_itself_is_warned_of() {
    assert_warned("locks.request(\"n\");", "nothing until `.guard()?`");
    assert_warned("locks.request(\"n\").wait(Duration::ZERO);", "nothing until `.guard()?`");
    assert_warned("MultiLock::of([(&locks, \"n\")]).request();", "nothing until `.guard()?`");
    assert_warned("MultiLock::of([(&locks, \"n\")]);", "holds nothing until `lock`");
    assert_warned("Client::builder(\"redis://h\");", "ClientBuilder");
    assert_warned("Terms::new();", "Terms");
    assert_silent("locks.request(\"n\").wait(Duration::ZERO).guard()?.expect(\"it is free\").unlock()?;");
    assert_silent("MultiLock::of([(&locks, \"n\")]).lock()?;");
}

#[test]
fn an_answer_that_nobody_looks_at_is_warned_of_with_what_it_means() {
    for call in ["try_lock(\"n\")", "try_lock_for(\"n\", Duration::ZERO)"] {
        assert_warned(&format!("locks.{call};"), "`false` means that the lock is not held: write `if locks.try_lock");
        assert_silent(&format!("if locks.{call}? {{ locks.unlock(\"n\")?; }}"));
    }
    assert_warned("locks.try_guard(\"n\");", "write `let Some(guard) = .. else {`");
    assert_warned("locks.request(\"n\").execute(|_| ());", "the work did not run");
    assert_warned("MultiLock::of([(&locks, \"n\")]).try_lock();", "write `if group.try_lock(..)? {`");
    assert_warned("MultiLock::of([(&locks, \"n\")]).try_guard();", "write `let Some(guard) = .. else {`");
    assert_silent("let Some(guard) = locks.try_guard(\"n\")? else { return Ok(()) }; guard.unlock()?;");
}

#[test]
fn what_is_asked_of_this_process_is_warned_of() {
    assert_warned("locks.hold(\"n\");", "hold");
    assert_warned("locks.hold_count(\"n\");", "hold_count");
    assert_warned("locks.is_held_by_current_thread(\"n\");", "is_held_by_current_thread");
}

/// A hold is only a view: who drops it may unlock by name. Whether there is one is what must not be lost.
#[test]
fn an_acquire_is_warned_of_and_its_hold_is_not() {
    assert_warned("locks.acquire(\"n\", &Terms::new());", "write `let Some(hold) = .. else {`");
    assert_warned("MultiLock::of([(&locks, \"n\")]).acquire(&Terms::new());", "write `let Some(hold) = .. else {`");
    assert_silent("locks.acquire(\"n\", &Terms::new())?.expect(\"no deadline\"); locks.unlock(\"n\")?;");
}

/// The documentation of `RedLock` says so: if the compiler learns to warn of these by itself, it may say less.
#[test]
fn what_a_question_mark_leaves_is_found_by_lints_that_are_off_by_default() {
    for lost in ["locks.try_lock(\"n\")?;", "locks.try_guard(\"n\")?;", "locks.request(\"n\").execute(|_| 1)?;"] {
        assert_silent(lost);
        assert_warned(&format!("#![warn(unused_results)]\n{lost}"), "unused result of type");
    }
    assert_silent("let _ = locks.guard(\"n\")?;");
    assert_warned("#![warn(let_underscore_drop)]\nlet _ = locks.guard(\"n\")?;", "non-binding let on a type");
}
