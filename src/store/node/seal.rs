//! A TLS session on a socket.

use crate::base::tls::{Connector, SignedItself};
use redis::RedisError;
use rustls::{AlertDescription, CertificateError, ClientConnection, Error, OtherError};
use std::io::{self, Read, Write};

/// The code of an error that TLS raised. A server's error has a code of its own.
const CODE: &str = "TLS";

pub(super) struct Seal {
    session: Box<ClientConnection>,
    /// Why the session ended. The parser of answers does not pass that on.
    ended: Option<Error>,
}

impl Seal {
    /// Makes the handshake, in the time that the socket has.
    pub(super) fn on(connector: &Connector, host: &str, socket: &mut (impl Read + Write)) -> Result<Self, RedisError> {
        let mut session = connector.session(host).map_err(|error| worded(&error))?;
        // By default 64 KiB fit at a time. A command is in memory anyway, and is sent before the next is written.
        session.set_buffer_limit(None);
        while session.is_handshaking() {
            session.complete_io(socket).map_err(|error| explained(silent_is_said(error)))?;
        }
        Ok(Self { session: Box::new(session), ended: None })
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
                read => return read,
            }
            self.session.read_tls(from)?;
            if let Err(error) = self.session.process_new_packets() {
                self.ended = Some(error.clone());
                return Err(io::Error::other(error));
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
