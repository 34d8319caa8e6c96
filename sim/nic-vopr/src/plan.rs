//! What every host does in a run and what has to come of it, worked out before anything is sent.
//!
//! Every message has memory of its own on both sides, so what memory holds at the end follows from the messages alone,
//! in whatever order packets arrive. What does depend on order is asked for only where the protocol promises it: a read
//! of what an earlier write of its stream wrote, a fenced write over what an earlier read took, an invalidation after
//! the last use of a key. Words that several hosts add to are judged by the values that were fetched.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use nic_model::config::NicConfig;
use nic_model::conn_config::ConnConfig;
use nic_model::mr::Mr;
use nic_model::work::{CqeOp, RecvWr, SendWr};
use nic_spec::desc::Status;
use nic_spec::num::{Rkey, Rsn};

use crate::memory::{GuardedMemory, Region};

/// A request that waits to be posted.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// On the send queue.
    Send(SendWr),
    /// On the receive queue.
    Recv(RecvWr),
    /// On the send queue, when everything else of the connection is done at this host.
    Farewell(SendWr),
}

/// Requests of one queue of a stream, posted in their order.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Index of the connection at its host.
    pub conn: usize,
    /// Stream.
    pub stream: u16,
    /// Each with the first picosecond at which it may be posted.
    pub requests: VecDeque<(u64, Request)>,
}

/// A completion that has to come, or must not.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Index of the connection at its host.
    pub conn: usize,
    /// Stream.
    pub stream: u16,
    /// Operation.
    pub op: CqeOp,
    /// Bytes of the message.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Match bits.
    pub tag: Option<u64>,
    /// Key that the message invalidates.
    pub invalidated: Option<Rkey>,
    /// Solicited event.
    pub solicited: bool,
    /// It has to come.
    pub is_signaled: bool,
    /// The request is a bad one: it must not succeed.
    pub is_bad: bool,
    /// The connection's last message of a side, or the receive for it.
    pub is_farewell: bool,
    /// It comes after everything before it in its queue, even in an unordered stream.
    pub is_barrier: bool,
    /// What memory holds at a bus address when the completion is seen.
    pub content: Option<(u64, Arc<[u8]>)>,
    /// Host and memory that it fills there: complete when this is.
    pub target: Option<(usize, Range<usize>)>,
    /// Index of its queue in [`HostPlan::queues`].
    pub queue: usize,
}

/// How a connection comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It is there at the start: both sides agreed on it by other means.
    Agreed,
    /// This side asks for it.
    Asks {
        /// Whom for.
        service: u16,
        /// Not before this, picoseconds.
        at_ps: u64,
        /// Nor before this connection of the same host is over; it has the same id.
        after: Option<usize>,
        /// This long after it was asked for the host ends it, whether or not it was granted by then.
        given_up_after_ps: Option<u64>,
        /// Nobody grants it: the peer has no such service.
        is_refused: bool,
        /// The peer's table of connections may be full: it is asked again later.
        may_be_full: bool,
    },
    /// This side grants it.
    Grants {
        /// As what.
        service: u16,
        /// With so many paths at most.
        paths_max: u16,
        /// The peer may give up before it is granted: this host may never hear of it.
        is_given_up: bool,
        /// This host does not listen for it.
        is_deaf: bool,
    },
}

/// A connection as one side plans it.
#[derive(Clone, Debug)]
pub struct ConnPlan {
    /// Its configuration, or the template of what is granted.
    pub config: ConnConfig,
    /// How it comes to be.
    pub begin: Begin,
    /// Logarithm of the payload that is agreed on, log2 bytes.
    pub pmtu_log2: u8,
    /// The peer asks this side for answers: reads and atomic operations.
    pub is_asked: bool,
    /// It is ended when everything is done.
    pub ends: bool,
    /// This side ends it; both may.
    pub closes: bool,
    /// It does so when its last message is posted; the card has to see to it that it arrives.
    pub closes_early: bool,
    /// What it may fail for.
    pub reasons: &'static [Status],
    /// Streams, and their first ordinals, in which the peer always knows which receives are posted at this side. None
    /// where frames arrive damaged, which say anything.
    pub bounded: Vec<(u16, Rsn)>,
}

