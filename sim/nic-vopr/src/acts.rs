//! Draws what is done to connections from outside: paths switched off and closed, queues paused, memory taken away, requests
//! that are bad, tables that are full.

use std::sync::Arc;

use nic_model::mr::Mr;
use nic_model::work::{Local, RemoteMemory, SendOp};
use nic_spec::desc::{Status, ACCESS_LOCAL_WRITE};
use nic_spec::num::{Lkey, Pd, Rkey};

use crate::faults::Faults;
use crate::memory::Region;
use crate::plan::{Act, Begin, Fate};
use crate::traffic::{Direction, Draft, Side, Traffic, ACCESS_ALL, US};

/// Rows of a small table of connections.
const SMALL_TABLE_ROWS: u32 = 32;

/// What goes wrong with a connection by somebody's doing: which side's requests, of which stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doom {
    /// One of them is refused.
    Bad(usize, usize),
    /// The peer takes the key away that they use.
    Revoked(usize, usize),
    /// Their own side takes the memory away that they read, or that answers go to.
    LocalRevoked(usize, usize),
    /// The peer takes the memory of the receives away that they take.
    ReceivesRevoked(usize, usize),
    /// The peer takes words away that they change.
    WordsRevoked(usize, usize),
}

impl Doom {
    const fn place(self) -> (usize, usize) {
        match self {
            Self::Bad(side, stream)
            | Self::Revoked(side, stream)
            | Self::LocalRevoked(side, stream)
            | Self::ReceivesRevoked(side, stream)
            | Self::WordsRevoked(side, stream) => (side, stream),
        }
    }

    /// True for the requests of this side and stream.
    pub fn is_of(self, own: usize, stream: usize) -> bool {
        self.place() == (own, stream)
    }

    /// What becomes of a side.
    pub fn fate(self, own: usize) -> Fate {
        if matches!(self, Self::Bad(culprit, _) if culprit == own) {
            Fate::Fails
        } else {
            Fate::MayFail
        }
    }

    /// What a side may fail for. Who is not to blame learns by silence that its peer failed.
    pub fn reasons(self, own: usize) -> &'static [Status] {
        let is_asking = self.place().0 == own;
        match (self, is_asking) {
            (Self::Bad(..), true) => &[Status::RemAccess, Status::LocProt],
            (Self::Revoked(..) | Self::WordsRevoked(..), true) => &[Status::RemAccess, Status::RetryExc],
            // The answer to a read, or an operation, that has lost its memory.
            (Self::Revoked(..) | Self::WordsRevoked(..), false) => &[Status::LocProt, Status::RetryExc],
            (Self::LocalRevoked(..), true) | (Self::ReceivesRevoked(..), false) => &[Status::LocProt],
            (Self::Bad(..), false) | (Self::LocalRevoked(..), false) | (Self::ReceivesRevoked(..), true) => {
                &[Status::RetryExc]
            }
        }
    }
}

impl Traffic {
    /// What the administrator of a host does to a connection, and takes back later.
    pub(crate) fn add_acts(&mut self, side: Side, faults: &Faults) {
        let (conn, count) = (side.conn, self.draw.between(1, 4));
        let is_pause = self.draw.percent(30);
        for _ in 0..count {
            let from_ps = self.draw.below(faults.end_ps);
            let until_ps = from_ps + self.draw.magnitude(US, 2_000 * US);
            let path = self.draw.below(12) as u8;
            let acts = if is_pause {
                [Act::Pause { conn }, Act::Resume { conn }]
            } else {
                [Act::Deny { conn, path }, Act::Permit { conn, path }]
            };
            self.plan.hosts[side.host].acts.extend([(from_ps, acts[0]), (until_ps, acts[1])]);
            self.plan.end_ps = self.plan.end_ps.max(until_ps);
        }
    }

    /// Paths that the administrator closes for good, at any moment.
    pub(crate) fn add_closings(&mut self, side: Side, faults: &Faults) {
        if !self.outside.percent(10) {
            return;
        }
        for _ in 0..self.outside.between(1, 6) {
            let at_ps = self.outside.below(faults.end_ps);
            let act = Act::Close { conn: side.conn, path: self.outside.below(12) as u8 };
            self.plan.hosts[side.host].acts.push((at_ps, act));
            self.plan.end_ps = self.plan.end_ps.max(at_ps);
            self.plan.has_closings = true;
        }
    }

