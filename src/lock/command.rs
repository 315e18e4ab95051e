//! A command that a caller gives for a server, word by word.

use crate::base::error::{Error, Result};
use crate::base::slot::slot_of;
use crate::lease::hold::Hold;
use crate::store::node::Arg;
use std::fmt;

/// A command for `while_held`, of [`ReentrantLock`](crate::ReentrantLock::while_held), [`FencedLock`](crate::FencedLock::while_held) and
/// [`WriteLock`](crate::WriteLock::while_held): its name, its keys and its other words in their order, any bytes.
///
/// Say which words are keys: a cluster sends a command where its keys are, and a server checks permissions by them. The
/// [`key_prefix`](crate::ClientBuilder::key_prefix) is for locks, and is not put before these keys.
///
/// ```
/// use redlatch::Command;
///
/// let pay = Command::new("SET").key("order:{42}:state").arg("paid").arg("EX").arg("3600");
/// assert_eq!(format!("{pay:?}"), r#"SET "order:{42}:state" .. 3 more words"#);
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct Command {
    words: Vec<Vec<u8>>,
    /// Which of them are keys.
    keys: Vec<usize>,
}

/// The most words of a command: Lua puts them on its stack, which has room for 8,000.
const MOST_WORDS: usize = 7_000;

/// The most of all commands of a call together: the server does nothing else while it runs them.
const MOST_WORDS_OF_ALL: usize = 100_000;
const MOST_BYTES: usize = 32 << 20;

impl Command {
    /// The command of this name. A subcommand is its first [`arg`](Self::arg).
    pub fn new(name: impl AsRef<[u8]>) -> Self {
        Self { words: vec![name.as_ref().to_vec()], keys: Vec::new() }
    }

    /// Adds a word that is a key.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.keys.push(self.words.len());
        self.arg(key)
    }

    /// Adds a word that is no key. A number is its text: `.arg(5.to_string())`.
    pub fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.words.push(word.as_ref().to_vec());
        self
    }

    /// The keys among its words.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|at| self.words[*at].as_slice())
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().map(Vec::as_slice)
    }

    /// The arguments of the script: how many words, then the words.
    pub(super) fn args(&self) -> impl Iterator<Item = Arg<'_>> {
        std::iter::once(Arg::Number(self.words.len() as u64)).chain(self.words.iter().map(|word| Arg::Bytes(word)))
    }
}

/// Hides what the command writes, which may be a secret.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.words[0]).escape_debug())?;
        self.keys().try_for_each(|key| write!(f, " {:?}", String::from_utf8_lossy(key)))?;
        write!(f, " .. {} more words", self.words.len() - 1 - self.keys.len())
    }
}

/// # Errors
/// `Config` for more than a server runs in one script.
pub(super) fn check_size(commands: &[Command]) -> Result<()> {
    let most = commands.iter().map(|command| command.words.len()).max().unwrap_or(0);
    let all: usize = commands.iter().map(|command| command.words.len()).sum();
    let words: usize = commands.iter().flat_map(|command| &command.words).map(Vec::len).sum();
    // Keys are sent twice: as keys that the server checks, and as words.
    let bytes = words + commands.iter().flat_map(Command::keys).map(<[u8]>::len).sum::<usize>();
    if most <= MOST_WORDS && all <= MOST_WORDS_OF_ALL && bytes <= MOST_BYTES {
        return Ok(());
    }
    Err(Error::config(format!(
        "the commands have {all} words and {bytes} bytes, the longest {most} words: give it {MOST_WORDS}, all together \
         {MOST_WORDS_OF_ALL}, and {MOST_BYTES} bytes at most"
    )))
}

/// # Errors
/// `Config` for a key that is not in the slot of the lock: a script reaches no other.
pub(super) fn check_slots(hold: &Hold, commands: &[Command]) -> Result<()> {
    let (resource, slot) = (hold.resource(), slot_of(hold.tenure().key().full()));
    let Some(key) = commands.iter().flat_map(Command::keys).find(|key| slot_of(key) != slot) else { return Ok(()) };
    let key = String::from_utf8_lossy(key);
    Err(Error::config(format!(
        "the key {key:?} is not in the slot of lock {resource:?}: give both names the same tag, as in order:{{42}}"
    )))
}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn a_name_with_line_breaks_takes_one_line() {
        assert_eq!(format!("{:?}", Command::new("GET\n").key("a")), r#"GET\n "a" .. 0 more words"#);
    }
}
