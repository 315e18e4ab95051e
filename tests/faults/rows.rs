//! The 116 rows of the fault matrix, and how each is shown in `docs/faults.md`.

/// One row. Its tests are named after its number: `fault_07_what`.
pub(crate) struct Row {
    pub(crate) number: usize,
    /// The fault, what the library does about it, and what the caller sees of it.
    texts: [&'static str; 3],
    /// What of the row belongs to something that is not there yet; empty: nothing.
    pub(crate) open: &'static str,
}

/// What every row is about, one a line.
const TEXT: &str = include_str!("rows.txt");

impl Row {
    pub(crate) fn all() -> Vec<Self> {
        TEXT.lines().filter(|line| !line.starts_with('#')).map(Self::parse).collect()
    }

    fn parse(line: &'static str) -> Self {
        let parts: Vec<_> = line.split('|').map(str::trim).collect();
        let [number, fault, happens, seen, open] = parts[..] else { panic!("five parts: {line}") };
        let number = number.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        Self { number, texts: [fault, happens, seen], open }
    }

    /// Its line in the table, up to the result.
    pub(crate) fn line<S: AsRef<str>>(&self, tests: impl IntoIterator<Item = S>) -> String {
        let tests: Vec<_> = tests.into_iter().map(|test| format!("`{}`", test.as_ref())).collect();
        let tests = if tests.is_empty() { "none".to_owned() } else { tests.join("<br>") };
        format!("| {} | {} | {tests} |", self.number, self.texts.join(" | "))
    }

    /// The row that a test is of, by its name: `servers::fault_01_what`.
    pub(crate) fn number_of(test: &str) -> Option<usize> {
        test.rsplit("::").next()?.strip_prefix("fault_")?.split('_').next()?.parse().ok()
    }
}
