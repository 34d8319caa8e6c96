//! Work queue entry: what software asks a send queue to do.

use crate::{
    codes, layout,
    num::{Lkey, Rkey},
};

layout! {
    /// Work queue entry of a send queue. Reserved fields must be zero; another value is a bad WQE.
    pub struct Wqe[64]: little {
        /// Operation: see the WQE opcodes.
        opcode / set_opcode: 8 as u8,
        /// A completion is wanted even when the operation succeeds.
        signaled / set_signaled: 1 as bool,
        /// The receiver's completion is a solicited event.
        solicited / set_solicited: 1 as bool,
        /// Not to begin before all earlier reads and atomics of the queue are complete.
        fence / set_fence: 1 as bool,
        /// Reserved, zero.
        resv5 / set_resv5: 5 as u8,
        /// Reserved, zero.
        resv16 / set_resv16: 16 as u16,
        /// Length of the message. Bytes, 0..=2^31.
        length / set_length: 32 as u32,
        /// Address of the local data in the space of its memory region.
        local_va / set_local_va: 64 as u64,
        /// Key of the local memory region.
        lkey / set_lkey: 32 as Lkey,
        /// Key of the remote memory region.
        rkey / set_rkey: 32 as Rkey,
        /// Address at the receiver of the message's first byte.
        remote_va / set_remote_va: 64 as u64,
        /// Immediate data.
        imm / set_imm: 32 as u32,
        /// Reserved, zero.
        resv224 / set_resv224: 224 as [u8; 28],
    }
}

codes! {
    /// Operations of a WQE.
    pub enum WqeOpcode(u8) {
        /// Writes remote memory.
        Write = 0, "WRITE";
        /// Writes remote memory and completes a posted receive with immediate data.
        WriteImm = 1, "WRITE_IMM";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_at_the_documented_bytes() {
        let mut w = Wqe::zeroed();
        w.set_opcode(1).set_signaled(true).set_fence(true).set_length(0x0102_0304).set_local_va(0x1122_3344_5566_7788);
        w.set_lkey(Lkey::new(0xaabb_ccdd)).set_rkey(Rkey::new(0x5566_7788)).set_remote_va(0x99).set_imm(0xdead_beef);
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&[1, 0b101, 0, 0, 4, 3, 2, 1]);
        bytes[8..16].copy_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        bytes[16..24].copy_from_slice(&[0xdd, 0xcc, 0xbb, 0xaa, 0x88, 0x77, 0x66, 0x55]);
        bytes[24] = 0x99;
        bytes[32..36].copy_from_slice(&[0xef, 0xbe, 0xad, 0xde]);
        assert_eq!(w.0, bytes);
    }
}
