//! A module under test: the interpreter, and Verilator in lock step beside it when asked for.
//!
//! Stimuli are decided by the interpreter's outputs; with Verilator beside it every output is compared before every
//! clock edge. Outputs that belong to a `valid` are compared only while it is 1: registers without reset differ.

use cocotb_rs::{Clock, ModelBuilder, Optimization, Period, Port, PowerOn, Seed};
use rtl_graph::{ModDef, Pin, Sim};
use std::{collections::HashMap, sync::Arc};

/// Which engines run a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The interpreter alone.
    Interpreter,
    /// Both, compared in every cycle.
    Both,
}

struct Compared {
    name: String,
    pin: Pin,
    port: Port,
    guard: Option<Pin>,
}

struct Mirror {
    sim: cocotb_rs::Sim,
    clock: Clock,
    ports: HashMap<String, Port>,
    compared: Vec<Compared>,
}

/// The module under test.
pub struct Dut {
    sim: Sim,
    pins: HashMap<String, Pin>,
    mirror: Option<Mirror>,
}

impl Dut {
    /// The module after reset, from random power-up contents.
    ///
    /// `guards` name groups of outputs that mean something only while another output is 1: (prefix, guard). An empty
    /// guard: never.
    pub fn new(def: &Arc<ModDef>, engine: Engine, seed: Seed, guards: &[(&str, &str)]) -> Dut {
        let mut sim = def.sim();
        sim.randomize(seed.named("power-on").value());
        let ports = def.ports.iter().filter(|p| !p.is_clock_or_reset());
        let pins: HashMap<String, Pin> = ports.map(|p| (p.name.clone(), sim.pin(&p.name))).collect();
        let mirror = (engine == Engine::Both).then(|| Mirror::new(def, seed, guards, &pins));
        let mut dut = Dut { sim, pins, mirror };
        def.ports.iter().filter(|p| !p.is_output && !p.is_clock_or_reset()).for_each(|p| dut.set(&p.name, 0));
        dut.sim.reset(2);
        dut
    }

    fn pin(&self, port: &str) -> Pin {
        *self.pins.get(port).unwrap_or_else(|| panic!("no port `{port}`"))
    }

    /// Sets an input of at most 64 bits.
    pub fn set(&mut self, port: &str, value: u64) {
        self.set_wide(port, &[value]);
    }

    /// Sets an input, least significant word first; missing words are 0.
    pub fn set_wide(&mut self, port: &str, value: &[u64]) {
        let pin = self.pin(port);
        let mut words = value.to_vec();
        words.resize(pin.width().div_ceil(64) as usize, 0);
        self.sim.set_wide(pin, &words);
        if let Some(mirror) = &self.mirror {
            mirror.sim.set_words(mirror.ports[port], &words);
        }
    }

    /// An output of at most 64 bits.
    pub fn get(&mut self, port: &str) -> u64 {
        let pin = self.pin(port);
        self.sim.get(pin)
    }

    /// True when a one-bit output is 1.
    pub fn is_set(&mut self, port: &str) -> bool {
        self.get(port) == 1
    }

    /// An output, least significant word first.
    pub fn get_wide(&mut self, port: &str) -> Vec<u64> {
        let pin = self.pin(port);
        self.sim.get_wide(pin).to_vec()
    }

    /// Cycles since the start.
    pub fn cycles(&self) -> u64 {
        self.sim.cycles()
    }

    /// How often a cover point was hit.
    pub fn covered(&self, name: &str) -> u64 {
        self.sim.covered(name)
    }

    /// Clock edge; before it both engines must show the same.
    pub fn clock(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            mirror.sim.step().unwrap_or_else(|e| panic!("Verilator at cycle {}: {e}", self.sim.cycles()));
            for c in &mirror.compared {
                if c.guard.is_some_and(|guard| self.sim.get(guard) == 0) {
                    continue;
                }
                let (ours, theirs) = (self.sim.get_wide(c.pin).to_vec(), mirror.sim.get_words(c.port));
                assert_eq!(ours, theirs, "{} at cycle {}: interpreter and Verilator differ", c.name, self.sim.cycles());
            }
        }
        self.sim.clock();
    }
}

impl Mirror {
    fn new(def: &Arc<ModDef>, seed: Seed, guards: &[(&str, &str)], pins: &HashMap<String, Pin>) -> Mirror {
        let model = ModelBuilder::new(&def.name)
            .verilog(def.verilog())
            .optimization(Optimization::BuildTime)
            .build()
            .unwrap_or_else(|e| panic!("building {}: {e}", def.name));
        let power_on = PowerOn::Random { seed: seed.named("verilator").value() };
        let mut sim = cocotb_rs::Sim::new(&model, power_on).unwrap();
        let clock = sim.clock("clk", Period::ps(4000)).unwrap();
        let reset = sim.port("rst").unwrap();
        let ports: HashMap<String, Port> = pins.keys().map(|name| (name.clone(), sim.port(name).unwrap())).collect();
        sim.reset(reset, 2).unwrap();
        let outputs = def.ports.iter().filter(|p| p.is_output);
        let guard_of = |name: &str| guards.iter().find(|(prefix, guard)| name.starts_with(prefix) && name != *guard);
        let compared = outputs
            .filter(|p| guard_of(&p.name).is_none_or(|(_, guard)| !guard.is_empty()))
            .map(|p| {
                let of = guard_of(&p.name);
                let is_handshake = p.name.ends_with("ready");
                Compared {
                    name: p.name.clone(),
                    pin: pins[&p.name],
                    port: ports[&p.name],
                    guard: of.filter(|_| !is_handshake).map(|(_, guard)| pins[*guard]),
                }
            })
            .collect();
        Mirror { sim, clock, ports, compared }
    }
}
