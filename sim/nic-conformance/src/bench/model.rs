//! The golden model on a bench: its ports serialise at line rate, time goes from event to event.

use crate::dut::{Bench, Buffer, Caps, CardParams, Dut, Nanos, Region, SentFrame};
use crate::failure::{Failure, Outcome};
use crate::setup::{Address, Algorithm, ConnConfig, ConnId, Cqe, Event, PathConfig, RecvWr, SendWr, StreamConfig};
use nic_model::config::{NicConfig, PlaneConfig, TransportConfig};
use nic_model::conn_config as model;
use nic_model::memory::{Fault, HostMemory};
use nic_model::mr::Mr;
use nic_model::time::{Time, NS_PS};
use nic_model::transport::cc::{CongestionControl, Dctcp, Delay};
use nic_model::wire::frame::{Frame, Payload};
use nic_model::Nic;
use nic_spec::csr::stats::Counter;
use nic_spec::num::Rkey;
use std::collections::VecDeque;
use std::sync::Arc;

const PORTS: usize = 2;
const RATE_MBPS: u64 = 400_000;
/// Preamble, FCS and gap of a frame, bytes.
const WIRE_OVERHEAD: u64 = 24;
/// Bus address of buffer number 0; each buffer has this much room.
const BUFFER_ROOM: u64 = 1 << 32;

/// The bench of the golden model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelBench;

impl Bench for ModelBench {
    fn name(&self) -> &'static str {
        "model"
    }

    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn open(&self) -> Outcome<Box<dyn Dut>> {
        Ok(Box::new(ModelDut::new(&CardParams::default())))
    }
}

/// Host memory: buffers that may fault.
#[derive(Debug, Default)]
struct Memory {
    buffers: Vec<(Vec<u8>, bool)>,
}

impl Memory {
    fn range(&mut self, iova: u64, len_bytes: u32) -> Result<&mut [u8], Fault> {
        let fault = Fault { iova, len_bytes };
        let id = (iova / BUFFER_ROOM).checked_sub(1).ok_or(fault)? as usize;
        let from = (iova % BUFFER_ROOM) as usize;
        let (bytes, is_faulty) = self.buffers.get_mut(id).ok_or(fault)?;
        if *is_faulty {
            return Err(fault);
        }
        bytes.get_mut(from..from + len_bytes as usize).ok_or(fault)
    }
}

impl HostMemory for Memory {
    fn read(&mut self, iova: u64, len_bytes: u32) -> Result<Payload, Fault> {
        self.range(iova, len_bytes).map(|bytes| Payload::from_bytes(bytes))
    }

    fn write(&mut self, iova: u64, data: &Payload) -> Result<(), Fault> {
        let range = self.range(iova, data.len_bytes())?;
        range.copy_from_slice(data.bytes().unwrap_or(&vec![0; data.len_bytes() as usize]));
        Ok(())
    }
}

/// A model card.
struct ModelDut {
    nic: Nic,
    memory: Memory,
    now: Time,
    free_at: [Time; PORTS],
    sent: VecDeque<SentFrame>,
}

fn mac(port: usize) -> u64 {
    0x0200_0000_0100 | port as u64
}

fn wire_ps(len_bytes: usize) -> u64 {
    // bits / Mb/s = µs.
    8 * (len_bytes.max(60) as u64 + WIRE_OVERHEAD) * 1_000_000 / RATE_MBPS
}

