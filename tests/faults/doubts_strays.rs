//! Rows 159 and 160: answers that belong to no call, or to another one, and sockets that a program takes for its standard output.
//!
//! `REDLATCH_ROUNDS=100` has each of them come so often.

use crate::doubts::{before, by_proxies, rounds};
use crate::proxy::{Flow, Proxy, Step, pass};
use crate::server::Server;
use crate::threads::{answered, ms};
use harness::cluster::{self, Cluster, Keys, names_in_slot, slot_of};
use harness::papers::{Flaw, papers, trusting};
use harness::sentinel::{self, Group};
use harness::terminator::Terminator;
use redlatch::{Client, ClientBuilder, MultiLock, RedLock, ReentrantLock, Result};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What comes that nobody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stray {
    Error,
    /// A lock is granted.
    Granted,
    /// A lock is not there.
    Gone,
    Half,
    /// The last answer, or the one that comes, another time.
    Doubled,
}

impl Stray {
    const ALL: [Self; 5] = [Self::Error, Self::Granted, Self::Gone, Self::Half, Self::Doubled];

    fn bytes(self, answer: &[u8]) -> Vec<u8> {
        let bytes: &[u8] = match self {
            Self::Error => b"-ERR of another call\r\n",
            Self::Granted => b"$-1\r\n",
            Self::Gone => b":0\r\n",
            Self::Half => b"$9\r\nof an",
            Self::Doubled => answer,
        };
        bytes.to_vec()
    }

    /// Each of them so often.
    fn rounds() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().flat_map(|stray| vec![stray; rounds(1)])
    }
}

/// Changes the answer to the next request that has these words, and no other. What makes no steps of it waits for the rest. Returns how many were
/// changed.
pub(crate) fn change_next(
    proxy: &Proxy,
    words: &'static str,
    change: impl Fn(&[u8]) -> Vec<Step> + Send + 'static,
) -> Arc<AtomicUsize> {
    let (changed, mut asking) = (Arc::<AtomicUsize>::default(), HashMap::<_, Vec<u8>>::new());
    let (count, has) = (Arc::clone(&changed), |data: &[u8], words: &str| String::from_utf8_lossy(data).contains(words));
    proxy.set(move |connection, flow, data| {
        match flow {
            _ if count.load(SeqCst) > 0 => {}
            // A new connection tests its user's rights by a script.
            Flow::Request if has(data, words) && !(words == "EVAL" && has(data, "$4\r\nINFO")) => {
                asking.entry(connection).or_default();
            }
            Flow::Reply => {
                if let Some(said) = asking.get_mut(&connection) {
                    said.extend(data);
                    let steps = change(said);
                    count.fetch_add(usize::from(!steps.is_empty()), SeqCst);
                    return steps;
                }
            }
            Flow::Request => {}
        }
        pass(data)
    });
    changed
}

/// What a call says, when it is answered: one with a short time may not be on a machine that is late.
#[track_caller]
fn assert_says<T: Debug + PartialEq>(call: impl FnMut() -> Result<T>, expected: T, stray: Stray) {
    assert_eq!(answered(call).0, expected, "{stray:?}");
}

/// A client that is answered by others, one that is not, and what they do.
struct Scene {
    victim: ReentrantLock,
    other: ReentrantLock,
}

impl Scene {
    /// The other one has the lock `busy`.
    fn new(victim: ClientBuilder, other: ClientBuilder) -> Self {
        let [victim, other] = [victim, other].map(crate::locks_of);
        other.lock("busy").unwrap();
        Self { victim, other }
    }

    fn assert_knows_of_busy(&self, stray: Stray) {
        assert_says(|| self.victim.try_lock("busy"), false, stray);
        assert_says(|| self.victim.is_locked("busy"), true, stray);
    }

    /// What calls say that were not answered by others.
    fn assert_knows(&self, stray: Stray) {
        self.assert_knows_of_busy(stray);
        assert_says(|| self.victim.is_locked("free"), false, stray);
    }

    fn end(self) {
        self.other.unlock("busy").unwrap();
    }
}

