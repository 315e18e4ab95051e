//! Names on the wire: the key and the channel of a lock, as Redisson or the Jedis version name them.

use crate::error::{Error, Result};
use std::ops::Range;

/// Which program family's names are used on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Naming {
    /// Redisson's: channel `redisson_lock__channel:{name}`. The lock and its channel share a cluster slot.
    #[default]
    Redisson,
    /// The small Jedis re-implementation's: channel `__red__lock:` + name.
    Jedis,
}

impl Naming {
    /// What stands before and after a key in the name of its channel.
    ///
    /// A key that already has a `{` is not wrapped again, as in Redisson's `prefixName`; hence `x` and `{x}`
    /// share a channel, which costs a spurious wake-up and nothing else.
    fn around(self, has_brace: bool) -> (&'static str, &'static str) {
        match self {
            Self::Jedis => ("__red__lock:", ""),
            Self::Redisson if has_brace => ("redisson_lock__channel:", ""),
            Self::Redisson => ("redisson_lock__channel:{", "}"),
        }
    }
}

/// The longest name of a resource, in bytes.
pub(crate) const LONGEST_NAME: usize = 1_024;

/// The names of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// Holds the other names, so that a lock's names are one allocation.
    channel: String,
    key: Range<usize>,
    prefix: usize,
}

impl Key {
    pub(crate) fn new(naming: Naming, prefix: &str, resource: &str) -> Self {
        let (before, after) = naming.around(prefix.contains('{') || resource.contains('{'));
        let channel = [before, prefix, resource, after].concat();
        let key = before.len()..channel.len() - after.len();
        Self { channel, key, prefix: prefix.len() }
    }

    /// The key on the server: prefix and resource.
    pub(crate) fn full(&self) -> &str {
        &self.channel[self.key.clone()]
    }

    /// The name as the caller gave it.
    pub(crate) fn resource(&self) -> &str {
        &self.full()[self.prefix..]
    }

    /// Where unlock messages are published.
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }
}

/// Any characters, but 1 to 1,024 bytes.
pub(crate) fn check_name(resource: &str) -> Result<()> {
    match resource.len() {
        0 => Err(Error::config("the name of a lock is empty: give it 1 to 1,024 bytes")),
        1..=LONGEST_NAME => Ok(()),
        long => Err(Error::config(format!("the name of a lock has {long} bytes: give it 1 to 1,024 bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_follow_the_brace_rule() {
        let channel = |naming: Naming, name| Key::new(naming, "", name).channel().to_owned();
        assert_eq!(channel(Naming::Redisson, "n"), "redisson_lock__channel:{n}");
        assert_eq!(channel(Naming::Redisson, "{a}b"), "redisson_lock__channel:{a}b");
        assert_eq!(channel(Naming::Jedis, "{a}b"), "__red__lock:{a}b");
    }

    #[test]
    fn a_prefix_comes_before_the_rules() {
        let key = Key::new(Naming::Redisson, "shop:", "order");
        assert_eq!((key.full(), key.resource()), ("shop:order", "order"));
        assert_eq!(key.channel(), "redisson_lock__channel:{shop:order}");
    }

    #[test]
    fn names_have_1_to_1024_bytes() {
        assert!(check_name("").is_err());
        assert!(check_name(&"x".repeat(1_024)).is_ok());
        assert!(check_name(&"x".repeat(1_025)).is_err());
        assert!(check_name("{}\r\n\0").is_ok());
    }
}
