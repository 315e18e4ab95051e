//! Very many holds, and very many waiters.

use crate::Scale;
use crate::counting::bytes;
use crate::report::{Report, Target};
use crate::support::turns::MILLI;
use crate::support::{Outcome, Samples, Server, command_stats, connect, cpu_seconds, monotonic, repeat};
use redlatch::{Client, HoldState, RedLock, ReentrantLock};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    holds(server, scale, report)?;
    waiters(server, scale, report)
}

fn names(number: usize) -> Vec<String> {
    (0..number).map(|number| format!("bench:many:{number}")).collect()
}

/// Under the default watchdog of 30 s.
fn holds(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    let (locks, mut probe) = (ReentrantLock::connect(&server.unix())?, connect(&server.unix())?);
    locks.lock("bench:many:warm").and_then(|()| locks.unlock("bench:many:warm"))?;
    let names = names(scale.holds);
    let (taken, used) = bytes(|| names.iter().try_for_each(|name| locks.lock(name)));
    taken?;
    let holds: Vec<_> = names.iter().filter_map(|name| locks.hold(name)).collect();
    let (start, cpu, before) = (Instant::now(), cpu_seconds(), command_stats(&mut probe, "evalsha")?);
    let mut suspects = 0;
    while start.elapsed() < scale.watch {
        std::thread::sleep(scale.watch.min(Duration::from_secs(1)));
        // In the processor's time too, so rarely.
        suspects += holds.iter().filter(|hold| hold.state() != HoldState::Held).count();
    }
    let share = 100.0 * (cpu_seconds() - cpu) / start.elapsed().as_secs_f64();
    let after = command_stats(&mut probe, "evalsha")?;
    let (calls, micros) = (after.calls - before.calls, after.micros - before.micros);
    let renewed = locks.client().stats().renewals as f64;
    names.iter().try_for_each(|name| locks.unlock(name))?;
    let (group, number) = ("many", scale.holds);
    report.row(group, format!("{number} holds: client"), "% of a core", vec![share], Target::AtMost(0.5));
    report.row(group, "  a hold".to_owned(), "bytes", vec![used as f64 / number as f64], Target::AtMost(1_024.0));
    report.row(group, "  Suspect or lost".to_owned(), "holds", vec![suspects as f64], Target::Exactly(0.0));
    report.row(group, "  locks in a renewal's command".to_owned(), "locks", vec![renewed / calls], Target::None);
    report.row(group, "  such a command, in the server".to_owned(), "µs", vec![micros / calls], Target::None);
    Ok(())
}

/// A thread with the stack that a program of many threads would give it.
fn spawn<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Outcome<JoinHandle<T>> {
    Ok(Builder::new().stack_size(128 * 1024).spawn(act)?)
}

/// As many waiting threads that do nothing, to know what a thread takes.
fn of_threads(number: usize) -> Outcome<isize> {
    let (release, released) = channel::<()>();
    let released = std::sync::Arc::new(parking_lot::Mutex::new(released));
    let start = || -> Outcome<Vec<_>> {
        (0..number)
            .map(|_| {
                let released = std::sync::Arc::clone(&released);
                spawn(move || {
                    let _ = released.lock().recv();
                })
            })
            .collect()
    };
    let (threads, used) = bytes(start);
    drop(release);
    threads?.into_iter().for_each(|thread| drop(thread.join()));
    Ok(used)
}

