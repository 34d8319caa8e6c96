//! A packet as values: what the headers say, one variant an operation.

use super::frame::Payload;
use crate::time::Ticks;
use crate::transport::bitmap::Bitmap;
use nic_spec::num::{HintSeq, Msn, Pkey, Psn, Qpn, Rkey, Rsn, RsnLimit};
use nic_spec::wire::{AtomicOp, Opcode};

/// Where a packet goes and comes from, network layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// MAC address, 48 bits.
    pub mac: u64,
    /// IPv6 address, or an IPv4 address in the low 32 bits.
    pub ip: u128,
}

/// The network layer of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Source.
    pub src: Address,
    /// Destination.
    pub dst: Address,
    /// IPv6 rather than IPv4.
    pub is_ipv6: bool,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Congestion field of the IP header.
    pub ecn: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// UDP source port: entropy of the path.
    pub sport: u16,
}

/// Message header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// First packet of its message.
    pub first: bool,
    /// Last packet of its message.
    pub last: bool,
    /// Immediate data, carried by the last packet.
    pub imm: Option<u32>,
    /// Key to invalidate, carried by the last packet.
    pub inv: Option<Rkey>,
    /// The message has immediate data (on every packet).
    pub has_imm: bool,
    /// The message invalidates a key (on every packet).
    pub has_inv: bool,
    /// Solicited event.
    pub se: bool,
    /// Complete after all earlier messages of the stream.
    pub fence: bool,
    /// Match bits of a tagged message.
    pub tag: Option<u64>,
    /// Number of the message in its stream.
    pub mseq: Msn,
    /// Ordinal of the posted receive it consumes.
    pub rsn: Rsn,
}

/// Remote memory of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address of this packet's first byte.
    pub va: u64,
    /// Key.
    pub rkey: Rkey,
    /// Length of the whole message, bytes.
    pub dma_len: u32,
}

/// Buffer part of a SEND.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferPart {
    /// First byte within the message.
    pub offset: u32,
    /// Length of the whole message, bytes.
    pub len: u32,
}

/// Which part of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPart {
    /// The read.
    pub read_id: u16,
    /// First byte within it.
    pub offset: u32,
    /// Length of the whole read, bytes.
    pub len: u32,
}

/// Acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The trigger was marked.
    pub ce: bool,
    /// The trigger was a duplicate.
    pub dup: bool,
    /// The trigger was a retransmission.
    pub rtxe: bool,
    /// Path acknowledged.
    pub apath: u8,
    /// Plane of the trigger.
    pub plane: u8,
    /// Epoch of the trigger.
    pub epoch: u8,
    /// IBTA syndrome.
    pub syndrome: u8,
    /// Everything up to this was received.
    pub cum: Psn,
    /// The trigger.
    pub trig: Psn,
    /// Its clock.
    pub ts_echo: Ticks,
    /// Residency at the receiver, units of 16 ns, saturating.
    pub hold: u16,
    /// CE marks of the path, modulo 2^16.
    pub ce_cnt: u16,
    /// Rate hint, Mb/s, and its number.
    pub hint: Option<(HintSeq, u32)>,
    /// Stream and its receive limit.
    pub credit: Option<(u16, RsnLimit)>,
    /// What was received beyond `cum` + 1.
    pub sack: Bitmap,
    /// Reason and detail of a refusal.
    pub nak: Option<(u8, u16)>,
}

/// Path control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathControl {
    /// Code of the operation; what is no [`nic_spec::wire::PathOp`] is ignored by its receiver.
    pub op: u8,
    /// Path.
    pub path: u8,
    /// This answers an operation.
    pub is_reply: bool,
    /// Epoch after the operation.
    pub new_epoch: u8,
    /// Everything up to this was received; for a path that is opened, the number before its first.
    pub cum: Psn,
}

/// What a packet does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// Place the payload at an address.
    Write(Message, Remote),
    /// Place the payload in a posted receive.
    Send(Message, BufferPart),
    /// Ask for memory.
    ReadReq(Message, Remote, ReadPart),
    /// Memory asked for.
    ReadRsp(ReadPart),
    /// Ask for an atomic operation on 8 bytes.
    AtomicReq {
        /// Message.
        message: Message,
        /// Address.
        va: u64,
        /// Key.
        rkey: Rkey,
        /// Value to swap in or to add.
        swap_add: u64,
        /// Value to compare with.
        compare: u64,
        /// What to do.
        op: AtomicOp,
        /// Number of the operation.
        atomic_id: u16,
    },
    /// Its result.
    AtomicRsp {
        /// What was done.
        op: AtomicOp,
        /// Number of the operation.
        atomic_id: u16,
        /// Value before the operation.
        orig: u64,
    },
    /// Make earlier writes visible.
    Flush(Message, Remote),
    /// Acknowledgement.
    Ack(Ack),
    /// Ask for one.
    ProbeReq {
        /// Next number the sender will use on the path.
        snd_nxt: Psn,
        /// Free number.
        cookie: u32,
    },
    /// Answer to a probe.
    ProbeRsp(Ack),
    /// Open, close or re-aim a path.
    PathCtl(PathControl),
    /// Which planes are usable.
    PortStatus {
        /// Bit p: plane p is up.
        planes_up: u16,
        /// Number of the report; the newest wins.
        seq: u16,
        /// Free number.
        cookie: u32,
    },
    /// Connection management; the payload holds the content.
    Cm(Opcode),
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Network layer.
    pub net: Network,
    /// Partition key.
    pub pkey: Pkey,
    /// Connection id at the receiver.
    pub dest: Qpn,
    /// Acknowledge now.
    pub ack_req: bool,
    /// Retransmission.
    pub rtx: bool,
    /// Nothing follows on this path.
    pub eob: bool,
    /// Sequence number within the path; 0 if unsequenced.
    pub pseq: Psn,
    /// Path it travels on.
    pub path: u8,
    /// Plane it was sent by.
    pub plane: u8,
    /// Epoch of the path.
    pub epoch: u8,
    /// Ordered stream; 0 is control.
    pub stream: u16,
    /// Sender's clock.
    pub tx_ts: Ticks,
    /// Operation.
    pub body: Body,
    /// Content.
    pub payload: Payload,
}

impl Packet {
    /// A packet of nothing, to be filled in.
    pub(crate) fn empty() -> Self {
        Self {
            net: Network::default(),
            pkey: Pkey::new(0),
            dest: Qpn::new(0),
            ack_req: false,
            rtx: false,
            eob: false,
            pseq: Psn::new(0),
            path: 0,
            plane: 0,
            epoch: 0,
            stream: 0,
            tx_ts: Ticks(0),
            body: Body::Cm(Opcode::ConnReq),
            payload: Payload::EMPTY,
        }
    }
}

impl Body {
    /// Opcode of the operation.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Write(..) => Opcode::Write,
            Self::Send(..) => Opcode::Send,
            Self::ReadReq(..) => Opcode::ReadReq,
            Self::ReadRsp(..) => Opcode::ReadRsp,
            Self::AtomicReq { .. } => Opcode::AtomicReq,
            Self::AtomicRsp { .. } => Opcode::AtomicRsp,
            Self::Flush(..) => Opcode::Flush,
            Self::Ack(..) => Opcode::Ack,
            Self::ProbeReq { .. } => Opcode::ProbeReq,
            Self::ProbeRsp(..) => Opcode::ProbeRsp,
            Self::PathCtl(..) => Opcode::PathCtl,
            Self::PortStatus { .. } => Opcode::PortStatus,
            Self::Cm(opcode) => *opcode,
        }
    }
}
