//! Workloads played by hosts of a fabric, on a NIC so plain that only the player can be wrong.

use std::sync::Arc;

use nic_fabric::workload::{
    goal, Builder, Collective, CollectiveKind, Endpoint, Event, Floor, MessageId, Player, Queue, Request, Verb,
    Workload, WorkloadHost, NEVER_PS,
};
use nic_fabric::{Context, Fabric, Frame, LeafSpine, LinkSpec, NodeId, PlaneLinks, Topology};

const MTU_BYTES: u64 = 4_096;
/// Ethernet, IPv4, UDP, and twelve bytes of our own: message, offset of the end, kind.
const HEADER_BYTES: usize = 14 + 20 + 8 + 12;

/// Sends a message as frames without numbers, windows or recovery, and believes the network.
struct Plain {
    workload: Arc<Workload>,
    host: u32,
    events: Vec<Event>,
    received: Vec<u64>,
}

impl Plain {
    fn new(workload: &Arc<Workload>, host: u32) -> Plain {
        let received = vec![0; workload.messages().len()];
        Plain { workload: workload.clone(), host, events: Vec::new(), received }
    }

    fn frame(&self, peer: u32, message: MessageId, kind: u8, bytes: u64) -> Frame {
        let mut header = Vec::new();
        header.extend(Topology::mac_of(peer, 0));
        header.extend(Topology::mac_of(self.host, 0));
        header.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
        header.extend(Topology::ipv4_of(self.host, 0).octets());
        header.extend(Topology::ipv4_of(peer, 0).octets());
        header.extend([0xc0, 0, 0x12, 0xb7, 0, 0, 0, 0]);
        header.extend(message.0.to_be_bytes());
        header.push(kind);
        header.resize(HEADER_BYTES, 0);
        Frame::new(&header).with_virtual_payload(bytes as u32)
    }

    fn send(&self, ctx: &mut Context<'_>, peer: u32, message: MessageId, bytes: u64) {
        let mut left = bytes;
        loop {
            let part = left.min(MTU_BYTES);
            ctx.send(0, self.frame(peer, message, DATA, part));
            left -= part;
            if left == 0 {
                break;
            }
        }
    }
}

const DATA: u8 = 0;
const DONE: u8 = 1;
const ASK: u8 = 2;

impl Endpoint for Plain {
    fn post(&mut self, ctx: &mut Context<'_>, request: &Request) {
        let peer = self.workload.connections_of(self.host)[request.connection as usize].peer;
        match request.verb {
            Verb::Write => self.send(ctx, peer, request.message, request.bytes),
            Verb::Read => ctx.send(0, self.frame(peer, request.message, ASK, 0)),
        }
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, _port: u16, frame: Frame) {
        let own = &frame.header()[HEADER_BYTES - 12..];
        let message = MessageId(u32::from_be_bytes(own[..4].try_into().unwrap()));
        let entry = *self.workload.message(message);
        match own[4] {
            DATA => {
                let received = &mut self.received[message.0 as usize];
                *received += frame.payload().len_bytes() as u64;
                if *received == entry.bytes && entry.verb == Verb::Write {
                    self.events.push(Event::Arrived(message));
                    ctx.send(0, self.frame(entry.src, message, DONE, 0));
                } else if *received == entry.bytes {
                    self.events.push(Event::Completed(message));
                }
            }
            ASK => self.send(ctx, entry.dst, message, entry.bytes),
            _ => self.events.push(Event::Completed(message)),
        }
    }

    fn on_timer(&mut self, _ctx: &mut Context<'_>, _token: u32) {}

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }
}

/// 16 hosts, 400G, 500 ns cables, no limits.
fn topology() -> Topology {
    let link = LinkSpec::new(400_000, 500_000);
    let planes = vec![PlaneLinks { host: link.clone(), core: link }];
    Topology::leaf_spine(&LeafSpine { leaf_count: 4, hosts_per_leaf: 4, spine_count: 4, planes })
}

/// Plays a workload; returns when it was done.
fn play(workload: Workload, threads: u16) -> (u64, Vec<Vec<u64>>) {
    let workload = Arc::new(workload);
    let mut fabric = Fabric::with_threads(&topology(), 1, threads).unwrap();
    for host in 0..workload.host_count() {
        fabric.attach(NodeId(host), WorkloadHost::new(workload.clone(), host, Plain::new(&workload, host)));
    }
    fabric.run_until_idle(u64::MAX);
    let done = |player: &Player| -> Vec<u64> { player.times().iter().map(|times| times.done_ps).collect() };
    let hosts = (0..workload.host_count()).map(|host| fabric.node::<WorkloadHost<Plain>>(NodeId(host)).unwrap());
    let times: Vec<Vec<u64>> = hosts.map(|host| done(host.player())).collect();
    assert!(times.iter().flatten().all(|done_ps| *done_ps != NEVER_PS), "a step was never done");
    (times.iter().flatten().copied().max().unwrap_or(0), times)
}

/// Two hosts of a leaf are two cables apart.
const FLOOR: Floor = Floor {
    rate_mbps: 400_000,
    latency_ps: 1_000_000,
    short_latency_ps: 1_000_000,
    mtu_bytes: MTU_BYTES,
    overhead_bytes: HEADER_BYTES as u64 + 24,
};

fn ring(bytes: u64, slices: u32) -> Workload {
    let group: Vec<u32> = (0..16).collect();
    let mut builder = Builder::new(16);
    let kind = CollectiveKind::RingAllReduce;
    Collective { kind, group: &group, bytes, slices, stream: 0, streams: 1 }.add_to(&mut builder, &[]);
    builder.build().unwrap()
}

#[test]
fn ring_all_reduce_takes_a_little_more_than_its_floor() {
    let workload = ring(16 << 20, 1);
    let floor_ps = FLOOR.duration_ps(&workload);
    let (done_ps, _) = play(workload, 1);
    assert!(done_ps > floor_ps && done_ps < floor_ps * 110 / 100, "{done_ps} ps, floor {floor_ps} ps");
}

#[test]
fn slices_hide_the_latency_of_the_rounds() {
    let (whole_ps, _) = play(ring(1 << 20, 1), 1);
    let (sliced_ps, _) = play(ring(1 << 20, 4), 1);
    assert!(sliced_ps * 10 < whole_ps * 9, "{sliced_ps} ps in slices, {whole_ps} ps whole");
}

#[test]
fn threads_do_not_change_when_a_step_is_done() {
    assert_eq!(play(ring(1 << 20, 2), 1), play(ring(1 << 20, 2), 3));
}

#[test]
fn reads_and_waits_and_files_are_played() {
    let mut builder = Builder::new(16);
    Queue { message_bytes: 10_000, count: 3, depth: 1, stream: 0 }.fan_in(&mut builder, &[1, 2, 3], &[0]);
    let (done_ps, _) = play(builder.build().unwrap(), 1);
    // Three reads one after the other, each a round trip of four cables and three frames.
    assert!(done_ps > 3 * 4 * 500_000 && done_ps < 10_000_000, "{done_ps} ps");

    let schedule = "num_ranks 16\nrank 3 {\na: calc 4000\nb: send 100b to 9 tag 0\nb requires a\n}\n\
        rank 9 {\na: recv 100b from 3 tag 0\nb: calc 1000\nb requires a\n}";
    let (_, times) = play(goal::parse("x", schedule).unwrap(), 1);
    let frame_ps = 20 * (100 + HEADER_BYTES as u64 + 24);
    let done_ps = times[9].iter().copied().max();
    assert_eq!(done_ps, Some(4_000_000 + 4 * (500_000 + frame_ps) + 1_000_000));
}
