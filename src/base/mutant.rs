//! Mistakes made on purpose: the torture test must find each of them, or its silence means nothing (docs/torture.md). They are compiled
//! only with `--cfg mutants`.

/// The mistakes. The environment variable `REDLATCH_MUTANT` chooses one.
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
    /// The release of an inner level frees the lock.
    InnerReleaseFrees,
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
    /// Tokens are counted on by one, whatever the clock says.
    TokensForgetTheClock,
    /// A client that is given a lock believes in it from the message on, instead of from the ask.
    BelievesWhenTold,
    /// A client that is given a lock believes in it though it has asked again since.
    BelievesAnyName,
    /// The lock is given to the first of the queue, whether it lives or not.
    GivesToTheDead,
    /// A fenced lock is given with the token of the last hold.
    GivesAnOldToken,
    /// The mark that leaves the lock to foreigners stays, and is believed, until somebody takes the lock.
    MarkNeverEnds,
    /// A release tells the waiters without a place only if more clients listen than the queue has tickets, dead ones included.
    CountsBySubscribers,
    /// A server process that replaced another grants locks to a strict client at once.
    NoQuarantineAfterFailover,
    /// A renewal counts though too few replicas confirmed it.
    BelievesWithoutReplicas,
    /// A renewal checks the lock and writes nothing: all replicas confirm that.
    RenewalWritesNothing,
    /// The highest epoch that a sentinel ever named counts for ever, even after all sentinels start anew.
    KeepsTheHighestEpoch,
    /// A lower epoch counts though only one sentinel names it, and the present master does not give way.
    BelievesOneSentinel,
    /// After a change of the master, holds are not looked for at the new one.
    StaysWithOldMaster,
    /// A release at the node to which a slot moves publishes nothing where the waiters listen.
    UntoldOnItsWay,
    /// A strict client is granted locks at the node to which a slot moves.
    GrantsOnItsWay,
    /// A replaced master is believed in its answers to earlier commands.
    BelievesRetired,
    /// Readers come in though a writer waits.
    ReadersIgnoreTheMark,
    /// Readers that waited for a writer have no turn when it goes.
    ReadersHaveNoTurn,
    /// Writers that have waited long have no turn when others go.
    WritersHaveNoTurn,
    /// A writer comes in beside readers.
    WriterBesideReaders,
    /// A release of a write hold frees the lock, even if its thread reads on.
    DowngradeFrees,
    /// A reader's release frees the lock, even if there are other readers.
    ReaderFreesForAll,
    /// A release of an ended thread's share does not tell the threads that still look at that hold.
    EndedThreadsBelieve,
    /// A reader's renewal counts though its time-out is gone.
    RenewsWithoutTimeout,
    /// A waiter that hears channels of all nodes is not told that its lock has another master.
    UntoldOfNewMaster,
    /// A caller's commands are run whether the lock is held or not.
    WhileHeldDoesNotLook,
    /// A caller's commands are sent again after an attempt without an answer.
    WhileHeldRepeats,
    /// Commands that may still be run are forgotten: the next commands do not wait for them, and the lock is passed on.
    ForgetsOpenCommands,
    /// A fair lock is given to the second of its queue.
    ServesTheSecond,
    /// An ask without a place takes a free fair lock before those that wait.
    ComesBeforeTheQueue,
    /// A wait that asks by another owner id goes to the end of a fair lock's queue.
    RenamedAtTheEnd,
    /// An ask gives a fair lock to the first of its queue while another has it.
    GivesWhatIsHeld,
    /// A thread that was given a fair lock stays in its queue.
    KeepsServedPlaces,
    /// A release of a fair lock takes all threads that wait out of its queue, as if their processes were dead.
    TakesAllForDead,
    /// A release of permits gives back one more than there were.
    GivesPermitsTwice,
    /// Each attempt of an operation on a counter is done, also one whose result is there.
    ForgetsOperations,
    /// Permits whose leases are almost over are given out again.
    ReturnsPermitsEarly,
    /// A census takes a claim that began after the question for one that was there with all others.
    BelievesYoungClaims,
    /// An idle connection is used whatever has come on it.
    SendsWithoutALook,
    /// What a parser or a TLS session has left is not looked for.
    LeavesBytesUnread,
    /// Any unanswered attempt explains that a release finds nothing.
    ExplainsByAnyDoubt,
    /// One that went to the server that finds nothing does, whether or not that server ever had the lock.
    ExplainsByTheAttemptsLife,
    /// A release that finds nothing after the end of the lease tells of a loss.
    GoneAfterTheEndIsLost,
    /// A release goes on as long as its holder believed, and no longer.
    EndsWithBelief,
    /// What a group's release was answered is asked again with what was not.
    RepeatsAnsweredMembers,
    /// The background tells nobody of a loss that it finds.
    TellsNoLateLoss,
}

