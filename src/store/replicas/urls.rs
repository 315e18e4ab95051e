//! The URLs of a master and its replicas: each is understood as that of a single server, and some do not go together.

use crate::base::error::{Error, Result};
use crate::store::node::{Target, wrong_scheme, wrong_url};
use crate::store::{Scheme, scheme_of};

/// # Errors
/// What is wrong with one, or with all of them together. No part of a URL is shown but its address.
pub(super) fn parse(urls: &[&str]) -> Result<Vec<Target>> {
    let targets = urls.iter().map(|url| node(url.trim())).collect::<Result<Vec<_>>>()?;
    for (at, target) in targets.iter().enumerate() {
        let earlier = &targets[..at];
        if earlier.iter().any(|other| other.addr == target.addr) {
            return Err(Error::config(format!(
                "a master and its replicas: {target} is given twice, give each node once"
            )));
        }
        if let Some(other) = earlier.iter().find(|other| other.login.db() != target.login.db()) {
            return Err(databases(other, target));
        }
    }
    Ok(targets)
}

/// Each has a login of its own.
fn node(url: &str) -> Result<Target> {
    match scheme_of(url)? {
        Scheme::Server => Target::of(url),
        Scheme::Opens(_) => Err(Error::config(
            "replicas are those of a server's URL, and sentinels and clusters find them by themselves: leave `replicas` out, or give \
             redis:// and the address of each node",
        )),
        Scheme::Sealed(_) => Err(wrong_scheme(url)),
        Scheme::Refused(what) => Err(wrong_url(what)),
    }
}

/// What is written to a database is replicated to the same one.
fn databases(one: &Target, other: &Target) -> Error {
    let said = [one, other].map(|target| format!("{} of {target}", target.login.db()));
    let [one, other] = said;
    Error::config(format!(
        "a master and its replicas: database {one} and {other}: locks are in one, give each URL the same"
    ))
}
