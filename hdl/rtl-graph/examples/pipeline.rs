//! A composed pipeline: records, streams, instances in a loop, a memory, a clock domain. Prints its Verilog.
use rtl_graph::*;

record! {
    /// A request to count an event of a flow.
    pub struct Event { flow: 4, bytes: 12 }
}

record! {
    /// The counters of a flow; a parameter sets a width.
    pub struct Row(sum_bits: u32) { events: 16, bytes: sum_bits }
}

module! {
    /// A register stage for events.
    pub struct Stage() { rx: in Stream<Event>, tx: out Stream<Event> }
    |b| {
        let valid = b.reg_reset("s1_valid", 1, 0);
        let free = (!valid | tx.ready).named("s1_free");
        valid.set_en(free, rx.valid);
        tx.put(valid, &rx.data.reg_en("s1", free));
        rx.ready.set(free);
    }
}

module! {
    /// One row a flow: read, add, write back in three stages; back-to-back events of a flow are forwarded.
    pub struct Table(sum_bits: u32) { rx: in Stream<Event>, flow: out Uint(4), row: out Uint(Row::width(sum_bits)), is_new: out Uint(1) }
    |b| {
        rx.ready.set(1);
        let mem = b.mem("rows", 16, Row::width(sum_bits)).style(RamStyle::Distributed).zeroed();
        // Stage 1: the row is being read. Stage 2: it is here. Stage 3: it has been written.
        let s1_valid = rx.valid.delay_reset("s1_valid", 1);
        let s1 = rx.data.delayed("s1");
        let read = Row::unpack(mem.read(rx.data.flow), sum_bits);
        let s2_valid = b.reg_reset("s2_valid", 1, 0);
        let (s2_flow, s2) = (b.reg("s2_flow", 4), read.reg_like("s2"));
        let hit = s2_valid & s2_flow.eq(s1.flow);
        // The write of the event before the last happens on the edge at which the row is read: read-first misses it.
        let s3_valid = s2_valid.delay_reset("s3_valid", 1);
        let (s3_flow, s3) = (s2_flow.delay("s3_flow", 1), s2.delayed("s3"));
        let late = s3_valid & s3_flow.eq(s1.flow);
        let old = Row::select(&[(hit, s2), (late, s3)], &read);
        s2.set(&Row { events: old.events + 1, bytes: old.bytes + s1.bytes.zext(sum_bits) });
        s2_valid.set(s1_valid);
        s2_flow.set(s1.flow);
        mem.write(s2_valid, s2_flow, s2.pack());
        flow.set(s2_flow);
        row.set(s2.pack());
        is_new.set(s2_valid);
    }
}

module! {
    /// `stages` register stages in front of the table, and a blinker on a clock of its own.
    pub struct Pipeline(stages: u32, sum_bits: u32) clocks(slow) {
        rx: in Stream<Event>, flow: out Uint(4), row: out Uint(Row::width(sum_bits)), is_new: out Uint(1), blink: out Uint(1),
    }
    |b| {
        let mut up = rx;
        for k in 0..stages {
            let s = Stage::at(b, &format!("stage{k}"));
            b.connect(&up, &s.rx);
            up = s.tx;
        }
        let table = Table::at(b, "table0", sum_bits);
        b.connect(&up, &table.rx);
        flow.set(table.flow);
        row.set(table.row);
        is_new.set(table.is_new);
        b.in_domain(b.domain("slow"), || {
            let n = b.reg_reset("blink_count", 4, 0);
            n.set(n + 1);
            blink.set(n.msb());
        });
    }
}

fn main() {
    println!("{}", Pipeline::def(&Lib::new(), 2, 20).verilog());
}

#[test]
fn table_sums_events_back_to_back() {
    let mut s = Pipeline::def(&Lib::new(), 2, 20).sim();
    s.reset(1);
    let layout = Row::layout(20);
    let (lo, w) = layout.place("bytes");
    let mut want = [(0, 0); 16];
    let mut seen = 0;
    for cycle in 0u64..100 {
        // Flows repeat at distances 1, 2 and 3.
        let (flow, bytes) = ([1, 1, 1, 2, 1, 2, 2, 3, 4, 2][cycle as usize % 10], 100 + cycle);
        s.poke("rx_valid", (cycle < 90) as u64);
        s.poke("rx_flow", flow);
        s.poke("rx_bytes", bytes);
        if s.peek("is_new") == 1 {
            let e = seen % 10;
            let flow = [1, 1, 1, 2, 1, 2, 2, 3, 4, 2][e as usize];
            let x: &mut (u64, u64) = &mut want[flow as usize];
            *x = (x.0 + 1, x.1 + 100 + seen);
            seen += 1;
            let row = s.peek("row");
            assert_eq!((s.peek("flow"), row & 0xffff, row >> lo & ((1 << w) - 1)), (flow, x.0, x.1));
        }
        s.clock();
    }
    assert_eq!(seen, 90);
}

#[test]
fn clocks_tick_apart() {
    let mut s = Pipeline::def(&Lib::new(), 1, 20).sim();
    s.reset(1);
    s.clock_domains(&["slow"]);
    assert_eq!(s.peek("blink_count"), 1);
    s.clock_domains(&[""]);
    assert_eq!(s.peek("blink_count"), 1);
}
