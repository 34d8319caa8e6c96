//! Completion queue entry: what became of an operation.

use crate::{codes, layout, num::Qpn};

layout! {
    /// Completion queue entry. Its last byte is written last, so a right phase means a whole entry.
    pub struct Cqe[32]: little {
        /// Connection that completes.
        qpn / set_qpn: 24 as Qpn,
        /// What completes: see the CQE opcodes. WRITE for a WQE of unknown opcode or flushed unread.
        opcode / set_opcode: 8 as u8,
        /// How it ended: see the status codes.
        status / set_status: 8 as u8,
        /// The immediate data are valid.
        imm_valid / set_imm_valid: 1 as bool,
        /// The sender asked for a solicited event.
        solicited / set_solicited: 1 as bool,
        /// Reserved, zero.
        resv6 / set_resv6: 6 as u8,
        /// Index of the WQE in its queue (send), or ordinal of the posted receive (receive), modulo 2^16.
        wqe_index / set_wqe_index: 16 as u16,
        /// Length of the message. Bytes.
        byte_len / set_byte_len: 32 as u32,
        /// Immediate data.
        imm / set_imm: 32 as u32,
        /// Reserved, zero.
        resv120 / set_resv120: 120 as [u8; 15],
        /// Alternates each time around the ring; 1 on the first round.
        phase / set_phase: 1 as bool,
        /// Reserved, zero.
        resv7 / set_resv7: 7 as u8,
    }
}

codes! {
    /// What a CQE reports.
    pub enum CqeOpcode(u8) {
        /// A WRITE of this side.
        Write = 0x00, "WRITE";
        /// A WRITE with immediate of this side.
        WriteImm = 0x01, "WRITE_IMM";
        /// A WRITE with immediate of the peer.
        RecvImm = 0x80, "RECV_IMM";
    }
}

codes! {
    /// How an operation ended.
    pub enum Status(u8) {
        /// Done.
        Ok = 0, "OK";
        /// Local length error: the message is too long.
        LocLen = 1, "LOC_LEN";
        /// Local operation error: unknown opcode or reserved field not zero.
        LocQpOp = 2, "LOC_QP_OP";
        /// Local protection error: key, domain or range of the local memory.
        LocProt = 3, "LOC_PROT";
        /// Flushed because the connection is in error.
        WrFlush = 4, "WR_FLUSH";
        /// Remote access error: key, domain, range or permission of the remote memory.
        RemAccess = 5, "REM_ACCESS";
        /// The remote side found the request invalid.
        RemInvReq = 6, "REM_INV_REQ";
        /// The remote side could not carry out the request.
        RemOp = 7, "REM_OP";
        /// No acknowledgement after all retries.
        RetryExc = 8, "RETRY_EXC";
        /// The receiver was not ready after all retries.
        RnrRetryExc = 9, "RNR_RETRY_EXC";
        /// Host memory answered a local access with an error.
        LocDma = 10, "LOC_DMA";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_at_the_documented_bytes() {
        let mut c = Cqe::zeroed();
        c.set_qpn(Qpn::new(0x12_3456)).set_opcode(0x80).set_status(3).set_imm_valid(true).set_solicited(true);
        c.set_wqe_index(0xabcd).set_byte_len(0x0102_0304).set_imm(0x1122_3344).set_phase(true);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&[0x56, 0x34, 0x12, 0x80, 3, 3, 0xcd, 0xab]);
        bytes[8..16].copy_from_slice(&[4, 3, 2, 1, 0x44, 0x33, 0x22, 0x11]);
        bytes[31] = 1;
        assert_eq!(c.0, bytes);
    }
}
