//! URLs of servers: each that is wrong is told what is wrong and what would be right, and shows no password.

use redlatch::{Client, Error, QuorumLock};

const SECRET: &str = "Sesame-0815";

fn refusal(url: &str) -> String {
    let error = Client::connect(url).unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
    let text = error.to_string();
    assert!(text.starts_with("the server's URL ") && !text.contains(SECRET), "{url}: {text}");
    let right = [
        "unix:///path/to/socket[?db=n&user=..&pass=..]",
        "?sentinel_username=..&sentinel_password=..",
        "redis+cluster://[user:password@]host[:port],host[:port]",
    ];
    assert!(right.iter().any(|right| text.ends_with(right)), "{url}: {text}");
    text
}

/// That each of these is told so, also with a user and a password before the host.
fn assert_told(urls: &[&str], words: &str) {
    for url in urls {
        let with_password = url.replacen("://", &format!("://u:{SECRET}@"), 1);
        for url in [*url, &with_password] {
            let text = refusal(url);
            assert!(text.contains(words), "{url}: {text}");
        }
    }
}

#[test]
fn an_empty_url_is_called_empty() {
    assert_told(&["", " ", "\n"], "is empty");
}

#[test]
fn a_url_without_a_scheme_is_told_to_get_one() {
    let urls = ["localhost", "localhost:6379", "127.0.0.1:6379", "localhost/3", "user:Sesame-0815@localhost", "/tmp/s"];
    assert_told(&urls, "has no scheme: put redis:// before the host");
}

#[test]
fn a_port_that_is_none_is_told_its_range() {
    let urls = ["redis://h:99999", "redis://h:65536/3", "redis://h:port", "redis://[::1]:99999", "redis://h:0"];
    assert_told(&urls, "must be a number from 1 to 65535");
}

#[test]
fn a_cluster_is_told_what_its_url_has_to_be() {
    let right = "redis+cluster://[user:password@]host[:port],host[:port]";
    for url in ["redis+cluster://", "redis-cluster://h,,g", "valkey+cluster://h:0", "redis+cluster://h/1"] {
        assert!(refusal(url).contains(right), "{url}");
    }
    assert_told(&["redis+cluster://h/1", "redis+cluster://h,g/x"], "there is only number 0");
    assert_told(&["redis+cluster://h?db=1"], "user and password go once, before the first host");
    for url in ["redis+cluster://h", "redis-cluster://u:p@a:1,[::1]:2/0", "valkey+cluster://h,g/"] {
        assert!(Client::connect(url).is_ok(), "{url}");
    }
}

#[test]
fn each_scheme_of_hosts_has_one_with_tls() {
    for url in
        ["rediss://h", "REDISS://h", "valkeys://h", "redis+tls://h", "rediss+sentinel://h/m", "rediss+cluster://h,i"]
    {
        assert!(Client::connect(url).is_ok(), "{url}");
    }
    assert_told(&["rediss://h/x", "rediss+sentinel://h", "rediss+cluster://h/3"], "");
}

#[test]
fn a_scheme_of_others_is_told_the_right_one() {
    assert_told(&["tcp://h:6379", "http://h", "https://h:6379/0"], "write redis:// before the host");
    assert_told(&["redis+socket:///tmp/s", "redis-socket:///tmp/s"], "write unix:// before its path");
    assert_told(&["amqp://h", "redis2://h"], "has an unknown scheme: put redis:// before the host");
}

#[test]
fn a_database_is_told_its_place() {
    let words = "the number goes after the slash, as in redis://host:6379/3";
    assert_told(&["redis://h/?db=3", "redis://h?db=3", "redis://h:6379/0?database=3", "valkey://h?db=3"], words);
}

#[test]
fn a_user_or_password_is_told_its_place() {
    let urls = ["redis://h?password=Sesame-0815", "redis://h/3?user=u&pass=Sesame-0815"];
    assert_told(&urls, "they go before the host, as in redis://user:password@host");
}

#[test]
fn a_database_that_is_none_is_told_so() {
    let words = "after the slash goes a number from 0, as in redis://host:6379/3";
    assert_told(&["redis://h/-1", "redis://h/abc", "redis://h/1/2", "redis://h/3.5", "valkey://h/x"], words);
    for url in ["unix:///s?db=-1", "unix:///s?pass=Sesame-0815&db=abc"] {
        assert!(refusal(url).contains("give a number from 0, as in ?db=3"), "{url}");
    }
}

#[test]
fn an_unknown_setting_is_told_the_known_ones() {
    assert_told(&["redis://h?timeout=3"], "other than protocol after its `?`");
    assert!(refusal("unix:///s?database=3").contains("other than db, user, pass, protocol after its `?`"));
}

#[test]
fn a_socket_is_told_where_its_path_begins_and_its_user_goes() {
    let words = "three slashes before the path of its socket; user and password go behind it, after a `?`";
    assert_told(&["unix://tmp/s", "redis+unix://tmp/s"], words);
    assert!(refusal("unix://u:Sesame-0815@/tmp/s").contains(words));
}

#[test]
fn a_missing_host_is_called_missing() {
    assert_told(&["redis:///3"], "has no host");
    assert_told(&["redis://:6379", "redis://"], "has no host");
}

/// What follows it would not be read: the host would be the user, and the port the beginning of the password.
#[test]
fn a_password_with_a_number_sign_is_told_to_escape_it() {
    assert!(refusal("redis://u:12#Sesame-0815@h").contains("%23"));
    assert!(refusal("redis://h#Sesame-0815").contains("%23"));
    assert!(Client::connect("redis://u:12%23Sesame-0815@h").is_ok());
}

