//! The page as Prometheus reads it: a program of its own, spoken to by HTTP.

use harness::server::Server;
use harness::threads::{LONG, eventually};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

struct Program {
    child: Child,
    address: String,
}

impl Program {
    fn start(server: &Server) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_metrics-example"))
            .envs([("REDLATCH_URL", server.url()), ("PORT", "0".to_owned()), ("WATCHDOG_MS", "3000".to_owned())])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().strip_prefix("listening on ").unwrap().to_owned() }
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The value of a series on the page.
    fn value(&self, series: &str) -> Option<f64> {
        let page = self.scrape();
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_shows_what_the_locks_do() {
    let mut server = Server::start();
    let program = Program::start(&server);
    let at_least = |series: &str, least: f64| {
        eventually(LONG, series, || program.value(series).is_some_and(|value| value >= least));
    };
    let count = "redlatch_acquire_wait_seconds_count";
    at_least(&format!("{count}{{kind=\"reentrant_lock\",outcome=\"acquired\",class=\"orders\"}}"), 10.0);
    at_least("redlatch_held", 1.0);
    at_least("redlatch_renewal_margin_seconds_count", 1.0);
    assert_eq!(program.value("redlatch_lost_total{cause=\"expired\"}"), Some(0.0), "shown before it happens");
    assert!(program.scrape().contains("# TYPE redlatch_hold_seconds histogram"));
    server.kill();
    at_least("redlatch_outages_total", 1.0);
    at_least("redlatch_lost_total{cause=\"expired\"}", 1.0);
}