    /// Regions that come and go while nobody uses them.
    pub(crate) fn add_churn(&mut self, faults: &Faults) {
        for host in 0..self.plan.hosts.len() {
            let count = if self.outside.percent(30) { self.outside.between(1, 30) } else { 0 };
            let at_ps: Vec<u64> = (0..count).map(|_| self.outside.below(faults.end_ps)).collect();
            self.plan.hosts[host].acts.extend(at_ps.into_iter().map(|at_ps| (at_ps, Act::Churn)));
        }
    }

    /// Hosts that grant connections and whose tables are full at first: who asks is refused, and asks again.
    pub(crate) fn fill_tables(&mut self) {
        for host in 0..self.plan.hosts.len() {
            let conns = &self.plan.hosts[host].conns;
            let granted: Vec<u16> = conns
                .iter()
                .filter_map(|conn| match conn.begin {
                    Begin::Grants { service, is_deaf: false, .. } => Some(service),
                    _ => None,
                })
                .collect();
            // What a host asks for has rows of its own choice.
            let asks = conns.iter().any(|conn| matches!(conn.begin, Begin::Asks { .. }));
            if granted.is_empty() || asks || !self.outside.percent(60) {
                continue;
            }
            let mask = SMALL_TABLE_ROWS - 1;
            let agreed = conns.iter().filter(|conn| conn.begin == Begin::Agreed);
            let mut taken: Vec<u32> = agreed.map(|conn| conn.config.local_id.get() & mask).collect();
            taken.sort_unstable();
            if taken.windows(2).any(|rows| rows[0] == rows[1]) {
                continue;
            }
            // Rows 0 and 1 may be of ids that are never given; that makes them no less free.
            let free: Vec<u32> = (0..SMALL_TABLE_ROWS).filter(|row| !taken.contains(row)).collect();
            let spare = self.outside.below(3) as usize;
            let plan = &mut self.plan.hosts[host];
            plan.nic.conns_max = SMALL_TABLE_ROWS;
            plan.used_rows = free[spare.min(free.len())..].to_vec();
            self.plan.ended_conns += 1;
            for conn in self.plan.hosts.iter_mut().flat_map(|plan| &mut plan.conns) {
                if let Begin::Asks { service, may_be_full, .. } = &mut conn.begin {
                    *may_be_full |= granted.contains(service);
                }
            }
        }
    }

    /// Memory that work under way needs is taken away in some connections.
    pub(crate) fn draw_loss_of_memory(&mut self, side: usize, stream: usize) -> Option<Doom> {
        match self.outside.weighted(&[84, 8, 4, 4]) {
            0 => None,
            1 => Some(Doom::LocalRevoked(side, stream)),
            2 => Some(Doom::ReceivesRevoked(side, stream)),
            _ => Some(Doom::WordsRevoked(side, stream)),
        }
    }

    /// Adds what dooms the connection.
    pub(crate) fn add_doom(&mut self, d: &mut Direction, doom: Doom, faults: &Faults) {
        match doom {
            Doom::Bad(..) => self.add_bad(d),
            Doom::Revoked(..) => self.add_revoked(d, faults),
            Doom::LocalRevoked(..) => self.add_local_revoked(d, faults),
            Doom::ReceivesRevoked(..) => self.add_receives_revoked(d, faults),
            Doom::WordsRevoked(..) => self.add_words_revoked(d, faults),
        }
    }

    /// A request that one of the checks has to refuse.
    pub(crate) fn add_bad(&mut self, d: &mut Direction) {
        let len = 1 + self.len();
        let source = self.add_region(d.here.host, len, 1, false);
        let target = self.add_region(d.there.host, len, 1, true);
        let (mut local, mut remote) = (Self::local(d.here, source), Self::remote(d.there, target));
        let mr = self.plan.hosts[d.there.host].mrs[(d.there.rkey.get() >> 8) as usize];
        let special = |access, pd| Mr { key: !mr.key, pd, access, va: remote.va, len, iova: target.iova };
        let read = self.draw.percent(50);
        match self.draw.below(6) {
            0 => remote.rkey = Rkey::new(d.there.rkey.get() ^ 1),
            1 => remote.rkey = Rkey::new(d.there.rkey.get() | 0xff_ff00),
            // The region ends with the connection's last byte, which comes later; 2^40 bytes do not.
            2 => remote.va = remote.va.wrapping_add(1 << 40),
            3 => remote.rkey = self.add_mr(d.there.host, special(ACCESS_ALL, Pd::new(mr.pd.get() ^ 1))),
            4 => remote.rkey = self.add_mr(d.there.host, special(ACCESS_LOCAL_WRITE, mr.pd)),
            _ => local.lkey = Lkey::new(local.lkey.get() ^ 1),
        }
        let op = if read { SendOp::Read { remote } } else { SendOp::Write { remote, imm: None } };
        // A read needs a place that it may write.
        if read {
            let place = self.add_region(d.here.host, len, 1, true);
            local.va = Self::local(d.here, place).va;
        }
        let wr = self.push(d, Draft { op, local, len: len as u32, fence: false, content: None });
        self.plan.hosts[d.here.host].expected[wr.wr_id as usize].is_bad = true;
    }

