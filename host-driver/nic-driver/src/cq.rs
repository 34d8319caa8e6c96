//! Completion queues: the card writes entries into host memory, the driver takes them.
//!
//! The phase bit of an entry tells whether it is new, so polling touches host memory only. After a poll the card is told
//! how far the driver has read.
//!
//! **No overrun.** Every posted work request reserves an entry in its completion queue, signaled or not (in error each
//! gives one), and keeps it until the card was told that the entry is free again. Posting fails when there is none.
//!
//! **Errors of a connection.** The card flushes what was posted to the send queue itself. Posted receives it does not
//! know one by one; the driver flushes those, after the last entry that the card wrote.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nic_spec::desc::{CqRow, Cqe, CqeOpcode, Status, Table};
use nic_spec::layout::Field;
use nic_spec::num::Qpn;

use crate::device::Device;
use crate::dma::DmaMapping;
use crate::doorbell;
use crate::error::{Error, Result};
use crate::irq::IrqEvent;
use crate::pci::DmaAccess;
use crate::qp::QpShared;
use crate::ring::RingSize;

/// Settings of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqConfig {
    /// Logarithm of the number of entries, 0..=15.
    pub log2_size: u8,
    /// Interrupt vector.
    pub vector: u8,
}

/// What became of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// As given when it was posted.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// Queue pair it was posted to.
    pub qpn: Qpn,
    /// What it was.
    pub opcode: CqeOpcode,
    /// Length of the message. Bytes.
    pub byte_len: u32,
    /// Immediate data of the peer.
    pub imm: Option<u32>,
    /// The peer asked for a solicited event.
    pub is_solicited: bool,
}

/// A completion queue. Clones name the same queue; it ends with the last clone and the last queue pair that uses it.
#[derive(Clone)]
pub struct Cq {
    shared: Arc<CqShared>,
}

pub(crate) struct CqShared {
    device: Device,
    cqn: u32,
    size: RingSize,
    ring: DmaMapping,
    event: IrqEvent,
    /// Entries that the card may still write or that it does not know to be free.
    reserved: AtomicU32,
    reader: Mutex<Reader>,
    qps: Mutex<BTreeMap<Qpn, Weak<QpShared>>>,
    /// Queue pairs in error whose receives are still to be flushed.
    flushing: Mutex<VecDeque<Weak<QpShared>>>,
}

/// Lock order: the reader before a queue pair's state, which comes before everything else.
struct Reader {
    consumer: u16,
    /// Entries in the ring of queue pairs that were destroyed; each holds a reservation.
    orphans: u32,
    stale_count: u64,
}

/// What an entry came to.
pub(crate) enum Outcome {
    /// A completion, and how many reservations it frees.
    Done(Completion, u32),
    /// It belongs to something that is over.
    Stale,
}

const PHASE: Field = Cqe::LAYOUT.field("phase");

impl Cq {
    /// A new, empty completion queue.
    ///
    /// # Errors
    /// [`Error::Config`] for a size above 2^15, [`Error::Exhausted`], [`Error::Irq`] when the card lacks the vector, and
    /// the errors of mapping memory and of writing context rows.
    pub fn new(device: &Device, config: CqConfig) -> Result<Self> {
        let size = ring_size("log2 size of the completion queue", config.log2_size)?;
        let event = device.irq_event(config.vector)?;
        let ring = device.dma().allocate(u64::from(size.entries()) * Cqe::LEN as u64, DmaAccess::Write)?;
        let have = device.info().cqs;
        let cqn = device.pools().cqs.take().ok_or(Error::Exhausted { what: "completion queues", have })?;
        let mut row = CqRow::zeroed();
        row.set_enabled(true).set_log2_size(size.log2()).set_vector(config.vector).set_base_iova(ring.iova());
        let shared = Arc::new(CqShared {
            device: device.clone(),
            cqn,
            size,
            ring,
            event,
            reserved: AtomicU32::new(0),
            reader: Mutex::new(Reader { consumer: 0, orphans: 0, stale_count: 0 }),
            qps: Mutex::default(),
            flushing: Mutex::default(),
        });
        device.write_row(Table::Cq, cqn, &row.0)?;
        Ok(Self { shared })
    }

    /// Its number on the card.
    pub fn number(&self) -> u32 {
        self.shared.cqn
    }

    /// The card it is on.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Entries.
    pub fn entries(&self) -> u32 {
        self.shared.size.entries()
    }

    /// The event of its interrupt vector, which other queues may share.
    pub fn event(&self) -> &IrqEvent {
        &self.shared.event
    }

