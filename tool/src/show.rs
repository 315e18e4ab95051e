//! How a lock is shown: to people in lines and columns, to programs as JSON.

use redlatch::inspect::{Holder, Process, Sight, What};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use unicode_width::UnicodeWidthStr;

/// A lock as JSON. Times are in milliseconds.
#[derive(Serialize)]
pub(crate) struct Shown<'s> {
    name: &'s str,
    /// `free`, `lock`, `readers`, `writer`, `counter` or `other`.
    state: &'static str,
    holders: Vec<ShownHolder<'s>>,
    /// Until it ends unless renewed; null: nothing is there, or it has no end.
    ends_in_ms: Option<u64>,
    waiting_processes: Option<usize>,
    waiting_threads: Option<usize>,
    waiting_for_permits: Option<usize>,
    /// Of a semaphore or a latch.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits_out: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_type: Option<&'s str>,
}

#[derive(Serialize)]
struct ShownHolder<'s> {
    field: &'s str,
    client: &'s str,
    thread: u64,
    depth: u64,
    /// Since 1970; null: a holder of Redisson's.
    asked_at_ms: Option<u64>,
    /// Null: it is not known.
    process: Option<ShownProcess<'s>>,
    /// Null: it is not known, as of a holder of Redisson's.
    connected: Option<bool>,
}

#[derive(Serialize)]
pub(crate) struct ShownProcess<'s> {
    app: &'s str,
    host: &'s str,
    pid: u32,
}

/// A lock as one line of JSON.
pub(crate) fn json(sight: &Sight) -> String {
    serde_json::to_string(&Shown::of(sight)).expect("names are text")
}

impl<'s> Shown<'s> {
    pub(crate) fn of(sight: &'s Sight) -> Self {
        let (left, permits_out) = match &sight.what {
            What::Counter { left, out } => (Some(*left), *out),
            _ => (None, None),
        };
        Self {
            name: &sight.name,
            state: state(&sight.what),
            holders: sight.holders().iter().map(ShownHolder::of).collect(),
            ends_in_ms: sight.left.map(millis),
            waiting_processes: sight.processes,
            waiting_threads: sight.threads,
            waiting_for_permits: sight.calls,
            left,
            permits_out,
            key_type: if let What::Other(kind) = &sight.what { Some(kind) } else { None },
        }
    }
}

impl<'s> ShownHolder<'s> {
    fn of(holder: &'s Holder) -> Self {
        let Holder { field, client, thread, depth, asked, process, is_connected: connected, .. } = holder;
        let asked_at_ms = asked.map(since_1970);
        let process = process.as_ref().map(ShownProcess::of);
        Self { field, client, thread: *thread, depth: *depth, asked_at_ms, process, connected: *connected }
    }
}

impl<'s> ShownProcess<'s> {
    pub(crate) fn of(Process { app, host, pid, .. }: &'s Process) -> Self {
        Self { app, host, pid: *pid }
    }
}

fn state(what: &What) -> &'static str {
    match what {
        What::Nothing => "free",
        What::Lock(_) => "lock",
        What::Readers(_) => "readers",
        What::Writer(_) => "writer",
        What::Counter { .. } => "counter",
        _ => "other",
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A moment, for programs.
pub(crate) fn since_1970(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Who holds it, for a column.
pub(crate) fn holders(sight: &Sight) -> String {
    let each: Vec<_> = sight.holders().iter().map(who).collect();
    match (&each[..], &sight.what) {
        ([], What::Counter { left, out: None }) => format!("count: {left}"),
        ([], What::Counter { left, out: Some(out) }) => format!("permits: {left} in, {out} out"),
        ([], What::Nothing) => "free".to_owned(),
        ([], _) => "no lock".to_owned(),
        ([one], _) => one.clone(),
        ([one, rest @ ..], _) => format!("{one} and {} more", rest.len()),
    }
}

/// Whom to call: the process, or what is known of it.
pub(crate) fn who(holder: &Holder) -> String {
    match &holder.process {
        Some(holder) => process(holder),
        None if holder.asked.is_none() => format!("Redisson {}", holder.client),
        None if holder.is_connected == Some(false) => format!("gone? {}", holder.client),
        None => format!("client {}", holder.client),
    }
}

/// A process, for a column.
pub(crate) fn process(Process { app, host, pid, .. }: &Process) -> String {
    format!("{app}@{host}:{pid}")
}

/// A thread by its number, and by its name if it has one.
pub(crate) fn thread(number: u64, name: Option<&str>) -> String {
    name.map_or_else(|| number.to_string(), |name| format!("{number} ({name})"))
}

/// How many wait, for a column.
pub(crate) fn waiting(sight: &Sight) -> String {
    match sight.what {
        What::Readers(_) | What::Writer(_) => "?".to_owned(),
        _ => sight.waiting().to_string(),
    }
}

/// How long ago, for a column.
pub(crate) fn ago(time: Option<SystemTime>) -> String {
    time.map_or_else(|| "?".to_owned(), |time| span(SystemTime::now().duration_since(time).unwrap_or_default()))
}

/// A span in its greatest two units.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", span.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Rows under a head, each column as wide as its widest cell.
pub(crate) fn columns(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let wide = |at: usize| rows.iter().map(|row| row[at].width()).chain([head[at].width()]).max().unwrap_or(0);
    let widths: Vec<_> = (0..head.len()).map(wide).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell}{:1$}", "", width - cell.width()));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = line(head.to_vec());
    [head].into_iter().chain(rows.iter().map(|row| line(row.iter().map(String::as_str).collect()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        let seconds = |seconds| span(Duration::from_secs(seconds));
        assert_eq!([1, 59, 61, 3_661, 90_000].map(seconds), ["1.0s", "59s", "1m01s", "1h01m", "1d01h"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = [vec!["a".to_owned(), "xyz".to_owned()], vec!["abc".to_owned(), String::new()]];
        assert_eq!(columns(&["N", "H"], &rows), ["N    H", "a    xyz", "abc"]);
        // Two signs, each as wide as two others.
        let wide = [["鎖錠", "x"], ["abcd", "y"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&["N", "H"], &wide), ["N     H", "鎖錠  x", "abcd  y"]);
    }
}
