//! What was wrong in a trial. The truth is the servers' record.

use crate::faults::Fault;
use crate::ground::{Deployment, Ground};
use crate::party::{Account, Told};
use crate::site::{LIVES, RELEASES, Reply, Sent};
use crate::trial::{Kind, Played, Trial, Way};
use crate::truth::{End, Field, MS, Micros, Span, spans};

/// A removal this short before a moment may be seen either way.
const SLACK: Micros = 5 * MS;

/// From the end of a fault until calls succeed again, on a busy machine.
const AGAIN: Micros = 500 * MS;

/// How long after everything is calm and free the next holder may still wait.
const SOON: Micros = 2_500 * MS;

/// The same of permits: a place that a refused wait leaves counts for so long (row 144 of the faults).
const SOON_FOR_PERMITS: Micros = 15_000 * MS;

/// A hold that was confirmed so long ago has an old attempt, which could leave a key.
const OLD: Micros = 100 * MS;

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) wrong: Vec<String>,
    /// A loss was not told, since an attempt may have freed the lock that was not executed: a key that it leaves would have decided.
    pub(crate) untold: bool,
    /// A loss was told that was none: another life than that which freed the lock said that it was gone.
    pub(crate) alarm: bool,
    /// What each did and was told.
    pub(crate) story: String,
}

/// What one server said of one field to the release of its owner, by the table of verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// It was there, or its lease explains that it was not.
    Yes,
    /// An attempt before had freed it. `moved`: the answer came from another life.
    Before {
        moved: bool,
    },
    /// Somebody else took it away, and an attempt before may explain that. `is_old`: it could leave a key.
    Explained {
        is_old: bool,
    },
    /// It was not there, and nothing explains that. The answer was then.
    No {
        said: Micros,
    },
    Silent,
    /// The record is not exact enough.
    Unclear,
}

/// A field at a server.
#[derive(Debug)]
struct Place {
    spans: Vec<Span>,
    /// The releases of its owner.
    sent: Vec<Sent>,
    word: Word,
    /// A server that was not its master any more said what became of it.
    is_elsewhere: bool,
    /// Somebody forced it open at a server, which may not have been its master any more.
    was_forced: bool,
}

impl Place {
    /// The span at this moment.
    fn at(&self, at: Micros) -> Option<&Span> {
        self.spans.iter().find(|span| span.from <= at && at < span.to)
    }

    /// Somebody else took it away in this time, or it was never there.
    fn gone_within(&self, from: Micros, to: Micros) -> Option<Micros> {
        let taken = |span: &&Span| span.end == End::Other && span.to <= to && span.to + SLACK >= from;
        let first = self.spans.iter().find(taken).map(|span| span.to);
        first.or_else(|| self.spans.iter().all(|span| span.from > to).then_some(from))
    }

    /// It was there from the beginning of its release until that freed it, or until its lease ended.
    fn is_safe(&self, account: &Account) -> bool {
        self.at(account.ending).is_some_and(|span| match span.end {
            End::Own | End::None => true,
            End::Expired => span.to + 10 * MS >= account.believed_until,
            End::Other => false,
        })
    }
}