fn waiters(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    let url = server.unix();
    // No renewal among the commands that are counted.
    let ten_minutes = Duration::from_secs(600);
    let holder = ReentrantLock::new(&Client::builder(&url).watchdog_timeout(ten_minutes).build()?);
    let (locks, mut probe) = (ReentrantLock::connect(&url)?, connect(&url)?);
    let names = names(scale.waiters);
    names.iter().try_for_each(|name| holder.lock(name))?;
    let of_threads = of_threads(scale.waiters)?;
    let mut start = || -> Outcome<Vec<_>> {
        let wait = |name: &String| {
            let (locks, name) = (locks.clone(), name.clone());
            spawn(move || -> redlatch::Result<i64> {
                locks.lock(&name)?;
                let held = monotonic();
                locks.unlock(&name)?;
                Ok(held)
            })
        };
        let waiting = names.iter().map(wait).collect::<Outcome<Vec<_>>>()?;
        let patience = Instant::now() + Duration::from_secs(30);
        while subscribed(&mut probe)? < names.len() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(waiting)
    };
    let (waiting, used) = bytes(&mut start);
    let waiting = waiting?;
    let subscribers: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut probe)?;
    let others = idle_commands(&mut probe, scale)?;
    let mut woken = Samples::default();
    for (name, waiter) in names.iter().zip(waiting) {
        let freed = monotonic();
        holder.unlock(name)?;
        woken.push((waiter.join().map_err(|_| "a waiter panicked")?? - freed) as f64 / MILLI);
    }
    let (group, number) = ("many", scale.waiters);
    let each = (used - of_threads) as f64 / number as f64;
    let title = format!("{number} waiters: pub/sub connections");
    report.row(group, title, "", vec![subscribers.lines().count() as f64], Target::Exactly(1.0));
    report.row(group, "  idle, neither poll nor ping".to_owned(), "commands", vec![others], Target::Exactly(0.0));
    report.row(group, "  a waiter beside its thread".to_owned(), "bytes", vec![each], Target::AtMost(8_192.0));
    report.row(group, "  woken, p99".to_owned(), "ms", vec![woken.quantile(0.99)], Target::AtMost(1.0));
    report.row(group, "  woken, p50".to_owned(), "ms", vec![woken.p50()], Target::None);
    Ok(())
}

/// The members' channel of a lock is the last that a waiter listens to.
fn subscribed(probe: &mut redis::Connection) -> Outcome<usize> {
    let channels: Vec<String> =
        redis::cmd("PUBSUB").arg("CHANNELS").arg("redlatch_members:*bench:many:*").query(probe)?;
    Ok(channels.len())
}

/// Commands while all wait, but polls, which are scripts, and pings.
fn idle_commands(probe: &mut redis::Connection, scale: Scale) -> Outcome<f64> {
    // The last waiter may still be in its look after "subscribed".
    std::thread::sleep(Duration::from_millis(20));
    redis::cmd("CONFIG").arg("RESETSTAT").exec(probe)?;
    std::thread::sleep(scale.idle);
    let inside = [
        "evalsha", "ping", "hset", "hexists", "exists", "pttl", "pexpire", "time", "hlen", "hkeys", "get", "zrank",
        "zadd", "zrange",
    ];
    let counts = crate::support::command_counts(probe)?.into_iter();
    let others: Vec<_> = counts.filter(|(name, _)| !inside.contains(&name.as_str())).collect();
    if !others.is_empty() {
        println!("while all wait: {others:?}");
    }
    // A sum of nothing is a negative zero.
    Ok(others.iter().map(|(_, calls)| calls).sum::<f64>().abs())
}

/// From nothing to the first lock held, beside a connection and one command by redis-rs.
pub(crate) fn first_lock(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    for (socket, url) in [("Unix socket", server.unix()), ("TCP", server.tcp())] {
        let mut ratios = Vec::new();
        for _ in 0..scale.rounds {
            let least = repeat(scale.clients, &mut || {
                let mut connection = redis::Client::open(&*url)?.get_connection()?;
                Ok(redis::cmd("PING").exec(&mut connection)?)
            })?;
            let mut ours = Samples::default();
            for number in 0..scale.clients {
                let start = Instant::now();
                let locks = ReentrantLock::connect(&url)?;
                locks.lock(&format!("bench:first:{number}"))?;
                ours.push(start.elapsed().as_nanos() as f64);
            }
            ratios.push(ours.p50() / least.p50());
        }
        let title = format!("new client to first lock, {socket}");
        report.row("first lock", title, "x connect + command", ratios, Target::AtMost(3.0));
    }
    Ok(())
}