    /// Requests under a key that the far side takes away at some moment; some may be done by then.
    pub(crate) fn add_revoked(&mut self, d: &mut Direction, faults: &Faults) {
        let (count, len) = (self.draw.between(1, 8), 1 + self.len());
        let region = self.add_region(d.there.host, count * len, 1, true);
        let pd = self.plan.hosts[d.there.host].mrs[(d.there.rkey.get() >> 8) as usize].pd;
        let (key, va) = (self.draw.bits() as u8, self.draw.below(1 << 47));
        let rkey =
            self.add_mr(d.there.host, Mr { key, pd, access: ACCESS_ALL, va, len: region.len, iova: region.iova });
        let from_ps = d.now_ps;
        for part in 0..count {
            let there = Region { iova: region.iova + part * len, len, ..region };
            let remote = RemoteMemory { va: va + part * len, rkey };
            d.now_ps += self.draw.below(faults.end_ps / 8);
            let is_read = self.draw.percent(50);
            let here = self.add_region(d.here.host, len, 1, is_read);
            let local = Self::local(d.here, here);
            if is_read {
                let bytes: Arc<[u8]> = self.image(d.there.host, there).into();
                self.set_image(d, d.here, here, &bytes);
                let content = Some((here.iova, bytes));
                self.push(d, Draft { op: SendOp::Read { remote }, local, len: len as u32, fence: false, content });
            } else {
                let bytes: Arc<[u8]> = self.image(d.here.host, here).into();
                self.set_image(d, d.there, there, &bytes);
                let op = SendOp::Write { remote, imm: None };
                let wr = self.push(d, Draft { op, local, len: len as u32, fence: false, content: None });
                self.fills(d, &wr, there);
            }
        }
        let at_ps = from_ps + self.draw.below(2 * (d.now_ps - from_ps) + 20 * US);
        self.plan.hosts[d.there.host].acts.push((at_ps, Act::Revoke { key: rkey, region }));
        self.plan.end_ps = self.plan.end_ps.max(at_ps).max(d.now_ps);
    }

    /// Memory of its own at a side, under a key of its own: so many parts of so many bytes.
    fn add_key(&mut self, side: Side, count: u64, len: u64) -> (Region, Rkey, u64) {
        let region = self.add_region(side.host, count * len, 8, true);
        let pd = self.plan.hosts[side.host].mrs[(side.rkey.get() >> 8) as usize].pd;
        let (key, va) = (self.draw.bits() as u8, self.draw.below(1 << 47) & !7);
        let mr = Mr { key, pd, access: ACCESS_ALL, va, len: region.len, iova: region.iova };
        (region, self.add_mr(side.host, mr), va)
    }

    /// The memory is taken away that requests posted at these times need: often while one of them is under way.
    fn revoke(&mut self, host: usize, key: Rkey, region: Region, posted_ps: &[u64]) {
        let (from_ps, to_ps) = (posted_ps[0], posted_ps[posted_ps.len() - 1]);
        let at_ps = if self.draw.percent(70) {
            *self.draw.pick(posted_ps) + self.draw.magnitude(10_000, 40 * US)
        } else {
            from_ps + self.draw.below(2 * (to_ps - from_ps) + 20 * US)
        };
        self.plan.hosts[host].acts.push((at_ps, Act::Revoke { key, region }));
        self.plan.end_ps = self.plan.end_ps.max(at_ps).max(to_ps);
    }

