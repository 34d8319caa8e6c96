//! Test bench of a block: finds the streams, read ports and counters among a module's ports and plays them.
//!
//! Sources keep an offered item until it is taken; sinks check that a shown item stays. Both pause at random. Every cycle
//! can be recorded and played again on Verilator, port by port.

use crate::prim::check::Rng;
use rtl_graph::{Layout, ModDef, Pin, Sim};
use std::collections::{BTreeMap, VecDeque};

/// A record's value: its fields by name, least significant word first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Item(pub BTreeMap<String, Vec<u64>>);

impl Item {
    pub(super) fn of(fields: &[(&str, u64)]) -> Item {
        fields.iter().fold(Item::default(), |item, (name, value)| item.with(name, &[*value]))
    }

    pub(super) fn with(mut self, name: &str, words: &[u64]) -> Item {
        self.0.insert(name.into(), words.to_vec());
        self
    }

    #[track_caller]
    pub(super) fn words(&self, name: &str) -> &[u64] {
        self.0.get(name).unwrap_or_else(|| panic!("no field `{name}` in {self:?}"))
    }

    #[track_caller]
    pub(super) fn get(&self, name: &str) -> u64 {
        self.words(name)[0]
    }

    /// A field of a packed record within this one.
    #[track_caller]
    pub(super) fn inner(&self, name: &str, layout: &Layout, field: &str) -> u64 {
        let (lo, bits) = layout.place(field);
        bits_of(self.words(name), lo, bits)
    }
}

/// Up to 64 bits of words.
pub(super) fn bits_of(words: &[u64], lo: u32, bits: u32) -> u64 {
    let at = |i: usize| words.get(i).copied().unwrap_or(0);
    let (q, r) = ((lo / 64) as usize, lo % 64);
    let value = at(q) >> r | if r == 0 { 0 } else { at(q + 1) << (64 - r) };
    if bits >= 64 {
        value
    } else {
        value & ((1 << bits) - 1)
    }
}

/// A packed record from its fields; those not named are 0.
#[track_caller]
pub(super) fn packed(layout: &Layout, fields: &[(&str, u64)]) -> Vec<u64> {
    let mut words = vec![0u64; layout.width().div_ceil(64) as usize];
    for (name, value) in fields {
        let (lo, bits) = layout.place(name);
        assert!(bits >= 64 || value >> bits == 0, "{value:#x} does not fit `{name}`");
        for k in 0..bits.min(64) {
            if value >> k & 1 == 1 {
                words[((lo + k) / 64) as usize] |= 1 << ((lo + k) % 64);
            }
        }
    }
    words
}

struct Channel {
    valid: Pin,
    ready: Pin,
    fields: Vec<(String, Pin)>,
    is_in: bool,
    queue: VecDeque<Item>,
    is_offered: bool,
    waiting: Option<Item>,
    /// Cycles in a hundred in which it moves.
    pace: u64,
}

struct Table {
    index: Pin,
    row: Pin,
    rows: BTreeMap<u64, Vec<u64>>,
}

struct Counting {
    valid: Pin,
    code: Pin,
    amount: Pin,
}

/// An output in a [`Trace`].
pub(super) struct Output {
    pub name: String,
    /// Index of the output that says whether this one counts.
    pub valid: Option<usize>,
    /// Part of a read port, which shows a row that nobody may have asked for.
    pub is_read_port: bool,
}

/// Ports of a cycle.
pub(super) struct Cycle {
    /// The block is in reset, and its outputs are not looked at.
    pub is_reset: bool,
    pub inputs: Vec<Vec<u64>>,
    pub outputs: Vec<Vec<u64>>,
}

/// All ports of every cycle.
pub(super) struct Trace {
    pub inputs: Vec<String>,
    pub outputs: Vec<Output>,
    pub cycles: Vec<Cycle>,
}

/// The bench.
pub(super) struct Bench {
    pub sim: Sim,
    pub rng: Rng,
    /// Value of the port `now`; moves by one a cycle.
    pub now: u32,
    channels: BTreeMap<String, Channel>,
    tables: BTreeMap<String, Table>,
    counters: Vec<Counting>,
    /// What was counted, by code.
    pub counts: BTreeMap<u8, u64>,
    now_pin: Option<Pin>,
    quiet: u64,
    trace: Option<(Trace, Vec<Pin>, Vec<Pin>)>,
}

