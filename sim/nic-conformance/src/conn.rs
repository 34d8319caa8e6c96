//! A connection as the peer sees it: packets to the card, and answers to the card's packets.

use crate::kit::{Sent, VA};
use crate::packet::Packet;
use crate::setup::{ConnConfig, ConnId};
use nic_spec::consts::{RATE_HINT_UNLIMITED, SYNDROME_ACK};
use nic_spec::num::{Epoch, Msn, PathId, Plane, Psn, Rkey, Rsn};
use nic_spec::wire::{AtomicOp, Opcode};

/// A connection.
#[derive(Clone, Debug)]
pub struct Conn {
    /// Its name on the bench.
    pub id: ConnId,
    /// As it was opened.
    pub cfg: ConnConfig,
    /// Key of the case's region.
    pub key: u32,
}

impl Conn {
    /// Its first stream.
    pub fn stream(&self) -> u16 {
        self.cfg.streams.first().map_or(1, |s| s.id)
    }

    /// An empty packet to the card on path 0.
    pub fn packet(&self, opcode: Opcode) -> Packet {
        self.packet_on(opcode, 0)
    }

    /// An empty packet to the card on a path.
    pub fn packet_on(&self, opcode: Opcode, path: u8) -> Packet {
        let row = self.cfg.rx_paths.get(usize::from(path)).copied();
        let plane = row.map_or(0, |p| p.plane);
        let (card, peer) = self.cfg.addresses[usize::from(plane)];
        let mut p = Packet::new(opcode, peer, card, self.cfg.is_ipv6, self.cfg.local_id);
        p.bth.set_pkey(self.cfg.pkey);
        p.sport = 0xe000 + u16::from(path);
        p.pxth.set_epoch(Epoch::new(row.map_or(0, |p| p.epoch)));
        let stream = if opcode.info().is_sequenced { self.stream() } else { 0 };
        p.path(path).plane(plane).stream(stream).ts(0x1234_5678)
    }

    fn message(&self, opcode: Opcode, pseq: u32) -> Packet {
        let mseq = Msn::new(pseq);
        self.packet(opcode).pseq(pseq).with_mxth(|h| _ = h.set_first(true).set_last(true).set_mseq(mseq))
    }

    /// A WRITE of one packet to `offset` of the region; its message has the number of the packet.
    pub fn write(&self, pseq: u32, offset: u64, bytes: &[u8]) -> Packet {
        self.message(Opcode::Write, pseq).va(VA + offset).rkey(self.key).dma_len(bytes.len() as u32).payload(bytes)
    }

    /// A WRITE of one packet with immediate data that takes receive `rsn`.
    pub fn write_imm(&self, pseq: u32, offset: u64, bytes: &[u8], rsn: u32, imm: u32) -> Packet {
        self.write(pseq, offset, bytes).rsn(rsn).imm(imm)
    }

    /// A WRITE in packets of `pmtu` bytes, numbered from `pseq` on, whose message has number `mseq`.
    pub fn write_many(&self, pseq: u32, mseq: u32, offset: u64, bytes: &[u8], pmtu: usize) -> Vec<Packet> {
        let pieces: Vec<&[u8]> = bytes.chunks(pmtu).collect();
        let packet = |(i, piece): (usize, &&[u8])| {
            let p = self.write(pseq + i as u32, offset + (i * pmtu) as u64, piece).mseq(mseq);
            let p = p.dma_len(bytes.len() as u32);
            p.with_mxth(|h| _ = h.set_first(i == 0).set_last(i + 1 == pieces.len()))
        };
        pieces.iter().enumerate().map(packet).collect()
    }

    /// A SEND of one packet; its message and its receive have the number of the packet.
    pub fn send(&self, pseq: u32, bytes: &[u8]) -> Packet {
        let rsn = Rsn::new(pseq);
        let p = self.message(Opcode::Send, pseq).with_mxth(|h| _ = h.set_rsn(rsn));
        p.msg_len(bytes.len() as u32).payload(bytes)
    }

    /// A SEND in packets of `pmtu` bytes, numbered from `pseq` on; its message and its receive have number `mseq`.
    pub fn send_many(&self, pseq: u32, mseq: u32, bytes: &[u8], pmtu: usize) -> Vec<Packet> {
        let pieces: Vec<&[u8]> = bytes.chunks(pmtu).collect();
        let packet = |(i, piece): (usize, &&[u8])| {
            let p = self.send(pseq + i as u32, piece).mseq(mseq).rsn(mseq);
            let p = p.offset((i * pmtu) as u32).msg_len(bytes.len() as u32);
            p.with_mxth(|h| _ = h.set_first(i == 0).set_last(i + 1 == pieces.len()))
        };
        pieces.iter().enumerate().map(packet).collect()
    }

