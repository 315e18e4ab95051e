//! What a group of three on one server costs: `cargo bench --bench multi`.
//!
//! Ours is `lock` + `unlock` of a `MultiLock` of three members of one client. Beside it: the same of one lock, of three
//! locks one after another, and the two scripts of a group by EVALSHA on a private connection. The contenders take
//! turns in short rounds and are compared round by round, because on a shared machine the minute counts for more than
//! the program; hence a plain `main`. With client and server on one core ratios repeat best.
//!
//! It brings its own `redis-server`. Without `--bench` (as `cargo test --benches` does) or with `--test`, it only
//! shows that it works.

#[allow(dead_code, reason = "each bench uses a part")]
mod support;

use harness::lua;
use redis::Connection;
use redlatch::{MultiLock, RedLock, RedisRedLock};
use support::contest::{self, Contender, Scale, show_head};
use support::{Outcome, Samples, Server, connect};

const FULL: Scale = Scale { rounds: 30, pairs: 300 };
fn main() -> Outcome<()> {
    contest::main(FULL, Server::start, |server, scale| run(&server, scale))
}

fn run(server: &Server, scale: Scale) -> Outcome<()> {
    show_head(scale);
    for (name, url) in [("Unix socket", server.unix()), ("TCP loopback", server.tcp())] {
        println!("{name}, one core");
        server.on_one_core(|| compare(&url, scale))?;
        println!("{name}, any core");
        compare(&url, scale)?;
    }
    Ok(())
}

/// Names of one length.
const NAMES: [&str; 3] = ["bench:multi:a", "bench:multi:b", "bench:multi:c"];
const FLOOR: [&str; 3] = ["bench:multi:x", "bench:multi:y", "bench:multi:z"];

fn compare(url: &str, scale: Scale) -> Outcome<()> {
    let (locks, mut floor) = (RedisRedLock::connect(url)?, Floor::new(url)?);
    let group: MultiLock<'_> = NAMES.into_iter().map(|name| (&locks, name)).collect();
    let pair = |name| locks.lock(name).and_then(|()| locks.unlock(name));
    let three = || {
        NAMES.iter().try_for_each(|name| locks.lock(name))?;
        NAMES.iter().rev().try_for_each(|name| locks.unlock(name))
    };
    let contenders: Vec<Contender<'_>> = vec![
        ("MultiLock of 3", Box::new(|| Ok(group.lock().and_then(|()| group.unlock())?)), Samples::default()),
        ("one lock", Box::new(|| Ok(pair(NAMES[0])?)), Samples::default()),
        ("3 locks, one after another", Box::new(|| Ok(three()?)), Samples::default()),
        ("floor: the two scripts of a group", Box::new(|| floor.pair()), Samples::default()),
    ];
    contest::compare(scale, contenders)
}

/// The two scripts of a group and nothing else.
struct Floor {
    connection: Connection,
    acquire: String,
    release: String,
    deadline: u64,
}

impl Floor {
    const OWNER: &str = "01234567-89ab-cdef-0123-456789abcdef:1:12345";

    fn new(url: &str) -> Outcome<Self> {
        let mut connection = connect(url)?;
        let mut load = |text: &str| redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection);
        let acquire = load(&lua::script("acquire_group"))?;
        let release = load(&lua::script("release_group"))?;
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection)?;
        Ok(Self { connection, acquire, release, deadline: (seconds + 3_600) * 1_000_000 })
    }

    fn pair(&mut self) -> Outcome<()> {
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&self.acquire).arg(FLOOR.len()).arg(&FLOOR).arg(self.deadline).arg(30_000).arg(&[Self::OWNER; 3]);
        let taken: i64 = acquire.query(&mut self.connection)?;
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.release).arg(FLOOR.len()).arg(&FLOOR);
        for name in FLOOR {
            release.arg(Self::OWNER).arg(format!("redisson_lock__channel:{{{name}}}"));
        }
        let released: Vec<i64> = release.query(&mut self.connection)?;
        if taken == self.deadline.cast_signed() && released == [1; 3] {
            Ok(())
        } else {
            Err("the floor's group was not free".into())
        }
    }
}
