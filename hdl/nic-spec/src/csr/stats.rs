//! Block `stats`: one row a counter; drops and refusals have their reason, counter and documents here only.
//!
//! A row gives the code that the RTL carries with a refused packet, the name in driver and dissector, and the address
//! of a 64-bit counter. Reading a low word latches the high word, so low then high is one consistent value.

use crate::{
    register::{Access, Block, Register},
    wire::NakReason,
};

/// What a row of the counter table counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A received packet that was discarded; nothing was placed and nothing answered.
    Drop,
    /// A received packet that was refused with this reason in the ACK; nothing was placed.
    Nak(NakReason),
    /// Something that happened.
    Event,
}

/// One row of the counter table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterInfo {
    /// The counter.
    pub counter: Counter,
    /// Name in registers, driver and dissector.
    pub name: &'static str,
    /// What is counted.
    pub class: Class,
    /// Meaning.
    pub doc: &'static str,
    /// The two registers: low word, high word.
    pub registers: [Register; 2],
}

/// Type of the block.
const TYPE_ID: u32 = 0x0007;
/// Version of the block.
const VERSION_NUMBER: u32 = 1;
/// Byte address of the block.
const BASE: u32 = 0x6000;
/// Byte address of the first counter.
const FIRST: u32 = BASE + 0x10;

const fn register(name: &'static str, address: u32, reset: u32, unit: &'static str, doc: &'static str) -> Register {
    Register { name, address, count: 1, access: Access::Ro, reset, unit, doc, fields: &[] }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:ident, $unit:literal, $class:expr;)+) => {
        /// Everything the card counts. The code 0 is left for "no drop".
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Counter {
            $($(#[doc = $doc])+ $variant,)+
        }

        /// Every counter in order of its code, which begins with 1.
        pub const COUNTERS: &[CounterInfo] = &[$(CounterInfo {
            counter: Counter::$variant,
            name: stringify!($name),
            class: $class,
            doc: concat!($($doc),+),
            registers: [
                register(
                    concat!(stringify!($name), "_lo"), Counter::$variant.address(), 0, $unit,
                    concat!($($doc),+, " Low word; reading it latches the high word."),
                ),
                register(
                    concat!(stringify!($name), "_hi"), Counter::$variant.address() + 4, 0, $unit,
                    concat!($($doc),+, " High word, as latched."),
                ),
            ],
        }),+];

        const REGISTERS: [Register; 3 + 2 * COUNTERS.len()] = {
            let mut all = [register("TYPE", BASE, TYPE_ID, "", " Type of the block."); 3 + 2 * COUNTERS.len()];
            all[1] = register("VERSION", BASE + 4, VERSION_NUMBER, "", " Version of the block's layout.");
            all[2] = register("NEXT", BASE + 8, 0, "bytes", " Byte address of the next block; 0 at the last one.");
            let mut i = 0;
            while i < COUNTERS.len() {
                all[3 + 2 * i] = COUNTERS[i].registers[0];
                all[4 + 2 * i] = COUNTERS[i].registers[1];
                i += 1;
            }
            crate::register::checked(all)
        };
    };
}

impl Counter {
    /// The number that the RTL carries; 0 means no drop and is no counter.
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The counter with this code; `None` for 0 and for numbers beyond the table.
    pub fn from_code(code: u8) -> Option<Self> {
        COUNTERS.get(usize::from(code).checked_sub(1)?).map(|info| info.counter)
    }

    /// Byte address of the low word; the high word follows.
    pub const fn address(self) -> u32 {
        FIRST + 8 * self as u32
    }

    /// The counter's row.
    pub const fn info(self) -> &'static CounterInfo {
        &COUNTERS[self as usize]
    }

    /// Name in registers, driver and dissector.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The counter of a refusal.
    pub fn of_nak(reason: NakReason) -> Self {
        let row = COUNTERS.iter().find(|info| info.class == Class::Nak(reason));
        row.map(|info| info.counter).expect("every reason has a row, as a test states")
    }
}

impl core::fmt::Display for Counter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// Counters of the card.
pub const BLOCK: Block = Block {
    name: "stats",
    type_id: TYPE_ID,
    version: VERSION_NUMBER,
    base: BASE,
    doc: " Counters of the card, 64 bits each: reading the low word latches the high one.",
    registers: &REGISTERS,
};

