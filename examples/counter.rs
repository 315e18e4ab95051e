//! Many threads of many processes count in one file: read, add one, write, under the lock. None may be lost.
//!
//! Run it with `cargo run --release --example counter [processes [threads [increments]]]`, by default 4
//! processes with 4 threads of 100 increments each. It fails if one is lost. The server is the one at
//! `REDLATCH_URL`, by default `redis://127.0.0.1/`.

use redlatch::{RedLockExt, RedisRedLock};
use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;
use std::{env, fs, io, process, thread};

const RESOURCE: &str = "example:counter";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [form, file, numbers @ ..] = args.as_slice()
        && form == "work"
    {
        return work(Path::new(file), number(numbers, 0, 4)?, number(numbers, 1, 100)?);
    }
    let (processes, threads, increments) = (number(&args, 0, 4)?, number(&args, 1, 4)?, number(&args, 2, 100)?);
    let folder = env::temp_dir().join(format!("redlatch-counter-{}", process::id()));
    fs::create_dir(&folder)?;
    let start = Instant::now();
    let total = count(&folder.join("counter"), processes, threads, increments);
    fs::remove_dir_all(&folder)?;

    let (total, expected) = (total?, processes * threads * increments);
    println!("{processes} processes x {threads} threads x {increments} increments");
    println!("the file says {total} of {expected} after {:?}", start.elapsed());
    if total == expected { Ok(()) } else { Err(format!("{} were lost", expected.abs_diff(total)).into()) }
}

/// The number at this place of the command line, or the default.
fn number(args: &[String], place: usize, default: u64) -> Result<u64, Box<dyn Error>> {
    let parse = |arg: &String| arg.parse().map_err(|_| format!("`{arg}` is not a number").into());
    args.get(place).map_or(Ok(default), parse)
}

/// Runs the processes; what the file says in the end.
fn count(file: &Path, processes: u64, threads: u64, increments: u64) -> Result<u64, Box<dyn Error>> {
    fs::write(file, "0")?;
    let program = env::current_exe()?;
    let numbers = [threads.to_string(), increments.to_string()];
    let start = |_| Command::new(&program).arg("work").arg(file).args(&numbers).spawn();
    let children: Vec<io::Result<Child>> = (0..processes).map(start).collect();
    let ended: Vec<_> = children.into_iter().map(|child| child?.wait()).collect();
    for status in ended {
        let status = status?;
        if !status.success() {
            return Err(format!("one of the processes failed: {status}").into());
        }
    }
    Ok(fs::read_to_string(file)?.parse()?)
}

/// One of the processes: `counter work FILE threads increments`.
fn work(file: &Path, threads: u64, increments: u64) -> Result<(), Box<dyn Error>> {
    let url = env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = RedisRedLock::connect(&url)?;
    let increment_all = || -> Result<(), String> {
        for _ in 0..increments {
            let done = locks.execute_in_lock(RESOURCE, || increment(file)).map_err(|error| error.to_string())?;
            done.map_err(|error| format!("the file: {error}"))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(increment_all)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    Ok(())
}

fn increment(file: &Path) -> io::Result<()> {
    let number: u64 = fs::read_to_string(file)?.parse().map_err(io::Error::other)?;
    fs::write(file, (number + 1).to_string())
}