impl Bench {
    /// A bench of a module after reset, from random power-up contents.
    pub(super) fn new(def: &ModDef, rng: Rng) -> Bench {
        let sim = def.sim();
        let (mut channels, mut tables, mut counters) = (BTreeMap::new(), BTreeMap::new(), vec![]);
        for g in &def.groups {
            for k in 0..g.len.unwrap_or(1) {
                let prefix = if g.len.is_some() { format!("{}_{k}", g.name) } else { g.name.clone() };
                let has = |name: &str| g.layout.fields.iter().any(|f| f.name == name);
                let pin = |name: &str| sim.pin(&format!("{prefix}_{name}"));
                let forward: Vec<_> = g.layout.fields.iter().filter(|f| !f.is_reverse).collect();
                let reverse: Vec<_> = g.layout.fields.iter().filter(|f| f.is_reverse).collect();
                if has("valid") && has("ready") {
                    let fields = forward.iter().filter(|f| f.name != "valid");
                    let fields = fields.map(|f| (f.name.clone(), pin(&f.name))).collect();
                    let channel = Channel {
                        valid: pin("valid"),
                        ready: pin("ready"),
                        fields,
                        is_in: g.is_in,
                        queue: VecDeque::new(),
                        is_offered: false,
                        waiting: None,
                        pace: 100,
                    };
                    channels.insert(prefix, channel);
                } else if has("code") && has("amount") {
                    counters.push(Counting { valid: pin("valid"), code: pin("code"), amount: pin("amount") });
                } else if !g.is_in && has("conn") && reverse.len() == 1 {
                    let row = pin(&reverse[0].name);
                    tables.insert(prefix.clone(), Table { index: pin("conn"), row, rows: BTreeMap::new() });
                }
            }
        }
        let now_pin = def.ports.iter().any(|p| p.name == "now").then(|| sim.pin("now"));
        let counts = BTreeMap::new();
        let mut bench = Bench { sim, rng, now: 0, channels, tables, counters, counts, now_pin, quiet: 0, trace: None };
        bench.sim.randomize(bench.rng.next());
        bench.sim.reset(2);
        bench
    }

    /// Records every cycle from now on.
    pub(super) fn record(&mut self, def: &ModDef) {
        let names = |out: bool| {
            let ports = def.ports.iter().filter(|p| !p.is_clock_or_reset() && p.is_output == out);
            ports.map(|p| p.name.clone()).collect::<Vec<_>>()
        };
        let (inputs, output_names) = (names(false), names(true));
        let at = |name: &str| output_names.iter().position(|n| n == name);
        let mut outputs: Vec<Output> =
            output_names.iter().map(|n| Output { name: n.clone(), valid: None, is_read_port: false }).collect();
        for g in &def.groups {
            for k in 0..g.len.unwrap_or(1) {
                let prefix = if g.len.is_some() { format!("{}_{k}", g.name) } else { g.name.clone() };
                let valid = at(&format!("{prefix}_valid"));
                let has = |name: &str| g.layout.fields.iter().any(|f| f.name == name);
                for f in g.layout.fields.iter().filter(|f| !f.name.is_empty() && f.name != "valid") {
                    if let Some(i) = at(&format!("{prefix}_{}", f.name)) {
                        outputs[i].valid = valid;
                        outputs[i].is_read_port = has("conn") && !has("valid");
                    }
                }
            }
        }
        let pins = |names: &[String]| names.iter().map(|n| self.sim.pin(n)).collect::<Vec<_>>();
        let (a, b) = (pins(&inputs), pins(&output_names));
        self.trace = Some((Trace { inputs, outputs, cycles: vec![] }, a, b));
    }

    pub(super) fn take_trace(&mut self) -> Trace {
        self.trace.take().expect("record was called").0
    }

    #[track_caller]
    fn channel(&mut self, name: &str) -> &mut Channel {
        self.channels.get_mut(name).unwrap_or_else(|| panic!("no stream `{name}`"))
    }

    /// Offers an item after those pushed before.
    #[track_caller]
    pub(super) fn push(&mut self, name: &str, item: Item) {
        let c = self.channel(name);
        assert!(c.is_in, "`{name}` is an output");
        c.queue.push_back(item);
    }

    /// Items of an output since the last call.
    #[track_caller]
    pub(super) fn take(&mut self, name: &str) -> Vec<Item> {
        let c = self.channel(name);
        assert!(!c.is_in, "`{name}` is an input");
        c.queue.drain(..).collect()
    }

    /// Items of an input not taken yet.
    pub(super) fn waiting(&mut self, name: &str) -> usize {
        self.channel(name).queue.len()
    }

    /// How often a stream moves, in a hundred cycles.
    pub(super) fn pace(&mut self, name: &str, percent: u64) {
        self.channel(name).pace = percent;
    }

    /// Gives every stream a random pace of at least `least`.
    pub(super) fn random_paces(&mut self, least: u64) {
        for c in self.channels.values_mut() {
            c.pace = least + self.rng.below(101 - least);
        }
    }

    /// Row that a read port finds.
    pub(super) fn row(&mut self, port: &str, index: u64, words: Vec<u64>) {
        self.tables.get_mut(port).unwrap_or_else(|| panic!("no read port `{port}`")).rows.insert(index, words);
    }

