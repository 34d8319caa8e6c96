//! Ports of a model: their names and shapes, and the image of words through which they are read and written.
//!
//! All ports live in one array of 64-bit words, inputs first. A port takes `ceil(width / 64)` words, least significant
//! first. There are two such arrays: the *live* one, written by tasks and loaded into the model before it is next
//! evaluated, and the *sampled* one, holding every port as it stood just before the last rising edge. Reading the
//! one and writing the other is what makes the order of tasks irrelevant.

use std::fmt;

/// Who drives a port, seen from the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Driven by the testbench.
    Input,
    /// Driven by the module.
    Output,
}

/// A port as the module declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDecl {
    /// The name in the Verilog.
    pub name: String,
    /// Width in bits, at least 1.
    pub width_bits: u32,
    /// Who drives it.
    pub direction: Direction,
}

impl PortDecl {
    /// An input of the module.
    pub fn input(name: impl Into<String>, width_bits: u32) -> Self {
        PortDecl { name: name.into(), width_bits, direction: Direction::Input }
    }

    /// An output of the module.
    pub fn output(name: impl Into<String>, width_bits: u32) -> Self {
        PortDecl { name: name.into(), width_bits, direction: Direction::Output }
    }
}

impl fmt::Display for PortDecl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.direction == Direction::Input { "input" } else { "output" };
        write!(f, "{direction} [{}:0] {}", self.width_bits.saturating_sub(1), self.name)
    }
}

/// Handle of a port: its place in the image. Valid for every simulation of the model it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    first_word: u32,
    width_bits: u32,
    direction: Direction,
}

impl Port {
    /// Width in bits.
    pub fn width_bits(self) -> u32 {
        self.width_bits
    }

    /// Width in whole 64-bit words.
    pub fn width_words(self) -> usize {
        self.width_bits.div_ceil(64) as usize
    }

    /// Who drives it.
    pub fn direction(self) -> Direction {
        self.direction
    }

    pub(crate) fn first_word(self) -> usize {
        self.first_word as usize
    }

    fn range(self) -> std::ops::Range<usize> {
        self.first_word()..self.first_word() + self.width_words()
    }

    /// The bits of the most significant word that belong to the port.
    fn top_mask(self) -> u64 {
        u64::MAX >> ((64 - self.width_bits % 64) % 64)
    }
}

/// The ports of a model by name, inputs first.
#[derive(Clone, Debug)]
pub struct PortMap {
    entries: Vec<(PortDecl, Port)>,
    input_words: usize,
    words: usize,
}

impl PortMap {
    pub(crate) fn new(mut decls: Vec<PortDecl>) -> Self {
        decls.sort_by_key(|decl| decl.direction == Direction::Output);
        let (mut entries, mut words, mut input_words) = (Vec::with_capacity(decls.len()), 0, 0);
        for decl in decls {
            let port = Port { first_word: words, width_bits: decl.width_bits, direction: decl.direction };
            words += decl.width_bits.div_ceil(64);
            if decl.direction == Direction::Input {
                input_words = words as usize;
            }
            entries.push((decl, port));
        }
        PortMap { entries, input_words, words: words as usize }
    }

    /// The port of that name.
    pub fn find(&self, name: &str) -> Option<Port> {
        self.entries.iter().find(|(decl, _)| decl.name == name).map(|(_, port)| *port)
    }

    /// All ports, inputs first.
    pub fn iter(&self) -> impl Iterator<Item = (&PortDecl, Port)> {
        self.entries.iter().map(|(decl, port)| (decl, *port))
    }

    pub(crate) fn input_words(&self) -> usize {
        self.input_words
    }

    pub(crate) fn output_words(&self) -> usize {
        self.words - self.input_words
    }
}

/// The values of all ports of one simulation.
#[derive(Clone, Debug)]
pub struct PortImage {
    live: Vec<u64>,
    sampled: Vec<u64>,
    input_words: usize,
}

impl PortImage {
    pub(crate) fn new(ports: &PortMap) -> Self {
        PortImage { live: vec![0; ports.input_words], sampled: vec![0; ports.words], input_words: ports.input_words }
    }

    /// The words to load into the model, and the words its outputs are stored to.
    pub(crate) fn exchange(&mut self) -> (&[u64], &mut [u64]) {
        (&self.live, &mut self.sampled[self.input_words..])
    }

    /// Takes the inputs into the sample. The outputs got there by [`PortImage::exchange`].
    pub(crate) fn sample_inputs(&mut self) {
        self.sampled[..self.input_words].copy_from_slice(&self.live);
    }

    /// Sampled value of a port of at most 64 bits.
    ///
    /// # Panics
    /// If the port is wider.
    #[inline]
    pub fn get(&self, port: Port) -> u64 {
        assert!(port.width_bits <= 64, "a port of {} bits does not fit u64; read its words", port.width_bits);
        self.sampled[port.first_word as usize]
    }

    /// Whether any bit of a sampled port of at most 64 bits is set.
    #[inline]
    pub fn is_set(&self, port: Port) -> bool {
        self.sampled[port.first_word as usize] != 0
    }

