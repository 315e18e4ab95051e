//! Mistakes made on purpose: the torture test must find each of them, or its silence means nothing
//! (docs/torture.md). Without `--cfg mutants` nothing of them is compiled in.

/// What can be done wrong. One of them is chosen by the environment variable `REDLATCH_MUTANT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Validity counts from the reply instead of from the sending.
    DeadlineFromReply,
    /// A hold is valid until something says that it is not.
    NoDeadlineCheck,
    /// A renewal for a lease of its own is believed for as long as one of the watchdog's.
    BooksUsualLease,
    /// All holds of a thread have the same owner id.
    OwnerPerThread,
    /// A release deletes the key, whoever holds it.
    DelWithoutOwnerCheck,
    /// A renewal makes the key if it is not there.
    RenewalRecreates,
    /// A waiter does not look again after its subscription is confirmed.
    NoTryAfterConfirm,
    /// Any lease is taken, also one of zero milliseconds.
    LeaseZero,
    /// A tenure that is kept for the next thread is given to two.
    GivesTwice,
    /// A tenure is kept for the next thread, and nobody is told.
    NeverRouses,
    /// A release uses a command that is refused when memory is short.
    ReleaseNeedsMemory,
}

/// Whether this mistake is to be made.
#[cfg(not(mutants))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

#[cfg(mutants)]
pub(crate) fn is(mutant: Mutant) -> bool {
    *CHOSEN == Some(mutant)
}

#[cfg(mutants)]
static CHOSEN: once_cell::sync::Lazy<Option<Mutant>> = once_cell::sync::Lazy::new(|| {
    let name = std::env::var("REDLATCH_MUTANT").ok()?;
    Some(match name.as_str() {
        "deadline_from_reply" => Mutant::DeadlineFromReply,
        "no_deadline_check" => Mutant::NoDeadlineCheck,
        "books_usual_lease" => Mutant::BooksUsualLease,
        "owner_per_thread" => Mutant::OwnerPerThread,
        "del_without_owner_check" => Mutant::DelWithoutOwnerCheck,
        "renewal_recreates" => Mutant::RenewalRecreates,
        "no_try_after_confirm" => Mutant::NoTryAfterConfirm,
        "lease_zero" => Mutant::LeaseZero,
        "gives_twice" => Mutant::GivesTwice,
        "never_rouses" => Mutant::NeverRouses,
        "release_needs_memory" => Mutant::ReleaseNeedsMemory,
        _ => panic!("there is no mutant {name}"),
    })
});

/// A script's text as the mutant has it.
pub(crate) fn text(script: &str, text: String) -> String {
    const OWNER_CHECK: &str = "if redis.call('HEXISTS', lock, owner) == 0 then\n  return 0\nend\n";
    match script {
        "RELEASE" if is(Mutant::DelWithoutOwnerCheck) => change(&text, OWNER_CHECK, ""),
        "RELEASE" if is(Mutant::ReleaseNeedsMemory) => {
            change(&text, "if left > 0", "redis.call('HINCRBY', lock, owner, -1)\nif left > 0")
        }
        "RENEW" if is(Mutant::RenewalRecreates) => {
            change(&text, "if ours == 1", "redis.call('HSET', lock, owner, 1)\n  ours = 1\n  if ours == 1")
        }
        _ => text,
    }
}

fn change(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the script has changed: mend its mutant");
    text.replace(from, to)
}
