//! The settings of the connection, the same for each command.

use crate::out::Failed;
use clap::Args;
use redlatch::{Client, ClientBuilder, Credentials, Tls};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::time::Duration;

/// What the connections of commands are called that look and do nothing else.
pub(crate) const ONLOOKER: &str = "redlatch";

const USUAL: &str = "redis://127.0.0.1/";

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Server {
    /// Where the locks are: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://. A password goes elsewhere.
    #[arg(long, env = "REDLATCH_URL", hide_env_values = true, global = true, default_value = USUAL)]
    url: String,
    /// What comes before each name at the server.
    #[arg(long, env = "REDLATCH_PREFIX", global = true, default_value = "")]
    prefix: String,
    /// The user. Its password is in REDLATCH_PASSWORD or a file.
    #[arg(long, env = "REDLATCH_USER", global = true)]
    user: Option<String>,
    // Not a path: clap refuses one that is empty.
    /// A file with the password, read for each connection.
    #[arg(long, env = "REDLATCH_PASSWORD_FILE", global = true, value_name = "FILE")]
    password_file: Option<OsString>,
    /// The user at the sentinels. Its password is in REDLATCH_SENTINEL_PASSWORD or a file.
    #[arg(long, env = "REDLATCH_SENTINEL_USER", global = true, value_name = "USER")]
    sentinel_user: Option<String>,
    /// A file with the password at the sentinels.
    #[arg(long, env = "REDLATCH_SENTINEL_PASSWORD_FILE", global = true, value_name = "FILE")]
    sentinel_password_file: Option<OsString>,
    /// Authorities to trust in place of the system's, as PEM.
    #[arg(long, env = "REDLATCH_CA", global = true, value_name = "FILE")]
    ca: Option<OsString>,
    /// A certificate to show to the server, as PEM.
    #[arg(long, env = "REDLATCH_CERT", global = true, value_name = "FILE")]
    cert: Option<OsString>,
    /// Its key, as PEM.
    #[arg(long, env = "REDLATCH_KEY", global = true, value_name = "FILE")]
    key: Option<OsString>,
    /// The name that the server's certificate has to have, if that is not the host's.
    #[arg(long, env = "REDLATCH_SERVER_NAME", global = true, value_name = "NAME")]
    server_name: Option<String>,
    /// Strict mode: all programs that share the locks need it. In the environment: 1 or true.
    #[arg(long, env = "REDLATCH_STRICT", global = true, value_parser = switch)]
    strict: bool,
    /// How many replicas have to confirm each grant.
    #[arg(long, env = "REDLATCH_SYNC_REPLICAS", global = true, value_name = "N", value_parser = replicas, default_value = "0")]
    sync_replicas: usize,
}

