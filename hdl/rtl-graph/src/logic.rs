//! Combinational helpers on signals: priority, one-hot, counting, rotation, tables.
use crate::builder::B;
use crate::signal::S;
use crate::words::{count_bits, index_bits};

impl<'a> S<'a> {
    /// `(found, index)` of the least significant 1, as a tree of logarithmic depth; the index is 0 when none is found.
    ///
    /// The index has [`index_bits`]`(width)` bits.
    #[track_caller]
    pub fn first_one(self) -> (S<'a>, S<'a>) {
        let b = self.b;
        if self.w == 1 {
            return (self, b.zero(1));
        }
        if self.w == 2 {
            return (self.any(), !self.bit(0) & self.bit(1));
        }
        let bits = index_bits(self.w as u64);
        let half = 1 << (bits - 1);
        let (lf, li) = self.trunc(half).first_one();
        let (hf, hi) = self.bits(half, self.w - half).first_one();
        let hi = if half == 1 { hi } else { hi.resize(bits - 1) };
        (lf | hf, b.cat(&[!lf & hf, lf.mux(li, hi)]))
    }

    /// `(found, index)` of the most significant 1; the index is 0 when none is found.
    #[track_caller]
    pub fn last_one(self) -> (S<'a>, S<'a>) {
        let (found, k) = self.reverse().first_one();
        let last = self.b.lit(self.w as u64 - 1, k.w);
        (found, found.mux(last - k, 0))
    }

    /// The least significant 1 alone, one-hot (zero when there is none).
    #[track_caller]
    pub fn lowest_one(self) -> S<'a> {
        self & self.neg()
    }

    /// Number of 1s below the first 0, of [`count_bits`]`(width)` bits.
    #[track_caller]
    pub fn trailing_ones(self) -> S<'a> {
        (!self).trailing_zeros()
    }

    /// Number of 0s below the first 1, of [`count_bits`]`(width)` bits.
    #[track_caller]
    pub fn trailing_zeros(self) -> S<'a> {
        let (found, k) = self.first_one();
        let w = count_bits(self.w as u64);
        found.mux(k.resize(w), self.w)
    }

    /// Number of 1s, of [`count_bits`]`(width)` bits, as a balanced adder tree.
    #[track_caller]
    pub fn count_ones(self) -> S<'a> {
        if self.w == 1 {
            return self;
        }
        let w = count_bits(self.w as u64);
        let (lo, hi) = (self.w / 2, self.w - self.w / 2);
        self.trunc(lo).count_ones().zext(w) + self.bits(lo, hi).count_ones().zext(w)
    }

    /// One-hot vector of `n` bits with bit `self` set (zero when `self >= n`).
    #[track_caller]
    pub fn one_hot(self, n: u32) -> S<'a> {
        let v: Vec<S> = (0..n as u64)
            .rev()
            .map(|k| if self.w < 64 && k >> self.w != 0 { self.b.low() } else { self.eq(k) })
            .collect();
        self.b.cat(&v)
    }

    /// Index of the 1 of a one-hot vector (the or of the indices when several are 1).
    #[track_caller]
    pub fn one_hot_index(self) -> S<'a> {
        let n = index_bits(self.w as u64);
        let v: Vec<S> = (0..n)
            .rev()
            .map(|k| {
                let hits: Vec<S> = (0..self.w).filter(|i| i >> k & 1 == 1).map(|i| self.bit(i)).collect();
                if hits.is_empty() {
                    self.b.low()
                } else {
                    self.b.cat(&hits).any()
                }
            })
            .collect();
        self.b.cat(&v)
    }

    /// Bits in reverse order.
    #[track_caller]
    pub fn reverse(self) -> S<'a> {
        let v: Vec<S> = (0..self.w).map(|i| self.bit(i)).collect();
        self.b.cat(&v)
    }

    /// Bytes in reverse order; the width must be a multiple of 8.
    #[track_caller]
    pub fn swap_bytes(self) -> S<'a> {
        let v = self.chunks(8);
        self.b.cat(&v)
    }

    /// The signal cut into parts of `w` bits, the least significant first.
    #[track_caller]
    pub fn chunks(self, w: u32) -> Vec<S<'a>> {
        assert!(w > 0 && self.w % w == 0, "{} bits do not divide into parts of {w}", self.w);
        (0..self.w / w).map(|k| self.bits(k * w, w)).collect()
    }

    /// Rotated left by a constant.
    #[track_caller]
    pub fn rotl(self, n: u32) -> S<'a> {
        let n = n % self.w;
        if n == 0 {
            return self;
        }
        self.b.cat(&[self.trunc(self.w - n), self.bits(self.w - n, n)])
    }

    /// Rotated right by a constant.
    #[track_caller]
    pub fn rotr(self, n: u32) -> S<'a> {
        self.rotl(self.w - n % self.w)
    }

    /// Rotated left by a signal, in stages; `n` must be below the width.
    #[track_caller]
    pub fn rotl_by(self, n: S<'a>) -> S<'a> {
        (0..n.w).fold(self, |x, k| n.bit(k).mux(x.rotl(pow2_mod(k, self.w)), x))
    }

    /// Rotated right by a signal, in stages; `n` must be below the width.
    #[track_caller]
    pub fn rotr_by(self, n: S<'a>) -> S<'a> {
        (0..n.w).fold(self, |x, k| n.bit(k).mux(x.rotr(pow2_mod(k, self.w)), x))
    }

    /// `table[self]` of `width` bits, as a small asynchronous ROM; entries beyond the end are zero.
    #[track_caller]
    pub fn lookup(self, name: &str, table: &[u64], width: u32) -> S<'a> {
        let rows: Vec<Vec<u64>> = table.iter().map(|x| vec![*x]).collect();
        self.lookup_wide(name, &rows, width)
    }

    /// Like [`S::lookup`] with entries of several words, least significant first.
    #[track_caller]
    pub fn lookup_wide(self, name: &str, table: &[Vec<u64>], width: u32) -> S<'a> {
        assert!(self.w <= 16, "a table of 2^{} entries: use a memory", self.w);
        let depth = 1u64 << self.w;
        assert!(table.len() as u64 <= depth, "{} entries need more than {} index bits", table.len(), self.w);
        let mut rows = table.to_vec();
        rows.resize(depth as usize, vec![0]);
        self.b.mem(name, depth, width).init(rows).read_async(self)
    }

    /// The signal `n` clocks later: registers `NAME_1` … `NAME_n` without reset.
    #[track_caller]
    pub fn delay(self, name: &str, n: u32) -> S<'a> {
        let mut s = self;
        for k in 1..=n {
            let r = self.b.reg(&format!("{name}_{k}"), self.w);
            r.set(s);
            s = r;
        }
        s
    }

    /// The signal `n` clocks later, cleared by reset: registers `NAME_1` … `NAME_n`.
    #[track_caller]
    pub fn delay_reset(self, name: &str, n: u32) -> S<'a> {
        let mut s = self;
        for k in 1..=n {
            let r = self.b.reg_reset(&format!("{name}_{k}"), self.w, 0);
            r.set(s);
            s = r;
        }
        s
    }

    /// Rows of parities: bit `i` of the result is the exclusive or of the bits that `masks[i]` selects.
    ///
    /// This is how a CRC is written: `^(data & MASK)` simulates fast and synthesises to one tree a bit.
    #[track_caller]
    pub fn parity_rows(self, masks: &[Vec<u64>]) -> S<'a> {
        let rows: Vec<S> = masks.iter().rev().map(|m| (self & self.b.litw(m, self.w)).xor()).collect();
        self.b.cat(&rows)
    }
}

