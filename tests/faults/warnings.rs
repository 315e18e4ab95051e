//! The warnings of a process, for tests that have one of their own.

use std::sync::{Mutex, OnceLock};

/// Those that have been logged and have these words.
pub(crate) struct Warnings {
    words: &'static str,
    pub(crate) seen: Mutex<Vec<String>>,
}

/// Hears them from now on; once a process.
pub(crate) fn that_say(words: &'static str) -> &'static Warnings {
    static WARNINGS: OnceLock<Warnings> = OnceLock::new();
    let warnings = WARNINGS.get_or_init(|| Warnings { words, seen: Mutex::default() });
    log::set_logger(warnings).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    warnings
}

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        if self.enabled(record.metadata()) && text.contains(self.words) {
            self.seen.lock().unwrap().push(text);
        }
    }

    fn flush(&self) {}
}
