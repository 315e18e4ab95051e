//! Any name of 1 to 1,024 bytes, behind any prefix, is a lock of its own; any other is an error of the caller's.

use super::check;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use redlatch::{Naming, RedLock, RedLockExt, ReentrantLock};

/// What a protocol, a script or a naming rule could trip over, channel names of other locks among it.
const PIECES: [&str; 20] = [
    "n",
    "{",
    "}",
    "{n}",
    "{}",
    "\r\n",
    "\n",
    "\0",
    " ",
    "*1\r\n$8\r\nFLUSHALL\r\n",
    "*",
    "\"'\\",
    "%s%n",
    "🔒",
    "ü",
    "\u{202e}\u{feff}",
    "redisson_lock__channel:",
    "redisson_lock__channel:{n}",
    "__red__lock:",
    "redlatch:",
];

/// Text of at most so many bytes.
fn text(most: usize) -> impl Strategy<Value = String> {
    let pieces = vec(select(PIECES.to_vec()), 0..12).prop_map(|pieces| pieces.concat());
    let letters = vec(any::<char>(), 0..300).prop_map(String::from_iter);
    let long = select(PIECES.to_vec()).prop_map(move |piece| piece.repeat(most / piece.len()));
    prop_oneof![6 => pieces, 3 => letters, 1 => long].prop_map(move |text| cut(text, most))
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

fn name() -> impl Strategy<Value = String> {
    text(1_024).prop_filter("a name has at least one byte", |name| !name.is_empty())
}

/// Two names, of which one may be the other's channel, or differ from it in a byte only.
fn two_names() -> impl Strategy<Value = (String, String)> {
    let channel_of = |name: String, around: (&str, &str)| cut([around.0, &name, around.1].concat(), 1_024);
    let around = [("redisson_lock__channel:{", "}"), ("redisson_lock__channel:", ""), ("__red__lock:", ""), ("{", "}")];
    let derived =
        (name(), select(around.to_vec())).prop_map(move |(name, around)| (channel_of(name.clone(), around), name));
    let longer = (name(), select(PIECES.to_vec())).prop_map(|(name, more)| (cut(name.clone() + more, 1_024), name));
    prop_oneof![derived, longer, (name(), name())].prop_filter("two names", |(one, other)| one != other)
}

/// The locks of two clients, which share their names.
fn two_clients(server: &Server, naming: Naming, prefix: &str) -> [ReentrantLock; 2] {
    [(); 2].map(|()| ReentrantLock::new(&server.builder().naming(naming).key_prefix(prefix).build().unwrap()))
}

fn naming() -> impl Strategy<Value = Naming> {
    select(vec![Naming::Redisson, Naming::Jedis])
}

fn prefix() -> impl Strategy<Value = String> {
    prop_oneof![2 => Just(String::new()), 1 => text(1_024)]
}

#[test]
fn a_name_is_a_lock() {
    let server = Server::start();
    check(200, (name(), prefix(), naming()), |(name, prefix, naming)| {
        let [locks, other] = two_clients(&server, naming, &prefix);
        assert!(!other.is_locked(&name).unwrap());
        let guard = locks.guard(&name).unwrap();
        assert!(other.is_locked(&name).unwrap() && !other.try_lock(&name).unwrap());
        assert_eq!((guard.resource(), locks.hold_count(&name), other.hold_count(&name)), (&*name, 1, 0));
        assert_eq!(server.owner(&format!("{prefix}{name}")), (guard.owner().to_owned(), 1));
        guard.unlock().unwrap();
        assert!(!other.is_locked(&name).unwrap() && other.try_lock(&name).unwrap());
        assert!(locks.force_unlock(&name).unwrap() && !locks.force_unlock(&name).unwrap());
        assert_err!(other.unlock(&name), Lost);
        assert_eq!(server.ask::<usize>(&["DBSIZE"]), 0);
    });
}

#[test]
fn two_names_are_two_locks() {
    let server = Server::start();
    check(200, (two_names(), prefix(), naming()), |((one, other), prefix, naming)| {
        let [locks, others] = two_clients(&server, naming, &prefix);
        let first = locks.guard(&one).unwrap();
        assert!(!others.is_locked(&other).unwrap() && others.try_lock(&other).unwrap(), "they are one lock");
        let mine = locks.is_held_by_current_thread(&one) && !locks.is_held_by_current_thread(&other);
        assert!(mine && others.is_held_by_current_thread(&other), "the threads' counts were mixed up");
        first.unlock().unwrap();
        assert!(others.is_locked(&other).unwrap() && !others.is_locked(&one).unwrap());
        others.unlock(&other).unwrap();
        assert_eq!(server.ask::<usize>(&["DBSIZE"]), 0);
    });
}

#[test]
fn an_unlock_wakes_who_waits_for_this_name() {
    let server = Server::start();
    check(60, (name(), prefix(), naming()), |(name, prefix, naming)| {
        let [locks, other] = two_clients(&server, naming, &prefix);
        let guard = locks.guard(&name).unwrap();
        let channel = channel(naming, &format!("{prefix}{name}"));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.execute_in_lock(&name, Mark::now));
            eventually(LONG, "the waiter listens", || server.subscribers(&channel) == 1);
            let unlocked = Mark::now();
            guard.unlock().unwrap();
            let woken = finish(waiter).unwrap();
            assert!(woken - unlocked <= SOON, "woken after {:?}", woken - unlocked);
        });
    });
}

/// The channel, by the rules of Redisson and the Jedis version, said once more.
fn channel(naming: Naming, key: &str) -> String {
    match naming {
        Naming::Jedis => format!("__red__lock:{key}"),
        _ if key.contains('{') => format!("redisson_lock__channel:{key}"),
        _ => format!("redisson_lock__channel:{{{key}}}"),
    }
}

/// Every name that is too long, and the empty one.
fn no_name() -> impl Strategy<Value = String> {
    let long = (select(PIECES.to_vec()), 0..2_000_usize, any::<char>())
        .prop_map(|(piece, more, last)| piece.repeat((1_024 + more) / piece.len()) + &last.to_string().repeat(64));
    prop_oneof![1 => Just(String::new()), 9 => long]
}

#[test]
fn no_other_name_is_taken() {
    let server = Server::start();
    check(100, (no_name(), prefix(), naming()), |(name, prefix, naming)| {
        let [locks, other] = two_clients(&server, naming, &prefix);
        let commands = server.commands_during(|| {
            assert_err!(locks.lock(&name), Config);
            assert_err!(locks.try_lock(&name), Config);
            assert_err!(other.unlock(&name), Config);
            assert_err!(other.is_locked(&name), Config);
            assert_err!(other.force_unlock(&name), Config);
        });
        assert!(commands.is_empty() && locks.hold(&name).is_none(), "{commands:?}");
    });
}