/// Whether this mistake is chosen.
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
        "inner_release_frees" => Mutant::InnerReleaseFrees,
        "renewal_recreates" => Mutant::RenewalRecreates,
        "no_try_after_confirm" => Mutant::NoTryAfterConfirm,
        "lease_zero" => Mutant::LeaseZero,
        "gives_twice" => Mutant::GivesTwice,
        "never_rouses" => Mutant::NeverRouses,
        "release_needs_memory" => Mutant::ReleaseNeedsMemory,
        "tokens_forget_the_clock" => Mutant::TokensForgetTheClock,
        "believes_when_told" => Mutant::BelievesWhenTold,
        "believes_any_name" => Mutant::BelievesAnyName,
        "gives_to_the_dead" => Mutant::GivesToTheDead,
        "gives_an_old_token" => Mutant::GivesAnOldToken,
        "mark_never_ends" => Mutant::MarkNeverEnds,
        "counts_by_subscribers" => Mutant::CountsBySubscribers,
        "no_quarantine_after_failover" => Mutant::NoQuarantineAfterFailover,
        "believes_without_replicas" => Mutant::BelievesWithoutReplicas,
        "renewal_writes_nothing" => Mutant::RenewalWritesNothing,
        "keeps_the_highest_epoch" => Mutant::KeepsTheHighestEpoch,
        "believes_one_sentinel" => Mutant::BelievesOneSentinel,
        "stays_with_old_master" => Mutant::StaysWithOldMaster,
        "untold_on_its_way" => Mutant::UntoldOnItsWay,
        "grants_on_its_way" => Mutant::GrantsOnItsWay,
        "believes_retired" => Mutant::BelievesRetired,
        "readers_ignore_the_mark" => Mutant::ReadersIgnoreTheMark,
        "readers_have_no_turn" => Mutant::ReadersHaveNoTurn,
        "writers_have_no_turn" => Mutant::WritersHaveNoTurn,
        "writer_beside_readers" => Mutant::WriterBesideReaders,
        "downgrade_frees" => Mutant::DowngradeFrees,
        "reader_frees_for_all" => Mutant::ReaderFreesForAll,
        "ended_threads_believe" => Mutant::EndedThreadsBelieve,
        "renews_without_timeout" => Mutant::RenewsWithoutTimeout,
        "untold_of_new_master" => Mutant::UntoldOfNewMaster,
        "while_held_does_not_look" => Mutant::WhileHeldDoesNotLook,
        "while_held_repeats" => Mutant::WhileHeldRepeats,
        "forgets_open_commands" => Mutant::ForgetsOpenCommands,
        "serves_the_second" => Mutant::ServesTheSecond,
        "comes_before_the_queue" => Mutant::ComesBeforeTheQueue,
        "renamed_at_the_end" => Mutant::RenamedAtTheEnd,
        "gives_what_is_held" => Mutant::GivesWhatIsHeld,
        "keeps_served_places" => Mutant::KeepsServedPlaces,
        "takes_all_for_dead" => Mutant::TakesAllForDead,
        "gives_permits_twice" => Mutant::GivesPermitsTwice,
        "forgets_operations" => Mutant::ForgetsOperations,
        "returns_permits_early" => Mutant::ReturnsPermitsEarly,
        "believes_young_claims" => Mutant::BelievesYoungClaims,
        "sends_without_a_look" => Mutant::SendsWithoutALook,
        "leaves_bytes_unread" => Mutant::LeavesBytesUnread,
        "explains_by_any_doubt" => Mutant::ExplainsByAnyDoubt,
        "explains_by_the_attempts_life" => Mutant::ExplainsByTheAttemptsLife,
        "gone_after_the_end_is_lost" => Mutant::GoneAfterTheEndIsLost,
        "ends_with_belief" => Mutant::EndsWithBelief,
        "repeats_answered_members" => Mutant::RepeatsAnsweredMembers,
        "tells_no_late_loss" => Mutant::TellsNoLateLoss,
        _ => panic!("there is no mutant {name}"),
    })
});

