//! What only a cluster has: locks at several masters, a master that gives way, and names that Redisson cannot unlock there.

use crate::cluster::How;
use crate::java::Span;
use crate::setting::{FOR_EVER, Family, Holder, SentHome, Setting, asleep};
use crate::sides::Side;
use crate::threads::{LONG, eventually, finish, ms};
use std::thread::ScopedJoinHandle;

in_a_cluster!(waiters_at_every_master_are_woken, waiters_are_woken_after_a_failover_by_hand);

/// At all of them at once, and each by its own lock alone.
fn waiters_at_every_master_are_woken(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    let cluster = setting.servers.cluster.as_deref().unwrap();
    let names: Vec<_> = cluster.masters().into_iter().map(|master| cluster.name_at(master, 0)).collect();
    let (holder, _) = setting.sides();
    for name in &names {
        holder.lock(name);
    }
    let woken = std::thread::scope(|scope| {
        let _home = SentHome(&setting.locks);
        let mut waiting = Vec::new();
        for name in &names {
            let before = setting.servers.scripts_run();
            waiting.push(scope.spawn(|| lock_and_unlock(&*setting.sides_on(name).1, name)));
            asleep(&setting.servers, &family.channel(name), before);
        }
        let free = |(name, waiter): (&String, ScopedJoinHandle<'_, Span>)| {
            std::thread::sleep(ms(20));
            assert!(!waiter.is_finished(), "{name}: it did not wait");
            let freed = holder.unlock(name);
            finish(waiter).after(freed)
        };
        names.iter().zip(waiting).map(free).collect::<Vec<_>>()
    });
    assert!(woken.iter().all(|woken| *woken < LONG), "not woken: {woken:?}");
    setting.record("woken at every master", &format!("{} masters, after {woken:.1?}", names.len()));
}

/// Both hold and wait while the lock's master gives way to its replica.
fn waiters_are_woken_after_a_failover_by_hand(family: Family, holder: Holder) {
    let mut setting = Setting::alone(family, holder);
    let cluster = setting.servers.cluster.as_deref().unwrap();
    let (name, next) = (cluster.name_at(0, 0), cluster.replicas_of(0)[0]);
    let channel = family.channel(&name);
    // Ours needs any node at all for channels of all nodes.
    let stays = family == Family::PLAIN && holder == Holder::Java;
    let (holder, waiter) = setting.sides();
    holder.lock(&name);
    holder.lock(&name);
    let act = || {
        cluster.fail_over(next, How::Orderly);
        cluster.settled();
        // Redisson takes up to a scan of the cluster for this, and misses what it is told before.
        eventually(LONG, "it listens there", || stays || setting.servers.subscribers_at(next, &channel) == 1);
        assert_eq!(setting.servers.owner(&name).1, 2);
        holder.unlock(&name);
        holder.unlock(&name)
    };
    let (waited, freed) = setting.while_asleep(&name, || lock_and_unlock(&*waiter, &name), act);
    let woken = waited.after(freed);
    assert!(woken < LONG, "not woken: it came in after {woken:?}");
    setting.record("woken after a failover by hand", &format!("held twice over it; after {woken:.1?}"));
    drop((holder, waiter));
    setting.jvm.end_after_failover();
}

fn lock_and_unlock(side: &dyn Side, name: &str) -> Span {
    let span = side.lock(name);
    side.unlock(name);
    span
}

/// Their channel lies in another slot, and Redisson names both in one command. Here they work.
#[test]
fn redisson_in_a_cluster_cannot_unlock_what_has_braces_but_no_tag() {
    for family in [Family::SHARDED, Family::PLAIN] {
        let setting = Setting::new(family, Holder::Rust, FOR_EVER);
        for name in ["a{b", "a}b", "{}"] {
            let (ours, theirs) = setting.sides();
            ours.lock(name);
            assert!(!theirs.try_lock(name, ms(0)).0);
            ours.unlock(name);
            theirs.lock(name);
            let told = setting.jvm.ask("main", &["unlock", name]).0.unwrap_err();
            assert!(told.contains("CROSSSLOT"), "{told}");
            assert!(setting.locks.force_unlock(name).unwrap());
        }
        setting.record("braces without a tag", "Redisson's unlock says CROSSSLOT, and frees nothing");
    }
}
