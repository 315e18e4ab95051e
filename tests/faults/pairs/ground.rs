//! Where a trial is played if one server is not enough: a Sentinel group of two, or a cluster of two masters and their replicas.

mod failover;
mod lane;
mod moves;

use crate::apart::{Reach, WAITER};
use crate::faults::Fault;
use crate::machine::Machine;
use crate::party::Account;
use crate::site::{LIVES, RELEASES, Reply, Sent, Site, Target, Wire, ms};
use crate::trial::{Kind, Trial, Way};
use crate::truth::{End, Field, Line, MS, Micros, Record, Span, spans};
use failover::Term;
use fastrand::Rng;
use harness::cluster::slot_of;
use harness::oracle::Oracle;
use harness::proxy::Proxy;
use harness::sentinel::NAME;
use harness::server::Server;
use lane::Lane;
pub(crate) use lane::Leaves;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// One server, or those of a quorum.
    Server,
    Sentinel,
    Cluster,
}

impl Deployment {
    /// What is drawn from if none is wanted.
    pub(crate) const OFTEN: [Self; 4] = [Self::Server, Self::Server, Self::Sentinel, Self::Cluster];

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "server" => Some(Self::Server),
            "sentinel" => Some(Self::Sentinel),
            "cluster" => Some(Self::Cluster),
            _ => None,
        }
    }

    /// What stands at the end of a trial's text.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Server => "",
            Self::Sentinel => " sentinel",
            Self::Cluster => " cluster",
        }
    }

    /// A node of a cluster keeps nothing on its disk, and serves nothing for 2 s when it starts.
    fn fits(self, fault: Fault) -> bool {
        match self {
            Self::Server => !fault.fails_over() && fault != Fault::MoveSlot,
            Self::Sentinel => fault != Fault::MoveSlot,
            Self::Cluster => !matches!(fault, Fault::RestartEmpty | Fault::RestartWithData),
        }
    }
}

impl Trial {
    /// The same as one of its deployment. Where a master can be replaced two of three have that instead of a loss or an outage.
    pub(crate) fn suited(mut self, rng: &mut Rng) -> Self {
        let deployment = self.deployment;
        let has_replicas = deployment != Deployment::Server;
        if has_replicas && rng.u8(..3) > 0 {
            let is_loss = Fault::LOSSES.contains(&self.faults[0].1);
            let kinds = if is_loss { &Fault::FAILOVERS[2..] } else { &Fault::FAILOVERS[..] };
            let moves = deployment == Deployment::Cluster && rng.u8(..4) == 0;
            self.faults[usize::from(!is_loss)].1 =
                if moves { Fault::MoveSlot } else { kinds[rng.usize(..kinds.len())] };
        }
        for (_, fault) in &mut self.faults {
            while !deployment.fits(*fault) {
                *fault = Fault::any(rng);
            }
        }
        if has_replicas && self.kind == Kind::Quorum {
            self.kind = [Kind::Plain, Kind::Group][rng.usize(..2)];
            self.way = if self.way == Way::Inner { Way::Unlock } else { self.way };
        }
        self.faults.sort();
        self.has_rival |= self.faults.iter().any(|(_, fault)| fault.party() == Some(WAITER));
        self
    }
}

pub(crate) struct Ground {
    deployment: Deployment,
    /// Two for each shard, which take each other's place.
    pub(crate) sites: Vec<Arc<Site>>,
    /// The master of each shard.
    masters: Mutex<Vec<usize>>,
    /// Who was whose master, for each target.
    terms: Mutex<Vec<Vec<Term>>>,
    /// What brings back the old master of each shard.
    repairs: Vec<Mutex<Option<JoinHandle<()>>>>,
    /// The holder's sentinel and the rival's.
    oracles: Option<[Oracle; 2]>,
    /// They tell of a new master. Else a client asks for it after 3 s, or when a call fails.
    publishes: bool,
    epoch: AtomicU64,
    targets: Vec<Target>,
    /// The shard of each target.
    homes: Mutex<Vec<usize>>,
    moves: Mutex<Vec<JoinHandle<()>>>,
    /// What all names begin with.
    prefix: String,
    lane: Mutex<Option<Lane>>,
}

