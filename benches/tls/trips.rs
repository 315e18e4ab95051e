//! How a client begins, seen from between it and its server: connections, round trips, bytes.

use crate::first::authorities_of_the_system;
use crate::support::Outcome;
use crate::{MICRO, Servers, locks};
use harness::proxy::{Address, Flow, Proxy, Step};
use redlatch::RedLock;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OURS: &str = "bench:tls:ours";
const OTHERS: &str = "bench:tls:others";

/// Long enough to begin to listen.
const SHORT: Duration = Duration::from_millis(50);

/// What went over a connection.
#[derive(Clone, Default)]
struct Seen {
    last: Option<Flow>,
    /// How often the client spoke after the server, the first time included.
    asked: usize,
    /// Before the client spoke for the second time: the server's part of a TLS handshake.
    greeting: usize,
}

impl Seen {
    fn note(&mut self, flow: Flow, length: usize) {
        match flow {
            Flow::Request if self.last != Some(Flow::Request) => self.asked += 1,
            Flow::Reply if self.asked == 1 => self.greeting += length,
            _ => {}
        }
        self.last = Some(flow);
    }
}

/// A proxy before a port, and what it sees.
fn watched(port: u16) -> (Proxy, Arc<Mutex<Vec<Seen>>>) {
    let (proxy, seen) = (Proxy::on_tcp_before(Address::Port(port)), Arc::new(Mutex::new(Vec::<Seen>::new())));
    let noting = Arc::clone(&seen);
    proxy.set(move |connection, flow, data| {
        let mut all = noting.lock().expect("no panic");
        let length = all.len().max(connection + 1);
        all.resize(length, Seen::default());
        all[connection].note(flow, data.len());
        vec![Step::Send(data.to_vec())]
    });
    (proxy, seen)
}

pub(crate) fn rows(servers: &Servers) -> Outcome<()> {
    println!(
        "| a new client | connections to the first lock | round trips, TCP's own included | first answer, bytes | on its next connection |"
    );
    println!("| --- |{}", " ---: |".repeat(4));
    row("TLS", "rediss", servers.sealed.port(), &servers.sealed.tls_url())?;
    row("without", "redis", servers.plain.port(), &servers.plain.tcp())?;
    let took = authorities_of_the_system(servers);
    let took = took.map_or_else(|| "there are none".to_owned(), |took| format!("{:.0} µs", took / MICRO));
    println!("\na client that trusts the authorities of the system reads them when it is built: {took}");
    Ok(())
}

fn row(title: &str, scheme: &str, port: u16, url: &str) -> Outcome<()> {
    let other = locks(url)?;
    let (proxy, seen) = watched(port);
    let locks = locks(&format!("{scheme}://127.0.0.1:{}", proxy.port()))?;
    locks.lock(OURS)?;
    let first = seen.lock().expect("no panic").clone();
    // Whoever waits listens, on a connection of its own.
    other.lock(OTHERS)?;
    let is_free = locks.try_lock_for(OTHERS, SHORT)?;
    other.unlock(OTHERS).and_then(|()| locks.unlock(OURS))?;
    let trips: usize = first.iter().map(|one| one.asked + 1).sum();
    let next = seen.lock().expect("no panic").get(first.len()).map_or(0, |next| next.greeting);
    println!("| {title} | {} | {trips} | {} | {next} |", first.len(), first[0].greeting);
    if is_free { Err("it did not wait".into()) } else { Ok(()) }
}
