//! The lines that `docs/permissions.md` says to paste.

use crate::ROOT;
use crate::server::version;
use std::sync::OnceLock;

/// The page itself.
pub fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| std::fs::read_to_string(format!("{ROOT}/docs/permissions.md")).unwrap())
}

/// The words of the line that a section has for the server at hand.
fn line_of(section: &str) -> Vec<&'static str> {
    let heading = match version() {
        version if version < (6, 2) => "Redis 6.0:",
        version if version < (7, 2) => "Redis 6.2 and 7.0:",
        _ => "Redis 7.2 and later, Valkey:",
    };
    let lines = page().lines().skip_while(|line| *line != section).skip_while(|line| *line != heading);
    lines.skip(1).find(|line| line.starts_with("ACL SETUSER")).expect("what to paste").split(' ').collect()
}

/// The line that makes the user `app` with the password `secret`, for locks whose names begin with `shop:`.
pub fn documented() -> Vec<&'static str> {
    line_of("## One line to paste")
}

/// The rules for a client that has a user of its own at each sentinel.
pub fn of_sentinels() -> impl Iterator<Item = &'static str> {
    let line = line_of("## the same with a user of its own: each sentinel");
    line.into_iter().filter(|word| word.starts_with(['+', '&']))
}

/// The rules to add to that line for a program that uses `what`, the first column of the page's table.
pub fn added(what: &str) -> impl Iterator<Item = &'static str> {
    let row = page().lines().find_map(|line| line.strip_prefix(&format!("| {what} | "))).expect("a row of the table");
    let rules = row.split('`').nth(1).expect("rules").split(' ');
    // A bar within a table is written with a backslash.
    rules.map(|rule| &*String::leak(rule.replace("\\|", "|")))
}
