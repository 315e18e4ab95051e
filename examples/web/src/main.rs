//! A web service that takes a lock in a handler: `cargo run --package web-example`, then
//! `curl -X POST http://127.0.0.1:3000/orders/42/pay`. REDLATCH_URL names another server, PORT another port.
//!
//! docs/async.md explains it line by line.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use redlatch::{CancelToken, Hold, RedLockExt, RedisRedLock};
use std::time::Duration;

/// A request waits no longer than this for the lock.
const WAIT: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // One client for the whole program. It connects at the first call.
    let locks = RedisRedLock::connect(&url)?;
    let app = Router::new().route("/orders/{order}/pay", post(pay)).with_state(locks);
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(ctrl_c()).await?;
    Ok(())
}

async fn ctrl_c() {
    let _ = tokio::signal::ctrl_c().await;
}

async fn pay(State(locks): State<RedisRedLock>, Path(order): Path<u64>) -> (StatusCode, String) {
    let token = CancelToken::new();
    // If the client disconnects, axum drops this future, and the wait for the lock ends.
    let _cancel = CancelOnDrop(token.clone());
    let paid = tokio::task::spawn_blocking(move || {
        let name = format!("order:{order}");
        locks.request(&name).wait(WAIT).cancelled_by(&token).execute(|guard| charge(order, guard))
    });
    match paid.await {
        Ok(Ok(Some(receipt))) => (StatusCode::OK, receipt),
        // Busy: another request pays this order now.
        Ok(Ok(None)) => (StatusCode::CONFLICT, format!("order {order} is being paid, try again")),
        // The work ran, but perhaps not alone: it must not be repeated blindly.
        Ok(Err(error)) if error.work_ran() => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("check order {order}: {error}"))
        }
        // Redis is away: nothing was done.
        Ok(Err(error)) if error.is_retryable() => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        // The work panicked. The lock was released all the same.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// The work, under the lock. It may block: here it takes as long as WORK_MS says.
fn charge(order: u64, hold: &Hold) -> String {
    let work = std::env::var("WORK_MS").ok().and_then(|millis| millis.parse().ok()).unwrap_or_default();
    std::thread::sleep(Duration::from_millis(work));
    if hold.is_valid() { format!("order {order} is paid\n") } else { format!("order {order} was not paid\n") }
}

/// Ends a wait when it is dropped.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