fn pow2_mod(k: u32, m: u32) -> u32 {
    ((1u128 << k) % m as u128) as u32
}

/// A finite state machine: one state register, states by name.
pub struct Fsm<'a> {
    state: S<'a>,
    states: Vec<&'static str>,
}

impl B {
    /// State machine with a state register `name`; the first state is the reset state.
    ///
    /// Transitions are conditional assignments: of several the last whose condition holds wins.
    #[track_caller]
    pub fn fsm(&self, name: &str, states: &[&'static str]) -> Fsm<'_> {
        assert!(states.len() > 1, "a state machine of fewer than two states");
        let state = self.reg_reset(name, index_bits(states.len() as u64), 0);
        Fsm { state, states: states.to_vec() }
    }
}

impl<'a> Fsm<'a> {
    #[track_caller]
    fn code(&self, state: &str) -> u64 {
        match self.states.iter().position(|s| *s == state) {
            Some(k) => k as u64,
            None => panic!("no state `{state}` among {:?}", self.states),
        }
    }

    /// 1 while in `state`.
    #[track_caller]
    pub fn is(&self, state: &str) -> S<'a> {
        self.state.eq(self.code(state))
    }

    /// Goes to `to` when `cond` holds, from whichever state.
    #[track_caller]
    pub fn go(&self, cond: S<'a>, to: &str) {
        let to = self.code(to);
        self.state.when(cond, to);
    }

    /// Goes to `to` when in `from` and `cond` holds.
    #[track_caller]
    pub fn step(&self, from: &str, cond: S<'a>, to: &str) {
        let c = self.is(from) & cond;
        self.go(c, to);
    }

    /// The state register.
    pub fn state(&self) -> S<'a> {
        self.state
    }
}