    /// Requests from and into memory that their own host takes away at some moment; some may be done by then.
    fn add_local_revoked(&mut self, d: &mut Direction, faults: &Faults) {
        let (count, len) = (self.draw.between(1, 8), 8 + self.len());
        let (region, key, va) = self.add_key(d.here, count, len);
        let mut posted_ps = Vec::new();
        for part in 0..count {
            let here = Region { iova: region.iova + part * len, len, ..region };
            let local = Local { va: va + part * len, lkey: Lkey::new(key.get()) };
            d.now_ps += self.draw.below(faults.end_ps / 8);
            posted_ps.push(d.now_ps);
            let kind = self.draw.below(4);
            let bytes: Arc<[u8]> = self.image(d.here.host, here).into();
            let draft = |op, len: u64, content| Draft { op, local, len: len as u32, fence: false, content };
            match kind {
                0 => {
                    let there = self.add_region(d.there.host, len, 1, true);
                    self.set_image(d, d.there, there, &bytes);
                    let op = SendOp::Write { remote: Self::remote(d.there, there), imm: None };
                    let wr = self.push(d, draft(op, len, None));
                    self.fills(d, &wr, there);
                }
                1 => {
                    let there = self.add_region(d.there.host, len, 1, true);
                    self.set_image(d, d.there, there, &bytes);
                    let wr = self.push(d, draft(SendOp::Send { imm: None, inv: None, tag: None }, len, None));
                    self.fills(d, &wr, there);
                    self.push_recv(d, &wr, there, (there.iova, bytes));
                }
                2 => {
                    let there = self.add_region(d.there.host, len, 1, false);
                    let bytes: Arc<[u8]> = self.image(d.there.host, there).into();
                    self.set_image(d, d.here, here, &bytes);
                    let op = SendOp::Read { remote: Self::remote(d.there, there) };
                    self.push(d, draft(op, len, Some((here.iova, bytes))));
                }
                _ => {
                    let there = self.add_region(d.there.host, 8, 8, true);
                    let before: [u8; 8] = self.image(d.there.host, there).try_into().expect("8 bytes");
                    self.set_image(d, d.here, Region { len: 8, ..here }, &before);
                    let (compare, swap) = (u64::from_le_bytes(before), self.draw.bits());
                    self.set_image(d, d.there, there, &swap.to_le_bytes());
                    let op = SendOp::CompareSwap { remote: Self::remote(d.there, there), compare, swap };
                    self.push(d, draft(op, 8, Some((here.iova, before.into()))));
                }
            }
        }
        self.revoke(d.here.host, key, region, &posted_ps);
    }

    /// Atomic operations on words that the peer takes away at some moment, each behind a write for which it may wait.
    fn add_words_revoked(&mut self, d: &mut Direction, faults: &Faults) {
        let count = self.draw.between(1, 8);
        let (region, key, va) = self.add_key(d.there, count, 8);
        let mut posted_ps = Vec::new();
        for part in 0..count {
            let cell = Region { iova: region.iova + part * 8, len: 8, ..region };
            d.now_ps += self.draw.below(faults.end_ps / 8);
            posted_ps.push(d.now_ps);
            let len = (16 << 10) + self.len();
            let (source, bytes) = self.source(d, len);
            let there = self.add_region(d.there.host, len, 1, true);
            self.set_image(d, d.there, there, &bytes);
            let op = SendOp::Write { remote: Self::remote(d.there, there), imm: None };
            let local = Self::local(d.here, source);
            let wr = self.push(d, Draft { op, local, len: len as u32, fence: false, content: None });
            self.fills(d, &wr, there);
            let before: [u8; 8] = self.image(d.there.host, cell).try_into().expect("8 bytes");
            let (compare, swap) = (u64::from_le_bytes(before), self.draw.bits());
            self.set_image(d, d.there, cell, &swap.to_le_bytes());
            let here = self.add_region(d.here.host, 8, 1, true);
            self.set_image(d, d.here, here, &before);
            let op = SendOp::CompareSwap { remote: RemoteMemory { va: va + part * 8, rkey: key }, compare, swap };
            let content = Some((here.iova, before.into()));
            let local = Self::local(d.here, here);
            self.push(d, Draft { op, local, len: 8, fence: false, content });
        }
        self.revoke(d.there.host, key, region, &posted_ps);
    }

    /// Sends into memory that the peer takes away at some moment.
    fn add_receives_revoked(&mut self, d: &mut Direction, faults: &Faults) {
        let (count, len) = (self.draw.between(1, 8), 1 + self.len());
        let (region, key, va) = self.add_key(d.there, count, len);
        let mut posted_ps = Vec::new();
        for part in 0..count {
            let there = Region { iova: region.iova + part * len, len, ..region };
            d.now_ps += self.draw.below(faults.end_ps / 8);
            posted_ps.push(d.now_ps);
            let (source, bytes) = self.source(d, len);
            self.set_image(d, d.there, there, &bytes);
            let op = SendOp::Send { imm: None, inv: None, tag: None };
            let local = Self::local(d.here, source);
            let wr = self.push(d, Draft { op, local, len: len as u32, fence: false, content: None });
            self.fills(d, &wr, there);
            let receive = Local { va: va + part * len, lkey: Lkey::new(key.get()) };
            self.push_recv_at(d, &wr, receive, len, (there.iova, bytes));
        }
        self.revoke(d.there.host, key, region, &posted_ps);
    }
}
