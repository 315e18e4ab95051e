//! The URL of a Sentinel group: which sentinels to ask, for which master, and how to log in at both.
//!
//! Its user and password are those of the nodes, as in the URL of a single server. The sentinels' own go behind it, by the
//! names that go-redis gives them: a client, or a node of a quorum, is set up by one string.

use crate::base::error::Result;
use crate::store::host_port::HostPort;
use crate::store::node::{refuse, unlike};
use crate::store::url::MultiHostUrl;
use redis::RedisConnectionInfo;

const RIGHT: &str = "write redis+sentinel://[user:password@]host[:port],host[:port]/master-name[/database], with %-escapes \
                     for special characters; what the sentinels want for themselves goes behind it: \
                     ?sentinel_username=..&sentinel_password=..";

const DEFAULT_PORT: u16 = 26_379;

/// A group, as a URL describes it.
pub(super) struct Group {
    /// What the sentinels call it.
    pub(super) name: String,
    /// In order, none twice.
    pub(super) sentinels: Vec<HostPort>,
    pub(super) login: RedisConnectionInfo,
    pub(super) sentinel_login: RedisConnectionInfo,
}

pub(super) fn parse(url: &str) -> Result<Group> {
    group(url).map_err(|what| unlike(RIGHT, what))
}

fn group(url: &str) -> Result<Group, &'static str> {
    let lettuce = "has a `#`: the master's name goes after the hosts and a slash, and in a password it is written %23";
    let url = MultiHostUrl::of(url, lettuce)?;
    let sentinels = url.hosts(DEFAULT_PORT)?;
    let (name, database) = url.path.split_once('/').unwrap_or((url.path, ""));
    check_name(name)?;
    let database = database.trim_end_matches('/');
    let what = "has a database that is none: after the master's name and a slash goes a number from 0";
    refuse(!database.is_empty() && database.parse::<u32>().is_err(), what)?;
    let login = url.login(database)?;
    let sentinel_login = sentinel_login(url.query.unwrap_or_default())?;
    Ok(Group { name: name.to_owned(), sentinels, login, sentinel_login })
}

fn check_name(name: &str) -> Result<(), &'static str> {
    refuse(name.is_empty(), "has no name of a master, as sentinels call it, after its hosts and a slash")?;
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '%';
    refuse(name.contains(odd), "has a master's name with a space or a `%` in it, which no sentinel knows")
}

fn sentinel_login(query: &str) -> Result<RedisConnectionInfo, &'static str> {
    let parsed = redis::parse_redis_url(&format!("redis://h?{query}")).ok_or("is not understood")?;
    let login = parsed.query_pairs().try_fold(RedisConnectionInfo::default(), |login, (key, value)| match &*key {
        "sentinel_username" => Ok(login.set_username(value)),
        "sentinel_password" => Ok(login.set_password(value)),
        key => Err(what_of_a_key(key)),
    })?;
    let alone = login.username().is_some() && login.password().is_none();
    refuse(alone, "has a sentinel_username without a sentinel_password")?;
    Ok(login)
}

fn what_of_a_key(key: &str) -> &'static str {
    match key {
        "db" | "database" => "has its database in the wrong place: the number goes after the master's name and a slash",
        "user" | "username" | "pass" | "password" => {
            "has user or password in the wrong place: they go before the first host, and those of the sentinels are called \
             sentinel_username and sentinel_password"
        }
        "master" | "master_name" | "mastername" | "service_name" => {
            "has the master's name in the wrong place: it goes after the hosts and a slash"
        }
        _ => "has something other than sentinel_username, sentinel_password after its `?`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Vec<String> {
        parse(url).unwrap().sentinels.iter().map(HostPort::to_string).collect()
    }

    #[test]
    fn the_parts_of_a_url_are_found() {
        let group =
            parse("redis+sentinel://u:p%40,@b:7,a,[::1]:8,[fe80::2],b:7/my.master:1/3?sentinel_password=s%26").unwrap();
        let addresses: Vec<_> = group.sentinels.iter().map(HostPort::to_string).collect();
        assert_eq!(addresses, ["[::1]:8", "a:26379", "b:7", "[fe80::2]:26379"]);
        assert_eq!((group.name.as_str(), group.login.db()), ("my.master:1", 3));
        assert_eq!((group.login.username(), group.login.password()), (Some("u"), Some("p@,")));
        assert_eq!((group.sentinel_login.username(), group.sentinel_login.password()), (None, Some("s&")));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        for url in ["redis-sentinel://h/m", "redis+sentinel://h/m/", "redis+sentinel://h/m/0/"] {
            let group = parse(url).unwrap();
            assert_eq!((group.login.db(), group.login.password(), group.login.username()), (0, None, None), "{url}");
            assert_eq!(group.sentinel_login.password(), None, "{url}");
            assert_eq!(addresses(url), ["h:26379"]);
        }
        assert_eq!(parse("redis+sentinel://:p@h/m").unwrap().login.password(), Some("p"));
    }
}
