//! The choice of an egress link in a switch.

use crate::flow::mix;

/// What a switch keeps.
pub(crate) struct Switch {
    /// Mixed into every flow hash, so that switches in a row do not choose alike.
    pub hash_seed: u64,
}

impl Switch {
    /// The member of an ECMP group for a flow: the same for each frame of it.
    #[inline]
    pub(crate) fn ecmp(&self, group: &[u32], flow_hash: u64) -> u32 {
        if group.len() == 1 {
            return group[0];
        }
        let hash = mix(self.hash_seed, flow_hash) >> 32;
        group[((hash * group.len() as u64) >> 32) as usize]
    }
}
