//! Draws the messages of one direction of a stream, and works out what they leave behind.

use std::sync::Arc;

use nic_model::mr::Mr;
use nic_model::work::{CqeOp, Local, RecvWr, RemoteMemory, SendOp, SendWr, TagMatch};
use nic_spec::num::{Lkey, Rkey};

use crate::faults::Faults;
use crate::memory::Region;
use crate::plan::{Expected, Request};
use crate::traffic::{Direction, Draft, Side, Traffic, ACCESS_ALL, US};

impl Traffic {
    pub(crate) fn add_messages(&mut self, direction: &mut Direction, faults: &Faults) {
        let count = if self.draw.percent(20) { 0 } else { self.draw.magnitude(1, 24) };
        let count = count.min(self.messages_max);
        let gap_ps = if self.draw.percent(40) { 1 } else { faults.end_ps / count.max(1) };
        for _ in 0..count {
            direction.now_ps += self.draw.below(gap_ps.max(1) * 2);
            self.add_message(direction);
        }
        self.plan.end_ps = self.plan.end_ps.max(direction.now_ps);
    }

    pub(crate) fn len(&mut self) -> u64 {
        match self.draw.weighted(&[1, 2, 6]) {
            0 => 0,
            // Around the payload of one packet.
            1 => (1 << self.draw.between(10, 13)) - 2 + self.draw.below(5),
            _ => self.draw.magnitude(1, self.len_max),
        }
    }

    fn add_message(&mut self, d: &mut Direction) {
        // What becomes of a word when its change was cut off could be either.
        let weights = if d.is_doomed { [3, 2, 3, 1, 2, 0, 0, 0] } else { self.weights };
        match self.draw.weighted(&weights) {
            0 => self.add_write(d, false),
            1 => self.add_write(d, true),
            2 => self.add_send(d, false),
            3 => self.add_send(d, true),
            4 => self.add_read(d),
            5 => self.add_compare_swap(d),
            6 => self.add_fetch_add(d),
            _ if self.draw.percent(50) => self.add_flush(d),
            _ => self.add_read_and_overwrite(d),
        }
    }

    /// Where this region is in the space of a side's keys.
    pub(crate) fn local(side: Side, region: Region) -> Local {
        Local { va: region.iova.wrapping_add(side.va_less_iova), lkey: Lkey::new(side.rkey.get()) }
    }

    pub(crate) fn remote(side: Side, region: Region) -> RemoteMemory {
        RemoteMemory { va: region.iova.wrapping_add(side.va_less_iova), rkey: side.rkey }
    }

    /// Puts a message into its lane and its completion into its queue.
    pub(crate) fn push(&mut self, d: &Direction, draft: Draft) -> SendWr {
        let is_signaled = self.draw.percent(85) || d.is_all_signaled;
        let solicited = self.draw.percent(10);
        let plan = &mut self.plan.hosts[d.here.host];
        let is_barrier = draft.fence || matches!(draft.op, SendOp::Flush { .. });
        let wr_id = plan.expected.len() as u64;
        plan.expected.push(Expected {
            conn: d.here.conn,
            stream: d.stream,
            op: draft.op.cqe_op(),
            byte_len: draft.len,
            imm: None,
            tag: None,
            invalidated: None,
            solicited: false,
            is_signaled,
            is_bad: false,
            is_farewell: false,
            is_barrier,
            content: draft.content,
            target: None,
            queue: d.send_queue,
        });
        plan.queues[d.send_queue].order.push(wr_id as usize);
        let wr = SendWr {
            wr_id,
            op: draft.op,
            local: draft.local,
            len: draft.len,
            signaled: is_signaled,
            solicited,
            fence: draft.fence,
        };
        plan.lanes[d.send_lane].requests.push_back((d.now_ps, Request::Send(wr)));
        plan.tx_messages += 1;
        self.plan.hosts[d.there.host].rx_messages += 1;
        self.plan.bytes += u64::from(draft.len);
        wr
    }