/// What the administrator of a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Switches a path off for new packets.
    Deny {
        /// Index of the connection.
        conn: usize,
        /// The path, if there is such a one.
        path: u8,
    },
    /// Takes that back.
    Permit {
        /// Index of the connection.
        conn: usize,
        /// The path.
        path: u8,
    },
    /// Lets a connection begin no new message.
    Pause {
        /// Its index.
        conn: usize,
    },
    /// Takes that back.
    Resume {
        /// Index of the connection.
        conn: usize,
    },
    /// Closes a path for good.
    Close {
        /// Index of the connection.
        conn: usize,
        /// The path, if there is such a one.
        path: u8,
    },
    /// Takes the key of a memory region away: from then on nothing of it may be touched. Not before every receive that
    /// has its memory there is posted.
    Revoke {
        /// The key.
        key: Rkey,
        /// The memory.
        region: Region,
    },
    /// Registers a region that nobody uses and takes it away again.
    Churn,
}

/// Whether a connection survives the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does, and everything asked of it succeeds.
    Lives,
    /// This side asks for something bad: with it the connection fails here, and every request completes, some in error.
    Fails,
    /// The peer fails over something bad, or either side over memory that was taken away: every request completes, and
    /// receives stay posted unless this side fails too.
    MayFail,
}

/// Completions of one direction of a stream, in the order of its messages.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// They come as messages end.
    pub is_unordered: bool,
    /// Indices in [`HostPlan::expected`].
    pub order: Vec<usize>,
}

/// One host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Its card.
    pub nic: NicConfig,
    /// What its card's clock shows at the start, picoseconds.
    pub clock_ps: u64,
    /// How many of a hundred frames reach it with VLAN tags.
    pub tag_percent: u64,
    /// Its memory at the start.
    pub memory: GuardedMemory,
    /// What its memory holds at the end.
    pub image: Vec<u8>,
    /// Parts of the image that depend on the order in which hosts came.
    pub open_ranges: Vec<Range<usize>>,
    /// Parts of which each byte may be as at the start: a message that was cut off went there.
    pub loose_ranges: Vec<Range<usize>>,
    /// Rows of its table of connections that are of no use for a while: connections that have just ended.
    pub used_rows: Vec<u32>,
    /// Its memory regions, row by row.
    pub mrs: Vec<Mr>,
    /// Its connections.
    pub conns: Vec<ConnPlan>,
    /// What becomes of each.
    pub fates: Vec<Fate>,
    /// What it asks for.
    pub lanes: Vec<Lane>,
    /// What it is told; the number of the work request is the index here.
    pub expected: Vec<Expected>,
    /// The same by queue.
    pub queues: Vec<Queue>,
    /// What its administrator does and when, picoseconds; sorted when all is drawn.
    pub acts: Vec<(u64, Act)>,
    /// Messages that it begins.
    pub tx_messages: u64,
    /// Messages that peers begin towards it.
    pub rx_messages: u64,
    /// Times in which it neither posts nor polls.
    pub stalls: Vec<Range<u64>>,
    /// How often it polls, picoseconds; 0 is whenever something happens.
    pub poll_every_ps: u64,
    /// Completion queues it polls.
    pub cq_count: u32,
}

/// A word that is added to.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Host that has it.
    pub host: u32,
    /// Its bus address.
    pub iova: u64,
    /// Its value at the start.
    pub first: u64,
    /// Every addition: host and bus address that the value before it is fetched to, and what is added.
    pub adds: Vec<(u32, u64, u64)>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// Words that are added to.
    pub counters: Vec<Counter>,
    /// Connections in which something bad is asked for.
    pub doomed_conns: u64,
    /// Connections that are ended by packets.
    pub ended_conns: u64,
    /// Paths are closed.
    pub has_closings: bool,
    /// Both sides of each connection follow as many messages of a stream.
    pub has_even_windows: bool,
    /// Payload bytes of all messages.
    pub bytes: u64,
    /// When the last request may be posted, picoseconds.
    pub end_ps: u64,
    /// In words.
    pub text: String,
}

impl Plan {
    /// Brings into order what was drawn connection by connection.
    pub(crate) fn seal(&mut self) {
        for host in &mut self.hosts {
            host.acts.sort_by_key(|(at_ps, _)| *at_ps);
        }
    }
}
