//! The URL of a Sentinel group: which sentinels to ask, for which master, and how to log in at both.
//!
//! Its user and password are those of the nodes, as in the URL of a single server. The sentinels' own go behind it, by the
//! names that go-redis gives them: a client, or a node of a quorum, is set up by one string.

use crate::base::error::{Error, Result};
use crate::store::node::{parse_url, place};
use crate::store::place::Place;
use redis::RedisConnectionInfo;
use std::borrow::Cow;

const RIGHT: &str = "write redis+sentinel://[user:password@]host[:port],host[:port]/master-name[/database], with %-escapes \
                     for special characters; what the sentinels want for themselves goes behind it: \
                     ?sentinel_username=..&sentinel_password=..";

const DEFAULT_PORT: u16 = 26_379;

/// A group, as a URL describes it.
pub(super) struct Group {
    /// What the sentinels call it.
    pub(super) name: String,
    /// In order, none twice.
    pub(super) sentinels: Vec<Place>,
    pub(super) login: RedisConnectionInfo,
    pub(super) sentinel_login: RedisConnectionInfo,
}

fn wrong(what: &str) -> Error {
    Error::config(format!("the server's URL {what}; {RIGHT}"))
}

fn refuse(when: bool, what: &str) -> Result<()> {
    if when { Err(wrong(what)) } else { Ok(()) }
}

/// No part of a wrong URL is shown: any may be a piece of a password.
pub(super) fn parse(url: &str) -> Result<Group> {
    let (_, rest) = url.split_once("://").ok_or_else(|| wrong("has no slashes after its scheme"))?;
    let lettuce = "has a `#`: the master's name goes after the hosts and a slash, and in a password it is written %23";
    refuse(rest.contains('#'), lettuce)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
    let sentinels = sentinels(hosts)?;
    let (name, database) = path.split_once('/').unwrap_or((path, ""));
    check_name(name)?;
    let login = login(user, database.trim_end_matches('/'))?;
    Ok(Group { name: name.to_owned(), sentinels, login, sentinel_login: sentinel_login(query)? })
}

fn sentinels(hosts: &str) -> Result<Vec<Place>> {
    let place = |text| {
        let (host, port) = place(text).map_err(wrong)?;
        Ok(Place { host, port: port.unwrap_or(DEFAULT_PORT) })
    };
    let mut places = hosts.split(',').map(place).collect::<Result<Vec<_>>>()?;
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

fn check_name(name: &str) -> Result<()> {
    refuse(name.is_empty(), "has no name of a master, as sentinels call it, after its hosts and a slash")?;
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '%';
    refuse(name.contains(odd), "has a master's name with a space or a `%` in it, which no sentinel knows")
}

/// Of the nodes, understood as that of a single server is.
fn login(user: Option<&str>, database: &str) -> Result<RedisConnectionInfo> {
    let what = "has a database that is none: after the master's name and a slash goes a number from 0";
    refuse(!database.is_empty() && database.parse::<u32>().is_err(), what)?;
    let is_list = user.is_some_and(|user| user.split(':').next().unwrap_or_default().contains(','));
    refuse(is_list, "has a comma in its user: user and password go once, before the first host")?;
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    let info = parse_url(&format!("redis://{user}h/{database}"));
    info.map(|info| info.redis_settings().clone()).map_err(|_| wrong("has a user or password that is not understood"))
}

fn sentinel_login(query: &str) -> Result<RedisConnectionInfo> {
    let parsed = redis::parse_redis_url(&format!("redis://h?{query}")).ok_or_else(|| wrong("is not understood"))?;
    let with = |login: RedisConnectionInfo, (key, value): (Cow<'_, str>, Cow<'_, str>)| -> Result<_> {
        match &*key {
            "sentinel_username" => Ok(login.set_username(value)),
            "sentinel_password" => Ok(login.set_password(value)),
            key => Err(wrong(what_of_a_key(key))),
        }
    };
    let login = parsed.query_pairs().try_fold(RedisConnectionInfo::default(), with)?;
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

    fn places(url: &str) -> Vec<String> {
        parse(url).unwrap().sentinels.iter().map(Place::to_string).collect()
    }

    #[test]
    fn the_parts_of_a_url_are_found() {
        let group =
            parse("redis+sentinel://u:p%40,@b:7,a,[::1]:8,[fe80::2],b:7/my.master:1/3?sentinel_password=s%26").unwrap();
        let places: Vec<_> = group.sentinels.iter().map(Place::to_string).collect();
        assert_eq!(places, ["[::1]:8", "a:26379", "b:7", "[fe80::2]:26379"]);
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
            assert_eq!(places(url), ["h:26379"]);
        }
        assert_eq!(parse("redis+sentinel://:p@h/m").unwrap().login.password(), Some("p"));
    }
}
