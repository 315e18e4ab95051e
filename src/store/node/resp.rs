//! A command as it goes over the wire: an array of bulk strings, written once, into a buffer that is kept.
//!
//! redis-rs collects a command's arguments before it writes them, so it copies each of them twice.

use super::{Arg, Request, Verb};
use crate::base::script::{Dialect, Form, Script};
use crate::base::slot::{slot_of, tag_of};
use std::time::Duration;

/// What only the connection knows: the attempt's deadline on the server's clock, and the server's process.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) deadline: i128,
    pub(super) run_id: &'a str,
    pub(super) dialect: Dialect,
}

/// Replaces the content of the buffer by the request. A script goes by its hash, or `whole` if the server does not
/// know it yet.
pub(super) fn pack(packed: &mut Vec<u8>, request: &Request<'_>, whole: bool, known: Known<'_>) {
    packed.clear();
    pack_more(packed, request, whole, known);
}

/// Replaces the content of the buffer by what has to go before a request for a slot that is on its way to the node.
pub(super) fn pack_asking(packed: &mut Vec<u8>) {
    packed.clear();
    line(packed, b'*', 1);
    text(packed, "ASKING");
}

/// Writes the request behind what is in the buffer.
pub(super) fn pack_more(packed: &mut Vec<u8>, request: &Request<'_>, whole: bool, known: Known<'_>) {
    let (keys, args, around) = (request.keys, request.args, request.around);
    let count = keys.len() + request.beside.len();
    let words = count + args.len() + around.len();
    match &request.verb {
        Verb::Command(name) => {
            line(packed, b'*', 1 + words);
            text(packed, name);
        }
        Verb::Words => line(packed, b'*', words),
        Verb::Script(script) => {
            debug_assert!(script.fits(request.form, count, around.len(), args.len()), "call of {}", script.name());
            line(packed, b'*', 3 + words);
            call(packed, script, request.form, known.dialect, whole);
            number(packed, count as u64);
        }
    }
    keys.iter().for_each(|key| text(packed, key));
    request.beside.iter().for_each(|key| parts(packed, [key]));
    let (deadline, own) = args.split_at(args.len().min(1));
    deadline.iter().chain(around).chain(own).for_each(|arg| argument(packed, arg, request, known));
}

fn argument(packed: &mut Vec<u8>, arg: &Arg<'_>, request: &Request<'_>, known: Known<'_>) {
    match arg {
        Arg::Beside(_) if request.alone => text(packed, ""),
        Arg::Text(argument) => text(packed, argument),
        Arg::Bytes(argument) => parts(packed, [argument]),
        Arg::Number(argument) => number(packed, *argument),
        Arg::Parts(argument) | Arg::Beside(argument) => parts(packed, argument.map(str::as_bytes)),
        Arg::InSlot(beginning) => in_slot(packed, beginning, request.keys.first().unwrap_or(&"")),
        Arg::Deadline => number(packed, u64::try_from(known.deadline).unwrap_or(0)),
        Arg::RunId => text(packed, known.run_id),
    }
}

/// Adds a WAIT for this number of replicas.
pub(super) fn pack_wait(packed: &mut Vec<u8>, replicas: usize, timeout: Duration) {
    line(packed, b'*', 3);
    text(packed, "WAIT");
    number(packed, replicas as u64);
    // A time-out of 0 ms would never end.
    number(packed, u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1));
}

fn call(packed: &mut Vec<u8>, script: &Script, form: Form, dialect: Dialect, whole: bool) {
    if whole {
        text(packed, "EVAL");
        text(packed, script.text(form, dialect));
    } else {
        packed.extend_from_slice(script.by_sha(form, dialect).as_bytes());
    }
}

fn number(packed: &mut Vec<u8>, number: u64) {
    text(packed, itoa::Buffer::new().format(number));
}

fn text(packed: &mut Vec<u8>, text: &str) {
    parts(packed, [text.as_bytes()]);
}

/// If both keys have a prefix with braces, the prefix decides their slot, and the tag behind it has no effect.
fn in_slot(packed: &mut Vec<u8>, beginning: &str, key: &str) {
    parts(packed, [beginning, ":{", tag_of(slot_of(key)), "}"].map(str::as_bytes));
}

/// One bulk string, from its parts.
fn parts<const N: usize>(packed: &mut Vec<u8>, parts: [&[u8]; N]) {
    line(packed, b'$', parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| packed.extend_from_slice(part));
    packed.extend_from_slice(b"\r\n");
}

