//! The shape of the source: layers, lengths of files and functions, nothing left undone.

mod layers;
mod named;
mod parts;

use crate::lua;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 700;
const MEDIAN_FUNCTION: usize = 8;

fn root() -> PathBuf {
    PathBuf::from(harness::ROOT)
}

/// Every Rust file below a folder, with its text.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

fn source() -> Vec<(PathBuf, String)> {
    files(&root().join("src"))
}

/// The source and its tests.
fn everything() -> Vec<(PathBuf, String)> {
    let all = [source(), files(&root().join("tests"))].concat();
    assert!(all.len() > 30, "the files were not found");
    all
}

/// The lines of a file that are code.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// Each script lies in a folder beside the file that runs it. The folder has the name of that file.
#[test]
fn every_script_is_declared_beside_it() {
    for (path, _) in lua::files() {
        let folder = path.parent().unwrap();
        let text = std::fs::read_to_string(folder.with_extension("rs")).unwrap();
        let declared = format!("\"{}\"", path.strip_prefix(folder.parent().unwrap()).unwrap().display());
        assert!(text.contains(&declared), "{} is not in the file beside it", path.display());
    }
}

#[test]
fn files_are_short() {
    for (path, text) in everything() {
        let lines = text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines", path.display());
    }
}

#[test]
fn nothing_is_left_undone() {
    let signs = [
        concat!("to", "do!"),
        concat!("un", "implemented!"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("#[ig", "nore"),
        concat!("db", "g!("),
    ];
    for (path, text) in everything() {
        for sign in signs {
            assert!(!text.contains(sign), "{} has {sign}", path.display());
        }
    }
}

/// The number of lines of each function, signature and closing brace included. Test modules are left out.
fn functions(text: &str) -> Vec<usize> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines: Vec<_> = text.lines().collect();
    (0..lines.len()).filter(|&at| starts_function(lines[at])).filter_map(|at| length_from(&lines[at..])).collect()
}

fn starts_function(line: &str) -> bool {
    let line = line.trim_start();
    let bare = ["pub(crate) ", "pub(super) ", "pub "].iter().find_map(|front| line.strip_prefix(front)).unwrap_or(line);
    bare.strip_prefix("const ").unwrap_or(bare).starts_with("fn ")
}

/// Goes by rustfmt's indentation: a function ends at the first closing brace that is indented as its signature is.
/// `None` for a function without a body.
fn length_from(lines: &[&str]) -> Option<usize> {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let head = lines.iter().position(|line| line.ends_with(['{', '}', ';']))?;
    if lines[head].ends_with(';') {
        return None;
    }
    if lines[head].ends_with('}') {
        return Some(head + 1);
    }
    let end = format!("{}}}", " ".repeat(indent));
    lines.iter().position(|line| *line == end).map(|last| last + 1)
}

#[test]
fn the_parser_of_functions_knows_their_forms() {
    let text = "fn a() {\n    1\n}\n    fn b();\nimpl X {\n    pub(crate) const fn c(\n    ) {\n        if x {\n        }\n    }\n\
                    fn d() {}\n}\n#[cfg(test)]\nmod tests {\n    fn e() {}\n}";
    assert_eq!(functions(text), [3, 5, 1]);
}

#[test]
fn the_median_function_is_short() {
    let mut lengths: Vec<_> = source().iter().flat_map(|(_, text)| functions(text)).collect();
    lengths.sort_unstable();
    assert!(lengths.len() > 100, "the functions were not found");
    let median = lengths[lengths.len() / 2];
    assert!(median <= MEDIAN_FUNCTION, "the median of {} functions is {median} lines", lengths.len());
}

/// Every test that `docs/bugs-found.md` names must exist, or be a trial that pairs of faults play first.
#[test]
fn the_tests_that_keep_bugs_away_exist() {
    let text = std::fs::read_to_string(root().join("docs/bugs-found.md")).unwrap();
    let all = everything().into_iter().chain(files(&root().join("tool/tests")));
    let all: String = all.map(|(_, text)| text).collect();
    let trials = std::fs::read_to_string(root().join("tests/faults/pairs/found.txt")).unwrap();
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() > 20, "the rows were not found");
    for row in rows {
        let kept = row.rsplit("| ").next().unwrap();
        let test = kept.split('`').nth(1).unwrap_or_else(|| panic!("no test: {row}"));
        let name = test.rsplit("::").next().unwrap().trim_end_matches('*');
        let exists = all.contains(&format!("fn {name}")) || trials.lines().any(|trial| trial == test);
        assert!(exists, "{test} does not exist");
    }
}

