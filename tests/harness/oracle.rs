//! The harness's sentinel that says what a test wants, and says something else when the test wants that.

use crate::sentinel::NAME;
use crate::threads::{LONG, eventually};
use redis::{Parser, Value};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// It knows no other sentinel, and publishes what it is told to.
pub struct Oracle {
    port: u16,
    mind: Arc<Mind>,
}

/// What the oracle says, and how often it was asked.
struct Mind {
    says: Mutex<(u16, u64)>,
    asked: AtomicUsize,
    over: AtomicBool,
    /// The connections of those who subscribed.
    listeners: Mutex<Vec<TcpStream>>,
}

impl Oracle {
    /// An oracle that names the node at this port of 127.0.0.1, by this epoch.
    pub fn naming(port: u16, epoch: u64) -> Self {
        let (says, asked, over) = (Mutex::new((port, epoch)), AtomicUsize::new(0), AtomicBool::new(false));
        let mind = Arc::new(Mind { says, asked, over, listeners: Mutex::default() });
        let (listener, shared) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::clone(&mind));
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mind = Arc::clone(&shared);
                if mind.over.load(SeqCst) {
                    return;
                }
                std::thread::spawn(move || serve(stream.unwrap(), &mind));
            }
        });
        Self { port, mind }
    }

    pub fn name(&self, port: u16, epoch: u64) {
        *self.mind.says.lock().unwrap() = (port, epoch);
    }

    /// Tells those who subscribed that the master has moved. They come and ask where it is.
    pub fn publish(&self) {
        let told = array('>', 3, &["message", "+switch-master", NAME]);
        self.mind.listeners.lock().unwrap().retain_mut(|stream| stream.write_all(told.as_bytes()).is_ok());
    }

    /// Waits until it was asked twice: a client has heard what the oracle says now, and has come back after that.
    #[track_caller]
    pub fn heard(&self) {
        let before = self.mind.asked.load(SeqCst);
        eventually(LONG, "it is asked twice", || self.mind.asked.load(SeqCst) >= before + 2);
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Oracle {
    /// Else each one would keep a thread and a port until its process ends.
    fn drop(&mut self) {
        self.mind.over.store(true, SeqCst);
        drop(TcpStream::connect(self.address()));
    }
}

fn serve(mut stream: TcpStream, mind: &Mind) {
    let (mut parser, mut reading) = (Parser::new(), stream.try_clone().unwrap());
    while let Ok(Value::Array(words)) = parser.parse_value(&mut reading) {
        let words: Vec<String> = words.into_iter().map(|word| redis::from_redis_value(word).unwrap()).collect();
        let said = *mind.says.lock().unwrap();
        if words.get(1).is_some_and(|word| word == "SENTINELS") {
            mind.asked.fetch_add(1, SeqCst);
        }
        if words.first().is_some_and(|word| word == "SUBSCRIBE") {
            mind.listeners.lock().unwrap().extend(stream.try_clone());
        }
        if stream.write_all(answer(&words, said).as_bytes()).is_err() {
            return;
        }
    }
}

fn array(kind: char, length: usize, texts: &[&str]) -> String {
    let texts = texts.iter().map(|text| format!("${}\r\n{text}\r\n", text.len()));
    format!("{kind}{length}\r\n{}", texts.collect::<String>())
}

fn answer(words: &[String], (port, epoch): (u16, u64)) -> String {
    let (port, epoch) = (port.to_string(), epoch.to_string());
    let words: Vec<_> = words.iter().map(|word| word.to_uppercase()).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["HELLO", ..] => array('%', 1, &["proto", "3"]),
        ["SUBSCRIBE", ..] => String::new(),
        ["SENTINEL", "MASTER", _] => array('%', 2, &["name", NAME, "config-epoch", &epoch]),
        ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", _] => array('*', 2, &["127.0.0.1", &port]),
        ["SENTINEL", ..] => "*0\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}
