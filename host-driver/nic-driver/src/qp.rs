//! Queue pairs: a connection with its send and receive queue.
//!
//! ```text
//!   create ──► Init ──to_rtr(peer)──► Rtr ──to_rts()──► Rts ──► Error (the card's decision) ──► destroy
//! ```
//!
//! In `Rtr` the card takes packets of the peer, in `Rts` it sends. Between `create` and `to_rtr` the two hosts exchange
//! [`ConnInfo`]s by any means they like. A queue pair in error does not come back: destroy it and create a new one, which
//! has another number, so that packets under way to the old one meet nothing.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nic_spec::consts;
use nic_spec::desc::{AhRow, ConnRow, Cqe, CqeOpcode, PathRxRow, PathTxRow, SqRow, Status, Table, Wqe, WqeOpcode};
use nic_spec::num::{Dscp, Epoch, Lkey, Msn, Pkey, Plane, Psn, Qpn, Rkey, Rsn, StreamId};

use crate::conn_info::{Agreement, ConnInfo, PathInfo, CONN_INFO_VERSION};
use crate::cq::{ring_size, Completion, Cq, CqShared, Outcome};
use crate::device::Device;
use crate::dma::DmaMapping;
use crate::doorbell;
use crate::error::{Error, Result};
use crate::pci::DmaAccess;
use crate::pd::Pd;
use crate::queue::{RecvQueue, SendQueue};

/// Settings of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Logarithm of the number of send entries, 0..=15.
    pub sq_log2_size: u8,
    /// Logarithm of the number of receive entries, 0..=15; `None` = no receives.
    pub rq_log2_size: Option<u8>,
    /// Logarithm of the largest payload of a packet, 10..=13; the smaller of both sides counts.
    pub pmtu_log2: u8,
    /// Partition key.
    pub pkey: u16,
    /// Traffic class, 6 bits.
    pub dscp: u8,
    /// Hop limit or time to live of sent packets.
    pub hop_limit: u8,
    /// Stream of all messages; 0 is for control.
    pub stream_id: u16,
    /// First MSEQ, both ways, 24 bits.
    pub init_msn: u32,
    /// First RSN, both ways, 24 bits.
    pub init_rsn: u32,
    /// Paths to send on; the first ones of both sides' are used.
    pub paths: Vec<PathConfig>,
}

impl Default for QpConfig {
    /// 64 sends and receives, default PMTU and partition, stream 1, the default number of paths.
    fn default() -> Self {
        Self {
            sq_log2_size: 6,
            rq_log2_size: Some(6),
            pmtu_log2: consts::PMTU_LOG2,
            pkey: consts::PKEY_DEFAULT,
            dscp: 0,
            hop_limit: consts::HOP_LIMIT,
            stream_id: 1,
            init_msn: 0,
            init_rsn: 0,
            paths: vec![PathConfig::default(); consts::PATHS_PER_CONN as usize],
        }
    }
}

/// Settings of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathConfig {
    /// UDP source port of its packets, by which the network chooses the way; `None` = one of the card's own choice that
    /// no other path of the card has, as far as there are enough.
    pub sport: Option<u16>,
    /// Plane to leave by, 4 bits.
    pub plane: u8,
    /// Epoch of the path's aim, 4 bits.
    pub epoch: u8,
    /// PSEQ of the first packet, 24 bits.
    pub init_pseq: u32,
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Created; receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// The card gave the connection up; everything posted is flushed.
    Error,
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Error => "ERROR",
        })
    }
}

/// Local memory of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// First address, within the region's addresses.
    pub va: u64,
    /// Key of the region.
    pub lkey: Lkey,
    /// Length in bytes, 0..=2^31.
    pub len_bytes: u32,
}

/// What a send does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Writes the peer's memory.
    Write,
    /// The same, and completes a receive of the peer with this number.
    WriteImm(u32),
}

/// A work request for the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// What to send.
    pub local: Sge,
    /// Address at the peer of the first byte.
    pub remote_va: u64,
    /// Key of the peer's region.
    pub rkey: Rkey,
    /// A completion is wanted also when it ends well.
    pub is_signaled: bool,
    /// The peer's completion is a solicited event.
    pub is_solicited: bool,
    /// Not to begin before all earlier reads and atomics are complete.
    pub is_fenced: bool,
}

