//! C2, the other half: what fenced locks protect, the resource. It compares tokens and takes no write with a smaller one than it has seen.
//! Writers do not ask first whether they still hold the lock.
//!
//! It is a journal to which each writer appends, so nobody waits for one that is stopped: the order of writes is that of the file,
//! and which of them are taken is found out here.

use super::tokens::Grant;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

const FILE: &str = "journal";

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) writes: usize,
    /// Those that came after one of a later hold.
    pub(crate) refused: usize,
    /// Older writes that were taken, and later ones that were refused: when their holds began, and what.
    pub(crate) wrong: Vec<(u64, String)>,
}

/// What the resource knows of one name.
#[derive(Clone, Copy)]
struct Kept {
    token: u64,
    /// When the hold with that token began.
    had: u64,
    /// When the latest of all holds whose writes were taken was asked for.
    asked: u64,
}

pub(crate) fn tally(writes: &[Grant]) -> Tally {
    let (mut tally, mut kept) = (Tally { writes: writes.len(), ..Tally::default() }, HashMap::<u8, Kept>::new());
    for write in writes {
        let &Grant { name, asked, had, token } = write;
        let last = *kept.entry(name).or_insert(Kept { token, had, asked });
        let is_taken = token >= last.token;
        if is_taken {
            kept.insert(name, Kept { token, had, asked: asked.max(last.asked) });
        }
        tally.refused += usize::from(!is_taken);
        let wrong = if is_taken { had < last.asked } else { last.had < asked };
        let what = if is_taken { "took an older write" } else { "refused the later write" };
        tally.wrong.extend(wrong.then(|| (had, format!("resource {name} {what}: token {token} after {}", last.token))));
    }
    tally
}

/// For a worker.
pub(crate) fn open(dir: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(dir.join(FILE)).expect("the journal")
}

/// At once and whole, so that a writer which is killed leaves all of it or nothing.
pub(crate) fn append(mut journal: &File, grant: Grant) {
    let words = [u64::from(grant.name), grant.asked, grant.had, grant.token];
    journal.write_all(&words.map(u64::to_le_bytes).concat()).expect("room for the journal");
}

/// All writes in their order; none where no lock is fenced.
pub(crate) fn read(dir: &Path) -> Vec<Grant> {
    let bytes = std::fs::read(dir.join(FILE)).unwrap_or_default();
    let grant = |words: &[u8]| {
        let word = |at: usize| u64::from_le_bytes(words[at * 8..at * 8 + 8].try_into().unwrap());
        Grant { name: word(0) as u8, asked: word(1), had: word(2), token: word(3) }
    };
    bytes.chunks_exact(32).map(grant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Grant = Grant { name: 0, asked: 1, had: 2, token: 10 };
    const SECOND: Grant = Grant { name: 0, asked: 3, had: 4, token: 11 };

    fn counts(writes: &[Grant]) -> (usize, usize) {
        let tally = tally(writes);
        (tally.refused, tally.wrong.len())
    }

    #[test]
    fn a_write_that_comes_too_late_is_refused() {
        assert_eq!(counts(&[FIRST, FIRST, SECOND, SECOND]), (0, 0));
        assert_eq!(counts(&[FIRST, SECOND, FIRST, SECOND]), (1, 0));
        assert_eq!(counts(&[SECOND, Grant { name: 1, ..FIRST }]), (0, 0), "that is another resource");
    }

    #[test]
    fn tokens_that_do_not_grow_let_it_take_and_refuse_the_wrong_writes() {
        assert_eq!(counts(&[FIRST, Grant { token: 9, ..SECOND }]), (1, 1));
        assert_eq!(counts(&[SECOND, Grant { token: 11, ..FIRST }]), (0, 1));
        // Of two at the same time either may be the first.
        let beside = Grant { asked: 1, ..SECOND };
        assert_eq!(counts(&[beside, FIRST]), (1, 0));
        assert_eq!(counts(&[beside, Grant { token: 12, ..FIRST }]), (0, 0));
    }

    #[test]
    fn an_older_write_is_seen_also_behind_one_that_was_asked_for_early() {
        let early = Grant { name: 0, asked: 1, had: 9, token: 12 };
        assert_eq!(counts(&[SECOND, early, Grant { token: 13, ..FIRST }]), (0, 1));
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = std::env::temp_dir().join(format!("redlatch-journal-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(read(&dir), []);
        let journal = open(&dir);
        [FIRST, SECOND].into_iter().for_each(|grant| append(&journal, grant));
        assert_eq!(read(&dir), [FIRST, SECOND]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
