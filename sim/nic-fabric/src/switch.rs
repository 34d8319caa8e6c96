//! The choice of an egress link in a switch.

use crate::flow::mix;
use crate::link::TxLink;
use crate::seed::{stream, Purpose};
use crate::spray::{Forwarding, Sprayer};

/// What a switch keeps.
pub(crate) struct Switch {
    /// Mixed into every flow hash, so that switches in a row do not choose alike.
    hash_seed: u64,
    forwarding: Forwarding,
    sprayer: Option<Box<Sprayer>>,
}

impl Switch {
    pub(crate) fn new(seed: u64, index: u32, forwarding: Forwarding) -> Switch {
        let hash_seed = mix(mix(seed, Purpose::Switch as u64), u64::from(index));
        let is_spraying = forwarding != Forwarding::Ecmp;
        let sprayer = is_spraying.then(|| Box::new(Sprayer::new(stream(seed, Purpose::Switch, index, 0))));
        Switch { hash_seed, forwarding, sprayer }
    }

    /// The member of an ECMP group for a packet; `None` if the group is empty.
    #[inline]
    pub(crate) fn choose(&mut self, group: &[u32], flow_hash: u32, tx: &[TxLink], now_ps: u64) -> Option<u32> {
        match &mut self.sprayer {
            None => self.member(group, flow_hash),
            Some(_) if group.len() < 2 => group.first().copied(),
            Some(sprayer) => Some(sprayer.choose(self.forwarding, group, tx, now_ps)),
        }
    }

    /// The member by hash. A group of one goes the same way: to skip the hash costs more than it saves.
    #[inline]
    fn member(&self, group: &[u32], flow_hash: u32) -> Option<u32> {
        let hash = mix(self.hash_seed, u64::from(flow_hash)) >> 32;
        group.get(((hash * group.len() as u64) >> 32) as usize).copied()
    }
}
