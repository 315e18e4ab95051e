//! Rows 104 to 107 and 135: TLS.

use crate::proxy::{Flow, Proxy, cut_after, pass};
use crate::server::Server;
use crate::threads::{LATE, SOON, ms, timed};
use crate::{MINUTE, locks_of};
use harness::papers::{Flaw, Papers, papers, trusting};
use harness::proxy::Address;
use redlatch::{Client, ClientBuilder, Error, RedLock, ReentrantLock};
use std::io::{Read, Write};
use std::net::TcpListener;

fn server(flaw: Flaw) -> Server {
    Server::start_with_tls(&papers(flaw), false)
}

fn builder(server: &Server) -> ClientBuilder {
    Client::builder(&server.tls_url()).tls(trusting())
}

/// That a call is refused at once, by these words, and is not asked again.
#[track_caller]
fn assert_told(locks: &ReentrantLock, words: &str) {
    let (told, took) = timed(|| locks.lock("n"));
    let error = told.unwrap_err();
    assert!(took <= SOON && !error.is_retryable(), "{error:?} after {took:?}");
    assert!(matches!(&error, Error::Refused { code, .. } if code == "TLS"), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn fault_104_each_certificate_that_is_not_accepted_is_told_why() {
    let expected = [
        (Flaw::Expired, "has expired"),
        (Flaw::NotYetValid, "is not valid yet"),
        (Flaw::OtherHost, "is of another host"),
        (Flaw::SignedThemselves, "signed itself"),
        (Flaw::Foreign, "an authority that is not trusted here"),
        (Flaw::OfAnAuthority, "make one with basicConstraints=CA:FALSE"),
        (Flaw::Nameless, "make one with a subjectAltName"),
    ];
    for (flaw, words) in expected {
        let server = server(flaw);
        assert_told(&locks_of(builder(&server)), words);
    }
}

#[test]
fn fault_105_a_server_that_asks_for_certificates_says_which_it_does_not_accept() {
    let server = Server::start_with_tls(&papers(Flaw::None), true);
    let with =
        |Papers { chain, key }: Papers| locks_of(builder(&server).tls(trusting().client_certificate(chain, key)));
    let known = with(papers(Flaw::None));
    known.lock("n").unwrap();
    known.unlock("n").unwrap();
    assert_told(&locks_of(builder(&server)), "Tls::client_certificate");
    assert_told(&with(papers(Flaw::Foreign)), "does not accept the certificate of this client");
    assert_told(&with(papers(Flaw::Expired)), "does not accept the certificate of this client");
}

#[test]
fn fault_106_a_port_without_tls_is_told() {
    let plain = Server::start_on_tcp();
    let to_plain = plain.tcp_url().replace("redis://", "rediss://");
    let error =
        locks_of(Client::builder(&to_plain).tls(trusting()).outage_budget(ms(100))).lock("n").unwrap_err().to_string();
    assert!(error.contains("is this its port for TLS?"), "{error}");
}

/// Redis ends a connection without TLS and says nothing, as a server does that has just been killed.
#[test]
fn fault_135_a_port_for_tls_that_is_reached_without_is_told() {
    let sealed = server(Flaw::None);
    let without = sealed.tls_url().replace("rediss://", "redis://");
    let error = locks_of(Client::builder(&without).outage_budget(ms(100))).lock("n").unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("if its port is for TLS, write rediss://"), "{error}");
}

/// A proxy in front of servers ends it with an alert, by which it is known.
#[test]
fn fault_135_an_alert_of_tls_is_told_at_once() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let locks = locks_of(Client::builder(&format!("redis://{}", proxy.local_addr().unwrap())));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = proxy.accept().unwrap();
            let _ = client.read(&mut [0; 512]);
            // A fatal alert of TLS 1.2: protocol_version.
            client.write_all(&[21, 3, 3, 0, 2, 2, 70]).unwrap();
        });
        assert_told(&locks, "its port is for TLS: write rediss://");
    });
}

/// Its time is over before the server has said anything.
#[test]
fn fault_106_a_handshake_that_hangs_ends_with_the_calls_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}", silent.local_addr().unwrap());
    let locks = locks_of(Client::builder(&url).tls(trusting()));
    let (told, took) = timed(|| locks.try_lock_for("n", ms(300)));
    assert!(told.is_err() && took >= ms(300) && took <= ms(300) + LATE, "{told:?} after {took:?}");
}

/// So many bytes go one way on the first connection, and then it is cut; later ones are whole.
fn cut_first(proxy: &Proxy, way: Flow, bytes: usize) {
    let (mut left, mut is_cut) = (bytes, false);
    proxy.set(move |_, flow, data| {
        if is_cut || flow != way {
            return pass(data);
        }
        is_cut = data.len() > left;
        let steps = if is_cut { cut_after(left, data) } else { pass(data) };
        left = left.saturating_sub(data.len());
        steps
    });
}

/// Wherever it dies: in the handshake, in the login behind it, in the call.
#[test]
fn fault_107_a_connection_that_dies_in_its_handshake_is_made_again() {
    let server = server(Flaw::None);
    for (way, lengths) in [(Flow::Request, (0..900).step_by(61)), (Flow::Reply, (0..2_600).step_by(131))] {
        for bytes in lengths {
            let proxy = Proxy::on_tcp_by_client(Address::Port(server.port()));
            cut_first(&proxy, way, bytes);
            let url = proxy.url().replace("redis://", "rediss://");
            let locks = locks_of(Client::builder(&url).tls(trusting()).watchdog_timeout(MINUTE));
            let (locked, took) = timed(|| locks.lock("n"));
            assert!(locked.is_ok() && took <= SOON, "{way:?} cut after {bytes}: {locked:?} after {took:?}");
            locks.unlock("n").unwrap();
        }
    }
}
