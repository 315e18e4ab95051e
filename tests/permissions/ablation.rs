//! Trials: what a user with some rules is refused, by all that a program does.

use crate::calls;
use crate::place::Place;
use crate::rows::ROWS;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// What a child is told, one value a line: the row, the user, where he logs in, another user of the same rules, where that one does,
/// and the name of a lock in a slot that moves.
const CHILD: &str = "REDLATCH_TRIAL";

/// What a child prints behind this is for its parent.
const SIGN: &str = "@@ ";

/// So many at once wait more than they compute.
const AT_ONCE: usize = 32;

/// How long a server keeps its scripts.
const FORGETFUL: Duration = Duration::from_millis(50);

/// How often it is tried whether all calls work.
const TRIES: usize = 3;

/// How it went.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The calls that failed, each with what it said.
    pub(crate) failed: Vec<(String, String)>,
    /// What was logged.
    pub(crate) logged: Vec<String>,
    /// What the servers refused.
    pub(crate) refused: Vec<String>,
    /// What a client with the self-test logged and got for its first call.
    pub(crate) told: Vec<String>,
}

impl Trial {
    /// Whether no rule was missing, whatever the self-test says: each lack is a refusal that the servers keep. What failed for
    /// another reason did so on a machine that is too busy.
    pub(crate) fn needs_nothing(&self) -> bool {
        self.refused.is_empty()
    }

    /// The same, nothing failed or was said, and the self-test says nothing.
    pub(crate) fn is_fine(&self) -> bool {
        self.needs_nothing() && self.is_silent()
    }

    /// Nothing failed or was said, whatever the server refused.
    pub(crate) fn is_silent(&self) -> bool {
        self.told.is_empty() && self.logged.is_empty() && self.failed.is_empty()
    }

    /// Whether the self-test says which rule is missing.
    pub(crate) fn names(&self, rule: &str) -> bool {
        let advice = self.told.iter().filter_map(|text| Some(text.split_once("ACL SETUSER app ")?.1));
        advice.flat_map(|text| text.split([' ', ';'])).any(|word| word == rule)
    }

    fn read(&mut self, user: &str, output: &Output) {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        for line in text.lines().filter_map(|line| line.strip_prefix(SIGN)) {
            let line = line.replace(&format!("{user}t"), "app").replace(user, "app");
            let (kind, text) = line.split_once('\t').unwrap();
            match (kind, text.split_once('\t')) {
                // Nothing is amiss: each deployment is new to strict clients.
                ("logged", _) if text.contains("is new to strict mode") => {}
                ("failed", Some((call, why))) => self.failed.push((call.to_owned(), why.to_owned())),
                ("logged", _) => self.logged.push(text.to_owned()),
                _ => self.told.push(text.to_owned()),
            }
        }
    }
}

/// One for each of these sets of rules, in their order. Servers forget their scripts all the time, so that each call needs what runs
/// one for the first time. Who may not do that comes first: else what the others run would be there for it, now and then.
pub(crate) fn trials(row: usize, place: &Place, sets: &[Vec<&str>]) -> Vec<Trial> {
    let (others, first): (Vec<_>, Vec<_>) = (0..sets.len()).partition(|at| sets[*at].contains(&"+eval"));
    let mut done: Vec<_> = [first, others].iter().flat_map(|some| at_once(row, place, sets, some)).collect();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, trial)| trial).collect()
}

/// One less is left when it goes, also by a panic: else who forgets scripts for the others would go on for ever.
struct Gone<'a>(&'a AtomicUsize);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Those of some of the sets, each with its place.
fn at_once(row: usize, place: &Place, all: &[Vec<&str>], sets: &[usize]) -> Vec<(usize, Trial)> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let left = AtomicUsize::new(AT_ONCE.min(sets.len()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while left.load(SeqCst) > 0 {
                place.forget_scripts();
                std::thread::sleep(FORGETFUL);
            }
        });
        for _ in 0..left.load(SeqCst) {
            scope.spawn(|| {
                let _gone = Gone(&left);
                while let Some(&at) = sets.get(next.fetch_add(1, SeqCst)) {
                    let trial = trial(row, place, &all[at]);
                    done.lock().unwrap().push((at, trial));
                }
            });
        }
    });
    done.into_inner().unwrap()
}

static NUMBER: AtomicUsize = AtomicUsize::new(0);

fn trial(row: usize, place: &Place, rules: &[&str]) -> Trial {
    let number = NUMBER.fetch_add(1, SeqCst);
    // Of one length, so that none is the beginning of another.
    let users = [format!("app{number:05}"), format!("app{number:05}t")];
    let urls = users.each_ref().map(|user| place.let_in(&ROWS[row], user, rules).join(" "));
    let told = format!("{row}\n{}\n{}\n{}\n{}\n{}", users[0], urls[0], users[1], urls[1], place.moving());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "one_trial", "--nocapture"]).env(CHILD, told).stdin(Stdio::null());
    let mut trial = Trial::default();
    trial.read(&users[0], &command.output().unwrap());
    trial.refused = place.refused(&users[0]);
    trial
}

/// One with these rules for a user who lacks nothing, by whom all calls work: on a machine that is too busy one of some.
#[track_caller]
pub(crate) fn assert_fine(row: usize, place: &Place, rules: &[&str]) {
    let trial = || trials(row, place, &[rules.to_vec()]).remove(0);
    let tried: Vec<_> = std::iter::repeat_with(trial).take(TRIES).scan(false, until_fine).collect();
    let is_fine = tried.last().is_some_and(Trial::is_fine) && tried.iter().all(Trial::needs_nothing);
    assert!(is_fine, "{}: {tried:#?}", ROWS[row].title);
}

fn until_fine(was_fine: &mut bool, trial: Trial) -> Option<Trial> {
    (!std::mem::replace(was_fine, trial.is_fine())).then_some(trial)
}

/// Runs in a process of its own: prints what is for its parent.
pub(crate) fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let told: Vec<_> = told.split('\n').collect();
    let [row, user, urls, tester, tester_urls, moving] = told[..] else { panic!("six values: {told:?}") };
    let row = &ROWS[row.parse::<usize>().unwrap()];
    let urls = [urls, tester_urls].map(|urls| urls.split(' ').map(str::to_owned).collect::<Vec<_>>());
    log::set_logger(&LOGGED).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    for (call, why) in calls::all(row, &urls[0], user, moving) {
        println!("{SIGN}failed\t{call}\t{why}");
    }
    LOGGED.print("logged");
    if let Some(why) = calls::first(row, &urls[1], tester) {
        println!("{SIGN}told\t{why}");
    }
    LOGGED.print("told");
}

struct Logged(Mutex<Vec<String>>);

static LOGGED: Logged = Logged(Mutex::new(Vec::new()));

impl Logged {
    fn print(&self, kind: &str) {
        self.0.lock().unwrap().drain(..).for_each(|line| println!("{SIGN}{kind}\t{line}"));
    }
}

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target().starts_with("redlatch") {
            self.0.lock().unwrap().push(record.args().to_string().replace('\n', " "));
        }
    }

    fn flush(&self) {}
}