/// Each call after one of them: the connection has it before the request.
fn assert_idle_strays_are_not_believed(victim: ClientBuilder, server: &Server, come: impl Fn(Stray)) {
    let scene = Scene::new(victim, server.builder());
    for stray in Stray::rounds() {
        // An answer that grants the lock comes another time.
        scene.victim.lock("free").unwrap();
        come(stray);
        assert_says(|| scene.victim.try_lock("busy"), false, stray);
        come(stray);
        assert!(scene.victim.unlock("free").is_ok(), "{stray:?}");
        come(stray);
        assert_says(|| scene.victim.is_locked("busy"), true, stray);
        come(stray);
        assert_says(|| scene.victim.is_locked("free"), false, stray);
        come(stray);
        assert_says(|| scene.victim.force_unlock("free"), false, stray);
        scene.assert_knows(stray);
    }
    scene.end();
}

#[test]
fn fault_159_stray_answers_on_an_idle_connection_are_not_believed() {
    let server = Server::start();
    let (proxy, last) = (Proxy::new(server.socket()), Arc::<Mutex<Vec<u8>>>::default());
    let noted = Arc::clone(&last);
    proxy.set(move |_, flow, data| {
        if flow == Flow::Reply {
            data.clone_into(&mut noted.lock().unwrap());
        }
        pass(data)
    });
    let come = |stray: Stray| proxy.interject(&stray.bytes(&last.lock().unwrap()));
    assert_idle_strays_are_not_believed(Client::builder(&proxy.url()), &server, come);
}

#[test]
fn fault_159_stray_answers_in_a_session_of_tls_are_not_believed() {
    let server = Server::start();
    let proxy = Terminator::new(server.socket(), &papers(Flaw::None));
    for is_whole in [true, false] {
        let come = |stray: Stray| proxy.interject(&stray.bytes(&proxy.last()), is_whole);
        assert_idle_strays_are_not_believed(Client::builder(&proxy.url()).tls(trusting()), &server, come);
    }
}

/// Asks for a lock that another has, and finds a lock that is there, while the next answer is changed so.
fn assert_changed_answers_are_not_believed(strays: &[Stray], change: fn(Stray, &[u8]) -> Vec<Step>) {
    let server = Server::start();
    let proxy = Proxy::on_tcp(server.socket());
    let scene = Scene::new(Client::builder(&proxy.url()), server.builder());
    for stray in Stray::rounds().filter(|stray| strays.contains(stray)) {
        let changed = change_next(&proxy, "EVAL", move |answer| change(stray, answer));
        let told = scene.victim.try_lock("busy");
        assert!((changed.load(SeqCst) == 1 || told.is_err()) && !matches!(told, Ok(true)), "{stray:?}: {told:?}");
        scene.assert_knows(stray);
        scene.victim.lock("free").unwrap();
        change_next(&proxy, "EVAL", move |answer| change(stray, answer));
        let told = scene.victim.unlock("free");
        assert!(told.is_ok(), "{stray:?}: {told:?}");
        scene.assert_knows(stray);
    }
    proxy.clear();
    scene.end();
}

#[test]
fn fault_159_stray_answers_within_an_answer_are_not_believed() {
    assert_changed_answers_are_not_believed(&Stray::ALL, |stray, answer| {
        let (begin, end) = answer.split_at(answer.len() / 2);
        vec![Step::Send([begin, &stray.bytes(answer), end].concat())]
    });
}

#[test]
fn fault_159_stray_answers_between_a_request_and_its_answer_are_not_believed() {
    assert_changed_answers_are_not_believed(&Stray::ALL, |stray, answer| {
        vec![Step::Send([&stray.bytes(answer), answer].concat())]
    });
}

/// It comes before the answer, which comes later: no look at the connection finds more than one answer.
#[test]
fn fault_159_a_grant_of_another_call_is_not_believed() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let scene = Scene::new(Client::builder(&proxy.url()), server.builder());
    for _ in 0..rounds(1) {
        let granted = Arc::<Mutex<Vec<u8>>>::default();
        let noted = Arc::clone(&granted);
        change_next(&proxy, "EVAL", move |answer| {
            answer.clone_into(&mut noted.lock().unwrap());
            pass(answer)
        });
        scene.victim.lock("free").unwrap();
        let changed = change_next(&proxy, "EVAL", move |answer| {
            vec![Step::Send(granted.lock().unwrap().clone()), Step::Sleep(ms(5)), Step::Send(answer.to_vec())]
        });
        let told = scene.victim.try_lock("busy");
        assert!(changed.load(SeqCst) == 1 && told.as_ref().is_ok_and(|taken| !taken), "{told:?}");
        scene.victim.unlock("free").unwrap();
        scene.assert_knows(Stray::Doubled);
    }
    proxy.clear();
    scene.end();
}

