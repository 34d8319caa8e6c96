//! Memory of this side that work under way needs: found when the work begins, and again when a region was taken away since.
//!
//! A host that has taken a region away gives its memory to something else, so no byte of it is read or written from then
//! on (M-060). The table of regions counts how many went; work remembers the count at which it found its memory, and
//! looks again when that is no longer the same.

use crate::connection::Connection;
use crate::core::Core;
use crate::recv_queue::RecvRef;
use crate::responder::Refusal;
use crate::transport::window::{Desc, DescKind};
use crate::work::{SendOp, SendWr};
use nic_spec::consts::MSG_BYTES_MAX;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::{Status, ACCESS_LOCAL_WRITE};
use nic_spec::num::{Pd, Rkey};

/// The request with its true length, and the bus address of its local memory.
pub(crate) fn check_local(wr: SendWr, core: &Core, pd: Pd) -> Result<(SendWr, u64), Status> {
    let (len, access) = match wr.op {
        SendOp::Write { .. } | SendOp::Send { .. } => (wr.len, 0),
        SendOp::Read { .. } => (wr.len, ACCESS_LOCAL_WRITE),
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => (8, ACCESS_LOCAL_WRITE),
        SendOp::Flush { .. } => return Ok((wr, 0)),
    };
    if u64::from(len) > MSG_BYTES_MAX {
        return Err(Status::LocLen);
    }
    let wr = SendWr { len, ..wr };
    if len == 0 {
        return Ok((wr, 0));
    }
    let key = Rkey::new(wr.local.lkey.get());
    let iova = core.mrs.resolve(key, pd, access, wr.local.va, len.into()).map_err(|_| Status::LocProt)?;
    Ok((wr, iova))
}

impl Connection {
    /// Bus address of the local memory of a message, if its key still opens it.
    fn memory_of(&mut self, core: &Core, slot: u32) -> Option<u64> {
        let pd = self.cfg.pd;
        let m = self.requester.messages.get_mut(slot)?;
        if m.losses != core.mrs.losses() {
            m.iova = check_local(m.wr, core, pd).ok()?.1;
            m.losses = core.mrs.losses();
        }
        Some(m.iova)
    }

    /// Where the payload of a packet to be sent lies, after a region was taken away; `None` when it was that one.
    #[cold]
    pub fn find_payload(&mut self, core: &Core, desc: &Desc) -> Option<u64> {
        let iova = match desc.kind {
            DescKind::Message => self.memory_of(core, desc.slot),
            _ => self.responder.find_answer(core, desc.slot, self.cfg.pd),
        };
        iova.map(|iova| iova.wrapping_add(desc.offset.into()))
    }

    /// Where the answer to a read or atomic operation goes (M-062).
    pub fn landing(&mut self, core: &mut Core, slot: u32) -> Result<u64, Refusal> {
        self.memory_of(core, slot).ok_or_else(|| {
            let stream = self.requester.messages.get(slot).map(|m| usize::from(m.stream));
            self.fail(core, Status::LocProt, stream);
            Refusal::Drop
        })
    }

    /// Host memory did not take an answer (M-017).
    #[cold]
    pub fn landing_fault(&mut self, core: &mut Core, slot: u32) -> Result<(), Refusal> {
        let stream = self.requester.messages.get(slot).map(|m| usize::from(m.stream));
        core.counters.count(Counter::DmaWriteError);
        self.fail(core, Status::LocDma, stream);
        Err(Refusal::Drop)
    }

    /// Where a receive's memory lies, after a region was taken away; when it was that one the connection fails (M-063).
    #[cold]
    pub fn find_receive(&mut self, core: &mut Core, stream: usize, at: RecvRef) -> Result<u64, Refusal> {
        let pd = self.cfg.pd;
        let recvs = self.responder.receives(stream);
        let found = recvs.get(at).and_then(|recv| {
            let (key, va, len) = (recv.wr.local.lkey.get(), recv.wr.local.va, recv.wr.len);
            core.mrs.resolve(Rkey::new(key), pd, ACCESS_LOCAL_WRITE, va, len.into()).ok()
        });
        let Some(iova) = found else {
            self.fail_receiving(core, Status::LocProt, stream);
            return Err(Refusal::Drop);
        };
        recvs.found(at, iova, core.mrs.losses());
        Ok(iova)
    }
}
