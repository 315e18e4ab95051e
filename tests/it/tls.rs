//! TLS: who is trusted, what each certificate that is not says, and that a handshake ends in time.

mod several;

use crate::harness::papers::{Flaw, OTHER_HOST, Papers, authority, papers, trusting};
use crate::proxy::{Address, Flow, Proxy, Step};
use crate::server::Server;
use crate::threads::{LONG, SOON, answered, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{Client, ClientBuilder, Error, MultiLock, RedLock, RedLockExt, ReentrantLock, Tls};
use std::sync::{Arc, Mutex};

fn server(flaw: Flaw) -> Server {
    Server::start_with_tls(&papers(flaw), false)
}

fn builder(server: &Server) -> ClientBuilder {
    Client::builder(&server.tls_url()).tls(trusting())
}

fn locks(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

/// That a call is refused at once, by these words.
#[track_caller]
fn assert_told(locks: &ReentrantLock, words: &str) {
    let (told, took) = timed(|| locks.lock("n"));
    let error = told.unwrap_err();
    assert!(took <= SOON && !error.is_retryable(), "{error:?} after {took:?}");
    assert!(matches!(&error, Error::Refused { code, .. } if code == "TLS"), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_lock_is_taken_and_waited_for() {
    let server = server(Flaw::None);
    let [holder, waiter] = [(); 2].map(|()| locks(builder(&server)));
    std::thread::scope(|scope| {
        let guard = holder.guard("n").unwrap();
        let waiting = spawn_asleep(scope, || waiter.guard("n").map(drop));
        eventually(LONG, "it listens", || server.subscribers("redisson_lock__channel:{n}") == 1);
        guard.unlock().unwrap();
        let (served, when) = finish(waiting);
        assert!(served.is_ok(), "{served:?} at {when:?}");
    });
    let clients: String = server.ask(&["CLIENT", "LIST"]);
    assert!(clients.lines().filter(|line| line.contains("lib-name=redlatch") || line.contains(":0 ")).count() > 0);
}

/// More than a session buffers unless it is told to. Each try would fail, after the server read half of a command.
#[test]
fn many_long_names_go_in_one_command() {
    let server = server(Flaw::None);
    let locks = locks(builder(&server).outage_budget(ms(100)));
    let names: Vec<_> = (0..200).map(|number| format!("{number:01000}")).collect();
    let group = MultiLock::of(names.iter().map(|name| (&locks, name.as_str())));
    group.guard().unwrap().unlock().unwrap();
}

/// Its server sends no certificate then, which is most of what it says first.
#[test]
fn the_next_connection_of_a_client_resumes_the_session() {
    let server = server(Flaw::None);
    let (proxy, first_said) = (Proxy::on_tcp_before(Address::Port(server.port())), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&first_said);
    proxy.set(move |number, flow, data| {
        let mut first_said = noted.lock().unwrap();
        if flow == Flow::Reply && first_said.len() == number {
            first_said.push(data.len());
        }
        vec![Step::Send(data.to_vec())]
    });
    let [holder, waiter] = [server.tls_url(), format!("rediss://127.0.0.1:{}/", proxy.port())]
        .map(|url| locks(Client::builder(&url).tls(trusting())));
    waiter.lock("ours").unwrap();
    holder.lock("n").unwrap();
    // Whoever waits listens, on a connection of its own.
    assert!(!answered(|| waiter.try_lock_for("n", SOON / 4)).0);
    holder.unlock("n").unwrap();
    waiter.unlock("ours").unwrap();
    let first_said = first_said.lock().unwrap().clone();
    assert!(first_said.len() > 1 && first_said[1..].iter().all(|bytes| 2 * bytes < first_said[0]), "{first_said:?}");
}

#[test]
fn a_certificate_of_another_name_is_accepted_for_that_name() {
    let server = server(Flaw::OtherHost);
    let named = locks(Client::builder(&server.tls_url()).tls(trusting().server_name(OTHER_HOST)));
    named.lock("n").unwrap();
    named.unlock("n").unwrap();
}

#[test]
fn the_system_does_not_trust_the_authority_of_these_tests() {
    let server = server(Flaw::None);
    assert_told(&locks(Client::builder(&server.tls_url())), "an authority that is not trusted here");
}

#[test]
fn settings_that_do_not_work_are_told() {
    let Papers { chain, key } = papers(Flaw::None);
    let other = papers(Flaw::None);
    let told = |url: &str, tls: Tls| Client::builder(url).tls(tls).build().unwrap_err().to_string();
    let cases = [
        ("redis://h", trusting(), "write rediss://"),
        ("rediss://h", Tls::new().ca(""), "Tls::ca was given no certificate"),
        ("rediss://h", Tls::new().ca(key.clone()), "Tls::ca was given no certificate"),
        ("rediss://h", trusting().client_certificate("", key.clone()), "client_certificate was given no certificate"),
        ("rediss://h", trusting().client_certificate(chain.clone(), ""), "was given no key"),
        ("rediss://h", trusting().client_certificate(chain.clone(), other.key), "do not work"),
        ("rediss://h", trusting().server_name("a b"), "Tls::server_name"),
    ];
    for (url, tls, words) in cases {
        let text = told(url, tls);
        assert!(text.contains(words) && !text.contains("PRIVATE KEY-----\n"), "{text}");
    }
    assert_eq!(format!("{:?}", Tls::new().client_certificate(chain, key).ca(authority())), "Tls(..)");
    let mixed = Client::builder("rediss://h").replicas(["redis://i"]).build().unwrap_err().to_string();
    assert!(mixed.contains("some of the servers' URLs ask for TLS"), "{mixed}");
}

/// The system takes some numbers for addresses that are neither names nor addresses to a certificate.
#[test]
fn a_host_that_no_certificate_could_name_is_told_what_to_do() {
    let server = server(Flaw::None);
    let url = server.tls_url().replace("127.0.0.1", "127.1");
    assert_told(
        &locks(Client::builder(&url).tls(trusting())),
        "could name this host as it is written: give its name by",
    );
    let named = locks(Client::builder(&url).tls(trusting().server_name("127.0.0.1")));
    named.guard("n").unwrap().unlock().unwrap();
}