    /// The message fills this region of the far side.
    pub(crate) fn fills(&mut self, d: &Direction, wr: &SendWr, region: Region) {
        let target = Some((d.there.host, Self::range(region)));
        self.plan.hosts[d.here.host].expected[wr.wr_id as usize].target = target;
    }

    /// Puts the receive that a message takes into its lane, and its completion into its queue.
    pub(crate) fn push_recv(&mut self, d: &Direction, wr: &SendWr, buffer: Region, content: (u64, Arc<[u8]>)) {
        self.push_recv_at(d, wr, Self::local(d.there, buffer), buffer.len, content);
    }

    /// The same where the receive has another key.
    pub(crate) fn push_recv_at(
        &mut self,
        d: &Direction,
        wr: &SendWr,
        local: Local,
        len: u64,
        content: (u64, Arc<[u8]>),
    ) {
        let (op, imm, inv, tag) = match wr.op {
            SendOp::Send { imm, inv, tag } => (CqeOp::Recv, imm, inv, tag),
            SendOp::Write { imm, .. } => (CqeOp::RecvImm, imm, None, None),
            _ => unreachable!("only these take a receive"),
        };
        // In good time, or late.
        let posted_ps = if self.draw.percent(70) { 0 } else { d.now_ps + self.draw.below(200 * US) };
        let ignore = if self.draw.percent(30) { 0xff << 56 } else { 0 };
        let plan = &mut self.plan.hosts[d.there.host];
        let wr_id = plan.expected.len() as u64;
        plan.expected.push(Expected {
            conn: d.there.conn,
            stream: d.stream,
            op,
            byte_len: wr.len,
            imm,
            tag,
            invalidated: inv,
            solicited: wr.solicited,
            is_signaled: true,
            is_bad: false,
            is_farewell: false,
            is_barrier: wr.fence,
            content: Some(content),
            target: None,
            queue: d.recv_queue,
        });
        plan.queues[d.recv_queue].order.push(wr_id as usize);
        let recv = RecvWr { wr_id, local, len: len as u32, tag: tag.map(|bits| TagMatch { bits, ignore }) };
        let lane = &mut plan.lanes[d.recv_lane].requests;
        let posted_ps = lane.back().map_or(0, |(at_ps, _)| *at_ps).max(posted_ps);
        lane.push_back((posted_ps, Request::Recv(recv)));
        self.plan.end_ps = self.plan.end_ps.max(posted_ps);
    }

    pub(crate) fn source(&mut self, d: &Direction, len: u64) -> (Region, Arc<[u8]>) {
        let region = self.add_region(d.here.host, len, 1, false);
        let bytes = self.image(d.here.host, region).into();
        (region, bytes)
    }

    fn add_write(&mut self, d: &mut Direction, has_imm: bool) {
        let len = self.len();
        let (source, bytes) = self.source(d, len);
        let target = self.add_region(d.there.host, len, 1, true);
        let imm = has_imm.then(|| self.draw.bits() as u32);
        let op = SendOp::Write { remote: Self::remote(d.there, target), imm };
        self.set_image(d, d.there, target, &bytes);
        let fence = self.draw.percent(10);
        let draft = Draft { op, local: Self::local(d.here, source), len: len as u32, fence, content: None };
        let wr = self.push(d, draft);
        self.fills(d, &wr, target);
        if has_imm {
            let buffer = self.add_region(d.there.host, 1, 1, true);
            self.push_recv(d, &wr, buffer, (target.iova, bytes));
        }
        d.written.push(target);
    }

    /// A write of many times what a path's bitmap can tell.
    pub(crate) fn add_long_write(&mut self, d: &mut Direction) {
        let len = self.outside.between(400 << 10, 900 << 10);
        let (source, bytes) = self.source(d, len);
        let target = self.add_region(d.there.host, len, 1, true);
        self.set_image(d, d.there, target, &bytes);
        let op = SendOp::Write { remote: Self::remote(d.there, target), imm: None };
        let local = Self::local(d.here, source);
        let wr = self.push(d, Draft { op, local, len: len as u32, fence: false, content: None });
        self.fills(d, &wr, target);
    }

