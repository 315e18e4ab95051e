//! A guard that is sent away, and calls in `catch_unwind`.

use super::{assert_refused, assert_silent};

const STAYS: [&str; 2] = ["StaysOnItsThread", "cannot be sent between threads safely"];

#[test]
fn a_guard_that_is_sent_away_is_refused_in_words_of_ours() {
    let send = "thread::scope(|scope| { scope.spawn(move || drop(guard)); });";
    assert_refused(&format!("let guard = locks.guard(\"n\")?; {send}"), &STAYS);
    assert_refused(&format!("let guard = locks.owned_guard(\"n\")?; {send}"), &STAYS);
    let group = "let group = MultiLock::of([(locks, \"n\")]); let guard = group.guard()?;";
    assert_refused(&format!("{group} {send}"), &STAYS);
}

#[test]
fn a_guard_may_be_asked_by_another_thread() {
    let ask = "thread::scope(|scope| { scope.spawn(|| guard.is_valid()); }); guard.unlock()?;";
    assert_silent(&format!("let guard = locks.guard(\"n\")?; {ask}"));
    assert_silent(&format!("let guard = locks.owned_guard(\"n\")?; {ask}"));
}

#[test]
fn calls_may_be_made_inside_catch_unwind() {
    let catch = |call: &str| assert_silent(&format!("let _ = catch_unwind(|| {call});"));
    catch("locks.lock(\"n\")");
    catch("locks.client().stats()");
    catch("locks.execute_in_lock(\"n\", || ())");
    assert_silent("let guard = locks.guard(\"n\")?; let _ = catch_unwind(|| guard.is_valid()); guard.unlock()?;");
    assert_silent("let guard = locks.guard(\"n\")?; let _ = catch_unwind(move || drop(guard));");
    assert_silent("let group = MultiLock::of([(locks, \"n\")]); let _ = catch_unwind(|| group.lock());");
}

#[test]
fn a_trait_object_in_catch_unwind_is_refused_in_words_of_ours() {
    let locks = "let locks: Arc<dyn RedLock> = Arc::new(locks);";
    assert_refused(&format!("{locks} let _ = catch_unwind(|| locks.lock(\"n\"));"), &["dyn RedLock", "catch_unwind"]);
    let asserted = "let locks: Arc<dyn RedLock + std::panic::RefUnwindSafe> = Arc::new(locks);";
    assert_silent(&format!("{asserted} let _ = catch_unwind(|| locks.lock(\"n\"));"));
}
