//! AXI4 as it leaves the card: signal names as the standard spells them, so that tools infer the interface.
//!
//! Data 512 bits, addresses 64, ids [`ID_BITS`]. Every burst is INCR of whole beats and begins at a multiple of 64.

use rtl_graph::{bundle, S};

/// Bits of an AXI id.
pub const ID_BITS: u32 = 4;
/// `AxSIZE` of 64 bytes a beat.
pub const SIZE_64: u64 = 6;
/// `AxBURST` of ascending addresses.
pub const BURST_INCR: u64 = 1;

bundle! {
    /// Read channels, from the manager's side.
    pub struct Axi4Read {
        fwd arid: ID_BITS, araddr: 64, arlen: 8, arsize: 3, arburst: 2, arvalid: 1, rready: 1;
        rev arready: 1, rid: ID_BITS, rdata: 512, rresp: 2, rlast: 1, rvalid: 1
    }
}

bundle! {
    /// Write channels, from the manager's side.
    pub struct Axi4Write {
        fwd awid: ID_BITS, awaddr: 64, awlen: 8, awsize: 3, awburst: 2, awvalid: 1,
            wdata: 512, wstrb: 64, wlast: 1, wvalid: 1, bready: 1;
        rev awready: 1, wready: 1, bid: ID_BITS, bresp: 2, bvalid: 1
    }
}

bundle! {
    /// All five channels, from the manager's side.
    pub struct Axi4 {
        fwd awid: ID_BITS, awaddr: 64, awlen: 8, awsize: 3, awburst: 2, awvalid: 1,
            wdata: 512, wstrb: 64, wlast: 1, wvalid: 1, bready: 1,
            arid: ID_BITS, araddr: 64, arlen: 8, arsize: 3, arburst: 2, arvalid: 1, rready: 1;
        rev awready: 1, wready: 1, bid: ID_BITS, bresp: 2, bvalid: 1,
            arready: 1, rid: ID_BITS, rdata: 512, rresp: 2, rlast: 1, rvalid: 1
    }
}

/// 1 when a response reports an error (SLVERR or DECERR).
pub fn is_error(resp: S<'_>) -> S<'_> {
    resp.bit(1)
}