impl Server {
    /// The settings of a client. `app`: what its connections are called.
    pub(crate) fn builder(&self, app: &str) -> Result<ClientBuilder, Failed> {
        self.check_no_secret_in_argv(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))?;
        let mut builder = Client::builder(&self.url_with_sentinels()?).app_name(app).key_prefix(&self.prefix);
        builder = match self.password()? {
            Some(password) => builder.credentials(password),
            None if set(&self.user).is_some() => {
                return Err(Failed::usage("--user needs a password: put it into REDLATCH_PASSWORD or --password-file"));
            }
            None => builder,
        };
        if let Some(tls) = self.tls()? {
            builder = builder.tls(tls);
        }
        if self.sync_replicas > 0 {
            builder = builder.sync_replicas(self.sync_replicas, Duration::from_millis(100));
        }
        Ok(builder.strict(self.strict))
    }

    /// A client that looks and does nothing else.
    pub(crate) fn client(&self) -> Result<Client, Failed> {
        Ok(self.builder(ONLOOKER)?.pool_size(2).self_test(false).build()?)
    }

    pub(crate) fn is_of_cluster(&self) -> bool {
        self.url.split("://").next().is_some_and(|scheme| scheme.contains("cluster"))
    }

    /// Every user of the machine sees the words of a command.
    fn check_no_secret_in_argv(&self, words: impl Iterator<Item = String>) -> Result<(), Failed> {
        let has_secret = |word: &str| {
            let url = word.strip_prefix("--url=").unwrap_or(word);
            url == self.url && (password_in(url) || url.contains("pass=") || url.contains("password="))
        };
        match words.into_iter().any(|word| has_secret(&word)) {
            false => Ok(()),
            true => Err(Failed::usage(
                "the command line shows the password to every user of this machine: put the URL into REDLATCH_URL, or the \
                 password into REDLATCH_PASSWORD or --password-file",
            )),
        }
    }

    /// Asked for each connection, so a file may change while a command runs.
    fn password(&self) -> Result<Option<impl Fn() -> std::io::Result<Credentials> + Send + Sync + 'static>, Failed> {
        let (user, file) = (set(&self.user).cloned(), set(&self.password_file).cloned());
        let given = secret("REDLATCH_PASSWORD");
        if file.is_none() && given.is_none() {
            return Ok(None);
        }
        if let Some(file) = &file {
            secret_in(file)?;
        }
        Ok(Some(move || {
            let password = match &file {
                Some(file) => fs::read_to_string(file)?.trim_end_matches(['\r', '\n']).to_owned(),
                None => given.clone().unwrap_or_default(),
            };
            Ok(match &user {
                Some(user) => Credentials::new(user, password),
                None => Credentials::password(password),
            })
        }))
    }

    /// The credentials of sentinels are a part of the URL.
    fn url_with_sentinels(&self) -> Result<String, Failed> {
        let url = if self.url.is_empty() { USUAL } else { &self.url };
        let password = match set(&self.sentinel_password_file) {
            Some(file) => Some(secret_in(file)?),
            None => secret("REDLATCH_SENTINEL_PASSWORD"),
        };
        let parts = [("sentinel_username", set(&self.sentinel_user).cloned()), ("sentinel_password", password)];
        let given: Vec<_> = parts
            .into_iter()
            .filter_map(|(key, value)| value.map(|value| format!("{key}={}", percent_encoded(&value))))
            .collect();
        if given.is_empty() {
            return Ok(url.to_owned());
        }
        let sign = if url.contains('?') { '&' } else { '?' };
        Ok(format!("{url}{sign}{}", given.join("&")))
    }

    fn tls(&self) -> Result<Option<Tls>, Failed> {
        let (ca, pair, name) = (set(&self.ca), (set(&self.cert), set(&self.key)), set(&self.server_name));
        if ca.is_none() && pair == (None, None) && name.is_none() {
            return Ok(None);
        }
        let mut tls = Tls::new();
        if let Some(ca) = ca {
            tls = tls.ca(read(ca)?);
        }
        match pair {
            (Some(cert), Some(key)) => tls = tls.client_certificate(read(cert)?, read(key)?),
            (None, None) => {}
            _ => return Err(Failed::usage("--cert and --key go together: give both")),
        }
        Ok(Some(name.into_iter().fold(tls, |tls, name| tls.server_name(name))))
    }
}

/// A variable that is empty is not set.
fn set<T: AsRef<OsStr>>(value: &Option<T>) -> Option<&T> {
    value.as_ref().filter(|value| !value.as_ref().is_empty())
}

fn switch(text: &str) -> Result<bool, String> {
    match text.to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "" | "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("write 1 or 0".to_owned()),
    }
}

fn replicas(text: &str) -> Result<usize, String> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| "a number of replicas".to_owned()) }
}

/// The same for a secret, which has no option.
fn secret(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

/// Whether a URL has a password before its host.
fn password_in(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let hosts = rest.split(['/', '?']).next().unwrap_or_default();
    hosts.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
}

fn read(file: &OsStr) -> Result<Vec<u8>, Failed> {
    fs::read(file).map_err(|error| Failed::usage(format!("cannot read {}: {error}", file.display())))
}

fn secret_in(file: &OsStr) -> Result<String, Failed> {
    let text = String::from_utf8(read(file)?).map_err(|_| Failed::usage(format!("{} is no text", file.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// For the query of a URL.
fn percent_encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_seen() {
        for url in ["redis://:secret@h/", "redis://app:secret@h:1/2", "redis+sentinel://a:b@h,g/m"] {
            assert!(password_in(url), "{url}");
        }
        for url in ["redis://h/", "redis://app@h/", "unix:///tmp/a:b@c", "redis://h/?x=a:b@c", "h"] {
            assert!(!password_in(url), "{url}");
        }
    }

    #[test]
    fn a_query_takes_any_password() {
        assert_eq!(percent_encoded("a-b é&/?"), "a-b%20%C3%A9%26%2F%3F");
    }
}
