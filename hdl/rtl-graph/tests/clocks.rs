//! Several clocks: the asynchronous FIFO in both engines, and the check of clock-domain crossings.
use cocotb_rs::{ModelBuilder, Optimization, Period, PowerOn};
use rtl_graph::*;
use std::panic::{catch_unwind, AssertUnwindSafe};

mod common;
use common::Rng;

/// What goes in must come out, whatever the order of the edges.
fn transfer(seed: u64, wr_percent: u64, rd_percent: u64) {
    let mut r = Rng(seed);
    let mut s = AsyncFifo::def(&Lib::new(), 20, 2).sim();
    s.randomize(seed);
    s.reset(3);
    let (mut sent, mut got, mut offered) = (0u64, 0u64, false);
    for _ in 0..3000 {
        offered |= r.below(4) != 0;
        s.poke("rx_valid", offered as u64);
        s.poke("rx_data", sent & 0xf_ffff);
        s.poke("tx_ready", (r.below(3) != 0) as u64);
        let wr = r.below(100) < wr_percent;
        let rd = r.below(100) < rd_percent;
        if wr && s.peek("rx_valid") & s.peek("rx_ready") == 1 {
            sent += 1;
            offered = false;
        }
        if rd && s.peek("tx_valid") & s.peek("tx_ready") == 1 {
            assert_eq!(s.peek("tx_data"), got & 0xf_ffff, "seed {seed}");
            got += 1;
        }
        match (wr, rd) {
            (true, true) => s.clock_domains(&["wr", "rd"]),
            (true, false) => s.clock_domains(&["wr"]),
            (false, true) => s.clock_domains(&["rd"]),
            _ => {}
        }
    }
    assert!(sent - got <= 4 && got > 100, "seed {seed}: {sent} in, {got} out");
}

#[test]
fn async_fifo_keeps_order_at_every_ratio_of_clocks() {
    for (seed, wr, rd) in [(1, 90, 90), (2, 90, 20), (3, 20, 90), (4, 50, 50)] {
        transfer(seed, wr, rd);
    }
}

#[test]
fn async_fifo_keeps_order_in_verilator_with_incommensurable_clocks() {
    let d = AsyncFifo::def(&Lib::new(), 20, 2);
    let model = ModelBuilder::new(&d.name)
        .verilog(d.verilog())
        .optimization(Optimization::BuildTime)
        .verilator_argument("-Wall")
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    let mut s = cocotb_rs::Sim::new(&model, PowerOn::Random { seed: 5 }).unwrap();
    let wr = s.clock("wr_clk", Period::ps(4000)).unwrap();
    let rd = s.clock("rd_clk", Period::ps(3103)).unwrap();
    let p = |n: &str| s.port(n).unwrap();
    let (wr_rst, rd_rst, rx_valid, rx_ready, rx_data) =
        (p("wr_rst"), p("rd_rst"), p("rx_valid"), p("rx_ready"), p("rx_data"));
    let (tx_valid, tx_ready, tx_data) = (p("tx_valid"), p("tx_ready"), p("tx_data"));
    s.set(wr_rst, 1);
    s.set(rd_rst, 1);
    s.run_cycles(wr, 4).unwrap();
    s.set(wr_rst, 0);
    s.set(rd_rst, 0);
    let h = s.handle();
    let source = s.spawn(async move {
        let mut r = Rng(1);
        for k in 0..500 {
            while r.below(4) == 0 {
                h.set(rx_valid, 0);
                h.rising(wr).await;
            }
            h.set(rx_valid, 1);
            h.set(rx_data, k);
            h.rising(wr).await;
            while h.get(rx_ready) == 0 {
                h.rising(wr).await;
            }
        }
        h.set(rx_valid, 0);
    });
    let h = s.handle();
    let sink = s.spawn(async move {
        let mut r = Rng(2);
        let mut got = vec![];
        while got.len() < 500 {
            let ready = r.below(3) != 0;
            h.set(tx_ready, ready as u64);
            h.rising(rd).await;
            if ready && h.get(tx_valid) == 1 {
                got.push(h.get(tx_data));
            }
        }
        got
    });
    let got = s.block_on(sink).unwrap();
    s.block_on(source).unwrap();
    assert_eq!(got, (0..500).collect::<Vec<u64>>());
}

fn refused(body: impl FnOnce(&B)) -> String {
    let e = catch_unwind(AssertUnwindSafe(|| drop(Lib::new().module("t", body)))).err();
    e.and_then(|e| e.downcast_ref::<String>().cloned()).expect("nothing complained")
}

fn toggle<'a>(b: &'a B, name: &str, d: Domain) -> S<'a> {
    let r = b.in_domain(d, || b.reg_reset(name, 1, 0));
    r.set(!r);
    r
}

#[test]
fn a_register_that_samples_another_clock_is_refused() {
    let text = refused(|b| {
        let a = toggle(b, "fast", b.domain("eth"));
        let r = b.reg("slow", 1);
        r.set(a & b.input("x", 1));
        b.output("q", 1).set(r);
    });
    let want = "register `slow` of module `t` (clock clk) samples `fast` (clock eth_clk), undeclared";
    assert!(text.contains(want), "{text}");
}

#[test]
fn a_declared_crossing_is_accepted() {
    Lib::new().module("t", |b| {
        let a = toggle(b, "fast", b.domain("eth"));
        let r = b.reg("slow", 1);
        r.set(a.crossing() & b.synchronized("sync", a));
        b.output("q", 1).set(r);
    });
}

#[test]
fn crossings_are_seen_through_instances() {
    let leaf = |lib: &Lib| {
        lib.module("sampler", |b| {
            let r = b.reg("r", 1);
            r.set(!b.input("x", 1));
            b.output("y", 1).set(r);
        })
    };
    let text = refused(|b| {
        let u = b.instance("u", &leaf(b.lib()));
        u.port::<S>("x").set(toggle(b, "fast", b.domain("eth")));
        b.output("q", 1).set(u.port::<S>("y"));
    });
    assert!(text.contains("input `u.x` of module `t` (clock clk) samples `fast` (clock eth_clk)"), "{text}");
    let text = refused(|b| {
        let eth = b.domain("eth");
        let u = b.in_domain(eth, || b.instance("u", &leaf(b.lib())));
        u.port::<S>("x").set(b.input("x", 1));
        let r = b.reg("slow", 1);
        r.set(u.port::<S>("y"));
        b.output("q", 1).set(r);
    });
    assert!(text.contains("register `slow` of module `t` (clock clk) samples `u_y` (clock eth_clk)"), "{text}");
    // On one clock nothing is wrong with it.
    Lib::new().module("t", |b| {
        let u = b.instance("u", &leaf(b.lib()));
        u.port::<S>("x").set(toggle(b, "same", b.current_domain()));
        b.output("q", 1).set(u.port::<S>("y"));
    });
}

#[test]
fn a_memory_written_by_one_clock_and_read_at_once_by_another_is_refused() {
    let text = refused(|b| {
        let eth = b.domain("eth");
        let m = b.mem("rows", 4, 8).zeroed();
        b.in_domain(eth, || m.write(b.high(), b.zero(2), b.zero(8)));
        let r = b.reg("slow", 8);
        r.set(m.read_async(b.input("a", 2)));
        b.output("q", 8).set(r);
    });
    assert!(text.contains("register `slow` of module `t` (clock clk) samples clock eth_clk"), "{text}");
}
