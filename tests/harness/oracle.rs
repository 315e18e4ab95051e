//! The harness's sentinel that says what a test wants, and changes its mind when the test does.

use crate::sentinel::NAME;
use redis::{Parser, Value};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// It knows no other sentinel, publishes nothing, and ends with the process.
pub struct Oracle {
    port: u16,
    says: Arc<Mutex<(u16, u64)>>,
}

impl Oracle {
    /// One that names the node at this port of 127.0.0.1, by this epoch.
    pub fn naming(port: u16, epoch: u64) -> Self {
        let (listener, says) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(Mutex::new((port, epoch))));
        let (port, said) = (listener.local_addr().unwrap().port(), Arc::clone(&says));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let said = Arc::clone(&said);
                std::thread::spawn(move || serve(stream.unwrap(), &said));
            }
        });
        Self { port, says }
    }

    pub fn name(&self, port: u16, epoch: u64) {
        *self.says.lock().unwrap() = (port, epoch);
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn serve(mut stream: TcpStream, says: &Mutex<(u16, u64)>) {
    let (mut parser, mut reading) = (Parser::new(), stream.try_clone().unwrap());
    while let Ok(Value::Array(words)) = parser.parse_value(&mut reading) {
        let words: Vec<String> = words.into_iter().map(|word| redis::from_redis_value(word).unwrap()).collect();
        let said = *says.lock().unwrap();
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
