//! All locks of the servers, page by page.

use super::sight::{Sight, What};
use super::{Inspector, Request, Verb, value_of};
use crate::base::error::Result;
use crate::base::key::Key;
use crate::base::value::Value;
use crate::lock::Command;
use crate::store::node::{Arg, Failure};
use std::time::Duration;

/// So many keys a server goes through for one page.
const KEYS_A_PAGE: u64 = 1_000;

/// So many of a page's locks are asked about at once. An answer about all of them may take a busy server longer than one answer may take.
const LOCKS_AT_ONCE: usize = 100;

/// So many fields of a hash are looked at: its first ones say whether it is a lock.
const FIELDS: u64 = 100;

/// The locks of all servers, as of [`Inspector::scan`]: an iterator over pages.
#[derive(Debug)]
pub struct Scan<'i> {
    inspector: &'i Inspector,
    /// The servers that are still to be gone through, the present one last.
    servers: Vec<String>,
    cursor: Vec<u8>,
    pattern: String,
    prefix: String,
    keys: u64,
}

/// Some of the locks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Page {
    /// The locks.
    pub locks: Vec<Sight>,
    /// How many keys the servers went through for this page, about.
    pub passed: u64,
}

impl<'i> Scan<'i> {
    pub(super) fn begin(inspector: &'i Inspector, pattern: &str) -> Result<Self> {
        let prefix = inspector.client.space().config.key_prefix.clone();
        let servers = inspector.servers()?;
        let pattern = format!("{}{pattern}", literally(&prefix));
        let mut scan = Self { inspector, servers, cursor: b"0".to_vec(), pattern, prefix, keys: 0 };
        scan.keys = scan.count_keys()?;
        Ok(scan)
    }

    /// How many keys all servers have, locks or not.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Those of servers that answer.
    ///
    /// # Errors
    /// If none does.
    fn count_keys(&self) -> Result<u64> {
        let (mut sum, mut is_known, mut failed) = (0, false, None);
        for (_, said) in self.inspector.ask(&[Command::new("DBSIZE")])? {
            match said {
                Ok(values) => {
                    is_known = true;
                    sum +=
                        values.first().and_then(Value::integer).and_then(|keys| u64::try_from(keys).ok()).unwrap_or(0);
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.filter(|_| !is_known).map_or(Ok(sum), Err)
    }

    fn page(&mut self, server: &str) -> Result<Page, Failure> {
        let hashes = self.hashes(server)?;
        let locks = self.locks(server, &hashes)?;
        if self.cursor == b"0" {
            self.servers.pop();
        }
        Ok(Page { locks, passed: KEYS_A_PAGE })
    }

    /// The next keys that are hashes. The server's cursor moves on.
    fn hashes(&mut self, server: &str) -> Result<Vec<String>, Failure> {
        let words = [
            Arg::Text("SCAN"),
            Arg::Bytes(&self.cursor),
            Arg::Text("MATCH"),
            Arg::Text(&self.pattern),
            Arg::Text("COUNT"),
            Arg::Number(KEYS_A_PAGE),
            Arg::Text("TYPE"),
            Arg::Text("hash"),
        ];
        let mut answers = self.inspector.attempt_at(server, &[Request::new(Verb::Words, &[], &words)])?;
        let said = answers.pop().ok_or_else(Failure::not_understood)??.reply.into_value()?;
        let Value::Array(parts) = said else { return Err(Failure::not_understood()) };
        let [Value::Bytes(cursor), Value::Array(keys)] = &parts[..] else { return Err(Failure::not_understood()) };
        self.cursor.clone_from(cursor);
        Ok(keys.iter().filter_map(Value::text).map(str::to_owned).collect())
    }

    /// Those of the keys that are locks.
    fn locks(&self, server: &str, keys: &[String]) -> Result<Vec<Sight>, Failure> {
        let space = self.inspector.client.space();
        let names: Vec<_> = keys.iter().filter_map(|key| space.key(key.strip_prefix(&self.prefix)?).ok()).collect();
        let locks =
            names.chunks(LOCKS_AT_ONCE).map(|names| self.locks_among(server, names)).collect::<Result<Vec<_>, _>>()?;
        Ok(locks.concat())
    }

    /// By some commands for each name. What lies beside a lock is at the same server, but for odd names of a cluster.
    fn locks_among(&self, server: &str, names: &[Key]) -> Result<Vec<Sight>, Failure> {
        let fields = FIELDS.to_string();
        let beside: Vec<_> =
            names.iter().map(|key| [key.queue_parts().concat(), key.order_parts()[0].concat()]).collect();
        let asks = names.iter().zip(&beside).flat_map(|(key, [queue, order])| {
            let name = key.full();
            [
                vec!["PTTL", name],
                vec!["HGET", name, "mode"],
                vec!["HSCAN", name, "0", "COUNT", &fields],
                vec!["ZCARD", queue],
                vec!["LLEN", order],
            ]
        });
        let asks: Vec<Vec<_>> = asks.map(|words| words.into_iter().map(Arg::Text).collect()).collect();
        let requests: Vec<_> = asks.iter().map(|words| Request::new(Verb::Words, &[], words)).collect();
        let answers = self.inspector.attempt_at(server, &requests)?;
        let values = answers.into_iter().map(value_of).collect::<Result<Vec<_>, _>>()?;
        Ok(names.iter().zip(values.chunks_exact(5)).filter_map(|(key, said)| lock(key.resource(), said)).collect())
    }
}

/// A lock, by the answers about it; `None` if it is none. Of very many readers it has some.
fn lock(name: &str, said: &[Value]) -> Option<Sight> {
    let [left, mode, content, processes, threads] = said else { return None };
    let Value::Array(parts) = content else { return None };
    let Value::Array(fields) = parts.get(1)? else { return None };
    let text = |value: &Value| match value {
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let mut fields: Vec<_> = fields.iter().map(text).collect();
    fields.extend(mode.text().into_iter().flat_map(|mode| ["mode".to_owned(), mode.to_owned()]));
    let count = |value: &Value| value.integer().and_then(|count| usize::try_from(count).ok());
    let left = left.integer().and_then(|left| u64::try_from(left).ok()).map(Duration::from_millis);
    let (processes, threads) = (count(processes), count(threads));
    Some(Sight::of(name, What::of_fields(&fields)?, left, [processes, threads, None]))
}

impl Iterator for Scan<'_> {
    type Item = Result<Page>;

    /// After an error of a server the scan goes on with the next one.
    fn next(&mut self) -> Option<Self::Item> {
        let server = self.servers.last()?.clone();
        Some(self.page(&server).map_err(|failure| {
            self.servers.pop();
            self.cursor = b"0".to_vec();
            failure.into_error("")
        }))
    }
}

/// A pattern that matches this text alone.
fn literally(text: &str) -> String {
    text.chars().flat_map(|sign| "*?[]\\^".contains(sign).then_some('\\').into_iter().chain([sign])).collect()
}

#[cfg(test)]
mod tests {
    use super::literally;

    #[test]
    fn a_prefix_stands_for_itself() {
        assert_eq!(literally("a*b[c]\\:"), "a\\*b\\[c\\]\\\\:");
    }
}
