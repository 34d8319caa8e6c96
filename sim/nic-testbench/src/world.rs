//! The world: cards and network advanced side by side in windows.
//!
//! A window is at most the network's lookahead: what a card sends within one cannot reach another card before its end.
//! So in each window the network first says what it delivers, the cards run with that, and what they sent is handed to
//! the network. The result does not depend on how the time is cut.

use crate::wire::{Way, Wire};
use cocotb_rs::axis::AxisStats;
use nic_cosim::{Card, CosimError};
use nic_fabric::{Fabric, FabricError, FabricStats, Frame, NodeId, Port};
use nic_host::{CardId, World, WorldError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Clock cycles between two looks for the answer of a register access.
const MMIO_STEP_CYCLES: u64 = 4;
/// A register access that takes longer than this has failed.
const MMIO_CYCLES_MAX: u64 = 20_000;

/// Why the world stopped.
#[derive(Debug, thiserror::Error)]
pub enum WorldFailure {
    /// A card's simulation failed.
    #[error("card {card}")]
    Card {
        /// Its number.
        card: usize,
        /// Why.
        #[source]
        source: CosimError,
    },
    /// The network refused something.
    #[error("network")]
    Fabric(#[from] FabricError),
    /// The simulated time is used up.
    #[error("the time limit of {limit_ps} ps is reached")]
    TimeLimit {
        /// The limit.
        limit_ps: u64,
    },
}

/// What the world tells while it runs; shared with the driver's thread.
#[derive(Debug, Default)]
pub struct Shared {
    now_ps: AtomicU64,
    cycles: AtomicU64,
    is_cut: AtomicBool,
    tx: Mutex<Vec<AxisStats>>,
    fabric: Mutex<Option<FabricStats>>,
}

impl Shared {
    /// Simulated time, ps.
    pub fn now_ps(&self) -> u64 {
        self.now_ps.load(Ordering::Relaxed)
    }

    /// Clock cycles of one card so far.
    pub fn cycles(&self) -> u64 {
        self.cycles.load(Ordering::Relaxed)
    }

    /// What the transmit stream of each card did.
    pub fn tx_stats(&self) -> Vec<AxisStats> {
        self.tx.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the network did.
    pub fn fabric_stats(&self) -> Option<FabricStats> {
        *self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts or mends every cable between network and cards: frames are lost silently.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

/// Cards and the network between them. Card `i` is host `i` of the network.
pub struct CardWorld {
    cards: Vec<Card>,
    wires: Vec<Wire>,
    fabric: Option<Fabric>,
    window_ps: u64,
    now_ps: u64,
    limit_ps: u64,
    shared: Arc<Shared>,
}

impl CardWorld {
    /// A world of `cards`; without a network, frames come only from the wires' injections and what is sent is lost.
    pub fn new(
        cards: Vec<Card>,
        wires: Vec<Wire>,
        mut fabric: Option<Fabric>,
        limit_ps: u64,
        shared: Arc<Shared>,
    ) -> Self {
        let period_ps = cards.iter().map(Card::period_ps).max().unwrap_or(4000);
        let window_ps = fabric.as_mut().map_or(64 * period_ps, |f| f.lookahead_ps()).max(1);
        let now_ps = cards.iter().map(Card::now_ps).max().unwrap_or(0);
        let mut world = Self { cards, wires, fabric, window_ps, now_ps: 0, limit_ps, shared };
        world.now_ps = now_ps;
        world
    }

    /// Advances everything to a time.
    ///
    /// # Errors
    /// A card or the network failed, or the time limit was reached.
    pub fn advance_to(&mut self, end_ps: u64) -> Result<(), WorldFailure> {
        while self.now_ps < end_ps {
            if self.now_ps >= self.limit_ps {
                return Err(WorldFailure::TimeLimit { limit_ps: self.limit_ps });
            }
            let next_ps = end_ps.min(self.now_ps + self.window_ps);
            self.window(next_ps)?;
            self.now_ps = next_ps;
        }
        self.publish();
        Ok(())
    }

    fn window(&mut self, next_ps: u64) -> Result<(), WorldFailure> {
        let is_cut = self.shared.is_cut.load(Ordering::Relaxed);
        if let Some(fabric) = &mut self.fabric {
            for delivery in fabric.advance(next_ps) {
                let card = delivery.port.node.0 as usize;
                if let (Some(to), Some(wire), false) = (self.cards.get(card), self.wires.get(card), is_cut) {
                    let bytes = delivery.frame.to_bytes();
                    wire.saw(Way::Received, delivery.time_ps, &bytes);
                    to.receive(bytes, delivery.time_ps);
                }
            }
        }
        for (index, (card, wire)) in self.cards.iter_mut().zip(&self.wires).enumerate() {
            for frame in wire.take_injected() {
                wire.saw(Way::Received, self.now_ps, &frame.bytes);
                if frame.is_bad {
                    card.receive_bad(frame.bytes, self.now_ps);
                } else {
                    card.receive(frame.bytes, self.now_ps);
                }
            }
            card.run_until_ps(next_ps).map_err(|source| WorldFailure::Card { card: index, source })?;
            for frame in card.take_sent() {
                wire.saw(Way::Sent, frame.at_ps, &frame.bytes);
                if let (Some(fabric), false) = (&mut self.fabric, is_cut) {
                    let port = Port { node: NodeId(index as u32), index: 0 };
                    fabric.inject(port, frame.at_ps, Frame::from_bytes(&frame.bytes))?;
                }
            }
        }
        Ok(())
    }

    fn publish(&self) {
        self.shared.now_ps.store(self.now_ps, Ordering::Relaxed);
        self.shared.cycles.store(self.cards.first().map_or(0, Card::cycle), Ordering::Relaxed);
        *self.shared.tx.lock().unwrap_or_else(PoisonError::into_inner) =
            self.cards.iter().map(Card::tx_stats).collect();
        *self.shared.fabric.lock().unwrap_or_else(PoisonError::into_inner) = self.fabric.as_ref().map(|f| f.stats());
    }

    fn card(&mut self, card: CardId) -> Result<&mut Card, WorldError> {
        let count = self.cards.len();
        self.cards
            .get_mut(card.0 as usize)
            .ok_or_else(|| WorldError::Ended(format!("there is no card {}; the world has {count}", card.0)))
    }

    fn wait<T>(&mut self, card: CardId, reply: cocotb_rs::Reply<T>) -> Result<T, WorldError> {
        let period_ps = self.card(card)?.period_ps();
        for _ in 0..MMIO_CYCLES_MAX / MMIO_STEP_CYCLES {
            if let Some(value) = reply.try_take() {
                return Ok(value);
            }
            let end_ps = self.now_ps + MMIO_STEP_CYCLES * period_ps;
            self.advance_to(end_ps).map_err(ended)?;
        }
        Err(WorldError::Ended(format!(
            "a register access of card {} had no answer for {MMIO_CYCLES_MAX} cycles",
            card.0
        )))
    }
}

/// The failure and its causes in one line.
fn ended(failure: WorldFailure) -> WorldError {
    let mut text = failure.to_string();
    let mut source = std::error::Error::source(&failure);
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    WorldError::Ended(text)
}

impl World for CardWorld {
    fn mmio_read(&mut self, card: CardId, _region: u32, offset_bytes: u64, data: &mut [u8]) -> Result<(), WorldError> {
        for (k, word) in data.chunks_mut(4).enumerate() {
            let reply = self.card(card)?.read(offset_bytes + 4 * k as u64);
            let value = self.wait(card, reply)?.map_err(|_| WorldError::Bus)?;
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
        }
        Ok(())
    }

    fn mmio_write(&mut self, card: CardId, _region: u32, offset_bytes: u64, data: &[u8]) -> Result<(), WorldError> {
        for (k, word) in data.chunks(4).enumerate() {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            let reply = self.card(card)?.write(offset_bytes + 4 * k as u64, u32::from_le_bytes(bytes));
            self.wait(card, reply)?.map_err(|_| WorldError::Bus)?;
        }
        Ok(())
    }

    fn idle(&mut self, card: CardId, cycles: u64) -> Result<(), WorldError> {
        let end_ps = self.now_ps + cycles * self.card(card)?.period_ps();
        self.advance_to(end_ps).map_err(ended)
    }

    fn reset(&mut self, card: CardId) -> Result<(), WorldError> {
        let reset = self.card(card)?.reset();
        reset.map_err(|source| ended(WorldFailure::Card { card: card.0 as usize, source }))?;
        // The reset took time of this card alone: the others catch up.
        let end_ps = self.card(card)?.now_ps();
        self.advance_to(end_ps).map_err(ended)
    }
}
