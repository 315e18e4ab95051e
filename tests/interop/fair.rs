//! Redisson's fair lock and ours: one queue for the threads of both programs, which come in the order in which they queued.
//!
//! Cases of all locks have it, too: those of wake-ups, names, re-entry and leases.

mod killed;
mod order;

use crate::java::Span;
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, Holder, SentHome, Setting, quiet};
use crate::sides::{Java, Rust, Side};
use crate::threads::{LONG, SOON, eventually, finish, ms};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::{Scope, ScopedJoinHandle, scope};
use std::time::Duration;

const TICKETS: &str = "redlatch_tickets:{n}";
const AT_ONCE: Duration = Duration::ZERO;

fairly!(
    a_holder_reenters_beside_one_that_waits,
    a_try_does_not_come_before_one_that_waits,
    who_gives_up_is_passed_over
);

/// The owner fields in the queue of a lock, in order.
pub(crate) fn queue(servers: &Servers, name: &str) -> Vec<String> {
    servers.ask(name, &["LRANGE", &format!("redisson_lock_queue:{{{name}}}"), "0", "-1"])
}

#[track_caller]
fn assert_nothing_is_left(setting: &Setting) {
    let keys = ["redisson_lock_queue:{n}", "redisson_lock_timeout:{n}", TICKETS];
    let is_left = |key| setting.servers.ask::<bool>("n", &["EXISTS", key]);
    eventually(LONG, "nothing of the queue is left", || !keys.into_iter().any(is_left));
}

/// Starts a thread that waits for the lock, which is held; returns when it is queued and nobody asks any more.
#[track_caller]
fn queued<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    setting: &Setting,
    act: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    let before = queue(&setting.servers, "n").len();
    let handle = scope.spawn(act);
    eventually(LONG, "it is queued", || queue(&setting.servers, "n").len() > before);
    quiet(&setting.servers);
    handle
}

/// A thread of a program: one of the JVM's by its name, or the one that calls.
fn thread<'s>(setting: &'s Setting, program: Holder, name: &'s str) -> Box<dyn Side + 's> {
    match program {
        Holder::Java => Box::new(Java(&setting.jvm, name, setting.family.verbs())),
        Holder::Rust => Box::new(Rust(setting.locks.clone())),
    }
}

/// Takes the lock as soon as it can, and releases it.
fn pass(side: &dyn Side) -> Span {
    let (came, span) = side.try_lock("n", LONG);
    assert!(came, "it waits in vain");
    side.unlock("n");
    span
}

#[track_caller]
fn assert_served(waited: Span, freed: Span) {
    assert!(waited.ended > freed.began, "it did not wait");
    assert!(waited.after(freed) <= SOON, "served after {:?}", waited.after(freed));
}

fn a_holder_reenters_beside_one_that_waits(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    let (holder, other) = setting.sides();
    holder.lock("n");
    scope(|scope| {
        let _home = SentHome(&setting.locks);
        let waiter = queued(scope, &setting, || pass(&*other));
        assert!(holder.lock("n").length() <= SOON && holder.try_lock("n", AT_ONCE).0);
        assert_eq!(setting.servers.owner("n").1, 3);
        (0..2).for_each(|_| _ = holder.unlock("n"));
        std::thread::sleep(ms(100));
        assert!(!waiter.is_finished() && setting.servers.owner("n").1 == 1, "it came at an inner level");
        let freed = holder.unlock("n");
        assert_served(finish(waiter), freed);
    });
    assert_nothing_is_left(&setting);
    setting.record("re-entry beside one that waits", "at once, and it waits on until the outermost unlock");
}

const ROUNDS: usize = 20;

/// The lock is free on the wire while a JVM is on its way, and given to ours before that.
fn a_try_does_not_come_before_one_that_waits(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    let (holder, other) = setting.sides();
    for _ in 0..ROUNDS {
        holder.lock("n");
        scope(|scope| {
            let _home = SentHome(&setting.locks);
            let (tell, told) = channel();
            let other = &other;
            let waiter = queued(scope, &setting, move || {
                let span = other.lock("n");
                told.recv().unwrap();
                other.unlock("n");
                span
            });
            let freed = holder.unlock("n");
            let came = [AT_ONCE, AT_ONCE, ms(20)].map(|wait| holder.try_lock("n", wait).0);
            assert_eq!(came, [false; 3], "a try came before the one that waits");
            tell.send(()).unwrap();
            assert_served(finish(waiter), freed);
        });
        assert_nothing_is_left(&setting);
    }
    setting
        .record("tries beside one that waits", &format!("{ROUNDS} unlocks: no try of the holder's program came first"));
}

fn who_gives_up_is_passed_over(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    let (first, other) = setting.sides();
    first.lock("n");
    let (wait, came) = (ms(700), Mutex::new(Vec::new()));
    scope(|scope| {
        let _home = SentHome(&setting.locks);
        let gives_up = queued(scope, &setting, || other.try_lock("n", wait).0);
        let waits = |program, name: &'static str| {
            let (setting, came) = (&setting, &came);
            queued(scope, setting, move || {
                let side = thread(setting, program, name);
                let span = side.lock("n");
                came.lock().unwrap().push(name);
                side.unlock("n");
                span
            })
        };
        let waiters = [waits(Holder::Java, "java"), waits(Holder::Rust, "rust")];
        assert!(!finish(gives_up), "it got in");
        assert_eq!(queue(&setting.servers, "n").len(), 2);
        let freed = first.unlock("n");
        waiters.into_iter().for_each(|waiter| assert_served(finish(waiter), freed));
    });
    assert_eq!(came.into_inner().unwrap(), ["java", "rust"]);
    assert_nothing_is_left(&setting);
    setting.record("the first gives up", &format!("after {wait:?}: the others come in their order"));
}
