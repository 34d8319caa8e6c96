//! path_tx: what a refusal for now does to its packet and to the path's timer, and which ACKs are not believed.

use super::*;
use crate::{
    prim::check::{words, Rng},
    transport::bench::{Bench, Item},
};
use nic_spec::num::Psn;

const RTO: u32 = 10_000;
const RNR: u32 = 50_000;
const NOTHING: [u64; 0] = [];

/// A path with PSEQs from 100 on and `sent` packets in flight; their times.
fn path(sent: usize) -> (Bench, Vec<u32>) {
    let p = NicParams { conns: 2, paths: 4, window_pkts: 16, ..NicParams::default() };
    let mut bench = Bench::new(&PathTx::def(&Lib::new(), &p), Rng::new("path_tx::refusal_tests", 1));
    for (port, value) in [("cfg_rto_ticks", RTO.into()), ("cfg_retry_limit", 3), ("cfg_rnr_ticks", RNR.into())] {
        bench.sim.poke(port, value);
    }
    let mut ctx = PathTxRow::zeroed();
    ctx.set_valid(true).set_init_pseq(Psn::new(100));
    let item = Item::of(&[("table", Table::PathTx.code().into()), ("index", 0)]);
    bench.push("ctx", item.with("data", &words(&ctx.0)));
    bench.settle(20);
    (0..sent).for_each(|_| bench.push("alloc", Item::of(&[]).with("desc", &[0])));
    bench.settle(20);
    let times = bench.take("tx").iter().map(|t| t.get("tx_ts") as u32).collect();
    (bench, times)
}

/// An ACK up to before PSEQ `cum1`, with a bitmap, answering the packet of `ts_echo`; 0 = no refusal.
fn ack(cum1: u64, sack: u64, ts_echo: u32, refused: Option<u64>) -> Item {
    let nak = if refused.is_some() { NakReason::Rnr.code() } else { 0 };
    let trig = refused.unwrap_or(cum1 - 1);
    Item::of(&[
        ("cum", cum1 - 1),
        ("sack", sack),
        ("ts_echo", ts_echo.into()),
        ("trig", trig),
        ("nak_reason", nak.into()),
    ])
}

fn sent_again(bench: &mut Bench) -> Vec<u64> {
    bench.settle(60);
    bench.take("tx").iter().map(|t| t.get("pseq")).collect()
}

#[test]
fn a_packet_refused_for_now_is_sent_again_after_the_wait_and_not_by_the_gap_rule() {
    let (mut bench, times) = path(5);
    // 102 has no receive; 103 and 104 arrive and prove 101 lost, 102 not.
    bench.push("ack", ack(101, 0, times[2], Some(102)));
    assert_eq!(sent_again(&mut bench), NOTHING);
    let refused_at = bench.now;
    bench.push("ack", ack(101, 0b1100, times[4], None));
    assert_eq!(sent_again(&mut bench), [101]);
    // Progress does not move the wait.
    bench.now = refused_at + RNR - 500;
    bench.push("ack", ack(102, 0b110, times[4] + 1, None));
    assert_eq!(sent_again(&mut bench), NOTHING);
    bench.now = refused_at + RNR + 500;
    assert_eq!(sent_again(&mut bench), [102]);
    assert_eq!((bench.counted(Counter::TxRtxRto), bench.counted(Counter::PathRto)), (1, 0));
    // Sent again it is like any other: the gap rule finds its loss, if there is one.
    bench.push("alloc", Item::of(&[]).with("desc", &[0]));
    bench.settle(20);
    let last = bench.take("tx")[0].get("tx_ts") as u32;
    bench.push("ack", ack(102, 0b1110, last, None));
    assert_eq!(sent_again(&mut bench), [102]);
}

#[test]
fn a_refusal_for_now_ends_the_row_of_timeouts() {
    let (mut bench, times) = path(1);
    let expire = |bench: &mut Bench| {
        bench.now = bench.now.wrapping_add(40 * RTO);
        sent_again(bench)
    };
    for _ in 0..3 {
        for _ in 0..3 {
            assert_eq!(expire(&mut bench), [100]);
        }
        // One more would fail the connection; the peer shows that it lives.
        bench.push("ack", ack(100, 0, times[0], Some(100)));
        assert_eq!(sent_again(&mut bench), NOTHING);
        assert_eq!(expire(&mut bench), [100], "this one is the wait, which does not count");
    }
    assert_eq!(bench.take("error"), []);
    assert_eq!(bench.counted(Counter::PathRto), 9);
    (0..3).for_each(|_| assert_eq!(expire(&mut bench), [100]));
    assert_eq!(expire(&mut bench), NOTHING);
    let error = bench.take("error");
    assert_eq!((error.len(), error[0].get("status")), (1, u64::from(Status::RetryExc.code())));
}

#[test]
fn an_ack_of_packets_never_sent_changes_nothing() {
    // Five packets are out: 100 to 104.
    for (cum1, sack, is_good) in [(105, 0, true), (106, 0, false), (101, 0b1000, true), (101, 0b1_0000, false)] {
        let (mut bench, times) = path(5);
        bench.push("ack", ack(cum1, sack, times[4], None));
        bench.settle(60);
        let acked = bench.take("acked").len();
        assert_eq!(acked > 0, is_good, "cum {} bitmap {sack:#b}", cum1 - 1);
        assert_eq!(bench.counted(Counter::RxBadAck), u64::from(!is_good));
    }
    // An old one is believed as far as the bitmap reaches back, and no further.
    for (age, is_good) in [(256u64, true), (257, false)] {
        let (mut bench, times) = path(5);
        bench.push(
            "ack",
            ack(0x100_0000 + 100 - age, 0, times[4], None).with("cum", &[(0x100_0000 + 99 - age) & 0xff_ffff]),
        );
        bench.settle(60);
        assert_eq!(bench.counted(Counter::RxBadAck), u64::from(!is_good), "{age} packets old");
    }
}
