//! The parse graph as a table: opcodes, the headers that follow BTH and PXTH, and when an optional one is there.

use crate::{
    codes::{Code, Codes},
    layout::{Field, Layout},
};

macro_rules! headers {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A header that may follow PXTH.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Header { $($(#[doc = $doc])+ $name),+ }

        impl Header {
            /// Every header.
            pub const ALL: &'static [Header] = &[$(Header::$name),+];

            /// The header's table.
            pub const fn layout(self) -> &'static Layout {
                match self { $(Header::$name => &super::$name::LAYOUT),+ }
            }
        }
    };
}

headers! {
    /// Message header.
    Mxth,
    /// RDMA header.
    Reth,
    /// Buffer header of a SEND.
    Bxth,
    /// Tag match header.
    Tmth,
    /// Read header.
    Rrth,
    /// Immediate data.
    ImmDt,
    /// Key to invalidate.
    Ieth,
    /// Atomic operation.
    AtomicEth,
    /// Tag of an atomic operation.
    Atag,
    /// Result of an atomic operation.
    AtomicAckEth,
    /// Acknowledgement.
    Axth,
    /// Selective acknowledgement bitmap.
    Sack,
    /// Reason of a refusal.
    Nxth,
    /// Probe.
    Pbth,
    /// Path control.
    Pcth,
    /// Port status.
    Psth,
}

/// When a header is there: all named one-bit fields of an earlier header are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Header that holds the flags.
    pub header: Header,
    /// Names of the flags; all must be 1.
    pub flags: &'static [&'static str],
}

impl Condition {
    /// The flags as fields of the header.
    pub fn fields(&self) -> impl Iterator<Item = Field> + '_ {
        self.flags.iter().map(|name| self.header.layout().field(name))
    }
}

/// The message carries immediate data and this is its last packet.
pub const IMM_AND_LAST: Condition = Condition { header: Header::Mxth, flags: &["imm", "last"] };
/// The message invalidates a key and this is its last packet.
pub const INV_AND_LAST: Condition = Condition { header: Header::Mxth, flags: &["inv", "last"] };
/// The message is matched by tag.
pub const TAG: Condition = Condition { header: Header::Mxth, flags: &["tag"] };
/// The acknowledgement has a bitmap.
pub const BITMAP: Condition = Condition { header: Header::Axth, flags: &["bm"] };
/// The acknowledgement is a refusal.
pub const NAK: Condition = Condition { header: Header::Axth, flags: &["nak"] };

/// One header in the chain of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The header.
    pub header: Header,
    /// When it is there; `None` = always.
    pub when: Option<Condition>,
}

/// What follows the header chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing: the ICRC follows.
    None,
    /// Payload of 0..=PMTU bytes, padded to a multiple of four.
    Payload,
    /// Content that the parse graph does not look into.
    Opaque,
}

/// One row of the parse graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The opcode.
    pub opcode: Opcode,
    /// Name as the specification spells it.
    pub name: &'static str,
    /// True when the packet takes a PSEQ and is acknowledged.
    pub is_sequenced: bool,
    /// Headers after PXTH, in order.
    pub steps: &'static [Step],
    /// What follows them.
    pub body: Body,
    /// Meaning.
    pub doc: &'static str,
}

macro_rules! opcodes {
    ($($(#[doc = $doc:literal])+
       $variant:ident = $code:literal $name:literal, $seq:ident, [$($header:ident $(if $when:ident)?),*], $body:ident;)+) => {
        /// Operation of a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Opcode { $($(#[doc = $doc])+ $variant = $code),+ }

        /// The parse graph: one row an opcode, ascending.
        pub const OPCODES: &[OpcodeInfo] = &[$(OpcodeInfo {
            opcode: Opcode::$variant, name: $name, is_sequenced: opcodes!(@ $seq),
            steps: &[$(Step { header: Header::$header, when: opcodes!(@when $($when)?) }),*],
            body: Body::$body, doc: concat!($($doc),+),
        }),+];

        impl Opcode {
            /// The opcodes as an enumeration.
            pub const CODES: Codes = Codes {
                name: "Opcode",
                doc: " Operation of a packet.",
                codes: &[$(Code { name: $name, value: $code, doc: concat!($($doc),+) }),+],
            };

            /// The opcode's row of the parse graph.
            pub const fn info(self) -> &'static OpcodeInfo {
                let mut i = 0;
                while OPCODES[i].opcode as u8 != self as u8 {
                    i += 1;
                }
                &OPCODES[i]
            }

            /// The number on the wire.
            pub const fn code(self) -> u8 {
                self as u8
            }
        }

        impl TryFrom<u8> for Opcode {
            type Error = crate::codes::UnknownCode;
            fn try_from(value: u8) -> Result<Self, Self::Error> {
                match value {
                    $($code => Ok(Opcode::$variant),)+
                    _ => Err(crate::codes::UnknownCode { of: "Opcode", value: value.into() }),
                }
            }
        }
    };
    (@ sequenced) => { true };
    (@ unsequenced) => { false };
    (@when) => { None };
    (@when $when:ident) => { Some($when) };
}

