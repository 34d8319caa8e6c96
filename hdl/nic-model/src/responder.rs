//! The side that is asked: checks, placement in any order of arrival, completion in order, answers to reads and atomics.
//!
//! Writes and sends are placed as their packets arrive. What must see earlier messages of its stream (reads, atomics,
//! flushes) is kept until they are complete; in an unordered stream only what has a fence waits. The answers are
//! sequenced packets of this side.

use crate::conn_config::{ConnConfig, StreamConfig, StreamIndex};
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::footprint::of_vec;
use crate::foresee::Fetch;
use crate::memory::HostMemory;
use crate::queue::Queue;
use crate::recv_queue::{RecvQueue, RecvRef};
use crate::requester::Place;
use crate::slab::Slab;
use crate::transport::window::{Desc, DescKind};
use crate::wire::frame::Payload;
use crate::wire::packet::{Body, BufferPart, Message, Packet, ReadPart, Remote, WritePart};
use crate::work::{CqeOp, PostError, RecvWr};
use alloc::vec::Vec;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::{Status, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use nic_spec::num::{Msn, Pd, Rkey, RsnLimit};
use nic_spec::wire::{AtomicOp, NakReason};

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The sender is told.
    Nak(NakReason),
    /// It is not.
    Drop,
}

/// A part of a WRITE.
#[derive(Clone, Copy)]
pub(crate) struct WriteRequest<'a> {
    /// Id of its stream.
    pub stream: u16,
    pub part: &'a WritePart,
    pub payload: &'a Payload,
    /// Length of `payload`.
    pub len_bytes: u32,
}

impl From<NakReason> for Refusal {
    fn from(reason: NakReason) -> Self {
        Self::Nak(reason)
    }
}

/// What a message does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// The place is free.
    #[default]
    None,
    Write,
    Send,
    Read,
    Atomic,
    Flush,
}

/// A message that is arriving, or waits for its turn.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct RxMessage {
    kind: Kind,
    has_imm: bool,
    has_inv: bool,
    se: bool,
    fence: bool,
    is_done: bool,
    is_reported: bool,
    len: u32,
    left: u32,
    imm: Option<u32>,
    inv: Option<Rkey>,
    /// Slot of what is to be carried out.
    deferred: Option<u32>,
    recv: Option<RecvRef>,
    tag: Option<u64>,
}

/// What is carried out when the message's turn comes.
#[derive(Clone, Copy, Debug)]
enum Deferred {
    Read { id: u16, remote: Remote, iova: u64, losses: u64 },
    Atomic { id: u16, op: AtomicOp, rkey: Rkey, va: u64, swap_add: u64, compare: u64 },
}

/// The receiving half of a stream.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct RxStream {
    base: Msn,
    /// Receives were ever posted.
    has_credit: bool,
    /// The limit changed since it was last told.
    is_credit_new: bool,
    /// Messages from `base` on, by number modulo its size; empty until the first packet.
    ring: Vec<RxMessage>,
    cfg: StreamConfig,
    recvs: RecvQueue,
}

/// An answer under way.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Read {
        id: u16,
        stream: u16,
        remote: Remote,
        iova: u64,
        /// Regions that had been taken away when its memory was found.
        losses: u64,
        next: u32,
        unacked_pkts: u32,
        is_all_sent: bool,
    },
    Atomic {
        id: u16,
        stream: u16,
        op: AtomicOp,
        orig: u64,
    },
}

/// The responder of a connection.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Responder {
    was_answer: bool,
    /// Receives were ever posted in a stream.
    has_credit: bool,
    queue: Queue<u32>,
    streams: Vec<RxStream>,
    ids: StreamIndex,
    next_credit: usize,
    deferred: Slab<Deferred>,
    answers: Slab<Answer>,
}

impl Responder {
    /// Has the first stream fetched, beside which most connections have no other, and its first message.
    #[inline]
    pub fn foresee_stream(&self, fetch: impl Fetch) {
        fetch.line(&self.streams);
        if let Some(stream) = self.streams.first() {
            fetch.line(stream);
            if let Some(message) = stream.ring.first() {
                fetch.line(message);
            }
        }
    }
}

