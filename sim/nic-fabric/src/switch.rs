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

    /// The member of an ECMP group for a packet.
    #[inline]
    pub(crate) fn choose(&mut self, group: &[u32], flow_hash: u32, tx: &[TxLink], now_ps: u64) -> u32 {
        if group.len() == 1 {
            return group[0];
        }
        match &mut self.sprayer {
            None => group[self.member(group.len(), flow_hash)],
            Some(sprayer) => sprayer.choose(self.forwarding, group, tx, now_ps),
        }
    }
    /// The member that [`Self::choose`] will choose, where that is known beforehand.
    #[inline]
    pub(crate) fn foresee(&self, group: &[u32], flow_hash: u32) -> Option<u32> {
        if group.len() > 1 && self.sprayer.is_some() {
            return None;
        }
        group.get(self.member(group.len(), flow_hash)).copied()
    }

    #[inline]
    fn member(&self, group_len: usize, flow_hash: u32) -> usize {
        let hash = mix(self.hash_seed, u64::from(flow_hash)) >> 32;
        ((hash * group_len as u64) >> 32) as usize
    }
}
