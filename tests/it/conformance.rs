//! What every kind of lock does alike, wherever its locks live: cases times kinds times deployments.
//!
//! The table is `conformance!` below. A new kind is one line of it, a new deployment another, and a fixture in
//! `tests/harness/deployment.rs`; a new case is a function in `conformance/*.rs` and its name in `conformance/cases.rs`.
//! Each kind goes through all cases on the first deployment, and the first kind does so on each deployment; other pairs
//! go through eight on the wire.

#[macro_use]
mod cases;
mod closures;
mod deployments;
mod holding;
mod levels;
mod losses;
mod sides;
mod waits;

use crate::harness::deployment::{Clustered, Deployment, Replicas, Sealed, Sentinel, Single, Tcp};
use redlatch::{
    ClientBuilder, FairLock, FencedLock, HandOff, LocalReadWriteLock, LocalRedLock, OwnedGuard, QuorumLock, ReadLock,
    ReadWriteLock, RedLock, RedLockExt, ReentrantLock, WriteLock,
};
use sides::LocalReads;
use std::any::Any;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A kind of lock at a place, and how to make a lock of it.
trait Kind {
    type Lock: RedLock;
    fn start() -> Fixture<Self::Lock>;
}

/// A lock and what it needs; it derefs to the lock.
struct Fixture<L> {
    lock: Arc<L>,
    /// Dropped after the lock, and then each server checks that nothing is left on it.
    below: Box<dyn Any + Send + Sync>,
}

impl<L> Deref for Fixture<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lock
    }
}

impl<L> Fixture<L> {
    fn new(lock: L, below: impl Any + Send + Sync) -> Self {
        Self { lock: Arc::new(lock), below: Box::new(below) }
    }

    /// A lock on a deployment of its own.
    fn on<D: Deployment>(make: impl FnOnce(ClientBuilder) -> L) -> Self {
        let deployment = D::start();
        Self::new(make(deployment.builder()), deployment)
    }

    /// The same lock as another type.
    fn map<T>(self, as_other: impl FnOnce(L) -> T) -> Fixture<T> {
        let lock = Arc::into_inner(self.lock).expect("nobody has it yet");
        Fixture { lock: Arc::new(as_other(lock)), below: self.below }
    }
}

/// A lock on three servers.
fn on_servers() -> Fixture<QuorumLock> {
    let servers = crate::harness::quorum::start(3);
    Fixture::new(crate::harness::quorum::connect(&servers), servers)
}

fn in_memory() -> Fixture<LocalRedLock> {
    Fixture::new(LocalRedLock::new(), ())
}

fn both_sides(builder: ClientBuilder) -> ReadWriteLock {
    ReadWriteLock::new(&builder.build().unwrap())
}