fn word(
    spans: &[Span],
    confirmed: &[(Micros, usize)],
    sent: &[Sent],
    account: &Account,
    played: &Played,
    trial: &Trial,
) -> Word {
    let response = trial.response().as_micros() as Micros;
    // Who is stopped meanwhile may find the time over before it reads an answer that has come.
    let is_stopped = |from: Micros, to: Micros| {
        let is_it = |fault: Fault| account.stops_by == Some(fault);
        played.hits.iter().any(|(fault, begun, over)| is_it(*fault) && *begun <= to && from < *over)
    };
    let (mut open, mut answer) = (Vec::new(), None);
    for one in sent {
        match one.reply {
            Reply::At(at) | Reply::Refused(at) if is_stopped(one.at, at) => return Word::Unclear,
            Reply::At(at) if at < one.at + response * 4 / 5 => {
                answer = Some((one, at));
                break;
            }
            Reply::Refused(at) if at < one.at + response * 4 / 5 => {}
            Reply::At(at) | Reply::Refused(at) if at < one.at + response * 6 / 5 => return Word::Unclear,
            Reply::Perhaps => return Word::Unclear,
            Reply::At(_) | Reply::Refused(_) | Reply::None => open.push(one),
        }
    }
    let Some((answer, said)) = answer else { return Word::Silent };
    // The client reads its clock after the answer.
    if said >= account.believed_until {
        return Word::Yes;
    }
    if said + 50 * MS >= account.believed_until {
        return Word::Unclear;
    }
    let freed = spans.iter().find(|span| span.end == End::Own && span.to + SLACK >= account.ending);
    if let Some(freed) = freed.filter(|freed| freed.to <= said + SLACK) {
        let is_same = |life: usize| life == answer.life;
        // An attempt that is open may have freed it just before.
        let slack = if open.is_empty() { SLACK } else { MS };
        let by_this = freed.to + slack >= answer.at && !open.iter().any(|one| is_same(one.life));
        if is_same(freed.life) && by_this {
            // An attempt before, over a connection from before two masters took each other's place, may be executed by the same server, late.
            let is_back = |one: &&Sent| one.life / LIVES == answer.life / LIVES;
            return if open.iter().any(is_back) { Word::Unclear } else { Word::Yes };
        }
        // What confirms a hold at a new master may be on its way when a release is sent: then its client does not know of it.
        let sent = open.first().map_or(freed.to, |one| one.at);
        let is_known = |at: Micros| account.granted.is_some_and(|granted| at <= granted) || at + SLACK <= sent;
        let mut before = confirmed.iter().rev().filter(|(at, _)| *at <= freed.to);
        let decides = |(at, life): &&(Micros, usize)| is_known(*at) || !is_same(*life);
        let last = before.find(decides);
        let is_steady = last.is_some_and(|(_, life)| is_same(*life)) && open.iter().all(|one| is_same(one.life));
        return Word::Before { moved: !(is_same(freed.life) && is_steady) };
    }
    let is_there = spans.iter().any(|span| span.from <= said + SLACK && span.to + SLACK >= answer.at);
    if is_there {
        return Word::Unclear;
    }
    let last = confirmed.iter().rev().find(|(at, _)| *at <= answer.at);
    let explains = |one: &&&Sent| last.is_some_and(|(_, life)| *life == one.life && *life == answer.life);
    match open.iter().find(explains) {
        Some(one) => Word::Explained { is_old: last.is_some_and(|(at, _)| *at + OLD <= one.at) },
        None => Word::No { said },
    }
}

/// What the servers had and said of each field of a hold: a row for each field, a place for each server.
fn places(played: &Played, trial: &Trial, account: &Account, is_holder: bool) -> Vec<Vec<Place>> {
    let mut fields = Vec::new();
    for (resource, owner) in &account.owners {
        match trial.kind {
            Kind::Leased if account.died => fields.push((format!("{{{resource}}}:timeout"), owner.clone(), owner)),
            Kind::Leased => {
                let names = (1..=trial.permits()).map(|permit| format!("{owner}:{permit}"));
                fields.extend(names.map(|name| (format!("{{{resource}}}:timeout"), name, owner)));
            }
            _ => fields.push((resource.clone(), owner.clone(), owner)),
        }
    }
    let records: Vec<_> = played.sites.iter().map(|site| site.record.lines()).collect();
    let of_field = |(key, name, owner): &(String, String, &String)| {
        let of_site = |(site, lines): (&std::sync::Arc<crate::site::Site>, &Vec<_>)| {
            let key = &*played.ground.as_ref().map_or_else(|| key.clone(), |ground| ground.key_of(key));
            let field = Field { key, name, owner, is_alone: trial.kind != Kind::Leased };
            let (spans, confirmed) = spans(lines, &field, &RELEASES);
            let wire = if is_holder { &site.wire } else { &site.others };
            let sent = wire.lock().unwrap().sent.clone();
            let mine: Vec<_> = sent.into_iter().filter(|sent| sent.at >= account.ending && sent.is_of(owner)).collect();
            let is_elsewhere = played.ground.as_ref().is_some_and(|ground| ground.is_elsewhere(key, &mine));
            let word = match word(&spans, &confirmed, &mine, account, played, trial) {
                _ if is_elsewhere => Word::Unclear,
                word => word,
            };
            let is_forced = is_at_once(played, Fault::ForceUnlock, account.asked, account.ended);
            let forced = |ground: &Ground| ground.was_taken(&field, account.asked, account.ended);
            let was_forced = is_forced && played.ground.as_deref().is_some_and(forced);
            Place { spans, sent: mine, word, is_elsewhere, was_forced }
        };
        match &played.ground {
            // The sites of a ground have one record in common for each key.
            Some(ground) => vec![of_site((&played.sites[0], &ground.lines(&ground.key_of(key))))],
            None => played.sites.iter().zip(&records).map(of_site).collect(),
        }
    };
    fields.iter().map(of_field).collect()
}

