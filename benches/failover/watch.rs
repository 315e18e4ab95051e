//! What the sentinels and nodes of a group tell of a failover.

use crate::support::monotonic;
use crate::support::watch::{Line, Seen, Watch};
use harness::sentinel::{Group, NAME};

/// Watches a group whose first node is the master until another one is.
pub(crate) fn watch(group: &Group) -> Watch {
    let watch = Watch::new();
    let ports: Vec<_> = group.nodes.iter().map(|node| node.port()).collect();
    for sentinel in &group.sentinels {
        let ports = ports.clone();
        watch.poll(Line::to(&sentinel.url()), move |line| {
            let named = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME).take();
            let (_, port): (String, u16) = line.ask(&named)?;
            let node = ports.iter().position(|known| *known == port)?;
            (node != 0).then(|| Seen::Named(monotonic(), node))
        });
    }
    group.nodes.iter().enumerate().skip(1).for_each(|(number, node)| watch.role(number, &node.url()));
    watch
}
