//! What a job is before it begins: this program again, in the job's process group, which waits for a word of `run`. When the word comes, the
//! guard knows the group, and the process becomes the command. If `run` dies before, no word comes, and the command never begins.

use super::command::{NOT_EXECUTABLE, NOT_FOUND};
use crate::out::Failed;
use nix::sys::signal::{SigSet, Signal};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How this program is told to be a job. The numbers of two pipes follow, and then the command. The word comes through the first one, and why the
/// command cannot be run goes through the second one.
pub(crate) const WORD: &str = "__enter";

pub(crate) fn enter(args: &[OsString]) -> Result<u8, Failed> {
    // `run` blocked it. One that has come meanwhile stops this process now, as it stops any job.
    let _ = SigSet::from(Signal::SIGTSTP).thread_unblock();
    let [go, tell, command, words @ ..] = args else { return Ok(NOT_EXECUTABLE) };
    let (Some(mut go), Some(mut tell)) = (own(go, File::options().read(true)), own(tell, File::options().write(true)))
    else {
        return Ok(NOT_EXECUTABLE);
    };
    if go.read_exact(&mut [0]).is_err() {
        return Ok(NOT_EXECUTABLE);
    }
    let error = Command::new(command).args(words).exec();
    let _ = write!(tell, "cannot run {}: {error}", command.display());
    Ok(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// A pipe by its number. The command must not inherit it, so the number is closed.
fn own(number: &OsString, options: &OpenOptions) -> Option<File> {
    let number = number.to_str()?.parse::<i32>().ok()?;
    let pipe = options.open(format!("/proc/self/fd/{number}")).ok()?;
    nix::unistd::close(number).ok().map(|()| pipe)
}