/// Whether a script's writes count without replicas.
pub(crate) fn needs_no_replicas(script: &str) -> bool {
    is(Mutant::BelievesWithoutReplicas) && RENEWALS.contains(&script)
}

/// A script's text as the mutant has it.
pub(crate) fn text(script: &str, text: String) -> String {
    let changes = CHANGES.iter().filter(|(mutant, scripts, _)| is(*mutant) && scripts.contains(&script));
    changes.flat_map(|(.., changes)| changes.iter()).fold(text, |text, (from, to)| change(&text, from, to))
}

type Change = (Mutant, &'static [&'static str], &'static [(&'static str, &'static str)]);

/// The texts that a mutant replaces in its scripts.
const CHANGES: &[Change] = &[
    (
        Mutant::GivesPermitsTwice,
        &["RELEASE_LEASED"],
        &[("redis.call('INCRBY', semaphore, there)", "redis.call('INCRBY', semaphore, there + 1)")],
    ),
    (Mutant::ForgetsOperations, &["ADD"], &[("if not last or tonumber(last) < number then", "if true then")]),
    (
        Mutant::ReturnsPermitsEarly,
        &["ACQUIRE_LEASED"],
        &[("'ZRANGEBYSCORE', leases, '-inf', ms,", "'ZRANGEBYSCORE', leases, '-inf', ms + 590,")],
    ),
    (Mutant::DelWithoutOwnerCheck, RELEASES, &[("if ours ~= 1 then\n  return ours or failed\nend\n", "")]),
    (
        Mutant::InnerReleaseFrees,
        RELEASES,
        &[("if left > 0 then\n  redis.call('HSET', lock, owner, left)\n  return 1\nend\n", "")],
    ),
    (
        Mutant::ReleaseNeedsMemory,
        RELEASES,
        &[("if left > 0 then", "redis.call('HINCRBY', lock, owner, -1)\nif left > 0 then")],
    ),
    (
        Mutant::RenewalRecreates,
        &["RENEW"],
        &[("if ours == 1", "redis.call('HSET', lock, owner, 1)\n  ours = 1\n  if ours == 1")],
    ),
    (Mutant::WhileHeldDoesNotLook, &["WHILE_HELD"], &[("if ours == 0 then\n  return 0\nend\n", "")]),
    (Mutant::TokensForgetTheClock, MINTS, &[("math.max(last + 1, now)", "last + 1")]),
    (Mutant::ReadersIgnoreTheMark, READS, &[("known and others > 0", "false")]),
    (Mutant::ReadersHaveNoTurn, &["RELEASE_WRITE"], &[("redis.call('GET', turn) == 'waiting'", "false")]),
    (
        Mutant::WritersHaveNoTurn,
        &["RELEASE_READ", "RELEASE_WRITE"],
        &[("redis.call('ZADD', marks, string.format('%.3f', at + span), '!')\n", "")],
    ),
    (
        Mutant::WriterBesideReaders,
        WRITES,
        &[("if left ~= -2 and redis", "if redis.call('HGET', lock, 'mode') == 'write' and redis")],
    ),
    (
        Mutant::DowngradeFrees,
        &["RELEASE_WRITE"],
        &[("if leave_to_readers(lock, prefix, trusts) then", "if false then")],
    ),
    (Mutant::ReaderFreesForAll, &["RELEASE_READ"], &[(" or leave_to_readers(lock, prefix, trusts)", "")]),
    (
        Mutant::RenewsWithoutTimeout,
        &["RENEW_READ", "RENEW_READ_STRICT"],
        &[("is_its_own and", "false and"), ("math.max(redis.call('PTTL', key), lease)) or 0", "lease) and 1 or 0")],
    ),
    (Mutant::MarkNeverEnds, &["RELEASE_IN_TURN"], &[("'PX', foreign_turn", "'PX', 86400000")]),
    (Mutant::MarkNeverEnds, ASK_IN_TURN, &[("left > 0 and left <= 1000 and left or 0", "math.max(left, 0)")]),
    (Mutant::GivesToTheDead, GIVES, &[("'NUMSUB', ear)[2] == 0", "'NUMSUB', ear)[2] < 0")]),
    (
        Mutant::GivesAnOldToken,
        &["RELEASE_IN_TURN"],
        &[("return next_token(counter, ttl,", "return redis.call('GET', counter) or next_token(counter, ttl,")],
    ),
    (
        Mutant::CountsBySubscribers,
        &["RELEASE_IN_TURN"],
        &[
            ("local function minted()", "local tickets = redis.call('ZCARD', queue)\nlocal function minted()"),
            ("counts[2] - counts[4]", "counts[2] - tickets"),
            (
                "return { tell(channel), queued",
                "local all = redis.call('PUBSUB', 'NUMSUB', channel)[2]\n  return { all > tickets and tell(channel) or 1, queued",
            ),
        ],
    ),
    (
        Mutant::NoQuarantineAfterFailover,
        STRICT,
        &[("quiet_until = now + agreed * 1000", "quiet_until = known and now or now + agreed * 1000")],
    ),
    (
        Mutant::RenewalWritesNothing,
        RENEWALS,
        &[("redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease))", "")],
    ),
    (
        Mutant::ServesTheSecond,
        SERVES,
        &[("local field = redis", "local field = redis.call('LINDEX', list, '1') or redis")],
    ),
    (
        Mutant::ComesBeforeTheQueue,
        ASK_IN_ORDER,
        &[("if left == -2 then\n    local", "if left == -2 and redis.call('ZSCORE', ends, owner) then\n    local")],
    ),
    (Mutant::RenamedAtTheEnd, ASK_IN_ORDER, &[("'LINSERT', list, 'BEFORE', old, owner", "'RPUSH', list, owner")]),
    (Mutant::GivesWhatIsHeld, ASK_IN_ORDER, &[("if left == -2 then\n    local", "if true then\n    local")]),
    (Mutant::KeepsServedPlaces, SERVES, &[("drop(list, ends, tickets, field)\n    local offer", "local offer")]),
    (Mutant::TakesAllForDead, &["RELEASE_FAIR"], &[("'NUMSUB', ear)[2] == 0", "'NUMSUB', ear)[2] >= 0")]),
];

