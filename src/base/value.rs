//! What a server answers to a caller's own command.

/// The answer to a [`Command`](crate::Command). Beyond 2^53 an integer is not exact, and next to 2^63 it may even be negative: it has been
/// a number of the server's Lua.
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
    /// An error in the place of one of several, as modules have it. Where it is the whole answer the command failed.
    Error(String),
}

impl Value {
    /// The number, if it is one.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    /// The bytes as text, if they are one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Self::Bytes(bytes) = self { std::str::from_utf8(bytes).ok() } else { None }
    }
}