impl RxStream {
    /// Where a message stands, if its number is acceptable.
    #[inline]
    fn place(&mut self, mseq: Msn, msgs_max: u32) -> Result<usize, NakReason> {
        let ahead = mseq.distance_from(self.base);
        if ahead >= 1 << (Msn::BITS - 1) {
            return Err(NakReason::Stream);
        }
        if ahead >= msgs_max {
            return Err(NakReason::NoResource);
        }
        if self.ring.is_empty() {
            self.make_ring(msgs_max);
        }
        Ok(mseq.get() as usize & (self.ring.len() - 1))
    }

    #[cold]
    fn make_ring(&mut self, msgs_max: u32) {
        self.ring = alloc::vec![RxMessage::default(); msgs_max.next_power_of_two() as usize];
    }
}

/// Is a packet of `kind` with `payload` bytes of `len` acceptable in this place?
#[inline]
fn admit(m: &RxMessage, kind: Kind, len: u32, payload: u32) -> Result<(), NakReason> {
    match m.kind {
        Kind::None if payload <= len => Ok(()),
        Kind::None => Err(NakReason::Mtu),
        k if k != kind || m.is_done => Err(NakReason::Stream),
        _ if m.len != len || payload > m.left => Err(NakReason::Mtu),
        _ => Ok(()),
    }
}

impl Responder {
    pub fn new(cfg: &ConnConfig) -> Self {
        let stream = |s: &StreamConfig| RxStream {
            cfg: *s,
            base: s.first_msn,
            ring: Vec::new(),
            recvs: RecvQueue::new(s.first_rsn),
            has_credit: false,
            is_credit_new: false,
        };
        Self {
            streams: cfg.streams.iter().map(stream).collect(),
            ids: StreamIndex::new(&cfg.streams),
            deferred: Slab::default(),
            answers: Slab::default(),
            queue: Queue::new(),
            was_answer: false,
            has_credit: false,
            next_credit: 0,
        }
    }

    /// Memory on the heap, bytes.
    pub fn heap_bytes(&self) -> usize {
        let of_stream = |s: &RxStream| of_vec(&s.ring) + s.recvs.heap_bytes();
        let own = self.queue.heap_bytes() + of_vec(&self.streams) + self.ids.heap_bytes();
        let pools = self.deferred.heap_bytes() + self.answers.heap_bytes();
        own + pools + self.streams.iter().map(of_stream).sum::<usize>()
    }

    fn index_of(&self, id: u16) -> Option<usize> {
        self.ids.find(id)
    }

