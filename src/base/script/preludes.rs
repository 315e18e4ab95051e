//! The common beginnings of scripts, and how wrappers go around a script. A Lua file names its preludes in the line `-- preludes` of its
//! header. Tests and benches join files by this very code, so this file uses no other.

const PRELUDES: &[(&str, &str)] = &[
    ("stale", include_str!("preludes/stale.lua")),
    ("expire", include_str!("preludes/expire.lua")),
    ("held", include_str!("preludes/held.lua")),
    ("epoch", include_str!("preludes/epoch.lua")),
    ("inside", include_str!("preludes/inside.lua")),
    ("next_token", include_str!("preludes/next_token.lua")),
    ("tell", include_str!("preludes/tell.lua")),
    ("readers", include_str!("preludes/readers.lua")),
    ("readers_turn", include_str!("preludes/readers_turn.lua")),
    ("writer_left", include_str!("preludes/writer_left.lua")),
    ("next_writer", include_str!("preludes/next_writer.lua")),
    ("tell_head", include_str!("preludes/tell_head.lua")),
    ("give", include_str!("preludes/give.lua")),
    ("serve", include_str!("preludes/serve.lua")),
    ("serve_now", include_str!("preludes/serve_now.lua")),
    ("leave_queue", include_str!("preludes/leave_queue.lua")),
    ("number_of", include_str!("preludes/number_of.lua")),
    ("reclaim", include_str!("preludes/reclaim.lua")),
    ("tell_first", include_str!("preludes/tell_first.lua")),
    ("places", include_str!("preludes/places.lua")),
    ("once", include_str!("preludes/once.lua")),
];

/// Joins files to one script. Each file but the last is a wrapper and runs the next one as `inner`. Preludes come first, each once, so all
/// files share one time.
///
/// Each file is the whole body of a function of KEYS and ARGV; the first file is the script itself. A wrapper hands arguments on, so all
/// files count them from 1.
pub(crate) fn join(files: &[&str]) -> String {
    let mut preludes = Vec::new();
    for prelude in files.iter().flat_map(|file| needs(file)).map(prelude) {
        if !preludes.contains(&prelude) {
            preludes.push(prelude);
        }
    }
    let mut text = preludes.concat();
    for file in files.iter().skip(1).rev() {
        // Not `local function`: inside that, `inner` would be the function itself.
        text = text + "local inner = function(KEYS, ARGV)\n" + file.trim_end_matches('\n') + "\nend\n";
    }
    text + files.first().copied().unwrap_or_default()
}

fn needs(file: &str) -> impl Iterator<Item = &str> {
    file.lines().filter_map(|line| line.strip_prefix("-- preludes ")).flat_map(|names| names.split(", "))
}

fn prelude(name: &str) -> &'static str {
    let known = PRELUDES.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("there is no prelude {name}")).1
}
