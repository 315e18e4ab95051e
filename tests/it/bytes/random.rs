//! Connections that fail at random bytes while many threads contend.

use super::assert_nothing_left;
use crate::proxy::{Proxy, cut_after, numbers, pass, pass_after};
use crate::server::Server;
use crate::threads::{LATE, SOON, ms, timed};
use redlatch::{Client, RedLock, ReentrantLock};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[test]
fn connections_cut_at_random_bytes_never_let_two_in() {
    const WAIT: Duration = Duration::from_millis(300);
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let builder = Client::builder(&proxy.url()).watchdog_timeout(Duration::from_secs(3)).response_timeout(ms(200));
    let locks = ReentrantLock::new(&builder.build().unwrap());
    let mut random = numbers(88_172_645_463_325_252);
    proxy.set(move |_, _, data| match random(12) {
        0 => cut_after(random(data.len() as u64 + 1) as usize, data),
        1 => pass_after(ms(random(260)), data),
        _ => pass(data),
    });
    let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let enter = |waits_for_ever: bool| {
        let (got, took) = timed(|| match waits_for_ever {
            true => locks.lock("n").map(|()| true),
            false => locks.try_lock_for("n", WAIT),
        });
        assert!(waits_for_ever || took <= WAIT + LATE, "{took:?} for {got:?}");
        if !matches!(got, Ok(true)) {
            return;
        }
        if locks.hold("n").unwrap().remaining() > SOON {
            assert_eq!(inside.fetch_add(1, SeqCst), 0);
            std::thread::sleep(ms(1));
            inside.fetch_sub(1, SeqCst);
            entered.fetch_add(1, SeqCst);
        }
        let (result, took) = timed(|| locks.unlock("n"));
        assert!(took <= Duration::from_secs(4), "{took:?} for {result:?}");
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let enter = &enter;
            scope.spawn(move || {
                let end = Instant::now() + Duration::from_secs(5);
                (thread..).take_while(|_| Instant::now() < end).for_each(|turn| enter(turn % 3 == 0));
            });
        }
    });
    proxy.clear();
    assert!(entered.load(SeqCst) > 0);
    assert_nothing_left(&server, [&locks].into_iter());
}
