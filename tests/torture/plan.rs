//! What a worker is told to do, as words on its way there.

/// What a plan's field is on its way: words of an order.
trait Words {
    fn put(&self, words: &mut Vec<u64>);
    fn take(words: &mut impl Iterator<Item = u64>) -> Self;
}

impl Words for u64 {
    fn put(&self, words: &mut Vec<u64>) {
        words.push(*self);
    }

    fn take(words: &mut impl Iterator<Item = u64>) -> Self {
        words.next().expect("a word for each field")
    }
}

impl Words for bool {
    fn put(&self, words: &mut Vec<u64>) {
        u64::from(*self).put(words);
    }

    fn take(words: &mut impl Iterator<Item = u64>) -> Self {
        u64::take(words) != 0
    }
}

impl Words for (u64, u64) {
    fn put(&self, words: &mut Vec<u64>) {
        words.extend([self.0, self.1]);
    }

    fn take(words: &mut impl Iterator<Item = u64>) -> Self {
        (u64::take(words), u64::take(words))
    }
}

/// A struct that goes as words: each field is named once.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub(crate) struct $name { $($(#[$item_doc])* pub(crate) $item: $type,)* }

        impl Words for $name {
            fn put(&self, words: &mut Vec<u64>) {
                $(self.$item.put(words);)*
            }

            fn take(words: &mut impl Iterator<Item = u64>) -> Self {
                // In the order in which they are written here.
                Self { $($item: Words::take(words),)* }
            }
        }
    };
}

words! {
    /// All times are in milliseconds.
    Plan {
        threads: u64,
        /// How many locks they contend for.
        names: u64,
        /// Every operation there is, in a random order; otherwise lock, hold and unlock alone.
        mixed: bool,
        /// Force unlocks too.
        forces: bool,
        /// Asks for a lease of zero too.
        asks_zero: bool,
        /// Goes to another name all the time.
        wanders: bool,
        /// Holds on until the lease has run out.
        overstays: bool,
        /// Zero: the watchdog's.
        lease: u64,
        /// That lease is renewed.
        renewed: bool,
        hold: (u64, u64),
        pause: (u64, u64),
        watchdog: u64,
        response: u64,
        outage: u64,
        poll: u64,
        /// Stays inside for up to so long now and then; zero: for .4 s at most.
        lingers: u64,
        /// The library's own way out of lost data.
        strict: bool,
        /// So many replicas confirm each grant; zero: none is asked.
        replicas: u64,
        /// Unlock messages in a cluster go to all of its nodes.
        plain: bool,
        /// All workers use fenced locks; else every third of those that do every operation.
        fenced: bool,
        /// All workers use fair locks; else every fifth of those that do every operation.
        fair: bool,
        /// Those that do not do every operation have commands run while they hold a lock, again and again.
        guarded: bool,
        /// So many read-write locks there are besides; those that do not do every operation use these alone.
        sides: u64,
        /// So many of the first workers write and the others read; zero: each does both, and one in four times it writes.
        writers: u64,
        /// Whoever writes goes over to reading.
        downgrades: bool,
        /// One turn in so many is with a group; zero: none.
        groups: u64,
        /// One turn in so many is with permits of a semaphore; zero: none.
        permits: u64,
        /// Holds a lock while it waits for one with a greater number.
        nests: bool,
        /// Holds a lock while it waits for any other, for a while.
        crosses: bool,
    }
}

impl Plan {
    /// After so long what was released is surely over: a renewal that began before is executed 200 ms after the end of its wait at most, and
    /// keeps the key for a lease, 1 % and 2 ms. The wait itself is the response time-out that each call may have besides.
    pub(crate) fn over(&self) -> u64 {
        200 + self.watchdog + self.watchdog / 100 + 2
    }
}

/// One worker's order: where it works, with what seed, and how.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) dir: String,
    pub(crate) url: String,
    /// From the port of a node that sentinels or nodes name to the one by which a worker reaches it.
    pub(crate) ways: Vec<(u16, u16)>,
    /// Unlike that of every other process of the run, also of those it replaces.
    pub(crate) number: u64,
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
}

impl Order {
    pub(crate) fn to_text(&self) -> String {
        let mut words = vec![self.number, self.seed];
        self.plan.put(&mut words);
        words.extend(self.ways.iter().flat_map(|&(named, reached)| [u64::from(named), u64::from(reached)]));
        let words: Vec<_> = words.iter().map(u64::to_string).collect();
        [self.dir.as_str(), self.url.as_str(), &words.join(" ")].join("\n")
    }

    pub(crate) fn of(text: &str) -> Self {
        let mut lines = text.lines();
        let (dir, url) = (lines.next().unwrap().to_owned(), lines.next().unwrap().to_owned());
        let mut words = lines.next().unwrap().split(' ').map(|word| word.parse().unwrap());
        let (number, seed) = (u64::take(&mut words), u64::take(&mut words));
        let plan = Plan::take(&mut words);
        let ports: Vec<_> = words.map(|port| port as u16).collect();
        let ways = ports.chunks_exact(2).map(|way| (way[0], way[1])).collect();
        Self { dir, url, ways, number, seed, plan }
    }
}
