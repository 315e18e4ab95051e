//! Errors that a user makes, and what every error says.

use redlatch::{Applied, Error, Value};
use std::error::Error as _;

/// Each kind for a resource, with its name, whether it may be repeated, and what its text has to have in it.
fn every(resource: &str) -> [(Error, &'static str, bool, &'static str); 11] {
    let io = std::io::Error::other("no route");
    [
        (Error::not_held(resource), "NotHeld", false, "is not held by this thread"),
        (Error::lost(resource), "Lost", false, "was lost while held"),
        (
            Error::unprotected(resource, "shut down"),
            "Unprotected",
            false,
            "may not have been alone, check it: shut down",
        ),
        (Error::unavailable(resource, io), "Unavailable", true, "nothing was applied, try later: no route"),
        (
            Error::outcome_unknown(resource, "cut\noff"),
            "OutcomeUnknown",
            true,
            "ends with its lease, if it has one: cut off",
        ),
        (Error::refused(resource, "OOM", Applied::No, "no"), "Refused", true, "(OOM), free memory on the server: no"),
        (
            Error::command_failed(resource, 2, "WRONGTYPE", "no list", vec![Value::Nil]),
            "CommandFailed",
            false,
            "failed (WRONGTYPE), those before it were run: no list",
        ),
        (
            Error::commands_unknown(resource, "cut off"),
            "CommandsUnknown",
            false,
            "look at what they did, they may have run: cut off",
        ),
        (Error::cancelled(resource), "Cancelled", false, "was cancelled"),
        (Error::closed(resource), "Closed", false, "make a new one"),
        (Error::expired(resource), "Expired", false, "find out who did not count it down"),
    ]
}

#[test]
fn a_user_can_make_every_error() {
    for (error, variant, retryable, words) in every("order:42") {
        assert_eq!(format!("{error:?}"), error.to_string(), "a main that returns it prints this");
        assert_eq!((error.resource(), error.is_retryable()), (Some("order:42"), retryable), "{variant}");
        let text = error.to_string();
        assert!(text.contains("\"order:42\"") && text.contains(words), "{text}");
    }
    let error = Error::config("a lease of zero: give it 10 ms");
    assert_eq!((error.to_string(), error.resource()), ("a lease of zero: give it 10 ms".to_owned(), None));
}

#[test]
fn an_error_keeps_its_cause_and_what_was_applied() {
    let causes = every("n").map(|(error, ..)| error.source().map(ToString::to_string));
    assert_eq!(
        causes.iter().flatten().collect::<Vec<_>>(),
        ["shut down", "no route", "cut off", "no", "no list", "cut off"]
    );
    assert_eq!(Error::refused("n", "ERR", Applied::Unknown, "").applied(), Applied::Unknown);
    assert_eq!(Error::outcome_unknown("n", "").applied(), Applied::Unknown);
    assert_eq!(Error::commands_unknown("n", "").applied(), Applied::Unknown);
    let failed = |at| Error::command_failed("n", at, "ERR", "", Vec::new());
    assert_eq!((failed(1).applied(), failed(2).applied()), (Applied::No, Applied::Yes));
    assert!(failed(1).to_string().contains("none was run"));
}

/// A ping is about no lock: its errors name none.
#[test]
fn an_error_about_no_lock_reads_well() {
    let texts = every("").map(|(error, ..)| (error.resource().map(str::to_owned), error.to_string()));
    let read = |at: usize| {
        assert_eq!(texts[at].0, None);
        &*texts[at].1
    };
    assert_eq!(read(3), "no server answered in time, nothing was applied, try later: no route");
    assert_eq!(read(4), "no answer: rely on nothing, what was taken ends with its lease, if it has one: cut off");
    assert_eq!(read(5), "the server refused (OOM), free memory on the server: no");
    assert_eq!(read(9), "the client is shut down or was made before a fork, make a new one");
}
