//! Measures link-hops per CPU-second: 64 hosts, 8 leaves, 8 spines, 400G, a permutation of 16 MB flows.
//!
//! Nodes do next to nothing (a window of 128 frames over 12 source ports, a small answer to each frame), so the figure
//! is that of the fabric alone. CPU time is the kernel's account of the main thread, which other work on the machine does not
//! change. Usage: `bench_hops [megabytes per host] [loss ppm]`.

use nic_fabric::{
    Context, Ecn, Fabric, Frame, LeafSpine, LinkSelect, LinkSpec, Node, NodeId, PlaneLinks, Rule, Topology,
};

const PAYLOAD_BYTES: u32 = 4096;
const HEADER_BYTES: usize = 82;
const ANSWER_BYTES: usize = 66;
const FIRST_SPORT: u16 = 0xc000;
const SPORT_COUNT: u32 = 12;
const WINDOW_FRAMES: u32 = 128;

/// Keeps a window of frames under way and answers those of others.
struct Nic {
    data: Vec<u8>,
    answer: Vec<u8>,
    frames_left: u32,
    answers: u32,
}

impl Node for Nic {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        (0..WINDOW_FRAMES).for_each(|_| self.send(ctx));
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        if frame.len_bytes() == ANSWER_BYTES {
            self.answers += 1;
            return self.send(ctx);
        }
        self.answer[34..36].copy_from_slice(&frame.header()[34..36]);
        ctx.send(port, Frame::new(&self.answer));
    }

    fn on_timer(&mut self, _ctx: &mut Context<'_>, _token: u32) {}
}

impl Nic {
    fn send(&mut self, ctx: &mut Context<'_>) {
        if self.frames_left == 0 {
            return;
        }
        self.frames_left -= 1;
        let sport = FIRST_SPORT + (self.frames_left % SPORT_COUNT) as u16;
        self.data[34..36].copy_from_slice(&sport.to_be_bytes());
        ctx.send(0, Frame::new(&self.data).with_virtual_payload(PAYLOAD_BYTES));
    }
}

/// The headers of a UDP frame of this length, ECN-capable.
fn headers(from: u32, to: u32, header_bytes: usize, payload_bytes: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(Topology::mac_of(to, 0));
    bytes.extend(Topology::mac_of(from, 0));
    bytes.extend([0x08, 0x00, 0x45, 0x02]);
    bytes.extend(((header_bytes - 14) as u16 + payload_bytes as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(Topology::ipv4_of(from, 0).octets());
    bytes.extend(Topology::ipv4_of(to, 0).octets());
    bytes.resize(header_bytes, 0);
    bytes[36..38].copy_from_slice(&4791u16.to_be_bytes());
    bytes
}

/// CPU time of this thread, nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux kernel with schedstat");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("schedstat begins with nanoseconds")
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>().expect("a whole number"));
    let megabytes = arguments.next().unwrap_or(16);
    let loss_ppm = arguments.next().unwrap_or(0);

    let link = LinkSpec::new(400_000, 500_000).with_buffer_bytes(2 << 20);
    let link = link.with_ecn(Ecn { min_bytes: 64 << 10, max_bytes: 256 << 10, max_ppm: 1_000_000 });
    let planes = vec![PlaneLinks { host: link.clone(), core: link }];
    let topology = Topology::leaf_spine(&LeafSpine { leaf_count: 8, hosts_per_leaf: 8, spine_count: 8, planes });
    let mut fabric = Fabric::new(&topology, 1).expect("the topology is within its limits");
    if loss_ppm > 0 {
        fabric.add_rule(&LinkSelect::HostUp, Rule::loss(loss_ppm)).expect("hosts have uplinks");
    }
    let frames = (megabytes << 20) / PAYLOAD_BYTES;
    for host in 0..64 {
        // Multiplication by an odd number permutes; the offset keeps everyone from sending to itself.
        let (to, from) = ((host * 13 + 9) % 64, (0..64).find(|i| (i * 13 + 9) % 64 == host).expect("a permutation"));
        let data = headers(host, to, HEADER_BYTES, PAYLOAD_BYTES);
        let answer = headers(host, from, ANSWER_BYTES, 0);
        fabric.attach(NodeId(host), Nic { data, answer, frames_left: frames, answers: 0 });
    }
    let begin_ns = cpu_ns();
    fabric.run_until_idle(u64::MAX);
    let cpu_us = (cpu_ns() - begin_ns) / 1_000;

    let stats = fabric.stats();
    let answers: u32 = (0..64).map(|host| fabric.node::<Nic>(NodeId(host)).expect("attached above").answers).sum();
    println!("{megabytes} MB per host, {loss_ppm} ppm loss: {answers} of {} frames answered", frames * 64);
    println!("{} link-hops, {} events, simulated {} us", stats.link_hops, stats.events, fabric.now_ps() / 1_000_000);
    println!("marked {}, dropped: {}", stats.ecn_marked, stats.drops);
    println!("CPU {} ms", cpu_us / 1_000);
    println!("{} thousand link-hops per CPU-second", stats.link_hops * 1_000 / cpu_us.max(1));
}
