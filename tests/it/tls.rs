//! TLS: who is trusted, what each certificate that is not says, and that a handshake ends in time.

use crate::harness::papers::{Flaw, OTHER_HOST, Papers, authority, papers, trusting};
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{Client, ClientBuilder, Error, RedLock, RedLockExt, ReentrantLock, Tls};
use std::net::TcpListener;

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

#[test]
fn each_certificate_that_is_not_accepted_is_told_why() {
    let expected = [
        (Flaw::Expired, "has expired"),
        (Flaw::NotYetValid, "is not valid yet"),
        (Flaw::OtherHost, "is of another host"),
        (Flaw::SignedThemselves, "signed itself"),
        (Flaw::Foreign, "an authority that is not trusted here"),
    ];
    for (flaw, words) in expected {
        let server = server(flaw);
        assert_told(&locks(builder(&server)), words);
    }
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
fn a_server_that_asks_for_certificates_gets_them() {
    let server = Server::start_with_tls(&papers(Flaw::None), true);
    let with = |Papers { chain, key }: Papers| locks(builder(&server).tls(trusting().client_certificate(chain, key)));
    let known = with(papers(Flaw::None));
    known.lock("n").unwrap();
    known.unlock("n").unwrap();
    assert_told(&locks(builder(&server)), "Tls::client_certificate");
    assert_told(&with(papers(Flaw::Foreign)), "does not accept the certificate of this client");
    assert_told(&with(papers(Flaw::Expired)), "does not accept the certificate of this client");
}

#[test]
fn a_port_without_tls_is_told() {
    let plain = Server::start_on_tcp();
    let to_plain = plain.tcp_url().replace("redis://", "rediss://");
    let error =
        locks(Client::builder(&to_plain).tls(trusting()).outage_budget(ms(100))).lock("n").unwrap_err().to_string();
    assert!(error.contains("is this its port for TLS?"), "{error}");
}

/// Its time is over before the server has said anything.
#[test]
fn a_handshake_that_hangs_ends_with_the_calls_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}", silent.local_addr().unwrap());
    let locks = locks(Client::builder(&url).tls(trusting()));
    let (told, took) = timed(|| locks.try_lock_for("n", ms(300)));
    assert!(told.is_err() && took >= ms(300) && took <= ms(300) + LATE, "{told:?} after {took:?}");
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
