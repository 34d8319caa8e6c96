//! Random stimuli for unit tests on the interpreter: one stream of numbers a seed, printed with its replay command.

use rtl_graph::{ModDef, Pin, Sim};

/// Random numbers of a test (SplitMix64).
pub(crate) struct Rng(u64);

impl Rng {
    /// Numbers from the seed in the environment variable `SEED`, or from `default`; prints how to replay `test`.
    pub(crate) fn new(test: &str, default: u64) -> Rng {
        let seed = match std::env::var("SEED") {
            Ok(text) => {
                let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
                parsed.unwrap_or_else(|_| panic!("SEED={text} is no seed: give a number, or hexadecimal after 0x"))
            }
            Err(_) => default,
        };
        println!("replay: SEED={seed:#x} cargo test -p nic-rtl {test}");
        Rng(seed)
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// `n` random bytes.
    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Interpreter of a module after reset, from random power-up contents.
pub(crate) fn sim(def: &ModDef, rng: &mut Rng) -> Sim {
    let mut sim = def.sim();
    sim.randomize(rng.next());
    sim.reset(2);
    sim
}

/// Bytes as the words of a bus with byte 0 in bits 7:0.
pub(crate) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|c| c.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b))).collect()
}

/// A source of words for a `Stream` port: keeps valid and data until taken.
pub(crate) struct Source {
    valid: Pin,
    ready: Pin,
    data: Pin,
    words: std::collections::VecDeque<u64>,
    is_offered: bool,
}

impl Source {
    pub(crate) fn new(sim: &Sim, port: &str, words: impl IntoIterator<Item = u64>) -> Source {
        let pin = |field: &str| sim.pin(&format!("{port}_{field}"));
        let words = words.into_iter().collect();
        Source { valid: pin("valid"), ready: pin("ready"), data: pin("data"), words, is_offered: false }
    }

    /// Before the clock: offers the next word in `percent` of the cycles in which none is offered yet.
    pub(crate) fn drive(&mut self, sim: &mut Sim, rng: &mut Rng, percent: u64) {
        self.is_offered |= !self.words.is_empty() && rng.chance(percent);
        sim.set(self.valid, self.is_offered.into());
        let shown = if self.is_offered { self.words[0] } else { rng.next() & mask(self.data.width()) };
        sim.set(self.data, shown);
    }

    /// After all inputs are driven, before the clock: the word that is taken at this edge.
    pub(crate) fn taken(&mut self, sim: &mut Sim) -> Option<u64> {
        if self.is_offered && sim.get(self.ready) == 1 {
            self.is_offered = false;
            return self.words.pop_front();
        }
        None
    }

    pub(crate) fn is_done(&self) -> bool {
        self.words.is_empty()
    }
}

/// A sink for a `Stream` port that checks that a word stays until it is taken.
pub(crate) struct Sink {
    valid: Pin,
    ready: Pin,
    data: Pin,
    waiting: Option<u64>,
}

impl Sink {
    pub(crate) fn new(sim: &Sim, port: &str) -> Sink {
        let pin = |field: &str| sim.pin(&format!("{port}_{field}"));
        Sink { valid: pin("valid"), ready: pin("ready"), data: pin("data"), waiting: None }
    }

    /// Before the clock.
    pub(crate) fn drive(&mut self, sim: &mut Sim, rng: &mut Rng, percent: u64) {
        sim.set(self.ready, rng.chance(percent).into());
    }

    /// After all inputs are driven, before the clock: the word that is taken at this edge.
    pub(crate) fn taken(&mut self, sim: &mut Sim) -> Option<u64> {
        let shown = (sim.get(self.valid) == 1).then(|| sim.get(self.data));
        if let Some(word) = self.waiting {
            assert_eq!(shown, Some(word), "a word must stay until it is taken");
        }
        let ready = sim.get(self.ready) == 1;
        self.waiting = if ready { None } else { shown };
        shown.filter(|_| ready)
    }
}

fn mask(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// Sends `count` random 32-bit words through the ports `rx` and `tx` and checks that they come out in order; gives the
/// number of cycles.
pub(crate) fn check_order(sim: &mut Sim, rng: &mut Rng, count: usize, valid: u64, ready: u64) -> u64 {
    let sent: Vec<u64> = (0..count).map(|_| rng.next() & 0xffff_ffff).collect();
    let (mut source, mut sink) = (Source::new(sim, "rx", sent.clone()), Sink::new(sim, "tx"));
    let (mut got, start) = (vec![], sim.cycles());
    while got.len() < count {
        source.drive(sim, rng, valid);
        sink.drive(sim, rng, ready);
        source.taken(sim);
        got.extend(sink.taken(sim));
        sim.clock();
        assert!(sim.cycles() - start < 100 * count as u64, "{} of {count} words came out", got.len());
    }
    assert_eq!(got, sent);
    sim.cycles() - start
}
