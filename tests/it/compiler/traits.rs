//! Which auto traits each public type has. What a type lacks is tested by what the compiler says to its use.

use redlatch::*;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

fn shared<T: Send + Sync>() {}
fn unwinds<T: UnwindSafe + RefUnwindSafe + Unpin>() {}

fn both<T: Send + Sync + UnwindSafe + RefUnwindSafe + Unpin>() {
    shared::<T>();
    unwinds::<T>();
}

/// It does not compile if a type loses one.
#[test]
fn public_types_keep_their_auto_traits() {
    both::<Client>();
    both::<ClientBuilder>();
    both::<ClientBuilder<QuorumLock>>();
    both::<ReentrantLock>();
    both::<FairLock>();
    both::<FencedLock>();
    both::<ReadWriteLock>();
    both::<ReadLock>();
    both::<WriteLock>();
    both::<QuorumLock>();
    both::<LocalRedLock>();
    both::<LocalReadWriteLock>();
    both::<MultiLock<'static>>();
    both::<Semaphore>();
    both::<LeasedSemaphore>();
    both::<CountDownLatch>();
    both::<Hold>();
    both::<(Command, Value)>();
    both::<GroupHold>();
    both::<CancelToken>();
    both::<Terms<'static>>();
    both::<Request<'static, 'static, ReentrantLock>>();
    both::<GroupRequest<'static, 'static>>();
    both::<(Error, Cause, Applied, Stats, LostHold, LossCause, HoldState, HandOff, Naming, Reentry)>();
    shared::<Arc<dyn RedLock>>();
    shared::<Permits>();
}

/// Two traits with one method: naming it is only unambiguous for a type that is not `Send`.
trait Stays<A> {
    fn stays() {}
}

impl<T: ?Sized> Stays<()> for T {}
impl<T: ?Sized + Send> Stays<u8> for T {}

fn looked_at<T: Sync>() {}

#[test]
fn guards_are_looked_at_by_others_and_never_sent() {
    unwinds::<(LockGuard<'static, ReentrantLock>, OwnedGuard<ReentrantLock>, GroupGuard<'static>)>();
    looked_at::<(LockGuard<'static, ReentrantLock>, OwnedGuard<ReentrantLock>, GroupGuard<'static>)>();
    looked_at::<(LockGuard<'static, dyn RedLock>, OwnedGuard<Arc<dyn RedLock>>)>();
    <LockGuard<'static, dyn RedLock> as Stays<_>>::stays();
    <OwnedGuard<Arc<dyn RedLock>> as Stays<_>>::stays();
    <GroupGuard<'static> as Stays<_>>::stays();
}
