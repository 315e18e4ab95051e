//! Certificates: an authority that the tests trust, and what it signs, rightly and wrongly.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use redlatch::Tls;
use std::sync::LazyLock;

/// A chain and its key, both PEM.
#[derive(Clone)]
pub struct Papers {
    pub chain: String,
    pub key: String,
}

/// What is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    None,
    Expired,
    NotYetValid,
    OtherHost,
    SignedThemselves,
    /// Of an authority that nobody trusts.
    Foreign,
}

/// Of a host that is not where the tests' servers are.
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

/// Of the authority that the tests trust.
pub fn authority() -> String {
    TRUSTED.0.pem()
}

/// For `127.0.0.1`, if nothing is wrong with them.
pub fn papers(flaw: Flaw) -> Papers {
    let hosts = if flaw == Flaw::OtherHost { vec![OTHER_HOST.to_owned()] } else { vec!["127.0.0.1".to_owned()] };
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, "a server");
    match flaw {
        Flaw::Expired => params.not_after = date_time_ymd(2020, 1, 1),
        Flaw::NotYetValid => params.not_before = date_time_ymd(2100, 1, 1),
        _ => {}
    }
    let key = new_key();
    let certificate = match flaw {
        Flaw::SignedThemselves => params.self_signed(&key),
        Flaw::Foreign => params.signed_by(&key, &FOREIGN.0),
        _ => params.signed_by(&key, &TRUSTED.0),
    };
    Papers { chain: certificate.unwrap().pem(), key: key.serialize_pem() }
}

/// What a client needs that trusts the tests' authority.
pub fn trusting() -> Tls {
    Tls::new().ca(authority())
}
