//! What the server says: each command that it ran, in order, and from it when a holder's field was there.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// Microseconds since the epoch, as servers and this program count them.
pub(crate) type Micros = u64;

pub(crate) const MS: Micros = 1_000;

pub(crate) fn now() -> Micros {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as Micros
}

/// A command that a server ran, or what happened to it.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) at: Micros,
    /// By a script.
    pub(crate) by_script: bool,
    /// In which life of the server: the first is 0.
    pub(crate) life: usize,
    pub(crate) words: Vec<String>,
}

/// Why a field was gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By a release of its own.
    Own,
    Expired,
    /// By anybody else.
    Other,
    /// It was there to the end.
    None,
}

/// When a field was there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from: Micros,
    pub(crate) to: Micros,
    pub(crate) end: End,
    /// In which life of the server that was.
    pub(crate) life: usize,
    /// When its lease ended. A permit is there until somebody looks after that.
    pub(crate) lease: Option<Micros>,
}

/// The commands of a server, over all of its lives.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<Line>>>);

impl Record {
    /// Begins to listen. All that the server runs from here on is recorded, until it ends. A replica may run nothing for minutes.
    pub(crate) fn listen(&self, socket: &Path, life: usize) {
        let mut stream = UnixStream::connect(socket).expect("the server runs");
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("+OK"));
        let record = Arc::clone(&self.0);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                record.lock().unwrap().extend(of_line(&line, life));
            }
        });
    }

    /// What no command shows.
    pub(crate) fn note(&self, words: &[&str], life: usize) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.0.lock().unwrap().push(Line { at: now(), by_script: false, life, words });
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.0.lock().unwrap().iter().rev().any(|line| line.words.iter().any(|one| one == word))
    }

    /// Forgets what was before.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }
}

fn of_line(line: &str, life: usize) -> Option<Line> {
    let (time, asked) = line.strip_prefix('+')?.split_once(' ')?;
    let (by, command) = asked.split_once("] ")?;
    let mut words = words_of(command);
    words.first_mut()?.make_ascii_lowercase();
    let (seconds, micros) = time.split_once('.')?;
    let at = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    Some(Line { at, by_script: by.ends_with("lua"), life, words })
}

/// The words of a command as MONITOR shows it: each in quotes, with escapes of C.
fn words_of(command: &str) -> Vec<String> {
    let (mut words, mut word, mut letters) = (Vec::new(), None::<String>, command.chars());
    while let Some(letter) = letters.next() {
        match (letter, &mut word) {
            ('"', None) => word = Some(String::new()),
            ('"', Some(_)) => words.extend(word.take()),
            (_, None) => {}
            ('\\', Some(word)) => match letters.next() {
                Some('n') => word.push('\n'),
                Some('r') => word.push('\r'),
                Some('t') => word.push('\t'),
                Some(other) => word.push(other),
                None => {}
            },
            (other, Some(word)) => word.push(other),
        }
    }
    words
}

/// What a command that somebody sent may do to a hold, and so what the commands of its script do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// A release by the owner itself.
    OwnRelease,
    /// Any other script of the library.
    Library,
    /// A fault, or somebody by hand.
    Stranger,
}

/// How a script of a fault begins.
pub(crate) const BY_HAND: &str = "-- by hand";

/// Whether one command as a whole is a release that names this owner. `releases`: the hashes of the scripts that release.
fn is_release_of(words: &[&str], owner: &str, releases: &[String]) -> bool {
    let script = words.get(1).copied().unwrap_or_default();
    let is_one = match words[0] {
        "evalsha" => releases.iter().any(|hash| hash == script),
        "eval" => releases.iter().any(|hash| hash == redis::Script::new(script).get_hash()),
        _ => false,
    };
    is_one && words.iter().any(|word| is_owners(word, owner))
}

fn is_owners(word: &str, owner: &str) -> bool {
    word.strip_prefix(owner).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// An owner's field in a lock that is a hash, or the id of one permit of it.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) key: &'a str,
    /// What the field is called.
    pub(crate) name: &'a str,
    /// Who releases it.
    pub(crate) owner: &'a str,
    /// Nobody else can be in the hash at the same time.
    pub(crate) is_alone: bool,
}

