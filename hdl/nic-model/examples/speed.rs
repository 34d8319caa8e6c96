//! Time that one data packet costs in both models together, its share of acknowledgements included.
//!
//! Two cards and two delay lines; nothing else takes time. `cargo run -p nic-model --example speed [MiB]`

use nic_model::config::{NicConfig, PlaneConfig};
use nic_model::conn_config::ConnConfig;
use nic_model::memory::VirtualMemory;
use nic_model::mr::Mr;
use nic_model::time::Time;
use nic_model::wire::frame::Frame;
use nic_model::wire::packet::Address;
use nic_model::work::{Local, RemoteMemory, SendOp, SendWr};
use nic_model::Nic;
use nic_spec::csr::stats::Counter;
use nic_spec::num::{Lkey, Pd, Qpn, Rkey};
use std::collections::VecDeque;

const DELAY_PS: u64 = 4_000_000;
const RATE_MBPS: u64 = 400_000;

fn main() {
    let mib: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1024);
    let loss: u64 = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(0);
    let address = |side: u64| Address { mac: 0x0200_0000_0001 + side, ip: 0x0a00_0001 + u128::from(side) };
    let mut nics = [0, 1].map(|side| {
        let mut cfg = NicConfig::new(vec![PlaneConfig { mac: address(side).mac, rate_mbps: RATE_MBPS }]);
        cfg.elide_icrc = true;
        let mut nic = Nic::new(cfg);
        nic.mrs().register(Mr { key: 1, pd: Pd::new(0), access: 0xf, va: 0, len: 1 << 40, iova: 0 });
        nic
    });
    let mut mems = [VirtualMemory::default(); 2];
    for side in 0..2 {
        let id = |s: u64| Qpn::new(0x10 + s as u32);
        let mut c = ConnConfig::new(id(side), id(1 - side)).with_paths(12, 1);
        c.addresses = vec![(address(side), address(1 - side))];
        nics[side as usize].open_connection(Time(0), c).expect("a free row");
    }
    let conn = nic_model::work::ConnId(0x10);
    let len = 8 << 20;
    for i in 0..mib / 8 {
        let op = SendOp::Write { remote: RemoteMemory { va: 0, rkey: Rkey::new(1) }, imm: None };
        nics[0]
            .post_send(Time(0), conn, 1, SendWr::new(i, op, Local { va: 0, lkey: Lkey::new(1) }, len))
            .expect("room");
    }
    let mut lines: [VecDeque<(u64, Frame)>; 2] = [VecDeque::new(), VecDeque::new()];
    let mut free = [0u64; 2];
    let mut now = 0u64;
    let mut done = 0;
    let mut rng = 1u64;
    let start = std::time::Instant::now();
    while done < mib / 8 {
        for side in 0..2 {
            if free[side] <= now && nics[side].wants_transmit(0) {
                if let Some(frame) = nics[side].poll_transmit(Time(now), 0, &mut mems[side]) {
                    free[side] = now + (u64::from(frame.len_bytes()) + 24) * 8_000_000 / RATE_MBPS;
                    rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    if (rng >> 33) % 1_000_000 >= loss {
                        lines[1 - side].push_back((free[side] + DELAY_PS, frame));
                    }
                }
            }
        }
        let mut next = u64::MAX;
        for side in 0..2 {
            next = next.min(lines[side].front().map_or(u64::MAX, |f| f.0));
            next = next.min(nics[side].next_timer().map_or(u64::MAX, |t| t.0));
            if free[side] > now && nics[side].wants_transmit(0) {
                next = next.min(free[side]);
            }
        }
        now = now.max(next);
        for side in 0..2 {
            while lines[side].front().is_some_and(|f| f.0 <= now) {
                let (_, frame) = lines[side].pop_front().expect("a frame");
                nics[side].on_frame(Time(now), 0, &frame, &mut mems[side]);
            }
            if nics[side].next_timer().is_some_and(|t| t.0 <= now) {
                nics[side].on_timer(Time(now));
            }
        }
        while nics[0].poll_completion(0).is_some() {
            done += 1;
        }
    }
    let took = start.elapsed();
    let count = |side: usize, c| nics[side].counters().get(c);
    let data = count(0, Counter::TxData);
    println!(
        "{data} data packets, {} acknowledgements, {} retransmissions, {} probes: {} ns a data packet; line {:.1} % busy with payload",
        count(1, Counter::TxAckShort) + count(1, Counter::TxAckLong),
        count(0, Counter::TxRtxGap) + count(0, Counter::TxRtxRto),
        count(0, Counter::TxProbe),
        took.as_nanos() as u64 / data,
        (mib << 20) as f64 * 8e6 / RATE_MBPS as f64 / now as f64 * 100.0,
    );
}