/// Of the servers of a lock: so many may lack it while it is held.
fn may_lack(places: &[Place]) -> usize {
    places.len() - (places.len() / 2 + 1)
}

/// Whether a loss has to be told, and when the last answer came that says so.
fn must_tell(fields: &[Vec<Place>], account: &Account) -> Option<Micros> {
    let of_field = |places: &Vec<Place>| {
        let noes = places.iter().filter_map(|place| match place.word {
            Word::No { said } => Some(said),
            _ => None,
        });
        let mut noes: Vec<_> = noes.collect();
        noes.sort_unstable();
        let said = *noes.get(may_lack(places))?;
        // A round of a quorum ends with a majority, and what comes later is swept.
        let in_round = places.len() == 1 || said < account.ending + 100 * MS;
        let all_say = places.iter().all(|place| matches!(place.word, Word::No { .. } | Word::Silent));
        (in_round || all_say).then_some(said)
    };
    fields.iter().filter_map(of_field).min()
}

fn is_at_once(played: &Played, fault: Fault, from: Micros, to: Micros) -> bool {
    played.hits.iter().any(|(one, begun, over)| *one == fault && *begun <= to && *over + 100 * MS >= from)
}

/// Whether a server refused it because of a fault at this time. `needs_memory`: releases do not.
fn is_refusal(played: &Played, error: &Told, from: Micros, to: Micros, needs_memory: bool) -> bool {
    match error.code.as_str() {
        "NOPERM" => is_at_once(played, Fault::NoRight, from, to),
        // A server that comes back knows the users a moment later.
        "WRONGPASS" => Fault::FAILOVERS.iter().any(|fault| is_at_once(played, *fault, from, to)),
        "OOM" => needs_memory && is_at_once(played, Fault::NoMemory, from, to),
        _ => false,
    }
}

/// What is wrong with an error, if no loss is behind it: it came too early or too late. So many servers share the budget.
fn is_wrong_error(trial: &Trial, played: &Played, servers: Micros, from: Micros, to: Micros) -> bool {
    let budget = trial.budget().as_micros() as Micros * 9 / 10 / servers;
    to - from < budget || played.calm() + AGAIN < to
}

/// What a client was told of its hold.
struct Party<'a> {
    name: &'static str,
    way: Way,
    account: &'a Account,
    fields: &'a [Vec<Place>],
    /// Its callbacks are its own.
    is_holder: bool,
}