impl SendWr {
    /// A signaled write.
    pub fn write(wr_id: u64, local: Sge, remote_va: u64, rkey: Rkey) -> Self {
        let op = SendOp::Write;
        Self { wr_id, op, local, remote_va, rkey, is_signaled: true, is_solicited: false, is_fenced: false }
    }

    /// A signaled write with immediate.
    pub fn write_imm(wr_id: u64, local: Sge, remote_va: u64, rkey: Rkey, imm: u32) -> Self {
        Self { op: SendOp::WriteImm(imm), ..Self::write(wr_id, local, remote_va, rkey) }
    }

    /// The same without a completion when it ends well.
    pub fn unsignaled(self) -> Self {
        Self { is_signaled: false, ..self }
    }

    fn wqe(&self) -> Wqe<[u8; Wqe::LEN]> {
        let mut wqe = Wqe::zeroed();
        let opcode = match self.op {
            SendOp::Write => WqeOpcode::Write,
            SendOp::WriteImm(imm) => {
                wqe.set_imm(imm);
                WqeOpcode::WriteImm
            }
        };
        wqe.set_opcode(opcode.code()).set_signaled(self.is_signaled).set_solicited(self.is_solicited);
        wqe.set_fence(self.is_fenced).set_length(self.local.len_bytes);
        wqe.set_local_va(self.local.va).set_lkey(self.local.lkey).set_remote_va(self.remote_va).set_rkey(self.rkey);
        wqe
    }
}

/// A queue pair. It ends when it is dropped or [destroyed](Qp::destroy).
pub struct Qp {
    shared: Arc<QpShared>,
}

pub(crate) struct QpShared {
    pd: Pd,
    conn: u32,
    qpn: Qpn,
    local: ConnInfo,
    dscp: Dscp,
    hop_limit: u8,
    send_cq: Arc<CqShared>,
    recv_cq: Arc<CqShared>,
    ring: DmaMapping,
    inner: Mutex<Inner>,
}

struct Inner {
    state: QpState,
    sends: SendQueue,
    receives: Option<RecvQueue>,
    /// The connection's row on the card.
    conn_row: ConnRow<[u8; ConnRow::LEN]>,
    /// Paths whose rows are written.
    path_count: u32,
    is_destroyed: bool,
}

impl Qp {
    /// A new queue pair in state [`QpState::Init`], whose completions go to `send_cq` and `recv_cq`.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting out of range, [`Error::OtherDevice`] when a queue is on another card than `pd`,
    /// [`Error::Exhausted`], and the errors of mapping memory.
    pub fn create(pd: &Pd, send_cq: &Cq, recv_cq: &Cq, config: &QpConfig) -> Result<Self> {
        let device = pd.device();
        for cq in [send_cq, recv_cq] {
            if !cq.device().is_same_as(device) {
                return Err(Error::OtherDevice { what: "completion queue" });
            }
        }
        let sq_size = ring_size("log2 size of the send queue", config.sq_log2_size)?;
        let rq_size = config.rq_log2_size.map(|log2| ring_size("log2 size of the receive queue", log2)).transpose()?;
        if config.dscp >> Dscp::BITS != 0 {
            let reason = "the field on the wire has 6 bits";
            return Err(Error::Config { what: "traffic class", value: config.dscp.into(), reason });
        }
        if config.hop_limit < 2 {
            let reason = "the first router would discard everything";
            return Err(Error::Config { what: "hop limit", value: config.hop_limit.into(), reason });
        }
        if config.paths.len() as u64 > u64::from(device.info().paths) {
            let reason = "the card was built with fewer paths for each connection";
            return Err(Error::Config { what: "path count", value: config.paths.len() as u64, reason });
        }
        let mut local = conn_info(device, config);
        local.check()?;
        let ring = device.dma().allocate(u64::from(sq_size.entries()) * Wqe::LEN as u64, DmaAccess::Read)?;
        let (conn, qpn) = device.take_conn()?;
        local.qpn = qpn.get();
        for (path, (info, config)) in local.paths.iter_mut().zip(&config.paths).enumerate() {
            info.sport = config.sport.unwrap_or_else(|| default_sport(device, conn, path));
        }
        let shared = Arc::new(QpShared {
            pd: pd.clone(),
            conn,
            qpn,
            local,
            dscp: Dscp::new(config.dscp),
            hop_limit: config.hop_limit,
            send_cq: send_cq.shared().clone(),
            recv_cq: recv_cq.shared().clone(),
            ring,
            inner: Mutex::new(Inner {
                state: QpState::Init,
                sends: SendQueue::new(sq_size),
                receives: rq_size.map(|size| RecvQueue::new(size, config.init_rsn as u16)),
                conn_row: ConnRow::zeroed(),
                path_count: 0,
                is_destroyed: false,
            }),
        });
        shared.send_cq.attach(qpn, Arc::downgrade(&shared));
        shared.recv_cq.attach(qpn, Arc::downgrade(&shared));
        Ok(Self { shared })
    }

