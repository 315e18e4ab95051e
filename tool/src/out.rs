//! How a command ends, and where it says so.

use redlatch::{Applied, Error};
use std::fmt::Display;

/// The exit code of a wrong use, as of sysexits.
pub(crate) const USAGE: u8 = 64;
/// No server answers.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The output cannot be written.
pub(crate) const IO: u8 = 74;
/// The server refuses.
pub(crate) const REFUSED: u8 = 77;

/// Why a command failed, and with which exit code it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) code: u8,
    pub(crate) why: String,
}

impl Failed {
    pub(crate) fn new(code: u8, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }

    pub(crate) fn usage(why: impl Into<String>) -> Self {
        Self::new(USAGE, why)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Config { .. } => USAGE,
            // These may pass, but not before somebody has done something.
            Error::Refused { code, .. } if ["OOM", "MISCONF", "WRONGPASS", "NOAUTH"].contains(&code.as_str()) => {
                REFUSED
            }
            Error::Refused { .. } if !error.is_retryable() => REFUSED,
            error if error.applied() == Applied::Unknown || error.is_retryable() => UNAVAILABLE,
            _ => 1,
        };
        // What a program's callback is to the library, a variable or a file is here.
        let why = error
            .to_string()
            .replace("the callback of ClientBuilder::credentials", "REDLATCH_PASSWORD or the password file");
        Self::new(code, why)
    }
}

/// Whether a command would end with code 69 for it. A refusal is no outage: somebody has to do something first.
pub(crate) fn is_outage(error: &Error) -> bool {
    Failed::from(error.clone()).code == UNAVAILABLE
}

/// The exit code if nobody reads the output any more, as of `redlatch list | head`: that of a command that SIGPIPE ended.
const UNREAD: u8 = 141;

/// Whether somebody may still read the output. A command that writes seldom would not learn it by its writes.
///
/// # Errors
/// As of a write that nobody reads.
pub(crate) fn check_read() -> Result<(), Failed> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_closed =
        poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
    if is_closed { Err(Failed::new(UNREAD, "")) } else { Ok(()) }
}

/// Output that nobody reads any more ends the command without a word.
fn written(result: std::io::Result<()>) -> Result<(), Failed> {
    result.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failed::new(UNREAD, ""),
        _ => Failed::new(IO, format!("cannot write: {error}")),
    })
}

/// Says a line on stderr. If that is closed, nobody hears it, and the command goes on.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "redlatch: {}", plain(text));
}

/// Nothing in a name can move the cursor, change colours of a terminal, or turn the line around.
pub(crate) fn plain(text: &str) -> String {
    let turns =
        |sign: char| matches!(sign, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let escaped =
        |sign: char| if sign.is_control() || turns(sign) { sign.escape_unicode().collect() } else { vec![sign] };
    text.chars().flat_map(escaped).collect()
}

/// Prints a line for people on stdout.
pub(crate) fn line(text: impl Display) -> Result<(), Failed> {
    use std::io::Write;
    written(writeln!(std::io::stdout().lock(), "{text}"))
}

struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        say(&format!("{}: {}", record.level().as_str().to_lowercase(), record.args()));
    }

    fn flush(&self) {}
}

/// What the library warns of goes to stderr, one line each.
pub(crate) fn log_to_stderr(level: log::LevelFilter) {
    log::set_max_level(level);
    log::set_logger(&Stderr).expect("it is set once");
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jé\n\u{202e}"), "a\\u{1b}[2Jé\\u{a}\\u{202e}");
    }
}
