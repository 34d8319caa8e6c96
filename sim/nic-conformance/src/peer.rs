//! A peer that receives as the text requires, for cases whose claim is about a whole transfer.
//!
//! It keeps the state of each path, answers every packet after a round trip, and checks what a sender must observe in
//! each packet it sees: windows, and that a retransmission repeats its packet. What gets lost on the way the case decides.

use crate::conn::Conn;
use crate::dut::Nanos;
use crate::failure::{check, equal, Failure, Outcome};
use crate::kit::{Kit, Sent, LEN, PEER_VA};
use crate::packet::Packet;
use crate::setup::Cqe;
use nic_spec::wire::Opcode;
use std::collections::{BTreeMap, BTreeSet};

/// What happens to a packet of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives and is answered.
    Pass,
    /// It is lost.
    Lose,
    /// It arrives; its answer is lost.
    LoseAnswer,
    /// It arrives marked.
    Mark,
}

/// A path as its receiver knows it.
#[derive(Clone, Debug, Default)]
struct RxPath {
    cum: u32,
    /// What is received beyond `cum`.
    beyond: BTreeSet<u32>,
    ce_cnt: u16,
    /// First transmissions may have gone by unseen.
    is_late: bool,
    /// First transmission of each packet.
    seen: BTreeMap<u32, Packet>,
}

/// The peer.
pub struct Peer {
    conn: Conn,
    /// Time from a packet to its answer.
    pub rtt: Nanos,
    /// Its memory, from [`PEER_VA`] on.
    pub memory: Vec<u8>,
    /// Bytes of the answers to its reads, by read.
    pub answers: BTreeMap<u16, BTreeMap<u32, Vec<u8>>>,
    /// Results of its atomic operations.
    pub results: BTreeMap<u16, u64>,
    paths: BTreeMap<u8, RxPath>,
    due: BTreeMap<(Nanos, usize), Packet>,
    count: usize,
    /// Packets seen, in order.
    pub log: Vec<Sent>,
}

const MASK: u32 = 0xff_ffff;

impl Peer {
    /// A peer of `conn` with a round trip.
    pub fn new(conn: &Conn, rtt: Nanos) -> Self {
        let path = |first: u32| RxPath { cum: first.wrapping_sub(1) & MASK, ..RxPath::default() };
        let rows = conn.cfg.tx_paths.iter().enumerate();
        Self {
            conn: conn.clone(),
            rtt,
            memory: vec![0; LEN],
            answers: BTreeMap::new(),
            results: BTreeMap::new(),
            paths: rows.map(|(i, p)| (i as u8, path(p.first.get()))).collect(),
            due: BTreeMap::new(),
            count: 0,
            log: Vec::new(),
        }
    }

    /// Packets of `path` up to `cum` had arrived before; what was sent since may be seen as retransmissions only.
    pub fn knows(&mut self, path: u8, cum: u32) {
        if let Some(row) = self.paths.get_mut(&path) {
            (row.cum, row.is_late) = (cum, true);
        }
    }

