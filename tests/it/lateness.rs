//! That what a test measures allows for a machine that is late, and for nothing else.

use crate::process::{hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LATE, ms, timed};

#[test]
fn what_a_stopped_process_measures_is_longer_only_by_the_stop() {
    with_peer(
        |url| {
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            let (go, took) = timed(|| {
                tell(url, "waits");
                let go = redis::cmd("BLPOP").arg("it:go").arg(20).query::<Option<(String, String)>>(&mut connection);
                std::thread::sleep(ms(400));
                go.unwrap()
            });
            assert!(go.is_some() && took.real() > ms(900), "{took:?}");
            assert!(took >= ms(900) && took <= ms(400) + LATE, "{took:?}");
            assert!(!(took <= ms(350)), "the stop of all cores counts once: {took:?}");
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
