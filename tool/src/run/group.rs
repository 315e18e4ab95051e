//! The processes of a job: a process group, a cgroup of its own where one can be made, and whatever descends from `run`. A process leaves its
//! group by `setsid` or `setpgid`, as `timeout` does, but neither its cgroup nor its ancestors: `run` takes up those that lose their parent.

use crate::doctor::Finding;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The processes of a job.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Pid,
    /// From which all of it descends.
    run: Pid,
    /// The guard, which descends from `run`, too.
    guard: Option<Pid>,
    /// Children of `run` that it has not started: a shell had them, and then became `run`.
    others: Vec<Pid>,
    cgroup: Option<PathBuf>,
    /// A process of the job may not be ended by this user, and that was said.
    is_told: bool,
}

impl Group {
    /// That of this leader, which has not begun the command yet. It gets a cgroup if it shall have one, and `run` may make one.
    pub(super) fn of(leader: Pid, run: Pid, others: Vec<Pid>, wants_cgroup: bool) -> Self {
        let made = if wants_cgroup { make_cgroup(leader).map(Some) } else { Ok(None) };
        let cgroup = made.unwrap_or_else(|error| {
            log::info!("the job has no cgroup of its own: {error}");
            None
        });
        Self { leader, run, guard: None, others, cgroup, is_told: false }
    }

    /// What `guard` needs to know it, as a line. Its other side is `Group::told`.
    pub(super) fn line(&self) -> String {
        let others: Vec<_> = self.others.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
        let cgroup = self.cgroup.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        format!("{} {} {} {cgroup}", self.leader.as_raw_nonzero(), self.run.as_raw_nonzero(), others.join(","))
    }

    pub(super) fn told(line: &str, guard: Pid) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let (leader, run) = (words.next().and_then(pid_in)?, words.next().and_then(pid_in)?);
        let others = words.next()?.split(',').filter_map(pid_in).collect();
        let cgroup = words.next().filter(|path| !path.is_empty()).map(PathBuf::from);
        Some(Self { leader, run, guard: Some(guard), others, cgroup, is_told: false })
    }

    /// A child of `run` was waited for: another process may get its number.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.others.retain(|other| *other != pid);
    }

    pub(super) fn leader(&self) -> Pid {
        self.leader
    }

    pub(super) fn guarded_by(&mut self, guard: Pid) {
        self.guard = Some(guard);
    }

    /// By what it is ended.
    pub(super) fn reach(&self) -> &'static str {
        if self.cgroup.is_some() { "cgroup" } else { "process group" }
    }

    /// Whether none of its processes is left. Those that have ended have to be waited for first.
    pub(super) fn is_empty(&self) -> bool {
        let is_populated = |cgroup: &PathBuf| match fs::read_to_string(cgroup.join("cgroup.events")) {
            Ok(text) => text.contains("populated 1"),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        self.descendants().is_empty() && !self.cgroup.as_ref().is_some_and(is_populated)
    }

    /// Sends a signal to each of them.
    pub(super) fn signal(&mut self, signal: Signal) {
        let group_of = |pid: &Pid| nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get())));
        let is_other =
            |pid: &Pid| group_of(pid).map(nix::unistd::Pid::as_raw) != Ok(self.leader.as_raw_nonzero().get());
        let others: Vec<_> = self.descendants().into_iter().filter(is_other).collect();
        self.note(kill_process_group(self.leader, signal));
        others.into_iter().for_each(|pid| self.note(kill_process(pid, signal)));
    }

    /// Ends all of them.
    pub(super) fn kill(&mut self) {
        if let Some(cgroup) = &self.cgroup {
            let _ = fs::write(cgroup.join("cgroup.kill"), "1");
        }
        self.signal(Signal::KILL);
    }

    /// A process that has become another user's cannot be ended.
    fn note(&mut self, sent: rustix::io::Result<()>) {
        if sent == Err(Errno::PERM) && !std::mem::replace(&mut self.is_told, true) {
            log::warn!(
                "a process of the job has become another user's, and cannot be ended: it may go on without the lock"
            );
        }
    }

    /// All that descends from `run`, but for the guard and what `run` has not started. None where the system does not list children: then the group alone is known.
    fn descendants(&self) -> Vec<Pid> {
        let (mut found, mut next) = (Vec::new(), vec![self.run]);
        while let Some(pid) = next.pop() {
            let is_of_job = |child: &Pid| Some(*child) != self.guard && !self.others.contains(child);
            let children: Vec<_> = children(pid).into_iter().filter(is_of_job).collect();
            next.extend(&children);
            found.extend(children);
        }
        if found.is_empty() && rustix::process::test_kill_process_group(self.leader) != Err(Errno::SRCH) {
            found.push(self.leader);
        }
        found
    }

    /// Takes the cgroup away, once it is empty.
    pub(super) fn clear(&self) {
        self.cgroup.iter().for_each(|cgroup| drop(fs::remove_dir(cgroup)));
    }
}

/// Each thread of a process has children of its own.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    let threads =
        fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten().filter_map(Result::ok);
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(pid_in).collect::<Vec<_>>()).collect()
}

/// A process id, as text.
fn pid_in(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

fn make_cgroup(leader: Pid) -> io::Result<PathBuf> {
    let cgroup = own_cgroup()?.join(format!("redlatch-{}-{}", leader.as_raw_nonzero(), super::guard::boot_now()));
    fs::create_dir(&cgroup)?;
    let enter = || {
        fs::metadata(cgroup.join("cgroup.kill"))?;
        fs::write(cgroup.join("cgroup.procs"), leader.as_raw_nonzero().to_string())
    };
    enter().inspect_err(|_| drop(fs::remove_dir(&cgroup)))?;
    Ok(cgroup)
}

/// The folder of this process's own cgroup, version 2. Some systems have these beside version 1, at another place than usual.
fn own_cgroup() -> io::Result<PathBuf> {
    let none = || io::Error::new(io::ErrorKind::Unsupported, "this system has no cgroups of version 2");
    let (mounts, own) = (fs::read_to_string("/proc/self/mounts")?, fs::read_to_string("/proc/self/cgroup")?);
    let mut points = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let point = points.find(|words| words.get(2) == Some(&"cgroup2")).ok_or_else(none)?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(none)?;
    Ok(Path::new(point[1]).join(path))
}

/// Whether `run` could give a job a cgroup of its own, for `doctor`.
pub(crate) fn finding() -> Finding {
    let tried = own_cgroup().and_then(|own| {
        let cgroup = own.join(format!("redlatch-doctor-{}", std::process::id()));
        fs::create_dir(&cgroup)?;
        // A process is moved by writing to both.
        let is_ours = fs::metadata(cgroup.join("cgroup.kill"))
            .and_then(|_| OpenOptions::new().write(true).open(cgroup.join("cgroup.procs")))
            .and_then(|_| OpenOptions::new().write(true).open(own.join("cgroup.procs")));
        fs::remove_dir(&cgroup)?;
        is_ours.map(drop)
    });
    match tried {
        Ok(()) => Finding::good("cgroup", "run ends a job with all that it started, by a cgroup of its own"),
        Err(error) => Finding::mind(
            "cgroup",
            format!("run cannot make a cgroup here: {error}"),
            "if run is killed, its job's process group is ended, and not what has left that by setsid or setpgid: under systemd set Delegate=yes",
        ),
    }
}