    /// Serves the card until `done` or for at most `limit`. `fate` is asked for each packet of the card but
    /// acknowledgements, with its number.
    pub fn serve(
        &mut self,
        k: &mut Kit<'_>,
        limit: Nanos,
        mut fate: impl FnMut(&Sent, usize) -> Fate,
        mut done: impl FnMut(&mut Kit<'_>, &Self) -> Outcome<bool>,
    ) -> Outcome {
        let end = k.dut.now() + limit;
        loop {
            let now = k.dut.now();
            while let Some((key, packet)) = self.due.first_key_value().map(|(k, p)| (*k, p.clone())) {
                if key.0 > now {
                    break;
                }
                self.due.remove(&key);
                k.inject(&packet)?;
            }
            if done(k, self)? {
                return Ok(());
            }
            let now = k.dut.now();
            check(now < end, format!("the transfer did not end within {limit} ns"))?;
            let until = self.due.first_key_value().map_or(end, |(key, _)| key.0).clamp(now, end);
            if let Some(sent) = k.next(until - now)? {
                self.take(sent, &mut fate)?;
            }
        }
    }

    /// Serves the card until it has reported `count` completions on queue 0.
    pub fn complete(
        &mut self,
        k: &mut Kit<'_>,
        count: usize,
        limit: Nanos,
        fate: impl FnMut(&Sent, usize) -> Fate,
    ) -> Outcome<Vec<Cqe>> {
        let mut all = Vec::new();
        self.serve(k, limit, fate, |k, _| {
            while let Some(cqe) = k.dut.poll(0)? {
                all.push(cqe);
            }
            Ok(all.len() >= count)
        })?;
        Ok(all)
    }

    fn take(&mut self, sent: Sent, fate: &mut impl FnMut(&Sent, usize) -> Fate) -> Outcome {
        if sent.axth().is_some() || matches!(sent.opcode, Opcode::PortStatus | Opcode::PathCtl) {
            self.log.push(sent);
            return Ok(());
        }
        let fate = fate(&sent, self.count);
        self.count += 1;
        let path = sent.pxth.path_id().get();
        let is_stray = fate == Fate::Lose && sent.opcode == Opcode::ProbeReq;
        if is_stray {
            self.log.push(sent);
            return Ok(());
        }
        let row = self.paths.get_mut(&path).ok_or_else(|| Failure::new(format!("P-001: path {path} is not open")))?;
        let is_probe = sent.opcode == Opcode::ProbeReq;
        check(is_probe || sent.opcode.info().is_sequenced, format!("the peer cannot answer {:?}", sent.opcode))?;
        let pseq =
            if is_probe { sent.pbth().map_or(0, |h| h.snd_nxt().get()).wrapping_sub(1) } else { sent.bth.pseq().get() };
        let mut dup = false;
        if !is_probe {
            row.check_copy(&sent)?;
        }
        if fate == Fate::Lose {
            self.log.push(sent);
            return Ok(());
        }
        if !is_probe {
            dup = !row.receive(pseq)?;
        }
        row.ce_cnt = row.ce_cnt.wrapping_add(u16::from(fate == Fate::Mark));
        let (cum, ce_cnt) = (row.cum, row.ce_cnt);
        let bits: Vec<u32> = row.beyond.iter().map(|n| n.wrapping_sub(cum + 1) & MASK).collect();
        if !is_probe && !dup {
            self.place(&sent)?;
        }
        let mut answer = if is_probe { self.conn.probe_rsp(&sent) } else { self.conn.ack(&sent) };
        answer = answer.cum(cum).trig(pseq & MASK).ce_cnt(ce_cnt);
        answer = answer.with_axth(|h| _ = h.set_dup(dup).set_rtxe(sent.bth.rtx()).set_ce(fate == Fate::Mark));
        if !bits.is_empty() {
            answer = answer.sack(&bits);
        }
        if fate != Fate::LoseAnswer {
            self.due.insert((sent.at + self.rtt, self.count), answer);
        }
        self.log.push(sent);
        Ok(())
    }

    /// Puts the content where it belongs.
    fn place(&mut self, sent: &Sent) -> Outcome {
        match sent.opcode {
            Opcode::Write => {
                let va = sent.reth().map_or(0, |h| h.va());
                let at = va.wrapping_sub(PEER_VA) as usize;
                let end = at.checked_add(sent.payload.len()).filter(|end| *end <= self.memory.len());
                let end = end.ok_or_else(|| Failure::new(format!("M-003: a WRITE to {va:#x}")))?;
                self.memory[at..end].copy_from_slice(&sent.payload);
            }
            Opcode::ReadRsp => {
                let Some(h) = sent.rrth() else { return Ok(()) };
                self.answers.entry(h.read_id()).or_default().insert(h.offset(), sent.payload.clone());
            }
            Opcode::AtomicRsp => {
                let (id, orig) = (sent.atag().map(|h| h.atomic_id()), sent.atomicack().map(|h| h.orig()));
                if let (Some(id), Some(orig)) = (id, orig) {
                    self.results.insert(id, orig);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The bytes of the answer to a read.
    pub fn answer(&self, read_id: u16) -> Vec<u8> {
        self.answers.get(&read_id).map(|parts| parts.values().flatten().copied().collect()).unwrap_or_default()
    }

    /// Sequenced packets seen that were retransmissions.
    pub fn retransmissions(&self) -> usize {
        self.log.iter().filter(|s| s.bth.rtx()).count()
    }
}

impl RxPath {
    /// A retransmission repeats headers and payload (P-004); a first transmission has a number of its own.
    fn check_copy(&mut self, sent: &Sent) -> Outcome {
        let pseq = sent.bth.pseq().get();
        let Some(first) = self.seen.get(&pseq) else {
            check(self.is_late || !sent.bth.rtx(), format!("P-004: RTX in the first transmission of {pseq}"))?;
            self.seen.insert(pseq, sent.packet.clone());
            return Ok(());
        };
        check(sent.bth.rtx(), format!("P-004: no RTX in a retransmission of {pseq}"))?;
        same_packet(first, &sent.packet)
    }

    /// Notes `pseq`; false when it was there already.
    fn receive(&mut self, pseq: u32) -> Outcome<bool> {
        let ahead = pseq.wrapping_sub(self.cum) & MASK;
        if ahead == 0 || ahead > MASK / 2 || self.beyond.contains(&pseq) {
            return Ok(false);
        }
        check(ahead <= 256, format!("P-005: {pseq} is {ahead} after the cumulative number"))?;
        self.beyond.insert(pseq);
        while self.beyond.remove(&((self.cum + 1) & MASK)) {
            self.cum = (self.cum + 1) & MASK;
        }
        Ok(true)
    }
}

/// `again` repeats `first` but for what may change (P-004).
pub fn same_packet(first: &Packet, again: &Packet) -> Outcome {
    equal(again.opcode, first.opcode, "P-004: opcode of a retransmission")?;
    equal(&again.headers, &first.headers, "P-004: extension headers of a retransmission")?;
    equal(&again.payload, &first.payload, "P-004: payload of a retransmission")?;
    let fixed = |p: &Packet| (p.bth.pseq(), p.bth.dest_qpn(), p.bth.pkey(), p.bth.se(), p.bth.pad_count());
    equal(fixed(again), fixed(first), "P-004: BTH of a retransmission")?;
    let path = |p: &Packet| (p.pxth.path_id(), p.pxth.stream_id());
    equal(path(again), path(first), "P-003: path and stream of a retransmission")
}
