//! The places of sets: how a worker reads a set that it has locked, and how it writes the set after the wait.

use crate::checker::{Element, Outcome};
use crate::way::{self, Check, Way};
use redlatch::{Applied, Client, Command, Error, Hold, ReentrantLock};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A worker may be paused inside of a transaction, and keeps the database for so long.
const BUSY: Duration = Duration::from_secs(10);

pub(crate) trait Place {
    /// What the set has, or what the add ends with.
    fn read(&self, set: usize, hold: &Hold) -> Result<Vec<Element>, Outcome>;

    fn write(&self, set: usize, elements: &[Element], hold: &Hold) -> Outcome;
}

pub(crate) fn of(way: &Way, folder: &Path, client: &Client, url: &str) -> Box<dyn Place> {
    let is_checked = way.check == Check::Place;
    match way.place {
        way::Place::Memory => Box::new(Memory { folder: folder.to_owned(), is_checked: way.check == Check::IsValid }),
        way::Place::Redis => Box::new(Redis { url: url.to_owned(), locks: ReentrantLock::new(client), is_checked }),
        way::Place::Sqlite => Box::new(Sqlite { database: open(folder), is_checked }),
    }
}

/// What the set has in the end.
pub(crate) fn last_of(place: way::Place, folder: &Path, url: &str, set: usize) -> Vec<Element> {
    match place {
        way::Place::Memory => in_file(folder, set),
        way::Place::Redis => in_key(url, set).expect("a server"),
        way::Place::Sqlite => in_row(&open(folder), set).expect("a row"),
    }
}

/// What the orchestrator does before the first worker comes.
pub(crate) fn prepare(place: way::Place, folder: &Path, sets: usize) {
    if place == way::Place::Sqlite {
        let database = open(folder);
        let create = "CREATE TABLE sets (id INTEGER PRIMARY KEY, elements TEXT NOT NULL, token INTEGER NOT NULL)";
        database.execute(create, []).expect("a table");
        for set in 0..sets {
            database.execute("INSERT INTO sets VALUES (?1, '', 0)", [id(set)]).expect("a row");
        }
    }
}

fn text_of(elements: &[Element]) -> String {
    elements.iter().map(Element::to_string).collect::<Vec<_>>().join(" ")
}

fn elements_of(text: &str) -> Vec<Element> {
    text.split_whitespace().map(|word| word.parse().expect("an element")).collect()
}

struct Memory {
    folder: PathBuf,
    is_checked: bool,
}

fn file(folder: &Path, set: usize) -> PathBuf {
    folder.join(format!("set-{set}"))
}

fn in_file(folder: &Path, set: usize) -> Vec<Element> {
    elements_of(&std::fs::read_to_string(file(folder, set)).unwrap_or_default())
}

impl Place for Memory {
    fn read(&self, set: usize, _: &Hold) -> Result<Vec<Element>, Outcome> {
        Ok(in_file(&self.folder, set))
    }

    /// Checked or not, a pause right before the rename writes late. The rename makes the write one step: a reader sees no half of it.
    fn write(&self, set: usize, elements: &[Element], hold: &Hold) -> Outcome {
        if self.is_checked && !hold.is_valid() {
            return Outcome::Refused;
        }
        let own = self.folder.join(format!("of-{}", elements.last().expect("the element that is added")));
        std::fs::write(&own, text_of(elements)).expect("room for a set");
        std::fs::rename(own, file(&self.folder, set)).expect("a set");
        Outcome::Acknowledged
    }
}

struct Redis {
    url: String,
    locks: ReentrantLock,
    is_checked: bool,
}

/// In the slot of the lock whose name is the part in braces.
fn key(set: usize) -> String {
    format!("{{{}}}:elements", name(set))
}

/// What the lock of a set is called.
pub(crate) fn name(set: usize) -> String {
    format!("set:{set}")
}

fn connection(url: &str) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(url)?.get_connection()
}

fn in_key(url: &str, set: usize) -> redis::RedisResult<Vec<Element>> {
    let text: Option<String> = redis::cmd("GET").arg(key(set)).query(&mut connection(url)?)?;
    Ok(elements_of(&text.unwrap_or_default()))
}

