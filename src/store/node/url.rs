//! The URL of a server: which URLs are understood, and the errors for wrong ones.
//!
//! Any part of a wrong URL may be a piece of a password that was not escaped. So an error shows no part of the URL: its text is
//! one of the source.

use crate::base::error::{Error, Result};
use redis::IntoConnectionInfo;

const RIGHT: &str = "write redis://[user:password@]host[:port][/database], with %-escapes for special characters, or \
                     unix:///path/to/socket[?db=n&user=..&pass=..]";

const NO_PATH: &str = "needs three slashes before the path of its socket; user and password go behind it, after a `?`";
const NO_PORT: &str = "has a port that is none: it must be a number from 1 to 65535";

pub(crate) fn wrong(what: &str) -> Error {
    unlike(RIGHT, what)
}

/// The error for a URL that is not as `right` says it has to be.
pub(crate) fn unlike(right: &str, what: &str) -> Error {
    Error::config(format!("the server's URL {what}; {right}"))
}

pub(crate) fn refuse(when: bool, what: &'static str) -> Result<(), &'static str> {
    if when { Err(what) } else { Ok(()) }
}

pub(super) fn parse(url: &str) -> Result<redis::ConnectionInfo> {
    check_parts(url).map_err(wrong)?;
    url.into_connection_info().map_err(|error| {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        wrong(&format!("is wrong: {error}{detail}"))
    })
}

/// One host of several, and its port if it has one. `Err`: what is wrong with the text.
pub(crate) fn host_and_port(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let url = format!("redis://{text}");
    let parsed = redis::parse_redis_url(&url).ok_or_else(|| why_not_parsed(&url))?;
    match parsed.host_str() {
        _ if parsed.port() == Some(0) => Err(NO_PORT),
        Some(host) if !host.is_empty() => {
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            Ok((bare.to_owned(), parsed.port()))
        }
        _ => Err("has no host where one should be: several are separated by single commas"),
    }
}

/// The error for a URL with an unknown scheme.
pub(crate) fn wrong_scheme(url: &str) -> Error {
    wrong(why_not_parsed(url))
}

/// redis-rs ignores a misspelt or misplaced part: the client would use database 0, no password or another host.
fn check_parts(url: &str) -> Result<(), &'static str> {
    let parsed = redis::parse_redis_url(url).ok_or_else(|| why_not_parsed(url))?;
    let is_unix = parsed.scheme().ends_with("unix");
    refuse(parsed.fragment().is_some(), "has a `#`, which begins no part of it: in a password it is written %23")?;
    refuse(parsed.port() == Some(0), NO_PORT)?;
    refuse(!is_unix && parsed.host_str().is_none_or(str::is_empty), "has no host: two slashes and the host go before")?;
    refuse(is_unix && parsed.host_str().is_some_and(|host| !["", "localhost"].contains(&host)), NO_PATH)?;
    parsed.query_pairs().try_for_each(|(key, value)| check_query(is_unix, &key, &value))?;
    let database = if is_unix { "" } else { parsed.path().trim_matches('/') };
    let what = "has a database that is none: after the slash goes a number from 0, as in redis://host:6379/3";
    refuse(!database.is_empty() && !is_database(database), what)
}

fn is_database(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}

fn check_query(is_unix: bool, key: &str, value: &str) -> Result<(), &'static str> {
    match (key, is_unix) {
        ("protocol", _) | ("user" | "pass", true) => Ok(()),
        ("db", true) => refuse(!is_database(value), "has a database that is none: give a number from 0, as in ?db=3"),
        ("db" | "database", false) => {
            Err("has its database in the wrong place: the number goes after the slash, as in redis://host:6379/3")
        }
        ("user" | "username" | "pass" | "password", false) => {
            Err("has user or password in the wrong place: they go before the host, as in redis://user:password@host")
        }
        (_, true) => Err("has something other than db, user, pass, protocol after its `?`"),
        (_, false) => Err("has something other than protocol after its `?`"),
    }
}

/// What is wrong with a text that is not a URL, or has an unknown scheme.
fn why_not_parsed(url: &str) -> &'static str {
    match url.split_once("://") {
        None if url.is_empty() => "is empty",
        None => "has no scheme: put redis:// before the host",
        Some((scheme, _)) if redis::parse_redis_url(&format!("{scheme}://h")).is_none() => {
            "has an unknown scheme: put redis:// before the host"
        }
        Some((scheme, _)) if scheme.to_ascii_lowercase().ends_with("unix") => NO_PATH,
        Some((_, rest)) if has_bad_port(rest) => NO_PORT,
        Some(_) => "has no host, or one that is not understood",
    }
}

/// Whether the text behind `://` has a port that is no number, or too large.
fn has_bad_port(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let behind = host.rsplit(']').next().unwrap_or_default();
    behind.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.parse::<u16>().is_err())
}
