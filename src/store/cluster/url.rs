//! The URL of a cluster: some of its nodes, and how to log in at all of them.

use crate::base::error::{Error, Result};
use crate::store::node::{parse_url, place};
use crate::store::place::Place;
use redis::RedisConnectionInfo;

const RIGHT: &str =
    "with %-escapes for special characters write redis+cluster://[user:password@]host[:port],host[:port]";

const DEFAULT_PORT: u16 = 6_379;

/// Where to ask first.
pub(super) struct Seeds {
    /// In order, none twice.
    pub(super) places: Vec<Place>,
    pub(super) login: RedisConnectionInfo,
}

fn wrong(what: &str) -> Error {
    Error::config(format!("the server's URL {what}; {RIGHT}"))
}

fn refuse(when: bool, what: &str) -> Result<()> {
    if when { Err(wrong(what)) } else { Ok(()) }
}

/// No part of a wrong URL is shown: any may be a piece of a password.
pub(super) fn parse(url: &str) -> Result<Seeds> {
    let (_, rest) = url.split_once("://").ok_or_else(|| wrong("has no slashes after its scheme"))?;
    refuse(rest.contains('#'), "has a `#`, which begins no part of it: in a password it is written %23")?;
    refuse(
        rest.contains('?'),
        "has a `?`, after which nothing goes: user and password go once, before the first host",
    )?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let database = path.trim_matches('/');
    refuse(!database.is_empty() && database != "0", "has a database: in a cluster there is only number 0")?;
    let (user, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
    Ok(Seeds { places: places(hosts)?, login: login(user)? })
}

fn places(hosts: &str) -> Result<Vec<Place>> {
    let place = |text| {
        let (host, port) = place(text).map_err(wrong)?;
        Ok(Place { host, port: port.unwrap_or(DEFAULT_PORT) })
    };
    let mut places = hosts.split(',').map(place).collect::<Result<Vec<_>>>()?;
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// Understood as that of a single server is.
fn login(user: Option<&str>) -> Result<RedisConnectionInfo> {
    let is_list = user.is_some_and(|user| user.split(':').next().unwrap_or_default().contains(','));
    refuse(is_list, "has a comma in its user: user and password go once, before the first host")?;
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    let info = parse_url(&format!("redis://{user}h/"));
    info.map(|info| info.redis_settings().clone()).map_err(|_| wrong("has a user or password that is not understood"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Vec<String> {
        parse(url).unwrap().places.iter().map(Place::to_string).collect()
    }

    #[test]
    fn the_parts_of_a_url_are_found() {
        let url = "redis+cluster://u:p%40,@b:7,a,[::1]:8,b:7/0";
        assert_eq!(hosts(url), ["[::1]:8", "a:6379", "b:7"]);
        let login = parse(url).unwrap().login;
        assert_eq!((login.username(), login.password(), login.db()), (Some("u"), Some("p@,"), 0));
        assert_eq!(hosts("redis+cluster://h/"), ["h:6379"]);
    }

    #[test]
    fn a_wrong_url_says_what_is_right_and_no_secret() {
        for url in ["h", "//h:0", "//h/1", "//h?db=1", "//u:secret@h#", "//", "//a,,b", "//a,u:secret@b", "//h/x"] {
            let error = parse(&format!("redis+cluster:{url}")).err().unwrap_or_else(|| panic!("{url}")).to_string();
            assert!(error.contains("redis+cluster://") && !error.contains("secret"), "{error}");
        }
    }
}
