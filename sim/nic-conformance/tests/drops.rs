//! Every reason for which a card drops or refuses a packet has a case that provokes it and reads its counter.

use nic_conformance::bench::model::ModelBench;
use nic_conformance::case::all;
use nic_conformance::dut::{Bench, Buffer, Caps, CardParams, Dut, Nanos, Region, SentFrame};
use nic_conformance::failure::Outcome;
use nic_conformance::setup::{Address, ConnConfig, ConnId, Cqe, Event, RecvWr, SendWr};
use nic_spec::csr::stats::{Class, Counter, COUNTERS};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Counters without a case, and why no case on the benches of this crate can move them.
const WITHOUT_CASE: &[(Counter, &str)] = &[
    (Counter::RxOverflow, "the model takes a frame in no time, so its receive buffer is never full"),
    (Counter::NakQpState, "packets for a connection that takes none are dropped before they could be refused (E-003)"),
    (Counter::NakWindow, "what lies beyond the window is dropped, not refused (S-003); senders understand the refusal"),
];

type Moved = Arc<Mutex<BTreeSet<Counter>>>;

/// The model's bench, on which each counter that a case reads and finds moved is noted.
struct Spy(Moved);

struct SpyDut {
    inner: Box<dyn Dut>,
    moved: Moved,
}

impl Bench for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }

    fn caps(&self) -> Caps {
        ModelBench.caps()
    }

    fn open(&self) -> Outcome<Box<dyn Dut>> {
        Ok(Box::new(SpyDut { inner: ModelBench.open()?, moved: self.0.clone() }))
    }
}

macro_rules! forward_mut {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)+) => {
        $(fn $name(&mut self $(, $arg: $ty)*) -> $out {
            self.inner.$name($($arg),*)
        })+
    };
}

impl Dut for SpyDut {
    fn addresses(&self, is_ipv6: bool) -> Vec<Address> {
        self.inner.addresses(is_ipv6)
    }

    fn rate_mbps(&self) -> u64 {
        self.inner.rate_mbps()
    }

    fn slack(&self) -> Nanos {
        self.inner.slack()
    }

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn counter(&mut self, counter: Counter) -> Outcome<u64> {
        let value = self.inner.counter(counter)?;
        if value > 0 {
            self.moved.lock().expect("no case panics while it holds this").insert(counter);
        }
        Ok(value)
    }

    forward_mut! {
        configure(params: &CardParams) -> Outcome;
        advance(by: Nanos) -> Outcome;
        allocate(len: usize) -> Outcome<Buffer>;
        register(region: &Region) -> Outcome<u32>;
        deregister(key: u32) -> Outcome;
        read(buffer: Buffer, offset: usize, len: usize) -> Outcome<Vec<u8>>;
        write(buffer: Buffer, offset: usize, bytes: &[u8]) -> Outcome;
        set_fault(buffer: Buffer, on: bool) -> Outcome;
        open(cfg: &ConnConfig) -> Outcome<ConnId>;
        connect(service: u16, cfg: &ConnConfig) -> Outcome<ConnId>;
        listen(service: u16, template: &ConnConfig, paths_max: u16) -> Outcome;
        close_path(conn: ConnId, path: u8) -> Outcome<bool>;
        disconnect(conn: ConnId) -> Outcome;
        event() -> Outcome<Option<Event>>;
        post_send(conn: ConnId, stream: u16, wr: SendWr) -> Outcome;
        post_recv(conn: ConnId, stream: u16, wr: RecvWr) -> Outcome;
        poll(cq: u32) -> Outcome<Option<Cqe>>;
        inject(port: u8, frame: &[u8]) -> Outcome;
        inject_damaged(port: u8, frame: &[u8]) -> Outcome;
        next_frame(within: Nanos) -> Outcome<Option<SentFrame>>;
        set_link(port: u8, is_up: bool) -> Outcome;
    }
}

#[test]
fn every_reason_to_drop_or_refuse_has_a_case_or_a_reason_why_not() {
    let moved = Moved::default();
    let spy = Spy(moved.clone());
    // The sections in which frames are dropped and packets refused; the others would only add time.
    let sections = ["drop::", "nak::", "send::", "read::", "request::", "accept::"];
    for case in all().into_iter().filter(|case| sections.iter().any(|s| case.name.starts_with(s))) {
        case.run_on(&spy);
    }
    let moved = moved.lock().expect("no case panics while it holds this");
    for info in COUNTERS.iter().filter(|info| info.class != Class::Event) {
        let excuse = WITHOUT_CASE.iter().find(|(counter, _)| *counter == info.counter);
        match (moved.contains(&info.counter), excuse) {
            (false, None) => panic!("no case provokes {}", info.name),
            (true, Some((_, why))) => panic!("a case provokes {}, so this is no longer so: {why}", info.name),
            _ => {}
        }
    }
}
