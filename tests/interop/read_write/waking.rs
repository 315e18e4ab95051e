//! Who waits for a side is woken by the other program, and new readers beside a writer that waits.

use super::{AT_ONCE, ORDERS, READ, WRITE, comes_in, side, side_on};
use crate::java::Span;
use crate::setting::{FOR_EVER, Family, Holder, Ours, SentHome, Setting};
use crate::sides::{Rust, Side};
use crate::threads::{LONG, eventually, finish, ms};
use crate::waking::wake_ups;
use redlatch::{Client, ReadWriteLock};
use std::sync::Barrier;
use std::time::Duration;

of_read_write_locks!(
    those_who_wait_are_woken,
    all_readers_come_when_a_writer_leaves,
    our_downgrade_wakes_a_reader_there,
    a_writer_here_that_waits_keeps_out_readers_here_alone
);

/// That a writer wakes a writer is a case of all families.
fn those_who_wait_are_woken(family: Family) {
    for (case, holds, waits) in [("a reader wakes a writer", READ, WRITE), ("a writer wakes a reader", WRITE, READ)] {
        for [holder, waiter] in ORDERS {
            let setting = Setting::new(family, holder, FOR_EVER);
            let sides = (side(&setting, holder, holds), side(&setting, waiter, waits));
            let figures = wake_ups(&setting, sides, |holder| holder.unlock("n"));
            setting.record(case, &figures);
        }
    }
}

#[test]
fn a_force_unlock_of_a_side_wakes_the_other() {
    for (case, holds, waits) in [
        ("forceUnlock of a reader wakes a writer", READ, WRITE),
        ("forceUnlock of a writer wakes a reader", WRITE, READ),
    ] {
        for [ousted, waiter] in ORDERS {
            let setting = Setting::new(Family::READ_WRITE, ousted, FOR_EVER);
            let sides = (side(&setting, ousted, holds), side(&setting, waiter, waits));
            let figures = wake_ups(&setting, sides, |ousted| {
                let (was_locked, span) = ousted.force_unlock("n");
                assert!(was_locked);
                ousted.try_unlock("n").unwrap_err();
                span
            });
            setting.record(case, &figures);
            forget_timeouts(&setting);
        }
    }
}

/// Those that a force unlock left to their TTL.
fn forget_timeouts(setting: &Setting) {
    let left: Vec<String> = setting.servers.news.ask(&["KEYS", "{n}:*:rwlock_timeout:*"]);
    left.iter().for_each(|left| _ = setting.servers.news.ask::<i64>(&["DEL", left]));
}

const READERS: usize = 4;

/// They hold until all are in.
fn all_readers_come_when_a_writer_leaves(family: Family) {
    for [holder, _] in ORDERS {
        let setting = Setting::new(family, holder, FOR_EVER);
        let writer = side(&setting, holder, WRITE);
        writer.lock("n");
        let before = setting.servers.scripts_run();
        let names: Vec<_> = (0..READERS).map(|thread| format!("reader {thread}")).collect();
        let all_in = Barrier::new(2 * READERS);
        let read = |program: Holder, thread: &str| {
            let side = side_on(&setting, program, READ, thread);
            let (came, span) = side.try_lock("n", LONG);
            all_in.wait();
            assert!(came, "{program:?} is not in");
            side.unlock("n");
            span
        };
        let (spans, freed) = std::thread::scope(|scope| {
            let _home = SentHome(&setting.locks);
            let read = &read;
            let of = |program| names.iter().map(move |name| scope.spawn(move || read(program, name)));
            let readers: Vec<_> = of(Holder::Java).chain(of(Holder::Rust)).collect();
            eventually(LONG, "both programs ask", || setting.servers.scripts_run() >= before + 2);
            eventually(LONG, "both programs listen", || setting.servers.subscribers(&family.channel("n")) == 2);
            std::thread::sleep(ms(100));
            let freed = writer.unlock("n");
            (readers.into_iter().map(finish).collect::<Vec<_>>(), freed)
        });
        let last = spans.iter().map(|span| span.after(freed)).max().unwrap();
        assert!(last < LONG, "{last:?}");
        setting.record("all readers come at once", &format!("{} threads, the last after {last:.1?}", spans.len()));
    }
}

