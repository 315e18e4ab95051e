//! The slot of a key goes to the other master of a cluster.

use super::Ground;
use super::failover::Term;
use crate::site::{Site, ms};
use crate::truth::now;
use harness::cluster::slot_of;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// How long a slot is on its way.
const HALFWAY: Duration = Duration::from_millis(100);

/// How often it is asked for the keys of a slot that do not go.
const TRIES: usize = 800;

fn said<T: redis::FromRedisValue>(site: &Site, words: &[&str]) -> Result<T, String> {
    let said = site.ask(words).map_err(|error| format!("{words:?}: {error}"))?;
    redis::from_redis_value(said).map_err(|error| format!("{words:?}: {error}"))
}

/// Repeats what a server that stands still does not do now.
fn insist<T>(mut act: impl FnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..TRIES {
        match act() {
            Ok(done) => return done,
            Err(error) => last = error,
        }
        sleep(ms(10));
    }
    panic!("a slot does not move: {last}");
}

/// Whether a node has a slot, by what another one says of all.
fn has_slot(nodes: &str, id: &str, slot: &str) -> bool {
    let of_node = nodes.lines().find(|line| line.starts_with(id)).unwrap_or_default();
    let slot: u16 = slot.parse().expect("a number");
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
    };
    // The first eight words are of the node itself.
    of_node.split(' ').skip(8).filter_map(range).any(|range| range.contains(&slot))
}

impl Ground {
    /// Half of the times its keys go at once, and else at the end. Returns when the move has begun.
    pub(super) fn move_slot(self: &Arc<Self>, target: usize, goes_at_once: bool) {
        let (begun, begins) = channel();
        let ground = Arc::clone(self);
        let thread = std::thread::spawn(move || {
            // No master is replaced meanwhile.
            let mut repairs: Vec<_> =
                ground.repairs.iter().map(|repair| repair.lock().unwrap_or_else(PoisonError::into_inner)).collect();
            for before in repairs.iter_mut().filter_map(|repair| repair.take()) {
                before.join().expect("the last master came back");
            }
            let home = ground.homes.lock().unwrap()[target];
            let [old, new] = {
                let masters = ground.masters.lock().unwrap();
                [masters[home], masters[1 - home]]
            };
            let [from, to] = [&ground.sites[old], &ground.sites[new]];
            let slot = slot_of(&ground.targets[target].key);
            ground.lane.lock().unwrap().iter_mut().for_each(|lane| _ = lane.moved.insert(slot));
            let slot = slot.to_string();
            let [id_of_old, id_of_new] = [from, to].map(|site| insist(|| said::<String>(site, &["CLUSTER", "MYID"])));
            let set = |site: &Site, words: &[&str]| {
                insist(|| said::<String>(site, &[&["CLUSTER", "SETSLOT", &slot], words].concat()));
            };
            ground.terms.lock().unwrap()[target].push(Term::of_move(now(), &[(old, from), (new, to)]));
            set(to, &["IMPORTING", &id_of_old]);
            set(from, &["MIGRATING", &id_of_new]);
            let port = to.server.lock().unwrap().port().to_string();
            let mut is_cut = false;
            let mut migrate = || {
                let keys: Vec<String> = said(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"])?;
                if keys.is_empty() {
                    return Ok(());
                }
                // What had no answer in time is there and here.
                let replaces = is_cut.then_some("REPLACE");
                let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "900"].into_iter().chain(replaces).chain(["KEYS"]);
                let words: Vec<_> = words.chain(keys.iter().map(String::as_str)).collect();
                let moved = said::<String>(from, &words);
                is_cut |= moved.as_ref().is_err_and(|error| error.contains("IOERR"));
                moved.and_then(|_| Err("there may be more".to_owned()))
            };
            if goes_at_once {
                insist(&mut migrate);
            }
            let _ = begun.send(());
            sleep(HALFWAY);
            insist(migrate);
            set(to, &["NODE", &id_of_new]);
            set(from, &["NODE", &id_of_new]);
            // One that takes the master's place before it hears of the slot would serve all but that.
            let replica = &ground.sites[new ^ 1];
            insist(|| match said::<String>(replica, &["CLUSTER", "NODES"]) {
                Ok(nodes) if has_slot(&nodes, &id_of_new, &slot) => Ok(()),
                nodes => Err(format!("the replica does not know of slot {slot}: {nodes:?}")),
            });
            ground.terms.lock().unwrap()[target].push(Term::of_move(now(), &[(new, to)]));
            ground.homes.lock().unwrap()[target] = 1 - home;
        });
        self.moves.lock().unwrap().push(thread);
        let _ = begins.recv_timeout(Duration::from_secs(10));
    }
}
