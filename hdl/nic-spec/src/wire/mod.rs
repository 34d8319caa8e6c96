//! What travels: one header a file, the parse graph, the invariant CRC.
//!
//! ```text
//! Ethernet | 802.1Q x 0..2 | IPv4 or IPv6 | UDP | BTH 12 | PXTH 8 | extensions | payload | pad 0..3 | ICRC 4
//! ```

// Below the transport.
mod eth;
mod ipv4;
mod ipv6;
mod udp;
mod vlan;

// In every packet.
mod bth;
mod pxth;

// Requests.
mod atomic;
mod bxth;
mod immdt;
mod mxth;
mod reth;
mod rrth;
mod tmth;

// Acknowledgement and control.
mod axth;
mod cmth;
mod nxth;
mod pbth;
mod pcth;
mod psth;

// Which headers follow which, and the check over all.
pub mod icrc;
pub mod opcode;

pub use atomic::{Atag, AtomicAckEth, AtomicEth, AtomicOp};
pub use axth::{Axth, Sack};
pub use bth::Bth;
pub use bxth::Bxth;
pub use cmth::{CmParam, CmParamKind, CmStatus, Cmth, CM_QPN, CM_VERSION};
pub use eth::{Eth, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, ETHERTYPE_VLAN_SERVICE};
pub use immdt::{Ieth, ImmDt};
pub use ipv4::Ipv4;
pub use ipv6::{Ipv6, IPV6_EXTENSIONS};
pub use mxth::Mxth;
pub use nxth::{NakReason, Nxth};
pub use opcode::{Condition, Header, Opcode, Step};
pub use pbth::Pbth;
pub use pcth::{PathOp, Pcth};
pub use psth::Psth;
pub use pxth::Pxth;
pub use reth::Reth;
pub use rrth::Rrth;
pub use tmth::Tmth;
pub use udp::Udp;
pub use vlan::Vlan;

use crate::{codes::CodedField, layout::Layout};

/// Protocol number of UDP in IPv4 and IPv6.
pub const IP_PROTOCOL_UDP: u8 = 17;

/// ECN codepoint: sender does not support ECN.
pub const ECN_NOT_ECT: u8 = 0;
/// ECN codepoint: capable, 0.
pub const ECN_ECT0: u8 = 2;
/// ECN codepoint: congestion experienced.
pub const ECN_CE: u8 = 3;

/// Every header in reading order.
pub const LAYOUTS: &[&Layout] = &[
    &Eth::LAYOUT,
    &Vlan::LAYOUT,
    &Ipv4::LAYOUT,
    &Ipv6::LAYOUT,
    &Udp::LAYOUT,
    &Bth::LAYOUT,
    &Pxth::LAYOUT,
    &Mxth::LAYOUT,
    &Reth::LAYOUT,
    &Bxth::LAYOUT,
    &Tmth::LAYOUT,
    &Rrth::LAYOUT,
    &ImmDt::LAYOUT,
    &Ieth::LAYOUT,
    &AtomicEth::LAYOUT,
    &Atag::LAYOUT,
    &AtomicAckEth::LAYOUT,
    &Axth::LAYOUT,
    &Sack::LAYOUT,
    &Nxth::LAYOUT,
    &Pbth::LAYOUT,
    &Pcth::LAYOUT,
    &Psth::LAYOUT,
    &Cmth::LAYOUT,
    &CmParam::LAYOUT,
];

/// Fields that hold codes.
pub const CODED_FIELDS: &[CodedField] = &[
    CodedField { layout: &Bth::LAYOUT, field: "opcode", codes: &Opcode::CODES },
    CodedField { layout: &Nxth::LAYOUT, field: "reason", codes: &NakReason::CODES },
    CodedField { layout: &Pcth::LAYOUT, field: "op", codes: &PathOp::CODES },
    CodedField { layout: &Atag::LAYOUT, field: "op", codes: &AtomicOp::CODES },
    CodedField { layout: &Cmth::LAYOUT, field: "status", codes: &CmStatus::CODES },
    CodedField { layout: &CmParam::LAYOUT, field: "kind", codes: &CmParamKind::CODES },
];
