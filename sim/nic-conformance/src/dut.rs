//! The device under test as every bench offers it: what can be done to a card, and only what can be seen of it.
//!
//! The peer of a connection is the case itself: it makes frames and reads those that the card sends. Times are
//! nanoseconds of the bench's clock; a model and a simulation step it, a card waits.

use crate::failure::Outcome;
use crate::setup::{Address, ConnConfig, ConnId, Cqe, Event, RecvWr, SendWr};
use nic_spec::csr::stats::Counter;
use nic_spec::num::Pd;
use std::fmt;
use std::ops::BitOr;

/// Nanoseconds.
pub type Nanos = u64;

macro_rules! caps {
    ($($(#[doc = $doc:literal])+ $name:ident = $bit:literal;)+) => {
        impl Caps {
            $($(#[doc = $doc])+ pub const $name: Self = Self(1 << $bit);)+
            /// Everything.
            pub const ALL: Self = Self($(1 << $bit)|+);
            const NAMES: &'static [(&'static str, u32)] = &[$((stringify!($name), $bit)),+];
        }
    };
}

/// What a bench can do and what its card has; a case states what it needs beyond frames in and out, host memory,
/// completions and counters, which every bench has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps(u32);

caps! {
    /// The bench can hand over a frame as damaged by the MAC.
    MAC_ERROR = 0;
    /// The bench can make accesses to a buffer fail on the bus.
    HOST_FAULT = 1;
    /// The bench can take a port's link down and up.
    LINK = 2;
    /// The bench is fast enough for some hundred thousand frames or some seconds of the card's time.
    BULK = 3;
    /// The card has two ports or more.
    TWO_PORTS = 8;
    /// The card has connections of several streams.
    STREAMS = 9;
    /// The card's paths have windows of 256 packets.
    WINDOW_256 = 10;
    /// The card carries SEND.
    SEND = 11;
    /// The card carries READ.
    READ = 12;
    /// The card carries atomic operations.
    ATOMIC = 13;
    /// The card carries FLUSH.
    FLUSH = 14;
    /// The card grants and obeys receive credit.
    CREDIT = 15;
    /// The card's windows follow congestion.
    CONGESTION = 16;
    /// The card gives rate hints and obeys them.
    HINT = 17;
    /// The card sends tail markers and probes, and answers them.
    PROBE = 18;
    /// The card sends copies in idle time.
    REDUNDANCY = 19;
    /// The card re-aims paths.
    RE_AIM = 20;
    /// The card measures round trips and times retransmissions by them.
    RTT = 21;
    /// The card's reorder tolerance follows the network.
    REORDER = 22;
    /// The card can be given the delay-based algorithm.
    DELAY_CONTROL = 24;
    /// The card opens as many paths as rate and round trip ask for.
    BOOTSTRAP = 25;
    /// The card opens and ends connections by packets.
    CONNECT = 26;
    /// The bench can take a region away, and the card looks at regions again for each packet.
    DEREGISTER = 27;
    /// The host can have a path closed for good.
    CLOSE_PATH = 28;
    /// The card completes unordered streams as messages end.
    UNORDERED = 23;
}

impl Caps {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// True when all of `needs` are there.
    pub const fn has(self, needs: Self) -> bool {
        self.0 & needs.0 == needs.0
    }

    /// Those of both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Caps {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

impl fmt::Display for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter().filter(|(_, bit)| self.0 >> bit & 1 == 1).map(|(name, _)| *name);
        f.write_str(names.next().unwrap_or("NONE"))?;
        names.try_for_each(|name| write!(f, " {name}"))
    }
}

/// Settings of the whole card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardParams {
    /// Take frames to any MAC address.
    pub promiscuous: bool,
    /// Completions that each queue has room for, a power of two; enough for every case if not stated.
    pub cq_depth: Option<u32>,
}

/// A piece of host memory that the bench made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Number of the buffer.
    pub id: usize,
    /// Its length, bytes.
    pub len: usize,
}

/// A memory region to register: a part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The buffer.
    pub buffer: Buffer,
    /// First byte of it.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// Address of the first byte in the space that work requests and packets use.
    pub va: u64,
    /// Protection domain.
    pub pd: Pd,
    /// Permitted accesses: `nic_spec::desc::ACCESS_*`.
    pub access: u8,
    /// Low 8 bits of the region's keys.
    pub key: u8,
}

/// A frame that the card sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// When it began to leave.
    pub at: Nanos,
    /// By which port.
    pub port: u8,
    /// From the Ethernet header on, without FCS.
    pub bytes: Vec<u8>,
}

