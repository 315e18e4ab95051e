//! An order, as a row of a database and as a key of the lock's own Redis, and the ways to write its state.

use rusqlite::{Connection, params};
use std::path::PathBuf;

/// How the state of an order is written.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// To the database, which compares tokens.
    Token,
    /// To the database.
    NoToken,
    /// To Redis, while the lock is held.
    WhileHeld,
    /// To Redis.
    Plain,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Token, Self::NoToken, Self::WhileHeld, Self::Plain];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Token => "database, with the token",
            Self::NoToken => "database, without",
            Self::WhileHeld => "Redis, by while_held",
            Self::Plain => "Redis, by SET",
        }
    }

    pub(crate) fn of(name: &str) -> Self {
        Self::ALL.into_iter().find(|way| way.name() == name).expect("a way")
    }

    /// Whether something refuses who comes too late.
    pub(crate) fn refuses(self) -> bool {
        matches!(self, Self::Token | Self::WhileHeld)
    }

    /// The same place, and nothing refuses anybody.
    pub(crate) fn without(self) -> Self {
        match self {
            Self::Token | Self::NoToken => Self::NoToken,
            Self::WhileHeld | Self::Plain => Self::Plain,
        }
    }
}

pub(crate) struct Order {
    redis: String,
    folder: PathBuf,
    number: u32,
}

impl Order {
    /// A new one, in a database of its own.
    pub(crate) fn make(redis: &str, number: u32) -> Self {
        let folder = std::env::temp_dir().join(format!("redlatch-orders-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let order = Self { redis: redis.to_owned(), folder, number };
        let create = "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL, token INTEGER NOT NULL)";
        order.database().execute(create, []).expect("a table");
        order.database().execute("INSERT INTO orders VALUES (?1, 'new', 0)", params![number]).expect("a row");
        order
    }

    /// What another process needs to know of it.
    pub(crate) fn words(&self) -> [String; 3] {
        [self.redis.clone(), self.folder.display().to_string(), self.number.to_string()]
    }

    pub(crate) fn of(words: &[String]) -> Self {
        let [redis, folder, number] = words else { panic!("three words") };
        Self { redis: redis.clone(), folder: folder.into(), number: number.parse().expect("a number") }
    }

    pub(crate) fn redis(&self) -> &str {
        &self.redis
    }

    /// What its lock is called, and the key of its state beside it.
    pub(crate) fn name(&self) -> String {
        format!("order:{{{}}}", self.number)
    }

    pub(crate) fn key(&self) -> String {
        format!("{}:state", self.name())
    }

    fn database(&self) -> Connection {
        Connection::open(self.folder.join("orders.db")).expect("a database")
    }

    fn connection(&self) -> redis::Connection {
        redis::Client::open(self.redis()).and_then(|client| client.get_connection()).expect("a server")
    }

    pub(crate) fn state(&self, way: Way) -> String {
        match way {
            Way::Token | Way::NoToken => self
                .database()
                .query_row("SELECT state FROM orders WHERE id = ?1", [self.number], |row| row.get(0))
                .expect("a state"),
            Way::WhileHeld | Way::Plain => {
                redis::cmd("GET").arg(self.key()).query(&mut self.connection()).expect("a state")
            }
        }
    }

    /// The database compares the token with the greatest that it has seen.
    pub(crate) fn update_with(&self, state: &str, token: u64) {
        let update = "UPDATE orders SET state = ?1, token = ?2 WHERE id = ?3 AND token <= ?2";
        let token = i64::try_from(token).expect("it is below 2^53");
        self.database().execute(update, params![state, token, self.number]).expect("it is written, or refused");
    }

    pub(crate) fn update(&self, state: &str) {
        let update = "UPDATE orders SET state = ?1 WHERE id = ?2";
        self.database().execute(update, params![state, self.number]).expect("it is written");
    }

    pub(crate) fn set(&self, state: &str) {
        redis::cmd("SET").arg(self.key()).arg(state).exec(&mut self.connection()).expect("it is written");
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        if self.folder.ends_with(format!("redlatch-orders-{}", std::process::id())) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