    /// Number counted under a counter.
    pub(super) fn counted(&self, counter: nic_spec::csr::stats::Counter) -> u64 {
        self.counts.get(&counter.code()).copied().unwrap_or(0)
    }

    /// Resets the block for a cycle, whatever it is at: what was offered or shown is gone.
    pub(super) fn reset(&mut self) {
        for c in self.channels.values_mut() {
            c.queue.clear();
            (c.is_offered, c.waiting) = (false, None);
        }
        self.note_cycle(true);
        self.sim.reset(1);
    }

    /// Adds the ports as they are to the record, if there is one.
    fn note_cycle(&mut self, is_reset: bool) {
        let Bench { sim, trace, .. } = self;
        if let Some((trace, inputs, outputs)) = trace {
            let mut read = |pins: &[Pin]| pins.iter().map(|p| sim.get_wide(*p).to_vec()).collect();
            let (inputs, outputs) = (read(inputs), read(outputs));
            trace.cycles.push(Cycle { is_reset, inputs, outputs });
        }
    }

    /// One cycle. True when a stream moved.
    pub(super) fn step(&mut self) -> bool {
        let Bench { sim, rng, channels, .. } = self;
        if let Some(pin) = self.now_pin {
            sim.set(pin, self.now.into());
        }
        for c in channels.values_mut() {
            if c.is_in {
                c.is_offered |= !c.queue.is_empty() && rng.chance(c.pace);
                sim.set(c.valid, c.is_offered.into());
                for (name, pin) in &c.fields {
                    match c.queue.front().filter(|_| c.is_offered) {
                        Some(item) => sim.set_wide(*pin, item.0.get(name).map_or(&[], |v| v)),
                        None => {
                            let noise: Vec<u64> = (0..pin.width().div_ceil(64)).map(|_| rng.next()).collect();
                            sim.set_wide(*pin, &cut(noise, pin.width()));
                        }
                    }
                }
            } else {
                sim.set(c.ready, rng.chance(c.pace).into());
            }
        }
        self.note_cycle(false);
        let Bench { sim, channels, .. } = self;
        let mut moved = false;
        for (name, c) in channels.iter_mut() {
            let (valid, ready) = (sim.get(c.valid) == 1, sim.get(c.ready) == 1);
            if c.is_in {
                if c.is_offered && ready {
                    c.queue.pop_front();
                    c.is_offered = false;
                    moved = true;
                }
            } else {
                let shown = valid.then(|| {
                    let fields = c.fields.iter().map(|(field, pin)| (field.clone(), sim.get_wide(*pin).to_vec()));
                    Item(fields.collect())
                });
                if c.waiting.is_some() {
                    assert_eq!(c.waiting, shown, "an item of `{name}` must stay until it is taken");
                }
                c.waiting = if ready { None } else { shown.clone() };
                if let (Some(item), true) = (shown, ready) {
                    c.queue.push_back(item);
                    moved = true;
                }
            }
        }
        for c in &self.counters {
            if sim.get(c.valid) == 1 {
                *self.counts.entry(sim.get(c.code) as u8).or_default() += sim.get(c.amount);
            }
        }
        let found: Vec<(Pin, Vec<u64>)> =
            self.tables.values().map(|t| (t.row, t.rows.get(&sim.get(t.index)).cloned().unwrap_or_default())).collect();
        sim.clock();
        for (pin, words) in found {
            sim.set_wide(pin, &words);
        }
        self.now = self.now.wrapping_add(1);
        self.quiet = if moved { 0 } else { self.quiet + 1 };
        moved
    }

    /// Some cycles.
    pub(super) fn steps(&mut self, cycles: u64) {
        for _ in 0..cycles {
            self.step();
        }
    }

    /// Runs until every pushed item is taken and nothing has moved for `cycles`.
    #[track_caller]
    pub(super) fn settle(&mut self, cycles: u64) {
        self.quiet = 0;
        for _ in 0..200_000 {
            self.step();
            let is_pending = self.channels.values().any(|c| c.is_in && !c.queue.is_empty() || c.waiting.is_some());
            if self.quiet >= cycles && !is_pending {
                return;
            }
        }
        let stuck: Vec<_> = self.channels.iter().filter(|(_, c)| c.is_in && !c.queue.is_empty()).collect();
        panic!("does not settle; waiting: {:?}", stuck.iter().map(|(n, c)| (n, c.queue.len())).collect::<Vec<_>>());
    }
}

fn cut(mut words: Vec<u64>, bits: u32) -> Vec<u64> {
    if let (Some(last), true) = (words.last_mut(), bits % 64 != 0) {
        *last &= (1 << (bits % 64)) - 1;
    }
    words
}
