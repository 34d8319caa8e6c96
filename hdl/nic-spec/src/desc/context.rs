//! Context rows of connections, addresses, queues and paths.

use crate::{
    codes, layout,
    layout::Layout,
    num::{Dscp, Epoch, Msn, Pd, Pkey, Plane, Psn, Qpn, Rsn, StreamId},
};

/// Bytes of every context row.
pub const CTX_ROW_BYTES: usize = 64;

codes! {
    /// Context tables that the `ctx` register block writes.
    pub enum Table(u8) {
        /// Connections; row = connection index.
        Conn = 0, "conn";
        /// Addresses of the peer; row = connection index.
        Ah = 1, "ah";
        /// Queues of a connection; row = connection index.
        Sq = 2, "sq";
        /// Sending side of paths; row = connection index x paths + path.
        PathTx = 3, "path_tx";
        /// Receiving side of paths; row = connection index x paths + path.
        PathRx = 4, "path_rx";
        /// Memory regions; row = key >> 8.
        Mr = 5, "mr";
        /// Completion queues; row = completion queue number.
        Cq = 6, "cq";
    }
}

impl Table {
    /// Format of the table's rows.
    pub const fn layout(self) -> &'static Layout {
        match self {
            Table::Conn => &ConnRow::LAYOUT,
            Table::Ah => &AhRow::LAYOUT,
            Table::Sq => &SqRow::LAYOUT,
            Table::PathTx => &PathTxRow::LAYOUT,
            Table::PathRx => &PathRxRow::LAYOUT,
            Table::Mr => &super::MrRow::LAYOUT,
            Table::Cq => &CqRow::LAYOUT,
        }
    }
}

layout! {
    /// Row of the connection table. Writing it clears the connection's error.
    pub struct ConnRow[64]: little {
        /// The row is in use.
        valid / set_valid: 1 as bool,
        /// Packets travel in IPv6; otherwise in IPv4.
        ip_version / set_ip_version: 1 as bool,
        /// Reserved, zero.
        resv6 / set_resv6: 6 as u8,
        /// Id that packets to this side carry; its low bits are the row's index.
        local_id / set_local_id: 24 as Qpn,
        /// Id that packets to the peer carry.
        remote_id / set_remote_id: 24 as Qpn,
        /// Paths in use, 1..=the built number.
        path_count / set_path_count: 8 as u8,
        /// Protection domain.
        pd / set_pd: 24 as Pd,
        /// Logarithm of the largest payload of a packet. 10..=13.
        pmtu_log2 / set_pmtu_log2: 4 as u8,
        /// Reserved, zero.
        resv4 / set_resv4: 4 as u8,
        /// Partition key.
        pkey / set_pkey: 16 as Pkey,
        /// Stream of all messages.
        stream_id / set_stream_id: 16 as StreamId,
        /// First MSEQ, both ways.
        init_msn / set_init_msn: 24 as Msn,
        /// Traffic class of data packets.
        dscp / set_dscp: 6 as Dscp,
        /// Reserved, zero.
        resv2 / set_resv2: 2 as u8,
        /// First RSN, both ways.
        init_rsn / set_init_rsn: 24 as Rsn,
        /// Reserved, zero.
        resv8 / set_resv8: 8 as u8,
        /// Reserved, zero.
        resv320 / set_resv320: 320 as [u8; 40],
    }
}

layout! {
    /// Row of the address table. An address is a number whose most significant byte is sent first.
    pub struct AhRow[64]: little {
        /// MAC address of the next hop.
        dst_mac / set_dst_mac: 48 as u64,
        /// MAC address of the port.
        src_mac / set_src_mac: 48 as u64,
        /// Hop limit or time to live of sent packets.
        hop_limit / set_hop_limit: 8 as u8,
        /// Reserved, zero.
        resv24 / set_resv24: 24 as u32,
        /// IP address of the peer; IPv4 in the low 32 bits.
        dst_ip / set_dst_ip: 128 as u128,
        /// IP address of this side; IPv4 in the low 32 bits.
        src_ip / set_src_ip: 128 as u128,
        /// Reserved, zero.
        resv128 / set_resv128: 128 as [u8; 16],
    }
}