/// When an owner's field was there, and when a script of the library last granted or prolonged it: in which life, and when.
pub(crate) fn spans(lines: &[Line], field: &Field<'_>, releases: &[String]) -> (Vec<Span>, Vec<(Micros, usize)>) {
    let mut replay =
        Replay { field, since: None, until: None, by: End::Expired, life: 0, spans: Vec::new(), confirmed: Vec::new() };
    let mut doing = Doing::Stranger;
    for line in lines {
        replay.expire(line.at);
        let words: Vec<_> = line.words.iter().map(String::as_str).collect();
        if !line.by_script {
            doing = match words[0] {
                _ if is_release_of(&words, field.owner, releases) => Doing::OwnRelease,
                "evalsha" => Doing::Library,
                "eval" if !words.get(1).is_some_and(|text| text.starts_with(BY_HAND)) => Doing::Library,
                _ => Doing::Stranger,
            };
        }
        replay.life = line.life;
        replay.run(line, &words, if line.by_script { doing } else { Doing::Stranger });
    }
    replay.expire(now());
    replay.finish(now(), End::None);
    (replay.spans, replay.confirmed)
}

struct Replay<'a> {
    field: &'a Field<'a>,
    since: Option<Micros>,
    until: Option<Micros>,
    /// What it means when that comes: somebody else may have set it.
    by: End,
    /// Of the last line.
    life: usize,
    spans: Vec<Span>,
    confirmed: Vec<(Micros, usize)>,
}

impl Replay<'_> {
    fn expire(&mut self, at: Micros) {
        // A server looks at its clock once a command, in ms.
        if let Some(until) = self.until.filter(|until| self.field.is_alone && until + 2 * MS <= at) {
            self.finish(until, self.by);
            self.until = None;
        }
    }

    fn finish(&mut self, to: Micros, end: End) {
        self.spans.extend(self.since.take().map(|from| Span { from, to, end, life: self.life, lease: self.until }));
    }

    fn run(&mut self, line: &Line, words: &[&str], doing: Doing) {
        let (at, Field { key: of_lock, name, is_alone, .. }) = (line.at, *self.field);
        let end = if doing == Doing::OwnRelease { End::Own } else { End::Other };
        let of_time = if doing == Doing::Stranger { End::Other } else { End::Expired };
        let is_others = |word: &&&str| word.matches(':').count() > 1 && !is_owners(word, name);
        match words {
            ["flushall" | "flushdb", ..] | ["lost"] => {
                self.finish(at, end);
                self.until = None;
            }
            ["del" | "unlink", keys @ ..] if keys.contains(&of_lock) => {
                self.finish(at, end);
                self.until = None;
            }
            [_, key, ..] if *key != of_lock => {}
            // What a new master has: each field, and when its time is over.
            ["kept", _, fields @ ..] => match fields.chunks(2).find(|pair| is_owners(pair[0], name)) {
                Some(pair) => {
                    self.since = self.since.or(Some(at));
                    self.until = pair[1].parse().ok();
                }
                None => {
                    self.finish(at, end);
                    self.until = None;
                }
            },
            ["hset" | "hsetnx" | "hincrby", _, fields @ ..] if fields.iter().any(|word| is_owners(word, name)) => {
                // The key that ended before has no part in it. One that ends now may still be there for an inner level, which does not prolong it.
                let is_inner = self.since.is_some();
                self.until = self.until.filter(|until| *until > at || is_inner);
                self.since = self.since.or(Some(at));
                if doing != Doing::Stranger {
                    self.confirmed.push((at, line.life));
                }
            }
            // Another owner took it. A script of the library does so when the hold's time is over.
            ["hset" | "hsetnx" | "hincrby", _, fields @ ..]
                if is_alone && fields.iter().any(|word| is_others(&word)) =>
            {
                self.finish(at, if doing == Doing::Stranger { End::Other } else { self.by });
                self.until = None;
            }
            ["hdel" | "zrem", _, fields @ ..] if fields.iter().any(|word| is_owners(word, name)) => {
                let is_over = doing == Doing::Library && self.until.is_some_and(|until| until <= at + 2 * MS);
                self.finish(at, if is_over { self.by } else { end });
            }
            ["zadd", _, rest @ ..] => {
                if let Some(place) = rest.iter().position(|word| is_owners(word, name)) {
                    self.since = self.since.or(Some(at));
                    self.until = rest[place - 1].parse::<u64>().ok().map(|ms| ms * 1_000);
                    self.by = of_time;
                    if doing != Doing::Stranger {
                        self.confirmed.push((at, line.life));
                    }
                }
            }
            ["pexpire", _, ms, ..] => {
                (self.until, self.by) = (ms.parse::<u64>().ok().map(|ms| at + ms * MS), of_time);
                if self.since.is_some() && doing == Doing::Library {
                    self.confirmed.push((at, line.life));
                }
            }
            ["persist", _] => self.until = None,
            _ => {}
        }
    }
}
