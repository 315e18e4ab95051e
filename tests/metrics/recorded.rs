//! What was recorded so far.

use metrics_util::CompositeKey;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// All that was recorded since it was installed. A snapshot takes out what it shows, so this adds up all snapshots.
pub(crate) struct Recorded {
    snapshotter: Snapshotter,
    seen: Mutex<BTreeMap<String, Seen>>,
}

#[derive(Default)]
struct Seen {
    described: bool,
    sum: f64,
    times: Vec<f64>,
}

/// A metric with its labels, as Prometheus writes it.
fn name_of(key: &CompositeKey) -> String {
    let labels: Vec<_> = key.key().labels().map(|label| format!("{}={:?}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.key().name(), labels.join(","))
}

/// The recorder of this process from now on. Clients that were made before do not record.
pub(crate) fn install() -> Recorded {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    Recorded { snapshotter, seen: Mutex::default() }
}

impl Recorded {
    /// `see` of each series whose text has all of `parts`.
    fn of<T>(&self, parts: &[&str], see: impl Fn(&Seen) -> T) -> Vec<T> {
        let mut seen = self.seen.lock().unwrap();
        for (key, unit, text, value) in self.snapshotter.snapshot().into_vec() {
            let series = seen.entry(name_of(&key)).or_default();
            series.described = unit.is_some() && text.is_some();
            match value {
                DebugValue::Counter(more) => series.sum += more as f64,
                DebugValue::Gauge(more) => series.sum += more.0,
                DebugValue::Histogram(more) => series.times.extend(more.iter().map(|time| time.0)),
            }
        }
        let matching = seen.iter().filter(|(name, _)| parts.iter().all(|part| name.contains(part)));
        matching.map(|(_, series)| see(series)).collect()
    }

    /// The value of a gauge or a counter.
    pub(crate) fn sum(&self, parts: &[&str]) -> f64 {
        self.of(parts, |series| series.sum).into_iter().sum()
    }

    /// What a histogram recorded, in seconds.
    pub(crate) fn times(&self, parts: &[&str]) -> Vec<f64> {
        self.of(parts, |series| series.times.clone()).concat()
    }

    /// Which of the series have a text and a unit.
    pub(crate) fn described(&self) -> Vec<bool> {
        self.of(&[], |series| series.described)
    }

    /// How many calls ended, by outcome: acquired, busy, timed out, cancelled, error.
    pub(crate) fn ends(&self, parts: &[&str]) -> [usize; 5] {
        ["acquired", "busy", "timed_out", "cancelled", "error"].map(|outcome| {
            let outcome = format!("outcome=\"{outcome}\"");
            self.times(&[&["redlatch_acquire_wait_seconds", &outcome], parts].concat()).len()
        })
    }
}