    /// Entries passed over because what they belong to is over: a destroyed queue pair, a flushed receive.
    pub fn stale_count(&self) -> u64 {
        self.shared.reader().stale_count
    }

    /// Takes up to `max` completions, oldest first. Finding none, it gives the card time once and returns none.
    ///
    /// # Errors
    /// [`Error::BadCqe`] for an entry that makes no sense; the next call goes on behind it. [`Error::Doorbell`] and
    /// [`Error::Idle`] when the card cannot be reached; completions taken are lost with it.
    pub fn poll(&self, max: usize) -> Result<Vec<Completion>> {
        let done = self.shared.take(max)?;
        if done.is_empty() {
            self.shared.device.idle()?;
        }
        Ok(done)
    }

    /// Polls until `count` completions are there, at most `polls_max` times, and returns what there is.
    ///
    /// # Errors
    /// As for [`Self::poll`]; completions taken before are lost then.
    pub fn poll_until(&self, count: usize, polls_max: u32) -> Result<Vec<Completion>> {
        let mut done = Vec::new();
        for _ in 0..polls_max {
            if done.len() >= count {
                break;
            }
            done.extend(self.poll(count - done.len())?);
        }
        Ok(done)
    }

    /// Asks for an interrupt at the next completion. Completions written before the card hears of it may cause none:
    /// after arming, [`poll`](Self::poll) once more before waiting.
    ///
    /// # Errors
    /// [`Error::Doorbell`].
    pub fn arm(&self) -> Result<()> {
        let reader = self.shared.reader();
        doorbell::ring_cq(self.shared.device.bar(), self.shared.cqn, reader.consumer, true)
    }

    /// Takes up to `max` completions, and waits for an interrupt as long as there are none, giving the card time up to
    /// `polls_max` times. It takes the events of the queue's vector: where several queues share one, wait for
    /// [`Self::event`] and poll all of them instead.
    ///
    /// # Errors
    /// As for [`Self::poll`], and [`Error::Timeout`] when no interrupt brought a completion.
    pub fn wait(&self, max: usize, polls_max: u32) -> Result<Vec<Completion>> {
        let mut polls = 0;
        loop {
            // Armed only when there is nothing; then looked at again, for what came in between.
            let mut done = self.shared.take(max)?;
            if done.is_empty() {
                self.arm()?;
                done = self.shared.take(max)?;
            }
            if !done.is_empty() {
                return Ok(done);
            }
            while self.shared.event.take() == 0 {
                if polls == polls_max {
                    return Err(Error::Timeout { what: "interrupt with a completion", polls });
                }
                polls += 1;
                self.shared.device.idle()?;
            }
        }
    }

    pub(crate) fn shared(&self) -> &Arc<CqShared> {
        &self.shared
    }
}

impl CqShared {
    pub(crate) fn number(&self) -> u32 {
        self.cqn
    }

    /// Reserves `count` entries.
    pub(crate) fn reserve(&self, count: usize) -> Result<()> {
        let entries = self.size.entries();
        let add = |reserved: u32| {
            let sum = u32::try_from(count).ok()?.checked_add(reserved)?;
            (sum <= entries).then_some(sum)
        };
        let added = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        added.map(drop).map_err(|_| Error::WouldOverflow { queue: "completion queue", count, entries })
    }

    /// Entries that nothing can be written to any more.
    pub(crate) fn release(&self, count: u32) {
        let before = self.reserved.fetch_sub(count, Ordering::AcqRel);
        debug_assert!(before >= count, "{count} of {before} reservations are released");
    }

    /// From now on entries of `qp` are its completions.
    pub(crate) fn attach(&self, qpn: Qpn, qp: Weak<QpShared>) {
        lock(&self.qps).insert(qpn, qp);
    }

    /// From now on entries of `qpn` are stale. `reserved` tells how many reservations are held for it, once no poll can
    /// free any.
    pub(crate) fn detach(&self, qpn: Qpn, reserved: impl FnOnce() -> u32) {
        let mut reader = self.reader();
        let Some(qp) = lock(&self.qps).remove(&qpn) else {
            return;
        };
        lock(&self.flushing).retain(|other| !other.ptr_eq(&qp));
        // An entry that lies in the ring goes on taking room until it has been passed over.
        let written = (0..self.size.entries()).map_while(|i| self.peek(reader.consumer.wrapping_add(i as u16)));
        let in_ring = written.filter(|cqe| cqe.qpn() == qpn).count() as u32;
        let reserved = reserved();
        let orphans = in_ring.min(reserved);
        reader.orphans += orphans;
        self.release(reserved - orphans);
    }

