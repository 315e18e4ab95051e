//! The scripts of semaphores and latches, as they come after others in between.

use super::{ahead, number, run};
use crate::server::Server;

const LANE: &str = "redlatch_op:{n}:c:s1";
const LEASES: &str = "{n}:timeout";

fn left(server: &Server) -> Option<i64> {
    server.ask(&["GET", "n"])
}

fn give_back(server: &Server) -> i64 {
    let args = [&*ahead(server), "7", "60000", "1", "redisson_sc:{n}", "redlatch_places:{n}", "0"];
    number(run(server, "semaphore/add", &["n", LANE], &args))
}

fn clean(server: &Server) {
    server.ask::<i64>(&["DEL", "n", LANE, LEASES]);
}

/// The first attempt finds no semaphore, and its reply is lost. Somebody sets the permits, and the second one comes.
#[test]
fn a_return_that_found_no_semaphore_adds_nothing_later() {
    let server = Server::start();
    assert_eq!(give_back(&server), 0);
    server.ask::<String>(&["SET", "n", "5"]);
    assert_eq!((give_back(&server), left(&server)), (0, Some(5)));
    clean(&server);
}

/// It would be set then, with too few permits.
#[test]
fn the_undo_of_an_acquire_makes_no_semaphore_that_was_deleted() {
    let server = Server::start();
    server.ask::<String>(&["SET", LANE, "7:taken"]);
    let undone = run(&server, "semaphore/undo", &["n", LANE], &["7", "1", "redisson_sc:{n}", "redlatch_places:{n}"]);
    assert_eq!((number(undone), left(&server)), (0, None));
    clean(&server);
}

/// A client of Redisson's whose clock is ahead takes back one of three, between two attempts of an acquire.
#[test]
fn a_repeated_acquire_takes_as_many_permits_as_are_not_out() {
    let server = Server::start();
    server.ask::<String>(&["SET", "n", "5"]);
    let acquire = || {
        let args = [&*ahead(&server), "60000", "o", "3", "redisson_sc:{n}", "redlatch_places:{n}", "", "0"];
        run(&server, "leased/acquire", &["n", LEASES], &args).unwrap()
    };
    acquire();
    for gone in ["o:1", "o:2"] {
        assert_eq!(left(&server), Some(2));
        server.ask::<i64>(&["ZREM", LEASES, gone]);
        server.ask::<i64>(&["INCRBY", "n", "1"]);
        acquire();
    }
    assert_eq!((left(&server), server.ask::<i64>(&["ZCARD", LEASES])), (Some(2), 3));
    clean(&server);
}
