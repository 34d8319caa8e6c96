//! Frames through a fabric driven from outside: exact times, loss, ECMP, captures, accounting.

mod traffic;

use nic_fabric::flow::Headers;
use nic_fabric::{
    Delivery, DropCause, Ecn, Fabric, FabricError, Frame, LinkSelect, LinkSpec, NodeId, Port, Rule, Tap, Topology,
    Verdict,
};
use pcap_file::pcap::PcapReader;
use std::io::Write;
use std::sync::{Arc, Mutex};
use traffic::{assert_conserved, udp, A, B};

fn paths(count: usize) -> Topology {
    let host = LinkSpec::new(400_000, 500_000);
    Topology::parallel_paths(&host, &vec![LinkSpec::new(100_000, 1_000_000); count])
}

#[test]
fn arrival_is_serialisation_plus_delay_to_the_picosecond() {
    let topology = Topology::point_to_point(&LinkSpec::new(400_000, 500_000));
    let mut fabric = Fabric::new(&topology, 1).unwrap();
    let frame = udp(0, 1, 0xc000, 2, 4096);
    fabric.inject(A, 1_000, frame.clone()).unwrap();
    fabric.inject(A, 1_000, frame.clone()).unwrap();
    let serialisation_ps = (42 + 4096 + 24) * 20;
    let first_ps = 1_000 + serialisation_ps + 500_000;
    assert_eq!(fabric.advance(first_ps - 1), []);
    assert_eq!(fabric.advance(first_ps), [Delivery { time_ps: first_ps, port: B, frame: frame.clone() }]);
    let second = fabric.run_until_idle(u64::MAX);
    assert_eq!(second, [Delivery { time_ps: first_ps + serialisation_ps, port: B, frame }]);
}

#[test]
fn every_hop_adds_its_own_serialisation_and_delay() {
    let mut fabric = Fabric::new(&paths(1), 1).unwrap();
    fabric.inject(A, 0, udp(0, 1, 0xc000, 2, 1000)).unwrap();
    let bytes = 42 + 1000 + 24;
    let expected_ps = (bytes * 20 + 500_000) + (bytes * 80 + 1_000_000) + (bytes * 20 + 500_000);
    assert_eq!(fabric.run_until_idle(u64::MAX)[0].time_ps, expected_ps);
}

#[test]
fn injection_may_lie_in_the_past_by_the_lookahead_and_no_further() {
    let topology = Topology::point_to_point(&LinkSpec::new(400_000, 500_000));
    let mut fabric = Fabric::new(&topology, 1).unwrap();
    let lookahead_ps = fabric.lookahead_ps();
    fabric.advance(lookahead_ps);
    fabric.inject(A, 0, Frame::new(&[0; 14])).unwrap();
    assert_eq!(fabric.run_until_idle(u64::MAX)[0].time_ps, lookahead_ps + 1);

    let mut fabric = Fabric::new(&topology, 1).unwrap();
    fabric.advance(lookahead_ps + 1);
    let error = fabric.inject(A, 0, Frame::new(&[0; 14])).unwrap_err();
    assert!(matches!(error, FabricError::InjectTooLate { time_ps: 0, .. }), "{error}");
}

/// What was delivered, driven in windows of this length, with the injections of a window made after it in any order.
fn run_in_windows(window_ps: u64, is_reversed: bool, thread_count: u16) -> Vec<Delivery> {
    let mut fabric = Fabric::with_threads(&paths(4), 3, thread_count).unwrap();
    fabric.add_rule(&LinkSelect::All, Rule::loss(50_000)).unwrap();
    let mut sends: Vec<(u64, Port, Frame)> = Vec::new();
    for i in 0..400u64 {
        sends.push((i * 21_000, A, udp(0, 1, 0xc000 + i as u16 % 16, 2, 1000)));
        sends.push((i * 21_000, B, udp(1, 0, 0xc000 + i as u16 % 16, 2, 1000)));
    }
    let mut deliveries = Vec::new();
    let mut t = 0;
    while t < 20_000_000 {
        deliveries.extend(fabric.advance(t + window_ps));
        let mut window: Vec<_> = sends.iter().filter(|send| send.0 >= t && send.0 < t + window_ps).cloned().collect();
        if is_reversed {
            window.sort_by_key(|send| std::cmp::Reverse(send.1));
        }
        for (time_ps, port, frame) in window {
            fabric.inject(port, time_ps, frame).unwrap();
        }
        t += window_ps;
    }
    deliveries.extend(fabric.advance(1_000_000_000));
    assert_conserved(&fabric);
    assert!(fabric.stats().drops.count(DropCause::Loss) > 50);
    deliveries
}

