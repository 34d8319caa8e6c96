//! Every case can fail: none holds for a card that does nothing at all.

use nic_conformance::case::{all, Verdict};
use nic_conformance::dut::{Bench, Buffer, Caps, CardParams, Dut, Nanos, Region, SentFrame};
use nic_conformance::failure::Outcome;
use nic_conformance::setup::{Address, ConnConfig, ConnId, Cqe, Event, RecvWr, SendWr};
use nic_spec::csr::stats::Counter;

struct DeadBench;

struct DeadCard {
    now: Nanos,
}

impl Bench for DeadBench {
    fn name(&self) -> &'static str {
        "dead"
    }

    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn open(&self) -> Outcome<Box<dyn Dut>> {
        Ok(Box::new(DeadCard { now: 0 }))
    }
}

impl Dut for DeadCard {
    fn configure(&mut self, _: &CardParams) -> Outcome {
        Ok(())
    }

    fn addresses(&self, _: bool) -> Vec<Address> {
        vec![Address::default(); 2]
    }

    fn rate_mbps(&self) -> u64 {
        100_000
    }

    fn slack(&self) -> Nanos {
        0
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn advance(&mut self, by: Nanos) -> Outcome {
        self.now += by;
        Ok(())
    }

    fn allocate(&mut self, len: usize) -> Outcome<Buffer> {
        Ok(Buffer { id: 0, len })
    }

    fn register(&mut self, _: &Region) -> Outcome<u32> {
        Ok(0x42)
    }

    fn deregister(&mut self, _: u32) -> Outcome {
        Ok(())
    }

    fn read(&mut self, _: Buffer, _: usize, len: usize) -> Outcome<Vec<u8>> {
        Ok(vec![0; len])
    }

    fn write(&mut self, _: Buffer, _: usize, _: &[u8]) -> Outcome {
        Ok(())
    }

    fn set_fault(&mut self, _: Buffer, _: bool) -> Outcome {
        Ok(())
    }

    fn open(&mut self, _: &ConnConfig) -> Outcome<ConnId> {
        Ok(ConnId(0))
    }

    fn connect(&mut self, _: u16, _: &ConnConfig) -> Outcome<ConnId> {
        Ok(ConnId(0))
    }

    fn listen(&mut self, _: u16, _: &ConnConfig, _: u16) -> Outcome {
        Ok(())
    }

    fn close_path(&mut self, _: ConnId, _: u8) -> Outcome<bool> {
        Ok(true)
    }

    fn disconnect(&mut self, _: ConnId) -> Outcome {
        Ok(())
    }

    fn event(&mut self) -> Outcome<Option<Event>> {
        Ok(None)
    }

    fn post_send(&mut self, _: ConnId, _: u16, _: SendWr) -> Outcome {
        Ok(())
    }

    fn post_recv(&mut self, _: ConnId, _: u16, _: RecvWr) -> Outcome {
        Ok(())
    }

    fn poll(&mut self, _: u32) -> Outcome<Option<Cqe>> {
        Ok(None)
    }

    fn inject(&mut self, _: u8, _: &[u8]) -> Outcome {
        Ok(())
    }

    fn inject_damaged(&mut self, _: u8, _: &[u8]) -> Outcome {
        Ok(())
    }

    fn next_frame(&mut self, within: Nanos) -> Outcome<Option<SentFrame>> {
        self.now += within;
        Ok(None)
    }

    fn set_link(&mut self, _: u8, _: bool) -> Outcome {
        Ok(())
    }

    fn counter(&mut self, _: Counter) -> Outcome<u64> {
        Ok(0)
    }
}

#[test]
fn no_case_holds_for_a_card_that_does_nothing() {
    let held: Vec<_> =
        all().into_iter().filter(|case| !matches!(case.run_on(&DeadBench), Verdict::Failed(_))).collect();
    assert!(held.is_empty(), "these claim nothing: {:?}", held.iter().map(|case| case.name).collect::<Vec<_>>());
}

#[test]
fn a_case_is_not_run_on_a_bench_that_lacks_what_it_needs() {
    struct Poor;
    impl Bench for Poor {
        fn name(&self) -> &'static str {
            "poor"
        }

        fn caps(&self) -> Caps {
            Caps::NONE
        }

        fn open(&self) -> Outcome<Box<dyn Dut>> {
            DeadBench.open()
        }
    }
    let demanding = all().into_iter().filter(|case| case.needs != Caps::NONE);
    for case in demanding {
        assert_eq!(case.run_on(&Poor), Verdict::NotApplicable(case.needs), "{}", case.name);
    }
}
