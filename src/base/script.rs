//! Scripts: Lua files that lie beside the Rust file that runs them. They are joined with what several of them begin with, and with
//! the wrappers around them.

mod preludes;

use crate::base::mutant;
use once_cell::sync::OnceCell;

/// A script, with the counts that the headers of its files promise.
pub(crate) struct Script {
    name: &'static str,
    /// Around each other, the outermost first.
    wrappers: &'static [&'static Wrapper],
    file: &'static str,
    keys: Count,
    args: Count,
    /// By their dialects.
    text: [OnceCell<String>; 2],
    by_sha: [OnceCell<String>; 2],
}

/// A Lua file that runs another one as `inner`. It has so many arguments of its own, right behind the deadline.
pub(crate) struct Wrapper {
    pub(crate) file: &'static str,
    pub(crate) args: usize,
}

/// A script, and in strict mode the same in a wrapper.
pub(crate) struct Modes {
    pub(crate) plain: Script,
    pub(crate) strict: Script,
}

impl Modes {
    pub(crate) fn of(&self, strict: bool) -> &Script {
        if strict { &self.strict } else { &self.plain }
    }
}

/// How a script tells those who listen, and counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// On channels that all nodes of a deployment have in common.
    Plain,
    /// On those of one shard of a cluster.
    Sharded,
}

/// Each in the words of both dialects.
const WORDS: [(&str, &str); 2] = [("'PUBLISH'", "'SPUBLISH'"), ("'NUMSUB'", "'SHARDNUMSUB'")];

impl Dialect {
    fn translate(self, text: String) -> String {
        match self {
            Self::Plain => text,
            Self::Sharded => WORDS.iter().fold(text, |text, (plain, sharded)| text.replace(plain, sharded)),
        }
    }
}

/// How many keys or arguments a script takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
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

