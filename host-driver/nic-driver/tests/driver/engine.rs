//! What the fake card does with work requests: carries out the writes between its own connections, one a step.
//!
//! A WQE is read the moment its doorbell rings. So a driver that rings before the WQE is in memory is caught.

use std::collections::{BTreeMap, VecDeque};

use nic_spec::csr::{irq, stats::Counter};
use nic_spec::desc::{
    ConnRow, CqRow, Cqe, CqeOpcode, MrRow, SqRow, Status, Table, Wqe, WqeOpcode, ACCESS_REMOTE_WRITE,
};
use nic_spec::num::Qpn;

use crate::fake_card::{Inner, CONNS};

type WqeBytes = Wqe<[u8; Wqe::LEN]>;
pub type CqeBytes = Cqe<[u8; Cqe::LEN]>;

/// State of connections and queues.
#[derive(Debug, Default)]
pub struct Engine {
    conns: BTreeMap<u32, Conn>,
    cqs: BTreeMap<u32, CqState>,
    next_conn: u32,
}

#[derive(Debug, Default)]
struct Conn {
    status: u8,
    wqes: VecDeque<WqeBytes>,
    /// The send queue's row was written after the connection's.
    is_started: bool,
    fetched: u16,
    completed: u16,
    posted: u16,
    used: u16,
}

#[derive(Debug, Default)]
struct CqState {
    producer: u16,
    consumer: u16,
    is_armed: bool,
}

impl Engine {
    pub fn conn_status(&self, index: u32) -> u8 {
        self.conns.get(&index).map_or(0, |conn| conn.status)
    }

    /// Writing a connection's row ends its error, its queues and its receives.
    pub fn reset_conn(&mut self, index: u32) {
        self.conns.insert(index, Conn::default());
    }

    /// Writing the queues' row starts the send queue.
    pub fn reset_queues(&mut self, index: u32) {
        let conn = self.conns.entry(index).or_default();
        conn.wqes.clear();
        (conn.is_started, conn.fetched, conn.completed) = (true, 0, 0);
    }

    pub fn reset_cq(&mut self, cqn: u32) {
        self.cqs.insert(cqn, CqState::default());
    }

    pub fn set_posted(&mut self, index: u32, posted: u16) {
        self.conns.entry(index).or_default().posted = posted;
    }

    pub fn posted(&self, index: u32) -> u16 {
        self.conns[&index].posted
    }

    /// Takes a completion queue's doorbell; true when its interrupt is due at once.
    pub fn set_consumer(&mut self, cqn: u32, consumer: u16, arm: bool) -> bool {
        let cq = self.cqs.entry(cqn).or_default();
        cq.consumer = consumer;
        let has_unseen = cq.producer != consumer;
        cq.is_armed |= arm && !has_unseen;
        arm && has_unseen
    }

    /// The connection fails, as if on the network.
    pub fn fail(&mut self, index: u32, status: Status) {
        self.fail_with_code(index, status.code());
    }

    pub fn fail_with_code(&mut self, index: u32, code: u8) {
        let conn = self.conns.entry(index).or_default();
        if conn.status == 0 {
            conn.status = code;
        }
    }
}

impl Inner {
    /// Reads the WQEs that a doorbell announces.
    pub fn fetch(&mut self, index: u32, producer: u16) -> bool {
        let row = SqRow(self.row(Table::Sq, index));
        let conn = self.engine.conns.entry(index).or_default();
        if !conn.is_started {
            return false;
        }
        while conn.fetched != producer {
            let slot = u64::from(conn.fetched) & ((1 << row.log2_size()) - 1);
            let bytes =
                self.memory.read(row.base_iova() + slot * Wqe::LEN as u64, Wqe::LEN).expect("the ring is mapped");
            conn.wqes.push_back(Wqe(bytes.try_into().unwrap()));
            conn.fetched = conn.fetched.wrapping_add(1);
            assert!(conn.wqes.len() <= 1 << row.log2_size(), "the driver overruns the send queue");
        }
        true
    }

    /// Carries out one WQE of one connection, in turn.
    pub fn step(&mut self) {
        for _ in 0..CONNS {
            let index = self.engine.next_conn;
            self.engine.next_conn = (index + 1) % CONNS;
            if self.step_conn(index) {
                return;
            }
        }
    }

    /// Steps until nothing moves any more.
    pub fn run(&mut self) {
        while (0..CONNS).any(|index| self.step_conn(index)) {}
    }

    fn step_conn(&mut self, index: u32) -> bool {
        let Some(wqe) = self.engine.conns.get(&index).and_then(|conn| conn.wqes.front().copied()) else {
            return false;
        };
        let outcome = match self.engine.conn_status(index) {
            0 => self.execute(index, &wqe),
            _ => Err(Status::WrFlush),
        };
        let is_ok = match outcome {
            // The peer is not ready: again later.
            Ok(false) => return false,
            Ok(true) => true,
            Err(_) => false,
        };
        let conn = self.engine.conns.get_mut(&index).unwrap();
        conn.wqes.pop_front();
        let wqe_index = conn.completed;
        conn.completed = wqe_index.wrapping_add(1);
        if is_ok && !wqe.signaled() {
            return true;
        }
        let status = outcome.err().unwrap_or(Status::Ok);
        if !is_ok {
            self.engine.fail(index, status);
        }
        let opcode = if wqe.opcode() == WqeOpcode::WriteImm.code() { CqeOpcode::WriteImm } else { CqeOpcode::Write };
        let mut cqe = Cqe::zeroed();
        cqe.set_qpn(ConnRow(self.row(Table::Conn, index)).local_id()).set_opcode(opcode.code());
        cqe.set_status(status.code()).set_wqe_index(wqe_index).set_byte_len(wqe.length());
        self.write_cqe(u32::from(SqRow(self.row(Table::Sq, index)).cq()), cqe);
        true
    }

