//! What a round is like: how many processes and threads, how much work and pause, and what befalls a few of them.

use crate::support::Outcome;
use std::fmt::{Display, Formatter};
use std::time::Duration;

/// What is measured when nothing else is asked for.
pub(crate) const SETTINGS: [&str; 17] = [
    "2x1",
    "4x1",
    "8x1",
    "32x1",
    "4x4",
    "2x1,work=1",
    "8x1,work=1",
    "8x1,spin=1",
    "32x1,work=1",
    "8x4,work=1",
    "8x1,work=10",
    "8x1,work=1,pause=5",
    "32x1,work=1,pause=5",
    "32x1,work=1,stopped",
    "32x1,work=1,stopped-holder",
    "32x1,work=1,killed",
    "32x1,work=1,killed-holder",
];

/// Every way that the program knows, each in an instant.
pub(crate) const TINY: [&str; 5] = [
    "2x2,spin=1",
    "2x1,work=1,pause=1,stopped",
    "2x1,work=1,stopped-holder",
    "3x1,work=1,killed",
    "3x1,work=1,killed-holder",
];

/// What befalls a tenth of the processes, at least one, after a third of the round.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Harm {
    /// `SIGSTOP`. Every other one is continued after five sixths of the round, the first among them: in a round of
    /// 3 s, half a second after its lease.
    Stopped,
    /// `SIGKILL`.
    Killed,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Disturbance {
    pub(crate) harm: Harm,
    /// The first of them holds the lock in that moment. The others wait for it, or do neither.
    pub(crate) holder: bool,
}

const DISTURBANCES: [(&str, Disturbance); 4] = [
    ("stopped", Disturbance { harm: Harm::Stopped, holder: false }),
    ("stopped-holder", Disturbance { harm: Harm::Stopped, holder: true }),
    ("killed", Disturbance { harm: Harm::Killed, holder: false }),
    ("killed-holder", Disturbance { harm: Harm::Killed, holder: true }),
];

/// `<processes>x<threads of each>`, then after commas `work=<ms>`, `spin=<ms>`, `pause=<ms>` and the name of a
/// disturbance.
pub(crate) struct Setting {
    title: String,
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    /// Inside of the lock, asleep.
    pub(crate) work: Duration,
    /// The same, busy.
    pub(crate) spin: Duration,
    /// From the unlock to the next lock.
    pub(crate) pause: Duration,
    pub(crate) disturbance: Option<Disturbance>,
}

impl Setting {
    pub(crate) fn parse(title: &str) -> Outcome<Self> {
        let (processes, rest) = title.split_once('x').ok_or_else(|| format!("no setting: {title}"))?;
        let mut parts = rest.split(',');
        let mut setting = Self {
            title: title.to_owned(),
            processes: processes.parse()?,
            threads: parts.next().unwrap_or(rest).parse()?,
            work: Duration::ZERO,
            spin: Duration::ZERO,
            pause: Duration::ZERO,
            disturbance: None,
        };
        parts.try_for_each(|part| setting.add(part))?;
        Ok(setting)
    }

    fn add(&mut self, part: &str) -> Outcome<()> {
        match part.split_once('=') {
            Some(("work", ms)) => self.work = Duration::from_millis(ms.parse()?),
            Some(("spin", ms)) => self.spin = Duration::from_millis(ms.parse()?),
            Some(("pause", ms)) => self.pause = Duration::from_millis(ms.parse()?),
            _ => {
                let known = DISTURBANCES.iter().find(|(name, _)| *name == part);
                self.disturbance = Some(known.ok_or_else(|| format!("no part of a setting: {part}"))?.1);
            }
        }
        Ok(())
    }

    /// Short where a process that holds is to die.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs(if self.disturbance.is_some() { 1 } else { 30 })
    }

    /// How many processes are disturbed, if any.
    pub(crate) fn victims(&self) -> usize {
        (self.processes / 10).max(1)
    }
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.title)
    }
}
