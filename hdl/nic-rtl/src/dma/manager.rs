//! The card's AXI4 manager: the read half and the write half on one set of pins.
//!
//! Ports, latency, throughput, reset and drops are those of [`DmaRead`](super::read) and [`DmaWrite`](super::write); the
//! two share nothing. `count` 0 is of the reads, 1 of the writes.

use super::{
    axi4::Axi4,
    read::{self, DmaRead},
    write::{self, CqeWrite, DmaWrite, WriteDone},
};
use crate::stream::{Beat, Count, DmaRead as DmaReadRequest, PlaceInfo, PlaceRequest, ReadBeat};
use nic_spec::csr::stats::Counter;
use rtl_graph::*;

/// Counters that each of the ports `count` can name.
pub const COUNTS: [&[Counter]; 2] = [read::COUNTS, write::COUNTS];

module! {
    /// Both halves.
    pub struct BusManager = "nic_dma_manager" (burst_beats: u32) {
        wqe: in Stream<DmaReadRequest>,
        wqe_data: out Stream<ReadBeat>,
        payload: in Stream<DmaReadRequest>,
        payload_data: out Stream<ReadBeat>,
        place: in Stream<PlaceRequest>,
        place_data: in Stream<Beat>,
        place_info: in Stream<PlaceInfo>,
        placed: out Stream<PlaceInfo>,
        cqe: in Stream<CqeWrite>,
        cqe_done: out Stream<WriteDone>,
        axi: out Axi4,
        count: out Count [2],
    } |b| {
        let read = DmaRead::at(b, "read", burst_beats);
        b.connect(&wqe, &read.wqe);
        b.connect(&read.wqe_data, &wqe_data);
        b.connect(&payload, &read.payload);
        b.connect(&read.payload_data, &payload_data);
        b.connect(&read.count, &count[0]);
        let write = DmaWrite::at(b, "write", burst_beats);
        b.connect(&place, &write.place);
        b.connect(&place_data, &write.place_data);
        b.connect(&place_info, &write.place_info);
        b.connect(&write.placed, &placed);
        b.connect(&cqe, &write.cqe);
        b.connect(&write.cqe_done, &cqe_done);
        b.connect(&write.count, &count[1]);
        half(&read.axi, &axi);
        half(&write.axi, &axi);
    }
}

/// Connects the channels of one half to the pins of the same names.
fn half<'a, P: Bundle<'a>>(channels: &P, pins: &Axi4<'a>) {
    for field in channels.layout_of().fields {
        let (ours, pin) = (channels.field(&field.name), pins.field(&field.name));
        if field.is_reverse {
            ours.set(pin);
        } else {
            pin.set(ours);
        }
    }
}
