//! The master of a group, wherever it is: found and followed by what sentinels say (docs/protocol.md, 9).
//! A group is a master, its replicas and its sentinels.
//!
//! | file | has |
//! | --- | --- |
//! | `url` | which sentinels to ask, for whom, and how to log in |
//! | `link` | one connection to a sentinel: what it is asked, and what it says |
//! | `council` | what all of them said, and who is to be followed by it |
//! | `guide` | how a sentinel is asked time and again |

mod council;
mod guide;
mod link;
mod url;

use super::moving::Moving;
use super::{Common, Store};
use crate::base::error;
use council::Sentinels;
use std::sync::Arc;

pub(super) fn open(url: &str, common: &Common) -> error::Result<Arc<dyn Store>> {
    let group = url::parse(url)?;
    let council = Sentinels::new(&group.sentinels);
    Ok(Arc::new(Moving::new(group, council, common)))
}
