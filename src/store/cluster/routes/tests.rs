//! What follows when something is said of slots; no node is there.

use super::super::said::{Owner, Range};
use super::*;
use crate::base::config::Settings;
use crate::store::cluster::url;
use crate::store::node::pool_worker;
use std::sync::atomic::AtomicUsize;

fn routes() -> Routes {
    routes_telling(Arc::default())
}

/// Of a client that holds something or waits, or does not.
fn routes_of(in_use: bool) -> Routes {
    let routes = routes();
    Routes { common: Common { in_use: Arc::new(move || in_use), ..routes.common.clone() }, ..routes }
}

/// They count how often it is told that slots have other masters.
fn routes_telling(count: Arc<AtomicUsize>) -> Routes {
    let config = Settings::default().derive().unwrap();
    let moved: crate::store::Moved = Arc::new(move |_| {
        count.fetch_add(1, Relaxed);
    });
    let (worker, in_use) = (pool_worker().unwrap(), Arc::new(|| false));
    let common = Common { config, counters: Arc::default(), worker, moved, in_use };
    Routes::new(url::parse("redis+cluster://h").unwrap(), &common, Box::new(|_, _| ()), Arc::new(|| ()))
}

fn address(port: u16) -> HostPort {
    HostPort { host: "h".to_owned(), port }
}

/// One master has all slots.
fn said(port: u16, epoch: u64) -> Said {
    let master = Owner { address: address(port), epoch };
    Said { ranges: vec![Range { first: 0, last: 16_383, master, replicas: Vec::new() }], sharded: true, is_down: false }
}

/// As if a call had looked for a master in vain, and did not sleep yet: who told it now would wake nobody.
#[test]
fn who_looks_for_a_master_is_woken_whenever_one_is_named() {
    let routes = routes();
    std::thread::scope(|scope| {
        let looking = routes.unknown.lock();
        let telling = scope.spawn(|| routes.take(&said(1, 1)));
        while routes.known(0).is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(!telling.is_finished());
        drop(looking);
    });
    assert!(routes.master(0, routes.clock.now(), &|| ()).is_ok());
}

struct Deaf;

impl crate::base::signal::Ear for Deaf {
    fn hear(&self, _: &[u8]) {}
    fn missed(&self) {}
}

/// Its thread would have nobody to end it.
#[test]
fn nobody_listens_to_a_master_that_is_named_after_the_end() {
    let routes = routes();
    routes.note(said(1, 1));
    routes.close();
    routes.note(said(2, 2));
    let master = routes.known(0).unwrap();
    let _subscription = master.pubsub.listen("n", Arc::new(Deaf)).unwrap();
    assert!(!master.pubsub.runs());
}

/// Each of two nodes says that the other has the slot.
#[test]
fn a_circle_of_redirections_is_no_storm_of_news() {
    let told = Arc::<AtomicUsize>::default();
    let routes = routes_telling(Arc::clone(&told));
    routes.note(said(1, 1));
    let began = routes.clock.now();
    for port in [2, 1].into_iter().cycle().take(300) {
        routes.moved(0, address(port));
    }
    let told = told.load(Relaxed);
    let most = routes.clock.now().since(began).as_millis() / TELLS_EVERY.as_millis() + 1;
    assert!(told >= 1 && told as u128 <= most, "told {told} times, not {most}");
}

#[test]
fn who_was_asked_for_single_keys_is_forgotten_when_slots_have_other_masters() {
    let routes = routes();
    routes.note(said(1, 1));
    let asked = Arc::downgrade(&routes.guest(address(2)));
    assert!(asked.upgrade().is_some(), "it may be asked again");
    routes.note(said(3, 2));
    assert!(asked.upgrade().is_none());
}

/// Its renewals go straight to the nodes that it knows, and who waits asks seldom.
#[test]
fn a_client_that_holds_or_waits_goes_on_asking_for_slots() {
    let asks = |in_use| {
        let routes = routes_of(in_use);
        (0..2 * RESTS_AFTER).filter(|_| !routes.rests()).count()
    };
    assert_eq!([true, false].map(asks), [2 * RESTS_AFTER as usize, RESTS_AFTER as usize]);
}