    /// Its number: the connection id that packets to this side carry.
    pub fn qpn(&self) -> Qpn {
        self.shared.qpn
    }

    /// Its row in the card's connection table.
    pub fn conn_index(&self) -> u32 {
        self.shared.conn
    }

    /// What the peer has to know.
    pub fn conn_info(&self) -> &ConnInfo {
        &self.shared.local
    }

    /// The state as the driver knows it. An error that only the card knows of shows in [`Self::query`].
    pub fn state(&self) -> QpState {
        self.shared.lock().state
    }

    /// Asks the card for errors and returns the state. A queue pair that only receives learns of its end this way.
    ///
    /// # Errors
    /// [`Error::Csr`].
    pub fn query(&self) -> Result<QpState> {
        let shared = &self.shared;
        let is_up = matches!(self.state(), QpState::Rtr | QpState::Rts);
        if is_up && shared.device().is_conn_failed(shared.conn)? {
            shared.fail(&mut shared.lock());
        }
        Ok(self.state())
    }

    /// Why the card gave the connection up; `None` when it did not. `Err` inside for a code that the driver does not
    /// know.
    ///
    /// # Errors
    /// [`Error::Csr`].
    pub fn error_status(&self) -> Result<Option<std::result::Result<Status, u8>>> {
        Ok(match self.shared.device().conn_status(self.shared.conn)? {
            0 => None,
            code => Some(Status::try_from(code).map_err(|_| code)),
        })
    }

    /// Connects to the peer: [`Self::to_rtr`], then [`Self::to_rts`].
    ///
    /// # Errors
    /// As for both.
    pub fn connect(&self, remote: &ConnInfo) -> Result<()> {
        self.to_rtr(remote)?;
        self.to_rts()
    }

    /// Makes the card ready to receive from `remote`. PMTU and path count become the smaller of both sides'.
    ///
    /// # Errors
    /// [`Error::State`] unless in `Init`, [`Error::Config`] for numbers of the peer that fit nowhere,
    /// [`Error::Mismatch`] for settings that differ, and the errors of writing context rows.
    pub fn to_rtr(&self, remote: &ConnInfo) -> Result<()> {
        let shared = &self.shared;
        let mut inner = shared.lock();
        if inner.state != QpState::Init {
            return Err(Error::State { operation: "make ready to receive", state: inner.state });
        }
        let agreement = shared.local.agree(remote)?;
        // With the connection the card begins to take packets, which need its address and paths. Writing it also ends
        // whatever the row's queues were, so they come after it.
        inner.path_count = agreement.path_count;
        shared.write_ah(remote)?;
        for path in 0..agreement.path_count {
            shared.write_path_rx(path, &remote.paths[path as usize])?;
        }
        inner.conn_row = shared.conn_row(remote, agreement);
        shared.device().write_row(Table::Conn, shared.conn, &inner.conn_row.0)?;
        shared.write_queues(&inner, true)?;
        inner.state = QpState::Rtr;
        if let Some(receives) = inner.receives.as_ref().filter(|receives| receives.posted() != 0) {
            doorbell::ring_rq(shared.device().bar(), shared.conn, receives.posted())?;
        }
        Ok(())
    }

    /// Makes the card ready to send.
    ///
    /// # Errors
    /// [`Error::State`] unless in `Rtr`, and the errors of writing context rows.
    pub fn to_rts(&self) -> Result<()> {
        let shared = &self.shared;
        let mut inner = shared.lock();
        if inner.state != QpState::Rtr {
            return Err(Error::State { operation: "make ready to send", state: inner.state });
        }
        for path in 0..inner.path_count {
            shared.write_path_tx(path)?;
        }
        inner.state = QpState::Rts;
        Ok(())
    }

