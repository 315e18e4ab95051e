//! Whose keys the terminal sends. Ctrl-C and Ctrl-Z go to the processes in the terminal's foreground: that is `run`, which passes them on. A job that
//! reads or changes the terminal is stopped for it, since it is in the background. Then `run` brings it to the front, and takes the terminal back when the
//! job stops or ends. So a pipeline keeps its terminal, and a script learns of Ctrl-C.

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::{self, File};

/// The system stops a process in the background that changes the terminal by this signal, unless that blocks it.
const STOPS_CHANGES: [Blocked; 1] = [Blocked::SIGTTOU];

/// The terminal of this session, if it has one. Stdin may be a pipe.
pub(super) struct Terminal {
    terminal: Option<File>,
    /// How it was set when the job was brought to the front. A job that is killed does not set it back.
    given: Option<Termios>,
    /// The job was stopped because it wants the terminal.
    pub(super) is_wanted: bool,
}

impl Terminal {
    pub(super) fn of_session() -> Self {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok();
        Self { terminal, given: None, is_wanted: false }
    }

    /// Whether the job has the terminal.
    pub(super) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// Brings the job to the front, if `run` is there. False: `run` is in the background itself.
    pub(super) fn give(&mut self, job: rustix::process::Pid) -> bool {
        let Some(terminal) = &self.terminal else { return false };
        if tcgetpgrp(terminal) != Ok(getpgrp()) {
            return false;
        }
        (self.given, self.is_wanted) = (tcgetattr(terminal).ok(), false);
        without(&STOPS_CHANGES, || _ = tcsetpgrp(terminal, Pid::from_raw(job.as_raw_nonzero().get())));
        true
    }

    /// Brings `run` to the front again, if it gave the terminal away. `sets`: the terminal is set as it was, too.
    pub(super) fn take_back(&mut self, sets: bool) {
        let (Some(terminal), Some(was)) = (&self.terminal, self.given.take()) else { return };
        without(&STOPS_CHANGES, || {
            let _ = tcsetpgrp(terminal, getpgrp());
            if sets {
                let _ = tcsetattr(terminal, OptionalActions::Now, &was);
            }
        });
    }
}

/// Stops this process and those that its shell started with it, until the shell continues them. False: there is no such shell.
pub(crate) fn stop_with_the_others() -> bool {
    let is_watched = is_watched();
    if is_watched {
        let _ = kill_current_process_group(Signal::STOP);
    }
    is_watched
}

/// Whether a process of this session, of another group, has started this group: a shell, which continues it. The system ignores Ctrl-Z for a group
/// without one: nobody would continue that.
///
/// In a container the id of what began outside is 0: of the session, of the group, and of the parent at last.
fn is_watched() -> bool {
    let session = getsid(None);
    let mut next = getppid();
    while next.as_raw() != 0 && getsid(Some(next)) == session {
        if getpgid(Some(next)) != Ok(getpgrp()) {
            return true;
        }
        let Some(parent) = parent_of(next) else { break };
        next = parent;
    }
    false
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok().map(Pid::from_raw)
}

/// Does something while this thread gets none of these signals. A process that is made meanwhile inherits that.
pub(super) fn without<T>(signals: &[Blocked], act: impl FnOnce() -> T) -> T {
    let set: SigSet = signals.iter().copied().collect();
    let was = set.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = act();
    let _ = was.and_then(|was| was.thread_set_mask());
    done
}
