//! The URL of a cluster: some of its nodes, and how to log in at all of them.

use crate::base::error::Result;
use crate::store::host_port::HostPort;
use crate::store::node::{refuse, unlike};
use crate::store::url::MultiHostUrl;
use redis::RedisConnectionInfo;

const RIGHT: &str =
    "with %-escapes for special characters write redis+cluster://[user:password@]host[:port],host[:port]";

const DEFAULT_PORT: u16 = 6_379;

/// Where to ask first.
pub(super) struct Seeds {
    /// In order, none twice.
    pub(super) addresses: Vec<HostPort>,
    pub(super) login: RedisConnectionInfo,
}

pub(super) fn parse(url: &str) -> Result<Seeds> {
    seeds(url).map_err(|what| unlike(RIGHT, what))
}

fn seeds(url: &str) -> Result<Seeds, &'static str> {
    let url = MultiHostUrl::of(url, "has a `#`, which begins no part of it: in a password it is written %23")?;
    let what = "has a `?`, after which nothing goes: user and password go once, before the first host";
    refuse(url.query.is_some(), what)?;
    let what = "has a database: in a cluster there is only number 0";
    refuse(!matches!(url.path.trim_matches('/'), "" | "0"), what)?;
    Ok(Seeds { addresses: url.hosts(DEFAULT_PORT)?, login: url.login("")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Vec<String> {
        parse(url).unwrap().addresses.iter().map(HostPort::to_string).collect()
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
