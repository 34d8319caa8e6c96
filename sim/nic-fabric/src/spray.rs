//! How a switch chooses among equal ways: by flow, or packet by packet.

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

use crate::link::TxLink;

/// The choice of a switch among the egress links of an ECMP group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// A hash of the five-tuple: a flow stays on its way.
    #[default]
    Ecmp,
    /// Packet spraying: a random link for each packet.
    Random,
    /// Packet spraying: the links in turn, per switch.
    RoundRobin,
    /// Packet spraying: the link with the shortest queue, in turn among equals.
    LeastBacklog,
}

/// The state of a spraying switch.
pub(crate) struct Sprayer {
    rng: ChaCha8Rng,
    turn: u32,
}

impl Sprayer {
    /// Switches start their turns at different links.
    pub(crate) fn new(mut rng: ChaCha8Rng) -> Sprayer {
        let turn = rng.next_u32();
        Sprayer { rng, turn }
    }

    pub(crate) fn choose(&mut self, forwarding: Forwarding, group: &[u32], tx: &[TxLink], now_ps: u64) -> u32 {
        let width = group.len() as u32;
        let next = match forwarding {
            Forwarding::Random => ((u64::from(self.rng.next_u32()) * u64::from(width)) >> 32) as u32,
            _ => {
                self.turn = self.turn.wrapping_add(1);
                self.turn % width
            }
        };
        if forwarding != Forwarding::LeastBacklog {
            return group[next as usize];
        }
        let (before, from) = group.split_at(next as usize);
        let in_turn = from.iter().chain(before).copied();
        in_turn.min_by_key(|link| tx[*link as usize].backlog_ps(now_ps)).unwrap_or(group[0])
    }
}