#[test]
fn window_length_order_of_injection_and_threads_change_nothing() {
    let reference = run_in_windows(500_000, false, 1);
    assert!(reference.len() > 500);
    assert_eq!(run_in_windows(500_000, true, 1), reference);
    assert_eq!(run_in_windows(77_777, false, 1), reference);
    assert_eq!(run_in_windows(500_000, false, 2), reference);
}

#[test]
fn ecmp_is_sticky_per_source_port_and_spreads_over_all_paths() {
    let topology = paths(8);
    let mut fabric = Fabric::new(&topology, 5).unwrap();
    for round in 0..4u64 {
        for sport in 0..256u16 {
            fabric.inject(A, round * 1_000_000_000, udp(0, 1, 0xc000 + sport, 2, 100)).unwrap();
        }
    }
    fabric.run_until_idle(u64::MAX);
    let frames: Vec<u64> = (0..8)
        .map(|path| fabric.link_stats(fabric.link_named(&format!("left->right#{path}")).unwrap()).frames)
        .collect();
    assert_eq!(frames.iter().sum::<u64>(), 1024);
    // Each source port stays on its path in all four rounds, so every count is a multiple of four.
    assert!(frames.iter().all(|count| count % 4 == 0), "{frames:?}");
    assert!(frames.iter().all(|count| count / 4 > 16 && count / 4 < 48), "{frames:?}");
}

#[test]
fn loss_is_a_function_of_the_seed() {
    let delivered = |seed: u64| -> Vec<u64> {
        let mut fabric = Fabric::new(&paths(4), seed).unwrap();
        fabric.add_rule(&LinkSelect::Core, Rule::loss(100_000)).unwrap();
        for i in 0..1000 {
            fabric.inject(A, i * 100_000, udp(0, 1, 0xc000 + i as u16, 2, 100)).unwrap();
        }
        fabric.run_until_idle(u64::MAX).iter().map(|delivery| delivery.time_ps).collect()
    };
    assert_eq!(delivered(1), delivered(1));
    assert_ne!(delivered(1), delivered(2));
    assert!(delivered(1).len().abs_diff(900) < 40);
}

#[test]
fn marks_fall_on_ecn_capable_frames_only() {
    let mut topology = paths(1);
    let bottleneck = topology.select(&LinkSelect::Name("left->right".into()))[0];
    topology.link_spec_mut(bottleneck).ecn = Some(Ecn::step(5_000));
    for (ecn, expected) in [(0b10u8, 0b11u8), (0b01, 0b11), (0b00, 0b00), (0b11, 0b11)] {
        let mut fabric = Fabric::new(&topology, 1).unwrap();
        for _ in 0..20 {
            fabric.inject(A, 0, udp(0, 1, 0xc000, ecn, 1000)).unwrap();
        }
        let deliveries = fabric.run_until_idle(u64::MAX);
        let ecn_of = |delivery: &Delivery| Headers::parse(&delivery.frame).unwrap().ip.unwrap().ecn;
        assert_eq!(ecn_of(&deliveries[0]), ecn);
        assert_eq!(ecn_of(&deliveries[19]), expected);
        let marked = fabric.stats().ecn_marked;
        assert_eq!(marked > 0, ecn == 0b10 || ecn == 0b01);
        assert_eq!(marked, fabric.link_stats(bottleneck).ecn_marked);
    }
}

#[test]
fn drop_tail_accounts_for_every_frame() {
    let mut topology = paths(1);
    let bottleneck = topology.select(&LinkSelect::Name("left->right".into()))[0];
    topology.link_spec_mut(bottleneck).buffer_bytes = 10_000;
    let mut fabric = Fabric::new(&topology, 1).unwrap();
    for _ in 0..50 {
        fabric.inject(A, 0, udp(0, 1, 0xc000, 2, 1000)).unwrap();
    }
    let mut delivered = 0;
    for step in 1..100 {
        delivered += fabric.advance(step * 100_000).len() as u64;
        assert_conserved(&fabric);
    }
    let stats = fabric.stats();
    assert_eq!((stats.sent, stats.in_flight, stats.delivered), (50, 0, delivered));
    assert_eq!(stats.drops.count(DropCause::BufferFull), 50 - delivered);
    assert_eq!(fabric.link_stats(bottleneck).drops.count(DropCause::BufferFull), 50 - delivered);
    // 400G in, 100G out: of the time the burst takes to arrive, a quarter drains, and 9 frames wait.
    assert!((18..=24).contains(&delivered), "{delivered} delivered");
}

