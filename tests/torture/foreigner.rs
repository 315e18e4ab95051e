//! A thread that waits for the first lock as Redisson does: beside the queue, woken by the channel of the lock alone.

use crate::history::record::{Kind, Log, MS, Op, Outcome, Record, now};
use crate::queue::channel;
use crate::work::resource;
use redis::RedisResult;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

/// As Redisson asks: nil, or the PTTL.
const ACQUIRE: &str = "if redis.call('exists', KEYS[1]) == 0 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// 1: it was there.
const RELEASE: &str = "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', ARGV[2], '0')
return 1";

const OWNER: &str = "00000000-0000-4000-8000-000000000000:1";

/// How soon it looks for a server that is gone, and whether it is to end.
const LOOK: Duration = Duration::from_millis(10);

/// How long it has the lock, and how long not.
#[derive(Clone, Copy)]
pub(crate) struct Habit {
    pub(crate) lease: Duration,
    pub(crate) hold: Duration,
    pub(crate) pause: Duration,
}

/// It ends when this is dropped.
pub(crate) struct Foreigner {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Jvm {
    server: redis::Client,
    lock: String,
    log: Log,
    habit: Habit,
    stop: Arc<AtomicBool>,
}

impl Foreigner {
    pub(crate) fn start(url: &str, log: Log, habit: Habit) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let server = redis::Client::open(url).expect("a URL");
        let mut jvm = Jvm { server, lock: resource(0), log, habit, stop: Arc::clone(&stop) };
        Self { stop, thread: Some(std::thread::spawn(move || jvm.run())) }
    }
}

impl Drop for Foreigner {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("the foreigner panicked"));
    }
}

impl Jvm {
    /// One connection after the other.
    fn run(&mut self) {
        while !self.is_over() {
            let _ = self.server.get_connection().and_then(|mut asks| self.take_turns(&mut asks));
            sleep(LOOK);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(SeqCst)
    }

    fn take_turns(&mut self, asks: &mut redis::Connection) -> RedisResult<()> {
        while !self.is_over() {
            self.turn(asks)?;
            sleep(self.habit.pause);
        }
        Ok(())
    }

    /// Locks, holds and unlocks.
    fn turn(&mut self, asks: &mut redis::Connection) -> RedisResult<()> {
        self.note(Kind::Call, Op::Lock, Outcome::None, 0);
        let acquired = self.acquire(asks);
        if acquired.is_err() {
            // It may have got it.
            self.note(Kind::Done, Op::Lock, Outcome::Unknown, 0);
        }
        let Some(sent) = acquired? else { return Ok(()) };
        self.note(Kind::Done, Op::Lock, Outcome::Yes, 1);
        let deadline = sent + self.habit.lease.as_nanos() as u64 - MS;
        let at = now();
        self.log.write(Record { at, kind: Kind::Check, valid: at < deadline, deadline, ..Record::default() });
        sleep(self.habit.hold);
        self.note(Kind::Call, Op::Unlock, Outcome::None, 1);
        let release = redis::Script::new(RELEASE);
        let released = release.key(&self.lock).arg(OWNER).arg(channel(&self.lock)).invoke(asks);
        let outcome = match released {
            Ok(1) => Outcome::Yes,
            Ok(_) => Outcome::Lost,
            Err(_) => Outcome::Unknown,
        };
        self.note(Kind::Done, Op::Unlock, outcome, 0);
        released.map(drop)
    }

    /// When the ask was sent that got it; `None`: it is to end.
    fn acquire(&self, asks: &mut redis::Connection) -> RedisResult<Option<u64>> {
        let sent = now();
        if self.ask(asks)?.is_none() {
            return Ok(Some(sent));
        }
        while !self.is_over() {
            if let Some(sent) = self.wait(asks)? {
                return Ok(Some(sent));
            }
            sleep(LOOK);
        }
        Ok(None)
    }

    /// Subscribes, and then asks whenever it is told, or the time to live is over. `None`: its subscription was cut.
    fn wait(&self, asks: &mut redis::Connection) -> RedisResult<Option<u64>> {
        let Ok(mut hears) = self.server.get_connection() else { return Ok(None) };
        let mut told = hears.as_pubsub();
        if told.subscribe(channel(&self.lock)).and_then(|()| told.set_read_timeout(Some(LOOK))).is_err() {
            return Ok(None);
        }
        while !self.is_over() {
            let sent = now();
            let Some(left) = self.ask(asks)? else { return Ok(Some(sent)) };
            let until = now() + left * MS;
            while now() < until && !self.is_over() {
                match told.get_message() {
                    Ok(_) => break,
                    Err(error) if error.is_timeout() => {}
                    Err(_) => return Ok(None),
                }
            }
        }
        Ok(None)
    }

    /// For how many ms it is taken; `None`: no more.
    fn ask(&self, asks: &mut redis::Connection) -> RedisResult<Option<u64>> {
        let (acquire, lease) = (redis::Script::new(ACQUIRE), self.habit.lease.as_millis() as u64);
        let left: Option<i64> = acquire.key(&self.lock).arg(lease).arg(OWNER).invoke(asks)?;
        Ok(left.map(|left| left.max(1) as u64))
    }

    fn note(&mut self, kind: Kind, op: Op, outcome: Outcome, depth: u8) {
        self.log.write(Record { at: now(), kind, op, outcome, depth, ..Record::default() });
    }
}