impl Party<'_> {
    fn story(&self) -> String {
        let account = self.account;
        let shows = |at: Micros| format!("{:+.1}", (at as f64 - account.ending as f64) / MS as f64);
        let said = self.fields.iter().flatten().map(|place| {
            let spans =
                place.spans.iter().map(|span| format!("{}..{} {:?}", shows(span.from), shows(span.to), span.end));
            let sent = place.sent.iter().map(|sent| match sent.reply {
                Reply::At(at) => format!("{} in life {} answered {}", shows(sent.at), sent.life, shows(at)),
                reply => format!("{} in life {} {reply:?}", shows(sent.at), sent.life),
            });
            let [spans, sent] = [spans.collect::<Vec<_>>(), sent.collect()].map(|parts| parts.join(", "));
            format!("{spans}; releases {sent}; so {:?}", place.word)
        });
        format!(
            "{}: asked {}, granted {}, believed until {}, ended {} ms, valid {}, result {:?}, heard {}, called {}, counted {}; field: {}",
            self.name,
            shows(account.asked),
            shows(account.granted.unwrap_or(0)),
            shows(account.believed_until),
            shows(account.ended),
            account.was_valid,
            account.result.as_ref().map(|result| result.as_ref().map_err(|told| &told.text)),
            account.heard,
            account.called,
            account.counted,
            said.collect::<Vec<_>>().join(" | ")
        )
    }

    fn judge(&self, trial: &Trial, played: &Played, verdict: &mut Verdict) {
        let (account, story) = (self.account, || self.story());
        let Some(result) = &account.result else { return };
        let is_call = !matches!(self.way, Way::Drop | Way::Panic);
        let words = || self.fields.iter().flatten().map(|place| place.word);
        let mut wrong = |what: &str| verdict.wrong.push(format!("{what}; {}", story()));

        // A loss is told by every way in which work can end.
        if let Some(said) = must_tell(self.fields, account)
            && (!account.was_told() || (is_call && result.is_ok() && said + 30 * MS < account.ended))
        {
            wrong("a loss is not told");
        } else if !account.was_told() && words().any(|word| word == Word::Explained { is_old: true }) {
            verdict.untold = true;
        }
        if !account.was_valid && (is_call && result.is_ok() || !account.was_told()) {
            wrong("its time was over, and nobody said so");
        }

        // No loss is told that was none. A call that begins just before its deadline may begin after it, and the call for an inner level
        // may last until then.
        let is_safe = account.was_valid
            && self
                .fields
                .iter()
                .all(|places| places.iter().filter(|place| !place.is_safe(account)).count() <= may_lack(places));
        let is_late = account.ending + 60 * MS > account.believed_until
            || (self.way == Way::Inner && account.ended + 60 * MS > account.believed_until);
        if is_safe && account.was_told() && !is_late {
            // A release that a master may have answered before it was replaced, and the next one answered for sure.
            let is_between = |place: &Place| {
                place.word == Word::Unclear && place.sent.windows(2).any(|pair| pair[0].life != pair[1].life)
            };
            let may_be = played.ground.is_some() && self.fields.iter().flatten().any(is_between);
            let was_forced = self.fields.iter().flatten().any(|place| place.was_forced);
            if may_be || was_forced || words().any(|word| word == Word::Before { moved: true }) {
                verdict.alarm = true;
            } else {
                wrong("a loss is told that was none");
            }
        }
        if self.is_holder && account.was_told_by_result() && account.called == 0 {
            wrong("the call tells a loss, and the callback does not");
        }
        if account.was_told_by_result() && !account.heard {
            wrong("the call tells a loss, and its channel does not");
        }
        if self.is_holder && account.called != account.counted {
            wrong("the callback is called more or less often than losses are counted");
        }
        if self.is_holder && account.called > account.owners.len() {
            wrong("the callback is called more than once for a loss");
        }

        // Of two servers of a group each has a share of the time for a release.
        let servers = if trial.is_of_two() && trial.deployment == Deployment::Cluster { 2 } else { 1 };
        if let Err(error) = result
            && is_safe
            && !is_late
            && !account.was_told_by_result()
            && !is_refusal(played, error, account.ending, account.ended, false)
            && is_wrong_error(trial, played, servers, account.ending, account.ended)
        {
            wrong("an error for safe work");
        }

        // Who is told that it is free, and was not told before that it is lost, finds it free.
        let is_there = |place: &&Place| {
            !place.is_elsewhere
                && place.at(account.ended).is_some_and(|span| {
                    let to = span.lease.unwrap_or(span.to).min(span.to);
                    span.from < account.ending && to > account.ended + SLACK
                })
        };
        let is_held = self.fields.iter().any(|places| places.iter().filter(is_there).count() > may_lack(places));
        if matches!(self.way, Way::Unlock | Way::Guard | Way::Inner) && result.is_ok() && is_held {
            wrong("it was released, and is still there");
        }
    }
}

