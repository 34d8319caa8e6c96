//! The card: model, clock, bus models.

use crate::memory::BusMemory;
use crate::msix::MsixPort;
use cocotb_rs::axi::{Axi4Memory, Axi4MemoryConfig, Axi4Ports, Axi4Stats, AxiLiteError, AxiLiteManager, AxiLitePorts};
use cocotb_rs::axis::{AxisPorts, AxisSink, AxisSource, AxisStats};
use cocotb_rs::{BuildError, Clock, Model, ModelBuilder, Pace, Period, PowerOn, Reply, Seed, Sim, SimError};
use nic_host::{HostMemory, MsixSink};
use nic_rtl::params::NicParams;
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// Cycles of reset before the first register access.
const RESET_CYCLES: u64 = 16;

/// Why a card could not be simulated.
#[derive(Debug, thiserror::Error)]
pub enum CosimError {
    /// The parameters do not make a card.
    #[error("these card parameters do not fit: {0}")]
    Params(String),
    /// The model could not be built.
    #[error("building the card's model")]
    Build(#[from] BuildError),
    /// The simulation ended.
    #[error("simulating the card")]
    Sim(#[from] SimError),
}

/// A built model of the card, shared by all cards of its parameters.
#[derive(Clone)]
pub struct CardModel {
    model: Model,
    params: NicParams,
}

impl CardModel {
    /// Builds the model, or takes it from the cache.
    ///
    /// # Errors
    /// The parameters are out of range, or Verilator or the compiler is missing.
    pub fn build(params: NicParams, with_trace: bool) -> Result<Self, CosimError> {
        params.check().map_err(|e| CosimError::Params(e.to_string()))?;
        let model =
            ModelBuilder::new(nic_rtl::top::TOP).verilog(nic_rtl::top::verilog(&params)).trace(with_trace).build()?;
        Ok(Self { model, params })
    }

    /// The sizes of the card.
    pub fn params(&self) -> NicParams {
        self.params
    }
}

/// How the world around the card behaves.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// Seed of every random choice of this card's surroundings.
    pub seed: Seed,
    /// Host memory behind the AXI4 port.
    pub memory: Axi4MemoryConfig,
    /// When the MAC takes a beat.
    pub tx_pace: Pace,
    /// When the MAC offers a beat.
    pub rx_pace: Pace,
}

impl CardConfig {
    /// A host that answers after 100 to 150 cycles (0.4 to 0.6 us at 250 MHz), any order across ids, and a MAC that never waits.
    pub fn typical(seed: Seed) -> Self {
        let memory = Axi4MemoryConfig {
            seed: seed.named("memory"),
            read_latency_cycles: 100..=150,
            write_latency_cycles: 60..=90,
            is_out_of_order: true,
            ..Axi4MemoryConfig::default()
        };
        Self { seed, memory, tx_pace: Pace::always(), rx_pace: Pace::always() }
    }

    /// Random waiting everywhere.
    pub fn stress(seed: Seed) -> Self {
        Self {
            seed,
            memory: Axi4MemoryConfig::stress(seed.named("memory")),
            tx_pace: Pace::random(80, seed.named("tx")),
            rx_pace: Pace::random(80, seed.named("rx")),
        }
    }
}

/// A frame that the card sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// When its last beat left, ps.
    pub at_ps: u64,
    /// Its bytes, without preamble and FCS.
    pub bytes: Vec<u8>,
}

/// One simulated card.
pub struct Card {
    sim: Sim,
    clock: Clock,
    rst: cocotb_rs::Port,
    lite: AxiLiteManager,
    tx: AxisSink,
    rx: AxisSource,
    bus: Axi4Memory,
    period_ps: u64,
}

