//! TLS: which authorities to trust, and which certificate to show.
//!
//! The cryptography is ring's, set in each configuration. A provider installed for the process would get in the way of the program's
//! choice.

use crate::base::error::{Error, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// How a client whose URL begins with `rediss` verifies its servers and identifies itself (feature `tls`).
///
/// By default the client trusts the system's authorities and shows no certificate of its own. It asks for a certificate of the host in the
/// URL, or of the host by which a sentinel or a cluster names a node. Certificates are always checked: there is no way to switch that off.
///
/// So each server's certificate names the host by which clients find it. Sentinels and clusters name addresses unless they are configured
/// otherwise (`resolve-hostnames` and `announce-hostnames`; `cluster-announce-hostname` and `cluster-preferred-endpoint-type`). Then the
/// certificates name addresses too, or all share one name, given to [`server_name`](Self::server_name). With
/// [`map_address`](crate::ClientBuilder::map_address) they name the mapped host. An error about a certificate names its server's address.
///
/// Certificates and keys are PEM. They are read once, when the client is built. `Debug` shows none of them.
///
/// ```no_run
/// use redlatch::{Client, Tls};
///
/// let tls = Tls::new()
///     .ca(std::fs::read("ca.pem")?)
///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?)
///     .server_name("redis.internal");
/// let client = Client::builder("rediss://10.0.0.7:6380").tls(tls).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Tls {
    authorities: Vec<Vec<u8>>,
    own: Option<(Vec<u8>, Vec<u8>)>,
    name: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    /// Trusts the authorities of the system, and shows no certificate of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificates in this PEM text instead of the system's. May be called more than once.
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities.push(pem.into());
        self
    }

    /// Shows a certificate to servers that ask for one (`tls-auth-clients`, on by default). Both are PEM: the chain, with the client's own
    /// certificate first, and its key, not encrypted.
    pub fn client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.own = Some((chain.into(), key.into()));
        self
    }

    /// Asks each server for a certificate of this name, a host's or an IP address. For certificates that name another host than the one to
    /// which the client connects, or that sentinels and clusters name.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// # Errors
    /// `Config` for what is no certificate, key or name.
    pub(crate) fn connector(&self) -> Result<Connector> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Wording(self.verifier(&provider)?);
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        // `dangerous` is the name for any verifier of our own. This one asks the usual one, and words its error.
        let builder = builder.map_err(wrong)?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &self.own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let (chain, key) = (certificates(chain, "client_certificate")?, key_in(key)?);
                builder.with_client_auth_cert(chain, key).map_err(wrong)?
            }
        };
        Ok(Connector { config: Arc::new(config), name: self.name.as_deref().map(server_name).transpose()? })
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
        let mut roots = RootCertStore::empty();
        if self.authorities.is_empty() {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        for pem in &self.authorities {
            for certificate in certificates(pem, "ca")? {
                roots.add(certificate).map_err(wrong)?;
            }
        }
        if roots.is_empty() {
            return Err(Error::config("the system trusts no certificate authority: give one by Tls::ca"));
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().map_err(wrong)
    }
}

fn wrong(error: impl fmt::Display) -> Error {
    Error::config(format!("the TLS settings do not work: {error}"))
}

/// # Errors
/// `Config` when there is none.
fn certificates(pem: &[u8], given: &str) -> Result<Vec<CertificateDer<'static>>> {
    let what = |why: &str| {
        let right = "it takes PEM text, in which -----BEGIN CERTIFICATE----- is a line of its own";
        Error::config(format!("Tls::{given} was given {why}: {right}"))
    };
    let all = CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<Vec<_>, _>>();
    // The parser's error shows the line, which may be part of a key.
    match all.map_err(|_| what("what is not understood"))? {
        none if none.is_empty() => Err(what("no certificate")),
        some => Ok(some),
    }
}

/// # Errors
/// `Config` when there is none.
fn key_in(pem: &[u8]) -> Result<PrivateKeyDer<'static>> {
    let what =
        "Tls::client_certificate was given no key: it takes PEM text, -----BEGIN PRIVATE KEY-----, not encrypted";
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| Error::config(what))
}

/// # Errors
/// `Config` for what is no name.
fn server_name(name: &str) -> Result<ServerName<'static>> {
    let what = "Tls::server_name was given what is neither the name of a host nor an IP address";
    ServerName::try_from(name.to_owned()).map_err(|_| Error::config(what))
}

/// The demands of the URLs, and the program's TLS settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) is_sealed: bool,
    pub(crate) settings: Option<Tls>,
}

impl Wanted {
    /// # Errors
    /// `Config` for settings that do not work, or that no URL would use: the caller believes that the connection is encrypted.
    pub(crate) fn connector(&self) -> Result<Option<Connector>> {
        match (&self.settings, self.is_sealed) {
            (Some(_), false) => Err(Error::config("TLS settings are given for a URL without TLS: write rediss://")),
            (settings, true) => settings.clone().unwrap_or_default().connector().map(Some),
            (None, false) => Ok(None),
        }
    }
}

/// The TLS settings of each connection.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector(..)")
    }
}

impl Connector {
    /// A new session.
    ///
    /// # Errors
    /// If no certificate could name this host.
    pub(crate) fn session(&self, host: &str) -> std::result::Result<ClientConnection, rustls::Error> {
        let unfit = "no certificate could name this host as it is written: give its name by Tls::server_name";
        let of_host = || ServerName::try_from(host.to_owned()).map_err(|_| rustls::Error::General(unfit.to_owned()));
        let name = self.name.clone().map_or_else(of_host, Ok)?;
        ClientConnection::new(Arc::clone(&self.config), name)
    }
}

/// The usual verifier, which reports a self-signed certificate and an unknown authority alike. This one tells them apart.
#[derive(Debug)]
struct Wording(Arc<WebPkiServerVerifier>);

/// The error for a certificate that is its own authority, and not a trusted one.
#[derive(Debug)]
pub(crate) struct SignedItself;

impl fmt::Display for SignedItself {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it signed itself")
    }
}

impl std::error::Error for SignedItself {}

fn signed_itself(certificate: &CertificateDer<'_>) -> bool {
    webpki::EndEntityCert::try_from(certificate).is_ok_and(|parsed| parsed.issuer() == parsed.subject())
}

impl ServerCertVerifier for Wording {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let verified = self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        verified.map_err(|error| match error {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) if signed_itself(end_entity) => {
                CertificateError::Other(OtherError(Arc::new(SignedItself))).into()
            }
            other => other,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