const RENEWALS: &[&str] = &["RENEW", "RENEW_STRICT"];
const STRICT: &[&str] = &["ACQUIRE_STRICT", "ACQUIRE_IN_TURN_STRICT", "REENTER_STRICT", "RENEW_STRICT"];
const READS: &[&str] = &["ACQUIRE_READ", "ACQUIRE_READ_STRICT"];
const WRITES: &[&str] = &["ACQUIRE_WRITE", "ACQUIRE_WRITE_STRICT"];
const MINTS: &[&str] =
    &["ACQUIRE_FENCED", "ACQUIRE_FENCED_STRICT", "ACQUIRE_FENCED_IN_TURN", "ACQUIRE_FENCED_IN_TURN_STRICT", "MINT"];
const RELEASES: &[&str] = &["RELEASE", "RELEASE_IN_TURN"];
const ASK_IN_TURN: &[&str] = &["ACQUIRE_IN_TURN", "ACQUIRE_IN_TURN_STRICT"];
const ASK_IN_ORDER: &[&str] = &["ACQUIRE_FAIR_IN_TURN", "ACQUIRE_FAIR_IN_TURN_STRICT"];
const SERVES: &[&str] =
    &["RELEASE_FAIR", "FORCE_UNLOCK_FAIR", "LEAVE_ORDER", "ACQUIRE_FAIR_IN_TURN", "ACQUIRE_FAIR_IN_TURN_STRICT"];
const GIVES: &[&str] = &["RELEASE_IN_TURN", "LEAVE", "ACQUIRE_IN_TURN", "ACQUIRE_IN_TURN_STRICT"];

fn change(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the script has changed: mend its mutant");
    text.replace(from, to)
}