impl Card {
    /// A card after reset.
    ///
    /// # Errors
    /// The model has other ports than a card has, or it fails in reset.
    pub fn new(model: &CardModel, memory: HostMemory, msix: MsixSink, config: CardConfig) -> Result<Self, CosimError> {
        let sim = Sim::new(&model.model, PowerOn::Random { seed: config.seed.named("power-on").value() })?;
        let clock = sim.clock("clk", Period::of_hz(u64::from(model.params.clock_khz) * 1000))?;
        let handle = sim.handle();
        let rst = sim.port("rst")?;
        sim.set(sim.port("link_up")?, 1);
        let lite = AxiLiteManager::attach(&handle, clock, AxiLitePorts::find(&handle, "s_axil")?, Pace::always());
        let tx = AxisSink::attach(&handle, clock, AxisPorts::find(&handle, "m_axis_tx")?, config.tx_pace)?;
        let rx = AxisSource::attach(&handle, clock, AxisPorts::find(&handle, "s_axis_rx")?, config.rx_pace)?;
        let bus = Axi4Memory::attach(
            &handle,
            clock,
            Axi4Ports::find(&handle, "m_axi")?,
            config.memory,
            Rc::new(RefCell::new(BusMemory(memory))),
        )?;
        sim.attach(clock, MsixPort::find(&handle, "m_msix", msix)?);
        let period_ps = 1_000_000_000 / u64::from(model.params.clock_khz);
        let mut card = Self { sim, clock, rst, lite, tx, rx, bus, period_ps };
        card.reset()?;
        Ok(card)
    }

    /// Resets the card: everything it holds is gone. Host memory and frames on the way stay.
    ///
    /// # Errors
    /// The model fails in reset.
    pub fn reset(&mut self) -> Result<(), CosimError> {
        Ok(self.sim.reset(self.rst, RESET_CYCLES)?)
    }

    /// Writes an FST trace of these cycles.
    ///
    /// # Errors
    /// The model was built without trace, or the file cannot be written.
    pub fn trace(&mut self, path: &Path, cycles: Range<u64>) -> Result<(), CosimError> {
        Ok(self.sim.trace(path, cycles)?)
    }

    /// Starts a register read.
    pub fn read(&self, addr: u64) -> Reply<Result<u64, AxiLiteError>> {
        self.lite.read(addr)
    }

    /// Starts a register write.
    pub fn write(&self, addr: u64, value: u32) -> Reply<Result<(), AxiLiteError>> {
        self.lite.write(addr, u64::from(value))
    }

    /// Offers a frame to the card, not before a time.
    pub fn receive(&self, frame: Vec<u8>, not_before_ps: u64) {
        self.rx.send_with(frame, 0, not_before_ps);
    }

    /// Offers a frame that the MAC marks as bad.
    pub fn receive_bad(&self, frame: Vec<u8>, not_before_ps: u64) {
        self.rx.send_with(frame, 1, not_before_ps);
    }

    /// Takes the frames that left since the last call.
    pub fn take_sent(&self) -> Vec<SentFrame> {
        self.tx.drain().into_iter().map(|c| SentFrame { at_ps: c.last_ps, bytes: c.bytes }).collect()
    }

    /// Runs everything before a time.
    ///
    /// # Errors
    /// The design ended or a bus rule was broken.
    pub fn run_until_ps(&mut self, end_ps: u64) -> Result<(), CosimError> {
        Ok(self.sim.run_until_ps(end_ps)?)
    }

    /// Time, ps.
    pub fn now_ps(&self) -> u64 {
        self.sim.now_ps()
    }

    /// Clock edges so far.
    pub fn cycle(&self) -> u64 {
        self.sim.cycle(self.clock)
    }

    /// Length of a clock cycle, ps, rounded down.
    pub fn period_ps(&self) -> u64 {
        self.period_ps
    }

    /// What the transmit stream did.
    pub fn tx_stats(&self) -> AxisStats {
        self.tx.stats()
    }

    /// What the memory port did.
    pub fn bus_stats(&self) -> Axi4Stats {
        self.bus.stats()
    }

    /// Frames offered and not yet taken whole.
    pub fn receive_backlog(&self) -> usize {
        self.rx.pending()
    }
}
