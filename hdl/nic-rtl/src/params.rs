//! `NicParams`, the sizes of one build of the card, checked before anything is elaborated.
//!
//! Port widths are architectural and constant (see [`crate::stream`]); these numbers size the tables behind them. All
//! but the clock are powers of two, because an index is the low bits of what the wire or the host carries.

use rtl_graph::{debug_hash, index_bits, ModuleParam};

/// Sizes of one build of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicParams {
    /// Connections. Power of two, 2..=4096.
    pub conns: u32,
    /// Paths of each connection. Power of two, 2..=256.
    pub paths: u32,
    /// Packets in flight on one path, at most. Power of two, 2..=256.
    pub window_pkts: u32,
    /// Messages in flight on one connection, at most. Power of two, 2..=64.
    pub msgs: u32,
    /// Memory regions. Power of two, 2..=65536.
    pub mrs: u32,
    /// Completion queues. Power of two, 2..=4096.
    pub cqs: u32,
    /// Frequency of the core clock. kHz, 10 000..=1 000 000.
    pub clock_khz: u32,
}

impl Default for NicParams {
    fn default() -> Self {
        NicParams { conns: 16, paths: 16, window_pkts: 64, msgs: 64, mrs: 64, cqs: 16, clock_khz: 250_000 }
    }
}

/// A parameter out of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError(String);

impl std::fmt::Display for ParamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParamError {}

/// Width of the context row index and so the largest table.
const ROW_BITS_MAX: u32 = crate::stream::ROW_BITS;

impl NicParams {
    /// Says with a sentence which parameter is out of its range.
    pub fn check(&self) -> Result<(), ParamError> {
        let sizes = [
            ("conns", self.conns, crate::stream::CONN_BITS, "CONN_BITS"),
            ("paths", self.paths, crate::stream::PATH_BITS, "PATH_BITS"),
            ("window_pkts", self.window_pkts, nic_spec::consts::SACK_BITS.ilog2(), "the log of SACK_BITS"),
            ("msgs", self.msgs, crate::stream::SLOT_BITS, "SLOT_BITS"),
            ("mrs", self.mrs, ROW_BITS_MAX, "ROW_BITS"),
            ("cqs", self.cqs, crate::stream::CQ_BITS, "CQ_BITS"),
        ];
        for (name, value, bits, limit) in sizes {
            if !value.is_power_of_two() || value < 2 {
                return Err(ParamError(format!("{name} ({value}) must be a power of two, at least 2")));
            }
            let need = index_bits(value.into());
            if need > bits {
                return Err(ParamError(format!("{name} ({value}) needs {need} index bits; {limit} is {bits}")));
            }
        }
        let (rows, need) = (u64::from(self.conns) * u64::from(self.paths), self.conn_bits() + self.path_bits());
        if need > ROW_BITS_MAX {
            return Err(ParamError(format!(
                "conns x paths ({rows}) needs {need} index bits; ROW_BITS is {ROW_BITS_MAX}"
            )));
        }
        if !(10_000..=1_000_000).contains(&self.clock_khz) {
            return Err(ParamError(format!("clock_khz ({}) must be within 10000..=1000000", self.clock_khz)));
        }
        Ok(())
    }

    /// Bits of a connection index.
    pub fn conn_bits(&self) -> u32 {
        index_bits(self.conns.into())
    }

    /// Bits of a path index within a connection.
    pub fn path_bits(&self) -> u32 {
        index_bits(self.paths.into())
    }

    /// Rows of the path tables.
    pub fn rows(&self) -> u32 {
        self.conns * self.paths
    }

    /// Bits of a path row index, conn · paths + path.
    pub fn row_bits(&self) -> u32 {
        self.conn_bits() + self.path_bits()
    }

    /// Bits of a place within a path's window.
    pub fn window_bits(&self) -> u32 {
        index_bits(self.window_pkts.into())
    }

    /// Bits of a message slot index.
    pub fn slot_bits(&self) -> u32 {
        index_bits(self.msgs.into())
    }
}

impl ModuleParam for NicParams {
    fn tag(&self) -> String {
        debug_hash(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut NicParams)) -> String {
        let mut p = NicParams::default();
        change(&mut p);
        p.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_and_the_limits_are_accepted() {
        NicParams::default().check().unwrap();
        let most = NicParams {
            conns: 256,
            paths: 256,
            window_pkts: 256,
            msgs: 64,
            mrs: 65536,
            cqs: 4096,
            clock_khz: 1_000_000,
        };
        most.check().unwrap();
        let least = NicParams { conns: 2, paths: 2, window_pkts: 2, msgs: 2, mrs: 2, cqs: 2, clock_khz: 10_000 };
        least.check().unwrap();
        assert_eq!((least.row_bits(), most.row_bits(), most.rows()), (2, 16, 65536));
    }

    #[test]
    fn a_size_out_of_range_is_refused_with_a_sentence() {
        assert_eq!(refused(|p| p.conns = 8192), "conns (8192) needs 13 index bits; CONN_BITS is 12");
        assert_eq!(refused(|p| p.paths = 12), "paths (12) must be a power of two, at least 2");
        assert_eq!(refused(|p| p.window_pkts = 512), "window_pkts (512) needs 9 index bits; the log of SACK_BITS is 8");
        assert_eq!(refused(|p| p.msgs = 128), "msgs (128) needs 7 index bits; SLOT_BITS is 6");
        assert_eq!(refused(|p| p.cqs = 1), "cqs (1) must be a power of two, at least 2");
        assert_eq!(refused(|p| p.clock_khz = 1), "clock_khz (1) must be within 10000..=1000000");
        assert_eq!(
            refused(|p| (p.conns, p.paths) = (4096, 32)),
            "conns x paths (131072) needs 17 index bits; ROW_BITS is 16"
        );
    }
}
