//! Which process a client belongs to, as its connections are named at the servers.

use std::fmt;
use uuid::Uuid;

/// The process of a client. Each connection has it in its name, so `CLIENT LIST` shows it: `redlatch:<app>@<host>:<pid>:<client id>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Process {
    /// What [`ClientBuilder::app_name`](crate::ClientBuilder::app_name) says, or else the file name of the program.
    pub app: String,
    /// The name of its machine or container.
    pub host: String,
    /// Its process id, as its own machine or container counts.
    pub pid: u32,
    /// The id of its client, as of [`Client::id`](crate::Client::id). A process may have several.
    pub client: String,
}

/// Tells the names of these connections from those of other libraries.
const START: &str = "redlatch:";

impl Process {
    /// That of a client in this process.
    pub(crate) fn here(app: Option<&str>, client: Uuid) -> Self {
        let app = app.map_or_else(program, str::to_owned);
        let host = clean(&rustix::system::uname().nodename().to_string_lossy());
        Self { app, host, pid: std::process::id(), client: client.to_string() }
    }

    /// That which the name of a connection says; `None` for a name that is not of this library.
    pub(crate) fn named(connection: &str) -> Option<Self> {
        // No server lets a connection have another name, but whoever may publish can forge one.
        let shown = Some(connection).filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()))?;
        let mut parts = shown.strip_prefix(START)?.rsplitn(3, ':');
        let client = Uuid::parse_str(parts.next()?).ok()?.to_string();
        let pid = parts.next()?.parse().ok()?;
        let (app, host) = parts.next()?.rsplit_once('@')?;
        Some(Self { app: app.to_owned(), host: host.to_owned(), pid, client })
    }

    /// The name of its connections.
    pub(crate) fn connection(&self) -> String {
        let Self { app, host, pid, client } = self;
        format!("{START}{app}@{host}:{pid}:{client}")
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} (pid {})", self.app, self.host, self.pid)
    }
}

/// The file name of this program.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    clean(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// A server refuses a name with spaces or control characters, and the signs that part a name may not be in its parts.
fn clean(text: &str) -> String {
    let kept = |sign: char| if sign.is_ascii_graphic() && !"@:".contains(sign) { sign } else { '_' };
    if text.is_empty() { "-".to_owned() } else { text.chars().map(kept).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_says_its_process() {
        let here = Process::here(Some("shop:1@home"), Uuid::max());
        assert_eq!(Process::named(&here.connection()), Some(here.clone()));
        assert_eq!((here.app.as_str(), here.pid), ("shop:1@home", std::process::id()));
        assert!(Process::here(None, Uuid::max()).app.starts_with("redlatch-"), "this test's file");
    }

    #[test]
    fn other_names_say_none() {
        let uuid = Uuid::nil();
        for name in ["", "shop", "redlatch:", &format!("redlatch:{uuid}"), &format!("redlatch:a@b:c:{uuid}")] {
            assert_eq!(Process::named(name), None, "{name}");
        }
        for name in [format!("other:a@b:7:{uuid}"), format!("redlatch:a\u{1b}[2J@b:7:{uuid}")] {
            assert_eq!(Process::named(&name), None, "{name:?}");
        }
    }

    #[test]
    fn names_are_made_of_visible_ascii() {
        assert_eq!(["web 1", "wéb", "a:b@c", ""].map(clean), ["web_1", "w_b", "a_b_c", "-"]);
    }
}
