//! What the compiler says to a user of the crate: refusals in words of this crate, and warnings of lost results.
//!
//! Each snippet is compiled by the `rustc` that is there against the library that these tests are built with. Beside
//! each that is refused stands one that is not and differs in what matters only.

mod lost_results;
mod threads;
mod traits;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Names that a user of this crate never wrote, and cannot know.
const FOREIGN: [&str; 8] =
    ["MutexGuard", "parking_lot", "lock_api", "crossbeam", "UnsafeCell", "RawMutex", "r2d2", "dyn Fn("];

/// The folder of this test's binary, which has the library too.
fn folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// The newest library in the folder: whatever was built since this test's was built of the same source.
fn library() -> PathBuf {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libredlatch-") && name.ends_with(".rlib")
    };
    let built = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    files.filter(is_library).max_by_key(built).expect("the library is beside its tests")
}

/// What rustc says to a function with this body, which has `locks`; whether it compiles.
fn compile(body: &str) -> (bool, String) {
    let program = format!(
        "#![warn(unused_must_use)]\nuse redlatch::*;\nuse std::{{panic::catch_unwind, sync::Arc, thread, time::Duration}};\n\
         pub fn body(locks: RedisRedLock) -> Result<()> {{\n{body}\nOk(())\n}}\n\
         pub fn all(_: Option<(Arc<()>, Duration)>) {{ let _ = catch_unwind(|| ()); thread::yield_now(); }}\n"
    );
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut command = Command::new(rustc);
    // scripts/lib/counted-tests sets it, and the compiler would speak of what is not stable.
    command.env_remove("RUSTC_BOOTSTRAP");
    command.args(["-", "--edition", "2024", "--crate-name", "snippet", "--crate-type", "lib", "--emit", "metadata=-"]);
    command.arg("-L").arg(format!("dependency={}", folder().display()));
    command.arg("--extern").arg(format!("redlatch={}", library().display()));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), program.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

/// That it compiles without a word.
fn assert_silent(body: &str) {
    let (compiles, said) = compile(body);
    assert!(compiles && said.is_empty(), "{body}\n{said}");
}

/// That it is refused, with these words and no name of another crate.
fn assert_refused(body: &str, words: &[&str]) {
    let (compiles, said) = compile(body);
    assert!(!compiles, "{body}");
    words.iter().for_each(|word| assert!(said.contains(word), "{word:?} is not said to\n{body}\n{said}"));
    FOREIGN.iter().for_each(|name| assert!(!said.contains(name), "{name} is said to\n{body}\n{said}"));
}

/// That it compiles with a warning in these words.
fn assert_warned(body: &str, words: &str) {
    let (compiles, said) = compile(body);
    assert!(compiles, "{said}");
    assert!(said.contains("warning: ") && said.contains(words), "{words:?} is not said to\n{body}\n{said}");
}
