//! Posted receives of a stream: those found by ordinal, in order, and those found by tag.
//!
//! A SEND or a WRITE with immediate names the ordinal (RSN) of the receive it takes, so it finds its place before its
//! predecessors arrive.

use crate::footprint::{of_queue, of_vec};
use crate::work::{RecvWr, TagMatch};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nic_spec::num::Rsn;

/// One receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recv {
    pub wr: RecvWr,
    /// Bus address of its memory.
    pub iova: u64,
    /// Regions that had been taken away when it was found.
    pub losses: u64,
    is_done: bool,
}

/// Names a receive that a message took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvRef {
    /// By ordinal.
    Ordinal(Rsn),
    /// By number of posting.
    Tagged(u64),
}

/// The receives of one stream.
#[derive(Clone, Debug)]
pub(crate) struct RecvQueue {
    /// Ordinal of the front.
    base: Rsn,
    ordered: VecDeque<Recv>,
    /// Ordinals before this one were named by a message.
    used_to: Rsn,
    tagged: Vec<(u64, TagMatch, Recv, bool)>,
    posted_tagged: u64,
}

impl RecvQueue {
    pub fn new(first: Rsn) -> Self {
        Self { base: first, ordered: VecDeque::new(), used_to: first, tagged: Vec::new(), posted_tagged: 0 }
    }

    /// Memory on the heap, bytes.
    pub fn heap_bytes(&self) -> usize {
        of_queue(&self.ordered) + of_vec(&self.tagged)
    }

    /// Receives posted and not done.
    pub fn len(&self) -> usize {
        self.ordered.len() + self.tagged.len()
    }

    /// The ordinal that the next receive will have: what the peer may use ends before it.
    pub fn limit(&self) -> Rsn {
        self.base + self.ordered.len() as u32
    }

    /// True when every receive posted so far was named by a message.
    pub fn is_used_up(&self) -> bool {
        !self.used_to.is_before(self.limit())
    }

    /// Posts a receive.
    pub fn post(&mut self, wr: RecvWr, iova: u64, losses: u64) {
        let recv = Recv { wr, iova, losses, is_done: false };
        match wr.tag {
            None => self.ordered.push_back(recv),
            Some(tag) => {
                self.tagged.push((self.posted_tagged, tag, recv, false));
                self.posted_tagged += 1;
            }
        }
    }

    /// The receive with ordinal `rsn`: `Ok(None)` if it is not posted yet, `Err` if it is done.
    pub fn by_ordinal(&self, rsn: Rsn) -> Result<Option<&Recv>, ()> {
        let at = rsn.distance_from(self.base);
        if at >= 1 << (Rsn::BITS - 1) {
            return Err(());
        }
        match self.ordered.get(at as usize) {
            Some(recv) if recv.is_done => Err(()),
            found => Ok(found),
        }
    }

    /// The first receive posted that takes `tag` and is free.
    pub fn by_tag(&self, tag: u64) -> Option<(RecvRef, &Recv)> {
        let found = self.tagged.iter().find(|(_, want, _, taken)| !taken && want.takes(tag))?;
        Some((RecvRef::Tagged(found.0), &found.2))
    }

    /// The receive that a message took before.
    pub fn get(&self, at: RecvRef) -> Option<&Recv> {
        match at {
            RecvRef::Ordinal(rsn) => self.by_ordinal(rsn).ok().flatten(),
            RecvRef::Tagged(id) => self.tagged.iter().find(|t| t.0 == id).map(|t| &t.2),
        }
    }

    /// The memory of a receive was found anew.
    pub fn found(&mut self, at: RecvRef, iova: u64, losses: u64) {
        let recv = match at {
            RecvRef::Ordinal(rsn) => self.ordered.get_mut(rsn.distance_from(self.base) as usize),
            RecvRef::Tagged(id) => self.tagged.iter_mut().find(|t| t.0 == id).map(|t| &mut t.2),
        };
        if let Some(recv) = recv {
            (recv.iova, recv.losses) = (iova, losses);
        }
    }