impl Ground {
    /// `None`: the trial is on servers alone.
    pub(crate) fn open(trial: &Trial, names: &[&str]) -> Option<Arc<Self>> {
        let wires: [Arc<Mutex<Wire>>; 2] = Default::default();
        let mut lane = None;
        let (prefix, sites, masters) = match trial.deployment {
            Deployment::Server => return None,
            Deployment::Sentinel => (String::new(), Self::pair(&wires), vec![0]),
            Deployment::Cluster => {
                let lane = lane.insert(Lane::take());
                let prefix = lane.prefix(names);
                let sites = lane.sites(&prefix, &wires);
                (prefix, sites, lane.masters())
            }
        };
        let shard_of = |key: &str| usize::from(slot_of(key)) * masters.len() / 16_384;
        let targets: Vec<_> = names
            .iter()
            .map(|name| {
                let key = format!("{prefix}{name}");
                let permits = trial.permits();
                let leases = (trial.kind == Kind::Leased).then(|| format!("{{{key}}}:timeout"));
                Target { key, leases, permits }
            })
            .collect();
        let homes: Vec<_> = targets.iter().map(|target| shard_of(&target.key)).collect();
        let first = |shard: &usize| vec![Term::first(masters[*shard])];
        let oracles = (trial.deployment == Deployment::Sentinel).then(|| {
            let ports: [u16; 2] = [sites[0].proxy.port(), sites[0].other.port()];
            ports.map(|port| Oracle::naming(port, 1))
        });
        Some(Arc::new(Self {
            deployment: trial.deployment,
            terms: Mutex::new(homes.iter().map(first).collect()),
            homes: Mutex::new(homes),
            moves: Mutex::default(),
            repairs: masters.iter().map(|_| Mutex::default()).collect(),
            publishes: !trial.seed.is_multiple_of(3),
            epoch: AtomicU64::new(1),
            masters: Mutex::new(masters),
            lane: Mutex::new(lane),
            sites,
            oracles,
            targets,
            prefix,
        }))
    }

    /// A master and its replica.
    fn pair(wires: &[Arc<Mutex<Wire>>; 2]) -> Vec<Arc<Site>> {
        let servers = [(); 2].map(|()| Server::start_on_tcp_with_data());
        let master = servers[0].port().to_string();
        let _: String = servers[1].ask(&["REPLICAOF", "127.0.0.1", &master]);
        let site = |(place, server): (usize, Server)| {
            let ways = [(); 2].map(|()| Arc::new(Proxy::on_tcp(server.socket())));
            let record = Record::default();
            record.listen(&server.socket(), 0);
            Arc::new(Site::at(Machine::own(server), ways, record, wires, place))
        };
        let sites: Vec<_> = servers.into_iter().enumerate().map(site).collect();
        failover::link(&sites[1], None);
        sites
    }

    /// Where the holder or the rival finds the masters.
    pub(crate) fn reach(&self, is_rival: bool) -> Reach {
        let user = if is_rival { "rival" } else { "holder" };
        if let Some(oracles) = &self.oracles {
            let address = oracles[usize::from(is_rival)].address();
            return Reach { urls: vec![format!("redis+sentinel://{user}:pw@{address}/{NAME}")], ..Reach::default() };
        }
        let way = |site: &Arc<Site>| if is_rival { site.other.port() } else { site.proxy.port() };
        let ways: Vec<_> = self.sites.iter().map(|site| (site.server.lock().unwrap().port(), way(site))).collect();
        let hosts: Vec<_> = ways.iter().map(|(_, way)| format!("127.0.0.1:{way}")).collect();
        let url = format!("redis+cluster://{user}:pw@{}", hosts.join(","));
        Reach { urls: vec![url], prefix: self.prefix.clone(), ways }
    }

    /// The key of a lock, or of the leases of permits, behind the beginning of all names.
    pub(crate) fn key_of(&self, key: &str) -> String {
        let (brace, name) = key.split_at(usize::from(key.starts_with('{')));
        format!("{brace}{}{name}", self.prefix)
    }

    /// What others do happens to all keys, and what happens to servers to the master of one key or of each. Returns for how long others may
    /// wait because of it, in microseconds.
    pub(crate) fn hit(self: &Arc<Self>, fault: Fault, seed: u64) -> u64 {
        if fault.is_of_wire() {
            self.sites[0].hit(fault, &[]);
            return fault.lasts();
        }
        if fault == Fault::MoveSlot {
            self.move_slot(seed as usize % self.targets.len(), seed % 4 < 2);
            return fault.lasts();
        }
        // A server that loses all is not replaced meanwhile, and no slot is on its way.
        let loses_all = matches!(fault, Fault::RestartEmpty | Fault::RestartWithData | Fault::FlushAll);
        let _repairs: Vec<_> = self.repairs.iter().filter(|_| loses_all).map(|repair| repair.lock().unwrap()).collect();
        let mut shards = self.homes.lock().unwrap().clone();
        shards.dedup();
        let is_of_keys =
            matches!(fault, Fault::Del | Fault::Take | Fault::ForceUnlock | Fault::EndLease | Fault::FlushAll);
        if shards.len() > 1 && !is_of_keys && !seed.is_multiple_of(3) {
            shards = vec![shards[seed as usize % 3 - 1]];
        }
        for shard in shards {
            if fault.fails_over() {
                self.fail_over(shard, fault);
                continue;
            }
            let master = &self.sites[self.masters.lock().unwrap()[shard]];
            master.hit(fault, &self.targets_in(shard));
        }
        // A client that nobody tells of a new master asks for it after 3 s.
        let is_silent = fault.fails_over() && self.is_silent();
        fault.lasts() + if is_silent { 3_000_000 } else { 0 }
    }

    fn targets_in(&self, shard: usize) -> Vec<Target> {
        let homes = self.homes.lock().unwrap();
        self.targets.iter().zip(&*homes).filter(|(_, of)| **of == shard).map(|(target, _)| target.clone()).collect()
    }

