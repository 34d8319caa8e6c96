//! A packet as values: what the headers say, one variant an operation.

use super::frame::Payload;
use super::word::{field, word};
use crate::time::Ticks;
use crate::transport::bitmap::Bitmap;
use nic_spec::num::{HintSeq, Msn, Pkey, Psn, Qpn, Rkey, Rsn, RsnLimit};
use nic_spec::wire::{AtomicOp, Opcode, ECN_CE};

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

/// What the headers of a packet say besides its operation, as far as its connection reads them: words as they came, of
/// which a field is taken where it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub bth0: u32,
    pub bth1: u32,
    pub bth2: u32,
    pub pxth0: u32,
    pub pxth1: u32,
    pub ecn: u32,
}

/// Accessors of a field of a word.
macro_rules! fields {
    ($($name:ident: $word:ident, $header:ident[$index:literal].$field:ident, |$value:ident| $of:expr => $type:ty;)+) => {
        $(
            #[inline(always)]
            pub const fn $name(&self) -> $type {
                let $value = field!(self.$word, $header[$index].$field);
                $of
            }
        )+
    };
}

impl Label {
    fields! {
        pkey: bth0, Bth[0].pkey, |v| Pkey::new(v as u16) => Pkey;
        dest: bth1, Bth[1].dest_qpn, |v| Qpn::new(v) => Qpn;
        ack_req: bth2, Bth[2].ack_req, |v| v != 0 => bool;
        rtx: bth2, Bth[2].rtx, |v| v != 0 => bool;
        eob: bth2, Bth[2].eob, |v| v != 0 => bool;
        pseq: bth2, Bth[2].pseq, |v| Psn::new(v) => Psn;
        path: pxth0, Pxth[0].path_id, |v| v as u8 => u8;
        plane: pxth0, Pxth[0].plane, |v| v as u8 => u8;
        epoch: pxth0, Pxth[0].epoch, |v| v as u8 => u8;
        stream: pxth0, Pxth[0].stream_id, |v| v as u16 => u16;
        tx_ts: pxth1, Pxth[1].tx_ts, |v| Ticks(v) => Ticks;
    }

    /// The packet was marked by the network.
    #[inline(always)]
    pub const fn is_marked(&self) -> bool {
        self.ecn == ECN_CE as u32
    }
}

/// Part of a WRITE without immediate data, as [`Label`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WritePart {
    pub mxth0: u32,
    pub mxth1: u32,
    /// Where its payload goes.
    pub remote: Remote,
}

impl WritePart {
    fields! {
        first: mxth0, Mxth[0].first, |v| v != 0 => bool;
        last: mxth0, Mxth[0].last, |v| v != 0 => bool;
        has_imm: mxth0, Mxth[0].imm, |v| v != 0 => bool;
        has_inv: mxth0, Mxth[0].inv, |v| v != 0 => bool;
        se: mxth0, Mxth[0].se, |v| v != 0 => bool;
        fence: mxth0, Mxth[0].fence, |v| v != 0 => bool;
        mseq: mxth0, Mxth[0].mseq, |v| Msn::new(v) => Msn;
        rsn: mxth1, Mxth[1].rsn, |v| Rsn::new(v) => Rsn;
    }

    /// A part of a message that neither has immediate data nor invalidates a key.
    #[inline(always)]
    pub fn new(mseq: Msn, rsn: Rsn, first: bool, last: bool, se: bool, fence: bool, remote: Remote) -> Self {
        let mxth0 = word!(Mxth[0]: first = first, last = last, se = se, fence = fence, mseq = mseq.get());
        Self { mxth0, mxth1: word!(Mxth[1]: rsn = rsn.get()), remote }
    }

    /// Its message header.
    pub fn message(&self) -> Message {
        Message {
            first: self.first(),
            last: self.last(),
            has_imm: self.has_imm(),
            has_inv: self.has_inv(),
            se: self.se(),
            fence: self.fence(),
            mseq: self.mseq(),
            rsn: self.rsn(),
            ..Message::default()
        }
    }
}

impl Packet {
    /// What its headers say besides its operation.
    pub(crate) fn label(&self) -> Label {
        let (ack_req, rtx, eob, pseq) = (self.ack_req, self.rtx, self.eob, self.pseq.get());
        let (path, plane, epoch, stream) = (self.path, self.plane, self.epoch, self.stream);
        Label {
            bth0: word!(Bth[0]: pkey = self.pkey.get()),
            bth1: word!(Bth[1]: dest_qpn = self.dest.get()),
            bth2: word!(Bth[2]: ack_req = ack_req, rtx = rtx, eob = eob, pseq = pseq),
            pxth0: word!(Pxth[0]: path_id = path, plane = plane, epoch = epoch, stream_id = stream),
            pxth1: self.tx_ts.0,
            ecn: self.net.ecn.into(),
        }
    }

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