    /// True when an answer has a packet to send.
    pub fn has_answers(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True when an answer is not acknowledged, or an operation waits for its turn.
    pub fn has_work(&self) -> bool {
        self.answers.len() + self.deferred.len() > 0
    }

    /// True when a message of the peer arrived in part, or is complete and waits for one before it that did not.
    pub fn awaits_packets(&self) -> bool {
        self.streams.iter().flat_map(|s| &s.ring).any(|m| m.kind != Kind::None && !m.is_reported)
    }

    /// True when the next packet should be of an answer; `others_wait` says that streams want to send too.
    pub fn is_turn_of_answers(&self, others_wait: bool) -> bool {
        self.has_answers() && !(self.was_answer && others_wait)
    }

    /// A stream sent a packet.
    #[inline]
    pub fn streams_had_turn(&mut self) {
        self.was_answer = false;
    }

    /// The next packet of an answer.
    pub fn next_answer(&mut self, pmtu: u32) -> Option<Desc> {
        let slot = *self.queue.front()?;
        self.was_answer = true;
        match self.answers.get_mut(slot)? {
            Answer::Read { remote, next, unacked_pkts, is_all_sent, .. } => {
                let part = (remote.dma_len - *next).min(pmtu);
                let desc = Desc { slot, offset: *next, len: part as u16, kind: DescKind::ReadRsp };
                *next += part;
                *unacked_pkts += 1;
                *is_all_sent = *next == remote.dma_len;
                self.queue.pop_front();
                if !*is_all_sent {
                    self.queue.push_back(slot);
                }
                Some(desc)
            }
            Answer::Atomic { .. } => {
                self.queue.pop_front();
                Some(Desc { slot, offset: 0, len: 0, kind: DescKind::AtomicRsp })
            }
        }
    }

    /// As [`Connection::describe`] for answers.
    pub fn describe(&self, desc: &Desc) -> Option<(Body, Place)> {
        Some(match *self.answers.get(desc.slot)? {
            Answer::Read { id, stream, remote, iova, losses, .. } => {
                let len = remote.dma_len;
                let is_last = desc.offset + u32::from(desc.len) == len;
                let body = Body::ReadRsp(ReadPart { read_id: id, offset: desc.offset, len });
                (body, Place { stream, is_last, iova: Some(iova.wrapping_add(desc.offset.into())), losses })
            }
            Answer::Atomic { id, stream, op, orig } => {
                let body = Body::AtomicRsp { op, atomic_id: id, orig };
                (body, Place { stream, is_last: true, iova: None, losses: 0 })
            }
        })
    }

    /// Where the memory of the answer to a read lies, after a region was taken away; `None` when it was that one.
    pub fn find_answer(&mut self, core: &Core, slot: u32, pd: Pd) -> Option<u64> {
        let Some(Answer::Read { remote, iova, losses, .. }) = self.answers.get_mut(slot) else { return None };
        *iova = core.mrs.resolve(remote.rkey, pd, ACCESS_REMOTE_READ, remote.va, remote.dma_len.into()).ok()?;
        *losses = core.mrs.losses();
        Some(*iova)
    }

    /// The receives of a stream.
    pub fn receives(&mut self, stream: usize) -> &mut RecvQueue {
        &mut self.streams[stream].recvs
    }

    /// A packet of an answer was acknowledged.
    pub fn on_acked(&mut self, desc: &Desc) {
        let is_over = match self.answers.get_mut(desc.slot) {
            Some(Answer::Read { unacked_pkts, is_all_sent, .. }) => {
                *unacked_pkts -= 1;
                *is_all_sent && *unacked_pkts == 0
            }
            Some(Answer::Atomic { .. }) => true,
            None => false,
        };
        if is_over {
            self.answers.remove(desc.slot);
        }
    }

    /// The credit that the next acknowledgement tells: of a stream where it changed, else of each in turn.
    pub fn credit(&mut self) -> Option<(u16, RsnLimit)> {
        let n = self.streams.len();
        if !self.has_credit {
            return None;
        }
        let order = (0..n).map(|i| (self.next_credit + i) % n);
        let at = order
            .clone()
            .find(|i| self.streams[*i].is_credit_new)
            .or_else(|| order.clone().find(|i| self.streams[*i].has_credit))?;
        self.next_credit = (at + 1) % n;
        let s = &mut self.streams[at];
        s.is_credit_new = false;
        Some((s.cfg.id, RsnLimit::new(s.recvs.limit().get() as u16)))
    }
}

impl Connection {
    /// Takes a receive of the host. True when the peer may be waiting for it, so that an acknowledgement should tell.
    pub fn post_recv(&mut self, core: &mut Core, id: u16, wr: RecvWr) -> Result<bool, PostError> {
        let stream = self.responder.index_of(id).ok_or(PostError::UnknownStream(id))?;
        let (depth, pd) = (self.transport().rq_depth, self.cfg.pd);
        let s = &mut self.responder.streams[stream];
        if s.recvs.len() >= depth as usize {
            return Err(PostError::QueueFull { depth });
        }
        if self.state == ConnState::Error {
            core.counters.count(Counter::WqeFlushed);
            let cq = s.cfg.rq_cq;
            core.complete(cq, self.cqe(id, wr.wr_id, CqeOp::Recv, Status::WrFlush));
            return Ok(false);
        }
        let iova = if wr.len == 0 {
            0
        } else {
            let key = Rkey::new(wr.local.lkey.get());
            let found = core.mrs.resolve(key, pd, ACCESS_LOCAL_WRITE, wr.local.va, wr.len.into());
            found.map_err(|_| PostError::LocalProtection)?
        };
        let may_wait = s.recvs.is_used_up() && wr.tag.is_none();
        s.recvs.post(wr, iova, core.mrs.losses());
        if wr.tag.is_none() {
            (s.has_credit, s.is_credit_new) = (true, true);
            self.responder.has_credit = true;
        }
        Ok(may_wait)
    }

