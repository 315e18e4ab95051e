//! What a sentinel says.

use super::{Fields, NAME, Shape};
use crate::member::Member;

impl Member {
    /// How many clients listen to a sentinel.
    pub fn listeners(&self) -> usize {
        self.ask::<String>(&["CLIENT", "LIST"]).lines().filter(|line| line.contains(" sub=2 ")).count()
    }

    /// Which port a sentinel names as that of the master.
    pub fn names(&self) -> Option<u16> {
        let named: (String, u16) = self.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        Some(named.1)
    }

    /// What a sentinel knows of each replica.
    pub(super) fn replicas(&self) -> Vec<Fields> {
        self.try_ask(&["SENTINEL", "REPLICAS", NAME]).unwrap_or_default()
    }

    pub(super) fn has_seen_replica(&self, node: &Member) -> bool {
        let is_so = |known: &Fields| known["port"] == node.known_as().to_string() && known["role-reported"] == "slave";
        self.replicas().iter().any(is_so)
    }

    /// Whether a sentinel knows all others and would carry a failover out.
    pub(super) fn is_ready(&self, shape: Shape) -> bool {
        let usable = format!("OK {} usable", shape.sentinels);
        let replicas = self.replicas();
        let is_up = |replica: &Fields| replica["flags"] == "slave" && replica["master-link-status"] == "ok";
        replicas.len() == shape.nodes - 1
            && replicas.iter().all(is_up)
            && self.try_ask::<String>(&["SENTINEL", "CKQUORUM", NAME]).is_ok_and(|said| said.starts_with(&usable))
    }
}
