//! Credentials that a callback gives, and that change while locks are in use.

use crate::server::Server;
use crate::threads::{LONG, SOON, eventually, ms, timed};
use redlatch::{Client, ClientBuilder, Credentials, Error, RedLock, ReentrantLock};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

/// What the program believes to be the password.
#[derive(Clone, Default)]
struct Believed(Arc<Mutex<String>>);

impl Believed {
    fn set(&self, password: &str) {
        password.clone_into(&mut self.0.lock().unwrap());
    }

    fn builder(&self, server: &Server) -> ClientBuilder {
        let believed = self.clone();
        let ask = move || Ok::<_, std::io::Error>(Credentials::new("app", believed.0.lock().unwrap().as_str()));
        Client::builder(&server.url()).credentials(ask)
    }
}

fn locks(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

/// On the server: nobody logs in with an older one.
fn set_password(server: &Server, password: &str) {
    server.let_in("app", password, "~* &* +@all");
}

#[test]
fn a_password_that_is_wrong_for_good_is_refused() {
    let (server, believed) = (Server::start(), Believed::default());
    set_password(&server, "right");
    believed.set("wrong-Sesame");
    let (told, took) = timed(|| locks(believed.builder(&server).outage_budget(ms(100))).lock("n"));
    let error = told.unwrap_err();
    assert!(took <= SOON && matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("Sesame"));
}

/// Where they come from may be away for a moment.
#[test]
fn a_callback_that_fails_is_asked_again() {
    let server = Server::start();
    set_password(&server, "right");
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let flaky = move || match count.fetch_add(1, SeqCst) {
        0 => Err("the vault is sealed"),
        1 => panic!("on purpose"),
        _ => Ok(Credentials::new("app", "right")),
    };
    let locks = locks(Client::builder(&server.url()).credentials(flaky));
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
    assert!(asked.load(SeqCst) >= 3);
    let never = || Err::<Credentials, _>("the vault is sealed");
    let hasty =
        ReentrantLock::new(&Client::builder(&server.url()).credentials(never).outage_budget(ms(50)).build().unwrap());
    let error = hasty.lock("n").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("the vault is sealed"), "{error}");
}

#[test]
fn credentials_are_given_once_and_shown_never() {
    let ask = || Ok::<_, std::io::Error>(Credentials::password("Sesame"));
    for url in ["redis://u:p@h", "redis+cluster://u:p@h,i", "unix:///s?user=u&pass=p", "redis+sentinel://:p@h/m"] {
        let error = Client::builder(url).credentials(ask).build().unwrap_err().to_string();
        assert!(error.contains("leave one of them out"), "{error}");
    }
    assert!(Client::builder("redis://h").credentials(ask).build().is_ok());
    assert_eq!(format!("{:?}", Credentials::new("u", "Sesame")), "Credentials(..)");
    assert!(!format!("{:?}", Client::builder("redis://h").credentials(ask)).contains("Sesame"));
}

/// Such a server repeats what it does not know.
#[test]
fn a_server_without_the_command_to_log_in_shows_no_password() {
    let server = Server::start_without(&["AUTH"]);
    let ask = || Ok::<_, std::io::Error>(Credentials::new("app", format!("Sesame{}", "0".repeat(500))));
    let (by_url, asked) =
        (Client::builder(&server.url_as("app", "Sesame")), Client::builder(&server.url()).credentials(ask));
    for builder in [by_url, asked] {
        let error = locks(builder).lock("n").unwrap_err();
        assert!(matches!(&error, Error::Refused { code, .. } if code == "ERR"), "{error:?}");
        assert!(
            error.to_string().contains("refuses AUTH") && !format!("{error} {error:?}").contains("Sesame"),
            "{error}"
        );
    }
}

/// It would wait for itself, and whoever called for it, without an end.
#[test]
fn a_callback_that_locks_by_its_own_client_fails() {
    let server = Server::start();
    set_password(&server, "right");
    let own: Arc<OnceLock<ReentrantLock>> = Arc::default();
    let its = Arc::clone(&own);
    let ask = move || its.get().map_or(Ok(()), |locks| locks.lock("token")).map(|()| Credentials::new("app", "right"));
    let locks = locks(Client::builder(&server.url()).outage_budget(ms(100)).credentials(ask));
    own.set(locks.clone()).unwrap();
    let asked = std::thread::spawn(move || locks.lock("n").unwrap_err().to_string());
    eventually(LONG, "the callback fails", || asked.is_finished());
    let error = asked.join().unwrap();
    assert!(error.contains("the callback uses the client that asks it"), "{error}");
}
