//! Scripts: Lua files beside the Rust file that runs them. Rust joins each with its preludes and its wrappers.

mod preludes;

use crate::base::mutant;
use once_cell::sync::OnceCell;

/// A script, with the counts that its files' headers state.
pub(crate) struct Script {
    name: &'static str,
    file: &'static str,
    keys: Count,
    args: Count,
    /// The wrapper of a call that queues, and the wrapper around both in strict mode.
    queued: Option<&'static Wrapper>,
    strict: Option<&'static Wrapper>,
    /// The text by form and dialect.
    text: [[OnceCell<String>; 2]; FORMS],
    by_sha: [[OnceCell<String>; 2]; FORMS],
}

/// A Lua file that runs another one as `inner`. It has `args` arguments of its own, right behind the deadline.
pub(crate) struct Wrapper {
    pub(crate) file: &'static str,
    pub(crate) args: usize,
}

/// The wrappers in which a script is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Form {
    pub(crate) queued: bool,
    pub(crate) strict: bool,
}

const FORMS: usize = 4;

impl Form {
    fn index(self) -> usize {
        usize::from(self.queued) + 2 * usize::from(self.strict)
    }

    /// The end of a script's name in this form.
    fn suffix(self) -> &'static str {
        ["", "_IN_TURN", "_STRICT", "_IN_TURN_STRICT"][self.index()]
    }
}

/// How a script publishes, and counts listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// On channels of all nodes.
    Plain,
    /// On channels of one shard of a cluster.
    Sharded,
}

/// The commands in both dialects.
const WORDS: [(&str, &str); 2] = [("'PUBLISH'", "'SPUBLISH'"), ("'NUMSUB'", "'SHARDNUMSUB'")];

impl Dialect {
    /// The command that publishes.
    pub(crate) fn publish(self) -> &'static str {
        if self == Self::Sharded { "SPUBLISH" } else { "PUBLISH" }
    }

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