    fn add_send(&mut self, d: &mut Direction, is_special: bool) {
        let len = self.len();
        let (source, bytes) = self.source(d, len);
        let spare = if self.draw.percent(50) { 0 } else { self.draw.below(100) };
        let buffer = self.add_region(d.there.host, (len + spare).max(1), 1, true);
        self.set_image(d, d.there, buffer, &bytes);
        let imm = self.draw.percent(30).then(|| self.draw.bits() as u32);
        let (mut inv, mut tag) = (None, None);
        if is_special && self.draw.percent(50) {
            // Tags differ in the bits that no receive ignores.
            let number = self.plan.hosts[d.there.host].expected.len() as u64;
            tag = Some(self.draw.bits() << 56 | number);
        } else if is_special {
            inv = Some(self.add_key_to_invalidate(d));
        }
        // Immediate data and a key to invalidate take the same place in the packet.
        let imm = imm.filter(|_| inv.is_none());
        let op = SendOp::Send { imm, inv, tag };
        let fence = self.draw.percent(10);
        let draft = Draft { op, local: Self::local(d.here, source), len: len as u32, fence, content: None };
        let wr = self.push(d, draft);
        self.fills(d, &wr, Region { len, ..buffer });
        self.push_recv(d, &wr, buffer, (buffer.iova, bytes));
    }

    /// A key of the far side that nothing uses any more when it is invalidated.
    fn add_key_to_invalidate(&mut self, d: &mut Direction) -> Rkey {
        let len = self.len();
        let target = self.add_region(d.there.host, len, 1, true);
        let pd = self.plan.hosts[d.there.host].mrs[(d.there.rkey.get() >> 8) as usize].pd;
        let va = self.draw.below(1 << 47);
        let key = self.draw.bits() as u8;
        let rkey =
            self.add_mr(d.there.host, Mr { key, pd, access: ACCESS_ALL, va, len: len.max(1), iova: target.iova });
        if !d.is_unordered && self.draw.percent(70) {
            let (source, bytes) = self.source(d, len);
            self.set_image(d, d.there, target, &bytes);
            let op = SendOp::Write { remote: RemoteMemory { va, rkey }, imm: None };
            let draft = Draft { op, local: Self::local(d.here, source), len: len as u32, fence: false, content: None };
            self.push(d, draft);
        }
        rkey
    }

    fn add_read(&mut self, d: &mut Direction) {
        let is_of_written = !d.written.is_empty() && self.draw.percent(50);
        let remote = if is_of_written {
            *self.draw.pick(&d.written)
        } else {
            let len = self.len();
            self.add_region(d.there.host, len, 1, false)
        };
        let fence = (is_of_written && d.is_unordered) || self.draw.percent(10);
        self.push_read(d, remote, fence);
    }

    fn push_read(&mut self, d: &Direction, remote: Region, fence: bool) {
        let bytes: Arc<[u8]> = self.image(d.there.host, remote).into();
        let target = self.add_region(d.here.host, remote.len, 1, true);
        self.set_image(d, d.here, target, &bytes);
        let op = SendOp::Read { remote: Self::remote(d.there, remote) };
        let content = Some((target.iova, bytes));
        self.push(d, Draft { op, local: Self::local(d.here, target), len: remote.len as u32, fence, content });
    }

    /// A read, and a write over what it took that may only begin when it is done.
    fn add_read_and_overwrite(&mut self, d: &mut Direction) {
        let len = self.len();
        let cell = self.add_region(d.there.host, len, 1, true);
        self.push_read(d, cell, false);
        let (source, bytes) = self.source(d, len);
        self.set_image(d, d.there, cell, &bytes);
        let op = SendOp::Write { remote: Self::remote(d.there, cell), imm: None };
        self.push(d, Draft { op, local: Self::local(d.here, source), len: len as u32, fence: true, content: None });
    }

