//! What the other tests rest on: one clock for both programs, and a Java log that a test sees.

use crate::java::Jvm;
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, Holder, Setting};
use crate::sides::now;

#[test]
fn both_programs_read_one_clock() {
    let servers = Servers::start(Family::JEDIS);
    let jvm = Jvm::start(Family::JEDIS.program, &servers, FOR_EVER, "");
    for _ in 0..100 {
        let before = now();
        let (answer, span) = jvm.ask("main", &["ready"]);
        answer.unwrap();
        assert!(before <= span.began && span.began <= span.ended && span.ended <= now(), "{span:?}");
    }
}

/// Only plain decimal integers may be published on Redisson's channels: it logs an error for anything else. This
/// shows that the other tests would see one.
#[test]
fn what_redisson_cannot_decode_is_seen_in_its_log() {
    let setting = Setting::new(Family::REDISSON, Holder::Rust, FOR_EVER);
    let (holder, waiter) = setting.sides();
    holder.lock("n");
    let wait = || {
        waiter.lock("n");
        waiter.unlock("n");
    };
    let act = || {
        let _: i64 = setting.servers.news.ask(&["PUBLISH", "redisson_lock__channel:{n}", "no number"]);
        let complaint = setting.jvm.complaint();
        assert!(complaint.contains("ERROR") || complaint.contains("WARN"), "{complaint}");
        holder.unlock("n");
    };
    setting.while_asleep("n", wait, act);
}