layout! {
    /// Row of the queue table: send and receive queue of a connection.
    pub struct SqRow[64]: little {
        /// The send queue is in use.
        enabled / set_enabled: 1 as bool,
        /// The receive queue is in use.
        rq_enabled / set_rq_enabled: 1 as bool,
        /// Reserved, zero.
        resv6 / set_resv6: 6 as u8,
        /// Logarithm of the number of WQEs in the send queue. 0..=15.
        log2_size / set_log2_size: 4 as u8,
        /// Logarithm of the number of entries in the receive queue. 0..=15.
        rq_log2_size / set_rq_log2_size: 4 as u8,
        /// Completion queue of the send queue.
        cq / set_cq: 12 as u16,
        /// Reserved, zero.
        resv4a / set_resv4a: 4 as u8,
        /// Completion queue of the receive queue.
        rq_cq / set_rq_cq: 12 as u16,
        /// Reserved, zero.
        resv4b / set_resv4b: 4 as u8,
        /// Reserved, zero.
        resv16 / set_resv16: 16 as u16,
        /// Address of the send queue on the bus. Multiple of 64.
        base_iova / set_base_iova: 64 as u64,
        /// Reserved, zero.
        resv384 / set_resv384: 384 as [u8; 48],
    }
}

layout! {
    /// Row of the sending path table.
    pub struct PathTxRow[64]: little {
        /// The path is in use.
        valid / set_valid: 1 as bool,
        /// Reserved, zero.
        resv7 / set_resv7: 7 as u8,
        /// Plane that the path leaves by.
        plane / set_plane: 4 as Plane,
        /// Epoch of the path's aim.
        epoch / set_epoch: 4 as Epoch,
        /// UDP source port of the path's packets.
        sport / set_sport: 16 as u16,
        /// PSEQ of the first packet.
        init_pseq / set_init_pseq: 24 as Psn,
        /// Reserved, zero.
        resv8 / set_resv8: 8 as u8,
        /// Reserved, zero.
        resv448 / set_resv448: 448 as [u8; 56],
    }
}

layout! {
    /// Row of the receiving path table.
    pub struct PathRxRow[64]: little {
        /// The path is in use.
        valid / set_valid: 1 as bool,
        /// Reserved, zero.
        resv7 / set_resv7: 7 as u8,
        /// Plane that the path's ACKs leave by.
        plane / set_plane: 4 as Plane,
        /// Epoch of the path's aim.
        epoch / set_epoch: 4 as Epoch,
        /// UDP source port of the path's ACKs.
        sport / set_sport: 16 as u16,
        /// PSEQ of the first packet.
        init_pseq / set_init_pseq: 24 as Psn,
        /// Reserved, zero.
        resv8 / set_resv8: 8 as u8,
        /// Reserved, zero.
        resv448 / set_resv448: 448 as [u8; 56],
    }
}

layout! {
    /// Row of the completion queue table.
    pub struct CqRow[64]: little {
        /// The queue is in use.
        enabled / set_enabled: 1 as bool,
        /// Reserved, zero.
        resv7a / set_resv7a: 7 as u8,
        /// Logarithm of the number of CQEs in the queue. 0..=15.
        log2_size / set_log2_size: 4 as u8,
        /// Reserved, zero.
        resv4 / set_resv4: 4 as u8,
        /// Interrupt vector.
        vector / set_vector: 8 as u8,
        /// Reserved, zero.
        resv40 / set_resv40: 40 as u64,
        /// Address of the queue on the bus. Multiple of 32.
        base_iova / set_base_iova: 64 as u64,
        /// Reserved, zero.
        resv384 / set_resv384: 384 as [u8; 48],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_four_bytes_and_more_stand_on_their_natural_borders() {
        for &table in Table::ALL {
            for f in table.layout().fields.iter().filter(|f| f.bits >= 32 && !f.is_reserved()) {
                assert_eq!(f.bit_offset % 16, 0, "{} of {table}", f.name);
            }
        }
    }

    #[test]
    fn an_address_is_a_number_in_host_order() {
        let mut ah = AhRow::zeroed();
        ah.set_dst_mac(0x0203_0405_0607).set_dst_ip(0x0a01_0002).set_src_ip(0xfe80 << 112 | 1);
        assert_eq!(ah.0[..6], [7, 6, 5, 4, 3, 2]);
        assert_eq!(ah.0[16..21], [2, 0, 1, 10, 0]);
        assert_eq!((ah.0[32], ah.0[47], ah.src_ip()), (1, 0xfe, 0xfe80 << 112 | 1));
    }

    #[test]
    fn a_connection_row_has_known_bytes() {
        let mut c = ConnRow::zeroed();
        c.set_valid(true).set_local_id(Qpn::new(0x01_0203)).set_remote_id(Qpn::new(0x04_0506)).set_path_count(4);
        c.set_pd(Pd::new(7)).set_pmtu_log2(12).set_pkey(Pkey::new(0xffff)).set_stream_id(StreamId::new(5));
        c.set_init_msn(Msn::new(9)).set_dscp(Dscp::new(0x2e)).set_init_rsn(Rsn::new(3));
        assert_eq!(c.0[..24], [1, 3, 2, 1, 6, 5, 4, 4, 7, 0, 0, 12, 0xff, 0xff, 5, 0, 9, 0, 0, 0x2e, 3, 0, 0, 0]);
    }
}
