//! Whether there is such a command. It is looked for before the lock is waited for: nobody should wait an hour for a misspelt name.

use crate::out::Failed;
use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// As a shell says it.
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;

/// As of the C library where there is no PATH.
const USUAL: &str = "/bin:/usr/bin";

/// Why it cannot be run, as the kernel would say. It may change until it is run.
pub(super) fn why_not(command: &OsStr) -> Option<Failed> {
    let files = candidates(command);
    if files.iter().any(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok()) {
        return None;
    }
    let (code, why) = match files.iter().any(|file| file.exists()) {
        true => (NOT_EXECUTABLE, "it is not executable"),
        false => (NOT_FOUND, "it is not found"),
    };
    Some(Failed::new(code, format!("cannot run {}: {why}", command.display())))
}

/// As a shell looks for it: a folder in PATH is no command.
fn candidates(command: &OsStr) -> Vec<PathBuf> {
    if command.as_encoded_bytes().contains(&b'/') {
        return vec![Path::new(command).to_owned()];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL.into());
    std::env::split_paths(&path).map(|folder| folder.join(command)).filter(|file| file.is_file()).collect()
}
