//! Without the feature `tls` no socket is sealed.

use crate::base::tls::Connector;
use redis::RedisError;
use std::io::{self, Read, Write};

/// No value of this type exists.
pub(super) enum Seal {}

impl Seal {
    pub(super) fn on(connector: &Connector, _: &str, _: &mut (impl Read + Write)) -> Result<Self, RedisError> {
        match *connector {}
    }

    pub(super) fn why(&mut self, _: RedisError) -> RedisError {
        match *self {}
    }

    pub(super) fn write_all(&mut self, _: &[u8], _: &mut impl Write) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn has_read_all(&self) -> bool {
        match *self {}
    }

    pub(super) fn read(&mut self, _: &mut [u8], _: &mut (impl Read + Write)) -> io::Result<usize> {
        match *self {}
    }
}

pub(super) fn explained(error: io::Error) -> RedisError {
    error.into()
}
