//! All that a program does with locks, by a user who lacks a rule or none.

use crate::rows::{At, Of, Row};
use harness::threads::{SOON, WATCHED, finish, ms, spawn_asleep};
use redlatch::{
    Client, Command, CountDownLatch, FairLock, FencedLock, HandOff, Hold, LeasedSemaphore, LockGuard, MultiLock,
    Permits, QuorumLock, ReadWriteLock, RedLock, RedLockExt, ReentrantLock, Result, Semaphore, Terms,
};
use std::error::Error;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// What a call cannot give back is over by itself soon; a strict client takes no longer lease.
const LEASE: Duration = WATCHED;

/// How long a wait may last that is not in vain, and what is waited for otherwise.
const WAIT: Duration = Duration::from_secs(4);

/// Of each of those who take a lock from each other.
const TURNS: usize = 40;

/// What nobody listens to any more is left after this.
const LINGER: Duration = Duration::from_millis(2_500);

/// The locks of one client.
enum Locks {
    Of(ReentrantLock),
    Fenced(FencedLock),
    /// Beside what the self-test asks for in any case.
    Fair(FairLock, ReentrantLock),
    /// Likewise.
    Sides(ReadWriteLock, ReentrantLock),
    /// Likewise.
    Beside(NoLock, ReentrantLock),
    OfSeveral(QuorumLock),
}

/// What is no lock.
enum NoLock {
    Counted(Semaphore),
    Leased(LeasedSemaphore),
    Latch(CountDownLatch),
}

impl Locks {
    fn connect(row: &Row, urls: &[String], self_test: bool) -> Result<Self> {
        if row.at == At::Servers {
            return Row::quorum(urls, self_test).build().map(Self::OfSeveral);
        }
        Ok(Self::of(row, &row.builder(urls, self_test).build()?))
    }

    /// Of a client that does not queue.
    fn connect_aside(row: &Row, urls: &[String]) -> Result<Self> {
        if row.at == At::Servers {
            return Self::connect(row, urls, false);
        }
        Ok(Self::of(row, &row.builder(urls, false).hand_off(HandOff::off()).build()?))
    }

    fn of(row: &Row, client: &Client) -> Self {
        match row.of {
            Of::Plain => Self::Of(ReentrantLock::new(client)),
            Of::Fenced => Self::Fenced(FencedLock::new(client)),
            Of::Fair => Self::Fair(FairLock::new(client), ReentrantLock::new(client)),
            Of::Sides => Self::Sides(ReadWriteLock::new(client), ReentrantLock::new(client)),
            Of::Counted => Self::beside_locks(client, NoLock::Counted(Semaphore::new(client))),
            Of::Leased => Self::beside_locks(client, NoLock::Leased(LeasedSemaphore::new(client))),
            Of::Latch => Self::beside_locks(client, NoLock::Latch(CountDownLatch::new(client))),
        }
    }

    fn beside_locks(client: &Client, other: NoLock) -> Self {
        Self::Beside(other, ReentrantLock::new(client))
    }

    fn lock(&self) -> &dyn RedLock {
        match self {
            Self::Of(lock) => lock,
            Self::Fenced(lock) => lock,
            Self::Fair(lock, _) => lock,
            Self::Sides(_, lock) | Self::Beside(_, lock) => lock,
            Self::OfSeveral(lock) => lock,
        }
    }

    /// The locks of another kind that wait in another queue, if there are any.
    fn beside(&self) -> Option<&dyn RedLock> {
        match self {
            Self::Fair(_, lock) => Some(lock),
            _ => None,
        }
    }

    fn ping(&self) -> Result<()> {
        match self {
            Self::Of(lock) | Self::Beside(_, lock) => lock.client().ping(SOON).map(drop),
            Self::Fenced(lock) => lock.client().ping(SOON).map(drop),
            Self::Fair(lock, _) => lock.client().ping(SOON).map(drop),
            Self::Sides(locks, _) => locks.client().ping(SOON).map(drop),
            Self::OfSeveral(lock) => lock.ping(SOON).map(drop),
        }
    }

    /// Needs nothing that the locks do not need.
    fn look_while_held(&self, hold: &Hold) -> Result<()> {
        let look = [Command::new("HEXISTS").key(format!("shop:{}", hold.resource())).arg("owner")];
        match self {
            Self::Of(lock) => lock.while_held(hold, &look).map(drop),
            Self::Fenced(lock) => lock.while_held(hold, &look).map(drop),
            Self::Fair(lock, _) => lock.while_held(hold, &look).map(drop),
            Self::Sides(_, lock) | Self::Beside(_, lock) => lock.while_held(hold, &look).map(drop),
            Self::OfSeveral(_) => Ok(()),
        }
    }

