//! AXI-Stream as it leaves the card: signal names as the standard spells them, so that tools infer the interface.

use rtl_graph::bundle;

bundle! {
    /// AXI-Stream of `bytes` bytes a beat, without null bytes: `tkeep` is ones from byte 0 on, full before `tlast`.
    ///
    /// `tuser` with `tlast`: the frame is bad.
    pub struct Axis(bytes: u32) {
        fwd tdata: 8 * bytes, tkeep: bytes, tlast: 1, tuser: 1, tvalid: 1;
        rev tready: 1
    }
}
