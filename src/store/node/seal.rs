//! A TLS session on a socket.

use crate::base::tls::{Connector, SignedItself};
use arrayvec::ArrayVec;
use redis::RedisError;
use rustls::{AlertDescription, CertificateError, ClientConnection, Error, OtherError};
use std::io::{self, Read, Write};

/// The code of an error that TLS raised. A server's error has a code of its own.
const CODE: &str = "TLS";

pub(super) struct Seal {
    session: Box<ClientConnection>,
    /// Why the session ended. The parser of answers does not pass that on.
    ended: Option<Error>,
    records: Records,
    /// What was decrypted and not read.
    unread: usize,
}

/// How far the record has come that is on its way: the session does not say whether it has a part of one.
#[derive(Default)]
struct Records {
    header: ArrayVec<u8, 5>,
    /// What is missing of the record's body.
    left: usize,
}

impl Records {
    fn come(&mut self, mut data: &[u8]) {
        while let [first, ..] = data {
            if self.left > 0 {
                let part = self.left.min(data.len());
                self.left -= part;
                data = &data[part..];
                continue;
            }
            self.header.push(*first);
            data = &data[1..];
            if let [_, _, _, high, low] = self.header[..] {
                self.left = usize::from(u16::from_be_bytes([high, low]));
                self.header.clear();
            }
        }
    }

    fn are_whole(&self) -> bool {
        self.header.is_empty() && self.left == 0
    }
}

/// A socket whose bytes are followed.
struct Followed<'a, S> {
    socket: &'a mut S,
    records: &'a mut Records,
}

impl<S: Read> Read for Followed<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.socket.read(buffer)?;
        self.records.come(&buffer[..read]);
        Ok(read)
    }
}

impl<S: Write> Write for Followed<'_, S> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.socket.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Seal {
    /// Makes the handshake, in the time that the socket has.
    pub(super) fn on(connector: &Connector, host: &str, socket: &mut (impl Read + Write)) -> Result<Self, RedisError> {
        let mut session = connector.session(host).map_err(|error| worded(&error))?;
        // By default 64 KiB fit at a time. A command is in memory anyway, and is sent before the next is written.
        session.set_buffer_limit(None);
        let mut records = Records::default();
        while session.is_handshaking() {
            let mut followed = Followed { socket, records: &mut records };
            session.complete_io(&mut followed).map_err(|error| explained(silent_is_said(error)))?;
        }
        Ok(Self { session: Box::new(session), ended: None, records, unread: 0 })
    }

    /// Whether all that came was read, down to the last byte of the last record.
    pub(super) fn has_read_all(&self) -> bool {
        self.unread == 0 && self.records.are_whole()
    }

    /// The reason why the session ended, if it did, in the place of this error.
    pub(super) fn why(&mut self, error: RedisError) -> RedisError {
        self.ended.take().map_or(error, |ended| worded(&ended))
    }

    pub(super) fn write_all(&mut self, data: &[u8], to: &mut impl Write) -> io::Result<()> {
        self.session.writer().write_all(data)?;
        self.flush(to)
    }

    fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(to)?;
        }
        Ok(())
    }

    /// Reads bytes that are decrypted already, or else the next ones.
    pub(super) fn read(&mut self, buffer: &mut [u8], from: &mut (impl Read + Write)) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => {
                    let read = read?;
                    self.unread -= read.min(self.unread);
                    return Ok(read);
                }
            }
            self.session.read_tls(&mut Followed { socket: from, records: &mut self.records })?;
            match self.session.process_new_packets() {
                Ok(state) => self.unread = state.plaintext_bytes_to_read(),
                Err(error) => {
                    self.ended = Some(error.clone());
                    return Err(io::Error::other(error));
                }
            }
            // Sends the answer to a change of keys. Mostly there is none.
            self.flush(from)?;
        }
    }
}

/// A server without TLS mostly says nothing and waits for more.
fn silent_is_said(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "no answer to the TLS handshake in time: is this its port for TLS?")
        }
        _ => error,
    }
}

/// Words an error of TLS for people, one of ours or of the other side's. An error of the socket stays as it is.
pub(super) fn explained(error: io::Error) -> RedisError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner) => worded(inner),
        None => error.into(),
    }
}

fn worded(error: &Error) -> RedisError {
    redis::make_extension_error(CODE.to_owned(), Some(meaning(error)))
}

fn meaning(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(wrong) => meaning_of_certificate(wrong),
        Error::AlertReceived(alert) => meaning_of_alert(*alert),
        Error::InvalidMessage(_) => "it does not speak TLS: is this the port for it, or is redis:// meant?".to_owned(),
        Error::General(what) => format!("TLS fails: {what}"),
        other => format!("TLS fails: {other}"),
    }
}

fn meaning_of_certificate(wrong: &CertificateError) -> String {
    use CertificateError as E;
    let what = match wrong {
        E::Expired | E::ExpiredContext { .. } => "its certificate has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => "its certificate is not valid yet: is the clock right?",
        E::UnknownIssuer => "its certificate is of an authority that is not trusted here: give that by Tls::ca",
        E::Other(OtherError(inner)) if inner.is::<SignedItself>() => {
            "its certificate signed itself: give it by Tls::ca, if it is the right one"
        }
        E::Other(OtherError(inner)) if inner.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity) => {
            "its certificate is that of an authority, which no server may show: make one with basicConstraints=CA:FALSE"
        }
        E::Other(OtherError(inner)) if inner.downcast_ref() == Some(&webpki::Error::UnsupportedCertVersion) => {
            "its certificate is of version 1, which names no host: make one with a subjectAltName"
        }
        E::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "its certificate names no host, for a common name does not count: make one with a subjectAltName"
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            return format!("its certificate is of another host ({wrong}): give its name by Tls::server_name");
        }
        other => return format!("its certificate is not accepted: {other}"),
    };
    what.to_owned()
}

fn meaning_of_alert(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => {
            format!("it ends the handshake ({alert:?}): it may want a certificate, see Tls::client_certificate")
        }
        A::HandshakeFailure => format!(
            "it ends the handshake ({alert:?}): it may want a certificate, see Tls::client_certificate, or other ciphers"
        ),
        A::ProtocolVersion => format!("it ends the handshake ({alert:?}): it speaks neither TLS 1.2 nor 1.3"),
        A::UnknownCA | A::BadCertificate | A::CertificateExpired | A::CertificateRevoked | A::CertificateUnknown => {
            format!("it does not accept the certificate of this client ({alert:?})")
        }
        other => format!("it ends the session ({other:?})"),
    }
}