/// What the case asked for in the model's words; what it did not mention has the model's default.
fn configuration(c: &ConnConfig) -> model::ConnConfig {
    let path = |p: &PathConfig| model::PathConfig { plane: p.plane, sport: p.sport, epoch: p.epoch, first: p.first };
    let stream = |s: &StreamConfig| model::StreamConfig {
        id: s.id,
        first_msn: s.first_msn,
        first_rsn: s.first_rsn,
        sq_cq: s.sq_cq,
        rq_cq: s.rq_cq,
        peer_limit: s.peer_limit,
        is_unordered: s.is_unordered,
    };
    let cc: Arc<dyn CongestionControl> = match c.cc {
        Algorithm::Marks => Arc::new(Dctcp::default()),
        Algorithm::Delay => Arc::new(Delay::default()),
    };
    let t = &c.transport;
    model::ConnConfig {
        pd: c.pd,
        pkey: c.pkey,
        pmtu_log2: c.pmtu_log2,
        dscp: c.dscp,
        dscp_control: c.dscp_control,
        is_ipv6: c.is_ipv6,
        addresses: c.addresses.clone(),
        tx_paths: c.tx_paths.iter().map(path).collect(),
        rx_paths: c.rx_paths.iter().map(path).collect(),
        streams: c.streams.iter().map(stream).collect(),
        transport: TransportConfig {
            path_init_pkts: t.path_init_pkts,
            conn_init_pkts: t.conn_init_pkts,
            conn_ramp_pkts: t.conn_ramp_pkts,
            conn_window_min_pkts: t.conn_window_min_pkts,
            ack_packets: t.ack_packets,
            ack_delay_ps: t.ack_delay_ps,
            rto_init_ps: t.rto_init_ps,
            rto_min_ps: t.rto_min_ps,
            retry_limit: t.retry_limit,
            tlp_limit: t.tlp_limit,
            nak_interval_ps: t.nak_interval_ps,
            rnr_ps: t.rnr_ps,
            rnr_retry_limit: t.rnr_retry_limit,
            bootstrap: t.bootstrap,
            paths_min: t.paths_min,
            paths_max: t.paths_max,
            idle_redundancy: t.idle_redundancy,
            tail_marker: t.tail_marker,
            ..TransportConfig::default()
        },
        cc,
        hint_weight: c.hint_weight,
        ..model::ConnConfig::new(c.local_id, c.remote_id)
    }
}

impl ModelDut {
    fn new(params: &CardParams) -> Self {
        let mut cfg = NicConfig::new((0..PORTS).map(|p| PlaneConfig { mac: mac(p), rate_mbps: RATE_MBPS }).collect());
        cfg.promiscuous = params.promiscuous;
        cfg.cq_depth = params.cq_depth.unwrap_or(cfg.cq_depth);
        Self {
            nic: Nic::new(cfg),
            memory: Memory::default(),
            now: Time(NS_PS * 1_000),
            free_at: [Time::ZERO; PORTS],
            sent: VecDeque::new(),
        }
    }

    /// Asks every free port until none has a frame.
    fn pump(&mut self) {
        loop {
            let mut any = false;
            for port in 0..PORTS {
                if self.free_at[port] > self.now {
                    continue;
                }
                let Some(frame) = self.nic.poll_transmit(self.now, port as u8, &mut self.memory) else { continue };
                let bytes = frame.to_bytes();
                self.free_at[port] = self.now.after_ps(wire_ps(bytes.len()));
                self.sent.push_back(SentFrame { at: self.now(), port: port as u8, bytes });
                any = true;
            }
            if !any {
                return;
            }
        }
    }

    /// Goes to the next event at or before `end`; false when there is none, and then `end` is now.
    fn step(&mut self, end: Time) -> bool {
        self.pump();
        let ports = self.free_at.iter().copied().filter(|at| *at > self.now);
        let next = ports.chain(self.nic.next_timer()).min().filter(|at| *at <= end);
        self.now = self.now.max(next.unwrap_or(end));
        if self.nic.next_timer().is_some_and(|at| at <= self.now) {
            self.nic.on_timer(self.now);
        }
        self.pump();
        next.is_some()
    }

    fn run_to(&mut self, end: Time) {
        while self.step(end) {}
    }

    fn bytes(&mut self, buffer: Buffer, offset: usize, len: usize) -> Outcome<&mut [u8]> {
        let (bytes, _) = self.memory.buffers.get_mut(buffer.id).ok_or_else(|| Failure::new("no such buffer"))?;
        bytes.get_mut(offset..offset + len).ok_or_else(|| Failure::new(format!("{offset}+{len} of {buffer:?}")))
    }
}

impl Dut for ModelDut {
    fn configure(&mut self, params: &CardParams) -> Outcome {
        *self = Self::new(params);
        Ok(())
    }

    fn addresses(&self, is_ipv6: bool) -> Vec<Address> {
        let ip = |p: usize| {
            if is_ipv6 {
                0xfd00_0000 << 96 | (p as u128) << 16 | 1
            } else {
                0x0a00_0001 | (p as u128) << 16
            }
        };
        (0..PORTS).map(|p| Address { mac: mac(p), ip: ip(p) }).collect()
    }

    fn rate_mbps(&self) -> u64 {
        PORTS as u64 * RATE_MBPS
    }

    fn slack(&self) -> Nanos {
        0
    }

    fn now(&self) -> Nanos {
        self.now.0 / NS_PS
    }

