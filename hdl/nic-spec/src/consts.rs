//! Constants of the protocol: value, unit, range and why the number is what it is.
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
    /// Why it is this number, and where it comes from if it is not ours.
    pub reason: &'static str,
    /// Meaning.
    pub doc: &'static str,
}

macro_rules! constants {
    ($($(#[doc = $doc:literal])+ $kind:ident $name:ident: $ty:ty = $value:literal, $unit:literal, $min:literal..=$max:literal, $reason:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: $ty = $value;)+

        /// Every constant.
        pub const CONSTANTS: &[Constant] = &[$(Constant {
            name: stringify!($name), value: $value, unit: $unit, min: $min, max: $max, kind: constants!(@ $kind),
            reason: $reason, doc: concat!($($doc),+),
        }),+];
    };
    (@ fixed) => { Kind::Fixed };
    (@ tunable) => { Kind::Tunable };
}

constants! {
    /// UDP destination port of every packet.
    tunable UDP_DPORT: u16 = 4791, "port", 1..=65535, "RoCEv2's; the two formats differ in TVer";
    /// Smallest UDP source port that a path uses.
    tunable UDP_SPORT_MIN: u16 = 0xc000, "port", 1..=65535, "RoCEv2's range; below it are ports with a meaning";
    /// Transport header version of this format in BTH.
    fixed TVER: u8 = 1, "", 1..=1, "RoCEv2 uses 0, so that each side drops the other's packets";
    /// Default partition key.
    tunable PKEY_DEFAULT: u16 = 0xffff, "", 0..=65535, "IBTA: the default partition, full member";
    /// Time to live or hop limit of sent packets.
    tunable HOP_LIMIT: u8 = 64, "hops", 2..=255, "never 1: networks are routed";
    /// Width of PSEQ, MSEQ and RSN.
    fixed PSN_BITS: u32 = 24, "bits", 24..=24, "IBTA BTH; the fastest path wraps in 0.7 s, far longer than a packet lives";
    /// Packets that the selective acknowledgement bitmap covers, and so the largest window of a path.
    fixed SACK_BITS: u32 = 256, "packets", 256..=256, "public material on MetaRoCE; the largest window follows from it";
    /// Length of the invariant CRC.
    fixed ICRC_BYTES: usize = 4, "bytes", 4..=4, "IBTA A17 (RoCEv2)";
    /// Most VLAN tags that a frame may carry.
    fixed VLAN_TAGS_MAX: usize = 2, "tags", 2..=2, "a service tag and a customer tag";
    /// Largest payload of one packet at the largest PMTU.
    fixed PMTU_BYTES_MAX: usize = 8192, "bytes", 8192..=8192, "the largest power of two in a frame of 9000 bytes";
    /// Logarithm of the smallest PMTU.
    fixed PMTU_LOG2_MIN: u8 = 10, "log2 bytes", 10..=10, "fits a frame of 1500 bytes";
    /// Logarithm of the largest PMTU.
    fixed PMTU_LOG2_MAX: u8 = 13, "log2 bytes", 13..=13, "see the largest payload";
    /// Logarithm of the default PMTU.
    tunable PMTU_LOG2: u8 = 12, "log2 bytes", 10..=13, "packets of 4096 bytes have 97 % efficiency and fit every network with jumbo frames";
    /// Largest message.
    fixed MSG_BYTES_MAX: u64 = 0x8000_0000, "bytes", 0x8000_0000..=0x8000_0000, "IBTA";
    /// Unit of the receiver residency in an ACK.
    fixed HOLD_UNIT_NS: u32 = 16, "ns", 16..=16, "16 bits then span 1 ms, far longer than an acknowledgement is held back";
    /// Rate hint that states no limit.
    fixed RATE_HINT_UNLIMITED: u32 = 0xff_ffff, "Mb/s", 0xff_ffff..=0xff_ffff, "16.8 Tb/s, more than any port";
    /// AETH syndrome of an ACK that grants no IBTA credit.
    fixed SYNDROME_ACK: u8 = 0x1f, "", 0x1f..=0x1f, "IBTA AETH; credit has fields of its own here";
    /// Frequency of the core clock.
    tunable CLOCK_KHZ: u32 = 250000, "kHz", 1000..=1000000, "what a mid-size FPGA closes timing at";
    /// Paths of a connection in the tables of a card.
    tunable PATHS_PER_CONN: u32 = 4, "paths", 1..=256, "small tables by default; a card for full rate has at least `PATHS_MIN`";
    /// Packets in flight on one path, at most, in the tables of a card.
    tunable WINDOW_PKTS: u32 = 64, "packets", 1..=256, "small tables by default; the bitmap allows 256";
    /// Messages in flight on one stream, at most.
    tunable MSGS_PER_STREAM: u32 = 64, "messages", 1..=64, "one word of state in the message window";

    /// Fewest paths of a connection that chooses their number.
    tunable PATHS_MIN: u32 = 12, "paths", 1..=256, "public material on MetaRoCE: 12 paths at 5 to 15 us";
    /// Most paths of a connection that chooses their number.
    tunable PATHS_MAX: u32 = 64, "paths", 1..=256, "what a card holds on chip; 256 is what the field allows";
    /// Smoothed round trips between two looks at the number of paths.
    tunable PATHS_LOOK_SRTTS: u32 = 8, "SRTT", 1..=256, "a few samples after the last change, yet soon against a transfer";
    /// Window of a path after the first acknowledgement of its route.
    tunable PATH_INIT: u32 = 6, "packets", 1..=256, "public material on MetaRoCE: a window of 72 packets on 12 paths";
    /// Packets of a connection outstanding until its first acknowledgement, for each plane.
    tunable CONN_INIT: u32 = 1, "packets", 1..=65536, "256 senders of two packets fill a switch's buffer of 2 MiB in the first round trip; one is enough to be told the share";
    /// Packets of a connection outstanding after its first acknowledgement, for each plane, and of answers to reads from the start.
    tunable CONN_RAMP: u32 = 16, "packets", 1..=65536, "64 KiB in the second round trip; of many senders only the few that were told early, when few were known, may use it";
    /// Smallest cap of a connection's window.
    tunable CONN_WINDOW_MIN: u32 = 72, "packets", 1..=65536, "public material on MetaRoCE";
    /// Cap of a connection's window, in bandwidth-delay products of its planes.
    fixed CONN_WINDOW_BDPS: u32 = 2, "BDP", 2..=2, "a hole freezes a path for a round trip, in which the others must go on";
    /// Silence of a path after which what its window was learnt from is forgotten.
    tunable IDLE_RESTART_NS: u32 = 100000000, "ns", 0..=4000000000, "traffic has changed many times over in it";
    /// Gain of alpha, the fraction of packets marked: 2 to the power of minus this.
    tunable ALPHA_GAIN_SHIFT: u32 = 4, "", 0..=15, "RFC 8257: 1/16";
    /// Loss above this fraction of a window is heavy, in 1/256.
    tunable HEAVY_LOSS_Q8: u32 = 64, "1/256", 1..=256, "a quarter: above what damaged links lose, below what a network without marking drops";
    /// Packets over which that fraction is taken, at least.
    tunable HEAVY_LOSS_PKTS: u32 = 64, "packets", 1..=65536, "of few packets one loss is a large fraction";

    /// Share of the line rate that hints give away at first, in 1/256.
    tunable HINT_ETA_Q8: u32 = 249, "1/256", 1..=256, "0.973: a queue must drain, and an incast end within a twentieth of the time that the line needs";
    /// Smallest such share, while packets come marked, in 1/256.
    tunable HINT_ETA_MIN_Q8: u32 = 243, "1/256", 1..=256, "0.95: a queue must drain";
    /// Largest such share, while the ports are not full, in 1/256.
    tunable HINT_ETA_MAX_Q8: u32 = 512, "1/256", 1..=4096, "2: senders that are bound elsewhere leave half at most; the window under a hint bounds the queue at this value, too";
    /// Line time of the bytes that reads may have asked for and not got; 0 is no limit.
    tunable READ_HORIZON_NS: u32 = 20000, "ns", 0..=1000000000, "four round trips: enough to keep the line busy, and half of a switch's buffer of 2 MiB at 400 Gb/s";
    /// How long a connection is active after its last data, and over which its use is measured.
    tunable HINT_WINDOW_NS: u32 = 20000, "ns", 1000..=1000000000, "two round trips of a data centre";
    /// Smoothed round trips for which a hint holds.
    tunable HINT_LIFE_SRTTS: u32 = 4, "SRTT", 1..=256, "acknowledgements may be lost";
    /// Packets per plane that may leave back to back under a hint after a pause.
    tunable HINT_BURST_PKTS: u32 = 2, "packets", 1..=256, "a sender need not be woken exactly on time";

    /// Time of so many of its packets without data after which a slow connection is active no longer.
    fixed HINT_IDLE_PKTS: u32 = 4, "packets", 4..=4, "a gap of one packet is how a slow sender sends; a few are a pause";
    /// Part of a receiver's ports above which they count as used, in 1/256.
    fixed HINT_BUSY_Q8: u32 = 248, "1/256", 248..=248, "31/32: a port that is full shows some idle time in so short a window";
    /// Part of itself by which eta rises in a window: one over this.
    fixed HINT_ETA_RISE: u32 = 8, "", 8..=8, "an eighth: from half of the line to all of it in six windows";
    /// One packet marked in fewer than these makes eta fall.
    fixed HINT_MARKED_PKTS: u32 = 16, "packets", 16..=16, "one in 16: single marks are no queue that stays";
    /// Fall of eta in such a window besides half of what is above 1, in 1/256.
    fixed HINT_ETA_FALL_Q8: u32 = 4, "1/256", 4..=4, "1/64: from the first to the smallest share in two windows";
    /// Use of its hint below which a connection is bound elsewhere, in percent.
    fixed HINT_LOW_PERCENT: u32 = 80, "%", 80..=80, "4/5: above it the gaps of a healthy sender lie";
    /// Windows of low use in a row after which a claim is limited.
    fixed HINT_LOW_WINDOWS: u32 = 2, "windows", 2..=2, "one may be the end of a burst";
    /// Limit of a claim, in percent of what was used.
    fixed HINT_SPARE_PERCENT: u32 = 125, "%", 125..=125, "5/4: room to show that it could use more";
    /// Use of its limit that ends it, in percent.
    fixed HINT_FULL_PERCENT: u32 = 95, "%", 95..=95, "19/20: nearer to the limit than to what was used, else limit and use would chase each other";
    /// Packets whose time at an even share a window of use takes at least.
    fixed HINT_MEASURE_PKTS: u32 = 16, "packets", 16..=16, "of fewer one packet is more than what is measured";
    /// Smallest round trips of data that the window under a hint allows, in percent.
    fixed HINT_WINDOW_RTT_PERCENT: u32 = 150, "%", 150..=150, "one and a half: the hint itself keeps the queue short, the window only bounds it";
    /// Retransmissions that may be owed to the pace per plane.
    fixed HINT_DEBT_PKTS: u32 = 64, "packets", 64..=64, "repairs need not wait, but a burst of them is lost like the burst before";

    /// Packets received on a path that make an ACK due.
    tunable ACK_PACKETS: u32 = 4, "packets", 1..=64, "one acknowledgement a packet brings nothing over one in 4 (UCCL: 4)";
    /// Payload received on a path that makes an ACK due.
    tunable ACK_BYTES: u32 = 16384, "bytes", 1..=1048576, "4 packets of the default PMTU (UEC simulator: the same)";
    /// Longest time an ACK is held back.
    tunable ACK_DELAY_NS: u32 = 2000, "ns", 0..=1000000, "well within a round trip";
    /// Shortest time between two NAKs of a connection.
    tunable NAK_INTERVAL_NS: u32 = 100000, "ns", 0..=1000000000, "a refused sender must not fill the way back";

    /// Retransmission timeout before the first doubling, at least.
    tunable RTO_NS: u32 = 100000, "ns", 1000..=1000000000, "five to ten round trips of a data centre (UEC simulator: the same)";
    /// Retransmission timeout before any round trip is known.
    tunable RTO_INIT_NS: u32 = 1000000, "ns", 1000..=4000000000, "longer than any round trip that a card is built for (Falcon: the same)";
    /// Largest retransmission timeout after doubling.
    tunable RTO_NS_MAX: u64 = 8000000000, "ns", 1000..=8000000000, "RFC 6298 asks for a bound; a link that trains takes seconds (UEC: the same)";
    /// Timeouts in a row on one path after which its connection may fail.
    tunable RETRY_LIMIT: u32 = 7, "timeouts", 0..=15, "IBTA";
    /// Time for which the smallest round trip is remembered, at least.
    tunable MIN_RTT_PERIOD_NS: u32 = 10000000, "ns", 1000..=4000000000, "routes change";
    /// What the probe timeout allows for the jitter of a round trip, at least.
    tunable TLP_SLACK_NS: u32 = 1000, "ns", 0..=1000000, "some full frames ahead in a queue, which a round trip that did not vary so far does not show";
    /// Shortest wait before a probe.
    tunable TLP_MIN_NS: u32 = 3000, "ns", 1000..=1000000000, "below this a round trip is the card's own time; a probe too many costs 98 bytes";
    /// Probes by timer before a timeout counts.
    tunable TLP_LIMIT: u32 = 3, "probes", 0..=15, "a probe or its answer may be lost, three in a row seldom are";
    /// Probes by timer that follow each other at the same distance; after them it doubles.
    fixed TLP_STEADY: u32 = 5, "probes", 5..=5, "five lost in a row are no chance loss any more: a queue is long, or the way is gone";
    /// Time for the answer to a probe while no round trip is known, in shortest waits.
    fixed TLP_COLD_MINS: u32 = 16, "TLP_MIN", 16..=16, "48 us: above the round trip of most networks of a building";
    /// Loss of one packet in fewer than these makes a network lossy.
    fixed LOSSY_PKTS: u32 = 32, "packets", 32..=32, "1/32: where a copy of each packet saves more round trips than it costs bytes";
    /// Packets over which a card takes the part that is lost, about.
    fixed LOSS_METER_PKTS: u32 = 256, "packets", 256..=256, "eight losses where one in 32 is lost; as many as one path may have under way";
    /// Time after a loss in which a card expects others.
    tunable LOSS_MEMORY_NS: u32 = 1000000, "ns", 0..=4000000000, "at 400 Gb/s a link that loses one packet in a thousand shows a loss every 85 us";
    /// Wait after a temporary refusal, and between two requests for credit.
    tunable RNR_NS: u32 = 100000, "ns", 1000..=1000000000, "one round trip would busy both sides, and a host wakes in tens of us";
    /// Temporary refusals of one message in a row that are borne.
    tunable RNR_RETRY_LIMIT: u32 = 7, "refusals", 0..=255, "IBTA";
    /// Round trips without evidence after which the tolerance of reordering falls.
    tunable REORDER_DECAY_RTTS: u32 = 128, "SRTT", 1..=65536, "a needless repair costs less than a tolerance that comes too late";

    /// Re-aims of a path on one plane before another plane is tried.
    tunable REAIMS_PER_PLANE: u32 = 3, "re-aims", 1..=255, "a port in 4096 hashes onto the same link again seldom three times";
    /// Packets by a route before it is judged by its marks, at least.
    tunable REROUTE_PKTS: u32 = 8, "packets", 1..=65536, "measured: with 4 a chance mark moves paths that stand well, with 32 it takes too long";
    /// Part of them, in 1/256, that is marked on a crowded route.
    tunable REROUTE_MARKS_Q8: u32 = 64, "1/256", 1..=256, "measured: with an eighth paths move too often to settle, with a half they stay in queues";
    /// Source ports acknowledged lately that are remembered per plane.
    fixed GOOD_PORTS: u32 = 8, "ports", 8..=8, "REPS keeps as many";
    /// Wait between probes of a dead path or plane, and between reports of planes.
    tunable PROBE_INTERVAL_NS: u32 = 10000000, "ns", 1000..=4000000000, "often enough to return within 50 ms, seldom enough for 4096 connections";
    /// Silence of a peer that is waited for after which it is probed, at least.
    tunable ANSWER_WAIT_NS: u32 = 10000000, "ns", 1000..=4000000000, "hosts and storage answer within it as a rule; a thousand peers that are waited for cost less than 1/1000 of a port";
    /// The same in smoothed round trips.
    fixed ANSWER_WAIT_SRTTS: u32 = 4, "SRTT", 4..=4, "an answer to the last probe must have had its time, with a queue on its way";
    /// Answers in a row that bring a plane back.
    tunable PROBE_GOOD: u32 = 3, "answers", 1..=255, "one may be luck";
    /// Times that a report of planes is repeated after the last plane came back.
    tunable REPORT_REPEATS: u32 = 3, "reports", 0..=255, "reports are not acknowledged";

    /// Reads and atomic operations of a connection under way.
    tunable READS_MAX: u32 = 16, "requests", 1..=128, "IBTA";
    /// Times that a packet of connection management or the opening of a path is sent.
    tunable CM_TRIES: u32 = 8, "packets", 1..=16, "with doubled waits a quarter of a second in all";
    /// Wait before the opening of a path is repeated first, at least.
    tunable OPEN_WAIT_NS: u32 = 200000, "ns", 1000..=1000000000, "the peer answers in hardware or firmware";
    /// The same in smoothed round trips, if that is longer.
    fixed OPEN_WAIT_SRTTS: u32 = 4, "SRTT", 4..=4, "an answer that met a queue both ways is not late";
    /// Wait before a packet of connection management is repeated first; each further one is twice as long.
    tunable CM_WAIT_NS: u32 = 1000000, "ns", 1000..=1000000000, "a host must be able to answer";
    /// Time for which a connection id stays unused after teardown.
    tunable CONN_QUARANTINE_NS: u32 = 10000000, "ns", 0..=1000000000, "far above the life of a packet in a data centre";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_its_range_and_a_fixed_one_has_no_other() {
        for c in CONSTANTS {
            assert!(c.min <= c.value && c.value <= c.max, "{}", c.name);
            assert_eq!(c.kind == Kind::Fixed, c.min == c.max, "{}", c.name);
            assert!(!c.doc.is_empty() && !c.reason.is_empty(), "{}", c.name);
        }
    }
}