opcodes! {
    /// Places payload at the address that the packet carries.
    Write = 0xe0 "WRITE", sequenced, [Mxth, Reth, ImmDt if IMM_AND_LAST], Payload;
    /// Places payload in a posted receive buffer.
    Send = 0xe1 "SEND", sequenced, [Mxth, Bxth, Tmth if TAG, ImmDt if IMM_AND_LAST, Ieth if INV_AND_LAST], Payload;
    /// Asks for memory content.
    ReadReq = 0xe2 "READ_REQ", sequenced, [Mxth, Reth, Rrth], None;
    /// Carries memory content asked for.
    ReadRsp = 0xe3 "READ_RSP", sequenced, [Rrth], Payload;
    /// Asks for an atomic operation.
    AtomicReq = 0xe4 "ATOMIC_REQ", sequenced, [Mxth, AtomicEth, Atag], None;
    /// Carries the result of an atomic operation.
    AtomicRsp = 0xe5 "ATOMIC_RSP", sequenced, [Atag, AtomicAckEth], None;
    /// Makes earlier writes visible or durable.
    Flush = 0xe6 "FLUSH", sequenced, [Mxth, Reth], None;
    /// Acknowledges packets of one path.
    Ack = 0xf0 "ACK", unsequenced, [Axth, Sack if BITMAP, Nxth if NAK], None;
    /// Asks for an acknowledgement of a path.
    ProbeReq = 0xf1 "PROBE_REQ", unsequenced, [Pbth], None;
    /// Answers a probe with the acknowledgement of the path.
    ProbeRsp = 0xf2 "PROBE_RSP", unsequenced, [Axth, Sack if BITMAP], None;
    /// Opens, closes or re-aims a path.
    PathCtl = 0xf3 "PATH_CTL", unsequenced, [Pcth], None;
    /// Reports which planes are usable.
    PortStatus = 0xf4 "PORT_STATUS", unsequenced, [Psth], None;
    /// Asks for a connection; the content is CMTH and parameters.
    ConnReq = 0xf8 "CONN_REQ", unsequenced, [], Opaque;
    /// Grants or refuses a connection; the content is CMTH and parameters.
    ConnRep = 0xf9 "CONN_REP", unsequenced, [], Opaque;
    /// Confirms a connection; the content is CMTH.
    ConnRtu = 0xfa "CONN_RTU", unsequenced, [], Opaque;
    /// Asks for the end of a connection; the content is CMTH.
    DiscReq = 0xfb "DISC_REQ", unsequenced, [], Opaque;
    /// Confirms the end of a connection; the content is CMTH.
    DiscRep = 0xfc "DISC_REP", unsequenced, [], Opaque;
}

impl OpcodeInfo {
    /// Length of the longest header chain after PXTH. Bytes.
    pub fn len_bytes_max(&self) -> usize {
        self.steps.iter().map(|step| step.header.layout().len_bytes).sum()
    }

    /// Length of the header chain after PXTH when `is_set` answers for the flags. Bytes.
    pub fn len_bytes(&self, mut is_set: impl FnMut(&Condition) -> bool) -> usize {
        let present = |step: &&Step| step.when.as_ref().is_none_or(&mut is_set);
        self.steps.iter().filter(present).map(|step| step.header.layout().len_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_ascend_and_come_back_from_their_number() {
        assert!(OPCODES.windows(2).all(|w| w[0].opcode < w[1].opcode));
        for info in OPCODES {
            assert_eq!(Opcode::try_from(info.opcode.code()), Ok(info.opcode));
            assert_eq!(info.opcode.info(), info);
            assert_eq!(info.is_sequenced, info.opcode.code() < 0xf0, "{}", info.name);
        }
        assert_eq!(Opcode::try_from(0x0a).unwrap_err().to_string(), "0xa is no Opcode");
    }

    #[test]
    fn a_condition_names_one_bit_flags_of_a_header_that_always_precedes() {
        for info in OPCODES {
            for (i, step) in info.steps.iter().enumerate() {
                let Some(when) = step.when else { continue };
                assert!(when.fields().all(|f| f.bits == 1));
                assert!(info.steps[..i].iter().any(|s| s.header == when.header && s.when.is_none()), "{}", info.name);
            }
        }
    }

    #[test]
    fn every_chain_is_a_multiple_of_four_bytes() {
        assert!(OPCODES.iter().all(|info| info.steps.iter().all(|s| s.header.layout().len_bytes % 4 == 0)));
        assert_eq!(Opcode::Write.info().len_bytes(|_| false), 24);
        assert_eq!(Opcode::Write.info().len_bytes_max(), 28);
        assert_eq!(Opcode::Ack.info().len_bytes(|c| *c == BITMAP), 60);
    }
}
