//! Code that takes `&dyn RedLock` is tested without a server: `LocalRedLock` is the same lock in memory.
//!
//! Run the program with `cargo run --example unit_test_with_local`, and its tests with
//! `cargo test --example unit_test_with_local`. No server is needed.

use redlatch::{LocalRedLock, RedLock, RedLockExt};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// What became of an order.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Accepted {
        left: u32,
    },
    SoldOut,
    TryAgain,
    /// Somebody else may have ordered at the same time: look at the stock before anything is sent.
    Unsure,
}

/// Takes pieces from the stock if there are enough.
///
/// The check and the change belong together, and only the lock keeps them together: the stock itself might be
/// a row of a database.
fn order(locks: &dyn RedLock, stock: &AtomicU32, pieces: u32) -> redlatch::Result<Order> {
    let done = locks.request("stock:7").wait(Duration::from_millis(100)).execute(|_| {
        let Some(left) = stock.load(Relaxed).checked_sub(pieces) else { return Order::SoldOut };
        stock.store(left, Relaxed);
        Order::Accepted { left }
    });
    match done {
        Ok(done) => Ok(done.unwrap_or(Order::TryAgain)),
        Err(error) if error.work_ran() => Ok(Order::Unsure),
        Err(error) if error.is_retryable() => Ok(Order::TryAgain),
        Err(error) => Err(error),
    }
}

fn main() -> redlatch::Result<()> {
    // In production: `RedisRedLock::connect("redis://..")?`.
    let locks = LocalRedLock::new();
    let stock = AtomicU32::new(10);
    for pieces in [7, 7, 3] {
        println!("{pieces} pieces: {:?}", order(&locks, &stock, pieces)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlatch::Error;
    use std::thread;

    #[test]
    fn takes_what_is_there() {
        let stock = AtomicU32::new(10);
        assert_eq!(order(&LocalRedLock::new(), &stock, 7).unwrap(), Order::Accepted { left: 3 });
        assert_eq!(order(&LocalRedLock::new(), &stock, 4).unwrap(), Order::SoldOut);
        assert_eq!(stock.into_inner(), 3);
    }

    #[test]
    fn gives_up_while_another_thread_holds_the_stock() {
        let (locks, stock) = (LocalRedLock::new(), AtomicU32::new(10));
        let guard = locks.guard("stock:7").unwrap();
        let busy = thread::scope(|scope| scope.spawn(|| order(&locks, &stock, 1)).join().unwrap());
        assert_eq!(busy.unwrap(), Order::TryAgain);
        assert_eq!(stock.into_inner(), 10);
        guard.unlock().unwrap();
    }

    /// What cannot be made to happen in time is planned: the next calls on the resource meet it, in this order.
    #[test]
    fn knows_what_to_do_when_something_goes_wrong() {
        let (locks, stock) = (LocalRedLock::new(), AtomicU32::new(10));
        locks.busy_next("stock:7");
        locks.fail_next(Error::unavailable("stock:7", "no route to host"));
        locks.fail_next(Error::closed("stock:7"));
        locks.lose_next("stock:7");
        assert_eq!(order(&locks, &stock, 1).unwrap(), Order::TryAgain);
        assert_eq!(order(&locks, &stock, 1).unwrap(), Order::TryAgain);
        assert!(matches!(order(&locks, &stock, 1), Err(Error::Closed { .. })));
        assert_eq!(order(&locks, &stock, 1).unwrap(), Order::Unsure);
        assert_eq!(order(&locks, &stock, 1).unwrap(), Order::Accepted { left: 8 });
        assert_eq!(locks.planned(), 0);
    }

    #[test]
    fn leaves_the_stock_free() {
        let locks = LocalRedLock::new();
        order(&locks, &AtomicU32::new(10), 1).unwrap();
        assert!(!locks.is_locked("stock:7").unwrap());
    }

    #[test]
    fn sells_no_piece_twice() {
        let (locks, stock) = (LocalRedLock::new(), AtomicU32::new(10));
        let accepted = thread::scope(|scope| {
            let buyers: Vec<_> = (0..16).map(|_| scope.spawn(|| order(&locks, &stock, 1).unwrap())).collect();
            let orders = buyers.into_iter().map(|buyer| buyer.join().unwrap());
            orders.filter(|order| matches!(order, Order::Accepted { .. })).count()
        });
        assert_eq!(accepted as u32 + stock.into_inner(), 10);
    }
}
