//! Memory of paths and connections while they carry data at line rate over a lossy cable.

mod bench;

use bench::{local, remote, Bench, Cable, US};
use nic_model::memory::VirtualMemory;
use nic_model::work::{ConnId, SendOp, SendWr};
use nic_model::Footprint;

const GIB: u64 = 1 << 30;
/// Ends of the connections of 64 hosts where everyone is connected with everyone, both ways.
const CONNECTION_ENDS: usize = 2 * 4032;
const PATHS: usize = 12;

/// A connection of 12 paths at 400 Gb/s with 1 % loss, looked at every 20 us: the most that its two ends ever took.
fn footprints() -> [Footprint; 2] {
    let cable = Cable { rate_mbps: 400_000, delay_ps: 2 * US, loss_ppm: 10_000, ..Cable::default() };
    let mut b = Bench::with_memory(7, cable, 1, GIB, [VirtualMemory::default(); 2]);
    let conns: [ConnId; 2] = b.connect(0, PATHS, |_, _| ());
    for (side, conn) in conns.into_iter().enumerate() {
        // Both ways at once, so that each end has sending and receiving paths in use.
        let op = SendOp::Write { remote: remote(0), imm: None };
        b.nics[side].post_send(b.now, conn, 1, SendWr::new(0, op, local(0), 32 << 20)).expect("room");
    }
    let mut most = [Footprint::default(); 2];
    for _ in 0..50 {
        b.run(20 * US);
        for side in 0..2 {
            let now = b.nics[side].footprint(conns[side]).expect("open");
            most[side].paths = now.paths;
            most[side].paths_bytes = most[side].paths_bytes.max(now.paths_bytes);
            most[side].rest_bytes = most[side].rest_bytes.max(now.rest_bytes);
        }
    }
    let done: Vec<_> = (0..2).map(|side| b.completions(side, 0).len()).collect();
    assert_eq!(done, [1, 1], "the messages ended, so the paths were used");
    most
}

#[test]
fn a_path_takes_at_most_a_kibibyte_on_both_sides_together() {
    for f in footprints() {
        assert_eq!(f.paths, PATHS);
        let per_path = f.paths_bytes / f.paths;
        println!("{per_path} bytes a path, {} for the rest of the connection's end", f.rest_bytes);
        assert!((256..=1024).contains(&per_path), "{per_path} bytes: {f:?}");
    }
}

#[test]
fn the_ends_of_4032_connections_of_twelve_paths_take_less_than_4_gib() {
    let worst = footprints().into_iter().map(|f| f.paths_bytes + f.rest_bytes).max().unwrap_or(0);
    let all_bytes = (CONNECTION_ENDS * worst) as u64;
    assert!(worst > PATHS * 256, "{worst}");
    assert!(all_bytes <= 4 * GIB, "{all_bytes} bytes, {worst} an end");
}

#[test]
fn an_unknown_connection_has_no_footprint() {
    let b = Bench::new(1, Cable::default(), 1, 1 << 20);
    assert_eq!(b.nics[0].footprint(ConnId(0)), None);
}
