//! The example of the API sheet: a leaf, a composed module, and their test on the interpreter.
use rtl_graph::*;

bundle! {
    /// A stream of words.
    pub struct Axis(bytes: u32) { fwd data: 8 * bytes, keep: bytes, last: 1, valid: 1; rev ready: 1 }
}

record! {
    /// What a packet looked like.
    pub struct PacketEvent { beats: 16, first_byte: 8 }
}

module! {
    /// One register stage that xors a tag into the data.
    pub struct Stage(tag: u32, bytes: u32) { rx: in Axis(bytes), tx: out Axis(bytes) }
    |b| {
        let (v, d) = (b.reg_reset("s1_v", 1, 0), b.reg("s1_d", rx.payload_width())); // valid is reset, payload is not
        let free = (!v | tx.ready).named("s1_free");
        v.set_en(free, rx.valid);
        d.set_en(free, rx.payload());
        rx.ready.set(free);
        tx.valid.set(v);
        tx.set_payload(d ^ tag);
    }
}

module! {
    /// Counts beats and reports each packet.
    pub struct Tap(bytes: u32) { rx: in Axis(bytes), tx: out Axis(bytes), event: out Stream<PacketEvent>, packets: out Uint(32) }
    |b| {
        b.connect(&rx, &tx);
        let beats = b.reg_reset("beats", 16, 0);
        let count = b.reg_reset("count", 32, 0);
        let first = b.reg("first", 8);
        b.when(rx.fire(), || {
            beats.set(beats + 1);
            b.when(beats.eq(0), || first.set(rx.data.trunc(8)));
            b.when(rx.last, || {
                beats.set(0); // later assignments win
                count.set(count.inc());
            });
        });
        let done = b.reg_reset("done", 1, 0);
        done.set(rx.fire() & rx.last);
        let info = PacketEvent { beats: beats.inc(), first_byte: beats.eq(0).mux(rx.data.trunc(8), first) };
        event.put(done, &info.delayed("event"));
        packets.set(count);
        b.assert("packet_is_bounded", beats.lt(1000));
    }
}

module! {
    /// A chain of stages with a tap: instances, arrays of them, one call a stream.
    pub struct Pipe = "demo_pipe" (stages: usize) {
        rx: in Axis(4), tx: out Axis(4), event: out Stream<PacketEvent>, packets: out Uint(32), probes: out Uint(1) [stages],
    }
    |b| {
        let mut up = rx;
        for (k, probe) in probes.iter().enumerate() {
            let s = Stage::at(b, &format!("st{k}"), k as u32, 4);
            b.connect(&up, &s.rx);
            probe.set(s.tx.valid);
            up = s.tx;
        }
        let tap = Tap::at(b, "tap", 4);
        b.connect(&up, &tap.rx);
        b.connect(&tap.tx, &tx);
        b.connect(&tap.event, &event);
        packets.set(tap.packets);
    }
}

#[test]
fn pipe_has_latency_n_and_counts_packets() {
    let def = Pipe::def(&Lib::new(), 3);
    assert_eq!(def.name, "demo_pipe_3");
    let mut s = def.sim();
    s.reset(2);
    s.poke("tx_ready", 1);
    s.poke("event_ready", 1);
    s.poke("rx_valid", 1);
    s.poke("rx_last", 1);
    s.poke("rx_data", 0xabcd_0000);
    for cycle in 0..6 {
        assert_eq!(s.peek("tx_valid"), (cycle >= 3) as u64);
        s.clock();
    }
    assert_eq!(s.peek("tx_data"), 0xabcd_0000 ^ 1 ^ 2);
    assert_eq!((s.peek("packets"), s.peek("event_valid"), s.peek("event_beats")), (3, 1, 1));
    assert_eq!(s.peek("st2.s1_v"), 1); // any named net below
}
