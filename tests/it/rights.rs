//! The self-test at the first connection: by ablation, each rule that the documentation lists is named when it is missing.

mod several;

use crate::harness::permissions::{added, documented};
use crate::server::Server;
use redlatch::{
    Client, ClientBuilder, Credentials, Error, FairLock, FencedLock, HandOff, RedLock, RedLockExt, ReentrantLock,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Those that are asked for beside the others: in a script, and those that none may run.
const ASKED_FOR: [&str; 20] = [
    "+evalsha",
    "+ping",
    "+subscribe",
    "+unsubscribe",
    "+time",
    "+hlen",
    "+pttl",
    "+hexists",
    "+hset",
    "+pexpire",
    "+del",
    "+publish",
    "+set",
    "+hkeys",
    "+zadd",
    "+zrank",
    "+zrange",
    "+zrem",
    "+zpopmin",
    "+pubsub",
];

fn locks(server: &Server) -> ReentrantLock {
    let builder = Client::builder(&server.url_as("app", "secret")).key_prefix("shop:");
    ReentrantLock::new(&builder.build().unwrap())
}

#[test]
fn each_rule_that_is_missing_is_named_by_a_refused_call() {
    let server = Server::start();
    for rule in ASKED_FOR {
        server.ask::<String>(&documented().into_iter().filter(|word| *word != rule).collect::<Vec<_>>());
        // Whatever it is that is refused: this always is.
        server.ask::<String>(&["ACL", "SETUSER", "app", "-pexpire"]);
        let error = locks(&server).lock("n").unwrap_err();
        assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{rule}: {error:?}");
        let text = error.to_string();
        let advice = text.split_once("ACL SETUSER app ").map(|(_, advice)| advice).unwrap_or_default();
        let named: Vec<_> = advice.split(' ').take_while(|word| word.starts_with(['+', '~', '&'])).collect();
        let mut expected = vec![rule, "+pexpire"];
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(named, expected, "{text}");
        // Who may neither bound a lock nor delete it leaves one for ever, unless its client may do so a moment later.
        server.clear();
    }
}

/// Each says so in the first call, and what else is missing.
#[test]
fn what_a_handshake_cannot_do_without_is_named_with_all_else() {
    let server = Server::start();
    type Set = fn(ClientBuilder) -> ClientBuilder;
    let cases: [(&str, Set); 5] = [
        ("-eval", |builder| builder),
        ("-select", |builder| builder),
        ("-time", |builder| builder),
        ("-info", |builder| builder.strict(true)),
        ("-wait", |builder| builder.sync_replicas(1, Duration::from_millis(100))),
    ];
    for (rule, set) in cases {
        server.ask::<String>(&documented());
        server.ask::<String>(&["ACL", "SETUSER", "app", "+get", "+info", "+wait", "+select", "-subscribe", rule]);
        let url = format!("{}&db=1", server.url_as("app", "secret"));
        let locks = ReentrantLock::new(&set(Client::builder(&url).key_prefix("shop:")).build().unwrap());
        let error = locks.lock("n").unwrap_err();
        let named = rule.replace('-', "+");
        let mut rules = [named.as_str(), "+subscribe"];
        rules.sort_unstable();
        assert!(error.to_string().contains(&format!("ACL SETUSER app {} grants", rules.join(" "))), "{rule}: {error}");
    }
}

/// Who has no locks with tokens is not told of what those need.
#[test]
fn what_tokens_need_is_named_to_who_has_them() {
    let server = Server::start();
    server.ask::<String>(&documented());
    let client = || Client::builder(&server.url_as("app", "secret")).key_prefix("shop:").build().unwrap();
    server.ask::<String>(&["ACL", "SETUSER", "app", "-pexpire"]);
    let (fenced, plain) = (FencedLock::new(&client()), ReentrantLock::new(&client()));
    for (locks, needs_it) in [(&fenced as &dyn RedLock, true), (&plain, false)] {
        let text = locks.lock("n").unwrap_err().to_string();
        assert_eq!(text.contains("~redisson_lock_token:{shop:*"), needs_it, "{text}");
    }
}

/// All that the page lists, but `+rpush`, which has no words that change nothing.
#[test]
fn what_the_queue_of_a_fair_lock_needs_is_named() {
    let server = Server::start();
    server.ask::<String>(&documented());
    server.ask::<String>(&["ACL", "SETUSER", "app", "-pexpire"]);
    // A server that refuses all commands of a key does not say that it refuses the key.
    let (places, commands): (Vec<_>, Vec<_>) = added("`FairLock`").partition(|rule| rule.starts_with('~'));
    for (rules, unnamed) in [(&commands, &["+rpush"][..]), (&places, &[])] {
        let client = Client::builder(&server.url_as("app", "secret")).key_prefix("shop:").build().unwrap();
        let text = FairLock::new(&client).lock("n").unwrap_err().to_string();
        let is_named = |rule: &&str| text.split([' ', ';']).any(|word| word == *rule);
        let missing: Vec<_> = rules.iter().copied().filter(|rule| !is_named(rule)).collect();
        assert_eq!(missing, unnamed, "{text}");
        server.ask::<String>(&[&["ACL", "SETUSER", "app"], &commands[..]].concat());
    }
}

/// A fair lock tells the first of its queue alone, also without the hand-off of processes.
#[test]
fn what_a_fair_lock_needs_without_the_hand_off_is_named() {
    let server = Server::start();
    for (rule, words) in
        [("+pubsub", ["-pubsub", "&redlatch_*"]), ("&redlatch_*", ["resetchannels", "&redisson_lock__channel:*"])]
    {
        if server.version() < (6, 2) && rule.starts_with('&') {
            continue;
        }
        server.ask::<String>(&documented());
        let added = added("`FairLock`").chain(["-pexpire"]).chain(words);
        server.ask::<String>(&["ACL", "SETUSER", "app"].into_iter().chain(added).collect::<Vec<_>>());
        let builder = Client::builder(&server.url_as("app", "secret")).key_prefix("shop:").hand_off(HandOff::off());
        let text = FairLock::new(&builder.build().unwrap()).lock("n").unwrap_err().to_string();
        assert!(text.contains(rule), "{rule}: {text}");
    }
}

/// It would listen for ever, and be of no use for a lock.
#[test]
fn who_may_listen_but_not_stop_is_told_so_and_locks_all_the_same() {
    let server = Server::start();
    let words = documented().into_iter().filter(|word| *word != "+unsubscribe");
    server.ask::<String>(&words.collect::<Vec<_>>());
    locks(&server).guard("n").unwrap().unlock().unwrap();
}

#[test]
fn keys_and_channels_that_are_missing_are_named() {
    let server = Server::start();
    let all = "~shop:* ~redlatch_queue:{shop:* ~redlatch_turn:{shop:*";
    for rule in all.split(' ').chain(["&redisson_lock__channel:*", "&redlatch_*"]) {
        if server.version() < (6, 2) && rule.starts_with('&') {
            continue;
        }
        server.ask::<String>(&documented().into_iter().filter(|word| *word != rule).collect::<Vec<_>>());
        server.ask::<String>(&["ACL", "SETUSER", "app", "-pexpire"]);
        let text = locks(&server).lock("n").unwrap_err().to_string();
        assert!(text.contains(rule), "{rule}: {text}");
    }
}

#[test]
fn with_all_that_is_listed_nothing_is_missing_and_nothing_is_left() {
    let server = Server::start();
    server.ask::<String>(&documented());
    server.ask::<String>(&["ACL", "LOG", "RESET"]);
    let locks = locks(&server);
    locks.guard("n").unwrap().unlock().unwrap();
    let refused: Vec<redis::Value> = server.ask(&["ACL", "LOG"]);
    let refused: Vec<_> =
        refused.iter().map(|entry| format!("{entry:?}")).filter(|entry| !entry.contains("cmd=client ")).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// What is asked for is no lock that somebody could hold.
#[test]
fn a_lock_that_is_held_outlives_the_self_test_whatever_its_name() {
    let server = Server::start();
    let holder = server.locks();
    for name in ["redlatch_probe", "redlatch_heard"] {
        let guard = holder.guard(name).unwrap();
        let other = server.locks();
        assert!(!other.try_lock(name).unwrap());
        assert!(holder.is_locked(name).unwrap());
        guard.unlock().unwrap();
    }
}

/// The rules that an error says grant what is missing, and for whom, as they would be pasted.
fn advice_in(error: &Error) -> String {
    let text = error.to_string();
    let advice = text.split_once("ACL SETUSER ").and_then(|(_, advice)| advice.split_once(" grants"));
    advice.map(|(advice, _)| advice.to_owned()).expect(&text)
}

#[test]
fn what_is_to_be_pasted_grants_the_prefix_and_nothing_that_it_only_resembles() {
    let server = Server::start();
    for (prefix, other) in
        [("st*r:", "star:n"), ("q?:", "qq:n"), ("x[1]:", "x1:n"), ("b\\*:", "b*:n"), ("a b\n:", "ab:n")]
    {
        let url = server.let_in("app", "secret", "+@all &*");
        let locks = || ReentrantLock::new(&Client::builder(&url).key_prefix(prefix).build().unwrap());
        let advice = advice_in(&locks().lock("n").unwrap_err());
        server.ask::<String>(&[&["ACL", "SETUSER"], advice.split(' ').collect::<Vec<_>>().as_slice()].concat());
        locks().guard("n").unwrap().unlock().unwrap();
        let bare = ReentrantLock::new(&Client::builder(&url).build().unwrap());
        assert!(bare.lock(other).is_err(), "{advice}");
    }
}

/// Else redis-cli takes all that follows for one word.
#[test]
fn a_user_with_a_quote_in_the_name_is_quoted() {
    let server = Server::start();
    let url = server.let_in("it's", "secret", "+@all -pexpire ~* &*");
    let error = ReentrantLock::new(&Client::builder(&url).build().unwrap()).lock("n").unwrap_err();
    assert_eq!(advice_in(&error), "\"it's\" +pexpire");
}

/// A callback may give another user after a while, as where two take turns.
#[test]
fn each_user_is_told_what_that_user_lacks() {
    let server = Server::start();
    for (user, rule) in [("one", "-pexpire"), ("two", "-hset")] {
        server.let_in(user, "secret", &format!("+@all {rule} ~* &*"));
    }
    let user = Arc::new(Mutex::new("one"));
    let its = Arc::clone(&user);
    let ask = move || Ok::<_, std::io::Error>(Credentials::new(*its.lock().unwrap(), "secret"));
    let locks = ReentrantLock::new(&Client::builder(&server.url()).credentials(ask).build().unwrap());
    assert_eq!(advice_in(&locks.lock("n").unwrap_err()), "one +pexpire");
    server.clear();
    *user.lock().unwrap() = "two";
    server.ask::<i64>(&["CLIENT", "KILL", "USER", "one"]);
    assert_eq!(advice_in(&locks.lock("n").unwrap_err()), "two +hset");
}