fn reentrant(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

/// Makes all combinations: see above. Its parts pass the table on to each other, and to the lists of the cases.
macro_rules! conformance {
    (
        kinds $kinds:tt
        shared $shared:tt
        deployments { $first:ident: $First:ty; $($other:ident: $Other:ty;)* }
        at_places_of_their_own { $($own:ident: $Own:ty = $start_own:expr;)* }
        shared_at_places_of_their_own { $($place:ident: $Shares:ty = $start_shared:expr;)* }
        pointers { $($pointer:ident: $Pointer:ty = $start_pointer:expr;)* }
    ) => {
        conformance! { @on $first $First, all, all_of_shared, $shared, $kinds }
        $(conformance! { @on $other $Other, on_the_wire, shared_on_the_wire, $shared, $kinds })*
        $(conformance! { @kind $own $Own = $start_own; all })*
        $(conformance! { @kind $place $Shares = $start_shared; all_of_shared })*
        $(conformance! { @kind $pointer $Pointer = $start_pointer; a_handful })*
        const DEPLOYMENTS: &[&str] = &[stringify!($first), $(stringify!($other)),*];
        const ON_THEIR_OWN: &[&str] = &[$(stringify!($own)),*];
        const SHARED_ON_THEIR_OWN: &[&str] = &[$(stringify!($place)),*];
        const POINTERS: &[&str] = &[$(stringify!($pointer)),*];
        /// The types of the kinds, as they are written below.
        const TYPES: &[&[&str]] = &[conformance!(@types $kinds), conformance!(@types_of_shared $shared), &[$(stringify!($Own)),*]];
        const KINDS: &[&str] = conformance!(@names $kinds);
    };
    (@on $at:ident $At:ty, $cases:ident, $of_shared:ident, { $shared:ident: $Shared:ty = $make_shared:expr; }, {
        $first:ident: $First:ty = $make_first:expr; $($kind:ident: $lock:ty = $make:expr;)*
    }) => {
        mod $at {
            use super::*;
            type At = $At;
            conformance! { @kind $first $First = Fixture::on::<At>($make_first); all }
            $(conformance! { @kind $kind $lock = Fixture::on::<At>($make); $cases })*
            conformance! { @kind $shared $Shared = Fixture::on::<At>($make_shared); $of_shared }
            conformance! { @tests At, {
                deployments:
                    what_is_left_is_seen
                    commands_run_while_it_is_held
                    a_lock_waits_for_it_to_come_back;
            } }
        }
    };
    (@kind $kind:ident $lock:ty = $start:expr; $cases:ident) => {
        mod $kind {
            use super::*;

            struct This;

            impl Kind for This {
                type Lock = $lock;

                fn start() -> Fixture<Self::Lock> {
                    $start
                }
            }

            $cases! { conformance @tests This, }
        }
    };
    (@tests $this:ty, {$($file:ident: $($case:ident)*;)*}) => {
        $($(#[test]
        fn $case() {
            $file::$case::<$this>();
        })*)*
    };
    (@types {$($kind:ident: $lock:ty = $make:expr;)*}) => { &[$(stringify!($lock)),*] };
    (@types_of_shared {$shared:ident: $Shared:ty = $make:expr;}) => { &[stringify!($Shared)] };
    (@names {$($kind:ident: $lock:ty = $make:expr;)*}) => { &[$(stringify!($kind)),*] };
}

conformance! {
    kinds {
        reentrant: ReentrantLock = reentrant;
        never_passed_on: ReentrantLock = |builder| reentrant(builder.hand_off(HandOff::off()));
        fenced: FencedLock = |builder| FencedLock::new(&builder.build().unwrap());
        fair: FairLock = |builder| FairLock::new(&builder.build().unwrap());
        write: WriteLock = |builder| both_sides(builder).write().clone();
        passed_on_in_order: ReentrantLock = |builder| reentrant(builder.hand_off(HandOff::default().in_order()));
    }
    shared {
        read: ReadLock = |builder| both_sides(builder).read().clone();
    }
    deployments {
        single: Single;
        tcp: Tcp;
        tls: Sealed;
        sentinel: Sentinel;
        replicas: Replicas;
        cluster: Clustered;
        sentinel_by_tls: Sentinel<true>;
        replicas_by_tls: Replicas<true>;
        cluster_by_tls: Clustered<true>;
    }
    at_places_of_their_own {
        quorum: QuorumLock = on_servers();
        local: LocalRedLock = in_memory();
        local_write: LocalRedLock = Fixture::new(LocalReadWriteLock::new().write().clone(), ());
    }
    shared_at_places_of_their_own {
        local_read: LocalReads = Fixture::new(LocalReads::default(), ());
    }
    pointers {
        arc_dyn: Arc<dyn RedLock> = Fixture::on::<Single>(reentrant).map(|lock| Arc::new(lock) as Arc<dyn RedLock>);
        box_dyn: Box<dyn RedLock> = in_memory().map(|lock| Box::new(lock) as Box<dyn RedLock>);
    }
}

/// Checks that a guard which owns a clone of the locks outlives them, and releases its lock.
fn assert_owned<L: RedLock + Clone>(Fixture { lock, below: _below }: Fixture<L>) {
    let locks = Arc::into_inner(lock).unwrap();
    let guard: OwnedGuard<L> = locks.owned_guard("n").unwrap();
    let shared: Arc<dyn RedLock + '_> = Arc::new(&locks);
    let other: OwnedGuard<Arc<dyn RedLock + '_>> = shared.owned_guard("m").unwrap();
    other.unlock().unwrap();
    let inner = locks.request("n").wait(Duration::ZERO).owned_guard().unwrap().unwrap();
    drop(shared);
    drop(locks);
    assert_eq!((guard.is_valid(), guard.count()), (true, 2));
    inner.unlock().unwrap();
    guard.unlock().unwrap();
}

/// The kinds themselves are cheap clones, so no `Arc` is needed.
#[test]
fn an_owned_guard_keeps_its_locks_alive_without_an_arc() {
    assert_owned(Fixture::on::<Single>(reentrant));
    assert_owned(on_servers());
    assert_owned(in_memory());
}

/// The names of the cases that a file has.
fn cases_of(source: &str) -> Vec<&str> {
    let functions = source.lines().filter_map(|line| line.strip_prefix("pub(super) fn "));
    functions.filter_map(|line| line.split_once("<K: Kind>").map(|(name, _)| name)).collect()
}

/// The names of a list of cases.
macro_rules! names {
    ({$($file:ident: $($case:ident)*;)*}) => { [$($(stringify!($case)),*),*] };
}

/// The tests that the table has to give: those of each kind at each place, and those of a deployment alone.
fn expected() -> Vec<String> {
    let (all, wire, handful) = (all!(names), on_the_wire!(names), a_handful!(names));
    let (shared, shared_wire) = (all_of_shared!(names), shared_on_the_wire!(names));
    let mut tests = Vec::new();
    let mut expect = |path: String, cases: &[&str]| tests.extend(cases.iter().map(|case| format!("{path}::{case}")));
    for (number, at) in DEPLOYMENTS.iter().enumerate() {
        for (kind_number, kind) in KINDS.iter().enumerate() {
            expect(format!("{at}::{kind}"), if number == 0 || kind_number == 0 { &all } else { &wire });
        }
        expect(format!("{at}::read"), if number == 0 { &shared } else { &shared_wire });
        expect(
            (*at).to_owned(),
            &["what_is_left_is_seen", "commands_run_while_it_is_held", "a_lock_waits_for_it_to_come_back"],
        );
    }
    ON_THEIR_OWN.iter().for_each(|kind| expect((*kind).to_owned(), &all));
    SHARED_ON_THEIR_OWN.iter().for_each(|kind| expect((*kind).to_owned(), &shared));
    POINTERS.iter().for_each(|pointer| expect((*pointer).to_owned(), &handful));
    tests
}

#[test]
fn no_combination_of_case_kind_and_deployment_is_missing() {
    let listed = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let expected = expected();
    assert!(expected.len() > 300, "the table is empty");
    for test in expected {
        let test = format!("conformance::{test}: test");
        assert!(listed.lines().any(|line| line == test), "{test} is missing");
    }
}

#[test]
fn no_case_is_missing_in_the_list() {
    let sources = [
        include_str!("conformance/closures.rs"),
        include_str!("conformance/holding.rs"),
        include_str!("conformance/levels.rs"),
        include_str!("conformance/losses.rs"),
        include_str!("conformance/waits.rs"),
    ];
    let mut cases: Vec<_> = sources.iter().flat_map(|source| cases_of(source)).collect();
    let mut listed = all!(names);
    assert!(on_the_wire!(names).iter().all(|case| listed.contains(case)) && on_the_wire!(names).len() == 8);
    cases.sort_unstable();
    listed.sort_unstable();
    assert_eq!(cases, listed);
}

#[test]
fn no_kind_of_the_library_is_missing() {
    let files = std::fs::read_dir(Path::new(harness::ROOT).join("src/lock/kinds")).unwrap();
    let files = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let sources = files.map(|path| std::fs::read_to_string(path).unwrap());
    let kinds: Vec<_> = sources.flat_map(|source| kinds_in(&source)).collect();
    assert!(kinds.len() >= 3, "the kinds were not found: {kinds:?}");
    assert!(kinds.iter().all(|kind| TYPES.concat().contains(&kind.as_str())), "{kinds:?} are not all in {TYPES:?}");
}

fn kinds_in(source: &str) -> Vec<String> {
    let impls = source.lines().filter_map(|line| line.strip_prefix("impl RedLock for "));
    impls.map(|rest| rest.trim_end_matches(" {").to_owned()).collect()
}