    /// Posts a work request.
    ///
    /// # Errors
    /// [`Error::State`] unless in `Rts` or `Error`, [`Error::WouldOverflow`] when the send queue or its completion queue
    /// has no room; nothing is posted then. [`Error::Doorbell`] when the card cannot be reached.
    pub fn post_send(&self, wr: &SendWr) -> Result<()> {
        self.post_send_list(std::slice::from_ref(wr))
    }

    /// Posts several work requests with one doorbell; all or none.
    ///
    /// # Errors
    /// As for [`Self::post_send`].
    pub fn post_send_list(&self, wrs: &[SendWr]) -> Result<()> {
        self.shared.post(wrs.len(), wrs.iter().map(|wr| (wr.wr_id, wr.wqe())))
    }

    /// Posts a WQE as it is, right or wrong: for showing that the card answers a wrong one with an error completion.
    ///
    /// # Errors
    /// As for [`Self::post_send`].
    pub fn post_raw(&self, wr_id: u64, wqe: Wqe<[u8; Wqe::LEN]>) -> Result<()> {
        self.shared.post(1, std::iter::once((wr_id, wqe)))
    }

    /// Posts a receive, which a write with immediate of the peer will complete. It names no memory: the write does.
    ///
    /// # Errors
    /// [`Error::Config`] when the queue pair has no receive queue, [`Error::WouldOverflow`] when it or its completion
    /// queue has no room; nothing is posted then. [`Error::Doorbell`] when the card cannot be reached.
    pub fn post_recv(&self, wr_id: u64) -> Result<()> {
        let shared = &self.shared;
        let mut inner = shared.lock();
        let state = inner.state;
        let Some(receives) = &mut inner.receives else {
            let reason = "the queue pair was created without a receive queue";
            return Err(Error::Config { what: "receive", value: wr_id, reason });
        };
        if receives.ring().room() == 0 {
            let entries = receives.ring().size().entries();
            return Err(Error::WouldOverflow { queue: "receive queue", count: 1, entries });
        }
        shared.recv_cq.reserve(1)?;
        receives.push(wr_id);
        match state {
            QpState::Init => Ok(()),
            QpState::Rtr | QpState::Rts => doorbell::ring_rq(shared.device().bar(), shared.conn, receives.posted()),
            QpState::Error => {
                shared.recv_cq.flush_later(Arc::downgrade(shared));
                Ok(())
            }
        }
    }

    /// Sends that may be posted before the send queue is full.
    pub fn send_room(&self) -> u32 {
        self.shared.lock().sends.ring().room()
    }

    /// Receives that are posted and not used.
    pub fn posted_receives(&self) -> u32 {
        self.shared.lock().receives.as_ref().map_or(0, |receives| receives.ring().in_flight())
    }

    /// Ends the queue pair. What is still posted gets no completion.
    ///
    /// # Errors
    /// The errors of writing context rows. The queue pair is gone all the same; the card's row is then not used again.
    pub fn destroy(self) -> Result<()> {
        self.shared.end()
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // There is nobody to tell; `destroy` is for those who want to know.
        let _ = self.shared.end();
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({}, {})", self.shared.qpn, self.state())
    }
}

