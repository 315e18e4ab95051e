//! The open sockets of a server, so that all can be closed at once while other threads use them.

use parking_lot::Mutex;
use rustix::io::fcntl_dupfd_cloexec;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};

#[derive(Default)]
pub(super) struct Sockets {
    open: Mutex<Vec<Weak<TcpStream>>>,
    /// Written under the lock, and read without it at each command.
    closed: AtomicBool,
}

impl Sockets {
    /// Adds a socket. After [`close`](Self::close) it is shut at once.
    pub(super) fn add(&self, socket: &Arc<TcpStream>) {
        let mut open = self.open.lock();
        if self.are_closed() {
            return shut(socket);
        }
        open.retain(|known| known.strong_count() > 0);
        open.push(Arc::downgrade(socket));
    }

    /// Shuts all sockets: a thread that waits for data reads their end, and nothing more can be sent.
    pub(super) fn close(&self) {
        let mut open = self.open.lock();
        self.closed.store(true, SeqCst);
        open.drain(..).filter_map(|socket| socket.upgrade()).for_each(|socket| shut(&socket));
    }

    pub(super) fn are_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }
}

/// The same descriptor with a number above 2. A program that has closed its standard streams gives their numbers to what it opens next, and
/// what it prints would go to a server.
pub(super) fn above_standard(descriptor: impl Into<OwnedFd>) -> io::Result<OwnedFd> {
    let descriptor = descriptor.into();
    if descriptor.as_raw_fd() > 2 { Ok(descriptor) } else { Ok(fcntl_dupfd_cloexec(&descriptor, 3)?) }
}

fn shut(socket: &TcpStream) {
    // An error means that the socket is not connected any more, which is as good.
    let _ = socket.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn socket(listener: &TcpListener) -> Arc<TcpStream> {
        Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    }

    #[test]
    fn a_thread_that_reads_is_told_of_the_end_and_so_is_who_comes_later() {
        let (listener, sockets) = (TcpListener::bind("127.0.0.1:0").unwrap(), Sockets::default());
        let (early, late) = (socket(&listener), socket(&listener));
        sockets.add(&early);
        let reading = std::thread::spawn(move || (&*early).read(&mut [0]).unwrap());
        sockets.close();
        sockets.add(&late);
        assert_eq!((reading.join().unwrap(), (&*late).read(&mut [0]).unwrap()), (0, 0));
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let (listener, sockets) = (TcpListener::bind("127.0.0.1:0").unwrap(), Sockets::default());
        (0..5).for_each(|_| sockets.add(&socket(&listener)));
        assert_eq!(sockets.open.lock().len(), 1);
    }
}
