//! Path header: which path, plane and stream a packet belongs to, and when it left.

use crate::{
    layout,
    num::{Epoch, PathId, Plane, StreamId},
};

layout! {
    /// Path header, in every packet.
    pub struct Pxth[8]: big {
        /// Logical path within this direction of the connection.
        path_id / set_path_id: 8 as PathId,
        /// Plane the sender chose.
        plane / set_plane: 4 as Plane,
        /// Generation of the path's aim; fences the detection of gaps.
        epoch / set_epoch: 4 as Epoch,
        /// Ordered flow; 0 = control.
        stream_id / set_stream_id: 16 as StreamId,
        /// Sender's free-running clock. Ticks of the sender, opaque to the peer, which echoes it.
        tx_ts / set_tx_ts: 32 as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pxth_of_the_golden_write_is_made() {
        let mut h = Pxth::zeroed();
        h.set_path_id(PathId::new(3)).set_plane(Plane::new(1)).set_epoch(Epoch::new(0));
        h.set_stream_id(StreamId::new(5)).set_tx_ts(0x1122_3344);
        assert_eq!(h.0, [3, 0x10, 0, 5, 0x11, 0x22, 0x33, 0x44]);
        assert_eq!(h.set_epoch(Epoch::new(0xe)).0[1], 0x1e);
    }
}