    /// True when requests are carried out.
    #[inline]
    fn takes_requests(&self) -> bool {
        matches!(self.state, ConnState::Rtr | ConnState::Rts | ConnState::Sqd)
    }

    /// Carries out a new part of a WRITE: nearly every packet, with all that it needs in one place. On success the packet
    /// may be acknowledged.
    #[inline(always)]
    pub fn on_write_part(
        &mut self,
        core: &mut Core,
        request: WriteRequest<'_>,
        mem: &mut dyn HostMemory,
    ) -> Result<(), Refusal> {
        let WriteRequest { stream: id, part, payload, len_bytes: len } = request;
        let remote = &part.remote;
        let (stream, iova) = self.admit_write(core, id, remote, len)?;
        let msgs_max = self.cfg.transport.msgs_max;
        let s = &mut self.responder.streams[stream];
        let at = s.place(part.mseq(), msgs_max)?;
        let e = &mut s.ring[at];
        admit(e, Kind::Write, remote.dma_len, len)?;
        if part.has_imm() || part.last() || e.kind == Kind::None || len == e.left {
            return self.place_write(core, stream, &part.message(), remote, iova, payload, mem);
        }
        if len > 0 && mem.write(iova, payload).is_err() {
            return self.write_fault(core);
        }
        // Something of its message is still missing, so there is nothing else to do.
        e.left -= len;
        Ok(())
    }

    /// The stream of a part of a WRITE, and where its payload goes.
    #[inline(always)]
    fn admit_write(&self, core: &Core, id: u16, remote: &Remote, len: u32) -> Result<(usize, u64), Refusal> {
        if !self.takes_requests() {
            return Err(NakReason::QpState.into());
        }
        let stream = self.responder.index_of(id).ok_or(NakReason::Stream)?;
        if len > self.pmtu_bytes() {
            return Err(NakReason::Mtu.into());
        }
        Ok((stream, self.remote_memory(core, remote.rkey, ACCESS_REMOTE_WRITE, remote.va, len)?))
    }

    /// Carries out a request packet that is new. On success the packet may be acknowledged.
    #[inline(never)]
    pub fn on_request(&mut self, core: &mut Core, p: &Packet, mem: &mut dyn HostMemory) -> Result<(), Refusal> {
        if let Body::Write(m, r) = &p.body {
            let (stream, iova) = self.admit_write(core, p.stream, r, p.payload.len_bytes())?;
            return self.place_write(core, stream, m, r, iova, &p.payload, mem);
        }
        if !self.takes_requests() {
            return Err(NakReason::QpState.into());
        }
        self.on_other_request(core, p, mem)
    }

    #[inline(never)]
    fn on_other_request(&mut self, core: &mut Core, p: &Packet, mem: &mut dyn HostMemory) -> Result<(), Refusal> {
        match &p.body {
            Body::ReadRsp(part) => return self.on_read_answer(core, part, &p.payload, mem),
            Body::AtomicRsp { atomic_id, orig, .. } => return self.on_atomic_answer(core, *atomic_id, *orig, mem),
            _ => {}
        }
        let stream = self.responder.index_of(p.stream).ok_or(NakReason::Stream)?;
        if p.payload.len_bytes() > self.pmtu_bytes() {
            return Err(NakReason::Mtu.into());
        }
        match &p.body {
            Body::Send(m, b) => self.place_send(core, stream, m, b, &p.payload, mem)?,
            Body::ReadReq(m, r, part) => {
                let iova = self.remote_memory(core, r.rkey, ACCESS_REMOTE_READ, r.va, r.dma_len)?;
                let what = Deferred::Read { id: part.read_id, remote: *r, iova, losses: core.mrs.losses() };
                self.defer(stream, m, Kind::Read, Some(what))?;
            }
            Body::AtomicReq { message, va, rkey, swap_add, compare, op, atomic_id } => {
                self.remote_memory(core, *rkey, ACCESS_REMOTE_ATOMIC, *va, 8)?;
                if va % 8 != 0 {
                    return Err(NakReason::Range.into());
                }
                let (id, op, swap_add, compare) = (*atomic_id, *op, *swap_add, *compare);
                let what = Deferred::Atomic { id, op, rkey: *rkey, va: *va, swap_add, compare };
                self.defer(stream, message, Kind::Atomic, Some(what))?;
            }
            Body::Flush(m, r) => {
                self.remote_memory(core, r.rkey, 0, r.va, r.dma_len)?;
                self.defer(stream, m, Kind::Flush, None)?;
            }
            _ => return Err(Refusal::Drop),
        }
        self.retire(core, stream, mem);
        Ok(())
    }