    fn add_compare_swap(&mut self, d: &mut Direction) {
        // Several on one word, each of which sees what the one before left. Without order each is alone on its word.
        let rounds = if d.is_unordered { 1 } else { self.draw.between(1, 3) };
        let cell = self.add_region(d.there.host, 8, 8, true);
        for _ in 0..rounds {
            let before: [u8; 8] = self.image(d.there.host, cell).try_into().expect("8 bytes");
            let orig = u64::from_le_bytes(before);
            let is_hit = self.draw.percent(60);
            let compare = if is_hit { orig } else { orig ^ 1 << self.draw.below(64) };
            let swap = self.draw.bits();
            if is_hit {
                self.set_image(d, d.there, cell, &swap.to_le_bytes());
            }
            let target = self.add_region(d.here.host, 8, 1, true);
            self.set_image(d, d.here, target, &before);
            let op = SendOp::CompareSwap { remote: Self::remote(d.there, cell), compare, swap };
            let content = Some((target.iova, before.into()));
            self.push(d, Draft { op, local: Self::local(d.here, target), len: 8, fence: false, content });
        }
        if !d.is_unordered {
            d.written.push(cell);
        }
    }

    fn add_fetch_add(&mut self, d: &mut Direction) {
        let Some(index) = self.plan.counters.iter().position(|counter| counter.host as usize == d.there.host) else {
            return self.add_compare_swap(d);
        };
        let add = self.draw.bits() | 1;
        let pd = self.plan.hosts[d.there.host].mrs[(d.there.rkey.get() >> 8) as usize].pd;
        let iova = self.plan.counters[index].iova;
        // Words that are added to lie outside the connections' regions, so each user has a key for them.
        let va = self.draw.below(1 << 47) & !7;
        let key = self.draw.bits() as u8;
        let rkey = self.add_mr(d.there.host, Mr { key, pd, access: ACCESS_ALL, va, len: 8, iova });
        let target = self.add_region(d.here.host, 8, 1, true);
        self.open(d.here.host, target);
        self.plan.counters[index].adds.push((d.here.host as u32, target.iova, add));
        let op = SendOp::FetchAdd { remote: RemoteMemory { va, rkey }, add };
        let fence = self.draw.percent(10);
        self.push(d, Draft { op, local: Self::local(d.here, target), len: 8, fence, content: None });
    }

    /// Tells the peer that this side has all it waits for; it is sent when that is so.
    pub(crate) fn add_farewell(&mut self, d: &mut Direction) {
        let (source, bytes) = self.source(d, 8);
        let buffer = self.add_region(d.there.host, 8, 1, true);
        self.set_image(d, d.there, buffer, &bytes);
        let op = SendOp::Send { imm: None, inv: None, tag: None };
        let draft = Draft { op, local: Self::local(d.here, source), len: 8, fence: false, content: None };
        let wr = self.push(d, draft);
        self.push_recv(d, &wr, buffer, (buffer.iova, bytes));
        let plan = &mut self.plan.hosts[d.here.host];
        plan.expected[wr.wr_id as usize].is_farewell = true;
        if let Some((_, request)) = plan.lanes[d.send_lane].requests.back_mut() {
            *request = Request::Farewell(wr);
        }
        if let Some(receive) = self.plan.hosts[d.there.host].expected.last_mut() {
            receive.is_farewell = true;
        }
    }

    fn add_flush(&mut self, d: &mut Direction) {
        let Some(region) = d.written.last().copied() else { return self.add_write(d, false) };
        let op = SendOp::Flush { remote: Self::remote(d.there, region) };
        let local = Local { va: 0, lkey: Lkey::new(0) };
        self.push(d, Draft { op, local, len: region.len as u32, fence: false, content: None });
    }
}
