//! What the host asks for and what it gets back: work requests, completions, events.

use crate::transport::path::PathState;
use nic_spec::desc::Status;
use nic_spec::num::{Lkey, Qpn, Rkey};
use nic_spec::wire::CmStatus;

/// A connection of a card: row of its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// Memory of this side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Address of the first byte.
    pub va: u64,
    /// Key of the region.
    pub lkey: Lkey,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address of the first byte.
    pub va: u64,
    /// Key of the region.
    pub rkey: Rkey,
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOp {
    /// Write local memory to remote memory; with immediate data it consumes a receive.
    Write {
        /// Where to.
        remote: RemoteMemory,
        /// Immediate data.
        imm: Option<u32>,
    },
    /// Write local memory to the receive that the peer posted.
    Send {
        /// Immediate data.
        imm: Option<u32>,
        /// Key of the peer to invalidate.
        inv: Option<Rkey>,
        /// Match bits: the receive is found by them and not by its ordinal.
        tag: Option<u64>,
    },
    /// Read remote memory into local memory.
    Read {
        /// Where from.
        remote: RemoteMemory,
    },
    /// Compare 8 bytes of remote memory and swap them if equal; the value before comes to local memory.
    CompareSwap {
        /// Operand.
        remote: RemoteMemory,
        /// Value to compare with.
        compare: u64,
        /// Value to swap in.
        swap: u64,
    },
    /// Add to 8 bytes of remote memory; the value before comes to local memory.
    FetchAdd {
        /// Operand.
        remote: RemoteMemory,
        /// Value to add, modulo 2^64.
        add: u64,
    },
    /// Make all earlier writes of the stream to `len` bytes of remote memory visible.
    Flush {
        /// First byte.
        remote: RemoteMemory,
    },
}

impl SendOp {
    /// What the completion calls it.
    pub const fn cqe_op(&self) -> CqeOp {
        match self {
            Self::Write { imm: None, .. } => CqeOp::Write,
            Self::Write { imm: Some(_), .. } => CqeOp::WriteImm,
            Self::Send { .. } => CqeOp::Send,
            Self::Read { .. } => CqeOp::Read,
            Self::CompareSwap { .. } => CqeOp::CompareSwap,
            Self::FetchAdd { .. } => CqeOp::FetchAdd,
            Self::Flush { .. } => CqeOp::Flush,
        }
    }
}

/// A work request of the send side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr {
    /// Free number that comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Local memory; not looked at where `len` is 0 and by FLUSH.
    pub local: Local,
    /// Bytes; atomic operations always take 8.
    pub len: u32,
    /// A completion is wanted. One in error comes in any case.
    pub signaled: bool,
    /// The peer's completion is a solicited event.
    pub solicited: bool,
    /// Begin after all earlier reads and atomics of the stream are done; complete after all earlier messages.
    pub fence: bool,
}

impl SendWr {
    /// A signaled request without other flags.
    pub const fn new(wr_id: u64, op: SendOp, local: Local, len: u32) -> Self {
        Self { wr_id, op, local, len, signaled: true, solicited: false, fence: false }
    }
}

/// Which messages a tagged receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagMatch {
    /// Match bits.
    pub bits: u64,
    /// Bits that need not be equal.
    pub ignore: u64,
}

impl TagMatch {
    /// True when a message with `tag` belongs here.
    pub const fn takes(&self, tag: u64) -> bool {
        (self.bits ^ tag) & !self.ignore == 0
    }
}

/// A work request of the receive side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWr {
    /// Free number that comes back in the completion.
    pub wr_id: u64,
    /// Where a SEND goes; not looked at where `len` is 0.
    pub local: Local,
    /// Bytes there.
    pub len: u32,
    /// A tagged receive, which takes no ordinal.
    pub tag: Option<TagMatch>,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The card has no such connection.
    UnknownConn(ConnId),
    /// The connection has no such stream.
    UnknownStream(u16),
    /// The queue holds as many requests as it can.
    QueueFull {
        /// Requests it can hold.
        depth: u32,
    },
    /// The connection is in a state that takes no requests.
    BadState,
    /// The local memory of a receive fails the checks of its key.
    LocalProtection,
}

impl core::fmt::Display for PostError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::UnknownConn(id) => write!(f, "no connection {}", id.0),
            Self::UnknownStream(id) => write!(f, "the connection has no stream {id}"),
            Self::QueueFull { depth } => write!(f, "the queue already holds {depth} requests"),
            Self::BadState => write!(f, "the connection takes no requests in its present state"),
            Self::LocalProtection => write!(f, "the key does not open the local memory of the receive"),
        }
    }
}

impl core::error::Error for PostError {}

/// Operation that a completion reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CqeOp {
    /// WRITE of this side.
    Write,
    /// WRITE with immediate of this side.
    WriteImm,
    /// SEND of this side.
    Send,
    /// READ of this side.
    Read,
    /// Compare and swap of this side.
    CompareSwap,
    /// Fetch and add of this side.
    FetchAdd,
    /// FLUSH of this side.
    Flush,
    /// SEND of the peer into a receive of this side.
    Recv,
    /// WRITE with immediate of the peer.
    RecvImm,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// Connection.
    pub conn: ConnId,
    /// Its id on this side.
    pub qpn: Qpn,
    /// Stream.
    pub stream: u16,
    /// Number of the work request.
    pub wr_id: u64,
    /// Operation.
    pub op: CqeOp,
    /// How it ended.
    pub status: Status,
    /// Bytes of the message.
    pub byte_len: u32,
    /// Immediate data of the peer.
    pub imm: Option<u32>,
    /// Key of this side that the peer invalidated.
    pub invalidated: Option<Rkey>,
    /// Match bits of the peer's message.
    pub tag: Option<u64>,
    /// The peer asked for an event.
    pub solicited: bool,
}

/// Something the host may want to know besides completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection went into error.
    ConnError {
        /// Which.
        conn: ConnId,
        /// Why.
        status: Status,
    },
    /// A connection that was asked for, here or by the peer, is there.
    Connected {
        /// Which.
        conn: ConnId,
        /// Service it was asked for.
        service: u16,
    },
    /// A connection that was asked for is not granted.
    ConnectFailed {
        /// Which.
        conn: ConnId,
        /// Why; no service if nobody answered.
        status: CmStatus,
    },
    /// A connection ended.
    Disconnected {
        /// Which.
        conn: ConnId,
    },
    /// A path took another route, or was switched off or on.
    Path {
        /// Connection.
        conn: ConnId,
        /// Path.
        path: u8,
        /// State it is in now.
        state: PathState,
    },
    /// A path that was to be closed is: all that it sent is acknowledged.
    PathClosed {
        /// Connection.
        conn: ConnId,
        /// Path.
        path: u8,
        /// The peer knows it.
        is_answered: bool,
    },
    /// A connection can no longer use a plane, or can again.
    Plane {
        /// Connection.
        conn: ConnId,
        /// Plane.
        plane: u8,
        /// It can.
        is_up: bool,
    },
}
