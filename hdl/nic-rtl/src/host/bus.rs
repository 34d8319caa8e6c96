//! Register access from the host: AXI4-Lite at the pins, a simple bus behind the decoder.

use nic_spec::csr::BAR_BITS;
use rtl_graph::bundle;

bundle! {
    /// AXI4-Lite as the standard spells it, from the manager's side: 32-bit data, addresses of BAR 0.
    pub struct AxiLite {
        fwd awaddr: BAR_BITS, awprot: 3, awvalid: 1, wdata: 32, wstrb: 4, wvalid: 1, bready: 1,
            araddr: BAR_BITS, arprot: 3, arvalid: 1, rready: 1;
        rev awready: 1, wready: 1, bresp: 2, bvalid: 1, arready: 1, rdata: 32, rresp: 2, rvalid: 1
    }
}

/// `xRESP` of a good access.
pub const RESP_OKAY: u64 = 0;
/// `xRESP` of an access that the subordinate refuses.
pub const RESP_SLVERR: u64 = 2;

bundle! {
    /// One register access at a time: `valid` with the request stands until `ready`, which comes with the answer.
    pub struct CsrBus {
        fwd valid: 1, write: 1,
            /// Byte address in BAR 0, a multiple of 4.
            addr: BAR_BITS, wdata: 32;
        rev ready: 1, rdata: 32,
            /// No register is there.
            error: 1
    }
}
