//! How long a failover lasts for those who lock: until somebody is granted a lock again, and until everybody who waited for
//! one was served.

use crate::support::actors::{Holder, Probe};
use crate::support::turns::MILLI;
use crate::support::watch::Replaced;
use crate::support::{Outcome, Samples, median_and_most, monotonic};
use crate::watch::watch;
use crate::worker::{Crowd, NAME};
use crate::{SAFE_LEASE, Scale, locks, urls};
use harness::sentinel::{Group, NAME as MASTER};
use harness::threads::{LONG, eventually};
use std::thread::sleep;
use std::time::Duration;

/// The rows of the table.
pub(crate) const USUAL: [&str; 4] = ["plain, killed", "plain, manual", "safe, killed", "safe, manual"];

/// Targets, in ms: from the naming, and from the promotion. To those who are safe one lease is added.
const FROM_NAMING: f64 = 300.0;
const FROM_PROMOTION: f64 = 2_000.0;

/// How long whoever waits is waited for, once another master is named.
const STUCK_AFTER: Duration = Duration::from_secs(40);

/// A failover after which somebody waits for so long, in nanoseconds, shows its logs.
const SLOW: i64 = 5_000_000_000;

/// All is quiet for so long before the master goes.
const QUIET: Duration = Duration::from_millis(300);

/// What happens to the master, and who its clients are.
pub(crate) struct Setting {
    title: String,
    /// Strict, and all replicas confirm.
    is_safe: bool,
    is_killed: bool,
    /// The old master is told by hand, as soon as another one is named, to follow that one. A safe client needs it.
    is_helped: bool,
}

impl Setting {
    /// `<plain or safe>, <killed or manual>`, and `, left alone` if nobody brings the old master back but sentinels.
    pub(crate) fn parse(title: &str) -> Outcome<Self> {
        let words: Vec<_> = title.split(", ").collect();
        let (is_safe, is_killed) = match words[..] {
            [kind @ ("plain" | "safe"), way @ ("killed" | "manual"), ..] => (kind == "safe", way == "killed"),
            _ => return Err(format!("no setting: {title}").into()),
        };
        let is_helped = is_safe && words.get(2) != Some(&"left alone");
        Ok(Self { title: title.to_owned(), is_safe, is_killed, is_helped })
    }
}

/// Points in time of one failover.
struct Times {
    /// The master is killed, or a sentinel is told to replace it.
    begun: i64,
    replaced: Replaced,
    /// The old master follows, and so does the other replica. Of safe clients only.
    whole: Option<i64>,
    /// The first acquire that the new master granted, and the last waiter that was served.
    first: i64,
    last: i64,
    stuck: usize,
}

pub(crate) fn rows(scale: &Scale, settings: &[Setting]) -> Outcome<()> {
    let waiters = scale.processes * scale.threads;
    println!("{} failovers each, {waiters} waiters in {} processes; ms\n", scale.failovers, scale.processes);
    println!(
        "| failover | first acquire, from the naming | last waiter, from the naming | target | \
         first, from the promotion | last, from the promotion | target | stuck | promoted after | named after | \
         all follow, from the naming |"
    );
    println!("|{}", [" --- |", &" ---: |".repeat(10)].concat());
    settings.iter().try_for_each(|setting| row(scale, setting))?;
    println!();
    Ok(())
}

fn row(scale: &Scale, setting: &Setting) -> Outcome<()> {
    let times: Outcome<Vec<_>> = (0..scale.failovers).map(|_| failover(scale, setting)).collect();
    let times = times?;
    let show = |span: fn(&Times) -> i64| {
        let spans: Samples = times.iter().map(|times| span(times) as f64 / MILLI).collect();
        if scale.each {
            println!("{:.0?}", spans.all());
        }
        median_and_most(&spans)
    };
    let lease = if setting.is_safe { SAFE_LEASE.as_secs_f64() * 1_000.0 } else { 0.0 };
    let whole = times.iter().filter_map(|times| Some((times.whole? - times.replaced.named) as f64 / MILLI));
    let whole: Samples = whole.collect();
    let cells = [
        show(|times| times.first - times.replaced.named),
        show(|times| times.last - times.replaced.named),
        format!("<= {:.0}", FROM_NAMING + lease),
        show(|times| times.first - times.replaced.promoted),
        show(|times| times.last - times.replaced.promoted),
        format!("<= {:.0}", FROM_PROMOTION + lease),
        times.iter().map(|times| times.stuck).sum::<usize>().to_string(),
        show(|times| times.replaced.promoted - times.begun),
        show(|times| times.replaced.named - times.begun),
        if whole.all().is_empty() { "-".to_owned() } else { median_and_most(&whole) },
    ];
    println!("| {} | {} |", setting.title, cells.join(" | "));
    Ok(())
}

/// One holds the lock for which all others wait, and gives it up at the new master: when the master is killed its unlock is
/// what rides the failover out, and when it gives way the unlock comes as soon as the hold is renewed at the new one. Only
/// there it is free then, so whoever is served was granted it there.
fn failover(scale: &Scale, setting: &Setting) -> Outcome<Times> {
    let (mut group, waiters) = (Group::start(), scale.processes * scale.threads);
    let url = group.url();
    // Else one that was just promoted may be replaced in its turn: sentinels connect to it again only with the next ping.
    group.hurry(false);
    let holder = Holder::start(locks(&url, setting.is_safe)?, NAME)?;
    let mut crowd = Crowd::start(&url, setting.is_safe, scale.processes, scale.threads)?;
    crowd.wait()?;
    let (mut watch, probe) = (watch(&group), Probe::start(locks(&url, setting.is_safe)?, NAME, &urls(&group)[1..]));
    sleep(QUIET);
    group.replicated(0);

    let (begun, renewals) = (monotonic(), holder.renewals());
    if setting.is_killed {
        group.nodes[0].kill();
        holder.unlock()?;
    } else {
        group.sentinels[0].ask::<String>(&["SENTINEL", "FAILOVER", MASTER]);
    }
    let replaced = watch.replaced()?;
    if !setting.is_killed {
        holder.unlock_when_renewed(renewals);
    }
    if setting.is_safe && setting.is_killed {
        group.nodes[0].restart();
    }
    let whole = setting.is_helped.then(|| follow(&group, replaced.node));
    let served = crowd.served(waiters, STUCK_AFTER)?;
    let stuck = waiters - served.len();
    let last = served.iter().copied().max().ok_or("nobody was served")?;
    if setting.is_helped && last - replaced.named > SLOW {
        group.nodes.iter().chain(&group.sentinels).for_each(|one| eprintln!("{}:\n{}", one.name(), one.log()));
    }
    let granted = probe.first(replaced.node - 1, replaced.promoted)?;
    let first = granted.into_iter().chain(served).min().unwrap_or(last);
    Ok(Times { begun, replaced, whole, first, last, stuck })
}

/// Has the old master follow the new one; when all do.
fn follow(group: &Group, new: usize) -> i64 {
    let port = group.nodes[new].port().to_string();
    group.nodes[0].ask::<String>(&["REPLICAOF", "127.0.0.1", &port]);
    let follow = || {
        let said = group.nodes[new].try_ask::<String>(&["INFO", "replication"]);
        said.is_ok_and(|said| said.matches("state=online").count() == group.nodes.len() - 1)
    };
    eventually(LONG, "all follow", follow);
    monotonic()
}
