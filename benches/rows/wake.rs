//! A waiter that sleeps in another process: from the start of an unlock here until it knows that it holds.
//!
//! Its floor is a waiter written by hand. A round trip is a PING of the same run after a sleep, as a wake-up is.
//! Lease and poll cap are a minute, so only the message can have woken the waiter.

use crate::Scale;
use crate::report::{Report, Target};
use crate::support::floor::{Floor, Name};
use crate::support::{Outcome, Samples, Server, WAITER, WAITER_BY_HAND, Waiter, connect, monotonic, ping};
use redis::Connection;
use redlatch::{Client, RedLock, RedisRedLock};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// From "subscribed" to "surely asleep": the waiter still looks at the lock once in between.
const FALL_ASLEEP: Duration = Duration::from_millis(3);

/// Locks whose waiters can only be woken by a message.
fn sleepers(url: &str) -> Outcome<RedisRedLock> {
    let minute = Duration::from_secs(60);
    Ok(RedisRedLock::new(&Client::builder(url).watchdog_timeout(minute).poll_cap(minute).build()?))
}

/// The other process: takes each lock named on its input, and says when it had it.
pub(crate) fn wait_for_each(url: &str) -> Outcome<()> {
    let locks = sleepers(url)?;
    for name in std::io::stdin().lines() {
        let name = name?;
        locks.lock(&name)?;
        let held = monotonic();
        locks.unlock(&name)?;
        println!("{held}");
    }
    Ok(())
}

/// The same with the least that can do it: a thread that listens, one that takes the lock when it is told.
pub(crate) fn wait_by_hand(url: &str) -> Outcome<()> {
    let (mut floor, mut listener) = (Floor::new(url)?, connect(url)?);
    listener.set_read_timeout(None)?;
    let (wanted, channels) = channel::<String>();
    let (told, news) = channel();
    std::thread::spawn(move || -> Outcome<()> {
        let mut messages = listener.as_pubsub();
        for channel in channels {
            messages.subscribe(&channel)?;
            // Its own release of the lock before this one is heard too.
            while messages.get_message()?.get_channel_name() != channel {}
            told.send(())?;
        }
        Ok(())
    });
    for name in std::io::stdin().lines() {
        let name = Name::new(&name?);
        wanted.send(name.channel.clone())?;
        news.recv()?;
        floor.take(&name)?;
        let held = monotonic();
        floor.free(&name)?;
        println!("{held}");
    }
    Ok(())
}

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    for (socket, url) in [("Unix socket", server.unix()), ("TCP", server.tcp())] {
        wake_up(socket, &url, scale, report)?;
    }
    Ok(())
}

fn wake_up(socket: &str, url: &str, scale: Scale, report: &mut Report) -> Outcome<()> {
    let (locks, mut probe) = (sleepers(url)?, connect(url)?);
    let (mut by_hand, mut ours) = (Waiter::start(WAITER_BY_HAND, url)?, Waiter::start(WAITER, url)?);
    let (mut rested, mut floor, mut wakes) = (Samples::default(), Samples::default(), Samples::default());
    for number in 0..scale.wakes {
        std::thread::sleep(FALL_ASLEEP);
        rested.time(|| ping(&mut probe))?;
        // New names each time: a channel stays subscribed for a while, and then says nothing of the waiter.
        wake(&locks, &mut by_hand, &mut probe, &Name::new(&format!("bench:hand:{socket}:{number}")), &mut floor)?;
        wake(&locks, &mut ours, &mut probe, &Name::new(&format!("bench:wake:{socket}:{number}")), &mut wakes)?;
    }
    let [by_hand, trips] = [&floor, &rested].map(|unit| vec![wakes.p50() / unit.p50()]);
    report.row("wake-up", format!("wake-up, p50, {socket}"), "x one by hand", by_hand, Target::None);
    report.row("wake-up", format!("  ours, {socket}"), "rested round trips", trips, Target::None);
    Ok(())
}

/// From the start of an unlock here until the waiter has the lock.
fn wake(
    locks: &RedisRedLock,
    waiter: &mut Waiter,
    probe: &mut Connection,
    name: &Name,
    times: &mut Samples,
) -> Outcome<()> {
    locks.lock(&name.key)?;
    waiter.ask(&name.key)?;
    await_subscriber(probe, &name.channel)?;
    std::thread::sleep(FALL_ASLEEP);
    let start = monotonic();
    locks.unlock(&name.key)?;
    times.push((waiter.answer()? - start) as f64);
    Ok(())
}

fn await_subscriber(probe: &mut Connection, channel: &str) -> Outcome<()> {
    let patience = Instant::now() + Duration::from_secs(5);
    while Instant::now() < patience {
        let (_, subscribers): (String, usize) = redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query(probe)?;
        if subscribers == 1 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Err("the waiter did not subscribe".into())
}