    /// Sampled words of a port, least significant first.
    #[inline]
    pub fn words(&self, port: Port) -> &[u64] {
        &self.sampled[port.range()]
    }

    /// The value last written to an input, which the model has not necessarily seen yet.
    ///
    /// # Panics
    /// If the port is an output or wider than 64 bits.
    #[inline]
    pub fn live(&self, port: Port) -> u64 {
        assert!(port.width_bits <= 64, "a port of {} bits does not fit u64", port.width_bits);
        assert!(port.direction == Direction::Input, "an output has no live value, only a sampled one");
        self.live[port.first_word as usize]
    }

    /// Writes an input of at most 64 bits.
    ///
    /// # Panics
    /// If the port is an output, or the value does not fit it.
    #[inline]
    pub fn set(&mut self, port: Port, value: u64) {
        assert!(port.direction == Direction::Input, "an output port cannot be written");
        assert!(
            port.width_bits <= 64 && value & !port.top_mask() == 0,
            "{value:#x} does not fit {} bits",
            port.width_bits
        );
        self.live[port.first_word as usize] = value;
    }

    /// Writes a whole input of any width from words, least significant first; missing words are zero, and bits above
    /// the width are dropped.
    ///
    /// # Panics
    /// If the port is an output or there are more words than it has.
    #[inline]
    pub fn set_words(&mut self, port: Port, words: &[u64]) {
        assert!(port.direction == Direction::Input, "an output port cannot be written");
        let target = &mut self.live[port.first_word as usize..port.first_word as usize + port.width_words()];
        assert!(words.len() <= target.len(), "{} words do not fit {} bits", words.len(), port.width_bits);
        let (head, tail) = target.split_at_mut(words.len());
        head.copy_from_slice(words);
        tail.fill(0);
        if let Some(top) = target.last_mut() {
            *top &= port.top_mask();
        }
    }

    /// Writes a whole input from little-endian bytes; missing bytes are zero.
    ///
    /// # Panics
    /// If the port is an output or there are more bytes than it has.
    #[inline]
    pub fn set_bytes(&mut self, port: Port, bytes: &[u8]) {
        assert!(port.direction == Direction::Input, "an output port cannot be written");
        let target = &mut self.live[port.first_word as usize..port.first_word as usize + port.width_words()];
        assert!(bytes.len() <= target.len() * 8, "{} bytes do not fit {} bits", bytes.len(), port.width_bits);
        let chunks = bytes.chunks_exact(8);
        let rest = chunks.remainder();
        let full = chunks.len();
        for (word, chunk) in target.iter_mut().zip(chunks) {
            let mut le = [0; 8];
            le.copy_from_slice(chunk);
            *word = u64::from_le_bytes(le);
        }
        target[full..].fill(0);
        if !rest.is_empty() {
            let mut le = [0; 8];
            le[..rest.len()].copy_from_slice(rest);
            target[full] = u64::from_le_bytes(le);
        }
        if let Some(top) = target.last_mut() {
            *top &= port.top_mask();
        }
    }

    /// Appends the first `len_bytes` sampled bytes of a port, little-endian, to `out`.
    ///
    /// # Panics
    /// If the port has fewer bytes.
    #[inline]
    pub fn append_bytes(&self, port: Port, len_bytes: usize, out: &mut Vec<u8>) {
        let words = self.words(port);
        assert!(len_bytes <= words.len() * 8, "{len_bytes} bytes asked of a port of {} bits", port.width_bits);
        for word in &words[..len_bytes / 8] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let rest = len_bytes % 8;
        if rest > 0 {
            out.extend_from_slice(&words[len_bytes / 8].to_le_bytes()[..rest]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> (PortMap, PortImage) {
        let map = PortMap::new(vec![
            PortDecl::output("q", 8),
            PortDecl::input("a", 5),
            PortDecl::input("wide", 100),
            PortDecl::input("b", 64),
        ]);
        let image = PortImage::new(&map);
        (map, image)
    }

    #[test]
    fn inputs_come_first_and_wide_ports_take_whole_words() {
        let (map, _) = image();
        let places: Vec<_> = map.iter().map(|(decl, port)| (decl.name.as_str(), port.first_word())).collect();
        assert_eq!(places, [("a", 0), ("wide", 1), ("b", 3), ("q", 4)]);
        assert_eq!((map.input_words(), map.output_words()), (4, 1));
    }

    #[test]
    fn written_bytes_come_back_after_sampling_and_upper_bits_are_dropped() {
        let (map, mut image) = image();
        let wide = map.find("wide").unwrap();
        image.set_bytes(wide, &[0xff; 16]);
        assert_eq!(image.words(wide), [0, 0], "nothing is sampled before the edge");
        image.sample_inputs();
        assert_eq!(image.words(wide), [u64::MAX, 0xf_ffff_ffff]);
        image.set_bytes(wide, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        image.sample_inputs();
        let mut bytes = Vec::new();
        image.append_bytes(wide, 11, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0]);
    }

    #[test]
    fn a_value_wider_than_its_port_is_refused() {
        let (map, mut image) = image();
        let a = map.find("a").unwrap();
        image.set(a, 31);
        assert!(std::panic::catch_unwind(move || image.set(a, 32)).is_err());
    }
}