    fn renewals(&self) -> u64 {
        match self {
            Self::Of(lock) | Self::Beside(_, lock) => lock.client().stats().renewals,
            Self::Fenced(lock) => lock.client().stats().renewals,
            Self::Fair(lock, _) => lock.client().stats().renewals,
            Self::Sides(locks, _) => locks.client().stats().renewals,
            Self::OfSeveral(lock) => lock.stats().renewals,
        }
    }
}

/// The clients of one user.
struct Stage {
    clients: [Locks; 3],
    /// Of one more, which does not queue.
    aside: Locks,
    user: String,
    /// In a slot of a cluster that is on its way to another node.
    moving: Option<String>,
}

type Done = std::result::Result<(), Box<dyn Error>>;
type Call = (&'static str, fn(&Stage) -> Done);

/// Those that listen come first: what they listen to is left while the others are made.
const CALLS: &[Call] = &[
    ("`ping`", |stage| Ok(stage.clients[0].ping()?)),
    ("a wait", wait),
    ("a wait in vain", wait_in_vain),
    ("waits of several", |stage| crowd(stage, "crowd", |locks| Some(locks.lock()))),
    ("waits for another kind", |stage| crowd(stage, "beside", Locks::beside)),
    ("a renewal", renew),
    ("`lock`", |stage| Ok(stage.first().lock_with_lease(&stage.name("lock"), LEASE)?)),
    ("`unlock`", |stage| Ok(stage.first().unlock(&stage.name("lock"))?)),
    ("a lock that is held", reenter),
    ("`extend`", |stage| Ok(stage.guard("extend")?.extend(LEASE)?)),
    ("`verify`", |stage| Ok(stage.first().verify(&*stage.guard("verify")?).map(drop)?)),
    ("`is_locked`", |stage| Ok(stage.first().is_locked(&stage.name("looked-at")).map(drop)?)),
    ("`remaining_time_to_live`", |stage| Ok(stage.first().remaining_time_to_live(&stage.name("it")).map(drop)?)),
    ("`force_unlock`", |stage| Ok(stage.first().force_unlock(&stage.name("lock-2")).map(drop)?)),
    ("`MultiLock`", group),
    ("`last_token`", last_token),
    ("a read lock", read),
    ("a downgrade", downgrade),
    ("a writer among readers", among_readers),
    ("permits", permits),
    ("permits with leases", leased_permits),
    ("a latch", latch),
    ("a slot that moves", |stage| stage.moving.iter().try_for_each(|name| pair(stage.first(), name))),
];

/// What each call that fails says, in their order.
pub(crate) fn all(row: &Row, urls: &[String], user: &str, moving: &str) -> Vec<(&'static str, String)> {
    let clients = [(); 3].map(|()| Locks::connect(row, urls, false).unwrap());
    let moving = (!moving.is_empty()).then(|| moving.to_owned());
    let aside = Locks::connect_aside(row, urls).unwrap();
    let stage = Stage { clients, aside, user: user.to_owned(), moving };
    let failed = CALLS.iter().filter_map(|(name, call)| Some((*name, call(&stage).err()?.to_string()))).collect();
    std::thread::sleep(LINGER);
    failed
}

/// What a client with the self-test says to its first call, if that is refused.
pub(crate) fn first(row: &Row, urls: &[String], user: &str) -> Option<String> {
    let locks = Locks::connect(row, urls, true).unwrap();
    pair(locks.lock(), &format!("{user}-first")).err().map(|error| error.to_string())
}

impl Stage {
    fn first(&self) -> &dyn RedLock {
        self.clients[0].lock()
    }

    fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.user)
    }

    fn guard(&self, of: &str) -> Result<LockGuard<'_, dyn RedLock + '_>> {
        let guard = self.first().request(&self.name(of)).lease(LEASE).guard()?;
        Ok(guard.expect("it waits for it"))
    }
}

fn pair(locks: &dyn RedLock, name: &str) -> Done {
    locks.lock_with_lease(name, LEASE)?;
    Ok(locks.unlock(name)?)
}

