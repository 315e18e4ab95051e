//! A program that works under locks and serves its metrics to Prometheus: `cargo run --package metrics-example`, then
//! `curl http://127.0.0.1:9090/metrics`.
//!
//! Environment: `REDLATCH_URL` names the server. `PORT` is the port of the page, 9090. `WORKERS` is the number of threads that pay orders, 4.
//! `ORDERS` is the number of orders, 10. `WORK_MS` is the time that a payment takes, 20. `WATCHDOG_MS` is the lease, 30000.
//!
//! docs/metrics.md explains each metric, and docs/alerts.yml has alerts on them.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redlatch::{Client, RedLockExt, ReentrantLock};
use std::error::Error;
use std::thread::{sleep, spawn};
use std::time::Duration;
use tiny_http::{Response, Server};

/// The limits of the buckets, in seconds. A third of the lease must be among them: an alert asks for it.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 20.0, 60.0];

/// A payment waits no longer than this for its order.
const WAIT: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    // redlatch writes its lines with the crate `log`. The subscriber takes them as events.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // The recorder comes first: a client asks for its handles when it is built.
    let page = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    let locks = ReentrantLock::new(&client()?);
    for _ in 0..number("WORKERS", 4)? {
        let locks = locks.clone();
        spawn(move || pay_orders(&locks));
    }
    spawn(move || report(&locks));
    serve(&page)
}

fn client() -> Result<Client, Box<dyn Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let lease = Duration::from_millis(number("WATCHDOG_MS", 30_000)?);
    Ok(Client::builder(&url).watchdog_timeout(lease).metrics_class("order:", "orders").build()?)
}

fn number(name: &str, default: u64) -> Result<u64, Box<dyn Error>> {
    Ok(std::env::var(name).map_or(Ok(default), |number| number.parse())?)
}

/// Pays orders for ever. An order that is busy for too long is left to later.
fn pay_orders(locks: &ReentrantLock) {
    let work = Duration::from_millis(number("WORK_MS", 20).unwrap_or(20));
    let orders = number("ORDERS", 10).unwrap_or(10).max(1);
    loop {
        let name = format!("order:{}", fastrand::u64(..orders));
        if let Err(error) = locks.request(&name).wait(WAIT).execute(|_| sleep(work)) {
            eprintln!("{name}: {error}");
            sleep(work);
        }
    }
}

/// Writes a report under one lock, which is renewed all the time. A report whose lock was lost is begun anew.
fn report(locks: &ReentrantLock) {
    loop {
        match locks.guard("report") {
            Ok(guard) => {
                while guard.is_valid() {
                    sleep(Duration::from_millis(50));
                }
            }
            Err(error) => eprintln!("report: {error}"),
        }
        sleep(Duration::from_millis(100));
    }
}

/// Serves the page for ever. What was recorded is sorted into buckets at least each 5 s, also if nobody asks.
fn serve(page: &PrometheusHandle) -> Result<(), Box<dyn Error>> {
    let server =
        Server::http(("127.0.0.1", u16::try_from(number("PORT", 9_090)?)?)).map_err(|error| error as Box<dyn Error>)?;
    println!("listening on {}", server.server_addr());
    loop {
        match server.recv_timeout(Duration::from_secs(5))? {
            Some(request) => request.respond(Response::from_string(page.render()))?,
            None => page.run_upkeep(),
        }
    }
}