    fn advance(&mut self, by: Nanos) -> Outcome {
        self.run_to(self.now.after_ps(by * NS_PS));
        Ok(())
    }

    fn allocate(&mut self, len: usize) -> Outcome<Buffer> {
        self.memory.buffers.push((vec![0; len], false));
        Ok(Buffer { id: self.memory.buffers.len() - 1, len })
    }

    fn register(&mut self, r: &Region) -> Outcome<u32> {
        let iova = (r.buffer.id as u64 + 1) * BUFFER_ROOM + r.offset as u64;
        let mr = Mr { key: r.key, pd: r.pd, access: r.access, va: r.va, len: r.len as u64, iova };
        Ok(self.nic.mrs().register(mr).get())
    }

    fn deregister(&mut self, key: u32) -> Outcome {
        match self.nic.mrs().invalidate(Rkey::new(key), None) {
            true => Ok(()),
            false => Err(Failure::new(format!("no region has key {key:#x}"))),
        }
    }

    fn read(&mut self, buffer: Buffer, offset: usize, len: usize) -> Outcome<Vec<u8>> {
        self.bytes(buffer, offset, len).map(|bytes| bytes.to_vec())
    }

    fn write(&mut self, buffer: Buffer, offset: usize, bytes: &[u8]) -> Outcome {
        self.bytes(buffer, offset, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn set_fault(&mut self, buffer: Buffer, on: bool) -> Outcome {
        let row = self.memory.buffers.get_mut(buffer.id).ok_or_else(|| Failure::new("no such buffer"))?;
        row.1 = on;
        Ok(())
    }

    fn open(&mut self, cfg: &ConnConfig) -> Outcome<ConnId> {
        self.nic.open_connection(self.now, configuration(cfg)).map_err(Failure::new)
    }

    fn connect(&mut self, service: u16, cfg: &ConnConfig) -> Outcome<ConnId> {
        let id = self.nic.connect(self.now, service, configuration(cfg)).map_err(Failure::new)?;
        self.pump();
        Ok(id)
    }

    fn listen(&mut self, service: u16, template: &ConnConfig, paths_max: u16) -> Outcome {
        self.nic.listen(service, configuration(template), paths_max);
        Ok(())
    }

    fn close_path(&mut self, conn: ConnId, path: u8) -> Outcome<bool> {
        let is_closed = self.nic.close_path(self.now, conn, path);
        self.pump();
        Ok(is_closed)
    }

    fn disconnect(&mut self, conn: ConnId) -> Outcome {
        self.nic.disconnect(self.now, conn);
        self.pump();
        Ok(())
    }

    fn event(&mut self) -> Outcome<Option<Event>> {
        Ok(self.nic.poll_event())
    }

    fn post_send(&mut self, conn: ConnId, stream: u16, wr: SendWr) -> Outcome {
        self.nic.post_send(self.now, conn, stream, wr).map_err(Failure::new)?;
        self.pump();
        Ok(())
    }

    fn post_recv(&mut self, conn: ConnId, stream: u16, wr: RecvWr) -> Outcome {
        self.nic.post_recv(self.now, conn, stream, wr).map_err(Failure::new)?;
        self.pump();
        Ok(())
    }

    fn poll(&mut self, cq: u32) -> Outcome<Option<Cqe>> {
        Ok(self.nic.poll_completion(cq))
    }

    fn inject(&mut self, port: u8, frame: &[u8]) -> Outcome {
        self.run_to(self.now.after_ps(wire_ps(frame.len())));
        self.nic.on_frame(self.now, port, &Frame::from_bytes(frame), &mut self.memory);
        self.pump();
        Ok(())
    }

    fn inject_damaged(&mut self, _port: u8, frame: &[u8]) -> Outcome {
        self.run_to(self.now.after_ps(wire_ps(frame.len())));
        self.nic.on_damaged_frame();
        self.pump();
        Ok(())
    }

    fn next_frame(&mut self, within: Nanos) -> Outcome<Option<SentFrame>> {
        let end = self.now.after_ps(within * NS_PS);
        while self.sent.is_empty() && self.step(end) {}
        Ok(self.sent.pop_front())
    }

    fn set_link(&mut self, port: u8, is_up: bool) -> Outcome {
        self.nic.set_link(self.now, port, is_up);
        self.pump();
        Ok(())
    }

    fn counter(&mut self, counter: Counter) -> Outcome<u64> {
        Ok(self.nic.counters().get(counter))
    }
}