/// A second client gets the lock when the first one unlocks it, and not by a poll.
fn wait(stage: &Stage) -> Done {
    let name = stage.name("wait");
    stage.first().lock_with_lease(&name, LEASE)?;
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || {
            let got = stage.clients[1].lock().try_lock_for_with_lease(&name, WAIT, LEASE)?;
            if got { stage.clients[1].lock().unlock(&name).map(|()| true) } else { Ok(false) }
        });
        std::thread::sleep(ms(300));
        let unlocked = stage.first().unlock(&name);
        let got = finish(waiter).0?;
        unlocked?;
        if got { Ok(()) } else { Err("nobody was woken".into()) }
    })
}

/// A second client waits, and goes without the lock.
fn wait_in_vain(stage: &Stage) -> Done {
    let name = stage.name("vain");
    stage.first().lock_with_lease(&name, LEASE)?;
    let waiting = || stage.clients[1].lock().try_lock_for(&name, ms(100));
    let waited = std::thread::scope(|scope| finish(scope.spawn(waiting)));
    stage.first().unlock(&name)?;
    Ok(waited.map(drop)?)
}

/// All clients take a lock from each other again and again, and give up each second wait soon, from the middle of the queue. Beside them
/// one waits that does not queue, to which they leave the lock. It comes again until they are done: at its first turn it may find the
/// lock free, and a client that never waits listens to nothing.
fn crowd(stage: &Stage, of: &str, locks_of: fn(&Locks) -> Option<&dyn RedLock>) -> Done {
    let (name, Some(aside)) = (stage.name(of), locks_of(&stage.aside)) else { return Ok(()) };
    let turns = |locks: &dyn RedLock| {
        (0..TURNS).try_for_each(|turn| {
            let wait = if turn % 2 == 0 { WAIT } else { ms(4) };
            let got = match locks.try_lock_for_with_lease(&name, wait, LEASE) {
                // On a busy machine it may give up before it is answered.
                Err(error) if turn % 2 == 1 && error.is_retryable() => false,
                got => got?,
            };
            if got {
                std::thread::sleep(ms(5));
                locks.unlock(&name)?;
            }
            Ok(())
        })
    };
    let is_over = AtomicBool::new(false);
    let waits = || -> Result<()> {
        while !is_over.load(SeqCst) {
            if aside.try_lock_for_with_lease(&name, WAIT, LEASE)? {
                std::thread::sleep(ms(5));
                aside.unlock(&name)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let waiter = scope.spawn(waits);
        let each = stage.clients.iter().filter_map(locks_of).map(|locks| scope.spawn(move || turns(locks)));
        let each: Vec<_> = each.collect();
        // Also after a panic, which would leave the other one at work for ever.
        let results: Vec<_> = each.into_iter().map(|turns| turns.join()).collect();
        is_over.store(true, SeqCst);
        finish(waiter)?;
        let results = results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)));
        Ok(results.collect::<Result<()>>()?)
    })
}

fn renew(stage: &Stage) -> Done {
    let (name, before, start) = (stage.name("renewed"), stage.clients[0].renewals(), Instant::now());
    stage.first().lock(&name)?;
    while stage.clients[0].renewals() == before && start.elapsed() < WAIT {
        std::thread::sleep(ms(10));
    }
    let is_renewed = stage.clients[0].renewals() > before;
    stage.first().unlock(&name)?;
    if is_renewed { Ok(()) } else { Err("it was not renewed".into()) }
}

fn reenter(stage: &Stage) -> Done {
    let guard = stage.guard("held")?;
    pair(stage.first(), &stage.name("held"))?;
    stage.clients[0].look_while_held(guard.hold())?;
    Ok(guard.unlock()?)
}

fn last_token(stage: &Stage) -> Done {
    let Locks::Fenced(locks) = &stage.clients[0] else { return Ok(()) };
    Ok(locks.last_token(&stage.name("lock")).map(drop)?)
}

/// Held, renewed, looked at and forced open.
fn read(stage: &Stage) -> Done {
    let Locks::Sides(locks, _) = &stage.clients[0] else { return Ok(()) };
    let name = stage.name("read");
    let guard = locks.read().request(&name).lease(LEASE).guard()?.expect("it waits for it");
    guard.extend(LEASE)?;
    locks.read().remaining_time_to_live(&name)?;
    guard.unlock()?;
    Ok(locks.read().force_unlock(&name).map(drop)?)
}

/// Both sides by one thread, of which the writer's goes first.
fn downgrade(stage: &Stage) -> Done {
    let Locks::Sides(locks, _) = &stage.clients[0] else { return Ok(()) };
    let name = stage.name("down");
    locks.write().lock_with_lease(&name, LEASE)?;
    locks.write().lock_with_lease(&name, LEASE)?;
    locks.write().unlock(&name)?;
    locks.read().lock_with_lease(&name, LEASE)?;
    locks.write().unlock(&name)?;
    Ok(locks.read().unlock(&name)?)
}

