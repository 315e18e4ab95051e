//! What can be counted; `tests/counts` keeps it.

use crate::Scale;
use crate::counting::allocations;
use crate::report::{Report, Target};
use crate::support::{Outcome, Server, connect, sent_scripts};
use redis::ConnectionLike;
use redlatch::{RedLock, ReentrantLock};

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    let (locks, mut probe, mut raw) =
        (ReentrantLock::connect(&server.unix())?, connect(&server.unix())?, connect(&server.unix())?);
    let name = "bench:counts";
    locks.lock(name).and_then(|()| locks.unlock(name))?;
    let before = sent_scripts(&mut probe)?;
    let [mut acquire, mut reenter, mut release] = [const { Vec::new() }; 3];
    // What redis-rs allocates for an answer is not ours.
    let packed = redis::cmd("PTTL").arg(name).get_packed_command();
    let theirs = allocations(|| raw.req_packed_command(&packed)).1 as f64;
    let ours = |act: &dyn Fn() -> redlatch::Result<()>| -> Outcome<f64> {
        let (done, made) = allocations(act);
        done?;
        Ok(made as f64 - theirs)
    };
    for _ in 0..scale.pairs {
        acquire.push(ours(&|| locks.lock(name))?);
        reenter.push(ours(&|| locks.lock(name))?);
        release.push(ours(&|| locks.unlock(name))?);
        release.push(ours(&|| locks.unlock(name))?);
    }
    // Each of them is two pairs.
    let commands = (sent_scripts(&mut probe)? - before) / (2 * scale.pairs) as f64;
    let group = "counts";
    report.row(group, "a pair".to_owned(), "commands", vec![commands], Target::Exactly(2.0));
    report.row(group, "outermost acquire".to_owned(), "allocations", acquire, Target::AtMost(2.0));
    report.row(group, "re-entry".to_owned(), "allocations", reenter, Target::Exactly(0.0));
    report.row(group, "release".to_owned(), "allocations", release, Target::Exactly(0.0));
    Ok(())
}
