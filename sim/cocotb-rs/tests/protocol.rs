//! Interfaces driven port by port, to do what the bus functional models never would.

mod common;

use cocotb_rs::{
    axi::{Axi4Memory, Axi4MemoryConfig, Axi4Ports, SparseMemory},
    axis::{AxisMonitor, AxisPorts, AxisSink, AxisSource},
    Clock, Handle, Pace, Port, Sim, SimError,
};
use std::{cell::RefCell, rc::Rc};

fn violation(error: SimError) -> String {
    match error {
        SimError::Violation { message, .. } => message,
        other => panic!("{other}"),
    }
}

struct Bench {
    sim: Sim,
    clk: Clock,
    near: Axi4Ports,
    memory: Rc<RefCell<SparseMemory>>,
}

fn bench() -> Bench {
    let (sim, clk) = common::sim();
    let memory = Rc::new(RefCell::new(SparseMemory::new()));
    let far = Axi4Ports::find(&sim, "m_axi").unwrap();
    Axi4Memory::attach(&sim, clk, far, Axi4MemoryConfig::default(), memory.clone()).unwrap();
    let near = Axi4Ports::find(&sim, "s_axi").unwrap();
    sim.set(near.b.ready, 1);
    sim.set(near.r.ready, 1);
    Bench { sim, clk, near, memory }
}

/// Offers once and waits until it is taken.
async fn offer(handle: &Handle, clk: Clock, valid: Port, ready: Port) {
    handle.set(valid, 1);
    handle.until(clk, ready, true).await;
    handle.set(valid, 0);
}

fn set_address(sim: &Handle, channel: &cocotb_rs::axi::AddressPorts, addr: u64, beats: u64, size_log2: u64) {
    sim.set(channel.addr, addr);
    let fields = [(channel.len, beats - 1), (channel.size, size_log2), (channel.burst, 1), (channel.id, 3)];
    fields.into_iter().for_each(|(port, value)| sim.set(port.unwrap(), value));
}

fn set_beat(sim: &Handle, near: &Axi4Ports, fill: u8, strobe: u64, is_last: bool) {
    sim.set_bytes(near.w.data, &[fill; 64]);
    sim.set(near.w.strb.unwrap(), strobe);
    sim.set(near.w.last.unwrap(), u64::from(is_last));
}

#[test]
fn a_narrow_burst_whose_data_comes_before_its_address_lands_in_its_lanes() {
    let Bench { mut sim, clk, near, memory } = bench();
    let handle = sim.handle();
    let ports = near.clone();
    let id = sim
        .block_on(async move {
            for (fill, strobe, is_last) in [(0x11, 0xf << 56, false), (0x22, 0xf << 60, false), (0x33, 0x5, true)] {
                set_beat(&handle, &ports, fill, strobe, is_last);
                offer(&handle, clk, ports.w.valid, ports.w.ready).await;
            }
            handle.cycles(clk, 5).await;
            set_address(&handle, &ports.aw, 0x1038, 3, 2);
            offer(&handle, clk, ports.aw.valid, ports.aw.ready).await;
            handle.until(clk, ports.b.valid, true).await;
            handle.get(ports.b.id.unwrap())
        })
        .unwrap();
    let expected = [0, 0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x22, 0x22, 0x33, 0, 0x33, 0, 0];
    assert_eq!((id, memory.borrow().bytes(0x1037, 14)), (3, expected.to_vec()));

    let handle = sim.handle();
    let lanes = sim
        .block_on(async move {
            set_address(&handle, &near.ar, 0x103a, 3, 2);
            offer(&handle, clk, near.ar.valid, near.ar.ready).await;
            let mut lanes = Vec::new();
            while lanes.len() < 3 {
                handle.until(clk, near.r.valid, true).await;
                let data = handle.get_words(near.r.data);
                let word = if lanes.len() < 2 { data[7] } else { data[0] };
                lanes.push((word, handle.get(near.r.last.unwrap())));
            }
            lanes
        })
        .unwrap();
    assert_eq!(lanes, [(0x1111_0000, 0), (0x2222_2222_0000_0000, 0), (0x0033_0033, 1)]);
}

