//! The side that asks: streams of messages, cut into packets, completed in order.
//!
//! A message begins when its stream has a free message slot and, if it consumes a receive, credit for it. Streams take
//! turns packet by packet. A message is done when all its packets are acknowledged and, for reads and atomics, the
//! answer is in memory; completions of a stream come in the order of its messages, unless it asked for the order of
//! their ends.

use crate::cm::Step;
use crate::conn_config::{ConnConfig, StreamConfig, StreamIndex};
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::footprint::{of_queue, of_vec};
use crate::foresee::Fetch;
use crate::local_memory::check_local;
use crate::memory::HostMemory;
use crate::queue::Queue;
use crate::responder::Refusal;
use crate::slab::Slab;
use crate::time::Time;
use crate::timer::TimerKey;
use crate::transport::window::{Desc, DescKind};
use crate::wire::frame::Payload;
use crate::wire::packet::{Body, BufferPart, Message, ReadPart, Remote, WritePart};
use crate::work::{PostError, SendOp, SendWr};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Msn, Rkey, Rsn, RsnLimit};
use nic_spec::wire::{AtomicOp, NakReason};

/// One message under way.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct TxMessage {
    /// First byte not sent yet.
    next: u32,
    unacked_pkts: u32,
    /// Index of its stream.
    pub stream: u16,
    is_all_sent: bool,
    rnr_count: u8,
    mseq: Msn,
    rsn: Rsn,
    /// Bus address of the local memory.
    pub iova: u64,
    /// Regions that had been taken away when it was found.
    pub losses: u64,
    pub wr: SendWr,
    /// Bytes of the answer to come, or 1 for an answer without bytes.
    answer_left: u32,
    request_id: u16,
    /// Room that its answer takes, if it is a read.
    room: Option<u64>,
    is_done: bool,
    /// Its completion was given.
    is_reported: bool,
    /// It left the window; the slot is free when its packets are acknowledged.
    is_retired: bool,
    /// The receiver refused it for now; its packets are not sent again before this.
    held_until: Time,
}

/// The sending half of a stream.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct TxStream {
    /// Slot of the message being sent.
    current: Option<u32>,
    /// It stands in the ring of streams that may have a packet.
    in_ring: bool,
    /// It waits for credit.
    wants_credit: bool,
    id: u16,
    /// The receiver refused for now; nothing is sent before this.
    held_until: Time,
    queue: VecDeque<SendWr>,
    pub cfg: StreamConfig,
    next_mseq: Msn,
    next_rsn: Rsn,
    /// Ordinals before this one may be used; `None` while nothing is known.
    limit: Option<Rsn>,
    /// Reads and atomics begun and not done.
    pub requests: u32,
    /// Slots of the messages begun and not retired, in order.
    window: VecDeque<u32>,
}

/// The requester of a connection.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Requester {
    ring: Queue<u16>,
    pub streams: Vec<TxStream>,
    pub messages: Slab<TxMessage>,
    ids: StreamIndex,
    /// Streams that wait until a read or atomic of any stream is done.
    wait_for_request: Vec<u16>,
    /// Slots of reads and atomics by id modulo the table's size.
    requests: Vec<Option<u32>>,
    next_request_id: u16,
}

impl Requester {
    /// Has its own lines fetched, and the first stream and message, beside which most connections have no other.
    #[inline]
    pub fn foresee(&self, fetch: impl Fetch) {
        fetch.line(&self.ring);
        fetch.line(&self.messages);
        if let Some(stream) = self.streams.first() {
            fetch.line(stream);
        }
        if let Some(place) = self.messages.first() {
            fetch.all(place);
        }
    }
}

/// What a packet's header does not say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Id of its stream.
    pub stream: u16,
    /// It is the last of its message.
    pub is_last: bool,
    /// Bus address of its payload.
    pub iova: Option<u64>,
    /// Regions that had been taken away when it was found.
    pub losses: u64,
}