fn lock_and_unlock(side: &dyn Side) -> Span {
    let span = side.lock("n");
    side.unlock("n");
    span
}

fn our_downgrade_wakes_a_reader_there(family: Family) {
    let setting = Setting::new(family, Holder::Rust, FOR_EVER);
    let [read, write] = [READ, WRITE].map(|of| side(&setting, Holder::Rust, of));
    let reader = side(&setting, Holder::Java, READ);
    write.lock("n");
    read.lock("n");
    let (waited, freed) = setting.while_asleep("n", || lock_and_unlock(&*reader), || write.unlock("n"));
    let woken = waited.after(freed);
    assert!(woken < LONG, "not woken: it came in after {woken:?}");
    read.unlock("n");
    setting.record("a downgrade wakes a reader", &format!("after {woken:.1?}, beside who went on to read"));
}

/// So readers here that wait come when the JVM reads no longer, or with their next look.
#[test]
fn a_downgrade_there_wakes_nobody() {
    let setting = Setting::new(Family::READ_WRITE, Holder::Java, FOR_EVER);
    let [read, write] = [READ, WRITE].map(|of| side(&setting, Holder::Java, of));
    let reader = side(&setting, Holder::Rust, READ);
    write.lock("n");
    read.lock("n");
    let act = || {
        write.unlock("n");
        assert!(comes_in(&setting, Holder::Java, READ, "n"), "it lets readers in");
        std::thread::sleep(ms(100));
        read.unlock("n")
    };
    let (waited, freed) = setting.while_asleep("n", || lock_and_unlock(&*reader), act);
    assert!(waited.ended > freed.began, "it was woken by the downgrade");
    assert!(waited.after(freed) < LONG, "not woken: {waited:?} {freed:?}");
    let came = come_by_a_look(&setting, &[read, write]);
    let figures = format!("a reader that looks each {LOOKS:?} came in after {came:.0?}, others when the JVM had left");
    setting.record("a downgrade wakes nobody", &figures);
}

const LOOKS: Duration = Duration::from_millis(300);

fn come_by_a_look(setting: &Setting, [read, write]: &[Box<dyn Side + '_>; 2]) -> Duration {
    let looking = Client::builder(&setting.servers.url()).poll_cap(LOOKS).build().unwrap();
    let reader = Rust(Ours::Read(ReadWriteLock::new(&looking).read().clone()));
    write.lock("n");
    read.lock("n");
    let wait = || lock_and_unlock(&reader);
    let (waited, freed) = setting.while_asleep("n", wait, || write.unlock("n"));
    read.unlock("n");
    waited.after(freed)
}

/// Redisson knows no mark; a writer of its own leaves none.
fn a_writer_here_that_waits_keeps_out_readers_here_alone(family: Family) {
    for [waits, reads] in ORDERS {
        let setting = Setting::new(family, reads, FOR_EVER);
        let (reader, writer) = (side(&setting, reads, READ), side(&setting, waits, WRITE));
        reader.lock("n");
        let act = || {
            let seen = [Holder::Java, Holder::Rust].map(|program| comes_in(&setting, program, READ, "n"));
            assert_eq!(seen, [true, waits == Holder::Java], "readers of Java and here, while {waits:?} waits to write");
            reader.unlock("n")
        };
        let (waited, freed) = setting.while_asleep("n", || lock_and_unlock(&*writer), act);
        assert!(waited.after(freed) < LONG, "not woken: {waited:?} {freed:?}");
        assert!(side(&setting, reads, READ).try_lock("n", AT_ONCE).0);
        reader.unlock("n");
        let figures =
            if waits == Holder::Java { "new readers of both come in" } else { "new readers of Java alone come in" };
        setting.record("a writer of the other program waits", figures);
    }
}