#[test]
fn each_verdict_does_what_it_says() {
    let topology = Topology::point_to_point(&LinkSpec::new(400_000, 500_000));
    let run = |verdict: Verdict| {
        let mut fabric = Fabric::new(&topology, 1).unwrap();
        fabric.add_rule(&LinkSelect::HostUp, Rule::nth(2, verdict)).unwrap();
        for i in 0..3 {
            fabric.inject(A, 0, udp(0, 1, i, 2, 0)).unwrap();
        }
        let deliveries = fabric.run_until_idle(u64::MAX);
        assert_conserved(&fabric);
        let ports: Vec<u16> =
            deliveries.iter().map(|d| Headers::parse(&d.frame).unwrap().ip.unwrap().src_port).collect();
        (ports, deliveries, fabric.stats().drops)
    };
    assert_eq!(run(Verdict::Pass).0, [0, 1, 2]);
    let (ports, _, drops) = run(Verdict::Drop);
    assert_eq!((ports, drops.count(DropCause::Nth)), (vec![0, 2], 1));
    let (ports, _, drops) = run(Verdict::FailFcs);
    assert_eq!((ports, drops.count(DropCause::FcsError)), (vec![0, 2], 1));
    assert_eq!(run(Verdict::Delay { delay_ps: 10_000 }).0, [0, 2, 1]);
    let (ports, deliveries, _) = run(Verdict::Duplicate { delay_ps: 7 });
    assert_eq!(ports, [0, 1, 1, 2]);
    assert_eq!(deliveries[2].time_ps - deliveries[1].time_ps, 7);
    // The last bit of the source port.
    assert_eq!(run(Verdict::FlipBit(14 * 8 + 20 * 8 + 15)).0, [0, 0, 2]);
}

#[test]
fn unknown_destination_is_counted_and_can_be_bound() {
    let mut fabric = Fabric::new(&paths(2), 1).unwrap();
    let mut frame = udp(0, 1, 1, 2, 0);
    frame.header_mut()[0..6].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    frame.header_mut()[30..34].copy_from_slice(&[192, 168, 0, 1]);
    fabric.inject(A, 0, frame.clone()).unwrap();
    assert_eq!(fabric.advance(1_000_000_000), []);
    assert_eq!(fabric.stats().drops.count(DropCause::UnknownDestination), 1);
    fabric.bind_address(NodeId(1), [192, 168, 0, 1].into());
    fabric.inject(A, 1_000_000_000, frame).unwrap();
    assert_eq!(fabric.run_until_idle(u64::MAX).len(), 1);
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn captures_show_sent_frames_at_one_end_and_surviving_ones_at_the_other() {
    let mut fabric = Fabric::new(&paths(1), 1).unwrap();
    fabric.add_rule(&LinkSelect::HostUp, Rule::drop_nth(2)).unwrap();
    let link = fabric.link_named("h0->left").unwrap();
    let (sent, received) = (Shared::default(), Shared::default());
    fabric.capture(link, Tap::Sent, Box::new(sent.clone())).unwrap();
    fabric.capture(link, Tap::Received, Box::new(received.clone())).unwrap();
    for i in 0..3 {
        fabric.inject(A, 0, udp(0, 1, i, 2, 100)).unwrap();
    }
    fabric.run_until_idle(u64::MAX);
    fabric.finish_captures().unwrap();
    let read = |file: &Shared| -> Vec<(u128, Vec<u8>)> {
        let bytes = file.0.lock().unwrap().clone();
        let mut reader = PcapReader::new(&bytes[..]).unwrap();
        let mut packets = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            packets.push((packet.timestamp.as_nanos(), packet.data.to_vec()));
        }
        packets
    };
    let wire_ps = (42 + 100 + 24) * 20;
    let expected =
        |i: u128, delay_ns: u128| ((i + 1) * wire_ps / 1000 + delay_ns, udp(0, 1, i as u16, 2, 100).to_bytes());
    assert_eq!(read(&sent), [expected(0, 0), expected(1, 0), expected(2, 0)]);
    assert_eq!(read(&received), [expected(0, 500), expected(2, 500)]);
}
