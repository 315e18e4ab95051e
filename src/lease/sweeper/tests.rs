//! What is swept, when, and how often.

use super::*;
use crate::base::key::{Key, Naming};
use crate::base::owner::OwnerId;
use crate::base::time::Lease;
use crate::lease::tenure::LossCause;
use crossbeam_channel::{Receiver, Sender, unbounded};

/// Tells of each sweep, and fails it if it should.
struct Told {
    sender: Sender<u64>,
    fails: bool,
}

impl Told {
    fn new(fails: bool) -> (Arc<Self>, Receiver<u64>) {
        let (sender, told) = unbounded();
        (Arc::new(Self { sender, fails }), told)
    }
}

impl Keeper for Told {
    fn renew(&self, _: &[Arc<Tenure>]) {}

    fn verify(&self, _: &[Arc<Tenure>]) {}

    fn sweep(&self, tenure: &Arc<Tenure>) -> Result<()> {
        let _ = self.sender.send(tenure.serial());
        if self.fails { Err(Error::closed("n")) } else { Ok(()) }
    }

    fn lost(&self, _: &Arc<Tenure>, _: LossCause) {}

    fn extend(&self, _: &Arc<Tenure>, _: Lease) -> Result<()> {
        Ok(())
    }
}

/// A tenure that is over, whose key may live for longer than a test takes, however busy the machine is.
fn ended() -> Arc<Tenure> {
    let tenure = Tenure::new(Key::new(Naming::Redisson, "", "n"), OwnerId::default(), Clock::Boot);
    tenure.leave_open(tenure.now(), Lease::new(Duration::from_secs(60)).unwrap());
    tenure.end();
    Arc::new(tenure)
}

const LONG: Duration = Duration::from_secs(20);

fn is_soon(condition: impl Fn() -> bool) -> bool {
    let start = std::time::Instant::now();
    while !condition() && start.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(1));
    }
    condition()
}

#[test]
fn a_failed_sweep_is_tried_again_while_the_key_may_live() {
    let (sweeper, tenure, (keeper, told)) = (Sweeper::new(Clock::Boot), ended(), Told::new(true));
    sweeper.sweep(&tenure, keeper, tenure.now());
    assert_eq!([told.recv_timeout(LONG), told.recv_timeout(LONG)], [Ok(tenure.serial()); 2]);
}

#[test]
fn a_sweep_does_not_come_before_it_is_due() {
    let (sweeper, tenure, (keeper, told)) = (Sweeper::new(Clock::Boot), ended(), Told::new(false));
    let due = tenure.now().plus(Duration::from_millis(100));
    sweeper.sweep(&tenure, keeper, due);
    assert_eq!(told.recv_timeout(LONG), Ok(tenure.serial()));
    assert!(tenure.now() >= due);
}

#[test]
fn closing_does_what_is_due_once_and_ends_the_thread() {
    let (sweeper, (keeper, told)) = (Sweeper::new(Clock::Boot), Told::new(true));
    let (first, late) = (ended(), ended());
    sweeper.sweep(&first, Arc::<Told>::clone(&keeper), first.now().plus(Duration::from_secs(1)));
    sweeper.close(Duration::ZERO, Duration::ZERO);
    assert_eq!(told.recv_timeout(LONG), Ok(first.serial()));
    sweeper.sweep(&late, keeper, late.now());
    assert_eq!(told.recv_timeout(LONG), Ok(late.serial()));
    let timer = Arc::downgrade(&sweeper.timer);
    drop(sweeper);
    assert!(told.recv_timeout(LONG).is_err(), "once, and then its keeper is gone");
    // The keeper goes with its job, while the thread that did it is still on its way out.
    assert!(is_soon(|| timer.upgrade().is_none()), "and the thread too");
}
