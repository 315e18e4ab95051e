//! URLs of several hosts: `scheme://[user:password@]host[:port],host[:port][/path][?query]`.
//!
//! Any part of a wrong URL may be a piece of a password. So none is shown: what is wrong is said by a text of the source.

use super::host_port::HostPort;
use crate::store::node::{Target, host_and_port, refuse};
use redis::RedisConnectionInfo;
use std::collections::BTreeSet;

/// One of them in its parts.
pub(super) struct MultiHostUrl<'u> {
    user: Option<&'u str>,
    hosts: &'u str,
    pub(super) path: &'u str,
    pub(super) query: Option<&'u str>,
}

impl<'u> MultiHostUrl<'u> {
    /// `hash` is what a URL with a `#` is told. Each error is what is wrong with the URL.
    pub(super) fn of(url: &'u str, hash: &'static str) -> Result<Self, &'static str> {
        let (_, rest) = url.split_once("://").ok_or("has no slashes after its scheme")?;
        refuse(rest.contains('#'), hash)?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
        Ok(Self { user, hosts, path, query })
    }

    /// In order, none twice.
    pub(super) fn hosts(&self, default_port: u16) -> Result<Vec<HostPort>, &'static str> {
        let address = |text| {
            let (host, port) = host_and_port(text)?;
            Ok(HostPort { host, port: port.unwrap_or(default_port) })
        };
        let addresses = self.hosts.split(',').map(address).collect::<Result<BTreeSet<_>, &'static str>>()?;
        Ok(addresses.into_iter().collect())
    }

    /// User and password mean what they mean in the URL of a single server.
    pub(super) fn login(&self, database: &str) -> Result<RedisConnectionInfo, &'static str> {
        let is_list = self.user.is_some_and(|user| user.split(':').next().unwrap_or_default().contains(','));
        refuse(is_list, "has a comma in its user: user and password go once, before the first host")?;
        let user = self.user.map_or_else(String::new, |user| format!("{user}@"));
        let target = Target::of(&format!("redis://{user}h/{database}"));
        target.map(|target| target.login).map_err(|_| "has a user or password that is not understood")
    }
}
