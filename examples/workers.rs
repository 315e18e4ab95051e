//! A job queue: at most two jobs of a customer run at once, however many processes and threads work.
//!
//! Each process has a list of jobs and some threads that work it off. A job runs only with a permit of its customer. If the customer has no
//! permit left, the thread puts the job back and takes that of another customer.
//!
//! If a process dies, its permits come back when their leases end: after at most [`LEASE`]. If a process is paused for longer than that, its
//! permits are lost, and others may have them. So a job asks before each step whether its permit is held.
//!
//! Run it several times at once with `cargo run --example workers NAME`; the server is the one at `REDLATCH_URL`, by default
//! `redis://127.0.0.1/`. Each line begins with the time in microseconds since 1970.

use redlatch::{Client, Error, Hold, LeasedSemaphore, Permits, Terms};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CUSTOMERS: [&str; 2] = ["ann", "bob"];

/// Of one customer.
const AT_ONCE: u32 = 2;

/// Of one process, for each customer.
const JOBS: usize = 6;
const THREADS: usize = 4;

const STEPS: usize = 4;
const STEP: Duration = Duration::from_millis(50);

/// How long a thread waits for a permit before it turns to the job of another customer.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a dead process keeps its permits; renewed every third of it.
const LEASE: Duration = Duration::from_secs(3);

/// The customers whose jobs are to be done, the next job first.
type Jobs = Mutex<VecDeque<&'static str>>;

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let name = std::env::args().nth(1).unwrap_or_else(|| std::process::id().to_string());
    let client = Client::connect(&url)?;
    let workers = LeasedSemaphore::new(&client);
    for customer in CUSTOMERS {
        // Only the first process that comes here sets the number. To change it later there is `set_permits`.
        workers.try_set_permits(&permits_of(customer), AT_ONCE)?;
    }

    let jobs: Jobs = Mutex::new(CUSTOMERS.repeat(JOBS).into());
    let done = thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(|| work_off(&workers, &jobs, &name)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    });
    client.shutdown();
    done
}

fn permits_of(customer: &str) -> String {
    format!("example:workers:{customer}")
}

fn work_off(workers: &LeasedSemaphore, jobs: &Jobs, name: &str) -> redlatch::Result<()> {
    let list = || jobs.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let next = list().pop_front();
        let Some(customer) = next else { return Ok(()) };
        let terms = Terms::new().wait(PATIENCE).renewed_lease(LEASE);
        let done = match workers.acquire(&permits_of(customer), 1, &terms) {
            Ok(Some(permit)) => run(permit, customer, name),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        // An error ends this thread. Another thread does the job, or it is left to whoever looks at the error.
        if !matches!(done, Ok(true)) {
            list().push_back(customer);
        }
        done?;
    }
}

/// Runs a job; whether it is done. If the server does not answer to the release, it counts as not done: it may run twice.
fn run(permit: Permits, customer: &str, name: &str) -> redlatch::Result<bool> {
    say(name, "begins", customer);
    for _ in 0..STEPS {
        if !permit.hold().is_some_and(Hold::is_valid) {
            break;
        }
        thread::sleep(STEP);
    }
    // Said before it is given back: afterwards the next job might be the first to speak.
    say(name, "ends", customer);
    match permit.release() {
        // Others may have worked beside it: it begins anew.
        Err(Error::Lost { .. }) => Ok(false),
        released => released.map(|()| true),
    }
}

fn say(name: &str, what: &str, customer: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    println!("{} {name} {what} {customer}", now.as_micros());
}