impl Redis {
    fn write_while_held(&self, set: usize, text: String, hold: &Hold) -> Outcome {
        match self.locks.while_held(hold, &[Command::new("SET").key(key(set)).arg(text)]) {
            Ok(_) => Outcome::Acknowledged,
            Err(Error::Lost { .. }) => Outcome::Refused,
            Err(error) if error.applied() == Applied::No => Outcome::Failed,
            Err(_) => Outcome::Unknown,
        }
    }

    fn write_plainly(&self, set: usize, text: String) -> Outcome {
        let write = |mut connection| redis::cmd("SET").arg(key(set)).arg(text).exec(&mut connection);
        match connection(&self.url).and_then(write) {
            Ok(()) => Outcome::Acknowledged,
            Err(_) => Outcome::Unknown,
        }
    }
}

impl Place for Redis {
    fn read(&self, set: usize, _: &Hold) -> Result<Vec<Element>, Outcome> {
        in_key(&self.url, set).map_err(|_| Outcome::Failed)
    }

    fn write(&self, set: usize, elements: &[Element], hold: &Hold) -> Outcome {
        let text = text_of(elements);
        if self.is_checked { self.write_while_held(set, text, hold) } else { self.write_plainly(set, text) }
    }
}

struct Sqlite {
    database: Connection,
    is_checked: bool,
}

fn open(folder: &Path) -> Connection {
    let database = Connection::open(folder.join("sets.db")).expect("a database");
    database.busy_timeout(BUSY).expect("a time-out");
    database
}

/// Of its row.
fn id(set: usize) -> i64 {
    i64::try_from(set).expect("there are few sets")
}

fn in_row(database: &Connection, set: usize) -> rusqlite::Result<Vec<Element>> {
    let text =
        database.query_row("SELECT elements FROM sets WHERE id = ?1", [id(set)], |row| row.get::<_, String>(0))?;
    Ok(elements_of(&text))
}

fn token(hold: &Hold) -> i64 {
    i64::try_from(hold.token().expect("a fenced lock has one")).expect("it is below 2^53")
}

impl Sqlite {
    /// Takes possession before it reads: the row has this token from then on, and so refuses the write of an earlier holder that would
    /// come between this read and this holder's write.
    fn possess(&self, set: usize, token: i64) -> rusqlite::Result<Option<Vec<Element>>> {
        // Immediate: two that both read first and write then would refuse each other.
        let transaction = rusqlite::Transaction::new_unchecked(&self.database, TransactionBehavior::Immediate)?;
        let condition = if self.is_checked { "AND token < ?2" } else { "" };
        let update = format!("UPDATE sets SET token = ?2 WHERE id = ?1 {condition} RETURNING token");
        let taken = transaction.query_row(&update, params![id(set), token], |_| Ok(())).optional()?;
        let elements = in_row(&transaction, set)?;
        transaction.commit()?;
        Ok(taken.map(|()| elements))
    }

    /// Whether the token was still the greatest.
    fn update(&self, set: usize, text: &str, token: i64) -> rusqlite::Result<bool> {
        let condition = if self.is_checked { "AND token = ?3" } else { "" };
        let update = format!("UPDATE sets SET elements = ?2, token = ?3 WHERE id = ?1 {condition}");
        Ok(self.database.execute(&update, params![id(set), text, token])? == 1)
    }
}

impl Place for Sqlite {
    fn read(&self, set: usize, hold: &Hold) -> Result<Vec<Element>, Outcome> {
        match self.possess(set, token(hold)) {
            Ok(elements) => elements.ok_or(Outcome::Refused),
            Err(_) => Err(Outcome::Failed),
        }
    }

    fn write(&self, set: usize, elements: &[Element], hold: &Hold) -> Outcome {
        match self.update(set, &text_of(elements), token(hold)) {
            Ok(true) => Outcome::Acknowledged,
            Ok(false) => Outcome::Refused,
            Err(_) => Outcome::Unknown,
        }
    }
}