#[test]
fn write_data_that_does_not_fit_its_address_is_named() {
    let cases = [
        // address, beats announced, strobe, beats sent
        (0x1000, 2, u64::MAX, 1, "m_axi W: 1 beats for a burst of 2"),
        (0x1000, 1, u64::MAX, 2, "m_axi W: 2 beats for a burst of 1"),
        (0x1004, 1, 0xff, 1, "m_axi W: strobe 0xff of beat 0 leaves the lanes of 0x1004"),
    ];
    for (addr, announced, strobe, sent, expected) in cases {
        let Bench { mut sim, clk, near, .. } = bench();
        let handle = sim.handle();
        let error = sim
            .block_on(async move {
                set_address(&handle, &near.aw, addr, announced, 6);
                offer(&handle, clk, near.aw.valid, near.aw.ready).await;
                for beat in 1..=sent {
                    set_beat(&handle, &near, 1, strobe, beat == sent);
                    offer(&handle, clk, near.w.valid, near.w.ready).await;
                }
                handle.cycles(clk, 5).await;
            })
            .unwrap_err();
        assert_eq!(violation(error), expected);
    }
}

#[test]
fn an_offer_taken_back_is_a_violation() {
    let (mut sim, clk) = common::sim();
    let far = Axi4Ports::find(&sim, "m_axi").unwrap();
    let config = Axi4MemoryConfig { ready_percent: 0, ..Axi4MemoryConfig::default() };
    Axi4Memory::attach(&sim, clk, far, config, Rc::new(RefCell::new(SparseMemory::new()))).unwrap();
    let near = Axi4Ports::find(&sim, "s_axi").unwrap();
    set_address(&sim, &near.ar, 0x1000, 1, 6);
    sim.set(near.ar.valid, 1);
    sim.run_cycles(clk, 10).unwrap();
    sim.set(near.ar.valid, 0);
    let error = sim.run_cycles(clk, 10).unwrap_err();
    assert_eq!(violation(error), "m_axi AR: valid was taken back before ready");
}

#[test]
fn a_keep_that_is_not_a_row_of_first_bytes_is_a_violation() {
    let cases = [
        (0x5, 1, "s_axis: keep 0x5 has holes"),
        (0x2, 1, "s_axis: keep 0x2 has holes"),
        (0x0, 1, "s_axis: a beat keeps no byte"),
        (0xff, 0, "s_axis: a beat before the last keeps 8 of 64 bytes"),
    ];
    for (keep, last, expected) in cases {
        let (mut sim, clk) = common::sim();
        let ports = AxisPorts::find(&sim, "s_axis").unwrap();
        let _monitor = AxisMonitor::attach(&sim, clk, ports.clone());
        sim.set(ports.keep.unwrap(), keep);
        sim.set(ports.last.unwrap(), last);
        sim.set(ports.valid, 1);
        assert_eq!(violation(sim.run_cycles(clk, 3).unwrap_err()), expected);
    }
}

#[test]
fn a_reset_under_way_is_no_violation_and_the_frame_is_sent_again_whole() {
    let (mut sim, clk) = common::sim();
    let source = AxisSource::attach(&sim, clk, AxisPorts::find(&sim, "s_axis").unwrap(), Pace::always()).unwrap();
    let sink = AxisSink::attach(&sim, clk, AxisPorts::find(&sim, "m_axis").unwrap(), Pace::always()).unwrap();
    let frame: Vec<u8> = (0..640_u32).map(|index| index as u8).collect();
    source.send(frame.clone());
    sim.run_cycles(clk, 6).unwrap();
    let rst = sim.port("rst").unwrap();
    sim.reset(rst, 2).unwrap();
    assert_eq!((source.pending(), sink.pending()), (1, 0));
    let received = sim.block_on(sink.recv()).unwrap();
    assert_eq!((received.bytes, received.beats), (frame, 10));
}
