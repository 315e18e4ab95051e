//! The same for what is given otherwise than in a URL without TLS: passwords of a callback, and keys in PEM, also where they
//! were put by mistake.

use super::check;
use super::secrets::{Password, SHAPES, keep_log, locks, password};
use crate::harness::papers::{Flaw, Papers, papers, trusting};
use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, ms};
use proptest::prelude::*;
use proptest::sample::select;
use redlatch::{Client, ClientBuilder, Credentials, Error, RedLock, Tls};
use std::sync::LazyLock;

const CASES: u32 = 100_000;

/// Further places in URLs.
const SEALED: [&str; 10] = [
    "rediss://:PASSWORD@127.0.0.1:1/3",
    "rediss://127.0.0.1?password=PASSWORD",
    "valkeys://u:PASSWORD@127.0.0.1:port",
    "rediss+sentinel://u:PASSWORD@127.0.0.1,127.0.0.2/m",
    "rediss+sentinel://127.0.0.1/m?sentinel_username=s&sentinel_password=PASSWORD",
    "rediss+sentinel://u:PASSWORD@127.0.0.1",
    "rediss+cluster://u:PASSWORD@127.0.0.1,127.0.0.2",
    "rediss+cluster://u:PASSWORD@127.0.0.1/3",
    "redis+sentinel://127.0.0.1,u:PASSWORD@127.0.0.2/m",
    "redis+cluster://127.0.0.1?pass=PASSWORD",
];

/// PEM, right or broken: in one line as variables of an environment bring it, cut, or mislabelled.
const FORMS: [&str; 10] = [
    "-----BEGIN LABEL-----\nBODY\n-----END LABEL-----\n",
    "-----BEGIN LABEL----- BODY -----END LABEL-----",
    "-----BEGIN LABEL-----\\nBODY\\n-----END LABEL-----\\n",
    "-----BEGIN LABEL-----BODY-----END LABEL-----\n",
    "-----BEGIN LABEL-----\nBODY\n-----END",
    "-----BEGIN LABEL-----\nBODY\n-----END OTHER-----\n",
    "-----BEGIN LABEL BODY\n",
    "-----BEGIN BODY-----\n",
    "-----BEGIN LABEL---\nBODY\n",
    "BODY",
];

const LABELS: [&str; 6] =
    ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "CERTIFICATE", "NONSENSE"];

/// What a text was given as.
#[derive(Debug, Clone, Copy)]
enum Place {
    Key,
    Chain,
    /// Behind a chain that is right.
    OneFile,
    Authority,
}

const PLACES: [Place; 4] = [Place::Key, Place::Chain, Place::OneFile, Place::Authority];

