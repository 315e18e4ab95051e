//! That what a test measures allows for a machine that is late, and for nothing else.

use crate::process::{hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LATE, Mark, Took, ms, timed};

/// How long something took without the machine, in ms, up to 400.
fn by_itself(took: Took) -> usize {
    (0..400).filter(|bound| !(took <= ms(*bound))).count()
}

#[test]
fn what_a_stopped_process_measures_is_longer_only_by_the_stop() {
    with_peer(
        |url| {
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            let start = Mark::now();
            tell(url, "waits");
            let go = redis::cmd("BLPOP").arg("it:go").arg(20).query::<Option<(String, String)>>(&mut connection);
            let back = Mark::now();
            std::thread::sleep(ms(400));
            let end = Mark::now();
            let (took, all, sleep) = (back - start, end - start, end - back);
            assert!(go.unwrap().is_some() && took.real() > ms(500), "{took:?}");
            assert!(took >= ms(500) && took <= LATE, "{took:?}");
            // A stop of all cores counts once, and excuses nothing of what comes after it.
            assert!(by_itself(all) + 2 >= by_itself(sleep), "{all:?}, the sleep {sleep:?}");
        },
        |start| {
            let server = Server::start();
            let peer = start(&server);
            assert_eq!(hear(&server), "waits");
            peer.freeze();
            std::thread::sleep(ms(600));
            server.ask::<i64>(&["RPUSH", "it:go", "go"]);
            peer.thaw();
            peer.join();
        },
    );
}

#[test]
fn what_a_thread_does_for_long_is_long() {
    let sleep = || timed(|| std::thread::sleep(ms(200))).1;
    assert!(sleep() >= ms(200));
    assert!((0..50).any(|_| sleep() > LATE / 2), "the machine is not late each time");
}
