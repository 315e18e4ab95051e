//! An allocator that counts while something is measured, for programs that make it their global one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The system's allocator, which counts.
pub struct Counting;

/// How many threads measure now. At 0 nothing is counted, because threads that all count in one place slow each other down.
static MEASURING: AtomicUsize = AtomicUsize::new(0);

/// Bytes given out and not taken back, by any thread, while something was measured.
static BYTES: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static MADE: Cell<usize> = const { Cell::new(0) };
}

fn count(made: usize, bytes: isize) {
    if MEASURING.load(Relaxed) > 0 {
        let _ = MADE.try_with(|count| count.set(count.get() + made));
        BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, -layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// What `act` gives, and how often the current thread allocated meanwhile; a block that grows counts again.
pub fn allocations<T>(act: impl FnOnce() -> T) -> (T, usize) {
    let before = MADE.get();
    let (result, _) = bytes(act);
    (result, MADE.get() - before)
}

/// What `act` gives, and how many bytes more than before this process has in use after it.
pub fn bytes<T>(act: impl FnOnce() -> T) -> (T, isize) {
    bytes_until(Duration::ZERO, 0, act)
}

/// The same, but waits at most for `bound` until they are no more than `enough`: other threads may not have given back the
/// memory of their work yet.
pub fn bytes_until<T>(bound: Duration, enough: isize, act: impl FnOnce() -> T) -> (T, isize) {
    MEASURING.fetch_add(1, Relaxed);
    let before = BYTES.load(Relaxed);
    let result = act();
    let (more, end) = (|| BYTES.load(Relaxed) - before, Instant::now() + bound);
    while more() > enough && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let more = more();
    MEASURING.fetch_sub(1, Relaxed);
    (result, more)
}