/// At the node that a slot moves to, which is told so before each request.
#[test]
fn fault_159_stray_answers_between_asking_and_its_request_are_not_believed() {
    let cluster = Cluster::of(cluster::Shape::STEADY);
    let proxies = before(&cluster.nodes);
    let slot = slot_of(&cluster.name_at(0, 0));
    let name = names_in_slot(slot).next().unwrap();
    let [victim, other] =
        [by_proxies(cluster.builder(), &cluster.nodes, &proxies), cluster.builder()].map(crate::locks_of);
    other.lock(&name).unwrap();
    let moved = cluster.half_move(slot, 1, Keys::Named(&[&name]));
    for stray in Stray::rounds() {
        for comes_first in [true, false] {
            let changed = change_next(&proxies[1], "ASKING", move |answer| {
                let stray = stray.bytes(answer);
                vec![Step::Send(if comes_first { [&stray, answer].concat() } else { [answer, &stray].concat() })]
            });
            let told = victim.try_lock(&name);
            assert!((changed.load(SeqCst) == 1 || told.is_err()) && !matches!(told, Ok(true)), "{stray:?}: {told:?}");
            assert_says(|| victim.try_lock(&name), false, stray);
        }
    }
    proxies[1].clear();
    cluster.finish_move(moved);
    other.unlock(&name).unwrap();
}

/// Several locks of one node are released by one write. Each answer belongs to the lock that it is of.
#[test]
fn fault_159_stray_answers_in_a_pipeline_are_not_believed() {
    let cluster = Cluster::of(cluster::Shape::STEADY);
    let proxies = before(&cluster.nodes);
    let locks = crate::locks_of(by_proxies(cluster.builder(), &cluster.nodes, &proxies));
    let names: Vec<_> = cluster.names_at(0, "").take(3).collect();
    let group = MultiLock::of(names.iter().map(|name| (&locks, name.as_str())));
    for stray in Stray::rounds() {
        // Each answer is an array of one: two lines.
        for at in 0..=6 {
            group.lock().unwrap();
            let changed = change_next(&proxies[0], "EVAL", move |answers| {
                let mut parts: Vec<_> = answers.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                // If the last one came later, it could not be told from that of another call.
                if parts.len() < 6 {
                    return vec![];
                }
                parts.insert(at, stray.bytes(answers));
                vec![Step::Send(parts.concat())]
            });
            let told = group.unlock();
            assert!(changed.load(SeqCst) == 1 && told.is_ok(), "{stray:?} at {at}: {told:?}");
            proxies[0].clear();
        }
    }
    assert_eq!(locks.client().stats().lost, 0);
}

/// A replica confirms what is granted: each answer is one to WAIT, too.
#[test]
fn fault_159_stray_answers_to_wait_are_not_believed() {
    let group = Group::of(sentinel::Shape::STEADY);
    let proxies = before(&group.nodes);
    let victim = by_proxies(group.builder(), &group.nodes, &proxies).sync_replicas(1, ms(300));
    let scene = Scene::new(victim, group.builder());
    for stray in Stray::rounds().filter(|stray| *stray != Stray::Granted) {
        for comes_first in [true, false] {
            let changed = change_next(&proxies[0], "EVAL", move |answer| {
                let stray = stray.bytes(if comes_first { b":1\r\n" } else { answer });
                vec![Step::Send(if comes_first {
                    [answer, &stray].concat()
                } else {
                    [answer, &stray, &stray].concat()
                })]
            });
            let locked = scene.victim.try_lock("free");
            assert!(changed.load(SeqCst) == 1 || locked.is_err(), "{stray:?}: {locked:?}");
            scene.assert_knows_of_busy(stray);
            if matches!(locked, Ok(true)) {
                assert!(scene.victim.unlock("free").is_ok(), "{stray:?}");
            }
        }
    }
    proxies[0].clear();
    scene.end();
}

/// The last answer of a connection's beginning comes twice.
#[test]
fn fault_159_a_doubled_greeting_is_not_believed() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    for stray in Stray::rounds() {
        let scene = Scene::new(Client::builder(&proxy.url()), server.builder());
        let changed =
            change_next(&proxy, "CLIENT", move |answer| vec![Step::Send([answer, &stray.bytes(b"$-1\r\n")].concat())]);
        scene.assert_knows(stray);
        assert_eq!(changed.load(SeqCst), 1);
        proxy.clear();
        scene.end();
    }
}