counters! {
    /// Frame marked bad by the MAC.
    RxMacError = rx_mac_error_count, "frames", Class::Drop;
    /// Frame that found the receive buffer full.
    RxOverflow = rx_overflow_count, "frames", Class::Drop;
    /// Frame that ends before its headers, or before the length its IP header states.
    RxTruncated = rx_truncated_count, "frames", Class::Drop;
    /// Frame longer than the receive buffer takes, or payload above the largest PMTU.
    RxTooLong = rx_too_long_count, "frames", Class::Drop;
    /// Frame to another MAC address.
    RxOtherMac = rx_other_mac_count, "frames", Class::Drop;
    /// Frame with more than two VLAN tags.
    RxTooManyTags = rx_too_many_tags_count, "frames", Class::Drop;
    /// Frame that carries neither IPv4 nor IPv6.
    RxNotIp = rx_not_ip_count, "frames", Class::Drop;
    /// IP version that contradicts the Ethernet type.
    RxBadIpVersion = rx_bad_ip_version_count, "frames", Class::Drop;
    /// IPv4 header with options, or shorter than 20 bytes.
    RxIpOptions = rx_ip_options_count, "frames", Class::Drop;
    /// IPv4 header checksum is wrong.
    RxBadIpChecksum = rx_bad_ip_checksum_count, "frames", Class::Drop;
    /// Fragment of an IPv4 packet.
    RxIpFragment = rx_ip_fragment_count, "frames", Class::Drop;
    /// IPv6 packet with an extension header.
    RxIpv6Extension = rx_ipv6_extension_count, "frames", Class::Drop;
    /// IP packet that carries another protocol than UDP.
    RxNotUdp = rx_not_udp_count, "frames", Class::Drop;
    /// UDP packet to another port.
    RxOtherUdpPort = rx_other_udp_port_count, "frames", Class::Drop;
    /// UDP length that contradicts the IP length.
    RxBadUdpLen = rx_bad_udp_len_count, "frames", Class::Drop;
    /// Transport header version of another format.
    RxBadTver = rx_bad_tver_count, "packets", Class::Drop;
    /// Opcode that the protocol does not define.
    RxUnknownOpcode = rx_unknown_opcode_count, "packets", Class::Drop;
    /// Opcode that the protocol defines and this card does not implement.
    RxUnsupportedOpcode = rx_unsupported_opcode_count, "packets", Class::Drop;
    /// Invariant CRC is wrong.
    RxBadIcrc = rx_bad_icrc_count, "packets", Class::Drop;
    /// Payload shorter than its pad, or content behind headers that carry none.
    RxBadLength = rx_bad_length_count, "packets", Class::Drop;
    /// No connection has this id.
    RxUnknownConn = rx_unknown_conn_count, "packets", Class::Drop;
    /// Partition key of another partition.
    RxBadPkey = rx_bad_pkey_count, "packets", Class::Drop;
    /// The connection is in error.
    RxConnError = rx_conn_error_count, "packets", Class::Drop;
    /// The path is not open.
    RxUnknownPath = rx_unknown_path_count, "packets", Class::Drop;
    /// PSEQ beyond the receive window of the path.
    RxOutOfWindow = rx_out_of_window_count, "packets", Class::Drop;
    /// PSEQ already received: acknowledged again, not placed again.
    RxDuplicate = rx_duplicate_count, "packets", Class::Drop;
    /// Acknowledgement of packets that were never sent.
    RxBadAck = rx_bad_ack_count, "packets", Class::Drop;

    /// Refused: no memory region has the key.
    NakRkey = nak_rkey_count, "packets", Class::Nak(NakReason::Rkey);
    /// Refused: region of another protection domain.
    NakPd = nak_pd_count, "packets", Class::Nak(NakReason::Pd);
    /// Refused: beyond the region.
    NakRange = nak_range_count, "packets", Class::Nak(NakReason::Range);
    /// Refused: region does not permit the access.
    NakAccess = nak_access_count, "packets", Class::Nak(NakReason::Access);
    /// Refused for now: no receive posted.
    NakRnr = nak_rnr_count, "packets", Class::Nak(NakReason::Rnr);
    /// Refused: stream not open, or message number not acceptable.
    NakStream = nak_stream_count, "packets", Class::Nak(NakReason::Stream);
    /// Refused: state of the connection.
    NakQpState = nak_qp_state_count, "packets", Class::Nak(NakReason::QpState);
    /// Refused: payload above the PMTU, or message beyond its stated length.
    NakMtu = nak_mtu_count, "packets", Class::Nak(NakReason::Mtu);
    /// Refused for now: a resource is used up.
    NakNoResource = nak_no_resource_count, "packets", Class::Nak(NakReason::NoResource);
    /// Refused: outside the receive window.
    NakWindow = nak_window_count, "packets", Class::Nak(NakReason::Window);

    /// Frames taken from the MAC.
    RxFrames = rx_frames_count, "frames", Class::Event;
    /// Bytes of frames taken from the MAC, without preamble and FCS.
    RxBytes = rx_bytes, "bytes", Class::Event;
    /// Data packets accepted for the first time.
    RxData = rx_data_count, "packets", Class::Event;
    /// Payload bytes of data packets accepted for the first time.
    RxDataBytes = rx_data_bytes, "bytes", Class::Event;
    /// Packets received with a congestion mark.
    RxCe = rx_ce_count, "packets", Class::Event;
    /// Acknowledgements received, refusals included.
    RxAck = rx_ack_count, "packets", Class::Event;
    /// Refusals received.
    RxNak = rx_nak_count, "packets", Class::Event;
    /// Messages completely placed.
    RxMessages = rx_messages_count, "messages", Class::Event;
    /// Frames handed to the MAC.
    TxFrames = tx_frames_count, "frames", Class::Event;
    /// Bytes of frames handed to the MAC, without preamble and FCS.
    TxBytes = tx_bytes, "bytes", Class::Event;
    /// Data packets sent for the first time.
    TxData = tx_data_count, "packets", Class::Event;
    /// Payload bytes of data packets sent for the first time.
    TxDataBytes = tx_data_bytes, "bytes", Class::Event;
    /// Retransmissions sent because an acknowledgement showed a loss.
    TxRtxGap = tx_rtx_gap_count, "packets", Class::Event;
    /// Retransmissions sent because a timer expired.
    TxRtxRto = tx_rtx_rto_count, "packets", Class::Event;
    /// Acknowledgements sent without a bitmap.
    TxAckShort = tx_ack_short_count, "packets", Class::Event;
    /// Acknowledgements sent with a bitmap.
    TxAckLong = tx_ack_long_count, "packets", Class::Event;
    /// Refusals sent.
    TxNak = tx_nak_count, "packets", Class::Event;
    /// Messages completely acknowledged.
    TxMessages = tx_messages_count, "messages", Class::Event;
    /// Retransmission timeouts of paths.
    PathRto = path_rto_count, "timeouts", Class::Event;
    /// Connections that went into error.
    ConnErrors = conn_error_count, "connections", Class::Event;
    /// WQEs fetched.
    WqeFetched = wqe_fetched_count, "WQEs", Class::Event;
    /// WQEs refused as malformed or for their local memory.
    WqeBad = wqe_bad_count, "WQEs", Class::Event;
    /// WQEs flushed because their connection is in error.
    WqeFlushed = wqe_flushed_count, "WQEs", Class::Event;
    /// CQEs written.
    CqeWritten = cqe_written_count, "CQEs", Class::Event;
    /// CQEs held back or lost because their queue was full.
    CqOverflow = cq_overflow_count, "CQEs", Class::Event;
    /// Interrupt messages requested.
    MsixSent = msix_sent_count, "messages", Class::Event;
    /// Reads of host memory answered with an error.
    DmaReadError = dma_read_error_count, "bursts", Class::Event;
    /// Writes of host memory answered with an error.
    DmaWriteError = dma_write_error_count, "bursts", Class::Event;
    /// Register accesses to addresses that hold no register.
    CsrBadAddress = csr_bad_address_count, "accesses", Class::Event;
    /// Doorbells of queues that are not enabled or not there, or with an index outside their ring.
    DoorbellBad = doorbell_bad_count, "doorbells", Class::Event;
    /// Context commands that named no table or no row of it.
    CtxBad = ctx_bad_count, "commands", Class::Event;
    /// Packets sent once more in idle time although nothing says that they are lost.
    TxRedundant = tx_redundant_count, "packets", Class::Event;
    /// Probes and tail markers sent.
    TxProbe = tx_probe_count, "packets", Class::Event;
    /// Paths that took another route because theirs did not answer.
    PathReaim = path_reaim_count, "paths", Class::Event;
    /// Planes that a connection stopped using because they did not answer, lost their link, or the peer said so.
    PlaneDown = plane_down_count, "planes", Class::Event;
    /// CQEs lost because their completion queue is not enabled.
    CqeNoQueue = cqe_no_queue_count, "CQEs", Class::Event;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_count_from_1_and_come_back() {
        for (i, info) in COUNTERS.iter().enumerate() {
            assert_eq!(usize::from(info.counter.code()), i + 1);
            assert_eq!(Counter::from_code(info.counter.code()), Some(info.counter));
            assert_eq!(info.counter.info(), info);
        }
        assert_eq!(Counter::from_code(0), None);
        assert_eq!(Counter::from_code(COUNTERS.len() as u8 + 1), None);
    }

    #[test]
    fn every_refusal_reason_has_exactly_one_counter() {
        for &reason in NakReason::ALL {
            assert_eq!(COUNTERS.iter().filter(|info| info.class == Class::Nak(reason)).count(), 1, "{reason}");
            assert_eq!(Counter::of_nak(reason).info().class, Class::Nak(reason));
        }
    }

    #[test]
    fn names_are_unique_and_end_in_what_they_count() {
        for (i, info) in COUNTERS.iter().enumerate() {
            assert!(info.name.ends_with("_count") || info.name.ends_with("_bytes"), "{}", info.name);
            assert!(COUNTERS[..i].iter().all(|other| other.name != info.name), "{}", info.name);
        }
        assert_eq!(Counter::RxBadIcrc.to_string(), "rx_bad_icrc_count");
    }

    #[test]
    fn a_counter_is_two_words_low_first() {
        let [low, high] = Counter::RxBadIcrc.info().registers;
        assert_eq!((low.address, high.address), (Counter::RxBadIcrc.address(), low.address + 4));
        assert_eq!((low.name, low.address % 8), ("rx_bad_icrc_count_lo", 0));
    }
}
