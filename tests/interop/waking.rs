//! A waiter of one program is woken by the other's message, and not by the end of the lease or by a look of its own:
//! both are a minute away.

use crate::java::Span;
use crate::setting::{FOR_EVER, Family, Holder, Kind, Setting};
use crate::sides::Side;
use crate::threads::LONG;
use std::time::Duration;

/// How soon a waiter has to be woken, from the beginning of the unlock to the end of its own call.
const WOKEN: Duration = Duration::from_millis(50);

/// Rounds that are not measured: a JVM is slow until it has compiled what it runs.
const WARM_UP: usize = 5;
const ROUNDS: usize = 25;

everywhere!(an_unlock_wakes_the_other_side);
both_ways!(a_force_unlock_wakes_the_other_side);

fn an_unlock_wakes_the_other_side(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    let figures = wake_ups(&setting, setting.sides(), |holder| holder.unlock("n"));
    setting.record("woken by unlock", &figures);
}

fn a_force_unlock_wakes_the_other_side(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    // The unlock of a fair lock there says nothing if nobody holds the lock.
    let is_silent = family.kind == Kind::Fair && holder == Holder::Java;
    let figures = wake_ups(&setting, setting.sides(), |holder| {
        let (was_locked, span) = holder.force_unlock("n");
        assert!(was_locked);
        assert!(holder.try_unlock("n").is_err() || is_silent);
        span
    });
    setting.record("woken by forceUnlock", &figures);
}

/// Has the one side free the lock for which the other sleeps, again and again.
pub(crate) fn wake_ups(
    setting: &Setting,
    (holder, waiter): (Box<dyn Side + '_>, Box<dyn Side + '_>),
    free: impl Fn(&dyn Side) -> Span,
) -> String {
    let mut all = Vec::new();
    for _ in 0..WARM_UP + ROUNDS {
        holder.lock("n");
        let wait = || {
            let span = waiter.lock("n");
            waiter.unlock("n");
            span
        };
        let (waited, freed) = setting.while_asleep("n", wait, || free(&*holder));
        assert!(waited.began < freed.began && waited.ended > freed.began, "{waited:?} {freed:?}");
        let woken = waited.after(freed);
        assert!(woken < LONG, "not woken: it came in after {woken:?}");
        all.push(woken);
    }
    judge(all.split_off(WARM_UP))
}

fn judge(mut all: Vec<Duration>) -> String {
    all.sort_unstable();
    let (median, longest) = (all[all.len() / 2], all[all.len() - 1]);
    assert!(median <= WOKEN, "not woken in time: {all:?}");
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!("{} rounds: median {:.1} ms, max {:.1} ms", all.len(), ms(median), ms(longest))
}