/// The lines that this code logs as error, warn or info: the longest piece of each text between two values.
fn logged(text: &str) -> Vec<&str> {
    let lines = text.split("say!(").skip(1).map(str::trim_start);
    let texts = lines.filter(|line| ["error", "warn", "info"].iter().any(|level| line.starts_with(level)));
    let texts = texts.map(|rest| rest.split('"').nth(1).unwrap());
    let pieces = texts.map(|text| text.split(['{', '}']).step_by(2).max_by_key(|piece| piece.len()).unwrap());
    pieces.map(|piece| piece.trim_matches([' ', ':', ','])).collect()
}

/// A logger that panics must not change what happens to a lock.
#[test]
fn every_line_is_logged_by_say() {
    for (path, text) in source().iter().filter(|(path, _)| !path.ends_with("src/base/say.rs")) {
        assert!(!code(text).any(|line| line.contains("log::")), "{} logs by itself", path.display());
    }
}

/// The page behind each link and each label exists. Each label also has its module in the crate's documentation.
#[test]
fn every_link_between_pages_leads_somewhere() {
    let folders = ["", "docs"].map(|folder| root().join(folder));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let pages: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    assert!(pages.len() > 20, "the pages were not found");
    let modules = std::fs::read_to_string(root().join("src/docs/links.md")).unwrap();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let inline = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        let labels: Vec<_> = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).collect();
        let is_local = |target: &&str| !target.contains("://") && !target.starts_with('#');
        for target in inline.chain(labels.iter().map(|(_, target)| *target)).filter(is_local) {
            let file = page.parent().unwrap().join(target.split('#').next().unwrap());
            assert!(file.exists(), "{}: {target}", page.display());
        }
        for (label, _) in labels {
            assert!(modules.contains(&format!("[{label}]: ")), "src/docs/links.md does not have {label}");
        }
    }
}

/// A person on call has to find each line of the log explained.
#[test]
fn every_warning_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/on-call.md")).unwrap();
    let source = source();
    let logged: Vec<_> = source.iter().flat_map(|(_, text)| logged(text)).collect();
    assert!(logged.len() > 20, "the lines were not found");
    for line in logged {
        assert!(page.contains(line), "docs/on-call.md does not explain {line:?}");
    }
}

/// If a user has the permissions that the documentation lists, no script is refused halfway.
#[test]
fn every_command_of_a_script_is_among_the_permissions() {
    let page = std::fs::read_to_string(root().join("docs/permissions.md")).unwrap();
    let rules: Vec<_> = page.lines().filter(|line| line.starts_with("ACL SETUSER app on")).take(3).collect();
    // The permissions that some kinds and strict clients need besides.
    let (_, beside) = page.split_once("## What to add to the line").unwrap();
    let (beside, _) = beside.split_once("## What a missing rule costs").unwrap();
    let is_of_kind = |(path, _): &(PathBuf, String)| {
        let is_below = |folder| path.components().any(|part| part.as_os_str() == folder);
        is_prelude_of_kinds(path) || is_below("kinds") || is_below("permits")
    };
    // Programs do not look from outside: docs/tool.md has a line for who does, which a test of the tool tries.
    let scripts =
        lua::files().into_iter().filter(|(path, _)| !path.components().any(|part| part.as_os_str() == "inspect"));
    let (of_kinds, of_all): (Vec<_>, Vec<_>) = scripts.partition(is_of_kind);
    let (of_kinds, of_all) = (commands_in(&of_kinds), commands_in(&of_all));
    assert!(rules.len() == 3 && of_all.len() > 15, "{of_all:?}");
    for (command, is_of_all) in of_all.iter().map(|one| (one, true)).chain(of_kinds.iter().map(|one| (one, false))) {
        let names = |text: &str| text.split([' ', '`', '\n']).any(|word| word.strip_prefix('+') == Some(command));
        let is_named = |rule: &&&str| names(rule) || (!is_of_all && names(beside));
        let missing = rules.iter().find(|rule| !is_named(rule));
        assert_eq!(missing, None, "+{command} is not there");
    }
}

fn is_prelude_of_kinds(path: &Path) -> bool {
    [
        "readers.lua",
        "readers_turn.lua",
        "writer_left.lua",
        "next_writer.lua",
        "next_token.lua",
        "epoch.lua",
        "serve.lua",
        "number_of.lua",
        "reclaim.lua",
        "places.lua",
        "once.lua",
    ]
    .iter()
    .any(|prelude| path.ends_with(prelude))
}

fn commands_in(scripts: &[(PathBuf, String)]) -> BTreeSet<String> {
    let calls = scripts.iter().flat_map(|(_, text)| text.split("redis.").skip(1));
    let calls = calls.filter_map(|call| call.split_once("call('"));
    calls.map(|(_, name)| name.split('\'').next().unwrap().to_lowercase()).collect()
}