/// What streams have to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// There is another packet.
    pub has_more: bool,
    /// Bytes, if it is the rest of one message; `u64::MAX` if it may be more.
    pub left_bytes: u64,
}

impl Outlook {
    const NOTHING: Self = Self { has_more: false, left_bytes: 0 };
}

/// Why a stream has no packet now.
enum Wait {
    /// Nothing to do.
    Empty,
    /// An acknowledgement, answer or refusal's end will make it ready.
    Blocked,
    /// Receives are used up.
    Credit,
    /// The message could not begin.
    Bad(Status),
}

impl Requester {
    pub fn new(cfg: &ConnConfig) -> Self {
        let stream = |s: &StreamConfig| TxStream {
            id: s.id,
            cfg: *s,
            queue: VecDeque::new(),
            next_mseq: s.first_msn,
            next_rsn: s.first_rsn,
            limit: s.peer_limit,
            window: VecDeque::new(),
            current: None,
            requests: 0,
            held_until: Time::ZERO,
            in_ring: false,
            wants_credit: false,
        };
        Self {
            streams: cfg.streams.iter().map(stream).collect(),
            ids: StreamIndex::new(&cfg.streams),
            wait_for_request: Vec::new(),
            messages: Slab::default(),
            ring: Queue::new(),
            requests: alloc::vec![None; cfg.transport.reads_max.max(1) as usize],
            next_request_id: 0,
        }
    }

    /// Memory on the heap, bytes.
    pub fn heap_bytes(&self) -> usize {
        let of_stream = |s: &TxStream| of_queue(&s.queue) + of_queue(&s.window);
        let own =
            self.ring.heap_bytes() + of_vec(&self.streams) + of_vec(&self.wait_for_request) + of_vec(&self.requests);
        own + self.ids.heap_bytes() + self.messages.heap_bytes() + self.streams.iter().map(of_stream).sum::<usize>()
    }

    /// Index of the stream with this id.
    pub fn index_of(&self, id: u16) -> Option<usize> {
        self.ids.find(id)
    }

    /// True when a stream may have a packet.
    pub fn may_send(&self) -> bool {
        !self.ring.is_empty()
    }

    /// What the streams have to send after this, one that is blocked included.
    #[inline(always)]
    pub fn outlook(&self) -> Outlook {
        let Some(only) = self.ring.only() else {
            return if self.ring.is_empty() { Outlook::NOTHING } else { self.outlook_of_many() };
        };
        let s = &self.streams[usize::from(*only)];
        let left = match s.current {
            Some(slot) => self.messages.get(slot).map_or(0, |m| m.wr.len - m.next),
            None => 0,
        };
        let is_more_queued = !s.queue.is_empty();
        Outlook {
            has_more: s.current.is_some() || is_more_queued,
            left_bytes: if is_more_queued { u64::MAX } else { left.into() },
        }
    }

    #[inline(never)]
    fn outlook_of_many(&self) -> Outlook {
        let has_packet = |i: &u16| {
            let s = &self.streams[usize::from(*i)];
            s.current.is_some() || !s.queue.is_empty()
        };
        Outlook { has_more: self.ring.iter().any(has_packet), left_bytes: u64::MAX }
    }

    /// True when no message is queued or under way.
    pub fn is_quiet(&self) -> bool {
        self.streams.iter().all(|s| s.queue.is_empty() && s.window.is_empty())
    }

    fn wake(&mut self, stream: usize) {
        let s = &mut self.streams[stream];
        if !core::mem::replace(&mut s.in_ring, true) {
            self.ring.push_back(stream as u16);
        }
    }

