//! A TLS connection by hand, and what redis-rs needs to send its commands over it.

use crate::support::Outcome;
use harness::papers::authority;
use redis::{ConnectionLike, Parser, RedisResult, Value};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// What knows the tests' authority; sessions are resumed by those that share one.
pub(crate) fn config() -> Outcome<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority().as_bytes())?)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(Arc::new(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth()))
}

pub(crate) struct Sealed {
    stream: StreamOwned<ClientConnection, TcpStream>,
    parser: Parser,
}

impl Sealed {
    pub(crate) fn connect(port: u16, config: &Arc<ClientConfig>) -> Outcome<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        let session = ClientConnection::new(Arc::clone(config), ServerName::try_from("127.0.0.1")?)?;
        Ok(Self { stream: StreamOwned::new(session, socket), parser: Parser::new() })
    }
}

impl ConnectionLike for Sealed {
    fn req_packed_command(&mut self, packed: &[u8]) -> RedisResult<Value> {
        self.stream.write_all(packed)?;
        self.parser.parse_value(&mut self.stream)?.extract_error()
    }

    fn req_packed_commands(&mut self, packed: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        self.stream.write_all(packed)?;
        let answers: RedisResult<Vec<_>> =
            (0..offset + count).map(|_| self.parser.parse_value(&mut self.stream)).collect();
        Ok(answers?.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        true
    }
}
