//! The building blocks' assertions hold for ever, for all inputs: bounded check from reset, then induction.

use nic_rtl::prim::{Arbiter, Fifo, PacketFifo, Skid};
use rtl_graph::{formal::prove, module, Lib, ModDef, RamStyle, Raw, Stream, Uint};
use std::sync::Arc;

fn proved(def: &Arc<ModDef>, steps: u32) {
    prove(def, steps).unwrap_or_else(|e| panic!("{}: {e}", def.name));
}

#[test]
fn a_skid_buffer_keeps_its_order() {
    proved(&Skid::def(&Lib::new(), 4), 3);
}

#[test]
fn a_queue_of_any_kind_of_depth_never_overflows() {
    for depth in [2, 8] {
        proved(&Fifo::def(&Lib::new(), 4, depth, RamStyle::Registers), 3);
    }
}

#[test]
fn an_arbiter_grants_one_input_at_a_time() {
    proved(&Arbiter::def(&Lib::new(), 4, 4, None), 3);
    proved(&Arbiter::def(&Lib::new(), 4, 3, Some(0)), 3);
}

module! {
    /// A packet queue whose source minds the level and decides one thing at a time.
    struct Minded() {
        wish: in Uint(1),
        data: in Uint(4),
        decide: in Uint(2),
        tx: out Stream<Raw>(Raw::layout(4)),
    } |b| {
        let q = PacketFifo::at(b, "q", 4, 4);
        q.push.set(wish & q.level.ne(4));
        q.data.set(data);
        q.commit.set(decide.eq(1));
        q.rollback.set(decide.eq(2));
        b.connect(&q.tx, &tx);
    }
}

#[test]
fn a_packet_queue_with_a_mindful_source_never_overflows() {
    proved(&Minded::def(&Lib::new()), 3);
}