/// A writer waits while readers come and go, and readers while it writes.
fn among_readers(stage: &Stage) -> Done {
    let [Locks::Sides(one, _), Locks::Sides(other, _), _] = &stage.clients else { return Ok(()) };
    let name = stage.name("among");
    let reads = || {
        (0..TURNS).try_for_each(|_| {
            one.read().lock_with_lease(&name, LEASE)?;
            std::thread::sleep(ms(3));
            one.read().unlock(&name)
        })
    };
    let writes = || {
        (0..TURNS / 4).try_for_each(|_| {
            if other.write().try_lock_for_with_lease(&name, WAIT, LEASE)? {
                std::thread::sleep(ms(3));
                other.write().unlock(&name)?;
            }
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let (readers, writer) = ([(); 2].map(|()| scope.spawn(reads)), scope.spawn(writes));
        let read: Result<()> = readers.into_iter().try_for_each(finish);
        let written: Result<()> = finish(writer);
        Ok(read.and(written)?)
    })
}

fn group(stage: &Stage) -> Done {
    let names = ["group-1", "group-2"].map(|name| stage.name(name));
    let all = MultiLock::of(names.map(|name| (stage.first(), name)));
    all.lock_with_lease(LEASE)?;
    Ok(all.unlock()?)
}

fn permits(stage: &Stage) -> Done {
    let [Locks::Beside(NoLock::Counted(one), _), Locks::Beside(NoLock::Counted(other), _), _] = &stage.clients else {
        return Ok(());
    };
    let name = stage.name("permits");
    one.try_set_permits(&name, 3)?;
    one.remove_permits(&name, 1)?;
    one.available_permits(&name)?;
    let held = one.try_acquire(&name, 2)?.ok_or("they are not there")?;
    other.acquire(&name, 1, &Terms::new().wait(ms(100)))?;
    handed_on(held, || other.acquire(&name, 1, &Terms::new().wait(WAIT)))?;
    one.drain_permits(&name)?;
    one.add_permits(&name, 1)?;
    Ok(one.delete(&name).map(drop)?)
}

/// Held, renewed, looked at, handed on and deleted.
fn leased_permits(stage: &Stage) -> Done {
    let [Locks::Beside(NoLock::Leased(one), _), Locks::Beside(NoLock::Leased(other), _), _] = &stage.clients else {
        return Ok(());
    };
    let name = stage.name("leased");
    one.try_set_permits(&name, 1)?;
    one.set_permits(&name, 2)?;
    let held = one.try_acquire(&name, 2)?.ok_or("they are not there")?;
    one.available_permits(&name)?;
    held.hold().ok_or("they have no lease")?.extend(LEASE * 2)?;
    other.acquire(&name, 1, &Terms::new().wait(ms(100)))?;
    handed_on(held, || other.acquire(&name, 1, &Terms::new().wait(WAIT)))?;
    // None is out: whose permits are taken back is told so in the log.
    one.force_release(&name)?;
    Ok(one.delete(&name).map(drop)?)
}

/// Somebody waits for permits, gets them when they are given back, and not by a poll.
fn handed_on(held: Permits, acquire: impl FnOnce() -> Result<Option<Permits>> + Send) -> Done {
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, acquire);
        std::thread::sleep(ms(300));
        let released = held.release();
        let got = finish(waiter).0?;
        released?;
        Ok(got.ok_or("nobody was woken")?.release()?)
    })
}

/// One that opens in time, one that nobody waits out, and one that is opened by hand.
fn latch(stage: &Stage) -> Done {
    let [Locks::Beside(NoLock::Latch(one), _), Locks::Beside(NoLock::Latch(other), _), _] = &stage.clients else {
        return Ok(());
    };
    let name = stage.name("latch");
    one.try_set_count(&name, 1, Some(WATCHED * 10))?;
    one.count(&name)?;
    other.wait(&name, &Terms::new().wait(ms(100)))?;
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || other.wait(&name, &Terms::new().wait(WAIT)));
        std::thread::sleep(ms(300));
        let counted = one.count_down(&name);
        let is_open = finish(waiter).0?;
        counted?;
        if is_open { Ok::<_, Box<dyn Error>>(()) } else { Err("nobody was woken".into()) }
    })?;
    one.try_set_count(&name, 2, None)?;
    Ok(one.open(&name).map(drop)?)
}
