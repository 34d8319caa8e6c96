//! Constants of the protocol: value, unit, range and where the number comes from.
//!
//! A fixed constant is part of the format or of the mechanism. A tunable one is the reset value of a register or the
//! default of a parameter, valid within its range.

/// Whether a constant may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Part of the format or of the mechanism.
    Fixed,
    /// A default that a register or a parameter of the build replaces.
    Tunable,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name of the Rust constant.
    pub name: &'static str,
    /// Value.
    pub value: u64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Smallest permitted value.
    pub min: u64,
    /// Largest permitted value.
    pub max: u64,
    /// Fixed or tunable.
    pub kind: Kind,
    /// Where the number comes from.
    pub source: &'static str,
    /// Meaning.
    pub doc: &'static str,
}

macro_rules! constants {
    ($($(#[doc = $doc:literal])+ $kind:ident $name:ident: $ty:ty = $value:literal, $unit:literal, $min:literal..=$max:literal, $source:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: $ty = $value;)+

        /// Every constant.
        pub const CONSTANTS: &[Constant] = &[$(Constant {
            name: stringify!($name), value: $value, unit: $unit, min: $min, max: $max, kind: constants!(@ $kind),
            source: $source, doc: concat!($($doc),+),
        }),+];
    };
    (@ fixed) => { Kind::Fixed };
    (@ tunable) => { Kind::Tunable };
}

constants! {
    /// UDP destination port of every packet.
    tunable UDP_DPORT: u16 = 4791, "port", 1..=65535, "IBTA A17 (RoCEv2)";
    /// Smallest UDP source port that a path uses.
    tunable UDP_SPORT_MIN: u16 = 0xc000, "port", 1..=65535, "IBTA A17 (RoCEv2)";
    /// Transport header version of this format in BTH.
    fixed TVER: u8 = 1, "", 1..=1, "this project; RoCEv2 uses 0";
    /// Default partition key.
    tunable PKEY_DEFAULT: u16 = 0xffff, "", 0..=65535, "IBTA";
    /// Time to live or hop limit of sent packets.
    tunable HOP_LIMIT: u8 = 64, "hops", 2..=255, "this project";
    /// Width of PSEQ, MSEQ and RSN.
    fixed PSN_BITS: u32 = 24, "bits", 24..=24, "IBTA BTH";
    /// Packets that the selective acknowledgement bitmap covers, and so the largest window of a path.
    fixed SACK_BITS: u32 = 256, "packets", 256..=256, "public material on MetaRoCE";
    /// Length of the invariant CRC.
    fixed ICRC_BYTES: usize = 4, "bytes", 4..=4, "IBTA A17 (RoCEv2)";
    /// Most VLAN tags that a frame may carry.
    fixed VLAN_TAGS_MAX: usize = 2, "tags", 2..=2, "this project";
    /// Largest payload of one packet at the largest PMTU.
    fixed PMTU_BYTES_MAX: usize = 8192, "bytes", 8192..=8192, "this project";
    /// Logarithm of the smallest PMTU.
    fixed PMTU_LOG2_MIN: u8 = 10, "log2 bytes", 10..=10, "this project";
    /// Logarithm of the largest PMTU.
    fixed PMTU_LOG2_MAX: u8 = 13, "log2 bytes", 13..=13, "this project";
    /// Logarithm of the default PMTU.
    tunable PMTU_LOG2: u8 = 12, "log2 bytes", 10..=13, "public material on MetaRoCE: 72 packets operating window";
    /// Largest message.
    fixed MSG_BYTES_MAX: u64 = 0x8000_0000, "bytes", 0x8000_0000..=0x8000_0000, "IBTA";
    /// Unit of the receiver residency in an ACK.
    fixed HOLD_UNIT_NS: u32 = 16, "ns", 16..=16, "this project";
    /// Rate hint that states no limit.
    fixed RATE_HINT_UNLIMITED: u32 = 0xff_ffff, "Mb/s", 0xff_ffff..=0xff_ffff, "this project";
    /// AETH syndrome of an ACK that grants no IBTA credit.
    fixed SYNDROME_ACK: u8 = 0x1f, "", 0x1f..=0x1f, "IBTA AETH";
    /// Frequency of the core clock.
    tunable CLOCK_KHZ: u32 = 250000, "kHz", 1000..=1000000, "this project";
    /// Paths of a connection.
    tunable PATHS_PER_CONN: u32 = 4, "paths", 1..=256, "this project; 12 at full rate";
    /// Packets in flight on one path, at most.
    tunable WINDOW_PKTS: u32 = 64, "packets", 1..=256, "this project; the bitmap allows 256";
    /// Messages in flight on one stream, at most.
    tunable MSGS_PER_STREAM: u32 = 64, "messages", 1..=64, "this project";
    /// Packets received on a path that make an ACK due.
    tunable ACK_PACKETS: u32 = 4, "packets", 1..=64, "UCCL";
    /// Payload received on a path that makes an ACK due.
    tunable ACK_BYTES: u32 = 16384, "bytes", 1..=1048576, "UEC simulator";
    /// Longest time an ACK is held back.
    tunable ACK_DELAY_NS: u32 = 2000, "ns", 0..=1000000, "this project";
    /// Retransmission timeout before the first doubling.
    tunable RTO_NS: u32 = 100000, "ns", 1000..=1000000000, "UEC simulator";
    /// Largest retransmission timeout after doubling.
    tunable RTO_NS_MAX: u64 = 8000000000, "ns", 1000..=8000000000, "UEC";
    /// Timeouts in a row on one path after which its connection fails.
    tunable RETRY_LIMIT: u32 = 7, "timeouts", 0..=15, "IBTA";
    /// Wait after a receiver-not-ready NAK.
    tunable RNR_NS: u32 = 100000, "ns", 1000..=1000000000, "this project";
    /// Shortest time between two NAKs of a connection.
    tunable NAK_INTERVAL_NS: u32 = 100000, "ns", 0..=1000000000, "this project";
    /// Time for which a connection id stays unused after teardown.
    tunable CONN_QUARANTINE_NS: u32 = 10000000, "ns", 0..=1000000000, "this project";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_its_range_and_a_fixed_one_has_no_other() {
        for c in CONSTANTS {
            assert!(c.min <= c.value && c.value <= c.max, "{}", c.name);
            assert_eq!(c.kind == Kind::Fixed, c.min == c.max, "{}", c.name);
            assert!(!c.doc.is_empty() && !c.source.is_empty(), "{}", c.name);
        }
    }
}