    #[inline]
    fn remote_memory(&self, core: &Core, rkey: Rkey, access: u8, va: u64, len: u32) -> Result<u64, NakReason> {
        if len == 0 {
            return Ok(0);
        }
        core.mrs.resolve(rkey, self.own().pd, access, va, len.into())
    }

    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    fn place_write(
        &mut self,
        core: &mut Core,
        stream: usize,
        m: &Message,
        r: &Remote,
        iova: u64,
        payload: &Payload,
        mem: &mut dyn HostMemory,
    ) -> Result<(), Refusal> {
        let (len, msgs_max) = (payload.len_bytes(), self.cfg.transport.msgs_max);
        let s = &mut self.responder.streams[stream];
        let at = s.place(m.mseq, msgs_max)?;
        admit(&s.ring[at], Kind::Write, r.dma_len, len)?;
        let mut recv = None;
        if m.has_imm {
            match s.recvs.by_ordinal(m.rsn) {
                Ok(Some(_)) => recv = Some(RecvRef::Ordinal(m.rsn)),
                Ok(None) => return Err(NakReason::Rnr.into()),
                Err(()) => return Err(NakReason::Stream.into()),
            }
        }
        if len > 0 && mem.write(iova, payload).is_err() {
            return self.write_fault(core);
        }
        self.account(stream, at, m, Kind::Write, r.dma_len, len, recv);
        self.retire(core, stream, mem);
        Ok(())
    }

    fn place_send(
        &mut self,
        core: &mut Core,
        stream: usize,
        m: &Message,
        b: &BufferPart,
        payload: &Payload,
        mem: &mut dyn HostMemory,
    ) -> Result<(), Refusal> {
        let len = payload.len_bytes();
        let msgs_max = self.transport().msgs_max;
        let s = &mut self.responder.streams[stream];
        let at = s.place(m.mseq, msgs_max)?;
        admit(&s.ring[at], Kind::Send, b.len, len)?;
        if b.offset.checked_add(len).is_none_or(|end| end > b.len) {
            return Err(NakReason::Mtu.into());
        }
        let (recv, r) = match (s.ring[at].recv, m.tag) {
            (Some(taken), _) => s.recvs.get(taken).map(|r| (taken, r)).ok_or(NakReason::Stream)?,
            (None, Some(tag)) => s.recvs.by_tag(tag).ok_or(NakReason::Rnr)?,
            (None, None) => match s.recvs.by_ordinal(m.rsn) {
                Ok(Some(r)) => (RecvRef::Ordinal(m.rsn), r),
                Ok(None) => return Err(NakReason::Rnr.into()),
                Err(()) => return Err(NakReason::Stream.into()),
            },
        };
        if b.len > r.wr.len {
            return Err(NakReason::Mtu.into());
        }
        let (mut iova, losses) = (r.iova, r.losses);
        if len > 0 && losses != core.mrs.losses() {
            iova = self.find_receive(core, stream, recv)?;
        }
        if len > 0 && mem.write(iova.wrapping_add(b.offset.into()), payload).is_err() {
            return self.write_fault(core);
        }
        self.account(stream, at, m, Kind::Send, b.len, len, Some(recv));
        Ok(())
    }