    /// The peer has posted receives up to `limit`.
    pub fn on_credit(&mut self, id: u16, limit: RsnLimit) {
        let Some(stream) = self.index_of(id) else { return };
        let s = &mut self.streams[stream];
        // The limit is the one of 2^16 candidates that lies nearest to what is in use.
        let near = RsnLimit::new(s.next_rsn.get() as u16);
        let ahead = limit.distance_from(near);
        let full = if ahead < 1 << 15 {
            s.next_rsn + u32::from(ahead)
        } else {
            s.next_rsn - u32::from(near.distance_from(limit))
        };
        if s.limit.is_none_or(|old| old.is_before(full)) {
            s.limit = Some(full);
            if core::mem::take(&mut s.wants_credit) {
                self.wake(stream);
            }
        }
    }

    /// True when a stream waits for credit.
    pub fn wants_credit(&self) -> bool {
        self.streams.iter().any(|s| s.wants_credit)
    }

    /// Lets every stream look again for something to begin.
    pub fn wake_all(&mut self) {
        (0..self.streams.len()).for_each(|i| self.wake(i));
    }

    /// True when a packet of `desc` must wait because the receiver refused its message for now.
    pub fn is_held(&self, desc: &Desc, now: Time) -> bool {
        desc.kind == DescKind::Message
            && self
                .messages
                .get(desc.slot)
                // Its own wait: refusals of later messages of the stream do not make it longer.
                .is_some_and(|m| m.rnr_count > 0 && m.held_until > now)
    }

    /// Streams whose hold is over may send again.
    pub fn release(&mut self, now: Time) {
        for i in 0..self.streams.len() {
            let s = &self.streams[i];
            if s.held_until != Time::ZERO && s.held_until <= now {
                self.streams[i].held_until = Time::ZERO;
                self.wake(i);
            }
        }
    }

    /// When the first hold is over, if a stream is held.
    pub fn next_release(&self) -> Option<Time> {
        self.streams.iter().map(|s| s.held_until).filter(|at| *at != Time::ZERO).min()
    }

    /// The receiver refused a packet of `slot` for now. Returns the message's stream and how often in a row it was.
    pub fn hold(&mut self, slot: u32, until: Time) -> Option<(usize, u8)> {
        let m = self.messages.get_mut(slot)?;
        m.rnr_count = m.rnr_count.saturating_add(1);
        m.held_until = until;
        let (stream, count) = (usize::from(m.stream), m.rnr_count);
        self.streams[stream].held_until = until;
        Some((stream, count))
    }
}

