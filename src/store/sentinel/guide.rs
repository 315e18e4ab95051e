//! How a sentinel is asked where the master is, by a thread of its own.

use super::council::Sentinels;
use super::link::{Link, Named, Word};
use super::url::Group;
use crate::base::say::say;
use crate::base::time::Clock;
use crate::store::Common;
use crate::store::host_port::HostPort;
use crate::store::moving::{FIRST_PAUSE, Guide, Watch};
use crate::store::node::{Bell, Failure, Purpose, Server, Target};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// A sentinel that tells nothing is asked this often: it may have gone without a word.
const EVERY: Duration = Duration::from_secs(3);

/// A sentinel that is asked.
pub(super) struct Asked {
    address: HostPort,
    server: Server,
    /// It does not let this client listen, which was logged.
    refused: Cell<bool>,
}

impl Group {
    fn sentinel(&self, address: &HostPort, common: &Common) -> Asked {
        let target = Target { addr: address.addr(), login: self.sentinel_login.clone(), purpose: Purpose::Sentinel };
        let server = Server::new(target, &common.config, Arc::clone(&common.counters));
        Asked { address: address.clone(), server, refused: Cell::new(false) }
    }
}

impl Guide for Group {
    type Council = Sentinels;
    type Asked = Asked;
    type Word = Word;

    const THREAD: &'static str = "redlatch-sentinel";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn address(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(ToString::to_string).collect();
        format!("{} of {}", self.name, sentinels.join(","))
    }

    /// A sentinel keeps one group of a name: whoever asks it for that name means the same, whichever others the URL lists.
    fn identity(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| format!("{} of {sentinel}", self.name)).collect()
    }

    fn database(&self) -> i64 {
        self.login.db()
    }

    fn asked(&self, common: &Common) -> Vec<Asked> {
        self.sentinels.iter().map(|address| self.sentinel(address, common)).collect()
    }

    fn target(&self, named: &Named) -> Target {
        Target { addr: named.master.addr(), login: self.login.clone(), purpose: Purpose::Master }
    }

    fn session(watch: &Arc<Watch<Self>>, asked: &Asked, bell: &Bell, pause: &mut Duration) -> Result<(), Failure> {
        let (guide, map) = (&watch.guide, &watch.common.config.address_map);
        let mut link = Link::open(&asked.server, &asked.refused)?;
        while !watch.is_closed() {
            let word = link.ask(&guide.name)?.mapped(map);
            *pause = FIRST_PAUSE;
            watch.note(asked, Ok(word));
            link.wait(bell, Clock::Boot.now().plus(watch.patience(EVERY)))?;
        }
        Ok(())
    }

    fn note(&self, council: &mut Sentinels, asked: &Asked, said: Result<Word, Failure>, common: &Common) -> Vec<Asked> {
        let address = &asked.address;
        if let Err(failure) = &said {
            say!(debug, "sentinel {address} does not tell where the master is: {failure:?}");
        }
        let new = council.note(address, said, Clock::Boot.now());
        new.iter().map(|address| self.sentinel(address, common)).collect()
    }

    fn dismiss(council: &mut Sentinels, asked: &Asked) -> bool {
        council.dismiss(&asked.address)
    }
}