    fn execute(&mut self, index: u32, wqe: &WqeBytes) -> Result<bool, Status> {
        let opcode = WqeOpcode::try_from(wqe.opcode()).map_err(|_| Status::LocQpOp)?;
        if wqe.resv5() != 0 || wqe.resv16() != 0 || wqe.resv224() != [0; 28] {
            return Err(Status::LocQpOp);
        }
        let conn = ConnRow(self.row(Table::Conn, index));
        let source = self.translate(conn.pd().get(), wqe.lkey().get(), wqe.local_va(), wqe.length(), 0);
        let source = source.ok_or(Status::LocProt)?;
        let Some(peer) = self.find_conn(conn.remote_id()) else {
            return Err(Status::RetryExc);
        };
        let peer_row = ConnRow(self.row(Table::Conn, peer));
        let is_imm = opcode == WqeOpcode::WriteImm;
        let receiver = self.engine.conns.get_mut(&peer).unwrap();
        if is_imm && receiver.posted == receiver.used {
            return Ok(false);
        }
        let access = ACCESS_REMOTE_WRITE;
        let target = self.translate(peer_row.pd().get(), wqe.rkey().get(), wqe.remote_va(), wqe.length(), access);
        let target = target.ok_or(Status::RemAccess)?;
        if wqe.length() > 0 {
            let bytes = self.memory.read(source, wqe.length() as usize).ok_or(Status::LocDma)?;
            self.memory.write(target, &bytes).ok_or(Status::RemOp)?;
        }
        if is_imm {
            let receiver = self.engine.conns.get_mut(&peer).unwrap();
            let ordinal = receiver.used;
            receiver.used = ordinal.wrapping_add(1);
            let mut cqe = Cqe::zeroed();
            cqe.set_qpn(peer_row.local_id()).set_opcode(CqeOpcode::RecvImm.code()).set_byte_len(wqe.length());
            cqe.set_wqe_index((peer_row.init_rsn() + u32::from(ordinal)).get() as u16);
            cqe.set_imm(wqe.imm()).set_imm_valid(true).set_solicited(wqe.solicited());
            self.write_cqe(u32::from(SqRow(self.row(Table::Sq, peer)).rq_cq()), cqe);
        }
        Ok(true)
    }

    /// Bus address behind a key; any for a length of 0.
    fn translate(&self, pd: u32, key: u32, va: u64, len: u32, access: u8) -> Option<u64> {
        if len == 0 {
            return Some(0);
        }
        let row = MrRow(self.row(Table::Mr, key >> 8));
        let is_open = row.valid() && u32::from(row.key()) == key & 0xff && row.pd().get() == pd;
        let offset = va.checked_sub(row.va())?;
        let is_inside = offset.checked_add(len.into()).is_some_and(|end| end <= row.len());
        (is_open && is_inside && row.access() & access == access).then(|| row.iova() + offset)
    }

    fn find_conn(&self, id: Qpn) -> Option<u32> {
        (0..CONNS).find(|&index| {
            let row = ConnRow(self.row(Table::Conn, index));
            row.valid() && row.local_id() == id && self.engine.conn_status(index) == 0
        })
    }

    /// Writes an entry with the right phase and sends an interrupt if one is asked for.
    pub fn write_cqe(&mut self, cqn: u32, mut cqe: CqeBytes) {
        let row = CqRow(self.row(Table::Cq, cqn));
        assert!(row.enabled(), "completion queue {cqn} is not there");
        let cq = self.engine.cqs.entry(cqn).or_default();
        if u32::from(cq.producer.wrapping_sub(cq.consumer)) == 1 << row.log2_size() {
            self.registers.count(Counter::CqOverflow);
            return;
        }
        let slot = u64::from(cq.producer) & ((1 << row.log2_size()) - 1);
        cqe.set_phase(cq.producer >> row.log2_size() & 1 == 0);
        cq.producer = cq.producer.wrapping_add(1);
        let is_armed = std::mem::take(&mut cq.is_armed);
        self.memory.write(row.base_iova() + slot * Cqe::LEN as u64, &cqe.0).expect("the queue is mapped");
        if is_armed {
            self.raise(row.vector());
        }
    }

    pub fn raise(&mut self, vector: u8) {
        let (word, bit) = (u32::from(vector) / 32, u32::from(vector) % 32);
        let pending = self.registers.get(irq::PENDING, word);
        self.registers.set(irq::PENDING, word, pending | 1 << bit);
        self.send_pending();
    }
}