impl TxMessage {
    const fn is_request(&self) -> bool {
        matches!(self.wr.op, SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// The message header of one of its packets, without immediate data, key and tag.
    fn header(&self, first: bool, last: bool) -> Message {
        let (se, fence, mseq, rsn) = (self.wr.solicited, self.wr.fence, self.mseq, self.rsn);
        Message { first, last, se, fence, mseq, rsn, ..Message::default() }
    }

    /// Takes a receive of the peer by its ordinal.
    const fn takes_ordinal(op: &SendOp) -> bool {
        matches!(op, SendOp::Write { imm: Some(_), .. } | SendOp::Send { tag: None, .. })
    }

    /// Completes only after all earlier messages of the stream.
    const fn is_barrier(&self) -> bool {
        self.wr.fence || matches!(self.wr.op, SendOp::Flush { .. })
    }
}

impl Connection {
    /// Takes a request of the host.
    pub fn post_send(&mut self, core: &mut Core, id: u16, wr: SendWr) -> Result<(), PostError> {
        let stream = self.requester.index_of(id).ok_or(PostError::UnknownStream(id))?;
        let is_ending = matches!(self.handshake.step, Step::Draining | Step::Ending);
        if is_ending || matches!(self.state, ConnState::Init | ConnState::Rtr) {
            return Err(PostError::BadState);
        }
        let depth = self.transport().sq_depth;
        let s = &mut self.requester.streams[stream];
        if s.queue.len() + s.window.len() >= depth as usize {
            return Err(PostError::QueueFull { depth });
        }
        if self.state == ConnState::Error {
            core.counters.count(Counter::WqeFlushed);
            let cq = s.cfg.sq_cq;
            let cqe = self.cqe(id, wr.wr_id, wr.op.cqe_op(), Status::WrFlush);
            core.complete(cq, cqe);
            return Ok(());
        }
        s.queue.push_back(wr);
        core.counters.count(Counter::WqeFetched);
        self.requester.wake(stream);
        self.activate(core);
        Ok(())
    }

    /// True when there is something new to send.
    pub fn has_new(&self) -> bool {
        self.requester.may_send() || self.responder.has_answers()
    }

    /// The next new packet; streams and answers take turns.
    #[inline]
    pub fn next_desc(&mut self, core: &mut Core, now: Time) -> Option<Desc> {
        if self.responder.has_answers() && self.responder.is_turn_of_answers(!self.requester.ring.is_empty()) {
            if let Some(desc) = self.responder.next_answer(self.pmtu_bytes()) {
                return Some(desc);
            }
        }
        if let Some(only) = self.requester.ring.only() {
            // A turn of the only stream leaves the ring as it is.
            let stream = usize::from(*only);
            if let Some(desc) = self.next_of_message(now, stream) {
                self.responder.streams_had_turn();
                return Some(desc);
            }
        }
        self.next_of_ring(core, now)
    }

    #[inline(never)]
    fn next_of_ring(&mut self, core: &mut Core, now: Time) -> Option<Desc> {
        while let Some(stream) = self.requester.ring.pop_front() {
            let stream = usize::from(stream);
            match self.next_of_stream(core, now, stream) {
                Ok(desc) => {
                    self.requester.ring.push_back(stream as u16);
                    self.responder.streams_had_turn();
                    return Some(desc);
                }
                Err(wait) => {
                    self.requester.streams[stream].in_ring = false;
                    match wait {
                        Wait::Empty | Wait::Blocked => {}
                        Wait::Credit => {
                            self.requester.streams[stream].wants_credit = true;
                            self.watch_peer(core, now);
                            let at = now.after_ps(self.transport().rnr_ps);
                            core.timers.arm(&mut self.retry_armed, at, TimerKey::Retry(self.index));
                        }
                        Wait::Bad(status) => {
                            core.counters.count(Counter::WqeBad);
                            self.fail(core, status, Some(stream));
                            return None;
                        }
                    }
                }
            }
        }
        self.responder.next_answer(self.pmtu_bytes())
    }

    fn next_of_stream(&mut self, core: &mut Core, now: Time, stream: usize) -> Result<Desc, Wait> {
        if self.requester.streams[stream].held_until > now {
            return Err(Wait::Blocked);
        }
        if self.requester.streams[stream].current.is_none() {
            self.begin_message(core, now, stream)?;
        }
        self.next_of_message(now, stream).ok_or(Wait::Empty)
    }

    /// The next packet of the message that is being sent, if there is one and the stream is not held.
    #[inline]
    fn next_of_message(&mut self, now: Time, stream: usize) -> Option<Desc> {
        let pmtu = self.pmtu_bytes();
        let s = &mut self.requester.streams[stream];
        let slot = s.current.filter(|_| s.held_until <= now)?;
        let m = self.requester.messages.get_mut(slot)?;
        let has_payload = matches!(m.wr.op, SendOp::Write { .. } | SendOp::Send { .. });
        let len = if has_payload { (m.wr.len - m.next).min(pmtu) } else { 0 };
        let desc = Desc { slot, offset: m.next, len: len as u16, kind: DescKind::Message };
        m.next += len;
        m.unacked_pkts += 1;
        m.is_all_sent = !has_payload || m.next == m.wr.len;
        if m.is_all_sent {
            s.current = None;
        }
        Some(desc)
    }

    /// Begins the next message of the stream.
    fn begin_message(&mut self, core: &mut Core, now: Time, stream: usize) -> Result<(), Wait> {
        let (msgs_max, is_draining) = (self.transport().msgs_max, self.state == ConnState::Sqd);
        let pd = self.cfg.pd;
        let at_once = self.begin_pkts(self.transport().conn_ramp_pkts).saturating_mul(self.pmtu_bytes());
        let r = &mut self.requester;
        let s = &mut r.streams[stream];
        let Some(wr) = s.queue.front().copied() else { return Err(Wait::Empty) };
        if s.window.len() >= msgs_max as usize || is_draining {
            return Err(Wait::Blocked);
        }
        if wr.fence && s.requests > 0 {
            return Err(Wait::Blocked);
        }
        let takes_ordinal = TxMessage::takes_ordinal(&wr.op);
        if takes_ordinal && s.limit.is_some_and(|limit| !s.next_rsn.is_before(limit)) {
            return Err(Wait::Credit);
        }
        let (wr, iova) = check_local(wr, core, pd).map_err(|status| {
            s.queue.pop_front();
            // The bad request becomes a message so that it completes in its place.
            let slot = r.messages.insert(TxMessage::new(wr, stream, s.next_mseq, Rsn::new(0)));
            s.window.push_back(slot);
            Wait::Bad(status)
        })?;
        let mut m = TxMessage::new(wr, stream, s.next_mseq, if takes_ordinal { s.next_rsn } else { Rsn::new(0) });
        (m.iova, m.losses) = (iova, core.mrs.losses());
        if m.is_request() {
            let size = r.requests.len();
            let free = (0..size as u16).map(|i| r.next_request_id.wrapping_add(i));
            let Some(id) = free.into_iter().find(|id| r.requests[usize::from(*id) % size].is_none()) else {
                r.wait_for_request.push(stream as u16);
                return Err(Wait::Blocked);
            };
            if matches!(wr.op, SendOp::Read { .. }) && wr.len > 0 {
                let bytes = wr.len.min(at_once);
                m.room = self.read_grant.take().or_else(|| core.reads.take_room(now, bytes));
                if m.room.is_none() {
                    if !core::mem::replace(&mut self.waits_for_room, true) {
                        core.wait_for_read_room(self.index, bytes);
                    }
                    r.wait_for_request.push(stream as u16);
                    return Err(Wait::Blocked);
                }
            }
            m.request_id = id;
            m.answer_left = wr.len.max(1);
            r.next_request_id = id.wrapping_add(1);
            s.requests += 1;
        }
        s.queue.pop_front();
        s.next_mseq = s.next_mseq.next();
        if takes_ordinal {
            s.next_rsn = s.next_rsn.next();
        }
        let is_request = m.is_request();
        let slot = r.messages.insert(m);
        if is_request {
            let size = r.requests.len();
            r.requests[usize::from(m.request_id) % size] = Some(slot);
        }
        s.window.push_back(slot);
        s.current = Some(slot);
        if is_request {
            self.watch_peer(core, now);
        }
        Ok(())
    }

    /// The headers of a packet that is part of a WRITE without immediate data, as nearly all are, and where its payload
    /// lies.
    #[inline(always)]
    pub fn describe_write(&self, desc: &Desc) -> Option<(WritePart, Place)> {
        if desc.kind != DescKind::Message {
            return None;
        }
        let m = self.requester.messages.get(desc.slot)?;
        let SendOp::Write { remote, imm: None } = m.wr.op else { return None };
        let offset = u64::from(desc.offset);
        let is_last = desc.offset + u32::from(desc.len) == m.wr.len;
        let stream = self.requester.streams[usize::from(m.stream)].id;
        let remote = Remote { va: remote.va.wrapping_add(offset), rkey: remote.rkey, dma_len: m.wr.len };
        let part = WritePart::new(m.mseq, m.rsn, desc.offset == 0, is_last, m.wr.solicited, m.wr.fence, remote);
        Some((part, Place { stream, is_last, iova: Some(m.iova.wrapping_add(offset)), losses: m.losses }))
    }

    /// The body of a packet, and where its payload lies.
    #[inline(never)]
    pub fn describe(&self, desc: &Desc) -> Option<(Body, Place)> {
        if desc.kind != DescKind::Message {
            return self.responder.describe(desc);
        }
        let m = self.requester.messages.get(desc.slot)?;
        let stream = self.requester.streams[usize::from(m.stream)].id;
        let has_payload = matches!(m.wr.op, SendOp::Write { .. } | SendOp::Send { .. });
        let last = !has_payload || desc.offset + u32::from(desc.len) == m.wr.len;
        let mut message = m.header(desc.offset == 0, last);
        let at = |va: u64, rkey: Rkey| Remote { va: va.wrapping_add(desc.offset.into()), rkey, dma_len: m.wr.len };
        let body = match m.wr.op {
            SendOp::Write { remote, imm } => {
                message.has_imm = imm.is_some();
                message.imm = imm.filter(|_| last);
                Body::Write(message, at(remote.va, remote.rkey))
            }
            SendOp::Send { imm, inv, tag } => {
                (message.has_imm, message.has_inv, message.tag) = (imm.is_some(), inv.is_some(), tag);
                (message.imm, message.inv) = (imm.filter(|_| last), inv.filter(|_| last));
                Body::Send(message, BufferPart { offset: desc.offset, len: m.wr.len })
            }
            SendOp::Read { remote } => {
                let part = ReadPart { read_id: m.request_id, offset: 0, len: m.wr.len };
                Body::ReadReq(message, at(remote.va, remote.rkey), part)
            }
            SendOp::CompareSwap { remote, compare, swap } => {
                atomic_body(message, remote.va, remote.rkey, swap, compare, AtomicOp::CompareSwap, m.request_id)
            }
            SendOp::FetchAdd { remote, add } => {
                atomic_body(message, remote.va, remote.rkey, add, 0, AtomicOp::FetchAdd, m.request_id)
            }
            SendOp::Flush { remote } => Body::Flush(message, at(remote.va, remote.rkey)),
        };
        let iova = has_payload.then(|| m.iova.wrapping_add(desc.offset.into()));
        Some((body, Place { stream, is_last: last, iova, losses: m.losses }))
    }

    /// Index of the stream that a packet belongs to.
    pub fn stream_of(&self, desc: &Desc) -> Option<usize> {
        let m = self.requester.messages.get(desc.slot).filter(|_| desc.kind == DescKind::Message)?;
        Some(usize::from(m.stream))
    }

    /// As [`Requester::hold`] for the message of a packet.
    pub fn hold_message(&mut self, desc: &Desc, until: Time) -> Option<(usize, u8)> {
        (desc.kind == DescKind::Message).then(|| self.requester.hold(desc.slot, until))?
    }

    /// So many packets of this side that belong to one message or answer were acknowledged for the first time.
    #[inline]
    pub fn on_acked(&mut self, core: &mut Core, desc: &Desc, count: u32) {
        if desc.kind != DescKind::Message {
            (0..count).for_each(|_| self.responder.on_acked(desc));
            return;
        }
        let Some(m) = self.requester.messages.get_mut(desc.slot) else { return };
        m.unacked_pkts -= count;
        m.rnr_count = 0;
        if m.is_all_sent && m.unacked_pkts == 0 {
            if m.is_retired {
                // The answer had come before.
                self.requester.messages.remove(desc.slot);
            } else if m.answer_left == 0 && !m.is_done {
                self.finish_message(core, desc.slot);
            }
        }
    }

    /// A message is done: it and those that waited for it complete.
    #[inline(never)]
    fn finish_message(&mut self, core: &mut Core, slot: u32) {
        let Some(m) = self.requester.messages.get_mut(slot) else { return };
        m.is_done = true;
        let (stream, is_barrier) = (usize::from(m.stream), m.is_barrier());
        core.counters.count(Counter::TxMessages);
        if m.is_request() {
            let size = self.requester.requests.len();
            self.requester.requests[usize::from(m.request_id) % size] = None;
            self.requester.streams[stream].requests -= 1;
            for waiting in core::mem::take(&mut self.requester.wait_for_request) {
                self.requester.wake(waiting.into());
            }
        }
        if self.requester.streams[stream].cfg.is_unordered && !is_barrier {
            self.report(core, slot);
        }
        while let Some(front) = self.requester.streams[stream].window.front().copied() {
            if self.requester.messages.get(front).is_some_and(|m| !m.is_done) {
                break;
            }
            self.report(core, front);
            self.requester.streams[stream].window.pop_front();
            if let Some(m) = self.requester.messages.get_mut(front) {
                m.is_retired = true;
                if m.unacked_pkts == 0 {
                    self.requester.messages.remove(front);
                }
            }
        }
        self.requester.wake(stream);
        self.activate(core);
    }

    /// Gives the completion of a message that is done, once.
    fn report(&mut self, core: &mut Core, slot: u32) {
        let Some(m) = self.requester.messages.get_mut(slot) else { return };
        if m.is_reported {
            return;
        }
        m.is_reported = true;
        let (wr, stream) = (m.wr, usize::from(m.stream));
        if wr.signaled {
            let s = &self.requester.streams[stream].cfg;
            let mut cqe = self.cqe(s.id, wr.wr_id, wr.op.cqe_op(), Status::Ok);
            cqe.byte_len = wr.len;
            core.complete(s.sq_cq, cqe);
        }
    }

    /// The card has room for a read.
    pub fn on_read_grant(&mut self, core: &mut Core, grant: u64) {
        (self.read_grant, self.waits_for_room) = (Some(grant), false);
        for waiting in core::mem::take(&mut self.requester.wait_for_request) {
            self.requester.wake(waiting.into());
        }
        self.activate(core);
    }

    /// Part of the answer to a read arrived.
    pub fn on_read_answer(
        &mut self,
        core: &mut Core,
        part: &ReadPart,
        payload: &Payload,
        mem: &mut dyn HostMemory,
    ) -> Result<(), Refusal> {
        let slot = self.request_slot(part.read_id).ok_or(Refusal::Nak(NakReason::Stream))?;
        let len = payload.len_bytes();
        let Some(m) = self.requester.messages.get(slot) else { return Err(Refusal::Nak(NakReason::Stream)) };
        let is_read = matches!(m.wr.op, SendOp::Read { .. });
        let fits = part.offset.checked_add(len).is_some_and(|end| end <= m.wr.len) && part.len == m.wr.len;
        if !is_read || !fits || len > m.answer_left || (len == 0 && m.wr.len != 0) {
            return Err(Refusal::Nak(NakReason::Mtu));
        }
        let iova = self.landing(core, slot)?;
        if len > 0 && mem.write(iova.wrapping_add(part.offset.into()), payload).is_err() {
            return self.landing_fault(core, slot);
        }
        let Some(m) = self.requester.messages.get_mut(slot) else { return Err(Refusal::Drop) };
        m.answer_left -= len.max(1);
        if let Some(room) = m.room {
            core.reads.give_back(room, len);
        }
        if m.answer_left == 0 {
            self.finish_message(core, slot);
        }
        Ok(())
    }

    /// The answer to an atomic operation arrived.
    pub fn on_atomic_answer(
        &mut self,
        core: &mut Core,
        id: u16,
        orig: u64,
        mem: &mut dyn HostMemory,
    ) -> Result<(), Refusal> {
        let slot = self.request_slot(id).ok_or(Refusal::Nak(NakReason::Stream))?;
        let Some(m) = self.requester.messages.get(slot) else { return Err(Refusal::Nak(NakReason::Stream)) };
        if matches!(m.wr.op, SendOp::Read { .. }) {
            return Err(Refusal::Nak(NakReason::Stream));
        }
        let iova = self.landing(core, slot)?;
        if mem.write_u64(iova, orig).is_err() {
            return self.landing_fault(core, slot);
        }
        if let Some(m) = self.requester.messages.get_mut(slot) {
            m.answer_left = 0;
        }
        self.finish_message(core, slot);
        Ok(())
    }

    fn request_slot(&self, id: u16) -> Option<u32> {
        let slot = self.requester.requests[usize::from(id) % self.requester.requests.len()]?;
        let m = self.requester.messages.get(slot)?;
        (m.request_id == id && m.answer_left > 0).then_some(slot)
    }

    /// Completes everything that is not done in error: the oldest incomplete message of `stream` with `status`, the
    /// rest as flushed.
    pub fn flush_requester(&mut self, core: &mut Core, status: Status, stream: Option<usize>) {
        let has_any = |s: &TxStream| !(s.window.is_empty() && s.queue.is_empty());
        let culprit = stream.or_else(|| self.requester.streams.iter().position(has_any));
        for i in 0..self.requester.streams.len() {
            let s = &mut self.requester.streams[i];
            let (window, queue) = (core::mem::take(&mut s.window), core::mem::take(&mut s.queue));
            let (id, cq) = (s.cfg.id, s.cfg.sq_cq);
            (s.current, s.in_ring, s.wants_credit, s.requests) = (None, false, false, 0);
            let begun =
                window.into_iter().filter_map(|slot| self.requester.messages.get(slot)).filter(|m| !m.is_reported);
            let rest: Vec<SendWr> = begun.map(|m| m.wr).chain(queue).collect();
            for (n, wr) in rest.iter().enumerate() {
                let first = n == 0 && culprit == Some(i);
                if !first || status == Status::WrFlush {
                    core.counters.count(Counter::WqeFlushed);
                }
                let status = if first { status } else { Status::WrFlush };
                core.complete(cq, self.cqe(id, wr.wr_id, wr.op.cqe_op(), status));
            }
        }
        self.requester.ring.clear();
        self.requester.messages.clear();
        self.requester.requests.fill(None);
    }
}

impl TxMessage {
    fn new(wr: SendWr, stream: usize, mseq: Msn, rsn: Rsn) -> Self {
        Self {
            wr,
            stream: stream as u16,
            mseq,
            rsn,
            iova: 0,
            losses: 0,
            next: 0,
            unacked_pkts: 0,
            is_all_sent: false,
            answer_left: 0,
            request_id: 0,
            room: None,
            is_done: false,
            is_reported: false,
            is_retired: false,
            held_until: Time::ZERO,
            rnr_count: 0,
        }
    }
}

fn atomic_body(
    message: Message,
    va: u64,
    rkey: Rkey,
    swap_add: u64,
    compare: u64,
    op: AtomicOp,
    atomic_id: u16,
) -> Body {
    Body::AtomicReq { message, va, rkey, swap_add, compare, op, atomic_id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_waits_for_its_own_refusals_only() {
        let id = nic_spec::num::Qpn::new(1);
        let mut r = Requester::new(&ConnConfig::new(id, id));
        let wr = SendWr::new(0, SendOp::Write { remote: Default::default(), imm: None }, Default::default(), 8);
        let message = |mseq| TxMessage::new(wr, 0, Msn::new(mseq), Rsn::new(0));
        let slots = [0, 1].map(|n| r.messages.insert(message(n)));
        slots.iter().zip([100, 150]).for_each(|(slot, until)| _ = r.hold(*slot, Time(until)));
        let held = |now| slots.map(|slot| r.is_held(&Desc { slot, ..Desc::default() }, Time(now)));
        assert_eq!([99, 100, 150].map(held), [[true, true], [false, true], [false, false]]);
    }
}
