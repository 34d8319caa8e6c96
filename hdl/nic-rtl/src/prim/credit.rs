//! Ready signal for the start of a pipeline that cannot stop, from the room in the queue at its end.
//!
//! A wide pipeline whose stages all listen to one ready signal is slow to route and to enable. Instead its start takes
//! a word only when the queue at the end has room for it and for all that is under way already; in between words move
//! every cycle.

use rtl_graph::*;

/// Register that is 1 while a queue of `depth` words at `level` takes all words under way and one more.
///
/// `latency` is the number of cycles from the edge at which the start takes a word to the edge at which `level` counts
/// it, at most one word a cycle. The queue then never overflows.
#[track_caller]
pub fn ready_while_room<'a>(b: &'a B, name: &str, level: S<'a>, depth: u32, latency: u32) -> S<'a> {
    // The register lags one cycle; what was taken in the cycles of the latency and in this one is not in the level.
    let margin = latency + 2;
    assert!(depth > margin, "a queue of {depth} words behind a pipeline of {latency} cycles never gives a credit");
    let ready = b.reg_reset(name, 1, 0);
    ready.set(level.le(depth - margin));
    ready
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::{
        check::{self, Rng},
        fifo,
    };

    module! {
        /// A pipeline of `latency` cycles into a queue of `depth`.
        struct Pipeline(latency: u32, depth: u32) {
            rx: in Stream<Raw>(Raw::layout(32)),
            tx: out Stream<Raw>(Raw::layout(32)),
        } |b| {
            let data = Raw { data: rx.data.data.delay("data", latency) };
            let queue = fifo::pushed(b, "queue", rx.fire().delay_reset("valid", latency), &data, depth);
            rx.ready.set(ready_while_room(b, "room", queue.level, depth, latency));
            b.connect(&queue.tx, &tx);
        }
    }

    #[test]
    fn the_queue_never_overflows_and_a_deep_one_never_starves() {
        let mut rng = Rng::new("prim::credit", 1);
        for latency in [1, 2, 5] {
            let mut sim = check::sim(&Pipeline::def(&Lib::new(), latency, 16), &mut rng);
            for (valid, ready) in [(100, 50), (60, 40), (100, 10)] {
                // An overflow would trip the queue's assertion.
                check::check_order(&mut sim, &mut rng, 200, valid, ready);
            }
            let cycles = check::check_order(&mut sim, &mut rng, 200, 100, 100);
            assert!(cycles <= 200 + u64::from(latency) + 4, "{cycles} cycles for 200 words");
        }
    }

    #[test]
    fn a_stalled_queue_takes_all_that_is_under_way() {
        let mut rng = Rng::new("prim::credit", 2);
        let mut sim = check::sim(&Pipeline::def(&Lib::new(), 5, 16), &mut rng);
        sim.poke("rx_valid", 1);
        sim.poke("tx_ready", 0);
        sim.clocks(40);
        assert_eq!(sim.peek("rx_ready"), 0);
        // One more credit would have been one too many: the margin is exact.
        assert_eq!(sim.peek("queue_level"), 16);
    }
}
