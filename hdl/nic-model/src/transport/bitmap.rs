//! 256-bit maps: what of a window is acknowledged (sender) or received (receiver).
//!
//! Bit 0 stands for the packet at the window's base. On the wire bit *i* is the *i*-th bit from the most significant
//! bit of the first byte (protocol, SACK).

/// 256 bits, bit 0 first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap([u64; 4]);

/// Bits in a [`Bitmap`].
pub const BITS: u32 = nic_spec::consts::SACK_BITS;

impl Bitmap {
    /// No bit set.
    pub const EMPTY: Self = Self([0; 4]);

    /// True when bit `index` is set; bits from 256 on are clear.
    pub const fn get(&self, index: u32) -> bool {
        index < BITS && self.0[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Sets bit `index`, which must be below 256.
    pub fn set(&mut self, index: u32) {
        self.0[(index / 64) as usize] |= 1 << (index % 64);
    }

    /// True when no bit is set.
    pub const fn is_empty(&self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    /// How many bits are set.
    pub const fn count(&self) -> u32 {
        self.0[0].count_ones() + self.0[1].count_ones() + self.0[2].count_ones() + self.0[3].count_ones()
    }

    /// Moves the base forward by `steps`: bit `i` becomes bit `i - steps`, lower ones are gone.
    pub fn advance(&mut self, steps: u32) {
        if steps >= BITS {
            self.0 = [0; 4];
            return;
        }
        let (words, bits) = ((steps / 64) as usize, steps % 64);
        for i in 0..4 {
            let low = self.0.get(i + words).copied().unwrap_or(0);
            let high = self.0.get(i + words + 1).copied().unwrap_or(0);
            self.0[i] = if bits == 0 { low } else { low >> bits | high << (64 - bits) };
        }
    }

    /// Length of the run of ones from bit 0 on.
    pub const fn leading_run(&self) -> u32 {
        let mut i = 0;
        let mut run = 0;
        while i < 4 {
            let ones = self.0[i].trailing_ones();
            run += ones;
            if ones < 64 {
                break;
            }
            i += 1;
        }
        run
    }

    /// Index of the highest bit set.
    pub const fn highest(&self) -> Option<u32> {
        let mut i = 4;
        while i > 0 {
            i -= 1;
            if self.0[i] != 0 {
                return Some(i as u32 * 64 + 63 - self.0[i].leading_zeros());
            }
        }
        None
    }

    /// Bits set in `self` and not in `other`.
    pub const fn minus(&self, other: &Self) -> Self {
        Self([self.0[0] & !other.0[0], self.0[1] & !other.0[1], self.0[2] & !other.0[2], self.0[3] & !other.0[3]])
    }

    /// Bits set in either.
    pub const fn union(&self, other: &Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1], self.0[2] | other.0[2], self.0[3] | other.0[3]])
    }

    /// Indices of the bits set, ascending.
    pub fn ones(&self) -> Ones {
        Ones { words: self.0, word: 0 }
    }

    /// Indices below `end` of the bits clear, ascending.
    pub fn zeros_below(&self, end: u32) -> Ones {
        let mut words = [!self.0[0], !self.0[1], !self.0[2], !self.0[3]];
        for (i, word) in words.iter_mut().enumerate() {
            let from = 64 * i as u32;
            if end <= from {
                *word = 0;
            } else if end - from < 64 {
                *word &= (1 << (end - from)) - 1;
            }
        }
        Ones { words, word: 0 }
    }

    /// The 32 bytes of the wire.
    pub fn to_wire(self) -> [u8; 32] {
        let mut out = [0; 32];
        for (i, word) in self.0.iter().enumerate() {
            out[8 * i..8 * i + 8].copy_from_slice(&word.reverse_bits().to_be_bytes());
        }
        out
    }

    /// From the 32 bytes of the wire.
    pub fn from_wire(bytes: &[u8; 32]) -> Self {
        let mut words = [0; 4];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.iter().fold(0, |acc: u64, b| acc << 8 | u64::from(*b)).reverse_bits();
        }
        Self(words)
    }
}

/// Iterator over bit indices.
#[derive(Clone, Debug)]
pub struct Ones {
    words: [u64; 4],
    word: usize,
}

impl Iterator for Ones {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        while self.word < 4 {
            let w = self.words[self.word];
            if w != 0 {
                self.words[self.word] = w & (w - 1);
                return Some(self.word as u32 * 64 + w.trailing_zeros());
            }
            self.word += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn of(bits: &[u32]) -> Bitmap {
        let mut m = Bitmap::EMPTY;
        bits.iter().for_each(|b| m.set(*b));
        m
    }

    #[test]
    fn advancing_moves_every_bit_down_and_drops_those_below_the_base() {
        let bits = [0, 1, 63, 64, 100, 128, 191, 255];
        for steps in [0, 1, 2, 63, 64, 65, 127, 128, 200, 255, 256, 300] {
            let mut m = of(&bits);
            m.advance(steps);
            let want: Vec<u32> = bits.iter().filter(|b| **b >= steps).map(|b| b - steps).collect();
            assert_eq!(m.ones().collect::<Vec<_>>(), want, "steps {steps}");
        }
    }

    #[test]
    fn bit_0_is_the_most_significant_bit_of_the_first_byte_on_the_wire() {
        let m = of(&[2, 8, 255]);
        let wire = m.to_wire();
        assert_eq!((wire[0], wire[1], wire[31]), (0x20, 0x80, 0x01));
        assert_eq!(Bitmap::from_wire(&wire), m);
    }

    #[test]
    fn runs_highest_and_zeros_are_found_across_words() {
        let mut m = Bitmap::EMPTY;
        (0..130).for_each(|i| m.set(i));
        assert_eq!((m.leading_run(), m.highest(), m.count()), (130, Some(129), 130));
        m.set(200);
        assert_eq!((m.leading_run(), m.highest()), (130, Some(200)));
        assert_eq!(m.zeros_below(133).collect::<Vec<_>>(), [130, 131, 132]);
        assert_eq!(m.zeros_below(256).count(), 256 - 131);
        assert_eq!((Bitmap::EMPTY.leading_run(), Bitmap::EMPTY.highest()), (0, None));
        assert_eq!(Bitmap::EMPTY.zeros_below(64).count(), 64);
    }
}