impl QpShared {
    /// Takes an entry of the completion queue `cq`. Nothing changes when the entry makes no sense.
    pub(crate) fn complete(
        self: &Arc<Self>,
        cq: &CqShared,
        opcode: CqeOpcode,
        status: Status,
        cqe: &Cqe<[u8; Cqe::LEN]>,
    ) -> std::result::Result<Outcome, String> {
        let is_recv = opcode == CqeOpcode::RecvImm;
        let expected = if is_recv { &self.recv_cq } else { &self.send_cq };
        if expected.number() != cq.number() {
            return Err(format!("{opcode} of queue pair {} belongs into queue {}", self.qpn, expected.number()));
        }
        let mut inner = self.lock();
        let (index, is_ok) = (cqe.wqe_index(), status == Status::Ok);
        let (wr_id, retired) = if is_recv {
            // A receive that was in the card's pipeline when the connection failed may have been flushed meanwhile.
            let is_failed = inner.state == QpState::Error;
            let receives = inner.receives.as_mut().ok_or("the queue pair has no receive queue")?;
            match receives.complete(index) {
                Ok(wr_id) => (wr_id, 1),
                Err(_) if is_failed => return Ok(Outcome::Stale),
                Err(reason) => return Err(reason),
            }
        } else {
            let done = inner.sends.complete(index, is_ok)?;
            (done.wr_id, done.retired)
        };
        if !is_ok {
            self.fail(&mut inner);
        }
        let completion = Completion {
            wr_id,
            status,
            qpn: self.qpn,
            opcode,
            byte_len: cqe.byte_len(),
            imm: cqe.imm_valid().then(|| cqe.imm()),
            is_solicited: cqe.solicited(),
        };
        Ok(Outcome::Done(completion, retired))
    }

    /// The completion of the oldest receive that will never be used.
    pub(crate) fn flush_one_recv(&self) -> Option<Completion> {
        let wr_id = self.lock().receives.as_mut()?.flush_one()?;
        let (qpn, opcode, status) = (self.qpn, CqeOpcode::RecvImm, Status::WrFlush);
        Some(Completion { wr_id, status, qpn, opcode, byte_len: 0, imm: None, is_solicited: false })
    }

