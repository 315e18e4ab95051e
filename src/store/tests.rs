//! The store of one server, at a server whose answers are scripted below.

use super::*;
use crate::base::config::Settings;
use crate::base::script::{Count::AtLeast, Script};
use crate::base::time::Clock;
use crate::store::node::{Arg, Backend, Reply, Target, Verb, pool_worker};
use crate::store::subscriber::PubSub;
use crossbeam_channel::{Receiver, Sender, unbounded};
use redis::{Parser, Value};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The server below answers any script as if it had two keys.
static EACH: Script = Script::new("EACH", "return { 1, 0 }", AtLeast(1), AtLeast(2));

/// Whether a request has come that is not answered.
static SILENT: AtomicBool = AtomicBool::new(false);

/// How long an event that must happen may take.
const LONG: Duration = Duration::from_secs(20);

/// What an ear was told; `None`: that it may have missed something.
struct Noting(Sender<Option<Vec<u8>>>);

impl Ear for Noting {
    fn hear(&self, payload: &[u8]) {
        self.0.send(Some(payload.to_vec())).unwrap();
    }

    fn missed(&self) {
        self.0.send(None).unwrap();
    }
}

fn noting() -> (Arc<dyn Ear>, Receiver<Option<Vec<u8>>>) {
    let (tell, told) = unbounded();
    (Arc::new(Noting(tell)), told)
}

fn common() -> Common {
    // The server below sends a message behind each subscription, which a self-test does not expect.
    let config = Settings { skips_self_test: true, ..Settings::default() }.derive().unwrap();
    let (moved, in_use) = (Arc::new(|_: &dyn Fn(&str) -> bool| ()), Arc::new(|| true));
    Common { config, counters: Arc::default(), worker: pool_worker().unwrap(), moved, in_use }
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A message on a channel, as a subscriber reads it.
fn message(channel: &[u8], payload: &[u8]) -> Vec<u8> {
    [b"*3\r\n".to_vec(), bulk(b"message"), bulk(channel), bulk(payload)].concat()
}

/// The server's answer to a command. Behind a subscription comes a message on its channel.
fn answer(command: &[Vec<u8>]) -> Vec<u8> {
    let subscribed =
        |channel: &[u8]| [b"*3\r\n".to_vec(), bulk(b"subscribe"), bulk(channel), b":1\r\n".to_vec()].concat();
    match command[0].as_slice() {
        b"TIME" => b"*2\r\n:1700000000\r\n:0\r\n".to_vec(),
        b"SUBSCRIBE" => [subscribed(&command[1]), message(&command[1], b"\xff 3")].concat(),
        b"ASKING" => b"-NOPERM no permission\r\n".to_vec(),
        b"EVALSHA" => b"*2\r\n:1\r\n:0\r\n".to_vec(),
        b"SILENCE" => {
            SILENT.store(true, SeqCst);
            Vec::new()
        }
        _ => b"+OK\r\n".to_vec(),
    }
}

/// Answers one connection until its client is gone.
fn serve(mut stream: TcpStream) {
    let mut parser = Parser::new();
    let mut reading = stream.try_clone().unwrap();
    while let Ok(value) = parser.parse_value(&mut reading) {
        let Value::Array(words) = value else { panic!("{value:?}") };
        let words: Vec<Vec<u8>> = words.into_iter().map(|word| redis::from_redis_value(word).unwrap()).collect();
        if stream.write_all(&answer(&words)).is_err() {
            return;
        }
    }
}

/// The URL of a server whose answers are those above.
fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        listener.incoming().for_each(|stream| drop(std::thread::spawn(move || serve(stream.unwrap()))));
    });
    url
}

#[test]
fn ears_are_told_what_is_said() {
    let (ear, told) = noting();
    let store = open(&start(), &common()).unwrap();
    let place = store.listen("n", ear).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(None), "confirmed: a message may have come before");
    assert!(place.is_confirmed() && store.hears("n") && !store.hears("m"));
    assert_eq!(told.recv_timeout(LONG), Ok(Some(b"\xff 3".to_vec())));
    store.close();
}