#[test]
fn the_parts_of_a_sentinels_url_are_told_their_places() {
    let told = [
        (&["redis+sentinel://h", "redis-sentinel://h1:1,h2/", "redis+sentinel://h//3"][..], "has no name of a master"),
        (&["redis+sentinel://h/a b", "redis+sentinel://h/a%20b"], "a master's name with a space"),
        (
            &["redis+sentinel://h/m/x", "redis+sentinel://h/0/mymaster", "redis+sentinel://h/m/-1"],
            "goes a number from 0",
        ),
        (&["redis+sentinel:///m", "redis+sentinel://a,,b/m", "redis+sentinel://a,/m"], "no host"),
        (&["redis+sentinel://a:1,b:port/m", "redis+sentinel://a:0/m", "redis+sentinel://[::1]:99999/m"], "1 to 65535"),
        (&["redis-sentinel://h1,h2/0#mymaster"], "the master's name goes after the hosts and a slash"),
        (&["redis+sentinel://h/m?db=3"], "after the master's name and a slash"),
        (&["redis+sentinel://h/m?password=Sesame-0815"], "those of the sentinels are called"),
        (&["redis+sentinel://h?master_name=m", "redis+sentinel://h/?master=m"], "name"),
        (&["redis+sentinel://h/m?timeout=3"], "other than sentinel_username, sentinel_password"),
        (&["redis+sentinel://h/m?sentinel_username=u"], "without a sentinel_password"),
    ];
    told.iter().for_each(|(urls, words)| assert_told(urls, words));
    assert!(refusal("redis+sentinel://a,u:Sesame-0815@b/m").contains("once, before the first host"));
    assert!(refusal("redis+sentinel://u:Sesame-0815/@b/m").contains("1 to 65535"));
    assert!(refusal("redis+sentinel:h/m").contains("has no slashes"));
}

#[test]
fn a_sentinels_url_that_is_right_is_taken() {
    let urls = ["redis+sentinel://h/m", "redis-sentinel://a:1,[::1]:2,c/my-master.1/3", "valkey+sentinel://h/m/"];
    let with_logins = "redis+sentinel://u:p%2F,@a,b/m?sentinel_username=s&sentinel_password=%26";
    for url in urls.iter().chain(&[with_logins]) {
        assert!(Client::connect(url).is_ok(), "{url}: {:?}", Client::connect(url));
    }
}

#[test]
fn a_url_that_is_right_is_taken() {
    let urls = ["redis://h", "redis://h/", "redis://h:6379/3", " redis://h ", "redis://u:p@h", "redis://:p@[::1]:7/0"];
    let others = ["REDIS://h", "valkey://h/1", "unix:///s", "unix:///s?db=3&user=u&pass=p", "redis+unix:///s"];
    for url in urls.iter().chain(&others) {
        assert!(Client::connect(url).is_ok(), "{url}: {:?}", Client::connect(url));
    }
}

#[test]
fn a_node_of_a_quorum_is_told_the_same() {
    let error = QuorumLock::connect(["redis://a", "redis://b", "localhost:6379"]).unwrap_err();
    assert!(error.to_string().contains("has no scheme"), "{error}");
}

/// What a client of these nodes is told, the first of them its URL.
fn replicas_refusal(urls: &[&str]) -> String {
    let error = Client::builder(urls[0]).replicas(&urls[1..]).build().unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{urls:?}: {error:?}");
    let text = error.to_string();
    assert!(!text.contains(SECRET), "{urls:?}: {text}");
    text
}

#[test]
fn nodes_that_do_not_go_together_are_told_why() {
    let told = [
        (&["redis://a"][..], "replicas has no URL: give those of the other nodes, or leave it out for one server"),
        (
            &["redis://a/3", "redis://u:Sesame-0815@b"],
            "database 3 of a:6379 and 0 of b:6379: locks are in one, give each URL the same",
        ),
        (&["redis://a", "unix:///s?db=1"], "database 0 of a:6379 and 1 of /s"),
        (&["redis://a", "redis://b", "redis://u:Sesame-0815@a:6379/"], "a:6379 is given twice, give each node once"),
        (&["unix:///s", "redis+unix:///s"], "/s is given twice"),
        (&["redis+sentinel://a/m", "redis://b"], "clusters find them by themselves: leave `replicas` out"),
        (&["redis://a", "redis+sentinel://u:Sesame-0815@b/m"], "clusters find them by themselves"),
        (&["redis://a", "redis+cluster://b"], "find them by themselves"),
        (&["redis://a", "rediss://u:Sesame-0815@b"], "some of the servers' URLs ask for TLS and some do not"),
        (&["redis://a", "b:6379"], "has no scheme: put redis:// before the host"),
        (&["redis://a", ""], "is empty"),
        (&["redis://a", "redis://u:Sesame-0815@b:99999"], "must be a number from 1 to 65535"),
    ];
    for (urls, words) in told {
        let text = replicas_refusal(urls);
        assert!(text.contains(words), "{urls:?}: {text}");
    }
}

#[test]
fn nodes_may_differ_in_all_but_their_database() {
    let urls = [" unix:///s?db=2&user=u&pass=p ", "valkey://v:q@a:1/2", "redis://b/2"];
    assert!(Client::builder("redis://a/2").replicas(urls).build().is_ok());
}
