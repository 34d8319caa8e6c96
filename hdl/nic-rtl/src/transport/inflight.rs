//! In-flight table: what was sent on each place of each path's window, and when.
//!
//! Two RAMs under one address, path row · window_pkts + PSEQ mod window_pkts: what an acknowledgement looks at (time,
//! epoch, message slot) and what a retransmission needs (the packet's description). Rows outside a path's window are
//! never read, so reset and re-opening clear nothing here.

use crate::{
    params::NicParams,
    stream::{PacketDesc, SLOT_BITS, TIME_BITS},
};
use rtl_graph::*;

record! {
    /// What an acknowledgement looks at.
    pub(super) struct SentInfo {
        /// Time of the last transmission.
        tx_ts: TIME_BITS,
        /// Epoch of the last transmission.
        epoch: 4,
        msg_slot: SLOT_BITS,
    }
}

/// The table; one write and one read of each RAM a cycle.
pub(super) struct InFlight<'a> {
    infos: Mem<'a>,
    descs: Mem<'a>,
}

impl<'a> InFlight<'a> {
    pub(super) fn new(b: &'a B, p: &NicParams) -> Self {
        let depth = u64::from(p.rows()) * u64::from(p.window_pkts);
        let mem = |name: &str, width| b.mem(name, depth, width).style(RamStyle::Ultra);
        InFlight {
            infos: mem("in_flight_infos", SentInfo::width()),
            descs: mem("in_flight_descs", PacketDesc::width()),
        }
    }

    /// Place of a packet.
    pub(super) fn address(p: &NicParams, row: S<'a>, pseq: S<'a>) -> S<'a> {
        row.cat(pseq.trunc(p.window_bits()))
    }

    /// Notes a transmission.
    pub(super) fn write_info(&self, en: S<'a>, address: S<'a>, info: &SentInfo<'a>) {
        self.infos.write(en, address, info.pack());
    }

    /// Keeps a packet's description, at its first transmission.
    pub(super) fn write_desc(&self, en: S<'a>, address: S<'a>, desc: S<'a>) {
        self.descs.write(en, address, desc);
    }

    /// Info one cycle later, held while `en` is 0.
    pub(super) fn read_info(&self, en: S<'a>, address: S<'a>) -> SentInfo<'a> {
        SentInfo::unpack(self.infos.read_en(en, address))
    }

    /// Description one cycle later.
    pub(super) fn read_desc(&self, address: S<'a>) -> S<'a> {
        self.descs.read(address)
    }
}
