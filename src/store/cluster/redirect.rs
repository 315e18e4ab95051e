//! Where a node sends a client that asked it for a slot of another one.

use crate::store::node::{Failure, host_and_port};
use crate::store::place::Place;

/// What to do instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot is there, from now on.
    Moved(Place),
    /// The slot is on its way there, and this key is not here: only this once.
    Ask(Place),
    /// The slot is at a node whose name the one that says so does not know.
    Nowhere,
}

impl Redirect {
    /// `MOVED 3999 host:port`, and the same with `ASK`. No host: that of the node that says so.
    pub(super) fn of(failure: &Failure, asked: &Place) -> Option<Self> {
        let Failure::Refused { code, cause, .. } = failure else { return None };
        let kind = match code.as_str() {
            "MOVED" => Self::Moved,
            "ASK" => Self::Ask,
            _ => return None,
        };
        let to = place_in(&cause.to_string(), asked)?;
        Some(if to.host == NO_NAME { Self::Nowhere } else { kind(to) })
    }
}

/// What stands for a name that is not known.
pub(super) const NO_NAME: &str = "?";

/// The last word. An IPv6 address has no brackets there.
fn place_in(text: &str, asked: &Place) -> Option<Place> {
    let (host, port) = text.rsplit(' ').next()?.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host {
        "" => asked.host.clone(),
        host if host.contains(':') => host_and_port(&format!("[{host}]")).ok()?.0,
        host => host.to_owned(),
    };
    Some(Place { host, port })
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
        Redirect::of(&failure, &Place { host: "asked".to_owned(), port: 1 })
    }

    fn place(host: &str, port: u16) -> Place {
        Place { host: host.to_owned(), port }
    }

    #[test]
    fn a_redirection_names_a_node() {
        assert_eq!(redirect("MOVED", "3999 10.0.0.1:6381"), Some(Redirect::Moved(place("10.0.0.1", 6381))));
        assert_eq!(redirect("ASK", "3999 :6381"), Some(Redirect::Ask(place("asked", 6381))));
        assert_eq!(redirect("MOVED", "3999 ::1:6381"), Some(Redirect::Moved(place("::1", 6381))));
        assert_eq!(redirect("MOVED", "3999 ?:6381"), Some(Redirect::Nowhere));
        for (code, words) in [("MOVED", "3999"), ("MOVED", "3999 h:x"), ("ERR", "3999 h:1"), ("ASK", "")] {
            assert_eq!(redirect(code, words), None, "{code} {words}");
        }
    }
}
