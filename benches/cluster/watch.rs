//! What the nodes of a cluster tell of a failover.

use crate::support::monotonic;
use crate::support::watch::{Line, Seen, Watch};
use harness::cluster::{Cluster, slot_of};
use redis::{FromRedisValue, Value};

/// Watches the slot of a key until the replica of its master is its master; each node is asked for its slots, and the replica for
/// its role.
pub(crate) fn watch(cluster: &Cluster, key: &str, replica: usize) -> Watch {
    let (watch, slot, port) = (Watch::new(), slot_of(key), cluster.nodes[replica].port());
    for node in cluster.nodes.iter().filter(|node| node.is_running()) {
        watch.poll(Line::to(&node.url()), move |line| {
            let slots: Vec<Vec<Value>> = line.ask(redis::cmd("CLUSTER").arg("SLOTS"))?;
            let master = slots.iter().find_map(|range| master_of(range, slot))?;
            (master == port).then(|| Seen::Named(monotonic(), replica))
        });
    }
    watch.role(replica, &cluster.nodes[replica].url());
    watch
}

/// The port of the master, if the slot is among these.
fn master_of(range: &[Value], slot: u16) -> Option<u16> {
    let [first, last, master, ..] = range else { return None };
    let number = |value: &Value| u16::from_redis_value_ref(value).ok();
    let Value::Array(master) = master else { return None };
    (number(first)?..=number(last)?).contains(&slot).then(|| number(master.get(1)?)).flatten()
}
