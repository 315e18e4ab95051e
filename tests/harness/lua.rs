//! The library's scripts: found in its source, and joined by its own code.

use redis::Value;
use std::path::{Path, PathBuf};

#[path = "../../src/base/script/preludes.rs"]
mod preludes;

/// Every Lua file of the library, with its text.
pub fn files() -> Vec<(PathBuf, String)> {
    let found = below(&Path::new(crate::ROOT).join("src"));
    assert!(found.len() > 8, "the scripts were not found");
    found
}

fn below(folder: &Path) -> Vec<(PathBuf, String)> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let scripts = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "lua"));
    let scripts = scripts.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()));
    scripts.chain(folders.iter().flat_map(|folder| below(folder))).collect()
}

/// What a script that grants or prolongs says, without the deadline that names its attempt. Nil: all that was asked for is granted.
pub fn unnamed(said: Value, deadline: &str) -> Value {
    let is_named = |value: &Value| matches!(value, Value::Int(number) if number.to_string() == deadline);
    match said {
        said if is_named(&said) => Value::Nil,
        Value::Array(mut said) if said.last().is_some_and(is_named) => {
            said.pop();
            match &said[..] {
                [token @ Value::BulkString(_)] => token.clone(),
                _ => Value::Array(said),
            }
        }
        said => said,
    }
}

/// The text of one file with what it needs.
pub fn with_preludes(file: &str) -> String {
    preludes::join(&[file])
}

/// The text of a script as the library sends it, by the names of its files: `acquire`, or `quarantine+acquire`. Names run from
/// the outermost in. Without its folder a name is of `keys`.
pub fn script(names: &str) -> String {
    let files = files();
    let texts: Vec<_> = names.split('+').map(|name| the_one(&files, name)).collect();
    preludes::join(&texts)
}

fn the_one<'a>(files: &'a [(PathBuf, String)], name: &str) -> &'a str {
    let name = if name.contains('/') { format!("{name}.lua") } else { format!("keys/{name}.lua") };
    let (_, text) =
        files.iter().find(|(path, _)| path.ends_with(&name)).unwrap_or_else(|| panic!("there is no {name}"));
    text
}
