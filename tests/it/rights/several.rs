//! The same where several servers have the locks: what each of them needs beside that, in the words of the first call that is refused.

use crate::harness::cluster::{self, Cluster};
use crate::harness::member::Member;
use crate::harness::permissions::documented;
use crate::harness::sentinel::{Group, Shape};
use crate::harness::server::version;
use crate::proxy::{Flow, Proxy, pass};
use redlatch::{Client, ClientBuilder, Error, RedLock, RedLockExt, ReentrantLock, ShardedPubsub};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the documentation lists for one server, and beside it for clusters, for groups, and for what a client may ask for.
const BESIDE: &str = "+cluster|slots +cluster|nodes +cluster|info +asking +role +get +info +wait";
const SHARDED: &str = " +ssubscribe +sunsubscribe +spublish";

/// The user `app` may do all that at these nodes, but for a rule; and for what no lock can do without, so that each call is refused.
fn let_in_without<'m>(nodes: impl Iterator<Item = &'m Member>, rule: &str) {
    let beside = if version() < (7, 0) { BESIDE.to_owned() } else { [BESIDE, SHARDED].concat() };
    for node in nodes {
        let words = documented().into_iter().chain(beside.split(' ')).filter(|word| *word != rule);
        node.ask::<String>(&words.chain(["-pexpire"]).collect::<Vec<_>>());
    }
}

fn as_app(url: &str) -> String {
    url.replace("://", "://app:secret@")
}

/// That a call of such a client names a rule in words to paste.
#[track_caller]
fn assert_named(builder: ClientBuilder, rule: &str) {
    let error = ReentrantLock::new(&builder.key_prefix("shop:").build().unwrap()).lock("n").unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{rule}: {error:?}");
    let text = error.to_string();
    let advice = text.split_once("ACL SETUSER app ").map(|(_, advice)| advice).unwrap_or_default();
    let named: Vec<_> = advice.split(' ').take_while(|word| word.starts_with(['+', '~', '&'])).collect();
    // What a user may not ask for is all that is known then.
    let alone = ["+cluster|slots", "+role"].contains(&rule);
    assert!(named.contains(&rule) && (alone || named.contains(&"+pexpire")) && named.len() <= 2, "{rule}: {text}");
}

fn confirmed(builder: ClientBuilder) -> ClientBuilder {
    builder.sync_replicas(1, Duration::from_millis(100))
}

#[test]
fn each_rule_that_a_node_of_a_cluster_needs_is_named() {
    if version() < (7, 0) {
        return;
    }
    let cluster = Cluster::of(cluster::Shape::STEADY);
    let builder = || Client::builder(&as_app(&cluster.url()));
    let named = |rule: &str, builder: ClientBuilder| {
        let_in_without(cluster.nodes.iter(), rule);
        assert_named(builder, rule);
    };
    for rule in ["+cluster|slots", "+asking", "+spublish", "+ssubscribe", "+sunsubscribe", "+hset", "+zadd", "~shop:*"]
    {
        named(rule, builder());
    }
    for rule in ["+publish", "+subscribe", "+unsubscribe", "&redisson_lock__channel:*"] {
        named(rule, builder().sharded_pubsub(ShardedPubsub::Off));
    }
    named("+info", builder().strict(true));
    named("+wait", confirmed(builder()));
}

fn each_rule_of_a_master_is_named(group: &Group, builder: impl Fn() -> ClientBuilder) {
    let named = |rule: &str, builder: ClientBuilder| {
        let_in_without(group.nodes.iter(), rule);
        assert_named(builder, rule);
    };
    for rule in ["+role", "+hset", "+zadd", "+subscribe", "~shop:*"] {
        named(rule, builder());
    }
    named("+info", builder().strict(true));
    named("+wait", confirmed(builder()));
}

#[test]
fn each_rule_that_a_master_of_a_group_needs_is_named() {
    let group = Group::of(Shape::STEADY);
    let urls: Vec<_> = group.nodes.iter().map(|node| as_app(&node.url())).collect();
    each_rule_of_a_master_is_named(&group, || Client::builder(&as_app(&group.url())));
    each_rule_of_a_master_is_named(&group, || Client::builder(&urls[0]).replicas(urls[1..].iter().cloned()));
}

#[test]
fn what_sentinels_refuse_is_named() {
    if version() < (7, 0) {
        return;
    }
    let group = Group::of(Shape::SMALL);
    let all = "+ping +sentinel|master +sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe";
    for rule in ["+sentinel|master", "+sentinel|get-master-addr-by-name"] {
        let words = ["ACL", "SETUSER", "watch", "reset", "on", ">secret", "&*"].into_iter();
        let words = words.chain(all.split(' ').filter(|word| *word != rule));
        group.sentinels[0].ask::<String>(&words.collect::<Vec<_>>());
        let url = format!("{}?sentinel_username=watch&sentinel_password=secret", group.url());
        let error = ReentrantLock::connect(&url).unwrap().lock("n").unwrap_err().to_string();
        assert!(error.contains(&format!("ACL SETUSER watch {rule} grants")), "{error}");
    }
}

/// What was asked on each connection, before the first answer and after it.
type Asked = Arc<Mutex<HashMap<(usize, usize), [Vec<u8>; 2]>>>;

/// One in front of each node.
fn proxies(nodes: &[Member], asked: &Asked) -> Vec<Proxy> {
    let proxy = |(at, node): (usize, &Member)| {
        let (proxy, asked, mut answered) = (Proxy::on_tcp(node.socket()), Arc::clone(asked), HashSet::new());
        proxy.set(move |connection, flow, data| {
            match flow {
                Flow::Reply => drop(answered.insert(connection)),
                Flow::Request => {
                    let mut asked = asked.lock().unwrap();
                    let trips = asked.entry((at, connection)).or_default();
                    trips[usize::from(answered.contains(&connection))].extend_from_slice(data);
                }
            }
            pass(data)
        });
        proxy
    };
    nodes.iter().enumerate().map(proxy).collect()
}

/// That a client which goes through proxies asks for permissions with the first words of its connections, and no later.
#[track_caller]
fn assert_asked_in_the_handshake(nodes: &[Member], builder: ClientBuilder) {
    let asked = Asked::default();
    let proxies = proxies(nodes, &asked);
    let ways: Vec<_> = nodes.iter().map(Member::port).zip(proxies.iter().map(Proxy::port)).collect();
    let through = move |port| ways.iter().find(|(own, _)| *own == port).map_or(port, |&(_, proxy)| proxy);
    let builder = builder.map_address(move |host, port| (host.to_owned(), through(port)));
    let locks = ReentrantLock::new(&builder.build().unwrap());
    locks.guard("n").unwrap().unlock().unwrap();
    let asked = asked.lock().unwrap();
    let has = |data: &[u8], word: &str| String::from_utf8_lossy(data).contains(word);
    let tested: Vec<_> = asked.values().filter(|[first, _]| has(first, "redlatch_probe")).collect();
    assert!(!tested.is_empty() && tested.iter().all(|[first, _]| has(first, "\r\nTIME\r\n")), "{asked:?}");
    assert!(!asked.values().any(|[_, later]| has(later, "redlatch_probe")), "{asked:?}");
}

#[test]
fn asking_for_permissions_costs_no_round_trip_of_its_own() {
    let (cluster, group) = (Cluster::of(cluster::Shape::STEADY), Group::of(Shape::STEADY));
    assert_asked_in_the_handshake(&cluster.nodes, cluster.builder());
    assert_asked_in_the_handshake(&group.nodes, group.builder());
}
