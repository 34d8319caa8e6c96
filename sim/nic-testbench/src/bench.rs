//! A world on its thread, and the drivers' ends of it.

use crate::wire::Wire;
use crate::world::{CardWorld, Shared};
use cocotb_rs::Seed;
use nic_cosim::{Card, CardConfig, CardModel, CosimError};
use nic_driver::{Device, MacAddr, PortConfig};
use nic_fabric::{Fabric, FabricError, LinkSelect, Rule, Topology};
use nic_host::{host_link, CardId, HostMemory, MsixSink, SimOptions, SimPciDevice};
use nic_rtl::params::NicParams;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Interrupt vectors a host offers each card.
const VECTORS: u32 = 256;

/// Why a bench could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A card could not be simulated.
    #[error(transparent)]
    Cosim(#[from] CosimError),
    /// The network could not be made.
    #[error("setting up the network")]
    Fabric(#[from] FabricError),
    /// The driver could not bring a card up.
    #[error("bringing up card {card}")]
    Driver {
        /// Its number.
        card: u32,
        /// Why.
        #[source]
        source: nic_driver::Error,
    },
    /// The world's thread ended before it was ready.
    #[error("the simulation thread ended before it was ready")]
    Thread,
}

/// How hard the surroundings of a card make its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surroundings {
    /// Latencies of a good host; a MAC that never waits.
    Typical,
    /// Random latencies, order and back-pressure everywhere.
    Stress,
}

/// An FST trace of card 0.
#[derive(Clone, Debug)]
pub struct TraceConfig {
    /// The file.
    pub path: PathBuf,
    /// Cycles to trace.
    pub cycles: Range<u64>,
}

/// What world to make.
#[derive(Clone)]
pub struct BenchConfig {
    /// Sizes of the cards.
    pub params: NicParams,
    /// Root of every random choice.
    pub seed: Seed,
    /// How many cards.
    pub card_count: u32,
    /// The network, if any. Card `i` is its host `i`.
    pub topology: Option<Topology>,
    /// What goes wrong on its links.
    pub rules: Vec<(LinkSelect, Rule)>,
    /// Hosts and MACs.
    pub surroundings: Surroundings,
    /// Trace of card 0.
    pub trace: Option<TraceConfig>,
    /// Simulated time after which the world stops, ps.
    pub limit_ps: u64,
    /// Cycles that pass at each empty poll of a driver.
    pub idle_cycles: u64,
}

impl BenchConfig {
    /// One card and a wire that only the test feeds.
    pub fn lone_card(seed: Seed) -> Self {
        Self {
            params: NicParams::default(),
            seed,
            card_count: 1,
            topology: None,
            rules: Vec::new(),
            surroundings: Surroundings::Typical,
            trace: None,
            limit_ps: 100_000_000_000,
            idle_cycles: 64,
        }
    }

    /// Two cards joined by a network.
    pub fn two_cards(seed: Seed, topology: Topology) -> Self {
        Self { card_count: 2, topology: Some(topology), ..Self::lone_card(seed) }
    }
}

/// A world on its thread.
pub struct Bench {
    /// What it tells while it runs.
    pub shared: Arc<Shared>,
    /// The cards' wires.
    pub wires: Vec<Wire>,
    /// The hosts' memories.
    pub memories: Vec<HostMemory>,
    /// The hosts' interrupts.
    pub interrupts: Vec<MsixSink>,
    pci: Vec<Option<SimPciDevice>>,
    thread: Option<JoinHandle<()>>,
}