pub(crate) fn judge(trial: &Trial, played: &Played) -> Verdict {
    let holder = &played.holder;
    let mut verdict = Verdict::default();
    let fields = places(played, trial, holder, true);
    let party = Party { name: "the holder", way: trial.way, account: holder, fields: &fields, is_holder: true };
    verdict.story = party.story();
    match (holder.granted, &holder.result) {
        (Some(_), _) => party.judge(trial, played, &mut verdict),
        // An outage counts from its beginning, which may be before the call.
        (None, Some(Err(error))) => {
            let began = played.hits.iter().map(|(_, at, _)| *at).min().unwrap_or(holder.asked).min(holder.asked);
            let is_wrong = is_wrong_error(trial, played, 1, began, holder.ended);
            if !is_refusal(played, error, holder.asked, holder.ended, true) && is_wrong {
                let took = (holder.ended - holder.asked) / MS;
                verdict.wrong.push(format!("the holder's ask failed after {took} ms: {}", error.text));
            }
        }
        _ => {}
    }

    // The first and the rival are one client: what the first passes on in memory is not released.
    for (name, account) in [("the first", &played.first), ("the rival", &played.rival), ("the waiter", &played.waiter)]
    {
        let Some(account) = account.as_ref().filter(|account| account.granted.is_some()) else { continue };
        if name == "the first" && trial.has_rival {
            continue;
        }
        let fields = places(played, trial, account, false);
        let party = Party { name, way: Way::Unlock, account, fields: &fields, is_holder: false };
        party.judge(trial, played, &mut verdict);
        verdict.story = format!("{}; {}", verdict.story, party.story());
    }

    if let Some(rival) = &played.rival {
        let story = || party.story();
        if let (Some(at), Some(granted)) = (rival.granted, holder.granted) {
            let overlaps = at + SLACK < holder.believed && rival.believed > granted && at > granted;
            let of_field = |places: &Vec<Place>| {
                let mut gone: Vec<_> =
                    places.iter().filter_map(|place| place.gone_within(granted, at + SLACK)).collect();
                gone.sort_unstable();
                gone.get(may_lack(places)).copied()
            };
            let is_true = played.ground.as_ref().is_none_or(|ground| ground.had(rival, at));
            // A master that goes on prolongs what the new one lets end.
            let has_ended = |span: &Span| span.end == End::Expired && span.to >= granted && span.to <= at + SLACK;
            let is_stale = is_at_once(played, Fault::FailOverStale, granted, at)
                && fields.iter().flatten().flat_map(|place| &place.spans).any(has_ended);
            if overlaps && is_true && !is_stale && fields.iter().all(|places| of_field(places).is_none()) {
                let since = (at as f64 - holder.ending as f64) / MS as f64;
                verdict.wrong.push(format!("two believers: the rival since {since:+.1} ms; {}", story()));
            }
        }
        // Who was told what became of the lock left it free. Else it is there until it is swept, or its lease ends.
        let is_free = holder.was_told_by_result() || matches!(holder.result, Some(Ok(())));
        // What a process had that was killed is there until its lease ends. So is the lock that was given to its place.
        let waiter = played.waiter.as_ref().map(|waiter| places(played, trial, waiter, false));
        let of_waiter = waiter.iter().flatten().flatten().flat_map(|place| &place.spans);
        let until = rival.granted.unwrap_or(rival.ended);
        let of_waiter = of_waiter.filter(|span| span.from < until).map(|span| span.to).max().unwrap_or(0);
        let last = fields.iter().flatten().filter_map(|place| place.spans.last()).map(|span| span.to).max();
        let last = if is_free { 0 } else { last.unwrap_or(0) };
        let first = played.first.as_ref().map_or(0, |first| first.ended);
        let free = last.max(of_waiter).max(played.calm()).max(holder.ended).max(first);
        let soon = if trial.kind == Kind::Leased { SOON_FOR_PERMITS } else { SOON };
        match (rival.granted, &rival.result) {
            (Some(at), _) if at > free + soon => {
                verdict.wrong.push(format!(
                    "the next holder came {} ms after all was free; {}",
                    (at - free) / MS,
                    story()
                ));
            }
            (None, Some(Err(error))) => {
                let waited = rival.ended - rival.asked > 11_000 * MS;
                let refused = is_refusal(played, error, rival.asked, rival.ended, true);
                if waited && rival.ended > free + soon {
                    verdict.wrong.push(format!("the rival never had it: {}; {}", error.text, story()));
                } else if !waited && !refused && is_wrong_error(trial, played, 1, rival.asked, rival.ended) {
                    let took = (rival.ended - rival.asked) / MS;
                    verdict.wrong.push(format!("the rival's ask failed after {took} ms: {}; {}", error.text, story()));
                }
            }
            _ => {}
        }
    }
    if !played.left.is_empty() && trial.lease <= 3_000 {
        verdict.wrong.push(format!("left behind: {:?}; {}", played.left, party.story()));
    }
    if !played.has_all_permits {
        verdict.wrong.push(format!("permits are lost or doubled; {}", party.story()));
    }
    verdict
}
