//! The rules that there are, in the words of `ACL SETUSER`.

/// One that a user may be given.
pub(crate) struct Rule {
    pub(crate) words: String,
    pub(crate) purpose: &'static str,
}

impl Rule {
    pub(crate) fn all() -> Vec<Self> {
        let text = include_str!("rules.txt");
        text.lines().filter(|line| !line.starts_with('#')).map(Self::parse).collect()
    }

    fn parse(line: &'static str) -> Self {
        let (words, purpose) = line.split_once(" | ").expect("two parts");
        let words = if words.starts_with('+') { words.replace(':', "|") } else { words.to_owned() };
        Self { words, purpose }
    }
}
