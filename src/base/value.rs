//! The answer of a server to a caller's own command.

/// The answer to a [`Command`](crate::Command). Integers pass through the server's Lua: beyond 2^53 they are not exact, and next to 2^63
/// even the sign may be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing there.
    Nil,
    /// A number, as of `INCR`.
    Integer(i64),
    /// Any bytes, also a word such as `OK`.
    Bytes(Vec<u8>),
    /// Several, as of `MGET`.
    Array(Vec<Value>),
    /// An error as one element of an array, as modules answer. If the whole answer is an error, the command failed.
    Error(String),
}

impl Value {
    /// The number, if it is one.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    /// The bytes as text, if they are UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Self::Bytes(bytes) = self { std::str::from_utf8(bytes).ok() } else { None }
    }
}
