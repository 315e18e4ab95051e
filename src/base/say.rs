//! Logging that cannot hurt: a program's logger must not change what happens to a lock.
//!
//! A logger is foreign code that runs in the middle of ours: between two steps that belong together, in a `Drop` during an unwinding, in a
//! destructor of a thread that ends. Some loggers panic there: tracing's formatter keeps a buffer in a thread-local, which may be gone. So
//! a panic of the logger ends at the line that it was to log.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// `say!(warn, "..", ..)` is `log::warn!("..", ..)` whose panics end here.
macro_rules! say {
    ($level:ident, $($text:tt)+) => {
        $crate::base::say::quietly(|| log::$level!($($text)+))
    };
}

pub(crate) use say;

/// A panic can leave broken only the state of the logger, or of a recorder of metrics.
pub(crate) fn quietly(log: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(log));
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_in_a_line_ends_there() {
        super::quietly(|| std::panic::resume_unwind(Box::new("on purpose")));
    }
}