/// How a secret is given.
#[derive(Debug, Clone)]
enum Way {
    Url { shape: &'static str, escaped: bool },
    Callback { shape: &'static str },
    Pem { place: Place, form: &'static str, label: &'static str, encoded: bool },
}

fn way() -> impl Strategy<Value = Way> {
    let shapes = || select([&SHAPES[..], &SEALED].concat());
    let pem = (select(PLACES.to_vec()), select(FORMS.to_vec()), select(LABELS.to_vec()), any::<bool>());
    prop_oneof![
        (shapes(), any::<bool>()).prop_map(|(shape, escaped)| Way::Url { shape, escaped }),
        shapes().prop_map(|shape| Way::Callback { shape }),
        pem.prop_map(|(place, form, label, encoded)| Way::Pem { place, form, label, encoded }),
    ]
}

/// The same words as PEM has them, and as a list of bytes is shown.
fn with_forms(password: &Password) -> Password {
    let encoded = base64(password.whole.as_bytes());
    let pieces = encoded.as_bytes().chunks_exact(8).map(|piece| String::from_utf8_lossy(piece).into_owned());
    let shown = |word: &String| format!("{:?}", word.as_bytes()).trim_matches(['[', ']']).to_owned();
    let mut all = password.clone();
    all.words.extend(pieces);
    all.words.extend(all.words.iter().map(shown).collect::<Vec<_>>());
    all
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let three = |three: &[u8]| {
        let bits = three.iter().chain([0; 3].iter()).take(3).fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        let digit = |at: usize| if at <= three.len() { char::from(DIGITS[bits >> (18 - 6 * at) & 63]) } else { '=' };
        [0, 1, 2, 3].map(digit)
    };
    bytes.chunks(3).flat_map(three).collect()
}

static OWN: LazyLock<Papers> = LazyLock::new(|| papers(Flaw::None));

fn given(place: Place, pem: String) -> Tls {
    match place {
        Place::Key => trusting().client_certificate(OWN.chain.clone(), pem),
        Place::Chain => trusting().client_certificate(pem, OWN.key.clone()),
        Place::OneFile => trusting().client_certificate(OWN.chain.clone() + &pem, pem),
        Place::Authority => Tls::new().ca(pem),
    }
}

/// Without the authorities of the system, which are read for each client.
fn builder(url: &str) -> ClientBuilder {
    let builder = Client::builder(url);
    if ["rediss", "valkeys"].iter().any(|scheme| url.starts_with(scheme)) { builder.tls(trusting()) } else { builder }
}

fn with_callback(builder: ClientBuilder, password: &Password) -> ClientBuilder {
    let whole = password.whole.clone();
    builder.credentials(move || Ok::<_, std::io::Error>(Credentials::new("u", &whole)))
}

fn built_by(password: &Password, way: &Way) -> ClientBuilder {
    match way {
        Way::Url { shape, escaped } => {
            let inside = if *escaped { password.escaped() } else { password.whole.clone() };
            builder(&shape.replace("PASSWORD", &inside))
        }
        Way::Callback { shape } => {
            password.assert_hidden_by(&Credentials::password(&password.whole));
            with_callback(builder(&shape.replace("PASSWORD", &password.escaped())), password)
        }
        Way::Pem { place, form, label, encoded } => {
            let body = if *encoded { base64(password.whole.as_bytes()) } else { password.whole.clone() };
            let tls = given(*place, form.replace("LABEL", label).replace("BODY", &body));
            password.assert_hidden_by(&tls);
            Client::builder("rediss://127.0.0.1").tls(tls)
        }
    }
}

#[test]
fn no_way_to_give_a_secret_shows_it() {
    alone(|| {
        keep_log();
        check(CASES, (password(), way()), |(password, way)| {
            let password = with_forms(&password);
            let builder = built_by(&password, &way);
            password.assert_hidden_by(&builder);
            match builder.build() {
                Ok(client) => password.assert_hidden_by(&client),
                Err(error) => password.assert_hidden_by_error(&error),
            }
            password.assert_not_logged();
        });
    });
}

#[test]
fn a_server_that_refuses_or_lets_in_by_a_callback_does_not_show_it() {
    alone(|| {
        keep_log();
        let server = Server::start();
        check(15, (password(), password()), |(password, wrong)| {
            server.let_in("u", &password.whole, "~n* &* +@all");
            // A refused login is asked again for the outage budget, if a callback gives the password.
            let given = [(&password, LONG), (&wrong, ms(100))];
            let builder = |one, budget| with_callback(server.builder().outage_budget(budget), one);
            let [right, refused] = given.map(|(one, budget)| locks(one, builder(one, budget)));
            let error = wrong.assert_hidden_by_failure(refused.lock("n"));
            assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"), "{error:?}");
            right.lock("n").unwrap();
            right.unlock("n").unwrap();
            let error = password.assert_hidden_by_failure(right.lock("other"));
            assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{error:?}");
            drop((right, refused));
            password.assert_not_logged();
            wrong.assert_not_logged();
        });
    });
}

/// Pieces of what stands between the first line of a PEM text and its last.
fn pieces_of(pem: &str) -> Password {
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let pieces = body.as_bytes().chunks_exact(8).map(|piece| String::from_utf8_lossy(piece).into_owned());
    Password { words: pieces.collect(), whole: body }
}

#[test]
fn a_server_that_refuses_or_accepts_a_certificate_does_not_show_its_key() {
    alone(|| {
        keep_log();
        let server = Server::start_with_tls(&papers(Flaw::None), true);
        for flaw in [Flaw::None, Flaw::Foreign, Flaw::Expired, Flaw::SignedThemselves] {
            let Papers { chain, key } = papers(flaw);
            let secret = pieces_of(&key);
            let tls = trusting().client_certificate(chain, key);
            let locks = locks(&secret, Client::builder(&server.tls_url()).tls(tls));
            if flaw == Flaw::None {
                locks.lock("n").unwrap();
                locks.unlock("n").unwrap();
            } else {
                secret.assert_hidden_by_failure(locks.lock("n"));
            }
            drop(locks);
            secret.assert_not_logged();
        }
    });
}
