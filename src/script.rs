//! The text of every script, and what its file says of its keys and arguments.

use crate::mutant;
use once_cell::sync::Lazy;
use std::borrow::Cow;

/// One Lua file, with the counts that its header promises.
pub(crate) struct Script {
    name: &'static str,
    text: Lazy<Cow<'static, str>>,
    by_sha: Lazy<String>,
    keys: Count,
    args: Count,
}

/// How many keys or arguments a script takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    Exactly(usize),
    AtLeast(usize),
}

impl Count {
    fn allows(self, number: usize) -> bool {
        match self {
            Self::Exactly(count) => number == count,
            Self::AtLeast(count) => number >= count,
        }
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $id:ident = $($file:literal)/+, $keys:expr, $args:expr;)*) => {
        $($(#[$doc])*
        pub(crate) static $id: Script = Script {
            name: stringify!($id),
            text: Lazy::new(|| mutant::text(stringify!($id), concat!($(include_str!(concat!("lua/", $file, ".lua"))),+))),
            by_sha: Lazy::new(|| by_sha(redis::Script::new(&$id.text).get_hash())),
            keys: $keys,
            args: $args,
        };)*
        #[cfg(test)]
        static ALL: &[&Script] = &[$(&$id),*];
    };
}

scripts! {
    /// Reply: nil (acquired) or the holder's PTTL in ms.
    ACQUIRE = "acquire", Count::Exactly(1), Count::Exactly(4);
    /// Reply: that of acquire, or an array with the ms left of the quarantine.
    ACQUIRE_STRICT = "quarantine" / "acquire", Count::Exactly(2), Count::Exactly(6);
    /// Reply: 1 or 0 (lost).
    REENTER = "reenter", Count::Exactly(1), Count::Exactly(4);
    /// Reply: 1 or 0 (lost) for each key.
    RENEW = "renew", Count::AtLeast(1), Count::AtLeast(3);
    /// Reply: 1, 2 (not published), 0 (not the owner), or two more than were told.
    RELEASE = "release", Count::Exactly(1), Count::Exactly(3);
    /// Reply: 1, 2 (not published) or 0 (was free).
    FORCE_UNLOCK = "force_unlock", Count::Exactly(1), Count::Exactly(1);
    /// Reply: 0 (acquired) or the number of a key that is taken, from 1.
    ACQUIRE_GROUP = "acquire_group", Count::AtLeast(1), Count::AtLeast(3);
    /// Reply: 1, 2 (not published) or 0 (not the owner) for each key.
    RELEASE_GROUP = "release_group", Count::AtLeast(1), Count::AtLeast(2);
}

impl Script {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// How a call of it by its hash begins on the wire: two strings, always the same.
    pub(crate) fn by_sha(&self) -> &str {
        &self.by_sha
    }

    /// Whether a call has as many keys and arguments as the script's header says.
    pub(crate) fn fits(&self, keys: usize, args: usize) -> bool {
        self.keys.allows(keys) && self.args.allows(args)
    }
}

fn by_sha(sha: &str) -> String {
    format!("$7\r\nEVALSHA\r\n${}\r\n{sha}\r\n", sha.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest N of `KEYS[N]` or `ARGV[N]` in the lines that `part` selects.
    fn highest(script: &Script, table: &str, part: fn(&str) -> bool) -> usize {
        let lines = script.text.lines().filter(|line| part(line));
        let numbers = lines.flat_map(|line| line.split(table).skip(1).filter_map(|rest| rest.split(']').next()));
        numbers.filter_map(|number| number.parse().ok()).max().unwrap_or(0)
    }

    fn least(count: Count) -> usize {
        match count {
            Count::Exactly(count) | Count::AtLeast(count) => count,
        }
    }

    #[test]
    fn headers_bodies_and_counts_agree() {
        for script in ALL {
            let header = |line: &str| line.starts_with("--");
            let body = |line: &str| !line.starts_with("--");
            assert_eq!(highest(script, "ARGV[", header), least(script.args), "header of {}", script.name);
            if let Count::Exactly(keys) = script.keys {
                assert_eq!(highest(script, "KEYS[", header), keys, "header of {}", script.name);
                assert_eq!(highest(script, "KEYS[", body), keys, "body of {}", script.name);
                assert_eq!(highest(script, "ARGV[", body), least(script.args), "body of {}", script.name);
            }
            assert!(script.text.contains("-- reply"), "{} does not say its reply", script.name);
        }
    }

    #[test]
    fn arguments_are_named_once() {
        for script in ALL {
            let uses = script.text.lines().filter(|line| !line.starts_with("--") && line.contains("ARGV["));
            assert!(uses.clone().all(|line| line.trim_start().starts_with("local")), "{}", script.name);
        }
    }

    #[test]
    fn hashes_are_of_the_text() {
        assert!(ACQUIRE.by_sha().ends_with(&format!("{}\r\n", redis::Script::new(ACQUIRE.text()).get_hash())));
        assert_ne!(ACQUIRE.by_sha(), RELEASE.by_sha());
    }

    #[test]
    fn counts_allow_what_they_say() {
        assert!(RENEW.fits(100, 102) && !RENEW.fits(0, 2));
        assert!(RELEASE.fits(1, 3) && !RELEASE.fits(1, 4));
    }
}
