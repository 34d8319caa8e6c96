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
            None => {
                let hash = mix(self.hash_seed, u64::from(flow_hash)) >> 32;
                group[((hash * group.len() as u64) >> 32) as usize]
            }
            Some(sprayer) => sprayer.choose(self.forwarding, group, tx, now_ps),
        }
    }
}
