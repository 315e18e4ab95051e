//! Several requests in one write: requests for many slots of a cluster cost one round trip for each node.

use super::server::Server;
use super::wire::{Live, Wire, own_reply};
use super::{Answer, Failure, Limits, Reply, Request};
use crate::base::time::Moment;
use redis::{RedisError, Value};

/// The outcome of each request.
pub(super) type Each = Vec<Result<Answer, Failure>>;

impl Wire {
    /// Sends all requests, and reads the answer to each. If the server found one too old, or does not know its script, nothing was
    /// done. That request is not repeated here: it can be tried alone.
    ///
    /// If replicas have to confirm, one WAIT covers all requests: it counts replicas that have every write before it.
    pub(super) fn attempt_each(
        &mut self,
        requests: &[Request<'_>],
        limits: Limits<'_>,
        connect_by: Moment,
    ) -> Result<Each, Failure> {
        let mut live = self.take_live(connect_by)?;
        let schedule = self.schedule(limits, None);
        let said = live.exchange_each(requests, &schedule, self.server.replicas);
        let life = live.life;
        self.check_not_retired(life, &schedule)?;
        let answer = |reply| Answer { reply, sent: schedule.sent, confirmed: None, on_its_way: false, life };
        let server = &self.server;
        let broken = |error: &RedisError| server.unanswered(error, life, schedule.deadline);
        let understood = |request: &Request<'_>, deadline, value: Value| match value.extract_error() {
            Ok(value) => own_reply(request, deadline, value).map(answer).map_err(|error| broken(&error)),
            Err(error) if error.code() == Some("STALE") => Err(Failure::Stale),
            Err(error) => match server.classify(&error, life, schedule.deadline) {
                failure if !request.is_callers() && server.distrusts(&failure) => Err(broken(&error)),
                failure => Err(failure),
            },
        };
        let deadlines = (0..).map(|before| live.deadline(&schedule) - before);
        let asked = requests.iter().zip(deadlines).zip(said);
        let mut each: Each = asked
            .map(|((request, deadline), said)| {
                said.map_err(|error| broken(&error)).and_then(|value| understood(request, deadline, value))
            })
            .collect();
        // One answer that came twice would be taken for the next request's, and that for the one after: then one is left at the end.
        if live.owes_nothing()
            && let Err(error) = live.look()
        {
            each.iter_mut().for_each(|answer| *answer = Err(server.unanswered(&error, life, schedule.deadline)));
        }
        let is_whole = |answer: &Result<Answer, Failure>| !matches!(answer, Err(Failure::Unknown { .. }));
        if each.iter().all(is_whole) && confirm_each(&mut live, server, requests, &mut each, schedule.deadline).is_ok()
        {
            self.keep(live);
        }
        self.check_not_retired(life, &schedule)?;
        Ok(each)
    }
}

/// Notes on each grant how many replicas confirmed it. If they are too few, each grant becomes a failure.
fn confirm_each(
    live: &mut Live,
    server: &Server,
    requests: &[Request<'_>],
    each: &mut Each,
    open_until: Moment,
) -> Result<(), RedisError> {
    let grants = |request: &Request<'_>, reply: &Reply| request.grants.is_some_and(|grants| grants(reply));
    let granted = |(request, answer): (&Request<'_>, &Result<Answer, Failure>)| {
        answer.as_ref().is_ok_and(|answer| grants(request, &answer.reply))
    };
    let Some(required) = server.replicas.map(|replicas| replicas.count) else { return Ok(()) };
    if !requests.iter().zip(each.iter()).any(granted) {
        return Ok(());
    }
    let confirmed = live.confirmed();
    for (request, answer) in requests.iter().zip(each.iter_mut()) {
        let Ok(granted) = answer else { continue };
        if !grants(request, &granted.reply) {
            continue;
        }
        match &confirmed {
            Ok(count) if usize::try_from(*count).is_ok_and(|count| count >= required) => {
                granted.confirmed = Some((usize::try_from(*count).unwrap_or(required), required));
            }
            Ok(count) => *answer = Err(server.unconfirmed(*count, required)),
            Err(error) => *answer = Err(server.unanswered(error, live.life, open_until)),
        }
    }
    confirmed.map(drop)
}