    /// All old masters are back, and clients have gone to the new ones. What they had freed at one that went on they free there once more, .25 s
    /// later at most.
    pub(crate) fn calm(&self, trial: &Trial) {
        let moves = std::mem::take(&mut *self.moves.lock().unwrap());
        moves.into_iter().for_each(|moved| moved.join().expect("a slot moves"));
        let repairs = self.repairs.iter().filter_map(|repair| repair.lock().unwrap().take());
        repairs.for_each(|repair| repair.join().expect("an old master comes back"));
        // The keys of longer leases are not asked for.
        if trial.lease <= 3_000 && Self::goes_on(trial) && !self.is_silent() {
            sleep(ms(500));
        }
    }

    /// A replaced master goes on as one.
    fn goes_on(trial: &Trial) -> bool {
        trial.faults.iter().any(|(_, fault)| matches!(fault, Fault::FailOverStale | Fault::FailOverLosing))
    }

    /// Nobody tells of a new master.
    fn is_silent(&self) -> bool {
        self.oracles.is_some() && !self.publishes
    }

    /// Keys at the masters. Clients that hear late of a new one leave what they had freed at the old one meanwhile.
    pub(crate) fn left(&self, trial: &Trial) -> Vec<String> {
        if Self::goes_on(trial) && self.is_silent() {
            return Vec::new();
        }
        let masters = self.masters.lock().unwrap().clone();
        masters.iter().flat_map(|site| self.sites[*site].server.lock().unwrap().leftovers()).collect()
    }

    /// Each permit is either left or out, at the master.
    pub(crate) fn has_all_permits(&self) -> bool {
        let masters = self.masters.lock().unwrap().clone();
        let homes = self.homes.lock().unwrap().clone();
        self.targets.iter().zip(homes).all(|(target, shard)| self.sites[masters[shard]].has_all_permits(target))
    }

    /// The next trial of this thread has the cluster.
    pub(crate) fn close(&self) {
        self.sites.iter().for_each(|site| site.close());
        self.lane.lock().unwrap().take().into_iter().for_each(Lane::give_back);
    }

    fn target(&self, key: &str) -> usize {
        let is_it = |target: &Target| target.leases.as_ref().unwrap_or(&target.key) == key;
        self.targets.iter().position(is_it).expect("it is a target")
    }

    /// What the masters of a key ran, each in its term. What a replaced one ran after that is no truth.
    pub(crate) fn lines(&self, key: &str) -> Vec<Line> {
        let terms = &self.terms.lock().unwrap()[self.target(key)];
        let ends = terms[1..].iter().map(|term| term.began(&self.sites)).chain([Micros::MAX]);
        terms.iter().zip(ends).flat_map(|(term, end)| term.lines(&self.sites, end)).collect()
    }

    /// A server took a field away by somebody else's hand in this time. It may be a master that was replaced and goes on: whoever has not
    /// heard of the new one forces the lock open there, and its holder is told so.
    pub(crate) fn was_taken(&self, field: &Field<'_>, from: Micros, to: Micros) -> bool {
        let is_it = |span: &Span| span.end == End::Other && (from..=to).contains(&span.to);
        self.sites.iter().any(|site| spans(&site.record.lines(), field, &RELEASES).0.iter().any(is_it))
    }

    /// A client had a lock at the masters when it was told so, or soon after. What a replaced one granted it did not have.
    pub(crate) fn had(&self, account: &Account, at: Micros) -> bool {
        account.owners.iter().all(|(name, owner)| {
            let is_it = |target: &&Target| target.key == self.key_of(name);
            let target = self.targets.iter().find(is_it).expect("it is a target");
            let (key, field) = match &target.leases {
                Some(leases) => (leases, format!("{owner}:1")),
                None => (&target.key, owner.clone()),
            };
            let field = Field { key, name: &field, owner, is_alone: target.leases.is_none() };
            spans(&self.lines(key), &field, &[]).0.iter().any(|span| span.from <= at && at <= span.to + MS)
        })
    }

    /// A release of a key was answered by a server that was not the master any more. Before its client hears of a new master, that is as
    /// good. Or the client did not believe the answer, since it had heard of the new one meanwhile: then it asked that.
    pub(crate) fn is_elsewhere(&self, key: &str, sent: &[Sent]) -> bool {
        let terms = &self.terms.lock().unwrap()[self.target(key)];
        let term =
            |at: Micros| terms.iter().rfind(|term| term.began(&self.sites) <= at).expect("the first has no beginning");
        sent.iter().enumerate().any(|(number, one)| {
            let Reply::At(said) = one.reply else { return false };
            let is_soon = |next: &Sent| next.life != one.life && next.at < said + 500 * MS;
            !term(said).is_of(one.life / LIVES) || sent[number + 1..].iter().any(is_soon)
        })
    }
}

/// Waits for something that comes soon, or goes on without it.
fn soon(bound: u64, mut is_so: impl FnMut() -> bool) -> bool {
    (0..bound / 5).any(|_| {
        is_so() || {
            sleep(ms(5));
            false
        }
    })
}
