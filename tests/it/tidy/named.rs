//! The places that have to name each kind, each name of a key and each deployment: a test says which place lacks which.

use super::{files, root};

/// A place, and what it has to say of a kind.
struct Place(&'static str, &'static str);

/// The places for each kind.
const ALWAYS: &[Place] = &[
    Place("src/lib.rs", "its export, and its row in the table of kinds"),
    Place("README.md", "its row in the table of kinds"),
    Place("CHANGELOG.md", "that it is new"),
    Place("docs/kinds.md", "when it is the right one, and when it is not"),
    Place("tests/it/compiler/traits.rs", "its line among the types that are shared"),
];

/// The place for each kind that is a lock.
const OF_A_LOCK: Place = Place("tests/it/conformance.rs", "its line in the table of kinds, or with a place of its own");

/// The kinds that are no locks, each with the place of its tests: the table of conformance is one of locks.
const NO_LOCKS: &[(&str, Place)] = &[
    ("Semaphore", Place("tests/it/semaphores.rs", "its tests")),
    ("LeasedSemaphore", Place("tests/it/semaphores.rs", "its tests")),
    ("CountDownLatch", Place("tests/it/latch.rs", "its tests")),
];

/// The places for each kind with a server.
const WITH_A_SERVER: &[Place] = &[
    Place("docs/coming-from.md", "what it is called elsewhere"),
    Place("docs/permissions.md", "what its users need to be granted"),
    Place("tests/permissions/calls.rs", "its calls, whose rules are taken away one by one"),
];

/// The types in `src/lock/kinds` that a program can make.
fn kinds() -> Vec<String> {
    let all: Vec<_> = files(&root().join("src/lock/kinds")).into_iter().map(|(_, text)| text).collect();
    let types = all.iter().flat_map(|text| text.split("\npub struct ").skip(1).map(move |rest| (text, rest)));
    let is_made = |text: &str, name: &str| {
        let own = text.split(&format!("\nimpl {name} {{\n")).nth(1).map(|rest| rest.split("\n}\n").next().unwrap());
        own.is_some_and(|own| ["fn new(", "fn connect"].iter().any(|made| own.contains(made)))
    };
    let named = types.map(|(text, rest)| (text, rest.split([' ', '<']).next().unwrap().to_owned()));
    named.filter(|(text, name)| is_made(text, name)).map(|(_, name)| name).collect()
}

/// Where its tests are.
fn tests_of(kind: &str) -> &'static Place {
    NO_LOCKS.iter().find(|(name, _)| *name == kind).map_or(&OF_A_LOCK, |(_, place)| place)
}

/// A file that is not there has nothing.
fn lacks(kind: &str, Place(path, what): &Place) -> Option<String> {
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let is_named = text.split(|c: char| !c.is_alphanumeric()).any(|word| word == kind);
    (!is_named).then(|| format!("{path} does not have {kind}: {what}"))
}

#[test]
fn each_kind_is_named_wherever_kinds_are() {
    let kinds = kinds();
    assert!(kinds.len() >= 6 && !kinds.contains(&"ReadLock".to_owned()), "{kinds:?}");
    assert!(NO_LOCKS.iter().all(|(name, _)| kinds.iter().any(|kind| kind == name)), "{kinds:?}");
    let here = kinds.iter().flat_map(|kind| ALWAYS.iter().map(move |place| (kind, place)));
    let tests = kinds.iter().map(|kind| (kind, tests_of(kind)));
    let away = kinds.iter().filter(|kind| !kind.starts_with("Local"));
    let away = away.flat_map(|kind| WITH_A_SERVER.iter().map(move |place| (kind, place)));
    let lacking: Vec<_> = here.chain(tests).chain(away).filter_map(|(kind, place)| lacks(kind, place)).collect();
    assert!(lacking.is_empty(), "\n{}", lacking.join("\n"));
}

/// The text of a file between a mark and the first `];` behind it.
fn list(path: &str, mark: &str) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let (_, behind) = text.split_once(mark).unwrap_or_else(|| panic!("{path} has no {mark}"));
    behind.split("];").next().unwrap().to_owned()
}

/// No lock may have such a name, so users have to find these names in the docs.
#[test]
fn each_name_that_is_taken_is_in_the_docs() {
    let names = list("src/base/key.rs", "const BESIDE");
    let names: Vec<_> = names.split('"').skip(1).step_by(2).collect();
    assert!(names.len() >= 5, "{names:?}");
    for page in ["docs/calls.md", "docs/protocol.md"] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let missing = names.iter().find(|name| !text.contains(**name));
        assert_eq!(missing, None, "{page} does not say that such names are taken");
    }
}

#[test]
fn each_deployment_is_in_the_docs() {
    let schemes = list("src/store/mod.rs", "const SCHEMES");
    let schemes: Vec<_> = schemes.lines().filter(|line| line.contains(", Opens(")).collect();
    let schemes: Vec<_> = schemes.iter().map(|line| line.split('"').nth(1).unwrap()).collect();
    assert!(schemes.len() >= 6, "{schemes:?}");
    let text = std::fs::read_to_string(root().join("docs/deployments.md")).unwrap();
    // The page says once that other spellings are the same.
    let usual = |scheme: &str| scheme.replace("valkey", "redis").replace('-', "+");
    let missing = schemes.iter().find(|scheme| !text.contains(&usual(scheme)));
    assert_eq!(missing, None, "docs/deployments.md does not have this scheme");
}
