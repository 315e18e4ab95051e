//! What wakes a thread that waits for a server's data.

use super::sockets::above_standard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Rung by any thread, heard by the one that waits.
pub(crate) struct Bell {
    rope: UnixStream,
    sound: UnixStream,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let (rope, sound) = UnixStream::pair()?;
        let [rope, sound]: [UnixStream; 2] = [above_standard(rope)?.into(), above_standard(sound)?.into()];
        rope.set_nonblocking(true)?;
        sound.set_nonblocking(true)?;
        Ok(Self { rope, sound })
    }

    /// Never blocks: if the buffer is full, there is a ring to hear already.
    pub(crate) fn ring(&self) {
        let _ = (&self.rope).write(&[0]);
    }

    /// Sleeps until the bell rings, at most for `patience`.
    pub(crate) fn sleep(&self, patience: Duration) {
        let patience = Timespec::try_from(patience).ok();
        // A signal ends the sleep early. That does no harm: the caller looks and sleeps again.
        let _ = poll(&mut [PollFd::new(&self.sound, PollFlags::IN)], patience.as_ref());
        let _ = (&self.sound).read(&mut [0; 64]);
    }

    /// Waits for data. False if the bell rang, also together with data, or if neither came in time.
    pub(super) fn is_quiet_until(&self, data: &impl AsFd, patience: Duration) -> io::Result<bool> {
        let mut both = [PollFd::new(&self.sound, PollFlags::IN), PollFd::new(data, PollFlags::IN)];
        let patience = Timespec::try_from(patience).ok();
        match poll(&mut both, patience.as_ref()) {
            // A signal: the caller looks at the clock and waits again.
            Err(Errno::INTR) => return Ok(false),
            ready => ready?,
        };
        let [rung, ready] = both.map(|one| !one.revents().is_empty());
        if rung {
            let _ = (&self.sound).read(&mut [0; 64]);
        }
        Ok(ready && !rung)
    }
}