#[test]
fn what_is_asked_of_several_keys_is_answered_for_each() {
    let store = open(&start(), &common()).unwrap();
    let args = [Arg::Deadline, Arg::Number(1_000), Arg::Text("x"), Arg::Text("y"), Arg::Text("z")];
    let ask = |keys: &[&str]| {
        let request = Request::new(Verb::Script(&EACH), keys, &args[..2 + keys.len()]);
        store.attempt_all(Lane::Renewals, &request, 2, Limits { execute_within: LONG, ..Limits::any_time(Moment::MAX) })
    };
    let held = ask(&["a", "b"]).unwrap().into_iter().map(|answer| answer.unwrap().reply);
    assert_eq!(held.collect::<Vec<_>>(), [Reply::Number(1), Reply::Number(0)]);
    assert!(matches!(ask(&["a", "b", "c"]), Err(Failure::Refused { .. })), "of one key nothing was said");
}

fn node() -> Arc<Backend> {
    let Common { config, counters, worker, .. } = common();
    Arc::new(Backend::new(Target::of(&start()).unwrap(), &config, &counters, &worker))
}

#[test]
fn a_subscriber_that_is_led_elsewhere_listens_there_and_says_that_it_missed_something() {
    let ((ear, told), pubsub) = (noting(), PubSub::new());
    let place = pubsub.listen("n", ear).unwrap();
    assert!(!place.is_confirmed() && told.is_empty(), "nobody knows where yet");
    let (old, new) = (node(), node());
    let message = || Some(b"\xff 3".to_vec());
    pubsub.lead_to(Arc::clone(&old));
    assert_eq!([(); 2].map(|()| told.recv_timeout(LONG).unwrap()), [None, message()]);
    old.server().retire();
    pubsub.lead_to(new);
    assert_eq!([(); 3].map(|()| told.recv_timeout(LONG).unwrap()), [None, None, message()], "moved, confirmed, told");
    assert!(place.is_confirmed());
    pubsub.close();
}

#[test]
fn what_is_under_way_at_a_node_that_is_retired_ends_at_once_and_nothing_more_is_sent() {
    let node = node();
    let limits = Limits { execute_within: LONG, ..Limits::any_time(Moment::MAX) };
    let ask =
        |node: &Backend, command| node.attempt(Lane::Calls, &Request::new(Verb::Command(command), &[], &[]), limits);
    assert!(ask(&node, "OTHER").is_ok());
    std::thread::scope(|scope| {
        let began = Clock::Boot.now();
        let asking = scope.spawn(|| ask(&node, "SILENCE"));
        while !SILENT.load(SeqCst) {
            std::thread::yield_now();
        }
        node.server().retire();
        let Err(Failure::Unknown { open_until, broken, .. }) = asking.join().unwrap() else { panic!("it was sent") };
        assert!(open_until > began && !broken.timed_out);
    });
    assert!(
        matches!(ask(&node, "OTHER"), Err(Failure::Unreached(_))),
        "its idle connections are closed, and none is made"
    );
    assert!(node.outage().lasted().is_none(), "it is nobody's node any more");
}

/// A second answer follows that to ASKING. If it is left, the next request on the connection takes it for its own.
#[test]
fn a_node_that_refuses_to_be_asked_answers_each_request_once() {
    let (node, limits) = (node(), Limits { execute_within: LONG, ..Limits::any_time(Moment::MAX) });
    let ask = |request: &Request<'_>| node.attempt(Lane::Calls, request, limits).map(|answer| answer.reply);
    let args = [Arg::Deadline, Arg::Number(1_000)];
    let asking = Request { asking: true, ..Request::new(Verb::Script(&EACH), &["n"], &args) };
    let _ = ask(&asking);
    assert_eq!(ask(&Request::new(Verb::Command("OTHER"), &[], &[])).unwrap(), Reply::Text(b"OK".to_vec()));
    assert!(ask(&Request { verb: Verb::Command("OTHER"), args: &[], ..asking }).is_ok(), "it has the slot by now");
}

/// A new scheme replaces its refused line, or comes before all refused ones.
#[test]
fn a_scheme_has_one_line() {
    for (at, (scheme, _)) in SCHEMES.iter().enumerate() {
        assert!(!SCHEMES[..at].iter().any(|(earlier, _)| earlier == scheme), "{scheme}");
    }
}