    fn write_fault(&mut self, core: &mut Core) -> Result<(), Refusal> {
        core.counters.count(Counter::DmaWriteError);
        self.fail(core, Status::LocDma, None);
        Err(Refusal::Drop)
    }

    /// Notes that `len` bytes of a message are placed.
    #[allow(clippy::too_many_arguments)]
    fn account(
        &mut self,
        stream: usize,
        at: usize,
        m: &Message,
        kind: Kind,
        msg_len: u32,
        len: u32,
        recv: Option<RecvRef>,
    ) {
        let s = &mut self.responder.streams[stream];
        if s.ring[at].kind == Kind::None {
            let e = &mut s.ring[at];
            let (has_imm, has_inv, se, fence, tag) = (m.has_imm, m.has_inv, m.se, m.fence, m.tag);
            *e = RxMessage {
                kind,
                len: msg_len,
                left: msg_len,
                recv,
                has_imm,
                has_inv,
                se,
                fence,
                tag,
                ..RxMessage::default()
            };
            if let Some(recv) = recv {
                s.recvs.take(recv);
            }
        }
        let e = &mut s.ring[at];
        e.left -= len;
        if e.left == 0 || m.last {
            e.imm = e.imm.or(m.imm);
            e.inv = e.inv.or(m.inv);
            e.is_done = e.left == 0 && (!e.has_imm || e.imm.is_some()) && (!e.has_inv || e.inv.is_some());
        }
    }

    /// Notes a message that is carried out when its turn comes.
    fn defer(&mut self, stream: usize, m: &Message, kind: Kind, what: Option<Deferred>) -> Result<(), NakReason> {
        let (msgs_max, reads_max) = (self.transport().msgs_max, self.transport().reads_max as usize);
        let r = &mut self.responder;
        let s = &mut r.streams[stream];
        let at = s.place(m.mseq, msgs_max)?;
        if s.ring[at].kind != Kind::None {
            return Err(NakReason::Stream);
        }
        // What waits for its turn leaves room for what has it: the peer may ask for more than there is room for.
        let is_full = r.deferred.len() + r.answers.len() >= 2 * reads_max;
        let is_early = m.mseq != s.base && r.deferred.len() >= reads_max;
        if what.is_some() && (is_full || is_early) {
            return Err(NakReason::NoResource);
        }
        let deferred = what.map(|w| r.deferred.insert(w));
        s.ring[at] = RxMessage { kind, se: m.se, fence: m.fence, is_done: true, deferred, ..RxMessage::default() };
        Ok(())
    }

    /// Completes what has its turn.
    #[inline]
    fn retire(&mut self, core: &mut Core, stream: usize, mem: &mut dyn HostMemory) {
        let s = &self.responder.streams[stream];
        if s.cfg.is_unordered || s.ring[s.base.get() as usize & (s.ring.len() - 1)].is_done {
            self.retire_all(core, stream, mem);
        }
    }

    #[inline(never)]
    fn retire_all(&mut self, core: &mut Core, stream: usize, mem: &mut dyn HostMemory) {
        if self.responder.streams[stream].cfg.is_unordered {
            self.retire_unordered(core, stream, mem);
        }
        loop {
            let s = &mut self.responder.streams[stream];
            // None is left when the connection has just gone into error.
            let Some(mask) = s.ring.len().checked_sub(1) else { return };
            let at = s.base.get() as usize & mask;
            if !s.ring[at].is_done {
                return;
            }
            if !s.ring[at].is_reported && !self.carry_out(core, stream, at, mem) {
                return;
            }
            let s = &mut self.responder.streams[stream];
            s.ring[at] = RxMessage::default();
            s.base = s.base.next();
        }
    }

    /// Completes what is done and has no fence, whatever came before.
    fn retire_unordered(&mut self, core: &mut Core, stream: usize, mem: &mut dyn HostMemory) {
        for at in 0..self.responder.streams[stream].ring.len() {
            let e = &self.responder.streams[stream].ring[at];
            if e.is_done && !e.is_reported && !e.fence && e.kind != Kind::Flush {
                if !self.carry_out(core, stream, at, mem) {
                    return;
                }
                self.responder.streams[stream].ring[at].is_reported = true;
            }
        }
    }

