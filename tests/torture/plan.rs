//! What a worker is told to do, as words on its way there.

/// All times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) threads: u64,
    /// How many locks they contend for.
    pub(crate) names: u64,
    /// Every operation there is, in a random order; otherwise lock, hold and unlock alone.
    pub(crate) mixed: bool,
    /// Force unlocks too.
    pub(crate) forces: bool,
    /// Asks for a lease of zero too.
    pub(crate) asks_zero: bool,
    /// Goes to another name all the time.
    pub(crate) wanders: bool,
    /// Holds on until the lease has run out.
    pub(crate) overstays: bool,
    /// Zero: the watchdog's.
    pub(crate) lease: u64,
    /// That lease is renewed.
    pub(crate) renewed: bool,
    pub(crate) hold: (u64, u64),
    pub(crate) pause: (u64, u64),
    pub(crate) watchdog: u64,
    pub(crate) response: u64,
    pub(crate) outage: u64,
    pub(crate) poll: u64,
    /// The library's own way out of lost data.
    pub(crate) strict: bool,
}

impl Plan {
    fn words(&self) -> [u64; 18] {
        let flag = u64::from;
        [
            self.threads,
            self.names,
            flag(self.mixed),
            flag(self.forces),
            flag(self.asks_zero),
            flag(self.wanders),
            flag(self.overstays),
            self.lease,
            flag(self.renewed),
            self.hold.0,
            self.hold.1,
            self.pause.0,
            self.pause.1,
            self.watchdog,
            self.response,
            self.outage,
            self.poll,
            flag(self.strict),
        ]
    }

    fn of(words: [u64; 18]) -> Self {
        let [threads, names, mixed, forces, zero, wanders, overstays, lease, renewed, h0, h1, p0, rest @ ..] = words;
        let [p1, watchdog, response, outage, poll, strict] = rest;
        Self {
            threads,
            names,
            mixed: mixed != 0,
            forces: forces != 0,
            asks_zero: zero != 0,
            wanders: wanders != 0,
            overstays: overstays != 0,
            lease,
            renewed: renewed != 0,
            hold: (h0, h1),
            pause: (p0, p1),
            watchdog,
            response,
            outage,
            poll,
            strict: strict != 0,
        }
    }
}

/// One worker's order: where it works, with what seed, and how.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) dir: String,
    pub(crate) url: String,
    /// Unlike that of every other process of the run, also of those it replaces.
    pub(crate) number: u64,
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
}

impl Order {
    pub(crate) fn to_text(&self) -> String {
        let words: Vec<_> = [self.number, self.seed].iter().chain(&self.plan.words()).map(u64::to_string).collect();
        [self.dir.as_str(), self.url.as_str(), &words.join(" ")].join("\n")
    }

    pub(crate) fn of(text: &str) -> Self {
        let mut lines = text.lines();
        let (dir, url) = (lines.next().unwrap().to_owned(), lines.next().unwrap().to_owned());
        let words: Vec<u64> = lines.next().unwrap().split(' ').map(|word| word.parse().unwrap()).collect();
        Self { dir, url, number: words[0], seed: words[1], plan: Plan::of(words[2..].try_into().unwrap()) }
    }
}