    /// A message takes the receive.
    pub fn take(&mut self, at: RecvRef) {
        match at {
            RecvRef::Ordinal(rsn) => {
                if !rsn.is_before(self.used_to) {
                    self.used_to = rsn.next();
                }
            }
            RecvRef::Tagged(id) => self.tagged.iter_mut().filter(|t| t.0 == id).for_each(|t| t.3 = true),
        }
    }

    /// True unless an earlier ordinal is still to be completed.
    pub fn is_in_turn(&self, at: RecvRef) -> bool {
        !matches!(at, RecvRef::Ordinal(rsn) if rsn != self.base)
    }

    /// The message that took the receive is complete.
    pub fn finish(&mut self, at: RecvRef) -> Option<RecvWr> {
        match at {
            RecvRef::Ordinal(rsn) => {
                let recv = self.ordered.get_mut(rsn.distance_from(self.base) as usize)?;
                recv.is_done = true;
                let wr = recv.wr;
                while self.ordered.front().is_some_and(|r| r.is_done) {
                    self.ordered.pop_front();
                    self.base += 1;
                }
                Some(wr)
            }
            RecvRef::Tagged(id) => {
                let at = self.tagged.iter().position(|t| t.0 == id)?;
                Some(self.tagged.remove(at).2.wr)
            }
        }
    }

    /// Gives back every receive that is not done, oldest first.
    pub fn flush(&mut self) -> Vec<RecvWr> {
        let limit = self.limit();
        let mut all: Vec<RecvWr> = self.ordered.drain(..).filter(|r| !r.is_done).map(|r| r.wr).collect();
        all.extend(self.tagged.drain(..).map(|t| t.2.wr));
        self.base = limit;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Local;

    fn wr(wr_id: u64, tag: Option<TagMatch>) -> RecvWr {
        RecvWr { wr_id, local: Local::default(), len: 8, tag }
    }

    #[test]
    fn receives_are_found_by_ordinal_across_the_wrap_and_leave_in_order() {
        let first = Rsn::new(0xff_ffff);
        let mut q = RecvQueue::new(first);
        (0..3).for_each(|i| q.post(wr(i, None), i, 0));
        assert_eq!((q.limit(), q.is_used_up()), (Rsn::new(2), false));
        assert_eq!(q.by_ordinal(Rsn::new(0)).map(|r| r.map(|r| r.wr.wr_id)), Ok(Some(1)));
        assert!(matches!(q.by_ordinal(Rsn::new(2)), Ok(None)), "not posted");
        q.take(RecvRef::Ordinal(Rsn::new(1)));
        assert!(q.is_used_up());
        assert_eq!(q.finish(RecvRef::Ordinal(Rsn::new(0))).map(|w| w.wr_id), Some(1));
        assert!(q.by_ordinal(Rsn::new(0)).is_err(), "done");
        assert_eq!(q.len(), 3, "held by the first");
        q.finish(RecvRef::Ordinal(first));
        assert_eq!((q.len(), q.limit()), (1, Rsn::new(2)));
        assert!(q.by_ordinal(first).is_err());
        assert_eq!(q.flush().len(), 1);
        assert_eq!((q.len(), q.limit()), (0, Rsn::new(2)));
    }

    #[test]
    fn a_tagged_receive_is_taken_once_in_order_of_posting() {
        let mut q = RecvQueue::new(Rsn::new(0));
        q.post(wr(1, Some(TagMatch { bits: 0x10, ignore: 0x0f })), 0, 0);
        q.post(wr(2, Some(TagMatch { bits: 0x12, ignore: 0 })), 0, 0);
        assert!(q.by_tag(0x20).is_none());
        let (first, recv) = q.by_tag(0x12).expect("the wild one");
        assert_eq!(recv.wr.wr_id, 1);
        q.take(first);
        let (second, recv) = q.by_tag(0x12).expect("the exact one");
        assert_eq!((recv.wr.wr_id, q.get(first).map(|r| r.wr.wr_id)), (2, Some(1)));
        q.take(second);
        assert!(q.by_tag(0x12).is_none());
        assert_eq!(q.finish(second).map(|w| w.wr_id), Some(2));
        assert_eq!((q.len(), q.finish(second)), (1, None));
    }
}
