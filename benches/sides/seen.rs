//! Who takes part in a round, what the processes noted, what it shows, and whether all was as it was assumed.

use crate::support::turns::{MILLI, Turn};
use crate::support::{Outcome, Samples};
use crate::worker::PAUSE;
use std::time::Duration;

/// Who reads, in so many processes.
pub(crate) struct Readers {
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    pub(crate) hold: Duration,
    pub(crate) shares: bool,
    /// What their library does wrong, in a build with mutants.
    pub(crate) mutant: Option<&'static str>,
}

/// Who comes to write.
pub(crate) struct Writer {
    pub(crate) period: Duration,
    pub(crate) hold: Duration,
    pub(crate) patience: Duration,
    /// Fewer writes show nothing.
    pub(crate) least: usize,
}

/// What one process did.
pub(crate) struct Report {
    pub(crate) turns: usize,
    /// Of the thread that has fewest.
    pub(crate) fewest: usize,
    pub(crate) vain: usize,
    pub(crate) noted: Vec<Turn>,
}

impl Report {
    fn out(&self, thread: usize) -> Out<'_> {
        Out(self.noted.iter().filter(|noted| noted.thread == thread).collect())
    }
}

/// Of a reading thread when it was out.
struct Out<'a>(Vec<&'a Turn>);

impl Out<'_> {
    fn lasts(&self, from: i64, to: i64) -> bool {
        self.0.iter().any(|out| out.asked <= from && to <= out.held)
    }
}

/// What a round showed.
pub(crate) struct Round {
    pub(crate) reads_a_second: f64,
    /// Scripts that were sent for each read, those of the writer too.
    pub(crate) scripts_a_read: f64,
    /// How long the writer waited each time, ms.
    pub(crate) waits: Samples,
    pub(crate) vain: usize,
    /// How long a reader was out at most, ms.
    pub(crate) longest_out: f64,
}

/// All that was noted in a round.
pub(crate) struct Seen<'a> {
    pub(crate) readers: &'a Readers,
    pub(crate) writer: Option<&'a Writer>,
    pub(crate) read: Vec<Report>,
    pub(crate) written: Option<Report>,
    pub(crate) scripts: f64,
    pub(crate) span: Duration,
    pub(crate) end: i64,
}

impl Seen<'_> {
    /// # Errors
    /// If something was not as it was assumed, so that it shows nothing.
    pub(crate) fn told(&self) -> Outcome<Round> {
        if self.read.iter().any(|report| report.fewest == 0) {
            return Err("a thread never read".into());
        }
        let out = self.out();
        self.check_alone(&out)?;
        let waits = self.waits(&out)?;
        let reads = self.read.iter().map(|report| report.turns).sum::<usize>() as f64;
        let pauses = self.read.iter().flat_map(|report| &report.noted).map(|pause| pause.held - pause.asked);
        Ok(Round {
            reads_a_second: reads / self.span.as_secs_f64(),
            scripts_a_read: self.scripts / reads,
            waits,
            vain: self.written.as_ref().map_or(0, |report| report.vain),
            longest_out: pauses.max().unwrap_or(PAUSE) as f64 / MILLI,
        })
    }

    /// Of each reading thread.
    fn out(&self) -> Vec<Out<'_>> {
        self.read.iter().flat_map(|report| (0..self.readers.threads).map(|thread| report.out(thread))).collect()
    }

    fn writes(&self) -> impl Iterator<Item = &Turn> {
        self.written.iter().flat_map(|report| &report.noted)
    }

    /// # Errors
    /// If somebody read during a write, until the readers end.
    fn check_alone(&self, out: &[Out<'_>]) -> Outcome<()> {
        let is_alone = |write: &&Turn| out.iter().all(|one| one.lasts(write.held, write.left));
        let beside = self.writes().filter(|write| write.left < self.end).filter(|write| !is_alone(write)).count();
        if beside == 0 { Ok(()) } else { Err(format!("somebody read during {beside} writes").into()) }
    }

    /// Where readers stay for some time, of the writes that were asked for while somebody read. Also of those who had it only when all
    /// readers were done.
    ///
    /// # Errors
    /// If there are too few.
    fn waits(&self, out: &[Out<'_>]) -> Outcome<Samples> {
        let is_free = |write: &&Turn| out.iter().all(|one| one.lasts(write.asked, write.asked));
        let counts = |write: &&Turn| self.readers.hold.is_zero() || !is_free(write);
        let waits: Samples =
            self.writes().filter(counts).map(|write| (write.held - write.asked) as f64 / MILLI).collect();
        match (waits.all().len(), self.writer.map_or(0, |writer| writer.least)) {
            (count, least) if count < least => Err(format!("{count} writes among readers, {least} were wanted").into()),
            _ => Ok(waits),
        }
    }
}
