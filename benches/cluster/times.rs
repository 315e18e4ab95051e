//! How long a failover lasts for those who lock: until somebody is granted a lock again, and until everybody who waited for
//! one was served.

use crate::support::actors::{Holder, Probe};
use crate::support::turns::MILLI;
use crate::support::watch::Replaced;
use crate::support::{Outcome, Samples, median_and_most, monotonic};
use crate::watch::watch;
use crate::worker::{Crowd, NAME};
use crate::{SAFE_LEASE, Scale, locks};
use harness::cluster::Cluster;
use harness::threads::{LONG, eventually};
use std::thread::sleep;
use std::time::Duration;

/// The rows of the table.
pub(crate) const USUAL: [&str; 4] = ["plain, killed", "plain, manual", "safe, killed", "safe, manual"];

/// The target from the naming, in ms. To those who are safe one lease is added.
const FROM_NAMING: f64 = 300.0;

/// How long whoever waits is waited for, once another master is named.
const STUCK_AFTER: Duration = Duration::from_secs(40);

/// A failover after which somebody waits for so long, in nanoseconds, shows its logs.
const SLOW: i64 = 5_000_000_000;

/// All is quiet for so long before the master goes.
const QUIET: Duration = Duration::from_millis(300);

/// What happens to the master, and who its clients are.
pub(crate) struct Setting {
    title: String,
    /// Strict, and the replica confirms.
    is_safe: bool,
    is_killed: bool,
}

impl Setting {
    /// `<plain or safe>, <killed or manual>`.
    pub(crate) fn parse(title: &str) -> Outcome<Self> {
        match title.split(", ").collect::<Vec<_>>()[..] {
            [kind @ ("plain" | "safe"), way @ ("killed" | "manual")] => {
                Ok(Self { title: title.to_owned(), is_safe: kind == "safe", is_killed: way == "killed" })
            }
            _ => Err(format!("no setting: {title}").into()),
        }
    }

    fn failovers(&self, scale: &Scale) -> usize {
        if self.is_safe { scale.failovers.div_ceil(2) } else { scale.failovers }
    }
}

/// Points in time of one failover.
struct Times {
    /// The master is killed, or its replica is told to take its place.
    begun: i64,
    replaced: Replaced,
    /// The old master follows. Of safe clients only.
    whole: Option<i64>,
    /// The first acquire that the new master granted, and the last waiter that was served.
    first: i64,
    last: i64,
    stuck: usize,
}

pub(crate) fn rows(scale: &Scale, settings: &[Setting]) -> Outcome<()> {
    let waiters = scale.processes * scale.threads;
    println!("{waiters} waiters in {} processes; ms\n", scale.processes);
    println!(
        "| failover | number | first acquire, from the naming | last waiter, from the naming | target | \
         first, from the beginning | last, from the beginning | stuck | named after | \
         the old one follows, from the naming |"
    );
    println!("|{}", [" --- |", &" ---: |".repeat(9)].concat());
    settings.iter().try_for_each(|setting| row(scale, setting))
}

fn row(scale: &Scale, setting: &Setting) -> Outcome<()> {
    let times: Outcome<Vec<_>> = (0..setting.failovers(scale)).map(|_| failover(scale, setting)).collect();
    let times = times?;
    let show = |span: fn(&Times) -> Option<i64>| {
        let spans: Samples = times.iter().filter_map(span).map(|span| span as f64 / MILLI).collect();
        if scale.each {
            println!("{:.0?}", spans.all());
        }
        if spans.all().is_empty() { "-".to_owned() } else { median_and_most(&spans) }
    };
    let lease = if setting.is_safe { SAFE_LEASE.as_secs_f64() * 1_000.0 } else { 0.0 };
    let cells = [
        times.len().to_string(),
        show(|times| Some(times.first - times.replaced.named)),
        show(|times| Some(times.last - times.replaced.named)),
        format!("<= {:.0}", FROM_NAMING + lease),
        show(|times| Some(times.first - times.begun)),
        show(|times| Some(times.last - times.begun)),
        times.iter().map(|times| times.stuck).sum::<usize>().to_string(),
        show(|times| Some(times.replaced.named - times.begun)),
        show(|times| Some(times.whole? - times.replaced.named)),
    ];
    println!("| {} | {} |", setting.title, cells.join(" | "));
    Ok(())
}

/// One holds the lock for which all others wait, and gives it up at the new master: when the master is killed its unlock is
/// what rides the failover out, and when it gives way the unlock comes as soon as the new one is named, since the old one does
/// nothing for clients until it follows. So whoever is served was granted it at the new one.
fn failover(scale: &Scale, setting: &Setting) -> Outcome<Times> {
    let (mut cluster, waiters) = (Cluster::start(), scale.processes * scale.threads);
    let (url, old) = (cluster.url(), cluster.master_of(NAME));
    let next = cluster.replicas_of(old)[0];
    let holder = Holder::start(locks(&url, setting.is_safe)?, NAME)?;
    let mut crowd = Crowd::start(&url, setting.is_safe, scale.processes, scale.threads)?;
    crowd.wait()?;
    let mut watch = watch(&cluster, NAME, next);
    let probe = Probe::start(locks(&url, setting.is_safe)?, NAME, &[cluster.nodes[next].url()]);
    sleep(QUIET);

    let begun = monotonic();
    if setting.is_killed {
        cluster.nodes[old].kill();
        holder.unlock()?;
    } else {
        cluster.nodes[next].ask::<String>(&["CLUSTER", "FAILOVER"]);
    }
    let replaced = watch.replaced()?;
    if !setting.is_killed {
        holder.unlock()?;
    } else if setting.is_safe {
        cluster.nodes[old].restart();
    }
    let whole = setting.is_safe.then(|| follows(&cluster, next));
    let served = crowd.served(waiters, STUCK_AFTER)?;
    let stuck = waiters - served.len();
    let last = served.iter().copied().max().ok_or("nobody was served")?;
    if last - replaced.named > SLOW {
        let running = cluster.nodes.iter().filter(|node| node.is_running());
        running.for_each(|node| eprintln!("{}:\n{}", node.name(), node.log()));
    }
    let granted = probe.first(0, replaced.promoted)?;
    let first = granted.into_iter().chain(served).min().unwrap_or(last);
    Ok(Times { begun, replaced, whole, first, last, stuck })
}

/// When a replica follows the new master: the old one comes back as such by itself.
fn follows(cluster: &Cluster, new: usize) -> i64 {
    let follows = || {
        let said = cluster.nodes[new].try_ask::<String>(&["INFO", "replication"]);
        said.is_ok_and(|said| said.contains("state=online"))
    };
    eventually(LONG, "the old master follows", follows);
    monotonic()
}