    /// The receives of `qp` are to be flushed behind the last entry of the ring.
    pub(crate) fn flush_later(&self, qp: Weak<QpShared>) {
        let mut flushing = lock(&self.flushing);
        if !flushing.iter().any(|other| other.ptr_eq(&qp)) {
            flushing.push_back(qp);
        }
    }

    /// Takes up to `max` completions.
    fn take(&self, max: usize) -> Result<Vec<Completion>> {
        let mut reader = self.reader();
        let first = reader.consumer;
        let (mut done, mut freed, mut bad) = (Vec::new(), 0, None);
        let mut is_ring_empty = false;
        while done.len() < max {
            let Some(cqe) = self.peek(reader.consumer) else {
                is_ring_empty = true;
                break;
            };
            match self.interpret(&cqe) {
                Ok(Outcome::Done(completion, retired)) => {
                    done.push(completion);
                    freed += retired;
                }
                Ok(Outcome::Stale) => {
                    reader.stale_count += 1;
                    if reader.orphans > 0 {
                        reader.orphans -= 1;
                        freed += 1;
                    }
                }
                // What came before it is handed over first.
                Err(_) if !done.is_empty() => break,
                Err(reason) => bad = Some(Error::BadCqe { cqn: self.cqn, index: reader.consumer, reason }),
            }
            reader.consumer = reader.consumer.wrapping_add(1);
            if bad.is_some() {
                break;
            }
        }
        if reader.consumer != first {
            doorbell::ring_cq(self.device.bar(), self.cqn, reader.consumer, false)?;
            self.release(freed);
        }
        if let Some(bad) = bad {
            return Err(bad);
        }
        if is_ring_empty {
            self.flush(&mut done, max);
        }
        Ok(done)
    }

    /// Adds the completions of receives that the card will never use.
    fn flush(&self, done: &mut Vec<Completion>, max: usize) {
        while done.len() < max {
            // Taken off the list before its receives are: one posted meanwhile puts it on again.
            let Some(qp) = lock(&self.flushing).pop_front() else {
                return;
            };
            let Some(shared) = qp.upgrade() else {
                continue;
            };
            while done.len() < max {
                let Some(completion) = shared.flush_one_recv() else {
                    break;
                };
                self.release(1);
                done.push(completion);
            }
            if done.len() == max {
                self.flush_later(qp);
            }
        }
    }

    /// The entry at `index` if the card has written it.
    fn peek(&self, index: u16) -> Option<Cqe<[u8; Cqe::LEN]>> {
        let at = (self.size.slot(index) * Cqe::LEN) as u64;
        let phase_byte = self.ring.mem().load_u8(at + PHASE.bit_offset as u64 / 8);
        let phase = phase_byte >> (PHASE.bit_offset % 8) & 1 != 0;
        if phase != self.size.phase(index) {
            return None;
        }
        let mut bytes = [0; Cqe::LEN];
        self.ring.mem().read(at, &mut bytes);
        Some(Cqe(bytes))
    }

    /// What the entry says, or why that cannot be. Changes the queue pair only when it can.
    fn interpret(&self, cqe: &Cqe<[u8; Cqe::LEN]>) -> std::result::Result<Outcome, String> {
        let qpn = cqe.qpn();
        let opcode = CqeOpcode::try_from(cqe.opcode()).map_err(|unknown| unknown.to_string())?;
        let status = Status::try_from(cqe.status()).map_err(|unknown| unknown.to_string())?;
        let qp = lock(&self.qps).get(&qpn).and_then(Weak::upgrade);
        match qp {
            Some(qp) => qp.complete(self, opcode, status, cqe),
            None if self.device.is_conn_over(qpn) => Ok(Outcome::Stale),
            None => Err(format!("no queue pair of this completion queue has number {qpn}")),
        }
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        lock(&self.reader)
    }
}

impl Drop for CqShared {
    fn drop(&mut self) {
        // The card must not write to memory that is about to be unmapped. One that does not answer keeps the number.
        if self.device.write_row(Table::Cq, self.cqn, &CqRow::zeroed().0).is_ok() {
            self.device.pools().cqs.give_back(self.cqn);
        }
    }
}

impl std::fmt::Debug for Cq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cq({}, {} entries)", self.shared.cqn, self.entries())
    }
}

/// A ring size from a setting.
pub(crate) fn ring_size(what: &'static str, log2: u8) -> Result<RingSize> {
    RingSize::new(log2).ok_or(Error::Config { what, value: log2.into(), reason: "0 to 15 are possible" })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
