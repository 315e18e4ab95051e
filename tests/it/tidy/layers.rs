//! Which module may use which. The crate is made of rooms in layers, down to the kinds of locks, which do not use each other.

use super::{code, root, source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A room is a module with the modules below it, except for those that are rooms themselves. A file may use its own room and
/// those of earlier layers.
const LAYERS: &[Layer] = &[
    apart(&["base::unwind"]),
    together(&[
        "base::error",
        "base::key",
        "base::meters",
        "base::mutant",
        "base::say",
        "base::signal",
        "base::slot",
        "base::sync",
        "base::time",
        "base::value",
    ]),
    apart(&["base::kind", "base::owner", "base::threads"]),
    together(&["base"]),
    apart(&["census"]),
    apart(&["store::node"]),
    apart(&["store::subscriber"]),
    apart(&["store"]),
    apart(&["store::moving"]),
    apart(&["store::cluster", "store::fixed", "store::replicas", "store::sentinel"]),
    together(&["lease::hold", "lease::nodes", "lease::tenure", "lease::timer"]),
    apart(&["lease::sweeper", "lease::watchdog", "registry"]),
    apart(&["lease::recent_releases"]),
    apart(&["client"]),
    together(&["lock::primitive", "lock::waiting"]),
    together(&["lock"]),
    apart(&["inspect"]),
];

/// Each module below this is a room of its own in the last layer.
const KINDS: &str = "lock::kinds::";

struct Layer {
    rooms: &'static [&'static str],
    /// Whether its rooms may use each other.
    together: bool,
}

const fn together(rooms: &'static [&'static str]) -> Layer {
    Layer { rooms, together: true }
}

const fn apart(rooms: &'static [&'static str]) -> Layer {
    Layer { rooms, together: false }
}

fn is_in(module: &str, room: &str) -> bool {
    module.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The layer of a module, and its room in it; `None` for a name that `lib.rs` exports.
fn room_of(module: &str) -> Option<(usize, String)> {
    if module.starts_with(char::is_uppercase) {
        return None;
    }
    if let Some(kind) = module.strip_prefix(KINDS) {
        return Some((LAYERS.len(), [KINDS, kind.split("::").next().unwrap()].concat()));
    }
    let rooms = LAYERS.iter().enumerate().flat_map(|(at, layer)| layer.rooms.iter().map(move |room| (at, *room)));
    let room = rooms.filter(|(_, room)| is_in(module, room)).max_by_key(|(_, room)| room.len());
    let (layer, room) = room.unwrap_or_else(|| panic!("{module} is in no layer: give it one"));
    Some((layer, room.to_owned()))
}

/// The module of a file.
fn module_of(path: &Path) -> Vec<String> {
    let inside = path.strip_prefix(root().join("src")).unwrap().with_extension("");
    let parts = inside.iter().map(|part| part.to_string_lossy().into_owned());
    parts.filter(|part| part != "mod").collect()
}

/// The code of a file without the tests at its end.
fn own_code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code(text).collect::<Vec<_>>().join("\n")
}

/// The path at the beginning of this text. For a group in braces: one path for each of its names.
fn paths(rest: &str) -> Vec<String> {
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
    let (path, rest) = rest.split_at(end);
    match rest.strip_prefix('{').filter(|_| path.is_empty() || path.ends_with("::")) {
        Some(group) => {
            let names = group.split('}').next().unwrap().split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(|name| format!("{path}{name}")).collect()
        }
        None => vec![path.to_owned()],
    }
}

/// The modules of the crate that a file of this module names, by `crate::` and by `super::`.
fn used_by(module: &[String], text: &str) -> Vec<String> {
    let text = own_code(text);
    let mut used: Vec<_> = text.split("crate::").skip(1).flat_map(paths).collect();
    for (at, _) in text.match_indices("super::").filter(|(at, _)| !text[..*at].ends_with("::")) {
        let mut rest = &text[at..];
        let mut above = module;
        while let Some(more) = rest.strip_prefix("super::") {
            (rest, above) = (more, above.split_last().expect("the crate has nothing above it").1);
        }
        let joined = |path| above.iter().cloned().chain([path]).collect::<Vec<_>>().join("::");
        used.extend(paths(rest).into_iter().map(joined));
    }
    used.retain(|path| !path.is_empty());
    used
}