/// A card on a bench.
pub trait Dut {
    /// Resets the card and gives it these settings. Buffers, regions and connections are gone.
    fn configure(&mut self, params: &CardParams) -> Outcome;

    /// Addresses of its ports, in order.
    fn addresses(&self, is_ipv6: bool) -> Vec<Address>;

    /// Rate of its ports together, Mb/s.
    fn rate_mbps(&self) -> u64;

    /// How much later than the text says the bench may do a thing.
    fn slack(&self) -> Nanos;

    /// The bench's clock.
    fn now(&self) -> Nanos;

    /// Lets time pass; frames that leave meanwhile wait for [`next_frame`](Self::next_frame).
    fn advance(&mut self, by: Nanos) -> Outcome;

    /// Makes a buffer of zeros.
    fn allocate(&mut self, len: usize) -> Outcome<Buffer>;

    /// Registers a region and returns its key.
    fn register(&mut self, region: &Region) -> Outcome<u32>;

    /// Takes the region with this key away; when it returns that has happened. Needs [`Caps::DEREGISTER`].
    fn deregister(&mut self, key: u32) -> Outcome;

    /// Reads host memory.
    fn read(&mut self, buffer: Buffer, offset: usize, len: usize) -> Outcome<Vec<u8>>;

    /// Writes host memory.
    fn write(&mut self, buffer: Buffer, offset: usize, bytes: &[u8]) -> Outcome;

    /// Makes the bus answer accesses to a buffer with errors, or stops that. Needs [`Caps::HOST_FAULT`].
    fn set_fault(&mut self, buffer: Buffer, on: bool) -> Outcome;

    /// Opens a connection as agreed by other means.
    fn open(&mut self, cfg: &ConnConfig) -> Outcome<ConnId>;

    /// Lets the card ask a peer for a connection to `service`. Needs [`Caps::CONNECT`].
    fn connect(&mut self, service: u16, cfg: &ConnConfig) -> Outcome<ConnId>;

    /// Lets the card grant connections to `service` like `template`, of at most so many paths. Needs [`Caps::CONNECT`].
    fn listen(&mut self, service: u16, template: &ConnConfig, paths_max: u16) -> Outcome;

    /// Has a path closed for good; false when the card declines. Needs [`Caps::CLOSE_PATH`].
    fn close_path(&mut self, conn: ConnId, path: u8) -> Outcome<bool>;

    /// Lets the card end a connection when all is done. Needs [`Caps::CONNECT`].
    fn disconnect(&mut self, conn: ConnId) -> Outcome;

    /// Takes the oldest thing that the card told its host about. Needs [`Caps::CONNECT`].
    fn event(&mut self) -> Outcome<Option<Event>>;

    /// Posts a request.
    fn post_send(&mut self, conn: ConnId, stream: u16, wr: SendWr) -> Outcome;

    /// Posts a receive.
    fn post_recv(&mut self, conn: ConnId, stream: u16, wr: RecvWr) -> Outcome;

    /// Takes the oldest completion of a completion queue.
    fn poll(&mut self, cq: u32) -> Outcome<Option<Cqe>>;

    /// Puts a frame on the wire to a port and lets it arrive.
    fn inject(&mut self, port: u8, frame: &[u8]) -> Outcome;

    /// The same with a frame that the MAC reports as damaged. Needs [`Caps::MAC_ERROR`].
    fn inject_damaged(&mut self, port: u8, frame: &[u8]) -> Outcome;

    /// The next frame that leaves by any port within this time, which passes only as far as needed.
    fn next_frame(&mut self, within: Nanos) -> Outcome<Option<SentFrame>>;

    /// Takes the link of a port down or up. Needs [`Caps::LINK`].
    fn set_link(&mut self, port: u8, is_up: bool) -> Outcome;

    /// A counter.
    fn counter(&mut self, counter: Counter) -> Outcome<u64>;
}

/// Where cards are put under test.
pub trait Bench: Send + Sync {
    /// Name: `model`, `rtl`, `card`.
    fn name(&self) -> &'static str;

    /// What it can.
    fn caps(&self) -> Caps;

    /// A card as after power-up.
    fn open(&self) -> Outcome<Box<dyn Dut>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_has_what_a_case_needs_only_if_it_has_all_of_it() {
        let bench = Caps::SEND | Caps::READ;
        assert!(bench.has(Caps::NONE) && bench.has(Caps::SEND) && bench.has(Caps::READ | Caps::SEND));
        assert!(!bench.has(Caps::SEND | Caps::BULK) && Caps::ALL.has(bench));
        assert_eq!((bench.to_string(), Caps::NONE.to_string()), ("SEND READ".into(), "NONE".into()));
    }
}