    /// Carries out and completes one message. False when the connection failed over it.
    fn carry_out(&mut self, core: &mut Core, stream: usize, at: usize, mem: &mut dyn HostMemory) -> bool {
        let s = &mut self.responder.streams[stream];
        let (e, id, cq) = (s.ring[at], s.cfg.id, s.cfg.rq_cq);
        if !s.cfg.is_unordered && e.recv.is_some_and(|r| !s.recvs.is_in_turn(r)) {
            // Its completion would be for another receive than the one that the host expects.
            self.fail(core, Status::RemInvReq, None);
            return false;
        }
        core.counters.count(Counter::RxMessages);
        match e.deferred.and_then(|slot| self.responder.deferred.remove(slot)) {
            None => {}
            Some(Deferred::Read { id: read_id, remote, iova, losses }) => {
                let answer = Answer::Read {
                    id: read_id,
                    stream: id,
                    remote,
                    iova,
                    losses,
                    next: 0,
                    unacked_pkts: 0,
                    is_all_sent: false,
                };
                let slot = self.responder.answers.insert(answer);
                self.responder.queue.push_back(slot);
                self.activate(core);
            }
            Some(Deferred::Atomic { id: atomic_id, op, rkey, va, swap_add, compare }) => {
                // It may have waited for its turn, and the region be gone.
                let Ok(iova) = self.remote_memory(core, rkey, ACCESS_REMOTE_ATOMIC, va, 8) else {
                    self.fail(core, Status::LocProt, None);
                    return false;
                };
                let Ok(orig) = mem.read_u64(iova) else {
                    core.counters.count(Counter::DmaReadError);
                    self.fail(core, Status::LocDma, None);
                    return false;
                };
                let new = match op {
                    AtomicOp::CompareSwap if orig == compare => Some(swap_add),
                    AtomicOp::CompareSwap => None,
                    AtomicOp::FetchAdd => Some(orig.wrapping_add(swap_add)),
                };
                if new.is_some_and(|new| mem.write_u64(iova, new).is_err()) {
                    core.counters.count(Counter::DmaWriteError);
                    self.fail(core, Status::LocDma, None);
                    return false;
                }
                let slot = self.responder.answers.insert(Answer::Atomic { id: atomic_id, stream: id, op, orig });
                self.responder.queue.push_back(slot);
                self.activate(core);
            }
        }
        let invalidated = e.inv.filter(|rkey| core.mrs.invalidate(*rkey, Some(self.cfg.pd)));
        let s = &mut self.responder.streams[stream];
        if let Some(wr) = e.recv.and_then(|r| s.recvs.finish(r)) {
            let op = if e.kind == Kind::Send { CqeOp::Recv } else { CqeOp::RecvImm };
            let mut cqe = self.cqe(id, wr.wr_id, op, Status::Ok);
            (cqe.byte_len, cqe.imm, cqe.tag, cqe.solicited) = (e.len, e.imm, e.tag, e.se);
            cqe.invalidated = invalidated;
            core.complete(cq, cqe);
        }
        true
    }

    /// Gives back every posted receive; the oldest one of stream `culprit` (an index) with `status`, the rest as flushed.
    pub fn flush_responder(&mut self, core: &mut Core, status: Status, culprit: Option<usize>) {
        for i in 0..self.responder.streams.len() {
            let s = &mut self.responder.streams[i];
            let (id, cq) = (s.cfg.id, s.cfg.rq_cq);
            s.ring.clear();
            for (n, wr) in s.recvs.flush().into_iter().enumerate() {
                let is_culprit = n == 0 && culprit == Some(i) && status != Status::WrFlush;
                core.counters.add(Counter::WqeFlushed, (!is_culprit).into());
                let status = if is_culprit { status } else { Status::WrFlush };
                core.complete(cq, self.cqe(id, wr.wr_id, CqeOp::Recv, status));
            }
        }
        self.responder.deferred.clear();
        self.responder.answers.clear();
        self.responder.queue.clear();
    }
}
