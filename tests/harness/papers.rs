//! Certificates: an authority that the tests trust, and the right and wrong certificates for servers.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use redlatch::{ClientBuilder, Tls};
use std::path::Path;
use std::sync::LazyLock;

/// A chain and its key, both PEM.
#[derive(Clone)]
pub struct Papers {
    pub chain: String,
    pub key: String,
}

impl Papers {
    /// Puts the papers into a server's folder, where [`settings`](Self::settings) name them.
    pub(crate) fn put_into(&self, dir: &Path) {
        for (file, text) in [("ca", &authority()), ("chain", &self.chain), ("key", &self.key)] {
            std::fs::write(dir.join(file), text).unwrap();
        }
    }

    /// The settings of a server with these papers. Its port is for TLS alone; without TLS clients connect by its socket. If `asks`, it
    /// wants certificates of its clients.
    pub(crate) fn settings(&self, dir: &Path, port: u16, asks: bool) -> [(&'static str, String); 6] {
        self.put_into(dir);
        let file = |name: &str| dir.join(name).display().to_string();
        [
            ("tls-port", port.to_string()),
            ("port", "0".to_owned()),
            ("tls-auth-clients", if asks { "yes" } else { "no" }.to_owned()),
            ("tls-ca-cert-file", file("ca")),
            ("tls-cert-file", file("chain")),
            ("tls-key-file", file("key")),
        ]
    }
}

/// What is wrong with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    None,
    Expired,
    NotYetValid,
    OtherHost,
    SignedThemselves,
    /// An authority that nobody trusts signed it.
    Foreign,
    /// It is the certificate of an authority, as `openssl req -x509` makes it.
    OfAnAuthority,
    /// It has a common name alone.
    Nameless,
}

/// A host that is not the tests' servers'.
pub const OTHER_HOST: &str = "redis.internal";

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, new_key()).unwrap())
    }
}

static TRUSTED: LazyLock<Authority> = LazyLock::new(|| Authority::new("redlatch tests"));
static FOREIGN: LazyLock<Authority> = LazyLock::new(|| Authority::new("nobody's"));

fn new_key() -> KeyPair {
    KeyPair::generate().unwrap()
}

/// The certificate of the authority that the tests trust.
pub fn authority() -> String {
    TRUSTED.0.pem()
}

/// The papers of a server; for `127.0.0.1`, if nothing is wrong with them.
pub fn papers(flaw: Flaw) -> Papers {
    let hosts = match flaw {
        Flaw::OtherHost => vec![OTHER_HOST.to_owned()],
        Flaw::Nameless => Vec::new(),
        _ => vec!["127.0.0.1".to_owned()],
    };
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, "a server");
    match flaw {
        Flaw::Expired => params.not_after = date_time_ymd(2020, 1, 1),
        Flaw::NotYetValid => params.not_before = date_time_ymd(2100, 1, 1),
        Flaw::OfAnAuthority => params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
        _ => {}
    }
    let key = new_key();
    let certificate = match flaw {
        Flaw::SignedThemselves | Flaw::OfAnAuthority => params.self_signed(&key),
        Flaw::Foreign => params.signed_by(&key, &FOREIGN.0),
        _ => params.signed_by(&key, &TRUSTED.0),
    };
    Papers { chain: certificate.unwrap().pem(), key: key.serialize_pem() }
}

/// The TLS of a client that trusts the tests' authority.
pub fn trusting() -> Tls {
    Tls::new().ca(authority())
}

/// The same with a certificate of its own, for servers that ask for one.
pub fn known() -> Tls {
    let Papers { chain, key } = papers(Flaw::None);
    trusting().client_certificate(chain, key)
}

/// Puts papers into a folder, where [`known_by`] finds them for a client in another process.
pub fn leave_in(dir: &Path) {
    papers(Flaw::None).put_into(dir);
}

/// [`known`] for a process that has only the folder, and not the authority's key.
pub fn known_by(dir: &Path) -> Tls {
    let file = |name: &str| std::fs::read(dir.join(name)).unwrap();
    Tls::new().ca(file("ca")).client_certificate(file("chain"), file("key"))
}

/// A client of a deployment with TLS or without.
pub(crate) fn sealed_if(is_so: bool, builder: ClientBuilder) -> ClientBuilder {
    if is_so { builder.tls(known()) } else { builder }
}
