//! The script by which a kind acquires, in each of its forms: at once or in turn, plain or strict.
//!
//! A kind writes one file. What goes around it is the same for all: the queue of processes, and the quarantine of strict clients.

use crate::base::key::Key;
use crate::base::script::{Modes, Script};

/// The acquire of a kind. It has the keys and arguments of `acquire.lua`, but for the last. Its reply is an integer if it grants
/// nothing, else nil or text.
pub(in crate::lock) struct Acquire {
    pub(in crate::lock) forms: &'static Forms,
    /// The depth, or what else a kind says there.
    pub(in crate::lock) last: u64,
    /// A second key that it names. Where it is not at one node with the lock, the lock is taken as by a kind that has none, and
    /// answered with nil.
    pub(in crate::lock) beside: Option<fn(&Key) -> String>,
}

/// The script by which a kind acquires, at once and in turn.
pub(in crate::lock) struct Forms {
    pub(in crate::lock) at_once: Modes,
    pub(in crate::lock) in_turn: Modes,
}

impl Forms {
    pub(super) fn of(&self, in_turn: bool, strict: bool) -> &Script {
        if in_turn { self.in_turn.of(strict) } else { self.at_once.of(strict) }
    }
}

/// Declares those of a module: `NAME = "file.lua", keys, args;`, once in it.
macro_rules! asks {
    ($($(#[$doc:meta])* $id:ident = $file:literal, $keys:expr, $args:expr;)*) => {
        $($(#[$doc])*
        static $id: $crate::lock::keys::asks::Forms = {
            use $crate::base::script::{Modes, Script};
            use $crate::lock::keys::asks::Forms;
            use $crate::lock::keys::{IN_TURN, QUARANTINE};
            let names = [
                [stringify!($id), concat!(stringify!($id), "_STRICT")],
                [concat!(stringify!($id), "_IN_TURN"), concat!(stringify!($id), "_IN_TURN_STRICT")],
            ];
            let text = include_str!($file);
            Forms {
                at_once: Modes {
                    plain: Script::new(names[0][0], &[], text, $keys, $args),
                    strict: Script::new(names[0][1], &[&QUARANTINE], text, $keys, $args),
                },
                in_turn: Modes {
                    plain: Script::new(names[1][0], &[&IN_TURN], text, $keys, $args),
                    strict: Script::new(names[1][1], &[&QUARANTINE, &IN_TURN], text, $keys, $args),
                },
            }
        };)*

        #[cfg(test)]
        mod scripts_of_asks {
            #[test]
            fn headers_bodies_and_counts_agree() {
                use $crate::base::script::tests::Checked;
                $(super::$id.at_once.check();
                super::$id.in_turn.check();)*
            }
        }
    };
}
pub(in crate::lock) use asks;
