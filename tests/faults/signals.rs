//! Signals that a program handles in another way than Rust's runtime does.

#![expect(unsafe_code, reason = "the action of a signal has no safe form")]

use crate::process::alone;
use crate::server::Server;
use redlatch::{Error, RedLock};

/// Rust's runtime ignores SIGPIPE. Command-line tools often take that back, and a C program never had it.
#[test]
fn a_dead_server_does_not_end_a_program_that_leaves_sigpipe_alone() {
    alone(|| {
        // SAFETY: no handler is set.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut server = Server::start();
        let locks = server.locks();
        locks.lock("n").unwrap();
        locks.unlock("n").unwrap();
        server.kill();
        assert!(matches!(locks.try_lock("n"), Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })));
    });
}