    /// A READ_REQ for `len` bytes at `offset` of the region; its message has the number of the packet.
    pub fn read(&self, pseq: u32, read_id: u16, offset: u64, len: u32) -> Packet {
        let p = self.message(Opcode::ReadReq, pseq).va(VA + offset).rkey(self.key).dma_len(len);
        p.with_rrth(|h| _ = h.set_read_id(read_id).set_len(len))
    }

    /// An ATOMIC_REQ on 8 bytes at `offset` of the region; its message has the number of the packet.
    pub fn atomic(&self, pseq: u32, id: u16, offset: u64, op: AtomicOp, swap_add: u64, compare: u64) -> Packet {
        let key = Rkey::new(self.key);
        let p = self.message(Opcode::AtomicReq, pseq).with_atag(|h| _ = h.set_atomic_id(id).set_op(op.code()));
        p.with_atomiceth(|h| _ = h.set_va(VA + offset).set_rkey(key).set_swap_add(swap_add).set_compare(compare))
    }

    /// A FLUSH of `len` bytes at `offset` of the region; its message has the number of the packet.
    pub fn flush(&self, pseq: u32, offset: u64, len: u32) -> Packet {
        self.message(Opcode::Flush, pseq).va(VA + offset).rkey(self.key).dma_len(len)
    }

    /// Part of the answer to a read of the card.
    pub fn read_rsp(&self, pseq: u32, read_id: u16, offset: u32, len: u32, bytes: &[u8]) -> Packet {
        let p = self.packet(Opcode::ReadRsp).pseq(pseq);
        p.with_rrth(|h| _ = h.set_read_id(read_id).set_offset(offset).set_len(len)).payload(bytes)
    }

    /// The answer to an atomic operation of the card.
    pub fn atomic_rsp(&self, pseq: u32, id: u16, op: AtomicOp, orig: u64) -> Packet {
        let p = self.packet(Opcode::AtomicRsp).pseq(pseq).with_atag(|h| _ = h.set_atomic_id(id).set_op(op.code()));
        p.with_atomicack(|h| _ = h.set_orig(orig))
    }

    /// An acknowledgement of everything up to `sent` on its path, triggered by it, with an unlimited hint.
    pub fn ack(&self, sent: &Sent) -> Packet {
        self.answer(sent, Opcode::Ack)
    }

    /// The answer to a probe: everything before the number that it states is received.
    pub fn probe_rsp(&self, probe: &Sent) -> Packet {
        let nxt = probe.pbth().map_or(0, |h| h.snd_nxt().get());
        self.answer(probe, Opcode::ProbeRsp).cum(nxt.wrapping_sub(1)).trig(nxt.wrapping_sub(1))
    }

    fn answer(&self, sent: &Sent, opcode: Opcode) -> Packet {
        let (pseq, path) = (sent.bth.pseq(), sent.pxth.path_id());
        let (plane, epoch, ts) = (sent.pxth.plane(), sent.pxth.epoch(), sent.pxth.tx_ts());
        self.reply(opcode, path, plane, epoch, ts).cum(pseq.get()).trig(pseq.get()).hint(0, RATE_HINT_UNLIMITED)
    }

    fn reply(&self, opcode: Opcode, path: PathId, plane: Plane, epoch: Epoch, ts: u32) -> Packet {
        let p = self.packet_on(opcode, 0).with_axth(|h| {
            _ = h.set_apath(path).set_plane(plane).set_epoch(epoch).set_syndrome(SYNDROME_ACK).set_ts_echo(ts);
        });
        // By the port at which the packet left.
        let (card, peer) = self.cfg.addresses[usize::from(plane.get()).min(self.cfg.addresses.len() - 1)];
        Packet { src: peer, dst: card, ..p }.plane(plane.get()).path(path.get())
    }

    /// A probe of path 0.
    pub fn probe(&self, snd_nxt: u32, cookie: u32) -> Packet {
        self.packet(Opcode::ProbeReq).with_pbth(|h| _ = h.set_snd_nxt(Psn::new(snd_nxt)).set_cookie(cookie))
    }
}
