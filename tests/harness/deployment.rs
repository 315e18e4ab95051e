//! The harness's deployments: what a client can be connected to, started for a test.

use crate::server::Server;
use redlatch::{Client, ClientBuilder};

/// Redis in one of the ways in which it is run. Whatever was started ends when it is dropped, after its clients.
pub trait Deployment: Send + Sync + 'static {
    fn start() -> Self;

    /// What a client is given to find it.
    fn url(&self) -> String;

    /// A client of it. One that several tests share gives each of them a prefix.
    fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url())
    }

    /// Nobody answers any more.
    fn kill(&mut self);

    /// It answers again, with nothing of what it knew.
    fn restart(&mut self);

    /// The keys and channels that are on it, of this test.
    fn leftovers(&self) -> Vec<String>;
}

/// One server, by a Unix socket.
pub struct Single(Server);

/// One server, by a TCP port.
pub struct Tcp(Server);

macro_rules! one_server {
    ($deployment:ty, $start:ident, $url:ident) => {
        impl Deployment for $deployment {
            fn start() -> Self {
                Self(Server::$start())
            }

            fn url(&self) -> String {
                self.0.$url()
            }

            fn kill(&mut self) {
                self.0.kill();
            }

            fn restart(&mut self) {
                self.0.restart();
            }

            fn leftovers(&self) -> Vec<String> {
                self.0.leftovers()
            }
        }
    };
}

one_server!(Single, start, url);
one_server!(Tcp, start_on_tcp, tcp_url);