impl Bench {
    /// Builds the model if need be and starts the world.
    ///
    /// # Errors
    /// The model cannot be built, a card fails in reset, or the network's description is wrong.
    pub fn start(config: BenchConfig) -> Result<Self, BenchError> {
        let model = CardModel::build(config.params, config.trace.is_some())?;
        let (link, world_link) = host_link(Duration::from_secs(600));
        let shared = Arc::new(Shared::default());
        let count = config.card_count as usize;
        let wires: Vec<Wire> = (0..count).map(|_| Wire::default()).collect();
        let memories: Vec<HostMemory> = (0..count).map(|_| HostMemory::new()).collect();
        let interrupts: Vec<MsixSink> = (0..count).map(|_| MsixSink::new(VECTORS)).collect();
        let options = SimOptions { bar0_bytes: nic_spec::csr::BAR_BYTES.into(), idle_cycles: config.idle_cycles };
        let pci = (0..count)
            .map(|i| {
                Some(SimPciDevice::new(
                    link.clone(),
                    CardId(i as u32),
                    memories[i].clone(),
                    interrupts[i].clone(),
                    options,
                ))
            })
            .collect();
        drop(link);
        let (ready_to, ready) = mpsc::channel();
        let thread = {
            let (shared, wires, memories, interrupts) =
                (shared.clone(), wires.clone(), memories.clone(), interrupts.clone());
            std::thread::spawn(move || {
                // A simulation stays on the thread that made it.
                match make_world(&model, config, memories, interrupts, wires, shared) {
                    Ok(mut world) => {
                        let _ = ready_to.send(Ok(()));
                        world_link.serve(&mut world);
                    }
                    Err(error) => {
                        let _ = ready_to.send(Err(error));
                    }
                }
            })
        };
        ready.recv().map_err(|_| BenchError::Thread)??;
        Ok(Self { shared, wires, memories, interrupts, pci, thread: Some(thread) })
    }

    /// Address of a card: MAC and IP as the network expects them of host `card`.
    pub fn port_config(card: u32, is_ipv6: bool) -> PortConfig {
        let ip = if is_ipv6 { IpAddr::V6(Topology::ipv6_of(card, 0)) } else { IpAddr::V4(Topology::ipv4_of(card, 0)) };
        PortConfig::new(MacAddr(Topology::mac_of(card, 0)), ip)
    }

    /// The PCI function of a card, once.
    pub fn pci(&mut self, card: u32) -> Option<SimPciDevice> {
        self.pci.get_mut(card as usize).and_then(Option::take)
    }

    /// Brings a card up with the driver. Each card can be opened once.
    ///
    /// # Errors
    /// The driver's.
    pub fn open(&mut self, card: u32, is_ipv6: bool) -> Result<Device, BenchError> {
        let pci = self.pci(card).ok_or(BenchError::Thread)?;
        Device::open(Arc::new(pci), Self::port_config(card, is_ipv6))
            .map_err(|source| BenchError::Driver { card, source })
    }

    /// Waits for the world to end; every driver of it must be gone.
    pub fn join(mut self) {
        self.pci.clear();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn make_world(
    model: &CardModel,
    config: BenchConfig,
    memories: Vec<HostMemory>,
    interrupts: Vec<MsixSink>,
    wires: Vec<Wire>,
    shared: Arc<Shared>,
) -> Result<CardWorld, BenchError> {
    let mut cards = Vec::new();
    for (index, (memory, msix)) in memories.into_iter().zip(interrupts).enumerate() {
        let seed = config.seed.named(&format!("card {index}"));
        let surroundings = match config.surroundings {
            Surroundings::Typical => CardConfig::typical(seed),
            Surroundings::Stress => CardConfig::stress(seed),
        };
        let mut card = Card::new(model, memory, msix, surroundings)?;
        if let (0, Some(trace)) = (index, &config.trace) {
            card.trace(&trace.path, trace.cycles.clone())?;
        }
        cards.push(card);
    }
    let mut fabric = match &config.topology {
        Some(topology) => Some(Fabric::new(topology, config.seed.named("fabric").value())?),
        None => None,
    };
    if let Some(fabric) = &mut fabric {
        for (select, rule) in config.rules {
            fabric.add_rule(&select, rule)?;
        }
    }
    Ok(CardWorld::new(cards, wires, fabric, config.limit_ps, shared))
}
