//! What the crate says of itself to Cargo is true.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What a program says on its standard output, run in the project's folder.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(harness::ROOT).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What Cargo knows of the packages that are built here.
fn metadata() -> Value {
    let about = said("rustc", &["-vV"]);
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let args = ["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host];
    serde_json::from_str(&said(env!("CARGO"), &args)).unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The library and all that its users build with it.
fn built_by_users(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<_, _> = list(&metadata["resolve"]["nodes"]).map(|node| (text(&node["id"]), node)).collect();
    let mut left = vec![text(&metadata["resolve"]["root"])];
    let mut built = BTreeSet::new();
    while let Some(id) = left.pop() {
        if built.insert(id) {
            let users =
                list(&nodes[id]["deps"]).filter(|dep| list(&dep["dep_kinds"]).any(|kind| kind["kind"] != "dev"));
            left.extend(users.map(|dep| text(&dep["pkg"])));
        }
    }
    built
}

/// The parts of a version as numbers.
fn version(text: &str) -> Vec<u32> {
    let mut parts: Vec<_> = text.split('.').map(|part| part.parse().unwrap()).collect();
    parts.resize(3, 0);
    parts
}

/// Neither do users with that compiler meet a dependency that refuses it, nor is it higher than it has to be.
#[test]
fn the_lowest_rustc_is_the_highest_that_a_dependency_asks_for() {
    let metadata = metadata();
    let root = text(&metadata["resolve"]["root"]);
    let users = built_by_users(&metadata);
    assert!(users.len() > 30, "the dependencies were not found: {users:?}");
    let packages = list(&metadata["packages"]).filter(|package| users.contains(text(&package["id"])));
    let asking =
        packages.filter_map(|package| Some((version(package["rust_version"].as_str()?), text(&package["id"]))));
    let (ours, others): (Vec<_>, Vec<_>) = asking.partition(|(_, id)| *id == root);
    let (highest, whose) = others.into_iter().max().unwrap();
    assert_eq!(ours[0].0, highest, "{whose} asks for another one");
}

/// What `cargo add` shows: what only the tests need is no feature of the crate.
#[test]
fn users_see_two_features() {
    let metadata = metadata();
    let root = text(&metadata["resolve"]["root"]);
    let package = list(&metadata["packages"]).find(|package| text(&package["id"]) == root).unwrap();
    let features: Vec<_> = package["features"].as_object().unwrap().keys().collect();
    assert_eq!(features, ["metrics", "tls"]);
}
