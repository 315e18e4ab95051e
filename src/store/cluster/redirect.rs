//! Where a node sends a client that asked it for a slot of another one.

use crate::store::host_port::HostPort;
use crate::store::node::{Failure, host_and_port};

/// What to do instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot is there, from now on.
    Moved(HostPort),
    /// The slot is on its way there, and this key is not here: only this once.
    Ask(HostPort),
    /// The slot is at a node whose name the one that says so does not know.
    Nowhere,
}

impl Redirect {
    /// `MOVED 3999 host:port`, and the same with `ASK`. No host: that of the node that says so.
    pub(super) fn of(failure: &Failure, asked: &HostPort) -> Option<Self> {
        let Failure::Refused { code, cause, .. } = failure else { return None };
        let kind = match code.as_str() {
            "MOVED" => Self::Moved,
            "ASK" => Self::Ask,
            _ => return None,
        };
        let to = address_in(&cause.to_string(), asked)?;
        Some(if to.host == NO_NAME { Self::Nowhere } else { kind(to) })
    }
}

/// What stands for a name that is not known.
pub(super) const NO_NAME: &str = "?";

/// The last word. An IPv6 address has no brackets there.
fn address_in(text: &str, asked: &HostPort) -> Option<HostPort> {
    let (host, port) = text.rsplit(' ').next()?.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host {
        "" => asked.host.clone(),
        host if host.contains(':') => host_and_port(&format!("[{host}]")).ok()?.0,
        host => host.to_owned(),
    };
    Some(HostPort { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::{Applied, Cause};

    fn redirect(code: &str, words: &str) -> Option<Redirect> {
        let failure = Failure::Refused {
            code: code.to_owned(),
            applied: Applied::No,
            cause: Cause::new(format!("h:1: {words}")),
        };
        Redirect::of(&failure, &HostPort { host: "asked".to_owned(), port: 1 })
    }

    fn address(host: &str, port: u16) -> HostPort {
        HostPort { host: host.to_owned(), port }
    }

    #[test]
    fn a_redirection_names_a_node() {
        assert_eq!(redirect("MOVED", "3999 10.0.0.1:6381"), Some(Redirect::Moved(address("10.0.0.1", 6381))));
        assert_eq!(redirect("ASK", "3999 :6381"), Some(Redirect::Ask(address("asked", 6381))));
        assert_eq!(redirect("MOVED", "3999 ::1:6381"), Some(Redirect::Moved(address("::1", 6381))));
        assert_eq!(redirect("MOVED", "3999 ?:6381"), Some(Redirect::Nowhere));
        for (code, words) in [("MOVED", "3999"), ("MOVED", "3999 h:x"), ("ERR", "3999 h:1"), ("ASK", "")] {
            assert_eq!(redirect(code, words), None, "{code} {words}");
        }
    }
}
