//! Commands of a caller that are run only while a lock is held (docs/protocol.md, 15), for every kind whose lock is a key of one
//! store.

use super::command::{Command, check_size, check_slots};
use super::engine::Engine;
use crate::base::error::{Applied, Error, Result};
use crate::base::mutant::{self, Mutant};
use crate::base::script::Count::AtLeast;
use crate::base::script::scripts;
use crate::base::time::Moment;
use crate::base::value::Value;
use crate::lease::hold::Hold;
use crate::lease::tenure::{Keeper, LossCause};
use crate::registry::current_thread;
use crate::store::Store;
use crate::store::node::{Arg, Broken, Failure, Lane, Limits, Reply, Request, code_in};
use std::time::Duration;

scripts! {
    /// Reply: for [`Ran::of`].
    WHILE_HELD = "while_held/run.lua", AtLeast(1), AtLeast(2);
}

/// How often a waiting call looks whether the client is still open.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// What became of the commands.
enum Ran {
    All(Vec<Value>),
    /// The hold is over, and none was run.
    None,
    /// The command with this number failed with this error.
    UpTo {
        at: usize,
        said: String,
        answers: Vec<Value>,
    },
    Unknown {
        open_until: Moment,
        broken: Broken,
    },
}

impl Ran {
    fn of(reply: Reply) -> Result<Self, Failure> {
        let Reply::Array(parts) = reply else {
            return if reply.number()? == 0 { Ok(Self::None) } else { Err(Failure::not_understood()) };
        };
        let Ok([Reply::Number(at), Reply::Text(said), Reply::Array(answers)]) = <[Reply; 3]>::try_from(parts) else {
            return Err(Failure::not_understood());
        };
        let answers = answers.into_iter().map(Reply::into_value).collect::<Result<Vec<_>, _>>()?;
        Ok(match usize::try_from(at) {
            Ok(at @ 1..) => Self::UpTo { at, said: String::from_utf8_lossy(&said).into_owned(), answers },
            _ => Self::All(answers),
        })
    }
}

impl Engine {
    /// Runs all commands in one script, up to the first that fails, if the hold is there; else none. They are sent again only if
    /// it is certain that the attempt before ran none.
    pub(in crate::lock) fn while_held(
        &self,
        store: &dyn Store,
        hold: &Hold,
        commands: &[Command],
    ) -> Result<Vec<Value>> {
        self.check_own(hold)?;
        if hold.thread() != current_thread() || hold.count() == 0 {
            return Err(Error::not_held(hold.resource()));
        }
        check_size(commands)?;
        if self.space.config.in_cluster {
            check_slots(hold, commands)?;
        }
        self.outlast_open_commands(hold)?;
        let tenure = hold.tenure();
        let keys: Vec<_> = commands.iter().flat_map(Command::keys).collect();
        let first = [Arg::Deadline, Arg::Parts(tenure.field())];
        let args: Vec<_> = first.into_iter().chain(commands.iter().flat_map(Command::args)).collect();
        let lock = [tenure.key().full()];
        let request = Request { beside: &keys, ..Request::of(&WHILE_HELD, &lock, &args) };
        let patience = self.patience(hold.resource()).until(tenure.deadline().unwrap_or(self.space.clock.now()));
        let ran = patience.persist(|answer_by| run(store, hold, &request, answer_by))?;
        self.conclude_commands(hold, ran)
    }

    /// Waits until an unanswered attempt can no longer run: its commands come before the new ones, or not at all.
    fn outlast_open_commands(&self, hold: &Hold) -> Result<()> {
        while let Some(left) = hold.tenure().commands_open_for().filter(|_| hold.is_valid()) {
            std::thread::sleep(left.min(LOOKS_EVERY));
            self.space.check_open(hold.resource())?;
        }
        Ok(())
    }

    fn conclude_commands(&self, hold: &Hold, ran: Ran) -> Result<Vec<Value>> {
        let (tenure, resource) = (hold.tenure(), hold.resource());
        match ran {
            Ran::All(answers) => Ok(answers),
            Ran::None => {
                let cause = if hold.is_valid() { LossCause::Removed } else { tenure.expiry() };
                tenure.lose();
                self.lost(tenure, cause);
                Err(Error::lost(resource))
            }
            Ran::UpTo { at, said, answers } => Err(Error::command_failed(resource, at, code_in(&said), said, answers)),
            Ran::Unknown { open_until, broken } => {
                if !mutant::is(Mutant::ForgetsOpenCommands) {
                    tenure.leave_commands_open(open_until);
                }
                Err(Error::commands_unknown(resource, broken.cause))
            }
        }
    }
}

/// Makes one attempt if the hold is still believed in. The server may not execute it after that belief ends.
fn run(store: &dyn Store, hold: &Hold, request: &Request<'_>, answer_by: Moment) -> Result<Ran, Failure> {
    let execute_within = hold.remaining();
    if execute_within.is_zero() {
        return Ok(Ran::None);
    }
    match store.attempt(Lane::Calls, request, Limits { execute_within, ..Limits::any_time(answer_by) }) {
        Ok(answer) => Ran::of(answer.reply),
        Err(Failure::Unknown { open_until, broken, .. }) if !mutant::is(Mutant::WhileHeldRepeats) => {
            Ok(Ran::Unknown { open_until, broken })
        }
        Err(failure) => Err(before_any(failure)),
    }
}

/// A NOPERM of the whole script came before its commands: the script catches theirs one by one.
fn before_any(failure: Failure) -> Failure {
    match failure {
        Failure::Refused { code, cause, .. } if code == "NOPERM" => {
            Failure::Refused { code, applied: Applied::No, cause }
        }
        failure => failure,
    }
}