fn check(path: &Path, module: &str, used: &str) {
    let (Some((layer, room)), Some((earlier, other))) = (room_of(module), room_of(used)) else { return };
    let allowed =
        earlier < layer || room == other || (earlier == layer && LAYERS.get(layer).is_some_and(|layer| layer.together));
    assert!(allowed, "{} uses {used}, which is of {other}", path.display());
}

/// The files of the library without its tests.
fn library() -> Vec<(PathBuf, String)> {
    let mut files = source();
    files.retain(|(path, _)| {
        let inside = path.strip_prefix(root()).unwrap();
        inside != Path::new("src/lib.rs") && !inside.iter().any(|part| part == "tests.rs" || part == "tests")
    });
    files
}

#[test]
fn a_file_uses_only_its_own_and_earlier_layers() {
    let mut seen = 0;
    for (path, text) in library() {
        let module = module_of(&path);
        for used in used_by(&module, &text) {
            seen += 1;
            check(&path, &module.join("::"), &used);
        }
    }
    assert!(seen > 300, "the uses were not found: {seen}");
}

/// The modules that each module uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Which files each of these files uses. Files below it are left out: they may use it, and it may use them.
fn uses(files: &[(Vec<String>, &str)]) -> Uses {
    let modules: BTreeSet<_> = files.iter().map(|(module, _)| module.join("::")).collect();
    let file_of =
        |used: &String| modules.iter().filter(|file| is_in(used, file)).max_by_key(|file| file.len()).cloned();
    let used_in = |(module, text): &(Vec<String>, &str)| {
        let name = module.join("::");
        let used = used_by(module, text).iter().filter_map(file_of).filter(|used| !is_in(used, &name)).collect();
        (name, used)
    };
    files.iter().map(used_in).collect()
}

/// Modules of which each uses the next, and the last uses the first.
fn circle(mut uses: Uses) -> Option<Vec<String>> {
    let uses_one_of = |uses: &Uses, module: &String| uses[module].iter().any(|used| uses.contains_key(used));
    while let Some(last) = uses.keys().find(|module| !uses_one_of(&uses, module)).cloned() {
        uses.remove(&last);
    }
    let mut way = vec![uses.keys().next()?.clone()];
    loop {
        let next = uses[way.last().unwrap()].iter().find(|used| uses.contains_key(*used)).unwrap();
        if let Some(start) = way.iter().position(|module| module == next) {
            return Some(way.split_off(start));
        }
        way.push(next.clone());
    }
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let files = library();
    let files: Vec<_> = files.iter().map(|(path, text)| (module_of(path), text.as_str())).collect();
    let circle = circle(uses(&files)).map(|files| files.join(" -> "));
    assert!(circle.is_none(), "files use each other in a circle: {}", circle.unwrap());
}

#[test]
fn the_parser_of_uses_knows_their_forms() {
    let text = "use crate::base::key::Key;\n// crate::no\nuse crate::{base::time::Clock, client};\n\
        use super::super::engine::{Engine, other};\nlet a = super::Hold;\n#[cfg(test)]\nmod tests {\nuse crate::lock;";
    let module = ["lock", "kinds", "local"].map(str::to_owned);
    let used = [
        "base::key::Key",
        "base::time::Clock",
        "client",
        "lock::engine::Engine",
        "lock::engine::other",
        "lock::kinds::Hold",
    ];
    assert_eq!(used_by(&module, text), used);
}

#[test]
fn a_circle_is_found_and_a_file_may_use_those_below_it() {
    let file = |module: &str, text| (module.split("::").map(str::to_owned).collect(), text);
    let below = [file("a", "use crate::a::b::B;"), file("a::b", "use super::A;"), file("c", "use crate::a::b;")];
    assert_eq!(circle(uses(&below)), None);
    let files = [below.as_slice(), &[file("d", "crate::c::f()"), file("a::e", "use crate::d::{f, G};")]].concat();
    assert_eq!(circle(uses(&files)), None);
    let files = [files.as_slice(), &[file("a::b", "use super::e;")]].concat();
    assert_eq!(circle(uses(&files)).unwrap().join(" "), "a::b a::e d c");
}

#[test]
fn a_room_inside_of_another_is_its_own() {
    assert_eq!(room_of("lock::kinds::local::plan").unwrap().1, "lock::kinds::local");
    assert_eq!(room_of("lock::acquire").unwrap().1, "lock");
    assert_eq!(room_of("lease::hold::Hold").unwrap().1, "lease::hold");
}
