//! Row 160: a program that has closed its standard input, output and error output.

#![expect(unsafe_code, reason = "descriptors are closed by their numbers")]

use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, finish, spawn_asleep};
use harness::papers::{Flaw, papers, trusting};
use redlatch::{Client, RedLock};

/// Runs `act` while the numbers 0 to 2 are free, and gives them back.
fn with_none<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: they are copied before they are closed, and nothing else of this process uses them meanwhile.
    let kept = [0, 1, 2].map(|number| unsafe { (number, libc::dup(number)) });
    kept.iter().for_each(|(number, _)| assert_eq!(unsafe { libc::close(*number) }, 0));
    let done = act();
    for (number, copy) in kept {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::dup2(copy, number) }, number);
    }
    done
}

/// What has one of these numbers now.
fn standard() -> Vec<String> {
    let at = |number: &i32| std::fs::read_link(format!("/proc/self/fd/{number}")).ok();
    [0, 1, 2].iter().filter_map(at).map(|path| path.display().to_string()).collect()
}

/// No socket gets such a number, and what is printed reaches no server. Each connection that a client makes: for calls, renewals, messages.
#[test]
fn fault_160_nothing_of_a_client_is_a_standard_descriptor() {
    alone(|| {
        let (plain, sealed) = (Server::start_on_tcp(), Server::start_with_tls(&papers(Flaw::None), false));
        for (url, is_sealed) in [(plain.url(), false), (plain.tcp_url(), false), (sealed.tls_url(), true)] {
            let (taken, told) = with_none(|| {
                let [locks, other] = [(); 2].map(|()| {
                    let builder = Client::builder(&url);
                    crate::locks_of(if is_sealed { builder.tls(trusting()) } else { builder })
                });
                let mut told = vec![locks.lock("n").map(|()| true)];
                let mut taken = Vec::new();
                std::thread::scope(|scope| {
                    let waits = spawn_asleep(scope, || {
                        other.try_lock_for("n", LONG).and_then(|locked| other.unlock("n").map(|()| locked))
                    });
                    taken.extend(standard());
                    for _ in 0..10 {
                        println!("+OK of a program");
                        eprintln!("$-1 of a program");
                        told.extend([locks.try_lock("n"), locks.is_locked("n")]);
                        told.push(locks.unlock("n").map(|()| true));
                    }
                    told.push(locks.unlock("n").map(|()| true));
                    let (waited, _) = finish(waits);
                    told.push(waited);
                });
                taken.extend(standard());
                drop((locks, other));
                (taken, told)
            });
            assert_eq!(taken, [""; 0]);
            assert!(told.iter().all(|told| matches!(told, Ok(true))), "{told:?}");
        }
    });
}