/// Declares the scripts of a module: `NAME = "file.lua", keys, args;`. Then `, queued: WRAPPER` may follow for an acquire that may queue,
/// and `, strict: WRAPPER` for a script that differs in strict mode. Paths start at the module's own file. A test compares the counts with
/// the files.
macro_rules! scripts {
    ($($(#[$doc:meta])* $id:ident = $file:literal, $keys:expr, $args:expr
        $(, queued: $queued:path)? $(, strict: $strict:path)?;)*) => {
        $($(#[$doc])*
        static $id: $crate::base::script::Script =
            $crate::base::script::Script::new(stringify!($id), include_str!($file), $keys, $args)
                $(.queued(&$queued))? $(.strict(&$strict))?;)*

        #[cfg(test)]
        mod scripts {
            #[test]
            fn headers_bodies_and_counts_agree() {
                $($crate::base::script::tests::check(&super::$id);)*
            }
        }
    };
}
pub(crate) use scripts;

impl Script {
    pub(crate) const fn new(name: &'static str, file: &'static str, keys: Count, args: Count) -> Self {
        let text = [const { [const { OnceCell::new() }; 2] }; FORMS];
        let by_sha = [const { [const { OnceCell::new() }; 2] }; FORMS];
        Self { name, file, keys, args, queued: None, strict: None, text, by_sha }
    }

    pub(crate) const fn queued(mut self, by: &'static Wrapper) -> Self {
        self.queued = Some(by);
        self
    }

    pub(crate) const fn strict(mut self, by: &'static Wrapper) -> Self {
        self.strict = Some(by);
        self
    }

    /// Whether strict mode has another form of the script.
    pub(crate) fn has_strict_form(&self) -> bool {
        self.strict.is_some()
    }

    /// The wrappers of a form, the outermost first.
    fn wrappers(&self, form: Form) -> impl Iterator<Item = &'static Wrapper> {
        self.strict.filter(|_| form.strict).into_iter().chain(self.queued.filter(|_| form.queued))
    }

    fn files(&self, form: Form) -> Vec<&'static str> {
        self.wrappers(form).map(|wrapper| wrapper.file).chain([self.file]).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn text(&self, form: Form, dialect: Dialect) -> &str {
        self.text[form.index()][dialect as usize].get_or_init(|| {
            let name = [self.name, form.suffix()].concat();
            dialect.translate(mutant::text(&name, preludes::join(&self.files(form))))
        })
    }

    /// The start of a call by hash on the wire: two strings, always the same.
    pub(crate) fn by_sha(&self, form: Form, dialect: Dialect) -> &str {
        self.by_sha[form.index()][dialect as usize].get_or_init(|| {
            let script = redis::Script::new(self.text(form, dialect));
            let sha = script.get_hash();
            format!("$7\r\nEVALSHA\r\n${}\r\n{sha}\r\n", sha.len())
        })
    }

    /// Whether a call has as many keys and arguments as the files' headers say. `around` arguments are for the wrappers.
    pub(crate) fn fits(&self, form: Form, keys: usize, around: usize, args: usize) -> bool {
        let of_wrappers: usize = self.wrappers(form).map(|wrapper| wrapper.args).sum();
        self.keys.allows(keys) && around == of_wrappers && self.args.allows(args)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Count::{AtLeast, Exactly};
    use super::*;

    /// The highest N of `KEYS[N]` or `ARGV[N]` in those lines of a file that `part` selects.
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

    /// The rules for each script of a module.
    pub(crate) fn check(script: &Script) {
        headers_bodies_and_counts_agree(script);
        for form in forms(script) {
            arguments_are_named_once(script, form);
            a_deadline_comes_first(script, form);
        }
    }

    fn forms(script: &Script) -> impl Iterator<Item = Form> {
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let all = all.map(|(queued, strict)| Form { queued, strict });
        let has = [script.queued.is_some(), script.strict.is_some()];
        all.into_iter().filter(move |form| form.queued <= has[0] && form.strict <= has[1])
    }

    fn headers_bodies_and_counts_agree(script: &Script) {
        let header = |line: &str| line.starts_with("--");
        let body = |line: &str| !line.starts_with("--");
        // A prelude reads the deadline.
        let in_body = |file| highest(&preludes::join(&[file]), "ARGV[", body);
        let all = Form { queued: true, strict: true };
        for wrapper in script.wrappers(all) {
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
        let replies = script.files(all).iter().all(|file| file.contains("\n-- reply "));
        assert!(replies, "{} does not say its reply", script.name);
    }

    fn arguments_are_named_once(script: &Script, form: Form) {
        let mut uses =
            script.text(form, Dialect::Plain).lines().filter(|line| !line.starts_with("--") && line.contains("ARGV["));
        assert!(uses.all(|line| line.trim_start().starts_with("local")), "{} {form:?}", script.name);
    }

    /// A file with the stale check lists the deadline first among its arguments, and no file reads the clock itself. Exceptions: what serves a
    /// queue of threads, and a release that leaves the lock to a writer for a time, or gives it with a token. A wrapper hands its deadline on,
    /// so all files of a script have one.
    fn a_deadline_comes_first(script: &Script, form: Form) {
        let says = |text: &str| text.lines().any(|line| line.starts_with("-- ARGV[1]  deadline of this attempt"));
        let text = script.text(form, Dialect::Plain);
        let asks = text.matches("'TIME'").count();
        let looks = ["function leave_to_next_writer", "local function minted()", "local function serve_now("];
        let leaves = looks.iter().any(|part| text.contains(part));
        assert!(asks <= 1, "{} asks for the time more than once", script.name);
        let all_say = script.files(form).into_iter().all(says);
        assert_eq!(all_say || leaves, asks == 1, "deadline of {}", script.name);
        assert!(all_say || form == Form::default(), "deadline of the files of {}", script.name);
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

    const PLAIN: Form = Form { queued: false, strict: false };

    #[test]
    fn hashes_are_of_the_text() {
        let script = |text| Script::new("ANY", text, Exactly(0), Exactly(0));
        let (one, other) = (script("return 1"), script("return 2"));
        let hash = |text: &str| format!("{}\r\n", redis::Script::new(text).get_hash());
        assert!(one.by_sha(PLAIN, Dialect::Plain).ends_with(&hash("return 1")));
        assert!(other.by_sha(PLAIN, Dialect::Plain).ends_with(&hash("return 2")));
    }

    #[test]
    fn each_form_has_a_text_and_a_count_of_its_own() {
        static OUTER: Wrapper = Wrapper { file: "outer", args: 3 };
        static INNER: Wrapper = Wrapper { file: "middle", args: 5 };
        let script = Script::new("ANY", "inmost", Exactly(1), Exactly(2)).queued(&INNER).strict(&OUTER);
        let texts: Vec<_> = forms(&script).map(|form| script.text(form, Dialect::Plain)).collect();
        let wrapped =
            |text: &str, inner: &str| [&format!("local inner = function(KEYS, ARGV)\n{inner}\nend\n"), text].concat();
        assert_eq!(texts[..3], ["inmost", &wrapped("middle", "inmost"), &wrapped("outer", "inmost")]);
        assert!(texts[3].ends_with("outer") && texts[3].contains("middle") && texts[3].contains("inmost"));
        let around = |form| (0..9).filter(|around| script.fits(form, 1, *around, 2)).collect::<Vec<_>>();
        let counts: Vec<_> = forms(&script).map(around).collect();
        assert_eq!(counts, [vec![0], vec![5], vec![3], vec![8]]);
    }

    #[test]
    fn counts_allow_what_they_say() {
        let script = |keys, args| Script::new("ANY", "", keys, args);
        let (many, one) = (script(AtLeast(1), AtLeast(3)), script(Exactly(1), Exactly(3)));
        assert!(many.fits(PLAIN, 100, 0, 102) && !many.fits(PLAIN, 0, 0, 2));
        assert!(one.fits(PLAIN, 1, 0, 3) && !one.fits(PLAIN, 1, 0, 4));
    }

    #[test]
    fn a_shard_is_told_by_its_own_commands() {
        let script = Script::new("ANY", "return redis.call('PUBLISH', 'PUBSUB', 'NUMSUB')", Exactly(0), Exactly(0));
        assert_eq!(script.text(PLAIN, Dialect::Sharded), "return redis.call('SPUBLISH', 'PUBSUB', 'SHARDNUMSUB')");
        assert_ne!(script.by_sha(PLAIN, Dialect::Plain), script.by_sha(PLAIN, Dialect::Sharded));
    }
}