/// How many strings or bytes follow.
fn line(packed: &mut Vec<u8>, kind: u8, length: usize) {
    packed.push(kind);
    packed.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    packed.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::script::Count::AtLeast;
    use fastrand::Rng;
    use redis::Cmd;

    const RUN_ID: &str = "0123456789abcdef0123456789abcdef01234567";

    static ANY: Script = Script::new("ANY", "return 1", AtLeast(1), AtLeast(1));

    /// The same by redis-rs.
    fn by_redis(request: &Request<'_>, whole: bool, deadline: u64) -> Vec<u8> {
        let mut command = match &request.verb {
            Verb::Command(name) => redis::cmd(name),
            Verb::Words => Cmd::new(),
            Verb::Script(script) => {
                let known = redis::Script::new(script.text(request.form, Dialect::Plain));
                let (verb, script) = if whole {
                    ("EVAL", script.text(request.form, Dialect::Plain))
                } else {
                    ("EVALSHA", known.get_hash())
                };
                redis::cmd(verb).arg(script).arg(request.keys.len() + request.beside.len()).take()
            }
        };
        command.arg(request.keys).arg(request.beside);
        request.args.iter().for_each(|arg| add(&mut command, arg, deadline));
        command.get_packed_command()
    }

    fn add(command: &mut Cmd, arg: &Arg<'_>, deadline: u64) {
        match arg {
            Arg::Text(text) => command.arg(*text),
            Arg::Bytes(bytes) => command.arg(*bytes),
            Arg::Number(number) => command.arg(*number),
            Arg::Parts(parts) | Arg::Beside(parts) => command.arg(parts.concat()),
            Arg::Deadline => command.arg(deadline),
            Arg::RunId => command.arg(RUN_ID),
            Arg::InSlot(_) => unreachable!("it is not among those that are tried"),
        };
    }

    fn check(request: &Request<'_>, whole: bool, deadline: u64) {
        let mut packed = b"of the last command".to_vec();
        pack(&mut packed, request, whole, known(deadline.into()));
        let expected = by_redis(request, whole, deadline);
        assert_eq!(String::from_utf8_lossy(&packed), String::from_utf8_lossy(&expected));
    }

    fn known(deadline: i128) -> Known<'static> {
        Known { deadline, run_id: RUN_ID, dialect: Dialect::Plain }
    }

    /// Up to 40 characters, half of them ASCII: the characters that mean something on the wire are among those.
    fn text(random: &mut Rng) -> String {
        let length = random.usize(..=40);
        (0..length).map(|_| if random.bool() { random.char(..) } else { random.char('\0'..='\x7f') }).collect()
    }

    fn texts(random: &mut Rng, least: usize) -> Vec<String> {
        (0..random.usize(least..12)).map(|_| text(random)).collect()
    }

    /// Without proptest, which everyone who runs an example would have to build. A failing command is short as it is.
    #[test]
    fn commands_are_those_of_redis_rs() {
        for seed in 0..256 {
            let random = &mut Rng::with_seed(seed);
            let (keys, texts) = (texts(random, 1), texts(random, 3));
            let (whole, deadline) = (random.bool(), random.u64(..));
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            let numbers = [(); 3].map(|()| [Arg::Number(random.u64(..)), Arg::Deadline]).into_iter().flatten();
            let parts = [0, 1, 2].map(|part| texts[part].as_str());
            let texts = texts.iter().map(|text| Arg::Text(text));
            let args: Vec<_> =
                texts.chain(numbers).chain([Arg::RunId, Arg::Parts(parts), Arg::Beside(parts)]).collect();
            check(&Request::new(Verb::Script(&ANY), &keys, &args), whole, deadline);
            let beside = [b"\xff\0\r\n".as_slice(), b""];
            let bytes = [Arg::Bytes(beside[0]), Arg::Bytes(beside[1])];
            check(&Request { beside: &beside, ..Request::new(Verb::Script(&ANY), &keys, &bytes) }, whole, deadline);
            check(&Request::new(Verb::Command("PTTL"), &keys, &args), whole, deadline);
            check(&Request::new(Verb::Command("HLEN"), &keys[..1], &[]), whole, deadline);
            check(&Request::new(Verb::Words, &[], &args), whole, deadline);
        }
    }

    #[test]
    fn a_key_beside_another_is_in_its_slot() {
        let request = Request::new(Verb::Command("GET"), &["n"], &[Arg::InSlot("p:epoch")]);
        let mut packed = Vec::new();
        pack(&mut packed, &request, false, known(0));
        let text = String::from_utf8(packed).unwrap();
        let name = text.lines().find(|line| line.starts_with("p:epoch:{")).unwrap();
        assert!(name.len() <= "p:epoch:{}".len() + 6 && slot_of(name) == slot_of("n"), "{name}");
    }

    #[test]
    fn arguments_of_wrappers_go_behind_the_deadline_and_nothing_is_said_of_what_may_be_elsewhere() {
        let (args, around) = ([Arg::Deadline, Arg::Beside(["q", ":", "n"]), Arg::Text("last")], [Arg::Text("around")]);
        let request = Request { around: &around, ..Request::new(Verb::Command("GET"), &["n"], &args) };
        let words = |request: &Request<'_>| {
            let mut packed = Vec::new();
            pack(&mut packed, request, false, known(7));
            let text = String::from_utf8(packed).unwrap();
            text.lines().filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(&request), "GET n 7 around q:n last");
        assert!(request.sees_beside() && !request.without_what_is_beside().sees_beside());
        assert_eq!(words(&request.without_what_is_beside()), "GET n 7  last");
    }

    #[test]
    fn a_deadline_before_the_servers_time_began_is_zero() {
        let args =
            [Arg::Text("owner"), Arg::Number(1), Arg::Number(u64::MAX), Arg::Deadline, Arg::RunId, Arg::Number(0)];
        let request = Request::new(Verb::Script(&ANY), &["", "\r\n"], &args);
        let mut packed = Vec::new();
        pack(&mut packed, &request, false, known(-1));
        assert_eq!(packed, by_redis(&request, false, 0));
    }
}
