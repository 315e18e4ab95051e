//! Rows 5 to 7 and 14 to 17: keys that vanish, change or are not ours.

use crate::server::Server;
use crate::threads::{LONG, WATCHED};
use redlatch::{LossCause, RedLockExt};

#[test]
fn fault_05_a_flush_loses_every_hold() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let guards = ["a", "b", "c"].map(|name| locks.guard(name).unwrap());
    server.ask::<String>(&["FLUSHALL"]);
    for guard in guards {
        assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
        assert_err!(guard.unlock(), Lost);
    }
}
