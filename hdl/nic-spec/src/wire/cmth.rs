//! Content of the connection management packets: a fixed part, then parameters as type, length, value.

use crate::{codes, layout, num::Qpn};

/// Connection id to which requests for a connection are sent.
pub const CM_QPN: Qpn = Qpn::new(1);
/// Version of this content.
pub const CM_VERSION: u8 = 1;

layout! {
    /// Connection management header.
    pub struct Cmth[16]: big {
        /// Version of this content; 1.
        version / set_version: 8 as u8,
        /// Answer to a request: see the connection management status. 0 elsewhere.
        status / set_status: 8 as u8,
        /// What the request wants to reach; free numbers.
        service / set_service: 16 as u16,
        /// Drawn by who asked for the connection; the same in every packet about it.
        nonce / set_nonce: 64 as u64,
        /// Reserved, sent as zero.
        resv8 / set_resv8: 8 as u8,
        /// Id that the connection has, or would have, at the sender of this packet.
        conn_id / set_conn_id: 24 as Qpn,
    }
}

layout! {
    /// What begins a parameter. Types that a receiver does not know are passed over.
    pub struct CmParam[2]: big {
        /// What it is: see the connection management parameters.
        kind / set_kind: 8 as u8,
        /// Bytes that follow.
        value_len / set_value_len: 8 as u8,
    }
}

codes! {
    /// Answer to a request for a connection.
    pub enum CmStatus(u8) {
        /// Granted.
        Ok = 0, "OK";
        /// Nobody listens to the service.
        NoService = 1, "NO_SERVICE";
        /// No connection or path is free.
        NoResource = 2, "NO_RESOURCE";
        /// Another version of this content.
        BadVersion = 3, "BAD_VERSION";
        /// A parameter is missing or out of range.
        BadParam = 4, "BAD_PARAM";
    }
}

codes! {
    /// Parameters of a connection.
    pub enum CmParamKind(u8) {
        /// Logarithm of the PMTU, 1 byte; the smaller of the two sides holds.
        PmtuLog2 = 1, "PMTU_LOG2";
        /// Paths each way, 2 bytes; the smaller of the two sides holds.
        Paths = 2, "PATHS";
        /// Ids of the streams, 2 bytes each.
        Streams = 3, "STREAMS";
        /// First PSEQ of every path, first MSEQ and first RSN of every stream, 4 bytes each; both ways.
        First = 4, "FIRST";
        /// Address on a plane: plane 1, flags 1 (bit 0 = IPv6), MAC 6, IP 16 bytes.
        Address = 5, "ADDRESS";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_at_the_documented_bytes() {
        let mut h = Cmth::zeroed();
        h.set_version(1)
            .set_status(2)
            .set_service(0x0304)
            .set_nonce(0x0506_0708_090a_0b0c)
            .set_conn_id(Qpn::new(0x0e0f10));
        assert_eq!(h.0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 14, 15, 16]);
        let mut p = CmParam::zeroed();
        p.set_kind(CmParamKind::Address.code()).set_value_len(24);
        assert_eq!(p.0, [5, 24]);
    }
}