/// Declares scripts of a module: `NAME = "file.lua", keys, args;`, or with a wrapper for strict mode
/// `NAME = "file.lua", keys, args, strict: WRAPPER;`. The paths start at the module's own file. A test compares the counts with the files.
macro_rules! scripts {
    ($($(#[$doc:meta])* $id:ident = $file:literal, $keys:expr, $args:expr $(, strict: $strict:path)?;)*) => {
        $($crate::base::script::scripts!(@one $(#[$doc])* $id = $file, $keys, $args $(, strict: $strict)?);)*

        #[cfg(test)]
        mod scripts {
            #[test]
            fn headers_bodies_and_counts_agree() {
                $($crate::base::script::tests::Checked::check(&super::$id);)*
            }
        }
    };
    (@one $(#[$doc:meta])* $id:ident = $file:literal, $keys:expr, $args:expr) => {
        $(#[$doc])*
        static $id: $crate::base::script::Script =
            $crate::base::script::Script::new(stringify!($id), &[], include_str!($file), $keys, $args);
    };
    (@one $(#[$doc:meta])* $id:ident = $file:literal, $keys:expr, $args:expr, strict: $strict:path) => {
        $(#[$doc])*
        static $id: $crate::base::script::Modes = {
            use $crate::base::script::{Modes, Script};
            let (plain, strict) = (stringify!($id), concat!(stringify!($id), "_STRICT"));
            Modes {
                plain: Script::new(plain, &[], include_str!($file), $keys, $args),
                strict: Script::new(strict, &[&$strict], include_str!($file), $keys, $args),
            }
        };
    };
}
pub(crate) use scripts;

impl Script {
    pub(crate) const fn new(
        name: &'static str,
        wrappers: &'static [&'static Wrapper],
        file: &'static str,
        keys: Count,
        args: Count,
    ) -> Self {
        let text = [OnceCell::new(), OnceCell::new()];
        let by_sha = [OnceCell::new(), OnceCell::new()];
        Self { name, wrappers, file, keys, args, text, by_sha }
    }

    fn files(&self) -> Vec<&'static str> {
        self.wrappers.iter().map(|wrapper| wrapper.file).chain([self.file]).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn is_wrapped(&self) -> bool {
        !self.wrappers.is_empty()
    }

    pub(crate) fn text(&self, dialect: Dialect) -> &str {
        self.text[dialect as usize]
            .get_or_init(|| dialect.translate(mutant::text(self.name, preludes::join(&self.files()))))
    }

    /// How a call of it by its hash begins on the wire: two strings, always the same.
    pub(crate) fn by_sha(&self, dialect: Dialect) -> &str {
        self.by_sha[dialect as usize].get_or_init(|| {
            let script = redis::Script::new(self.text(dialect));
            let sha = script.get_hash();
            format!("$7\r\nEVALSHA\r\n${}\r\n{sha}\r\n", sha.len())
        })
    }

    /// Whether a call has as many keys and arguments as the headers of its files say.
    pub(crate) fn fits(&self, keys: usize, args: usize) -> bool {
        let of_wrappers: usize = self.wrappers.iter().map(|wrapper| wrapper.args).sum();
        self.keys.allows(keys) && args.checked_sub(of_wrappers).is_some_and(|args| self.args.allows(args))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Count::{AtLeast, Exactly};
    use super::*;

    /// The highest N of `KEYS[N]` or `ARGV[N]` in the lines of a file that `part` selects.
    fn highest(file: &str, table: &str, part: fn(&str) -> bool) -> usize {
        let lines = file.lines().filter(|line| part(line));
        let numbers = lines.flat_map(|line| line.split(table).skip(1).filter_map(|rest| rest.split(']').next()));
        numbers.filter_map(|number| number.parse().ok()).max().unwrap_or(0)
    }

    fn least(count: Count) -> usize {
        match count {
            Exactly(count) | AtLeast(count) => count,
        }
    }

    /// What each script of a module has to keep to.
    pub(crate) trait Checked {
        fn check(&self);
    }

    impl Checked for Script {
        fn check(&self) {
            headers_bodies_and_counts_agree(self);
            arguments_are_named_once(self);
            a_deadline_comes_first(self);
        }
    }

    impl Checked for Modes {
        fn check(&self) {
            self.plain.check();
            self.strict.check();
        }
    }

    fn headers_bodies_and_counts_agree(script: &Script) {
        let header = |line: &str| line.starts_with("--");
        let body = |line: &str| !line.starts_with("--");
        // A deadline is looked at by a prelude.
        let in_body = |file| highest(&preludes::join(&[file]), "ARGV[", body);
        for wrapper in script.wrappers {
            assert_eq!(
                highest(wrapper.file, "ARGV[", header),
                1 + wrapper.args,
                "header of a wrapper of {}",
                script.name
            );
            assert_eq!(in_body(wrapper.file), 1 + wrapper.args, "body of a wrapper of {}", script.name);
            let keys = highest(wrapper.file, "KEYS[", body);
            assert!(keys <= least(script.keys), "keys of a wrapper of {}", script.name);
            let runs = format!("inner(KEYS, inside(ARGV, {}))", wrapper.args);
            assert!(wrapper.file.contains(&runs), "a wrapper of {} has no {runs}", script.name);
        }
        assert_eq!(highest(script.file, "ARGV[", header), least(script.args), "header of {}", script.name);
        if let Exactly(keys) = script.keys {
            assert_eq!(highest(script.file, "KEYS[", header), keys, "header of {}", script.name);
            assert_eq!(highest(script.file, "KEYS[", body), keys, "body of {}", script.name);
        }
        if let Exactly(args) = script.args {
            assert_eq!(in_body(script.file), args, "body of {}", script.name);
        }
        let replies = script.files().iter().all(|file| file.contains("\n-- reply "));
        assert!(replies, "{} does not say its reply", script.name);
    }

    fn arguments_are_named_once(script: &Script) {
        let mut uses =
            script.text(Dialect::Plain).lines().filter(|line| !line.starts_with("--") && line.contains("ARGV["));
        assert!(uses.all(|line| line.trim_start().starts_with("local")), "{}", script.name);
    }

    /// A file that begins with the stale check says so among its arguments, and no file looks at the clock by itself, but for a
    /// release that leaves the lock to a writer until then, or gives it with a token. A wrapper hands its deadline on, so all files of a
    /// script have one.
    fn a_deadline_comes_first(script: &Script) {
        let says = |text: &str| text.lines().any(|line| line.starts_with("-- ARGV[1]  deadline of this attempt"));
        let asks = script.text(Dialect::Plain).matches("'TIME'").count();
        let looks = ["function leave_to_next_writer", "local function minted()"];
        let leaves = looks.iter().any(|part| script.text(Dialect::Plain).contains(part));
        assert!(asks <= 1, "{} asks for the time more than once", script.name);
        let all_say = script.files().into_iter().all(says);
        assert_eq!(all_say || leaves, asks == 1, "deadline of {}", script.name);
        assert!(all_say || !script.is_wrapped(), "deadline of the files of {}", script.name);
    }

    #[test]
    fn preludes_come_first_and_once() {
        let (one, other) = ("-- preludes stale, tell\nONE\n", "-- preludes held, stale\nOTHER\n");
        let joined = preludes::join(&[one, other]);
        let at = |text: &str| {
            assert_eq!(joined.matches(text).count(), 1, "{text} in {joined}");
            joined.find(text).unwrap()
        };
        let order = ["redis.call('TIME')", "local function tell(", "local function held(", "\nOTHER", "\nONE"].map(at);
        assert!(order.is_sorted(), "{joined}");
        assert_eq!(preludes::join(&["return 1"]), "return 1");
    }

    #[test]
    fn what_is_inside_is_a_function_of_its_own() {
        let joined = preludes::join(&["outer\n", "middle", "inmost\n"]);
        let function = |body| format!("local inner = function(KEYS, ARGV)\n{body}\nend\n");
        assert_eq!(joined, [&function("inmost"), &function("middle"), "outer\n"].concat());
    }

    #[test]
    #[should_panic(expected = "there is no prelude state")]
    fn a_prelude_that_is_not_there_is_said() {
        preludes::join(&["-- preludes state\n"]);
    }

    #[test]
    fn hashes_are_of_the_text() {
        let script = |text| Script::new("ANY", &[], text, Exactly(0), Exactly(0));
        let (one, other) = (script("return 1"), script("return 2"));
        assert!(one.by_sha(Dialect::Plain).ends_with(&format!("{}\r\n", redis::Script::new("return 1").get_hash())));
        assert!(other.by_sha(Dialect::Plain).ends_with(&format!("{}\r\n", redis::Script::new("return 2").get_hash())));
    }

    #[test]
    fn counts_allow_what_they_say() {
        static WRAPPERS: [&Wrapper; 1] = [&Wrapper { file: "", args: 2 }];
        let script = |wrappers, keys, args| Script::new("ANY", wrappers, "", keys, args);
        let (many, one) = (script(&[], AtLeast(1), AtLeast(3)), script(&[], Exactly(1), Exactly(3)));
        assert!(many.fits(100, 102) && !many.fits(0, 2));
        assert!(one.fits(1, 3) && !one.fits(1, 4));
        let wrapped = script(&WRAPPERS, Exactly(1), Exactly(3));
        assert!(wrapped.fits(1, 5) && !wrapped.fits(1, 3) && !wrapped.fits(1, 1));
    }

    #[test]
    fn a_shard_is_told_by_its_own_commands() {
        let script =
            Script::new("ANY", &[], "return redis.call('PUBLISH', 'PUBSUB', 'NUMSUB')", Exactly(0), Exactly(0));
        assert_eq!(script.text(Dialect::Sharded), "return redis.call('SPUBLISH', 'PUBSUB', 'SHARDNUMSUB')");
        assert_ne!(script.by_sha(Dialect::Plain), script.by_sha(Dialect::Sharded));
    }
}