    fn device(&self) -> &Device {
        self.pd.device()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The card gave the connection up.
    fn fail(self: &Arc<Self>, inner: &mut Inner) {
        inner.state = QpState::Error;
        if inner.receives.is_some() {
            self.recv_cq.flush_later(Arc::downgrade(self));
        }
    }

    fn post(&self, count: usize, wqes: impl Iterator<Item = (u64, Wqe<[u8; Wqe::LEN]>)>) -> Result<()> {
        let mut inner = self.lock();
        // In error the card still takes entries, and flushes them.
        if !matches!(inner.state, QpState::Rts | QpState::Error) {
            return Err(Error::State { operation: "post a send to", state: inner.state });
        }
        if count > inner.sends.ring().room() as usize {
            let entries = inner.sends.ring().size().entries();
            return Err(Error::WouldOverflow { queue: "send queue", count, entries });
        }
        self.send_cq.reserve(count)?;
        for (wr_id, wqe) in wqes {
            let slot = inner.sends.push(wr_id, wqe.signaled());
            self.ring.mem().write((slot * Wqe::LEN) as u64, &wqe.0);
        }
        // Rung under the lock: producer indices reach the card in order.
        doorbell::ring_sq(self.device().bar(), self.conn, inner.sends.ring().producer())
    }

    fn write_ah(&self, remote: &ConnInfo) -> Result<()> {
        let number = |ip: std::net::IpAddr| match ip {
            std::net::IpAddr::V4(ip) => u128::from(ip.to_bits()),
            std::net::IpAddr::V6(ip) => ip.to_bits(),
        };
        let mut row = AhRow::zeroed();
        row.set_dst_mac(remote.mac.to_u64()).set_src_mac(self.local.mac.to_u64()).set_hop_limit(self.hop_limit);
        row.set_dst_ip(number(remote.ip)).set_src_ip(number(self.local.ip));
        self.device().write_row(Table::Ah, self.conn, &row.0)
    }

    fn write_path_rx(&self, path: u32, remote: &PathInfo) -> Result<()> {
        let local = &self.local.paths[path as usize];
        let mut row = PathRxRow::zeroed();
        // Acknowledgements travel the way this side's own packets of the same path do.
        row.set_valid(true).set_plane(Plane::new(local.plane)).set_sport(local.sport);
        row.set_epoch(Epoch::new(remote.epoch)).set_init_pseq(Psn::new(remote.init_pseq));
        self.device().write_row(Table::PathRx, self.path_row(path), &row.0)
    }

    fn write_path_tx(&self, path: u32) -> Result<()> {
        let local = &self.local.paths[path as usize];
        let mut row = PathTxRow::zeroed();
        row.set_valid(true).set_plane(Plane::new(local.plane)).set_sport(local.sport);
        row.set_epoch(Epoch::new(local.epoch)).set_init_pseq(Psn::new(local.init_pseq));
        self.device().write_row(Table::PathTx, self.path_row(path), &row.0)
    }

    fn write_queues(&self, inner: &Inner, is_enabled: bool) -> Result<()> {
        let mut row = SqRow::zeroed();
        row.set_enabled(is_enabled).set_log2_size(inner.sends.ring().size().log2());
        row.set_cq(self.send_cq.number() as u16).set_base_iova(self.ring.iova());
        row.set_rq_cq(self.recv_cq.number() as u16);
        if let Some(receives) = &inner.receives {
            row.set_rq_enabled(is_enabled).set_rq_log2_size(receives.ring().size().log2());
        }
        self.device().write_row(Table::Sq, self.conn, &row.0)
    }

    fn conn_row(&self, remote: &ConnInfo, agreement: Agreement) -> ConnRow<[u8; ConnRow::LEN]> {
        let local = &self.local;
        let mut row = ConnRow::zeroed();
        row.set_valid(true).set_ip_version(local.ip.is_ipv6()).set_local_id(self.qpn);
        row.set_remote_id(Qpn::new(remote.qpn)).set_path_count(agreement.path_count as u8).set_pd(self.pd.number());
        row.set_pmtu_log2(agreement.pmtu_log2).set_pkey(Pkey::new(local.pkey));
        row.set_stream_id(StreamId::new(local.stream_id)).set_dscp(self.dscp);
        row.set_init_msn(Msn::new(local.init_msn)).set_init_rsn(Rsn::new(local.init_rsn));
        row
    }

    fn path_row(&self, path: u32) -> u32 {
        self.conn * self.device().info().paths + path
    }

    fn end(&self) -> Result<()> {
        if std::mem::replace(&mut self.lock().is_destroyed, true) {
            return Ok(());
        }
        let cleared = self.clear_rows();
        // Only now is no further entry of this queue pair on its way.
        let sends = || self.lock().sends.ring().in_flight();
        let receives = || self.lock().receives.as_ref().map_or(0, |receives| receives.ring().in_flight());
        if self.send_cq.number() == self.recv_cq.number() {
            self.send_cq.detach(self.qpn, || sends() + receives());
        } else {
            self.send_cq.detach(self.qpn, sends);
            self.recv_cq.detach(self.qpn, receives);
        }
        self.device().end_conn(self.conn, cleared.is_ok());
        cleared
    }

    /// Ends what the card does for the connection. What is still on its way there may complete meanwhile: the rows keep
    /// what such an entry is made of, the connection's id and its completion queues.
    fn clear_rows(&self) -> Result<()> {
        let mut inner = self.lock();
        if inner.path_count == 0 {
            return Ok(());
        }
        // No entry is fetched any more, then no packet is sent or taken.
        let device = self.device();
        self.write_queues(&inner, false)?;
        inner.conn_row.set_valid(false);
        device.write_row(Table::Conn, self.conn, &inner.conn_row.0)?;
        for path in 0..inner.path_count {
            device.write_row(Table::PathTx, self.path_row(path), &PathTxRow::zeroed().0)?;
            device.write_row(Table::PathRx, self.path_row(path), &PathRxRow::zeroed().0)?;
        }
        Ok(())
    }
}

fn conn_info(device: &Device, config: &QpConfig) -> ConnInfo {
    let port = device.port();
    let path = |path: &PathConfig| PathInfo {
        sport: path.sport.unwrap_or(0),
        plane: path.plane,
        epoch: path.epoch,
        init_pseq: path.init_pseq,
    };
    ConnInfo {
        version: CONN_INFO_VERSION,
        qpn: 0,
        mac: port.mac,
        ip: port.ip,
        udp_dport: port.udp_dport,
        pmtu_log2: config.pmtu_log2,
        pkey: config.pkey,
        stream_id: config.stream_id,
        init_msn: config.init_msn,
        init_rsn: config.init_rsn,
        paths: config.paths.iter().map(path).collect(),
    }
}

/// The ports from the smallest one on are dealt out to the paths of all connections in turn.
fn default_sport(device: &Device, conn: u32, path: usize) -> u16 {
    let row = conn * device.info().paths + path as u32;
    let ports = u32::from(u16::MAX - consts::UDP_SPORT_MIN) + 1;
    consts::UDP_SPORT_MIN + (row % ports) as u16
}
