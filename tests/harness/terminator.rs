//! A proxy that ends the TLS of its clients, and can say something in the server's place.

use crate::papers::Papers;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Session = Arc<Mutex<StreamOwned<ServerConnection, TcpStream>>>;

/// How often a session looks for requests.
const LOOKS: Duration = Duration::from_micros(200);

/// It ends with the process.
pub struct Terminator {
    port: u16,
    sessions: Arc<Mutex<Vec<Session>>>,
    last: Arc<Mutex<Vec<u8>>>,
}

impl Terminator {
    pub fn new(server: PathBuf, papers: &Papers) -> Self {
        let chain = CertificateDer::pem_slice_iter(papers.chain.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(papers.key.as_bytes()).unwrap();
        let config = Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let terminator = Self { port, sessions: Arc::default(), last: Arc::default() };
        let (sessions, last) = (Arc::clone(&terminator.sessions), Arc::clone(&terminator.last));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                client.set_nodelay(true).and_then(|()| client.set_nonblocking(true)).unwrap();
                let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
                let session = Arc::new(Mutex::new(StreamOwned::new(tls, client)));
                let Ok(server) = UnixStream::connect(&server) else { return };
                sessions.lock().unwrap().push(Arc::clone(&session));
                carry(session, server, &last);
            }
        });
        terminator
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }

    /// The last answer of the server.
    pub fn last(&self) -> Vec<u8> {
        self.last.lock().unwrap().clone()
    }

    /// Sends this in all sessions: as a record, or its first bytes.
    pub fn interject(&self, data: &[u8], is_whole: bool) {
        for session in self.sessions.lock().unwrap().iter() {
            let session = &mut *session.lock().unwrap();
            let mut record = Vec::new();
            session.conn.writer().write_all(data).unwrap();
            session.conn.write_tls(&mut record).unwrap();
            let _ = session.sock.write_all(if is_whole { &record } else { &record[..record.len() / 2] });
        }
    }
}

fn carry(session: Session, mut server: UnixStream, last: &Arc<Mutex<Vec<u8>>>) {
    let (mut answers, last, to_client) = (server.try_clone().unwrap(), Arc::clone(last), Arc::clone(&session));
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(length @ 1..) = answers.read(&mut buffer) {
            buffer[..length].clone_into(&mut last.lock().unwrap());
            if to_client.lock().unwrap().write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = to_client.lock().unwrap().sock.shutdown(std::net::Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        loop {
            let read = session.lock().unwrap().read(&mut buffer);
            match read {
                Ok(length @ 1..) if server.write_all(&buffer[..length]).is_ok() => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOKS),
                _ => break,
            }
        }
        let _ = server.shutdown(std::net::Shutdown::Both);
    });
}
