//! A replica takes its master's place, in one of several ways.

use super::lane::{Lane, node_of};
use super::{Deployment, Ground, soon};
use crate::faults::Fault;
use crate::site::{LIVES, Site, Target, let_in, ms};
use crate::truth::{Line, MS, Micros, now};
use harness::proxy::Gate;
use harness::sentinel::Cut;
use redis::{RedisResult, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;

/// The time of a master.
pub(super) struct Term {
    begin: Begin,
    /// Whose record counts, and in which life each began. While a slot moves they are two.
    sites: Vec<(usize, usize)>,
}

enum Begin {
    First,
    /// What its record has at the beginning, and what it had of the key.
    Mark(String, Vec<String>),
    Move(Micros),
}

impl Term {
    pub(super) fn first(site: usize) -> Self {
        Self { begin: Begin::First, sites: vec![(site, site * LIVES)] }
    }

    pub(super) fn of_move(at: Micros, sites: &[(usize, &Arc<Site>)]) -> Self {
        Self { begin: Begin::Move(at), sites: sites.iter().map(|(number, site)| (*number, site.life())).collect() }
    }

    pub(super) fn is_of(&self, site: usize) -> bool {
        self.sites.iter().any(|(of, _)| *of == site)
    }

    /// The number of its first line, and when that was.
    fn begin(&self, lines: &[Line]) -> (usize, Micros) {
        match &self.begin {
            Begin::First => (0, 0),
            Begin::Mark(mark, _) => {
                let is_it = |line: &Line| line.words.last() == Some(mark);
                let at = lines.iter().position(is_it).expect("the record has the term");
                (at + 1, lines[at].at)
            }
            Begin::Move(at) => (first_since(lines, *at), *at),
        }
    }

    pub(super) fn began(&self, sites: &[Arc<Site>]) -> Micros {
        self.begin(&sites[self.sites[0].0].record.lines()).1
    }

    /// What it had, and what it ran before an end.
    pub(super) fn lines(&self, sites: &[Arc<Site>], end: Micros) -> Vec<Line> {
        let mut all = Vec::new();
        for (site, life) in &self.sites {
            let lines = sites[*site].record.lines();
            let (first, at) = self.begin(&lines);
            if let Begin::Mark(_, had) = &self.begin {
                all.push(Line { at, by_script: false, life: *life, words: had.clone() });
            }
            let last = first_since(&lines, end).max(first);
            // What a script does stays behind it. The times of two servers are of one clock.
            let mut begun = at;
            all.extend(lines[first..last].iter().map(|line| {
                begun = if line.by_script && self.sites.len() > 1 { begun } else { line.at };
                Line { at: begun, life: line.life.max(*life), ..line.clone() }
            }));
        }
        all.sort_by_key(|line| line.at);
        all
    }
}

/// The first line since then that is not within a script.
fn first_since(lines: &[Line], at: Micros) -> usize {
    lines.iter().position(|line| line.at >= at && !line.by_script).unwrap_or(lines.len())
}

/// What a new master has of a key: each field, and when its time is over.
fn had(target: &Target, [fields, left]: [Value; 2]) -> RedisResult<Vec<String>> {
    let fields: Vec<String> = redis::from_redis_value(fields)?;
    let left: i64 = redis::from_redis_value(left)?;
    let until = |score: &str| match &target.leases {
        Some(_) => format!("{score}000"),
        None if left < 0 => "never".to_owned(),
        None => (now() + left.unsigned_abs() * MS).to_string(),
    };
    let key = target.leases.as_ref().unwrap_or(&target.key);
    let fields = fields.chunks(2).flat_map(|pair| [pair[0].clone(), until(&pair[1])]);
    Ok(["kept".to_owned(), key.clone()].into_iter().chain(fields).collect())
}

/// Waits until a replica has what its master has, and has it connect at once if it lost that.
pub(super) fn link(replica: &Arc<Site>, again: Option<&[&str]>) -> bool {
    let is_up = || said(replica).contains("master_link_status:up");
    if let Some(words) = again.filter(|_| !is_up()) {
        let _ = replica.ask(words);
    }
    soon(5_000, is_up)
}

fn said(site: &Site) -> String {
    site.ask(&["INFO", "replication"]).ok().and_then(|said| redis::from_redis_value(said).ok()).unwrap_or_default()
}

fn offset(site: &Site, name: &str) -> Option<u64> {
    said(site).lines().find_map(|line| line.strip_prefix(name)?.parse().ok())
}

impl Ground {
    pub(super) fn fail_over(self: &Arc<Self>, shard: usize, how: Fault) {
        let mut repair = self.repairs[shard].lock().unwrap();
        if let Some(before) = repair.take() {
            before.join().expect("the last master came back");
        }
        let (old, new) = {
            let masters = self.masters.lock().unwrap();
            (masters[shard], masters[shard] ^ 1)
        };
        let [master, replica] = [old, new].map(|site| &self.sites[site]);
        let port = master.server.lock().unwrap().port().to_string();
        let again = ["REPLICAOF", "127.0.0.1", &port];
        link(replica, (self.deployment == Deployment::Sentinel).then_some(&again[..]));
        let catch_up = || {
            let written = offset(master, "master_repl_offset:");
            soon(4_000, || offset(replica, "slave_repl_offset:") >= written);
        };
        if how == Fault::FailOver {
            let _ = master.ask(&["CLIENT", "PAUSE", "5000", "WRITE"]);
            catch_up();
        }
        let is_killed = matches!(how, Fault::FailOverKilled | Fault::FailOverKilledLosing);
        let loses = matches!(how, Fault::FailOverLosing | Fault::FailOverKilledLosing);
        let gate = is_killed.then(|| {
            let gate = master.hold();
            master.server.lock().unwrap().kill();
            gate
        });
        if how == Fault::FailOverStale {
            self.cut_off(old);
        }
        // No write of the old master comes upon nothing.
        let hush = loses.then(|| {
            let hush = master.hush();
            if !is_killed {
                master.settle();
                catch_up();
            }
            let read_only = |so: &str| drop(replica.ask(&["CONFIG", "SET", "replica-read-only", so]));
            read_only("no");
            let _ = replica.ask(&["FLUSHALL"]);
            read_only("yes");
            hush
        });
        let life = replica.begin_life();
        self.promote(shard, new, life).expect("a replica becomes a master");
        gate.iter().for_each(Gate::open);
        drop(hush);
        // Somebody sets the permits of a semaphore that was lost.
        for Target { key, permits, .. } in self.targets_in(shard).iter().filter(|target| target.leases.is_some()) {
            let _ = replica.ask(&["SET", key, &permits.to_string(), "NX"]);
        }
        if how != Fault::FailOverStale {
            self.name(new);
        }
        let ground = Arc::clone(self);
        *repair = Some(std::thread::spawn(move || ground.repair(how, old, new)));
    }

    /// In one transaction, so that what it has is what it has at the beginning.
    fn promote(&self, shard: usize, new: usize, life: usize) -> RedisResult<()> {
        let homes = self.homes.lock().unwrap().clone();
        let targets: Vec<_> = (self.targets.iter().enumerate()).filter(|(number, _)| homes[*number] == shard).collect();
        let (site, mark) = (&self.sites[new], format!("term-{}", now()));
        let socket = site.server.lock().unwrap().socket();
        let mut connection = redis::Client::open(format!("unix://{}", socket.display()))?.get_connection()?;
        let is_in_cluster = self.deployment == Deployment::Cluster;
        if is_in_cluster {
            redis::cmd("READONLY").query::<()>(&mut connection)?;
        }
        let mut terms = self.terms.lock().unwrap();
        // A transaction of a cluster has keys of one slot.
        for (place, (number, target)) in targets.into_iter().enumerate() {
            let (key, mark) = (target.leases.as_ref().unwrap_or(&target.key), format!("{mark}-{number}"));
            let mut pipe = redis::pipe();
            pipe.atomic();
            match place {
                0 if is_in_cluster => pipe.cmd("CLUSTER").arg("FAILOVER").arg("TAKEOVER"),
                0 => pipe.cmd("REPLICAOF").arg("NO").arg("ONE"),
                _ => pipe.cmd("PING"),
            };
            match &target.leases {
                Some(leases) => pipe.cmd("ZRANGE").arg(leases).arg(0).arg(-1).arg("WITHSCORES"),
                None => pipe.cmd("HGETALL").arg(key),
            };
            pipe.cmd("PTTL").arg(key).cmd("ECHO").arg(&mark);
            let (_, fields, left): (Value, Value, Value) = {
                let answers: Vec<Value> = pipe.query(&mut connection)?;
                let mut answers = answers.into_iter();
                let mut next = || answers.next().unwrap_or(Value::Nil);
                (next(), next(), next())
            };
            let begin = Begin::Mark(mark, had(target, [fields, left])?);
            terms[number].push(Term { begin, sites: vec![(new, life)] });
        }
        self.masters.lock().unwrap()[shard] = new;
        Ok(())
    }

    /// Says where the master is. The nodes of a cluster say it themselves.
    fn name(&self, new: usize) {
        let epoch = self.epoch.fetch_add(1, SeqCst) + 1;
        for (oracle, way) in self.oracles.iter().flatten().zip([&self.sites[new].proxy, &self.sites[new].other]) {
            oracle.name(way.port(), epoch);
            if self.publishes {
                oracle.publish();
            }
        }
    }

    /// No other node of its cluster reaches a node, but clients do.
    fn cut_off(&self, site: usize) {
        let lane = self.lane.lock().unwrap();
        let cut = |lane: &Lane| lane.cluster.read().unwrap().cut_off(node_of(site), Cut::Hard, &Gate::default());
        lane.iter().for_each(cut);
    }

    fn join(&self, site: usize) {
        let lane = self.lane.lock().unwrap();
        lane.iter().for_each(|lane| lane.cluster.read().unwrap().join(node_of(site)));
    }

    fn repair(&self, how: Fault, old: usize, new: usize) {
        let [master, replica] = [new, old].map(|site| &self.sites[site]);
        match how {
            Fault::FailOverLosing => sleep(ms(100)),
            Fault::FailOverKilled | Fault::FailOverKilledLosing => {
                sleep(ms(300));
                let mut server = replica.server.lock().unwrap();
                server.restart();
                let_in(&server).expect("it has started");
                replica.record.listen(&server.socket(), 0);
            }
            Fault::FailOverStale => {
                sleep(ms(150));
                self.name(new);
                sleep(ms(550));
                self.join(old);
            }
            _ => {}
        }
        let port = master.server.lock().unwrap().port().to_string();
        if self.deployment == Deployment::Sentinel {
            let _ = replica.ask(&["REPLICAOF", "127.0.0.1", &port]);
        } else {
            soon(5_000, || said(replica).contains("role:slave"));
        }
        if how == Fault::FailOver {
            let _ = replica.ask(&["CLIENT", "UNPAUSE"]);
        }
        link(replica, None);
    }
}
