//! The service as its clients see it: a program of its own, spoken to by HTTP.

use harness::server::Server;
use harness::threads::{LONG, eventually, ms};
use redlatch::{Client, RedLock, ReentrantLock};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

struct Service {
    child: Child,
    address: String,
}

impl Service {
    /// Its work takes so long.
    fn start(server: &Server, work_ms: u64) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_web-example"))
            .envs([("REDLATCH_URL", server.url()), ("PORT", "0".to_owned()), ("WORK_MS", work_ms.to_string())])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().strip_prefix("listening on ").unwrap().to_owned() }
    }

    fn ask(&self, order: u64) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "POST /orders/{order}/pay HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        stream
    }

    /// The first line of the answer, and the last one.
    fn pay(&self, order: u64) -> (String, String) {
        let mut text = String::new();
        self.ask(order).read_to_string(&mut text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        (lines[0].to_owned(), lines.last().unwrap().to_string())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn locks(server: &Server) -> ReentrantLock {
    ReentrantLock::new(&Client::connect(&server.url()).unwrap())
}

#[test]
fn a_request_is_served_under_the_lock_and_409_says_that_it_is_busy() {
    let server = Server::start();
    let (service, locks) = (Service::start(&server, 0), locks(&server));
    assert_eq!(service.pay(42), ("HTTP/1.1 200 OK".to_owned(), "order 42 is paid".to_owned()));
    locks.lock("order:42").unwrap();
    assert_eq!(service.pay(42).0, "HTTP/1.1 409 Conflict");
    assert_eq!(service.pay(43).0, "HTTP/1.1 200 OK", "another order is free");
    locks.unlock("order:42").unwrap();
    assert_eq!(service.pay(42).0, "HTTP/1.1 200 OK");
}

#[test]
fn a_client_that_disconnects_leaves_no_lock() {
    let server = Server::start();
    let (service, locks) = (Service::start(&server, 300), locks(&server));
    let asked = service.ask(42);
    eventually(LONG, "the work is under way", || locks.is_locked("order:42").unwrap());
    drop(asked);
    eventually(LONG, "the work has ended, and the lock with it", || !locks.is_locked("order:42").unwrap());
    assert_eq!(service.pay(42).0, "HTTP/1.1 200 OK");
}

/// Its wait ends with it: the lock that it would have taken is free for others at once.
#[test]
fn a_client_that_disconnects_while_it_waits_never_gets_the_lock() {
    let server = Server::start();
    let (service, locks) = (Service::start(&server, 300), locks(&server));
    locks.lock("order:42").unwrap();
    let asked = service.ask(42);
    std::thread::sleep(ms(100));
    drop(asked);
    std::thread::sleep(ms(100));
    locks.unlock("order:42").unwrap();
    let acquires = || server.ask::<i64>(&["EXISTS", "order:42"]);
    for _ in 0..50 {
        assert_eq!(acquires(), 0, "nobody is there for whom the work would be done");
        std::thread::sleep(ms(5));
    }
}

#[test]
fn without_a_server_it_says_503() {
    let mut server = Server::start();
    let service = Service::start(&server, 0);
    server.kill();
    assert_eq!(service.pay(42).0, "HTTP/1.1 503 Service Unavailable");
    server.restart();
}
